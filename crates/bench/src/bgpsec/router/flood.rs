//! A neighbour whose signatures are bad, as fast as TCP takes them, and what it does to another one.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use holdfast_types::{HashKey, Prefix};

use super::{
    Print, Size, probes,
    scene::{Hosts, LIMIT, Plan, Role, Scene, milliseconds},
    signing::{self, Signers, prefix, update},
};
use crate::{
    bgpsec::{Figure, Goal},
    daemon::peer_asn,
    hearing::Hearing,
    rows::percentile,
};

const FLOODS: usize = 0;
const OTHER: usize = 1;
const SINK: usize = 2;
/// Hops of the other's routes, and how far apart they come.
const HOPS: usize = 4;
const PACE: Duration = Duration::from_millis(10);
/// Hops of a path that is bad at its end: the most that are accepted.
const MOST_HOPS: usize = 64;
/// Routes of a flood. Each is announced again with another signature, so that none is known.
const ROUTES: u32 = 5_000;
const LONG_ROUTES: u32 = 250;
/// Octets that are sent at once, if a message ends there, so that who sends has time for others.
const PIECE: usize = 16 << 10;
/// From one look at the memory to the next.
const LOOK: Duration = Duration::from_millis(500);

/// Milliseconds until the other's routes have their verdicts.
const MOST_VERDICT: f64 = 50.0;
/// MiB beside what there was before.
const MOST_MEMORY: f64 = 64.0;

/// What was seen during a flood, or none.
struct Seen {
    verdicts: Vec<f64>,
    memory: u64,
    octets: u64,
    verified: u64,
}

/// Messages of a flood, in pieces; all again with other signatures; and so on.
type Pieces = Vec<Arc<[u8]>>;

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let (hosts, target) = (Hosts::new(3)?, Scene::target());
    let (bad, good) =
        (Signers::new(peer_asn(FLOODS), size.signers)?, Signers::new(peer_asn(OTHER), size.signers)?);
    let from = hosts.address(FLOODS);
    let twice = |routes: u32, path: &(dyn Fn(u32, u8) -> Result<Vec<u8>> + Sync)| -> Result<Pieces> {
        let mut pieces = Vec::new();
        for salt in [1, 2] {
            let octets = bad.feed(0..routes, from, |_, route| path(route, salt))?;
            pieces.extend(signing::pieces(&octets, PIECE).map(Arc::from));
        }
        Ok(pieces)
    };
    let floods = [
        ("nothing", Vec::new()),
        ("bad signatures", twice(ROUTES, &|route, salt| bad.path_with_bad_origin(route, salt, 1, target))?),
        (
            "64 hops, the oldest bad",
            twice(LONG_ROUTES, &|route, salt| bad.path_with_bad_origin(route, salt, MOST_HOPS, target))?,
        ),
        ("unknown keys", twice(ROUTES, &|route, salt| bad.unknown(route, salt))?),
    ];
    let each = size.seconds as u32 * (1000 / PACE.as_millis() as u32);
    let others: Vec<Arc<[u8]>> = (0..each * floods.len() as u32)
        .map(|number| {
            let route = probes::FIRST + number;
            let path = good.path(route, HOPS, target)?;
            Ok(update(&path, hosts.address(OTHER), prefix(route).into())?.into())
        })
        .collect::<Result<_>>()?;
    let require = Role::Signs { validation: "require" };
    let mut scene = Scene::on(hosts, &Plan::of(&[require, require, Role::Sink]))?;
    scene.give(0, bad.keys().chain(good.keys()))?;
    for ((what, pieces), (number, others)) in floods.iter().zip(others.chunks(each as usize).enumerate()) {
        let first = probes::FIRST + number as u32 * each;
        let mut seen = flood(&mut scene, pieces, (first, others))?;
        let name = |figure: &str| format!("flood of {what}: {figure}");
        let verdict = percentile(&mut seen.verdicts, 0.99);
        let of_flood = |goal: Option<Goal>| goal.filter(|_| !pieces.is_empty());
        let goal = of_flood(Goal::at_most(verdict, MOST_VERDICT));
        print(Figure { goal, ..Figure::new(name("verdict of another's route, p99"), verdict, "ms") })?;
        print(Figure::new(name("the same, p50"), percentile(&mut seen.verdicts, 0.5), "ms"))?;
        let memory = seen.memory as f64 / f64::from(1 << 20);
        let goal = of_flood(Goal::at_most(memory, MOST_MEMORY));
        print(Figure { goal, ..Figure::new(name("memory more, all processes"), memory, "MiB") })?;
        let a_second = |count: u64| count as f64 / size.seconds as f64;
        print(Figure::new(name("taken"), a_second(seen.octets) / 1e6, "MB/s"))?;
        print(Figure::new(name("signatures verified, the other's too"), a_second(seen.verified), "1/s"))?;
    }
    Ok(())
}

fn flood(scene: &mut Scene, pieces: &Pieces, (first, others): (u32, &[Arc<[u8]>])) -> Result<Seen> {
    let before = scene.memory()?;
    let verified = scene.status()?.verified;
    scene.load.sessions[SINK].hearing = Hearing::When(HashMap::with_hasher(crate::hearing::key()));
    let (start, mut memory, mut octets) = (Instant::now(), before, 0);
    let (mut sent, mut next, mut look) = (Vec::new(), 0, start + LOOK);
    while sent.len() < others.len() {
        let now = Instant::now();
        if now >= start + PACE * sent.len() as u32 {
            let other = &mut scene.load.sessions[OTHER];
            other.send(Arc::clone(&others[sent.len()]));
            sent.push(now);
        }
        if !pieces.is_empty() && scene.load.sessions[FLOODS].is_idle() {
            let piece: &Arc<[u8]> = &pieces[next % pieces.len()];
            octets += piece.len() as u64;
            scene.load.sessions[FLOODS].send(Arc::clone(piece));
            next += 1;
        }
        if now >= look {
            memory = memory.max(scene.memory_now()?);
            look = now + LOOK;
        }
        scene.load.turn(Duration::from_millis(1))?;
    }
    let verified = scene.status()?.verified - verified;
    let heard = |load: &crate::load::Load| match &load.sessions[SINK].hearing {
        Hearing::When(heard) => heard.len(),
        _ => 0,
    };
    scene.load.until("the other's verdicts", LIMIT, |load| {
        Ok(heard(load) >= others.len() && load.sessions[FLOODS].is_idle())
    })?;
    let Hearing::When(heard) = &scene.load.sessions[SINK].hearing else {
        anyhow::bail!("somebody hears otherwise");
    };
    let heard: &HashMap<Prefix, Instant, HashKey> = heard;
    let mut verdicts = Vec::new();
    for (number, sent) in sent.iter().enumerate() {
        let when = heard.get(&prefix(first + number as u32).into());
        ensure!(when.is_some(), "a route of the other is not valid");
        verdicts.extend(when.map(|when| milliseconds(when.saturating_duration_since(*sent))));
    }
    Ok(Seen { verdicts, memory: memory - before, octets, verified })
}
