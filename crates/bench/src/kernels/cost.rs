//! What the dearest octets that one peer can send cost, beside ordinary ones of the same length.
//!
//! A [`Recipe`] says what a peer sends and to which speaker. Those that were dear once are in `fuzz/corpus/cost`: `make test` counts
//! the instructions of each, per octet, and fails above [`MOST`] times those of an ordinary table.

use std::{net::Ipv6Addr, path::Path, thread, time::Instant};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_pipeline::{AggregateConfig, FamilySet, PathRules, SendPaths};
use holdfast_bgp_wire::{MAX_EXTENDED_LEN, MessageType, next_message};
use holdfast_lab::recipe::{self, Recipe, Second, Sender, Setup, shorter};
use holdfast_rib::{Interface, InterfaceAddress, NexthopSet, OriginConfig, Rib, RibConfig, RouteAction};
use holdfast_types::HashKey;

use super::{SLICE, Speaker, count, measured, portions};

/// So much more than ordinary octets may cost.
const MOST: f64 = 10.0;

/// Who sends it, by the number of the peer.
fn sender(number: u8) -> Sender {
    Sender {
        asn: super::asn(number).0,
        next_hop_v4: [10, 0, number, 2].into(),
        next_hop_v6: Ipv6Addr::new(0x2001, 0xdb8, number.into(), 0, 0, 0, 0, 2),
    }
}

/// Sends what a recipe makes, counted; how many octets.
pub(super) fn send(recipe: &Recipe) -> Result<usize> {
    let octets = recipe.octets(&sender(1), recipe.path, recipe.octets);
    if recipe.speaker == Setup::Rib {
        return to_rib(recipe, octets.len());
    }
    let mut speaker = set_up(recipe)?;
    let family = recipe.family();
    measured(|| -> Result<()> {
        for portion in portions(&octets) {
            let mut rest = portion;
            while let Some(message) = next_message(rest, MAX_EXTENDED_LEN).ok().flatten() {
                rest = &rest[message.wire.len()..];
                let peer = speaker.peers[0];
                match message.kind {
                    MessageType::RouteRefresh => speaker.pipeline.route_refresh(peer, family),
                    _ => {
                        let refused = |refused| anyhow::anyhow!("refused: {refused}");
                        speaker.pipeline.update(peer, message.body).map_err(refused)?;
                    }
                }
            }
            speaker.pull();
            while speaker.pipeline.work(SLICE) {
                speaker.pull();
            }
        }
        Ok(())
    })?;
    ensure!(
        speaker.pipeline.drops(speaker.peers[0]).is_none_or(|drops| drops.total() == 0),
        "octets that are dropped"
    );
    Ok(octets.len())
}

fn set_up(recipe: &Recipe) -> Result<Speaker> {
    let family = recipe.family();
    let views = PathRules { own_view: true, ..PathRules::default() };
    let (rules, feeders) = match recipe.speaker {
        Setup::Plain | Setup::Paths | Setup::Rib => (PathRules::default(), 0),
        Setup::Feeders => (PathRules::default(), 4),
        Setup::Views => (views, 0),
    };
    let mut speaker = Speaker::without_peers()?;
    let identified: FamilySet = [family].into_iter().filter(|_| recipe.paths > 0).collect();
    speaker.add_with(1, |_, facts| {
        facts.families = vec![family];
        facts.identifiers_received = identified;
        facts.max_message_len = MAX_EXTENDED_LEN;
    })?;
    for number in 2..=4.max(feeders + 1) {
        speaker.add_with(number, |config, facts| {
            facts.families = vec![family];
            facts.max_message_len = MAX_EXTENDED_LEN;
            config.paths = rules.clone();
            if recipe.speaker == Setup::Paths {
                facts.identifiers_sent = [family].into_iter().collect();
                config.send_paths = SendPaths::Best(4);
            }
        })?;
    }
    if recipe.speaker == Setup::Views {
        let aggregate =
            |prefix| AggregateConfig { prefix, summary_only: true, contributors: None, policy: None };
        let around = |length| aggregate(shorter(recipe.first, length));
        speaker.pipeline.set_aggregates(&[0, 4, 8, 12, 16].map(around));
    }
    let plain = Recipe { paths: 0, refresh: 0, second: Second::Again, ..recipe.clone() };
    for number in 2..2 + feeders {
        let octets = plain.octets(&sender(number), recipe.path + u64::from(number), recipe.octets);
        speaker.update(number, &octets)?;
        speaker.pull();
    }
    while speaker.pipeline.work(SLICE) {
        speaker.pull();
    }
    Ok(speaker)
}

fn to_rib(recipe: &Recipe, octets: usize) -> Result<usize> {
    let mut rib = Rib::new(RibConfig::new(HashKey::new([1, 0])));
    let origin = rib.add_origin("bgp", OriginConfig::external(20), Instant::now())?;
    let address = InterfaceAddress { address: [10, 0, 0, 254].into(), length: 8 };
    rib.interface_changed(Interface { index: 1, name: "eth0".into(), up: true, addresses: vec![address] });
    rib.fib_attach();
    let each = recipe.routes.max(1);
    let updates = octets / (40 + 5 * each as usize);
    measured(|| -> Result<()> {
        for update in 0..updates as u64 {
            let set = if recipe.sets == 0 { update } else { update % recipe.sets };
            let [_, a, b, c] = (set as u32).to_be_bytes();
            let nexthops = rib.nexthops(origin, NexthopSet::via([10, a, b, c].into()));
            let action = RouteAction::Announce { nexthops, metric: 0, distance: None, tag: 0, source: 0 };
            let prefixes = (update * each..(update + 1) * each).map(|number| recipe.prefix(number));
            rib.origin_routes(origin, [(action, prefixes)])?;
            while rib.poll_fib(super::BATCH).is_some() {}
        }
        Ok(())
    })?;
    Ok(octets)
}

/// Runs a recipe once, for callgrind.
pub(crate) fn run(path: &Path, ordinary: bool) -> Result<()> {
    let recipe = Recipe::read(path)?;
    let recipe = if ordinary { recipe.ordinary() } else { recipe };
    println!("items {}", send(&recipe)?);
    Ok(())
}

/// Instructions per octet of a recipe, and of an ordinary table beside it.
fn counts(path: &Path) -> Result<[f64; 2]> {
    let path = path.to_str().context("a path in UTF-8")?;
    thread::scope(|scope| {
        let table = scope.spawn(|| count(&["cost", "--run", path, "--ordinary"]));
        let dear = count(&["cost", "--run", path])?;
        Ok([dear, table.join().map_err(|_| anyhow::anyhow!("counting has panicked"))??])
    })
}

/// Counts every recipe of the corpus.
pub(crate) fn compare() -> Result<()> {
    println!("instructions per octet\n{:>9} {:>9} {:>7}  recipe", "counted", "ordinary", "times");
    let mut dear = Vec::new();
    for (path, Recipe { what, .. }) in recipe::all()? {
        let [counted, ordinary] = counts(&path)?;
        let times = counted / ordinary;
        println!("{counted:>9.1} {ordinary:>9.1} {times:>7.2}  {what}");
        if times > MOST {
            dear.push(what);
        }
    }
    ensure!(dear.is_empty(), "more than they may cost: {}", dear.join("; "));
    Ok(())
}
