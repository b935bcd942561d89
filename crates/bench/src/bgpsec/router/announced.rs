//! What is kept of routes that are announced with signatures, and that each is signed once: for all peers of an AS, for whoever
//! asks again, and for the process that goes on after a death.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{RouteRefresh, nlri::Nlri as _};
use holdfast_types::{Asn, Family};

use super::{
    Print, Size, probes,
    scene::{LIMIT, Plan, Role, Scene, milliseconds},
    signing::{Signers, plain, prefix},
};
use crate::{
    bgpsec::{Figure, Goal},
    daemon::peer_asn,
    hearing::{Hearing, Sum},
    rows::percentile,
};

const FEEDER: usize = 0;
const PLAIN: usize = 1;
/// The first of those who are told.
const FIRST: usize = 2;
/// The origins of plain routes: each has one of its own, as each signed path is another one.
const FIRST_ORIGIN: u32 = 2_000_000;
/// Hops of the routes as they come in.
const HOPS: usize = 1;
/// Octets of a signature that is kept, with its place in an index.
const MOST_KEPT: f64 = 125.0;
/// Peers of a router whose `bgp` dies.
const PEERS: usize = 4;
/// To a router whose routes are not signed.
const MOST_TAKEOVER: f64 = 1.2;

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let signers = Signers::new(peer_asn(FEEDER), size.signers)?;
    shared(size, &signers, print)?;
    takeovers(size, &signers, print)
}

/// What there is to tell, and how it is told.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// Plain routes, each with a path of its own as signed ones have.
    Plain,
    /// Routes that came with signatures, told to plain peers.
    Reconstructed,
    /// The same, told with signatures.
    Signed,
}

impl Kind {
    /// Neighbours in the order of their numbers: who has the routes, a plain one, and those who are told.
    fn roles(self, told: usize) -> Vec<Role> {
        let feeder = match self {
            Self::Plain => Role::Plain,
            Self::Reconstructed | Self::Signed => Role::Signs { validation: "off" },
        };
        let role = match self {
            Self::Plain | Self::Reconstructed => Role::Sink,
            Self::Signed => Role::Takes,
        };
        [vec![feeder, Role::Plain], vec![role; told]].concat()
    }

    fn feed(self, scene: &mut Scene, size: &Size, signers: &Signers) -> Result<()> {
        let (routes, address) = (0..size.announced, scene.address(FEEDER));
        let octets = match self {
            Self::Plain => {
                let of =
                    |route| plain(&[peer_asn(FEEDER), Asn(FIRST_ORIGIN + route)], address, prefix(route));
                routes.map(of).collect::<Result<Vec<_>>>()?.concat()
            }
            Self::Reconstructed | Self::Signed => {
                let path = |signers: &Signers, route| signers.path(route, HOPS, Scene::target());
                signers.feed(routes, address, path)?
            }
        };
        scene.send(FEEDER, octets)
    }

    /// Signatures that were made. Where nobody is sent signed paths, there is no `pathsec`.
    fn made(self, scene: &Scene) -> Result<u64> {
        match self {
            Self::Plain | Self::Reconstructed => Ok(0),
            Self::Signed => Ok(scene.status()?.signed),
        }
    }
}

/// One after the other comes; then all ask for everything once more.
fn shared(size: &Size, signers: &Signers, print: Print<'_>) -> Result<()> {
    let count = f64::from(size.announced);
    let name = |what: &str| format!("{} routes announced: {what}", size.announced);
    let (plain, _) = grown(size, signers, Kind::Plain)?;
    let (kept, mut scene) = grown(size, signers, Kind::Signed)?;
    print(Figure::new(name("memory of a plain route for one peer"), plain, "octets"))?;
    let kept = kept - plain;
    let goal = Goal::at_most(kept, MOST_KEPT);
    print(Figure { goal, ..Figure::new(name("memory of a signed one more"), kept, "octets") })?;

    while scene.load.sessions.len() < FIRST + size.sharing {
        scene.join(Hearing::Signed(Sum::default()))?;
    }
    let before = sums(&mut scene, size)?;
    let made = scene.status()?.signed;
    let peers = size.sharing;
    let goal = Goal::at_most(made as f64, count);
    let figure = Figure::new(name(&format!("signatures for {peers} peers of an AS")), made as f64, "");
    print(Figure { goal, ..figure })?;

    for number in FIRST..FIRST + size.sharing {
        let session = &mut scene.load.sessions[number];
        session.forget();
        session.send(RouteRefresh::request(Family::IPV4_UNICAST).encode().into());
    }
    ensure!(sums(&mut scene, size)? == before, "a route is announced again with other octets");
    let more = (scene.status()?.signed - made) as f64;
    let goal = Goal::at_most(more, 0.0);
    print(Figure { goal, ..Figure::new(name(&format!("signatures after {peers} refreshes")), more, "") })
}

/// Octets a route by which all processes grow when the first peer has come and has been told of all.
fn grown(size: &Size, signers: &Signers, kind: Kind) -> Result<(f64, Scene)> {
    let mut scene = Scene::start(&Plan::of_signing(&kind.roles(size.sharing), size.sharing))?;
    kind.feed(&mut scene, size, signers)?;
    scene.until_given_back(size.announced)?;
    let before = scene.memory()?;
    let session = scene.join(Hearing::Signed(Sum::default()))?;
    scene.until_told(session, size.announced)?;
    scene.until_given_back(size.announced)?;
    Ok((scene.memory()?.saturating_sub(before) as f64 / f64::from(size.announced), scene))
}

/// What each of the peers has heard when it has heard of all routes: the same for all.
fn sums(scene: &mut Scene, size: &Size) -> Result<Sum> {
    let mut sums = Vec::new();
    for number in FIRST..FIRST + size.sharing {
        sums.push(scene.until_signed(number, size.announced)?);
    }
    ensure!(sums.iter().all(|sum| *sum == sums[0]), "peers of one AS are told different octets");
    Ok(sums[0])
}

/// From a death to a route that goes through again, with signatures and without.
fn takeovers(size: &Size, signers: &Signers, print: Print<'_>) -> Result<()> {
    let name = |what: &str| format!("bgp dies with {} routes and {PEERS} peers: {what}", size.announced);
    let of = |kind: Kind| -> Result<f64> { Ok(percentile(&mut takeover(size, signers, kind)?, 0.5)) };
    let plain = of(Kind::Plain)?;
    for (kind, what) in [
        (Kind::Reconstructed, "signed routes for plain peers, p50"),
        (Kind::Signed, "the same with signatures, p50"),
    ] {
        let value = of(kind)?;
        let goal = Goal::at_most(value, (1e2 * MOST_TAKEOVER * plain).round() / 1e2);
        print(Figure {
            bare: Some(plain),
            ratio: Some(value / plain),
            goal: goal.filter(|_| kind == Kind::Signed),
            ..Figure::new(name(what), value, "ms")
        })?;
    }
    Ok(())
}

/// Milliseconds of each death. Nobody is told of anything but the one route that comes then.
fn takeover(size: &Size, signers: &Signers, kind: Kind) -> Result<Vec<f64>> {
    let mut scene = Scene::start(&Plan::of_signing(&kind.roles(PEERS), 0))?;
    kind.feed(&mut scene, size, signers)?;
    for peer in FIRST..FIRST + PEERS {
        scene.until_told(peer, size.announced)?;
    }
    // What is in the log is in a snapshot by then.
    scene.load.rest(size.pause)?;
    let (made, mut taken) = (kind.made(&scene)?, Vec::new());
    for death in 0..size.deaths {
        let before = told(&scene);
        scene.router.kill("bgp")?;
        let route = probes::FIRST + death;
        let octets = plain(&[peer_asn(PLAIN)], scene.address(PLAIN), prefix(route))?;
        let mut nlri = Vec::new();
        prefix(route).push(&mut nlri);
        scene.load.sessions[FIRST].watch(nlri.into());
        let sent: Instant = scene.load.sessions[PLAIN].send_now(&octets)?;
        scene.load.until("the route", LIMIT, |load| Ok(load.sessions[FIRST].seen.is_some()))?;
        let seen = scene.load.sessions[FIRST].seen.context("it was seen a moment ago")?;
        taken.push(milliseconds(seen - sent));
        scene.load.rest(size.pause)?;
        let now = told(&scene);
        let is_one = |(now, before): (&(u64, u64), &(u64, u64))| (now.0 - before.0, now.1) == (1, before.1);
        ensure!(now.iter().zip(&before).all(is_one), "after {before:?} not one route more: {now:?}");
    }
    let more = kind.made(&scene)? - made;
    ensure!(more == 0, "{more} signatures after deaths of bgp");
    Ok(taken)
}

/// What each peer was told of so far: announced and withdrawn.
fn told(scene: &Scene) -> Vec<(u64, u64)> {
    scene.load.sessions[FIRST..].iter().map(|session| (session.announced, session.withdrawn)).collect()
}
