//! Signed paths inside an AS and a confederation, and of an AS that migrates.

use anyhow::Result;
use holdfast_lab::{
    row::{BGPSEC, Place, Row, SigningKey, cache, head, network, peer},
    topology::Side,
};
use holdfast_types::RouterKey;

use super::{listener::Listener, until_path};

/// What the first router has, and the last one.
const FIRST: &str = "203.0.113.0/24";
const LAST: &str = "198.51.100.0/24";
/// The networks of listeners at both ends.
const BEFORE: u8 = 20;
const BEHIND: u8 = 21;

/// A session inside an AS, on which nobody else's next hops are known.
fn inside() -> String {
    format!("{BGPSEC}next-hop = \"self\"\n")
}

fn public(keys: &[&SigningKey]) -> Vec<RouterKey> {
    keys.iter().map(|key| key.public.clone()).collect()
}

/// A router: its AS, its keys, more of `[bgp]`, and its peers.
struct Router<'a>(u32, Vec<&'a SigningKey>, String, Vec<String>);

/// Listeners at both ends.
fn listeners(row: &Row, last: u8) -> Result<[Listener; 2]> {
    Ok([Listener::start(row, 1, BEFORE)?, Listener::start(row, last, BEHIND)?])
}

/// Starts the routers, each of whom knows all keys. The first and the last have a network.
fn start(row: &Row, routers: &[Router<'_>]) -> Result<Vec<Place>> {
    let all: Vec<&SigningKey> = routers.iter().flat_map(|router| router.1.iter().copied()).collect();
    let numbered = (1..).zip(routers);
    let started = numbered.map(|(number, router)| {
        let text = configuration(number, router, routers.len());
        row.start(number, &text, &router.1, &public(&all))
    });
    started.collect()
}

fn configuration(number: u8, Router(asn, keys, more, peers): &Router<'_>, routers: usize) -> String {
    let own = match number {
        1 => network(FIRST) + &Listener::peer(BEFORE, ""),
        _ if usize::from(number) == routers => network(LAST) + &Listener::peer(BEHIND, ""),
        _ => String::new(),
    };
    [&head(number, *asn, keys), more, &own, &peers.concat(), &cache()].map(String::as_str).concat()
}

/// ```text
///  65001 ── 65000 ── 65000, reflector ── 65000, client ── 65005
/// ```
#[test]
fn inside_an_as_paths_go_on_as_they_came() -> Result<()> {
    let row = Row::new(5)?;
    let listeners = listeners(&row, 5)?;
    let keys = [65_001, 65_000, 65_000, 65_000, 65_005].map(SigningKey::generate);
    let keys = keys.into_iter().collect::<Result<Vec<_>>>()?;
    let client = "route-reflector-client = true\n";
    let signing = [BGPSEC, client].concat();
    let reflector = |to_client: &str| {
        let peers = vec![
            peer("before", 2, Side::First, 65_000, &signing),
            peer("behind", 3, Side::Second, 65_000, to_client),
        ];
        Router(65_000, vec![&keys[2]], String::new(), peers)
    };
    // The reflector leaves next hops as they are.
    let route =
        |prefix: &str, next_hop| format!("[[static]]\nprefix = \"{prefix}\"\nnext-hop = \"{next_hop}\"\n");
    let routers = [
        Router(65_001, vec![&keys[0]], String::new(), vec![peer("behind", 1, Side::Second, 65_000, BGPSEC)]),
        Router(
            65_000,
            vec![&keys[1]],
            route("10.0.3.0/24", "10.0.2.2"),
            vec![
                peer("before", 1, Side::First, 65_001, BGPSEC),
                peer("behind", 2, Side::Second, 65_000, &inside()),
            ],
        ),
        reflector(&signing),
        Router(
            65_000,
            vec![&keys[3]],
            route("10.0.2.0/24", "10.0.3.1"),
            vec![
                peer("before", 3, Side::First, 65_000, &inside()),
                peer("behind", 4, Side::Second, 65_005, BGPSEC),
            ],
        ),
        Router(65_005, vec![&keys[4]], String::new(), vec![peer("before", 4, Side::First, 65_000, BGPSEC)]),
    ];
    let places = start(&row, &routers)?;
    let is = |number: usize, prefix, state, path| until_path(&places[number - 1].router, prefix, state, path);
    for number in 2..=4 {
        is(number, FIRST, Some("valid"), "65001")?;
        is(number, LAST, Some("valid"), "65005")?;
    }
    is(5, FIRST, Some("valid"), "65000 65001")?;
    is(1, LAST, Some("valid"), "65000 65005")?;
    listeners[0].check("inside-before", 65_001, &keys, 2)?;
    listeners[1].check("inside-behind", 65_005, &keys, 2)?;

    // The client takes no signed paths any more: it has AS_PATHs, and there is nothing that it could go on from.
    let third = &places[2].router;
    std::fs::write(third.configuration(), configuration(3, &reflector(client), 5))?;
    third.cli(&["reload"])?;
    is(3, FIRST, Some("valid"), "65001")?;
    is(4, FIRST, None, "65001")?;
    is(5, FIRST, None, "65000 65001")?;
    is(3, LAST, None, "65005")?;
    is(1, LAST, None, "65000 65005")
}

/// RFC 8205 section 4.3.
///
/// ```text
///  65101 ── 65001 ── 65002 ── 65102      in the middle the confederation 64999
/// ```
#[test]
fn a_confederation_is_entered_crossed_and_left() -> Result<()> {
    let row = Row::new(4)?;
    let listeners = listeners(&row, 4)?;
    let keys = [65_101, 65_001, 65_002, 65_102, 64_999, 64_999].map(SigningKey::generate);
    let keys = keys.into_iter().collect::<Result<Vec<_>>>()?;
    let members = |other: u32| format!("[bgp.confederation]\nid = 64999\nmembers = [{other}]\n");
    let routers = [
        Router(65_101, vec![&keys[0]], String::new(), vec![peer("behind", 1, Side::Second, 64_999, BGPSEC)]),
        Router(
            65_001,
            vec![&keys[1], &keys[4]],
            members(65_002),
            vec![
                peer("before", 1, Side::First, 65_101, BGPSEC),
                peer("behind", 2, Side::Second, 65_002, &inside()),
            ],
        ),
        Router(
            65_002,
            vec![&keys[2], &keys[5]],
            members(65_001),
            vec![
                peer("before", 2, Side::First, 65_001, &inside()),
                peer("behind", 3, Side::Second, 65_102, BGPSEC),
            ],
        ),
        Router(65_102, vec![&keys[3]], String::new(), vec![peer("before", 3, Side::First, 64_999, BGPSEC)]),
    ];
    let places = start(&row, &routers)?;
    let is =
        |number: usize, prefix, path| until_path(&places[number - 1].router, prefix, Some("valid"), path);
    is(2, FIRST, "65101")?;
    is(3, FIRST, "(65001) 65101")?;
    is(4, FIRST, "64999 65101")?;
    is(3, LAST, "65102")?;
    is(2, LAST, "(65002) 65102")?;
    is(1, LAST, "64999 65102")?;
    listeners[0].check("confederation-before", 65_101, &keys, 2)?;
    listeners[1].check("confederation-behind", 65_102, &keys, 2)
}

/// RFC 8206 section 5.4: AS 64510 becomes AS 64500, and CE-1 knows nothing of it.
///
/// ```text
///  64496, CE-1 ── 64500, PE-1, as 64510 ── 64500, PE-2 ── 64497, CE-2
/// ```
#[test]
fn an_as_that_migrates_signs_with_both_numbers() -> Result<()> {
    let row = Row::new(4)?;
    let listeners = listeners(&row, 4)?;
    let keys = [64_496, 64_500, 64_510, 64_500, 64_497].map(SigningKey::generate);
    let keys = keys.into_iter().collect::<Result<Vec<_>>>()?;
    let local = format!("{BGPSEC}local-asn = 64510\nlocal-asn-mode = \"replace\"\n");
    let routers = [
        Router(64_496, vec![&keys[0]], String::new(), vec![peer("behind", 1, Side::Second, 64_510, BGPSEC)]),
        Router(
            64_500,
            vec![&keys[1], &keys[2]],
            String::new(),
            vec![
                peer("before", 1, Side::First, 64_496, &local),
                peer("behind", 2, Side::Second, 64_500, &inside()),
            ],
        ),
        Router(
            64_500,
            vec![&keys[3]],
            String::new(),
            vec![
                peer("before", 2, Side::First, 64_500, &inside()),
                peer("behind", 3, Side::Second, 64_497, BGPSEC),
            ],
        ),
        Router(64_497, vec![&keys[4]], String::new(), vec![peer("before", 3, Side::First, 64_500, BGPSEC)]),
    ];
    let places = start(&row, &routers)?;
    let is =
        |number: usize, prefix, path| until_path(&places[number - 1].router, prefix, Some("valid"), path);
    is(3, FIRST, "64496")?;
    is(4, FIRST, "64500 64496")?;
    is(2, LAST, "64497")?;
    is(1, LAST, "64510 64497")?;
    listeners[0].check("migration-before", 64_496, &keys, 2)?;
    listeners[1].check("migration-behind", 64_497, &keys, 2)
}
