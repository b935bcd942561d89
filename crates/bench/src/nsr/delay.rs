//! Figure 5 (a): how fast octets of a peer come through the gate, by the time that the store takes to answer.
//!
//! A peer announces the same thousand prefixes again and again, in messages of one size: what an UPDATE costs the pipeline is
//! least then. The clock stops when the last octet is acknowledged.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use holdfast_bgp_wire::{HEADER_LEN, MessageType};

use super::{
    Size,
    figure::{Figure, Print},
    scene::{Scene, Tier},
};
use crate::rows::{Bench, LIMIT};

/// Prefixes of 24 bits that are announced again and again.
const PREFIXES: usize = 1000;
/// Of an attribute that no router knows.
const OPTIONAL_TRANSITIVE_LONG: u8 = 0xd0;
const UNKNOWN: u8 = 200;
/// To that of a router without a store.
const LEAST: f64 = 0.95;

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let delayed = size.delays.iter().map(|delay| Tier::Two { delay: Duration::from_millis(*delay) });
    let tiers: Vec<_> = [Tier::Off, Tier::One].into_iter().chain(delayed).collect();
    for octets in size.messages {
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); tiers.len()];
        for number in 1..=size.rounds {
            for (tier, rates) in tiers.iter().zip(&mut rates) {
                eprintln!("messages of {octets} octets: {tier:?} ({number} of {})", size.rounds);
                rates.push(rate(*tier, *octets, size.octets)?);
            }
        }
        for (tier, of) in tiers.iter().zip(&rates) {
            let name = match tier {
                Tier::Two { delay } => format!("tier 2, store {} ms later", delay.as_millis()),
                tier => tier.name().to_owned(),
            };
            let mut figure = Figure::new(format!("messages of {octets} octets: {name}"), of, "MB/s");
            if *tier != Tier::Off {
                figure = figure.beside(tiers[0].name(), of, &rates[0]);
            }
            if *tier == Tier::STORED {
                figure = figure.beside(tiers[1].name(), of, &rates[1]).ratio_at_least(LEAST);
            }
            print(figure)?;
        }
    }
    Ok(())
}

/// Megabytes a second.
fn rate(tier: Tier, message: usize, octets: usize) -> Result<f64> {
    let mut scene = Scene::ours(tier, 1, |_| {})?;
    let messages: Vec<u8> = (0..PREFIXES).flat_map(|number| update(number, message)).collect();
    let again = messages.repeat(octets.div_ceil(messages.len()));
    let length = again.len();
    let start = Instant::now();
    scene.bench.load.sessions[0].send(Arc::from(again));
    scene
        .bench
        .load
        .until("the last acknowledgement", LIMIT, |load| Ok(load.sessions[0].unacknowledged()? == 0))?;
    Ok(length as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// An UPDATE of exactly so many octets, with one prefix.
fn update(number: usize, octets: usize) -> Vec<u8> {
    let asn = Bench::asn(0).0.to_be_bytes();
    let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, 6, 2, 1];
    attributes.extend(asn);
    attributes.extend([0x40, 3, 4, 10, 110, 0, 2]);
    let prefix = [24, 100, (number / 256) as u8, (number % 256) as u8];
    // Header, two lengths, the attributes, and the head of the one that fills the message.
    let filled = HEADER_LEN + 4 + attributes.len() + 4 + prefix.len();
    let filling = octets.saturating_sub(filled);
    attributes.extend([OPTIONAL_TRANSITIVE_LONG, UNKNOWN]);
    attributes.extend((filling as u16).to_be_bytes());
    attributes.resize(attributes.len() + filling, 0);
    let length = filled + filling;
    let mut message = vec![0xff; 16];
    message.extend((length as u16).to_be_bytes());
    message.push(MessageType::Update as u8);
    message.extend([0, 0]);
    message.extend((attributes.len() as u16).to_be_bytes());
    message.extend(attributes);
    message.extend(prefix);
    message
}

#[cfg(test)]
mod tests {
    use holdfast_bgp_wire::{MAX_LEN, next_message};

    use super::*;
    use crate::load::updates;

    #[test]
    fn messages_are_as_long_as_wanted_and_have_one_prefix() {
        for octets in [100, 500, 2000] {
            let message = update(517, octets);
            assert_eq!(message.len(), octets);
            let read = next_message(&message, MAX_LEN).expect("a message").expect("a whole one");
            assert_eq!((read.kind, read.wire.len()), (MessageType::Update, octets));
            let body = updates(&message).next().expect("an UPDATE");
            assert_eq!(body[body.len() - 4..], [24, 100, 2, 5]);
        }
    }
}
