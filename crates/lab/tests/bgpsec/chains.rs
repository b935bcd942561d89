//! Routers in a row that sign for each other.
//!
//! ```text
//!  203.0.113.0/24, 2001:db8:113::/48: 65001 ── 65002 ── … ── 65006: 198.51.100.0/24
//! ```

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    row::{BGPSEC, Place, Row, SigningKey, cache, head, network, peer},
    topology::{Side, v6},
};
use holdfast_types::RouterKey;
use serde_json::{Value, json};

use super::{listener::Listener, until_path};

/// What the first router has, and the last one.
const FIRST: &str = "203.0.113.0/24";
const FIRST_V6: &str = "2001:db8:113::/48";
const LAST: &str = "198.51.100.0/24";
const ROUTERS: u8 = 6;
/// The network of the listener behind the last router.
const LISTENER: u8 = 20;

fn asn(number: u8) -> u32 {
    65_000 + u32::from(number)
}

/// Lines for routes of both families.
fn families(network: u8, side: Side) -> String {
    format!("families = [\"ipv4-unicast\", \"ipv6-unicast\"]\nnext-hop-ipv6 = \"{}\"\n", v6(network, side))
}

/// A router of the row; its sessions have these lines.
fn configuration(number: u8, key: &SigningKey, lines: &str) -> String {
    let mut text = head(number, asn(number), &[key]);
    if number == 1 {
        text += &(network(FIRST) + &network(FIRST_V6));
    } else {
        let more = families(number - 1, Side::Second) + lines;
        text += &peer("before", number - 1, Side::First, asn(number - 1), &more);
    }
    if number == ROUTERS {
        text += &(network(LAST) + &Listener::peer(LISTENER, &families(LISTENER, Side::First)));
    } else {
        let more = families(number, Side::First) + lines;
        text += &peer("behind", number, Side::Second, asn(number + 1), &more);
    }
    text + &cache()
}

/// The AS_PATH over routers, the nearest first.
fn path(routers: impl Iterator<Item = u8>) -> String {
    routers.map(|number| asn(number).to_string()).collect::<Vec<_>>().join(" ")
}

/// Waits until routers have the first one's routes in this state.
fn until_state(places: &[Place], routers: std::ops::RangeInclusive<u8>, state: Option<&str>) -> Result<()> {
    for number in routers {
        let router = &places[usize::from(number) - 1].router;
        for prefix in [FIRST, FIRST_V6] {
            until_path(router, prefix, state, &path((1..number).rev()))
                .with_context(|| format!("router {number}"))?;
        }
    }
    Ok(())
}

/// Whether a router has sent the first one's route on with signatures, and if not, why.
fn sent(place: &Place) -> Result<(Value, Value)> {
    let shown = place.router.show(&["bgp", "route", FIRST])?;
    let sent = shown["sent_to"].as_array().into_iter().flatten().find(|sent| sent["peer"] == "behind");
    let sent = sent.with_context(|| shown.to_string())?;
    Ok((sent["signed"].clone(), sent["why"].clone()))
}

/// Each router behind the first is the end of a chain of two to six.
#[test]
fn chains_of_two_to_six_routers_are_valid_up_to_who_has_no_key_or_does_not_sign() -> Result<()> {
    let row = Row::new(ROUTERS)?;
    let listener = Listener::start(&row, ROUTERS, LISTENER)?;
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
    ensure!(sent(&places[2])? == (json!(true), Value::Null), "{:?}", sent(&places[2])?);
    listener.check("chain", asn(ROUTERS), &keys, 3)?;

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
    for (number, why) in [(2, "not-agreed"), (3, "not-agreed"), (4, "unsigned")] {
        let sent = sent(&places[number - 1])?;
        ensure!(sent == (json!(false), json!(why)), "router {number}: {sent:?}");
    }
    reload(BGPSEC)?;
    until_state(&places, 2..=ROUTERS, Some("valid"))?;
    until_path(first, LAST, Some("valid"), &path(2..=ROUTERS))
}
