//! What becomes of routes between peers: selection, policy, resolution, and what is told to others.
//!
//! ```text
//!  left   ──1──┐
//!  right  ──2── Holdfast ──3── sink
//!              │AS 65000       AS 65003
//!           kernel
//! ```
//!
//! Every story reads the same state at three places: the kernel's routes, what the sink has been told, and the
//! router's own account of it.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{
    Attributes, Origin,
    attribute::{code, flag},
    edit::AttributesBuilder,
};
use holdfast_lab::{
    kernel::{self, Monitor},
    netns::Namespace,
    peers::{Bird, Frr},
    router::Router,
    speaker::{Received, Speaker},
    table::{AttributeSet, Table},
    topology::{ROUTER, Star},
    wait,
};
use holdfast_types::{Asn, Family, Prefix};

const US: u32 = 65000;
const LEFT: u32 = 65001;
const RIGHT: u32 = 65002;
const SINK: u32 = 65003;

const LIMIT: Duration = Duration::from_secs(30);
/// Prefixes of one table of the tests here: more than one batch or message holds.
const MANY: u16 = 5000;

/// A passive peer in network 1, 2 or 3, with the keys of `more` besides.
fn peer(name: &str, network: u8, asn: u32, more: &str) -> String {
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"10.0.{network}.2\"\nasn = {asn}\npassive = true\n{more}\n"
    )
}

const ALL: &str = "import = \"accept-all\"\nexport = \"accept-all\"";

fn sink_only(name: &str) -> String {
    peer("sink", 3, SINK, &format!("import = \"reject-all\"\nexport = \"{name}\""))
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

/// The prefixes 100.64.0.0/24 and following.
fn many() -> impl Iterator<Item = Prefix> {
    (0..MANY).map(|number| {
        let [high, low] = number.to_be_bytes();
        Prefix::new(Ipv4Addr::new(100, 64 + high, low, 0).into(), 24).expect("a length of IPv4")
    })
}

/// Attributes of a route, the speaker's own AS not yet in the path.
fn path(asns: &[u32]) -> AttributesBuilder {
    AttributesBuilder {
        as_path: asns.iter().copied().map(Asn).collect(),
        ..AttributesBuilder::new(Origin::Igp)
    }
}

fn table(prefixes: impl IntoIterator<Item = Prefix>, bytes: Vec<u8>) -> Arc<Table> {
    let routes = prefixes.into_iter().map(|prefix| (prefix, 0)).collect();
    Arc::new(Table { sets: vec![AttributeSet { bytes }], routes })
}

fn one(text: &str, attributes: &AttributesBuilder) -> Arc<Table> {
    table([prefix(text)], attributes.build())
}

fn path_of(route: &Received) -> String {
    Attributes(&route.attributes).as_path().to_string()
}

/// Until the sink has a route for the prefix with this path, or none.
fn until_sink(sink: &Speaker, wanted: Prefix, path: Option<&str>) -> Result<()> {
    wait::until("the sink's route", LIMIT, || {
        let found = sink.route(wanted).map(|route| path_of(&route));
        if found.as_deref() == path {
            Ok(())
        } else {
            Err(format!("{wanted}: {found:?} instead of {path:?}"))
        }
    })
}

/// Until the kernel has exactly so many routes of ours, all by this way.
fn until_kernel(host: &Namespace, count: usize, way: &str) -> Result<()> {
    wait::until("the kernel's routes", LIMIT, || {
        let routes = kernel::routes(host, false).map_err(|error| error.to_string())?;
        let right = routes.values().filter(|line| line.contains(way)).count();
        if (routes.len(), right) == (count, count) {
            return Ok(());
        }
        Err(format!("{right} of {} by {way}, the first: {:?}", routes.len(), routes.first_key_value()))
    })
}

/// Why the router prefers another path to the one of this peer.
fn reason(router: &Router, prefix: &str, peer: &str) -> Result<String> {
    let shown = router.show(&["bgp", "route", prefix])?;
    let paths = shown["paths"].as_array().context("paths")?;
    let path = paths.iter().find(|path| path["peer"]["peerName"] == peer);
    let path = path.with_context(|| format!("no path of {peer}: {shown}"))?;
    Ok(path["reason"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_shorter_path_wins_and_when_it_goes_the_other_takes_over_without_a_gap() -> Result<()> {
    let star = Star::new(3)?;
    let peers = [peer("left", 1, LEFT, ALL), peer("right", 2, RIGHT, ALL), sink_only("accept-all")];
    let _router = Router::start(&star.router, &[ROUTER, &peers.concat()].concat())?;
    let sink = star.speaker(3, SINK, |_| ())?;
    let left = star.speaker(1, LEFT, |_| ())?;
    let right = star.speaker(2, RIGHT, |_| ())?;
    let (long, short) = (table(many(), path(&[7, 8]).build()), table(many(), path(&[9]).build()));
    left.announce(Arc::clone(&long));
    sink.wait_routes(MANY.into(), LIMIT)?;
    until_kernel(&star.router, MANY.into(), "via 10.0.1.2 dev n1 ")?;

    let monitor = Monitor::start(&star.router)?;
    right.announce(Arc::clone(&short));
    until_kernel(&star.router, MANY.into(), "via 10.0.2.2 dev n2 ")?;
    let last = many().last().context("a prefix")?;
    until_sink(&sink, last, Some("65000 65002 9"))?;
    right.withdraw(Arc::clone(&short));
    until_kernel(&star.router, MANY.into(), "via 10.0.1.2 dev n1 ")?;
    until_sink(&sink, last, Some("65000 65001 7 8"))?;

    right.announce(short);
    until_kernel(&star.router, MANY.into(), "via 10.0.2.2 dev n2 ")?;
    drop(right);
    until_kernel(&star.router, MANY.into(), "via 10.0.1.2 dev n1 ")?;
    wait::until("all of the sink's routes", LIMIT, || {
        let routes = sink.routes();
        let right = routes.values().filter(|route| path_of(route) == "65000 65001 7 8").count();
        if right == usize::from(MANY) { Ok(()) } else { Err(format!("{right} of {}", routes.len())) }
    })?;
    ensure!(sink.status().withdrawn == 0, "the sink never lost a route");
    let deleted: Vec<_> =
        monitor.deletions()?.into_iter().filter(|line| !line.contains("Deleted id")).collect();
    ensure!(deleted.is_empty(), "{} routes were deleted, the first: {}", deleted.len(), deleted[0]);

    left.withdraw(long);
    sink.wait_routes(0, LIMIT)?;
    until_kernel(&star.router, 0, "")?;
    Ok(())
}

#[test]
fn local_preference_by_policy_beats_length_and_med_decides_between_links_to_one_as() -> Result<()> {
    const POLICY: &str = r#"
[[policy]]
name = "preferred"
[[policy.term]]
from = { prefix = ["198.51.100.0/24"] }
then = { local-preference = 200, action = "accept" }
[[policy.term]]
then = "accept"
"#;
    let star = Star::new(3)?;
    let preferred = "import = \"preferred\"\nexport = \"accept-all\"";
    // Both are links to the same AS.
    let peers = [peer("left", 1, LEFT, preferred), peer("right", 2, LEFT, ALL), sink_only("accept-all")];
    let router = Router::start(&star.router, &[ROUTER, &peers.concat(), POLICY].concat())?;
    let sink = star.speaker(3, SINK, |_| ())?;
    let with_med = |med| AttributesBuilder { med: Some(med), ..path(&[9]) };
    let left = [one("198.51.100.0/24", &path(&[7, 8, 9])), one("203.0.113.0/24", &with_med(20))];
    let right = [one("198.51.100.0/24", &path(&[9])), one("203.0.113.0/24", &with_med(10))];
    let _left = star.speaker(1, LEFT, |config| config.tables = left.to_vec())?;
    let _right = star.speaker(2, LEFT, |config| config.tables = right.to_vec())?;
    let kernel_has = |wanted: &str, way: &str| {
        wait::until("the kernel's route", LIMIT, || {
            let routes = kernel::routes(&star.router, false).map_err(|error| error.to_string())?;
            let line = routes.get(&prefix(wanted)).cloned().unwrap_or_default();
            if line.contains(way) { Ok(()) } else { Err(line) }
        })
    };
    until_sink(&sink, prefix("198.51.100.0/24"), Some("65000 65001 7 8 9"))?;
    kernel_has("198.51.100.0/24", "via 10.0.1.2")?;
    kernel_has("203.0.113.0/24", "via 10.0.2.2")?;
    until_sink(&sink, prefix("203.0.113.0/24"), Some("65000 65001 9"))?;
    let why = [reason(&router, "198.51.100.0/24", "right")?, reason(&router, "203.0.113.0/24", "left")?];
    ensure!(why[0].contains("local preference") && why[1].contains("MED"), "{why:?}");
    Ok(())
}

#[test]
fn static_and_connected_routes_beat_bgp_unless_distances_say_otherwise() -> Result<()> {
    const STATIC: &str = "[[static]]\nprefix = \"192.0.2.0/24\"\nnext-hop = \"10.0.2.2\"\n";
    let tables = vec![one("192.0.2.0/24", &path(&[])), one("10.0.3.0/24", &path(&[]))];
    for (distance, way) in
        [("", "via 10.0.2.2 dev n2"), ("[rib.distance]\nstatic = 30\n", "via 10.0.1.2 dev n1")]
    {
        let star = Star::new(3)?;
        let peers = [peer("left", 1, LEFT, ALL), sink_only("accept-all")].concat();
        let router = Router::start(&star.router, &[ROUTER, &peers, STATIC, distance].concat())?;
        let _left = star.speaker(1, LEFT, |config| config.tables = tables.clone())?;
        let sink = star.speaker(3, SINK, |_| ())?;
        // BGP's own choice is another matter.
        sink.wait_routes(2, LIMIT)?;
        wait::until("the rib's routes", LIMIT, || {
            let shown = router.show(&["route"]).map_err(|error| error.to_string())?;
            let bgp = |prefix: &str| {
                let routes = shown[prefix].as_array()?;
                routes.iter().find(|route| route["protocol"] == "bgp").map(|route| route["selected"].clone())
            };
            let (connected, by_distance) = (bgp("10.0.3.0/24"), bgp("192.0.2.0/24"));
            let selected = connected.is_some_and(|flag| flag != true)
                && by_distance.map(|flag| flag == true) == Some(!distance.is_empty());
            if selected { Ok(()) } else { Err(shown.to_string()) }
        })?;
        until_kernel(&star.router, 1, way)?;
    }
    Ok(())
}

#[test]
fn a_next_hop_of_ibgp_is_resolved_through_a_static_route_and_goes_with_it() -> Result<()> {
    const STATIC: &str = "[[static]]\nprefix = \"198.51.100.0/24\"\nnext-hop = \"10.0.2.2\"\n";
    let star = Star::new(3)?;
    let peers = [peer("left", 1, US, ""), sink_only("accept-all")].concat();
    let router = Router::start(&star.router, &[ROUTER, &peers, STATIC].concat())?;
    let sink = star.speaker(3, SINK, |_| ())?;
    let _left = star.speaker(1, US, |config| {
        config.next_hop_v4 = Ipv4Addr::new(198, 51, 100, 9).into();
        config.tables = vec![table(many(), path(&[7]).build())];
    })?;
    let all = usize::from(MANY) + 1;
    sink.wait_routes(MANY.into(), LIMIT)?;
    until_kernel(&star.router, all, "via 10.0.2.2 dev n2 ")?;
    until_sink(&sink, prefix("100.64.7.0/24"), Some("65000 7"))?;

    star.router.ip(&["link", "set", "n2", "down"])?;
    sink.wait_routes(0, LIMIT)?;
    until_kernel(&star.router, 0, "")?;
    ensure!(reason(&router, "100.64.7.0/24", "left")?.contains("next hop"), "the router says why");
    star.router.ip(&["link", "set", "n2", "up"])?;
    sink.wait_routes(MANY.into(), LIMIT)?;
    until_kernel(&star.router, all, "via 10.0.2.2 dev n2 ")?;
    Ok(())
}

#[test]
fn equal_paths_share_the_traffic_where_that_is_configured() -> Result<()> {
    let star = Star::new(3)?;
    let peers = [peer("left", 1, LEFT, ALL), peer("right", 2, RIGHT, ALL), sink_only("accept-all")].concat();
    let router = Router::start(&star.router, &[ROUTER, "max-paths = 2\n", &peers].concat())?;
    let sink = star.speaker(3, SINK, |_| ())?;
    let left = table(many(), path(&[7]).build());
    let _left = star.speaker(1, LEFT, |config| config.tables = vec![Arc::clone(&left)])?;
    let right = star.speaker(2, RIGHT, |config| config.tables = vec![table(many(), path(&[8]).build())])?;
    until_kernel(&star.router, MANY.into(), "via 10.0.1.2 dev n1 weight 1")?;
    until_kernel(&star.router, MANY.into(), "via 10.0.2.2 dev n2 weight 1")?;
    until_sink(&sink, prefix("100.64.7.0/24"), Some("65000 65001 7"))?;
    let shown = router.show(&["bgp", "route", "100.64.7.0/24"])?;
    let used = |path: &serde_json::Value| path["nexthops"][0]["used"] == true;
    ensure!(shown["paths"].as_array().is_some_and(|paths| paths.iter().all(used)), "{shown}");
    drop(right);
    until_kernel(&star.router, MANY.into(), "via 10.0.1.2 dev n1 metric")?;
    ensure!(sink.status().withdrawn == 0, "the best path stayed all the time");
    Ok(())
}

const POLICIES: &str = r#"
[[prefix-set]]
name = "ours"
prefixes = ["198.51.100.0/24 le 26"]
[[policy]]
name = "in"
[[policy.term]]
name = "not-through-9"
from = { as-path = ["* 9 *"] }
then = "reject"
[[policy.term]]
name = "marked"
from = { community = ["65001:1"] }
then = { remove-communities = ["65001:*"], add-communities = ["65000:7", "65000:1:2"], action = "accept" }
[[policy.term]]
name = "ours"
from = { prefix-set = "ours" }
then = { origin = "egp", action = "accept" }
[[policy]]
name = "out"
[[policy.term]]
name = "far"
from = { community = "65000:7" }
then = { prepend = 2, med = 50, action = "accept" }
[[policy.term]]
name = "half"
from = { prefix = ["198.51.100.128/25"] }
then = "reject"
[[policy.term]]
name = "rest"
then = { set-communities = ["65000:8"], action = "accept" }
"#;

#[test]
fn policies_refuse_and_edit_what_they_say() -> Result<()> {
    let star = Star::new(3)?;
    let peers = [peer("left", 1, LEFT, "import = \"in\""), sink_only("out")].concat();
    let router = Router::start(&star.router, &[ROUTER, &peers, POLICIES].concat())?;
    let sink = star.speaker(3, SINK, |_| ())?;
    let marked = AttributesBuilder { communities: vec![65001 << 16 | 1, 65001 << 16 | 2], ..path(&[7]) };
    let tables = vec![
        one("203.0.113.0/24", &marked),
        one("198.51.100.0/24", &path(&[8])),
        one("198.51.100.64/26", &path(&[8])),
        one("198.51.100.128/25", &path(&[8])),
        one("198.51.100.192/27", &path(&[8])),
        one("192.0.2.0/24", &path(&[8])),
        one("198.51.100.0/25", &path(&[7, 9, 8])),
    ];
    let _left = star.speaker(1, LEFT, |config| config.tables = tables)?;
    sink.wait_routes(3, LIMIT)?;
    let routes = sink.routes();
    let shown: Vec<_> = routes
        .iter()
        .map(|(prefix, route)| {
            let all = Attributes(&route.attributes);
            let communities: Vec<_> = all.communities().map(|c| (c >> 16, c & 0xffff)).collect();
            let large: Vec<_> = all.large_communities().collect();
            (prefix.to_string(), all.as_path().to_string(), all.origin(), all.med(), communities, large)
        })
        .collect();
    let plain = |prefix: &str| {
        let path = "65000 65001 8".to_owned();
        (prefix.to_owned(), path, Some(Origin::Egp), None, vec![(65000, 8)], vec![])
    };
    let marked = (
        "203.0.113.0/24".to_owned(),
        "65000 65000 65000 65001 7".to_owned(),
        Some(Origin::Igp),
        Some(50),
        vec![(65000, 7)],
        vec![(65000, 1, 2)],
    );
    ensure!(shown == [plain("198.51.100.0/24"), plain("198.51.100.64/26"), marked], "{shown:#?}");
    // The kernel has what import policy let pass.
    until_kernel(&star.router, 4, "via 10.0.1.2 dev n1 ")?;
    let why = reason(&router, "192.0.2.0/24", "left")?;
    ensure!(why.contains("policy"), "{why}");
    Ok(())
}

#[test]
fn without_policies_nothing_passes_between_ases() -> Result<()> {
    let star = Star::new(3)?;
    let mut peers = [peer("left", 1, LEFT, ""), peer("right", 2, RIGHT, ALL), peer("sink", 3, SINK, "")];
    let network = "[[bgp.network]]\nprefix = \"203.0.113.0/24\"\n";
    peers[2].push_str(network);
    let router = Router::start(&star.router, &[ROUTER, &peers.concat()].concat())?;
    let left = star.speaker(1, LEFT, |config| config.tables = vec![one("198.51.100.0/24", &path(&[]))])?;
    let right = star.speaker(2, RIGHT, |config| config.tables = vec![one("192.0.2.0/24", &path(&[]))])?;
    let sink = star.speaker(3, SINK, |_| ())?;
    // All have been told everything there is to be told: the end of it.
    for speaker in [&left, &right, &sink] {
        speaker.wait_end_of_rib(Family::IPV4_UNICAST, LIMIT)?;
    }
    right.wait_routes(1, LIMIT)?;
    ensure!(right.route(prefix("203.0.113.0/24")).is_some_and(|route| path_of(&route) == "65000"));
    until_kernel(&star.router, 1, "via 10.0.2.2 dev n2 ")?;
    let why = reason(&router, "198.51.100.0/24", "left")?;
    ensure!(why.contains("8212") || why.contains("policy"), "{why}");
    ensure!((left.status().announced, sink.status().announced) == (0, 0), "RFC 8212");
    Ok(())
}

#[test]
fn a_refresh_brings_everything_again_and_disturbs_nobody() -> Result<()> {
    let star = Star::new(3)?;
    let peers = [peer("left", 1, LEFT, ALL), peer("right", 2, RIGHT, ALL), sink_only("accept-all")].concat();
    let router = Router::start(&star.router, &[ROUTER, &peers].concat())?;
    let left = star.speaker(1, LEFT, |config| config.tables = vec![table(many(), path(&[7]).build())])?;
    let right = star.speaker(2, RIGHT, |_| ())?;
    let sink = star.speaker(3, SINK, |_| ())?;
    for speaker in [&sink, &right] {
        speaker.wait_routes(MANY.into(), LIMIT)?;
    }
    let (many, before) = (u64::from(MANY), right.status().announced);
    let announced = |wanted: u64| {
        wait::until("announcements", LIMIT, || {
            let status = sink.status();
            if status.announced == wanted { Ok(()) } else { Err(format!("{}", status.announced)) }
        })
    };
    announced(many)?;
    sink.refresh(Family::IPV4_UNICAST);
    announced(2 * many)?;
    router.cli(&["clear", "bgp", "sink", "--soft"])?;
    announced(3 * many)?;
    ensure!(sink.status().withdrawn == 0 && sink.status().sessions == 1);
    ensure!(right.status().announced == before, "the other peer hears nothing of it");
    // What came from the other side is still known: it is not asked for.
    router.cli(&["clear", "bgp", "left", "--soft"])?;
    ensure!((left.status().sessions, left.status().refreshes) == (1, 0));
    Ok(())
}

/// An attribute as on the wire.
fn attribute(flags: u8, code: u8, value: &[u8]) -> Vec<u8> {
    [&[flags, code, value.len() as u8], value].concat()
}

#[test]
fn what_is_to_be_carried_is_carried_and_what_is_to_stay_stays() -> Result<()> {
    const UNKNOWN: u8 = 99;
    const NO_EXPORT: u32 = 0xffff_ff01;
    const NO_ADVERTISE: u32 = 0xffff_ff02;
    let star = Star::new(3)?;
    let internal = peer("right", 2, US, "");
    let peers = [peer("left", 1, LEFT, ALL), internal, sink_only("accept-all")].concat();
    let _router = Router::start(&star.router, &[ROUTER, &peers].concat())?;
    let (sink, inside) = (star.speaker(3, SINK, |_| ())?, star.speaker(2, US, |_| ())?);
    let mut rich = AttributesBuilder {
        communities: vec![65001 << 16 | 1],
        large_communities: vec![(65001, 1, 2)],
        ..path(&[7])
    }
    .build();
    let extended = [0, 2, 0xfd, 0xe9, 0, 0, 0, 5];
    let more = [
        attribute(flag::OPTIONAL | flag::TRANSITIVE, code::EXTENDED_COMMUNITIES, &extended),
        attribute(flag::OPTIONAL | flag::TRANSITIVE, UNKNOWN, b"carry me"),
        attribute(flag::OPTIONAL, UNKNOWN + 1, b"not me"),
    ];
    rich.extend(more.concat());
    let kept = |community| AttributesBuilder { communities: vec![community], ..path(&[]) };
    let tables = vec![
        table([prefix("203.0.113.0/24")], rich),
        one("198.51.100.0/24", &kept(NO_EXPORT)),
        one("192.0.2.0/24", &kept(NO_ADVERTISE)),
    ];
    let _left = star.speaker(1, LEFT, |config| config.tables = tables)?;
    sink.wait_routes(1, LIMIT)?;
    inside.wait_routes(2, LIMIT)?;
    until_kernel(&star.router, 3, "via 10.0.1.2 dev n1 ")?;
    for speaker in [&sink, &inside] {
        let route = speaker.route(prefix("203.0.113.0/24")).context("the route")?;
        let all = Attributes(&route.attributes);
        ensure!(all.communities().eq([65001 << 16 | 1]) && all.ext_communities().eq([extended]));
        ensure!(all.large_communities().eq([(65001, 1, 2)]));
        let unknown = all.get(UNKNOWN).context("the unknown attribute")?;
        // RFC 4271 section 5: who does not know it says so.
        let flags = flag::OPTIONAL | flag::TRANSITIVE | flag::PARTIAL;
        ensure!((unknown.flags & !flag::EXTENDED_LENGTH, unknown.value) == (flags, &b"carry me"[..]));
        ensure!(all.get(UNKNOWN + 1).is_none());
    }
    ensure!(inside.route(prefix("198.51.100.0/24")).is_some(), "NO_EXPORT ends at the border of the AS");
    let route = inside.route(prefix("203.0.113.0/24")).context("the route")?;
    let all = Attributes(&route.attributes);
    let hop = all.next_hop().map(|hop| hop.to_string());
    ensure!((path_of(&route).as_str(), all.local_pref()) == ("65001 7", Some(100)));
    ensure!(hop.as_deref() == Some("10.0.1.2"), "inside the AS the next hop stays: {hop:?}");
    Ok(())
}

/// Stock routers at both sides, in both families at once.
#[test]
fn bird_and_frr_see_each_others_routes_through_us() -> Result<()> {
    let star = Star::new(2)?;
    let both =
        "families = [\"ipv4-unicast\", \"ipv6-unicast\"]\nimport = \"accept-all\"\nexport = \"accept-all\"";
    let peers = [
        peer("bird", 1, LEFT, &format!("{both}\nnext-hop-ipv6 = \"2001:db8:1::1\"")),
        peer("frr", 2, RIGHT, &format!("{both}\nnext-hop-ipv6 = \"2001:db8:2::1\"")),
    ];
    let router = Router::start(&star.router, &[ROUTER, &peers.concat()].concat())?;
    let bird = Bird::start(
        star.neighbor(1),
        &format!(
            "router id 10.0.1.2;
            protocol device {{ }}
            protocol static {{ ipv4; route 198.51.100.0/24 blackhole; }}
            protocol static {{ ipv6; route 2001:db8:a::/48 blackhole; }}
            protocol bgp holdfast {{
              local 10.0.1.2 as {LEFT}; neighbor 10.0.1.1 as {US}; connect delay time 1;
              ipv4 {{ import all; export all; }};
              ipv6 {{ import all; export all; next hop address 2001:db8:1::2; }};
            }}"
        ),
    )?;
    let frr = Frr::start(
        star.neighbor(2),
        &format!(
            "router bgp {RIGHT}
             bgp router-id 10.0.2.2
             no bgp ebgp-requires-policy
             no bgp network import-check
             neighbor 10.0.2.1 remote-as {US}
             neighbor 10.0.2.1 timers connect 1
             address-family ipv4 unicast
              network 203.0.113.0/24
             exit-address-family
             address-family ipv6 unicast
              neighbor 10.0.2.1 activate
              neighbor 10.0.2.1 route-map SET out
              network 2001:db8:b::/48
             exit-address-family
             route-map SET permit 10
              set ipv6 next-hop global 2001:db8:2::2\n"
        ),
    )?;
    wait::until("routes at BIRD", LIMIT, || {
        let v4 = bird.birdc("show route 203.0.113.0/24 all").map_err(|error| error.to_string())?;
        let v6 = bird.birdc("show route 2001:db8:b::/48 all").map_err(|error| error.to_string())?;
        let right = v4.contains("as_path: 65000 65002") && v6.contains("as_path: 65000 65002");
        if right && v6.contains("next_hop: 2001:db8:1::1") { Ok(()) } else { Err(format!("{v4}{v6}")) }
    })?;
    wait::until("routes at FRR", LIMIT, || {
        let v4 = frr.vtysh("show bgp ipv4 unicast 198.51.100.0/24").map_err(|error| error.to_string())?;
        let v6 = frr.vtysh("show bgp ipv6 unicast 2001:db8:a::/48").map_err(|error| error.to_string())?;
        let right = v4.contains("65000 65001") && v6.contains("65000 65001");
        if right && v6.contains("2001:db8:2::1") { Ok(()) } else { Err(format!("{v4}{v6}")) }
    })?;
    until_kernel(&star.router, 2, "via 10.0.")?;
    wait::until("IPv6 routes", LIMIT, || {
        let routes = kernel::routes(&star.router, true).map_err(|error| error.to_string())?;
        let by = |wanted: &str, way: &str| {
            routes.get(&prefix(wanted)).is_some_and(|line: &String| line.contains(way))
        };
        let right = by("2001:db8:a::/48", "via 2001:db8:1::2 dev n1")
            && by("2001:db8:b::/48", "via 2001:db8:2::2 dev n2");
        if right { Ok(()) } else { Err(format!("{routes:?}")) }
    })?;
    // BIRD and FRR say End-of-RIB, and it is noticed.
    for name in ["bird", "frr"] {
        wait::until("End-of-RIB", LIMIT, || {
            let shown = router.show(&["bgp", "neighbors", name]).map_err(|error| error.to_string())?;
            let peer = shown.as_object().and_then(|all| all.values().next()).ok_or("no peer")?;
            let families = peer["addressFamilyInfo"].as_object().ok_or("no families")?;
            let all = families.len() == 2 && families.values().all(|family| family["endOfRibRecv"] == true);
            if all { Ok(()) } else { Err(peer["addressFamilyInfo"].to_string()) }
        })?;
    }
    Ok(())
}
