//! What it costs to make a signed UPDATE, in processor time: from a route in the table to the octets that a neighbour is sent.
//!
//! All routes are there before the neighbour comes, and their signatures are not verified: what is left is to judge, to sign, to
//! keep and to encode them. A plain neighbour comes before, who is told of the same routes.

use anyhow::{Result, ensure};

use super::{
    Print, Size,
    scene::{Cpu, Plan, REST, Role, Scene},
    signing::{Signers, ToSign},
};
use crate::{
    bgpsec::{Figure, Goal},
    daemon::peer_asn,
    hearing::Hearing,
};

const SIGNER: usize = 0;
const SINK: usize = 1;
/// To bare signing.
const MOST_RATIO: f64 = 1.15;
/// UPDATEs of the thesis, sections 7.6.3 and 7.6.4, and what FRR and BGP-SRx have taken for them in milliseconds.
const THEIRS: f64 = 5_000.0;
const FRR: u32 = 520;
const SRX: u32 = 177;
/// Routes that are signed by the bare library.
const BARE: u32 = 500;

struct Made {
    plain: Cpu,
    signed: Cpu,
    /// Microseconds of a signature.
    bare: f64,
}

pub(super) fn run(size: &Size, print: Print<'_>) -> Result<()> {
    for received in size.made_hops {
        let made = measure(size, *received)?;
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6 / f64::from(size.made);
        let hops = received + 1;
        let figure = |name: &str, value: f64| {
            Figure::new(
                format!("{name}, {hops} {}", if hops == 1 { "hop" } else { "hops" }),
                value,
                "us/UPDATE",
            )
        };
        let both = us(made.signed.bgp + made.signed.pathsec);
        print(figure("made of plain routes, bgp", us(made.plain.bgp)))?;
        print(figure("made, bgp", us(made.signed.bgp)))?;
        print(figure("made, pathsec", us(made.signed.pathsec)))?;
        let against = |value: f64, bare: f64, unit: &'static str, name: String| Figure {
            bare: Some(bare),
            ratio: Some(value / bare),
            goal: Goal::at_most(value, (1e2 * MOST_RATIO * bare).round() / 1e2),
            ..Figure::new(name, value, unit)
        };
        print(against(both, made.bare, "us/UPDATE", figure("made, bgp and pathsec", both).name))?;
        if hops == 1 {
            let name = format!("5,000 UPDATEs, 1 hop (FRR {FRR} ms, BGP-SRx {SRX} ms)");
            let ms = |us: f64| us * THEIRS / 1e3;
            print(against(ms(both), ms(made.bare), "ms", name))?;
        }
    }
    Ok(())
}

/// Routes that were received with so many hops; with none they are networks of our own.
fn measure(size: &Size, received: usize) -> Result<Made> {
    let routes = 0..size.made;
    let roles = [Role::Signs { validation: "off" }, Role::Sink, Role::Sink, Role::Takes];
    let mut plan = Plan::of_signing(&roles, 2);
    let signers = Signers::new(peer_asn(SIGNER), size.signers)?;
    if received == 0 {
        plan.networks = size.made;
    }
    let mut scene = Scene::start(&plan)?;
    if received > 0 {
        let path = |signers: &Signers, route| signers.path(route, received, Scene::target());
        let feed = signers.feed(routes.clone(), scene.address(SIGNER), path)?;
        scene.send(SIGNER, feed)?;
    }
    scene.until_told(SINK, size.made)?;
    scene.load.rest(REST)?;
    let bare = ToSign::new(&signers, routes.take(BARE as usize), received, Scene::target(), Scene::takers())?;

    let before = scene.cpu()?;
    let plain = scene.join(Hearing::Count)?;
    scene.until_told(plain, size.made)?;
    scene.load.rest(REST)?;
    let plain = scene.cpu()?.since(before);

    let mut us = vec![bare.sign()?];
    let before = scene.cpu()?;
    let signed = scene.join(Hearing::Signed(Default::default()))?;
    scene.until_signed(signed, size.made)?;
    scene.load.rest(REST)?;
    let signed = scene.cpu()?.since(before);
    us.push(bare.sign()?);
    let status = scene.status()?;
    ensure!(status.signed == u64::from(size.made) && status.verified == 0, "{status:?}");
    Ok(Made { plain, signed, bare: us.iter().sum::<f64>() / us.len() as f64 })
}
