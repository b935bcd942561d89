//! A key goes that some routes name: exactly these are judged again, and how soon.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_types::RouterKey;

use super::{
    Print, Size,
    scene::{Hosts, LIMIT, Plan, Role, Scene, dataset, fillers, milliseconds, workers},
    signing::Signers,
};
use crate::{
    bgpsec::{Figure, Goal},
    daemon::peer_asn,
};

const SIGNER: usize = 0;
const SINK: usize = 1;
const HOPS: usize = 4;
/// Milliseconds beside what the bare library takes for so many.
const MOST_BESIDE: f64 = 100.0;
/// Signatures that the bare library verifies, by routes.
const BARE: u32 = 250;
/// How long it is looked whether anything else comes.
const QUIET: Duration = Duration::from_secs(1);

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let (hosts, target) = (Hosts::new(2)?, Scene::target());
    let mut signers = Signers::new(peer_asn(SIGNER), size.signers)?;
    let mut removed: Vec<(u32, RouterKey)> = Vec::new();
    for count in size.naming {
        removed.push((*count, signers.mark(*count)?));
    }
    let path = |signers: &Signers, route| signers.path(route, HOPS, target);
    let feed = signers.feed(0..size.routes, hosts.address(SIGNER), path)?;
    let bare = signers.bare(0..BARE, HOPS, target)?;
    let mut keys: Vec<RouterKey> = signers.keys().collect();
    keys.extend(fillers(size.table_keys.saturating_sub(keys.len() as u32))?);
    let mut scene = Scene::on(hosts, &Plan::of(&[Role::Signs { validation: "require" }, Role::Sink]))?;
    scene.give(0, keys.iter().cloned())?;
    scene.load.sessions[SIGNER].send(feed.into());
    let all = u64::from(size.routes);
    scene.load.until("the routes", LIMIT, |load| Ok(load.sessions[SINK].announced >= all))?;

    for (count, key) in &removed {
        let left = dataset(keys.iter().filter(|other| *other != key).cloned());
        let us = bare.verify()?;
        scene.load.rest(QUIET)?;
        let before = scene.status()?;
        let withdrawn = scene.load.sessions[SINK].withdrawn;
        let said = scene.say(0, left);
        let wanted = withdrawn + u64::from(*count);
        scene.load.until("the verdicts", LIMIT, |load| Ok(load.sessions[SINK].withdrawn >= wanted))?;
        let done = scene.load.last_update(SINK..SINK + 1).context("there is a sink")?;
        scene.load.rest(QUIET)?;
        let after = scene.status()?;
        let gone = scene.load.sessions[SINK].withdrawn - withdrawn;
        ensure!(gone == u64::from(*count), "{gone} routes are not valid any more, {count} name the key");
        // A route that does not name the key is valid as before: to judge it again takes all of its signatures.
        let others = (after.verified + after.remembered - before.verified - before.remembered) / HOPS as u64;
        let name = |what: &str| format!("a key of {} goes, {count} routes name it: {what}", keys.len());
        print(Figure {
            goal: Goal::at_most((gone + others) as f64, f64::from(*count)),
            ..Figure::new(name("judged again"), (gone + others) as f64, "routes")
        })?;
        let taken = milliseconds(done.saturating_duration_since(said));
        let most = MOST_BESIDE + f64::from(*count) * HOPS as f64 * us / workers() as f64 / 1e3;
        print(Figure {
            goal: Goal::at_most(taken, (most * 10.0).round() / 10.0),
            ..Figure::new(name("from the cache's word to the last verdict"), taken, "ms")
        })?;
        // The key comes back, for the next one to go.
        let announced = scene.load.sessions[SINK].announced + u64::from(*count);
        let said = scene.say(0, dataset(keys.iter().cloned()));
        scene.load.until("valid again", LIMIT, |load| Ok(load.sessions[SINK].announced >= announced))?;
        let done = scene.load.last_update(SINK..SINK + 1).context("there is a sink")?;
        let taken = milliseconds(done.saturating_duration_since(said));
        print(Figure::new(name("it comes back, until the last verdict"), taken, "ms"))?;
    }
    Ok(())
}
