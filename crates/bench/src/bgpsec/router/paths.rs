//! Memory of paths by their hops, what plain BGP has for the same routes subtracted.

use anyhow::Result;

use super::{
    Print, Size,
    keys::line,
    scene::{Plan, Role, Scene},
    signing::Signers,
};
use crate::{
    bgpsec::{Figure, Goal},
    daemon::peer_asn,
};

/// Octets of a path, and of each hop, with plain BGP subtracted.
const MOST_PATH: f64 = 180.0;
const MOST_HOP: f64 = 104.0;

/// Octets of a path of one hop in all processes, and of each further hop, with non-stop and without.
const MOST_OF_ALL: [(f64, f64); 2] = [(450.0, 287.5), (305.0, 160.0)];
/// With so many paths.
const OF_ALL: u32 = 5_000;

/// Octets beyond those of a router without routes, with so many: all processes, and those of them in `pathsec`.
struct Grown {
    all: f64,
    pathsec: f64,
}

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    let signers = Signers::new(peer_asn(0), size.signers)?;
    for nonstop in size.nonstop {
        let suffix = if *nonstop { "" } else { ", without non-stop" };
        // For each number of routes the points of the line: hops and octets of a path.
        let mut lines = vec![Vec::new(); size.counts.len()];
        for hops in size.path_hops {
            let signed = grown(size, &signers, (*hops, *nonstop), true)?;
            let plain = grown(size, &signers, (*hops, *nonstop), false)?;
            for ((count, line), (signed, plain)) in
                size.counts.iter().zip(&mut lines).zip(signed.iter().zip(&plain))
            {
                let a_path = |octets: f64| octets / f64::from(*count);
                let name = |what: &str| format!("{what}, {count} of {hops} hops{suffix}");
                print(Figure::new(name("plain route"), a_path(plain.all), "octets"))?;
                let beside = a_path(signed.all - signed.pathsec - plain.all + plain.pathsec);
                let goal = Goal::at_most(beside, MOST_PATH + MOST_HOP * *hops as f64);
                print(Figure { goal, ..Figure::new(name("path"), beside, "octets") })?;
                let remembered = a_path(signed.pathsec - plain.pathsec);
                print(Figure::new(name("good signatures in pathsec"), remembered, "octets"))?;
                let all = a_path(signed.all - plain.all);
                let (first, further) = MOST_OF_ALL[usize::from(!*nonstop)];
                let goal = Goal::at_most(all, first + further * (*hops as f64 - 1.0));
                let figure = Figure::new(name("path, all processes"), all, "octets");
                print(if *count == OF_ALL { Figure { goal, ..figure } } else { figure })?;
                let share = 100.0 * beside / a_path(signed.all - signed.pathsec);
                print(Figure::new(name("share of BGPsec in memory"), share, "%"))?;
                line.push((*hops as f64, beside));
            }
        }
        for (count, points) in size.counts.iter().zip(&lines) {
            let (path, hop) = line(points);
            let name = |what: &str| format!("{what}, {count} paths{suffix}");
            let goal = Goal::at_most(path, MOST_PATH);
            print(Figure { goal, ..Figure::new(name("a path without hops"), path, "octets") })?;
            let goal = Goal::at_most(hop, MOST_HOP);
            print(Figure { goal, ..Figure::new(name("a hop more"), hop, "octets") })?;
        }
    }
    Ok(())
}

/// With so many routes, one number after the other.
fn grown(
    size: &Size,
    signers: &Signers,
    (hops, nonstop): (usize, bool),
    is_signed: bool,
) -> Result<Vec<Grown>> {
    let plan = Plan { nonstop, ..Plan::of(&[Role::Signs { validation: "log" }, Role::Plain]) };
    let mut scene = Scene::start(&plan)?;
    scene.give(0, signers.keys())?;
    let target = Scene::target();
    let (all, pathsec) = (scene.memory()?, scene.router.memory("pathsec")?);
    let (mut from, mut grown) = (0, Vec::new());
    for count in size.counts {
        let routes = from..*count;
        if is_signed {
            let next_hop = scene.address(0);
            let path = |signers: &Signers, route| signers.path(route, hops, target);
            let signatures = u64::from(count - from) * hops as u64;
            let octets = signers.feed(routes, next_hop, path)?;
            scene.verify(0, octets, signatures)?;
        } else {
            let octets = signers.plain(routes, hops, (scene.address(1), peer_asn(1)))?;
            scene.send(1, octets)?;
        }
        from = *count;
        scene.until_given_back(*count)?;
        let grew = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let now = scene.memory()?;
        grown.push(Grown { all: grew(now, all), pathsec: grew(scene.router.memory("pathsec")?, pathsec) });
    }
    Ok(grown)
}
