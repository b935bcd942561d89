//! Whom a signature has to be for, and what may be in a path, by what the session is.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Context, Result};
use holdfast_bgp_wire::NextHop;
use holdfast_bgpsec_wire::{CONFED_SEGMENT, Segment};
use holdfast_lab::{
    router::Router,
    signed::{Hop, SpkiCache, path_of, segment, signer, update},
    speaker::Speaker,
    topology::{Side, Star, v4},
    wait,
};
use holdfast_path_validation::{P256Signer, Signer};
use holdfast_types::{Asn, Prefix};

const LIMIT: Duration = Duration::from_secs(60);
const CONFEDERATION: u32 = 64_999;
const MEMBER: u32 = 65_001;
const OUTSIDE: u32 = 65_102;
const OWN: u32 = 65_000;
const LOCAL: u32 = 64_900;

/// What is to become of a path: its state and its AS_PATH; `None`: it is treated as a withdrawal.
type Expected = Option<(&'static str, &'static str)>;

/// A path of a peer to an AS, over these segments; the origin is before them.
struct Case {
    network: u8,
    target: u32,
    segments: Vec<Segment>,
    expected: Expected,
}

fn case(network: u8, target: u32, segments: &[Segment], expected: Expected) -> Case {
    Case { network, target, segments: segments.to_vec(), expected }
}

fn plain(asn: u32) -> Segment {
    segment(Asn(asn))
}

fn uncounted(asn: u32) -> Segment {
    Segment { pcount: 0, ..plain(asn) }
}

fn inside(segment: Segment) -> Segment {
    Segment { flags: CONFED_SEGMENT, ..segment }
}

/// Has peers of these ASs, by network, announce the paths, and looks what becomes of them.
fn run(configuration: &str, peers: &[(u32, &str)], cases: &[Case]) -> Result<()> {
    let star = Star::new(peers.len() as u8)?;
    let ases = [64_496, CONFEDERATION, MEMBER, OUTSIDE, OWN];
    let mut signers = ases.map(signer).into_iter().collect::<Result<Vec<P256Signer>>>()?;
    for (asn, _) in peers {
        signers.push(signer(*asn)?);
    }
    let keys: Vec<_> = signers.iter().map(P256Signer::router_key).collect();
    let _cache = SpkiCache::start(star.neighbor(1), (v4(1, Side::Second), 8282).into(), &keys)?;
    let mut text = configuration.to_owned();
    for (network, (asn, more)) in (1..).zip(peers) {
        let address = v4(network, Side::Second);
        writeln!(
            text,
            "[[bgp.peer]]\nname = \"peer{network}\"\naddress = \"{address}\"\nasn = {asn}\npassive = true\n\
             import = \"accept-all\"\nexport = \"accept-all\"\nbgpsec-validation = \"log\"\n{more}"
        )?;
    }
    writeln!(text, "[[rpki.cache]]\nname = \"keys\"\naddress = \"10.0.1.2\"\nport = 8282\npreference = 10")?;
    let router = Router::start(&star.router, &text)?;
    let mut speakers: Vec<Speaker> = Vec::new();
    for (network, (asn, _)) in (1..).zip(peers) {
        let speaker = star.speaker(network, *asn, |config| config.signs = true)?;
        speaker.wait_established(LIMIT).with_context(|| router.log_tail())?;
        speakers.push(speaker);
    }

    let prefix = |number: usize| -> Result<Prefix> {
        let text = format!("198.51.{number}.0/24");
        text.parse().ok().context(text)
    };
    for (number, case) in cases.iter().enumerate() {
        let route = prefix(number)?;
        let by = |asn: Asn| signers.iter().find(|signer| signer.asn() == asn).context("a key");
        let segments = [&[plain(64_496)], &case.segments[..]].concat();
        let hops = segments.iter().map(|segment| Ok(Hop { segment: *segment, ..Hop::of(by(segment.asn)?) }));
        let hops = hops.collect::<Result<Vec<_>>>()?;
        let value = path_of(&hops, &[1], Asn(case.target), route, &|_, signature| signature)?;
        let next_hop = NextHop::V4(v4(case.network, Side::Second));
        speakers[usize::from(case.network) - 1].send_raw(update(&value, next_hop, route)?);
    }
    // Behind them, a path of each peer that is taken: the others were looked at.
    for (number, case) in cases.iter().enumerate() {
        let route = prefix(number)?;
        let wanted = case.expected.map(|(state, path)| (state.to_owned(), path.to_owned()));
        let what = format!("case {number}: {:?}", case.segments);
        wait::until(&what, LIMIT, || {
            let shown = router.show(&["bgp", "routes", "--neighbor", &format!("peer{}", case.network)]);
            let shown = shown.map_err(|error| format!("{error:#}"))?;
            let path = &shown["routes"][route.to_string()][0];
            let found = path.as_object().map(|path| {
                let text = |value: &serde_json::Value| value.as_str().unwrap_or("?").to_owned();
                (text(&path["bgpsec"]["state"]), text(&path["path"]))
            });
            let is_read = router.neighbor(&format!("peer{}", case.network));
            let read = is_read.map_err(|error| format!("{error:#}"))?["messageStats"]["updatesRecv"].as_u64();
            let of_peer = cases.iter().filter(|other| other.network == case.network).count() as u64;
            if found == wanted && read >= Some(of_peer) { Ok(()) } else { Err(format!("{found:?} {read:?}")) }
        })
        .with_context(|| format!("{what}: expected {wanted:?}; {}", router.log_tail()))?;
    }
    Ok(())
}

#[test]
fn in_a_confederation_signatures_are_for_the_member_inside_and_for_all_of_it_outside() -> Result<()> {
    let configuration = format!(
        "[router]\nid = \"10.0.0.1\"\nasn = {OWN}\n[bgp.confederation]\nid = {CONFEDERATION}\nmembers = [{MEMBER}]\n[bgp]\n"
    );
    let bgpsec = "bgpsec = { receive = true, require-session = true }\n";
    // RFC 8205 section 4.3: whoever takes a route into the confederation signs for its own member.
    let entered = inside(uncounted(CONFEDERATION));
    let cases = [
        case(1, OWN, &[entered, inside(plain(MEMBER))], Some(("valid", "(65001) 64496"))),
        case(1, CONFEDERATION, &[entered, inside(plain(MEMBER))], Some(("not-valid", "(65001) 64496"))),
        case(1, OWN, &[entered, plain(MEMBER)], None),
        case(1, OWN, &[plain(CONFEDERATION), inside(plain(MEMBER))], None),
        case(1, OWN, &[inside(plain(OWN)), inside(plain(MEMBER))], None),
        case(2, CONFEDERATION, &[plain(OUTSIDE)], Some(("valid", "65102 64496"))),
        case(2, OWN, &[plain(OUTSIDE)], Some(("not-valid", "65102 64496"))),
        case(2, CONFEDERATION, &[inside(plain(OUTSIDE))], None),
        case(2, CONFEDERATION, &[inside(plain(MEMBER)), plain(OUTSIDE)], None),
        case(2, CONFEDERATION, &[plain(OWN), plain(OUTSIDE)], None),
    ];
    run(&configuration, &[(MEMBER, bgpsec), (OUTSIDE, bgpsec)], &cases)
}

#[test]
fn signatures_are_for_the_as_of_our_open_and_a_route_server_may_leave_itself_out() -> Result<()> {
    let configuration = format!("[router]\nid = \"10.0.0.1\"\nasn = {OWN}\n[bgp]\n");
    let bgpsec = "bgpsec = { receive = true, require-session = true }\n";
    let local = format!("{bgpsec}local-asn = {LOCAL}\nlocal-asn-mode = \"no-prepend\"\n");
    // What has to be first in a path from another AS is not there.
    let server =
        "bgpsec = { receive = true, require-session = true, pcount-zero = true }\nenforce-first-as = true\n";
    let [moved, served, strict] = [65_201, 65_202, 65_203];
    let cases = [
        case(1, LOCAL, &[plain(moved)], Some(("valid", "65201 64496"))),
        case(1, OWN, &[plain(moved)], Some(("not-valid", "65201 64496"))),
        case(1, LOCAL, &[plain(OWN), plain(moved)], None),
        case(2, OWN, &[uncounted(served)], Some(("valid", "64496"))),
        case(2, OWN, &[plain(served)], Some(("valid", "65202 64496"))),
        case(2, LOCAL, &[uncounted(served)], Some(("not-valid", "64496"))),
        case(2, OWN, &[uncounted(OUTSIDE)], None),
        case(3, OWN, &[uncounted(strict)], None),
        case(3, OWN, &[uncounted(OUTSIDE), plain(strict)], Some(("valid", "65203 64496"))),
    ];
    run(&configuration, &[(moved, &local), (served, server), (strict, bgpsec)], &cases)
}
