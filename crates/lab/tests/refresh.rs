//! Refreshes with a beginning and an end (RFC 7313) beside BIRD, and outbound route filters (RFC 5291) beside FRR.
//!
//! ```text
//!  BIRD (AS 65001) ──1── Holdfast ──2── FRR (AS 65002)
//!
//!  speaker that signs (AS 65011) ──1── Holdfast ──2── BIRD (AS 65001)
//!                                         │└─────3── FRR (AS 65002)
//!                                         └──────4── BIRD (AS 65000)
//! ```

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::NextHop;
use holdfast_lab::{
    peers::{Bird, Frr, Programs},
    router::Router,
    signed::{path, signer, update},
    speaker::Speaker,
    topology::{ROUTER, Side, Star, v4},
    wait,
};
use holdfast_path_validation::P256Signer;
use holdfast_types::{Asn, Prefix};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

const PEERS: &str = r#"
[[prefix-set]]
name = "wanted"
prefixes = ["198.51.100.0/24", "192.0.2.0/24 ge 25 le 26"]

[[bgp.peer]]
name = "bird"
address = "10.0.1.2"
asn = 65001
import = "accept-all"
export = "accept-all"

[[bgp.peer]]
name = "frr"
address = "10.0.2.2"
asn = 65002
import = "accept-all"
export = "accept-all"
orf = "both"
orf-prefix-set = "wanted"
"#;

const BIRD: &str = r#"
router id 10.0.1.2;
protocol device { scan time 1; }
protocol static {
  ipv4;
  route 203.0.113.0/24 blackhole;
  route 203.0.113.128/25 blackhole;
  route 10.99.0.0/16 blackhole;
}
protocol bgp holdfast {
  local 10.0.1.2 as 65001; neighbor 10.0.1.1 as 65000;
  connect retry time 1; connect delay time 1;
  ipv4 { import all; export where source = RTS_STATIC; };
}
"#;

const FRR: &str = "ip prefix-list WANTED seq 5 permit 203.0.113.0/24
router bgp 65002
 bgp router-id 10.0.2.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.0.2.1 remote-as 65000
 neighbor 10.0.2.1 timers connect 1
 address-family ipv4 unicast
  network 198.51.100.0/24
  network 192.0.2.0/24
  network 192.0.2.64/26
  neighbor 10.0.2.1 capability orf prefix-list both
  neighbor 10.0.2.1 prefix-list WANTED in
 exit-address-family
";

fn number(shown: &Value, key: &str) -> u64 {
    shown["addressFamilyInfo"]["ipv4Unicast"][key].as_u64().unwrap_or(0)
}

fn refreshes(shown: &Value, way: &str) -> u64 {
    shown["messageStats"][format!("routeRefresh{way}")].as_u64().unwrap_or(0)
}

#[test]
fn bird_says_where_refreshes_begin_and_end_and_frr_which_routes_it_wants() -> Result<()> {
    let star = Star::new(2)?;
    let router = Router::start(&star.router, &[ROUTER, PEERS].concat())?;
    let (bird, frr) = (Bird::start(star.neighbor(1), BIRD)?, Frr::start(star.neighbor(2), FRR)?);
    router.until_neighbor("bird", LIMIT, |shown| number(shown, "receivedPrefixCounter") == 3)?;

    // Of FRR's three networks we have asked for two, and it for one of BIRD's.
    let shown = router.until_neighbor("frr", LIMIT, |shown| {
        (number(shown, "receivedPrefixCounter"), number(shown, "sentPrefixCounter")) == (2, 1)
    })?;
    ensure!(number(&shown, "outboundRouteFilterEntries") == 1, "{shown}");
    frr.vtysh("show bgp ipv4 unicast 203.0.113.0/24")?;

    // It wants more: the difference comes.
    frr.vtysh_all(&["configure terminal", "ip prefix-list WANTED seq 10 permit 203.0.113.0/24 ge 25"])?;
    frr.vtysh("clear bgp ipv4 unicast 10.0.2.1 in prefix-filter")?;
    router.until_neighbor("frr", LIMIT, |shown| number(shown, "sentPrefixCounter") == 2)?;

    // Asked again, BIRD says BoRR and EoRR, and everything is where it was.
    let before = refreshes(&router.neighbor("bird")?, "Recv");
    router.cli(&["clear", "bgp", "bird", "in"])?;
    let shown = router.until_neighbor("bird", LIMIT, |shown| refreshes(shown, "Recv") >= before + 2)?;
    ensure!(number(&shown, "receivedPrefixCounter") == 3, "{shown}");
    // And asking, it is told ours: to it that is a refresh that ends as well.
    let before = refreshes(&router.neighbor("bird")?, "Sent");
    bird.birdc("reload in holdfast")?;
    router.until_neighbor("bird", LIMIT, |shown| refreshes(shown, "Sent") >= before + 2)?;
    ensure!(bird.count("protocol holdfast")? == 2, "{}", bird.birdc("show route protocol holdfast")?);

    // What FRR has said is known to the process after this one.
    let first = router.pid("bgp")?;
    router.kill("bgp")?;
    router.wait_running()?;
    let shown = router.until_neighbor("frr", LIMIT, |shown| {
        router.pid("bgp").is_ok_and(|pid| pid != first)
            && (number(shown, "receivedPrefixCounter"), number(shown, "sentPrefixCounter")) == (2, 2)
    })?;
    ensure!(number(&shown, "outboundRouteFilterEntries") == 2, "{shown}");
    ensure!(
        router.log().contains("session-resumed") || router.log().contains("session resumed"),
        "it went on"
    );
    Ok(())
}

/// Of the peer that signs: so many routes with signatures at first, and one without.
const SIGNED: u8 = 6;

/// BIRD is told of IPv6 routes with this next hop.
fn with_signer(next_hop: &str) -> String {
    let told = |name: &str, network: u8, asn: u32, lines: &str| {
        let address = v4(network, Side::Second);
        format!(
            "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {asn}\nexport = \"accept-all\"\n{lines}"
        )
    };
    let signs =
        "passive = true\nimport = \"accept-all\"\nbgpsec = { receive = true, require-session = true }\n";
    let both = "families = [\"ipv4-unicast\", \"ipv6-unicast\"]\n";
    let next_hop = format!("{both}next-hop-ipv6 = \"{next_hop}\"\n");
    [
        ROUTER.to_owned(),
        told("signer", 1, 65_011, signs),
        told("bird", 2, 65_001, &next_hop),
        told("frr", 3, 65_002, ""),
        told("internal", 4, 65_000, ""),
    ]
    .concat()
}

fn announce_signed(speaker: &Speaker, signer: &P256Signer, number: u8) -> Result<()> {
    let prefix: Prefix = format!("203.0.{number}.0/24").parse()?;
    let path = path(&[signer], Asn(65_000), prefix)?;
    speaker.send_raw(update(&path, NextHop::V4(v4(1, Side::Second)), prefix)?);
    Ok(())
}

/// What a stock router has of ours, without what it keeps as stale.
trait Told {
    fn told(&self) -> Result<u64>;
    fn has(&self, prefix: &str) -> Result<bool>;
    fn ask(&self) -> Result<()>;
}

impl Told for Bird {
    fn told(&self) -> Result<u64> {
        self.count("protocol holdfast")
    }

    fn has(&self, prefix: &str) -> Result<bool> {
        // Of one network BIRD counts nothing.
        Ok(self.birdc(&format!("show route {prefix} protocol holdfast"))?.contains(prefix))
    }

    fn ask(&self) -> Result<()> {
        self.ask_for_refresh()
    }
}

impl Told for Frr {
    fn told(&self) -> Result<u64> {
        let shown: Value = serde_json::from_str(&self.vtysh("show bgp ipv4 unicast json")?)?;
        let routes = shown["routes"].as_object().context("routes")?;
        let is_stale = |paths: &Value| paths[0]["stale"] == true;
        Ok(routes.values().filter(|paths| !is_stale(paths)).count() as u64)
    }

    fn has(&self, prefix: &str) -> Result<bool> {
        let shown: Value = serde_json::from_str(&self.vtysh("show bgp ipv4 unicast json")?)?;
        Ok(!shown["routes"][prefix].is_null())
    }

    fn ask(&self) -> Result<()> {
        self.vtysh("clear bgp ipv4 unicast 10.0.3.1 soft in").map(drop)
    }
}

fn stock_bird(programs: &Programs, star: &Star, network: u8, asn: u32) -> Result<Bird> {
    let (near, far) = (v4(network, Side::Second), v4(network, Side::First));
    let more = if asn == 65_001 { "ipv6 { import all; export none; };" } else { "" };
    let configuration = format!(
        "router id {near};
        protocol device {{ }}
        protocol bgp holdfast {{
          local {near} as {asn}; neighbor {far} as 65000;
          connect delay time 1; connect retry time 1; error wait time 1, 2;
          ipv4 {{ import all; export none; }};
          {more}
        }}"
    );
    Bird::start_of(programs.clone(), star.neighbor(network), &configuration, &[])
}

fn each_request_is_answered_whole(programs: &Programs) -> Result<()> {
    let star = Star::new(4)?;
    let router = Router::start(&star.router, &with_signer("2001:db8:2::1"))?;
    let key = signer(65_011)?;
    let speaker = star.speaker(1, 65_011, |config| config.signs = true)?;
    let frr_configuration = "router bgp 65002\n bgp router-id 10.0.3.2\n no bgp ebgp-requires-policy\n \
         neighbor 10.0.3.1 remote-as 65000\n neighbor 10.0.3.1 timers connect 1\n";
    let (bird, internal) = (stock_bird(programs, &star, 2, 65_001)?, stock_bird(programs, &star, 4, 65_000)?);
    let frr = Frr::start_of(programs.clone(), star.neighbor(3), frr_configuration)?;
    router.until_established("signer", LIMIT)?;
    (0..SIGNED).try_for_each(|number| announce_signed(&speaker, &key, number))?;
    let stocks: [(&str, &dyn Told); 3] = [("bird", &bird), ("frr", &frr), ("internal", &internal)];

    let mut count = SIGNED;
    // All say the same of how many routes a peer has: itself, our counter, and our list of what it was told.
    let check = |name: &str, stock: &dyn Told, count: u8| {
        wait::until(&format!("{count} routes of {name}"), LIMIT, || {
            let failed = |error: anyhow::Error| format!("{error:#}");
            let newest = format!("203.0.{}.0/24", count - 1);
            if !stock.has(&newest).map_err(failed)? {
                return Err(format!("{newest} is not there"));
            }
            let advertised = router.show(&["bgp", "neighbors", name, "advertised-routes"]).map_err(failed)?;
            let counted = number(&router.neighbor(name).map_err(failed)?, "sentPrefixCounter");
            let all =
                [stock.told().map_err(failed)?, counted, advertised["totalRoutes"].as_u64().unwrap_or(0)];
            if all == [u64::from(count); 3] { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .with_context(|| router.log_tail())
    };
    for (name, stock) in stocks {
        check(name, stock, count)?;
    }
    for (name, stock) in stocks {
        let reload = || {
            std::fs::write(router.configuration(), with_signer("2001:db8:2::9"))?;
            router.cli(&["reload"]).map(drop)
        };
        let requests: [&dyn Fn() -> Result<()>; 3] =
            [&|| stock.ask(), &|| router.cli(&["clear", "bgp", name, "out"]).map(drop), &reload];
        for (at, request) in requests.into_iter().enumerate().take(if name == "bird" { 3 } else { 2 }) {
            let before = refreshes(&router.neighbor(name)?, "Sent");
            request()?;
            // Both know where a refresh begins and where it ends.
            router
                .until_neighbor(name, LIMIT, |shown| refreshes(shown, "Sent") >= before + 2)
                .with_context(|| format!("request {at} of {name}"))?;
            // What comes after the end says that the peer has seen the end.
            announce_signed(&speaker, &key, count)?;
            count += 1;
            check(name, stock, count).with_context(|| format!("request {at} of {name}"))?;
        }
    }
    Ok(())
}

#[test]
fn each_request_of_a_stock_router_is_answered_with_all_routes_that_came_with_signatures() -> Result<()> {
    for programs in Programs::all() {
        each_request_is_answered_whole(&programs).with_context(|| format!("{programs:?}"))?;
    }
    Ok(())
}
