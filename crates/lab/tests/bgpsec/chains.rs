//! Routers in a row that sign for each other.
//!
//! ```text
//!  203.0.113.0/24 ── 65001 ── 65002 ── 65003 ── 65004 ── 65005 ── 65006 ── 198.51.100.0/24
//! ```

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    row::{BGPSEC, Place, Row, SigningKey, cache, head, network, peer},
    topology::Side,
};
use holdfast_types::RouterKey;

use super::until_path;

/// What the first router has, and the last one.
const FIRST: &str = "203.0.113.0/24";
const LAST: &str = "198.51.100.0/24";
const ROUTERS: u8 = 6;

fn asn(number: u8) -> u32 {
    65_000 + u32::from(number)
}

/// A router of the row; its sessions have these lines.
fn configuration(number: u8, key: &SigningKey, lines: &str) -> String {
    let mut text = head(number, asn(number), &[key]);
    match number {
        1 => text += &network(FIRST),
        ROUTERS => text += &network(LAST),
        _ => {}
    }
    if number > 1 {
        text += &peer("before", number - 1, Side::First, asn(number - 1), lines);
    }
    if number < ROUTERS {
        text += &peer("behind", number, Side::Second, asn(number + 1), lines);
    }
    text + &cache()
}

/// The AS_PATH over routers, the nearest first.
fn path(routers: impl Iterator<Item = u8>) -> String {
    routers.map(|number| asn(number).to_string()).collect::<Vec<_>>().join(" ")
}

/// Waits until routers have the first one's route in this state.
fn until_state(places: &[Place], routers: std::ops::RangeInclusive<u8>, state: Option<&str>) -> Result<()> {
    for number in routers {
        let router = &places[usize::from(number) - 1].router;
        until_path(router, FIRST, state, &path((1..number).rev()))
            .with_context(|| format!("router {number}"))?;
    }
    Ok(())
}

/// Each router behind the first is the end of a chain of two to six.
#[test]
fn chains_of_two_to_six_routers_are_valid_up_to_who_has_no_key_or_does_not_sign() -> Result<()> {
    let row = Row::new(ROUTERS)?;
    let keys = (1..=ROUTERS).map(|number| SigningKey::generate(asn(number))).collect::<Result<Vec<_>>>()?;
    let all: Vec<RouterKey> = keys.iter().map(|key| key.public.clone()).collect();
    let start = |number: u8| {
        let key = &keys[usize::from(number) - 1];
        row.start(number, &configuration(number, key, BGPSEC), &[key], &all)
    };
    let places = (1..=ROUTERS).map(start).collect::<Result<Vec<_>>>()?;
    until_state(&places, 2..=ROUTERS, Some("valid"))?;
    let first = &places[0].router;
    until_path(first, LAST, Some("valid"), &path(2..=ROUTERS))?;

    // Those behind router 3 do not know its key: they pass on what they do not find valid, and sign it all the same.
    let without: Vec<RouterKey> = all.iter().filter(|key| key.asn.0 != asn(3)).cloned().collect();
    for place in &places[3..] {
        place.cache.serve(&without)?;
    }
    until_state(&places, 2..=3, Some("valid"))?;
    until_state(&places, 4..=ROUTERS, Some("not-valid"))?;
    for number in 4..=ROUTERS {
        let shown = places[usize::from(number) - 1].router.show(&["bgp", "route", FIRST])?;
        let fault = &shown["paths"][0]["bgpsec"];
        ensure!(fault["asn"] == asn(3) && fault["failing_hop"] == number - 4, "{fault}");
    }
    for place in &places[3..] {
        place.cache.serve(&all)?;
    }
    until_state(&places, 4..=ROUTERS, Some("valid"))?;

    // Router 3 stops to sign and to take what is signed.
    let third = &places[2].router;
    let reload = |lines: &str| -> Result<()> {
        std::fs::write(third.configuration(), configuration(3, &keys[2], lines))?;
        third.cli(&["reload"]).map(drop)
    };
    reload("")?;
    until_state(&places, 2..=2, Some("valid"))?;
    until_state(&places, 3..=ROUTERS, None)?;
    until_path(first, LAST, None, &path(2..=ROUTERS))?;
    reload(BGPSEC)?;
    until_state(&places, 2..=ROUTERS, Some("valid"))?;
    until_path(first, LAST, Some("valid"), &path(2..=ROUTERS))
}
