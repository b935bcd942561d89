//! What an UPDATE costs from the wire to the verdict, in processor time.

use anyhow::{Result, ensure};

use super::{
    Print, Size,
    scene::{Cpu, Plan, REST, Role, Scene},
    signing::{Signers, withdraw},
};
use crate::{
    bgpsec::{Figure, Goal},
    daemon::peer_asn,
};

/// Microseconds of an UPDATE beside its signatures.
const MOST_BESIDE: f64 = 4.0;
/// And for each hop that is known.
const MOST_KNOWN: f64 = 1.0;
/// What a verification may cost more than the bare library.
const MOST_VERIFY: f64 = 1.05;
/// Routes whose signatures the bare library verifies.
const BARE: u32 = 500;

/// Microseconds an UPDATE.
struct Taken {
    plain: Cpu,
    first: Cpu,
    again: Cpu,
    bare: f64,
}

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    for nonstop in size.nonstop {
        for hops in size.hops {
            let suffix = format!("{hops} hops{}", if *nonstop { "" } else { ", without non-stop" });
            let taken = measure(size, *hops, *nonstop)?;
            let us = |time: std::time::Duration| time.as_secs_f64() * 1e6 / f64::from(size.taken);
            let figure = |name: &str, value: f64, bare: Option<f64>, most: Option<f64>| Figure {
                bare,
                ratio: bare.map(|bare| value / bare),
                goal: most.and_then(|most| Goal::at_most(value, (most * 100.0).round() / 100.0)),
                ..Figure::new(format!("{name}, {suffix}"), value, "us/UPDATE")
            };
            let n = *hops as f64;
            let bare = n * taken.bare;
            print(figure("plain BGP, bgp", us(taken.plain.bgp), None, None))?;
            print(figure("taken in, bgp", us(taken.first.bgp), None, Some(MOST_BESIDE)))?;
            print(figure(
                "taken in, pathsec",
                us(taken.first.pathsec),
                Some(bare),
                Some(MOST_VERIFY * bare),
            ))?;
            // The other processes are asked how far it is, which costs more than they do by themselves.
            let first = us(taken.first.bgp + taken.first.pathsec);
            let most = MOST_VERIFY * bare + MOST_BESIDE;
            print(figure("taken in, bgp and pathsec", first, Some(bare), Some(most)))?;
            let most = MOST_BESIDE + n * MOST_KNOWN;
            print(figure("hops known, bgp", us(taken.again.bgp), None, None))?;
            print(figure("hops known, pathsec", us(taken.again.pathsec), None, None))?;
            print(figure(
                "hops known, bgp and pathsec",
                us(taken.again.bgp + taken.again.pathsec),
                None,
                Some(most),
            ))?;
            let share = 100.0 * bare / first;
            print(Figure::new(format!("share of cryptography in CPU, {suffix}"), share, "%"))?;
        }
    }
    Ok(())
}

fn measure(size: &Size, hops: usize, nonstop: bool) -> Result<Taken> {
    let plan = Plan { nonstop, ..Plan::of(&[Role::Signs { validation: "log" }, Role::Plain]) };
    let mut scene = Scene::start(&plan)?;
    let signers = Signers::new(peer_asn(0), size.signers)?;
    let target = Scene::target();
    let (routes, signatures) = (0..size.taken, u64::from(size.taken) * hops as u64);
    let feed =
        signers.feed(routes.clone(), scene.address(0), |signers, route| signers.path(route, hops, target))?;
    let plain = signers.plain(routes.clone(), hops, (scene.address(1), peer_asn(1)))?;
    let bare = signers.bare((0..size.taken).take(BARE as usize), hops, target)?;
    scene.give(0, signers.keys())?;

    let before = scene.cpu()?;
    scene.send(1, plain)?;
    let plain = scene.cpu()?.since(before);
    scene.send(1, withdraw(routes.clone()))?;

    let mut us = vec![bare.verify()?];
    let before = scene.cpu()?;
    let status = scene.verify(0, feed.clone(), signatures)?;
    ensure!(status.verified >= signatures && status.failed == 0, "{status:?}");
    scene.load.rest(REST)?;
    let first = scene.cpu()?.since(before);
    us.push(bare.verify()?);

    scene.send(0, withdraw(routes))?;
    let before = scene.cpu()?;
    let again = scene.verify(0, feed, signatures)?;
    // The memory of good signatures is a cache, which may have lost some.
    let remembered = again.remembered - status.remembered;
    ensure!(remembered * 100 >= signatures * 99, "{status:?}, then {again:?}");
    scene.load.rest(REST)?;
    let again = scene.cpu()?.since(before);
    Ok(Taken { plain, first, again, bare: us.iter().sum::<f64>() / us.len() as f64 })
}
