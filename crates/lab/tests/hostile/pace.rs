//! Peers that misbehave in time: too slow, too silent, too often, too many.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{CeaseSubcode, KEEPALIVE, MessageType, Notification};
use holdfast_lab::{
    speaker::{Speaker, SpeakerConfig},
    table::Synthetic,
    wait,
};

use crate::hostile::{
    CONFIGURATION, LIMIT, ROUTER, Scene, call, establish, guest, guest_asn, open, receive_whole, update,
};

/// How long an attack lasts: short in `make test`, long in `make drills`.
fn length(seconds: u64) -> Duration {
    let times = if std::env::var_os("HOLDFAST_DRILLS").is_some() { 20 } else { 1 };
    Duration::from_secs(seconds) * times
}

/// Something every so often, until told to stop.
fn paced(every: Duration, done: &AtomicBool, mut step: impl FnMut(usize) -> Result<bool>) -> Result<usize> {
    for count in 0.. {
        if done.load(Ordering::Relaxed) || !step(count)? {
            return Ok(count);
        }
        // The pace is the attack.
        thread::sleep(every);
    }
    Ok(usize::MAX)
}

/// The neighbour announces a table and takes it back, over and over, and a guest sees all of it; the operator is
/// answered meanwhile. How long the slowest of both took.
fn goes_on(scene: &Scene, time: Duration) -> Result<()> {
    let config = SpeakerConfig::connect(guest(100).into(), ROUTER.into(), 64_700);
    let sink = scene.outside.run(move || Speaker::spawn(config))??;
    sink.wait_established(LIMIT)?;
    let (start, mut rounds) = (Instant::now(), 0);
    let mut slowest = [Duration::ZERO; 2];
    while start.elapsed() < time {
        let table = Arc::new(Synthetic::ipv4(rounds % 5 + 1, 5000).build());
        let begun = Instant::now();
        scene.neighbor.announce(Arc::clone(&table));
        sink.wait_routes(5000, LIMIT)?;
        slowest[0] = slowest[0].max(begun.elapsed());
        scene.neighbor.withdraw(table);
        sink.wait_routes(0, LIMIT)?;
        let asked = Instant::now();
        scene.router.show(&["bgp", "summary"])?;
        slowest[1] = slowest[1].max(asked.elapsed());
        rounds += 1;
    }
    println!(
        "{rounds} tables went through, 5,000 routes in {:?} at most, a summary in {:?}",
        slowest[0], slowest[1]
    );
    Ok(())
}

/// Runs an attack on a thread outside while everything else goes on, then sees that nothing of it is left.
fn while_it_lasts(
    scene: &Scene,
    time: Duration,
    attack: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static,
) -> Result<()> {
    let before = scene.router.memory("bgp")?;
    let done = Arc::new(AtomicBool::new(false));
    let attacker = scene.outside.spawn({
        let done = Arc::clone(&done);
        move || attack(&done)
    })?;
    let through = goes_on(scene, time);
    done.store(true, Ordering::Relaxed);
    attacker.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
    through?;
    let grown = scene.router.memory("bgp")?.saturating_sub(before);
    ensure!(grown < 64 << 20, "it cost {grown} octets");
    scene.is_unharmed()
}

#[test]
fn one_octet_a_second_is_no_hurry_and_no_harm() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    while_it_lasts(&scene, length(4), |done| {
        // An OPEN, an UPDATE in a session, and what is read: an octet at a time.
        let mut opening = call(guest(1), None)?;
        let mut telling = call(guest(2), None)?;
        establish(&mut telling, 90)?;
        let mut hearing = call(guest(3), Some(4096))?;
        establish(&mut hearing, 90)?;
        let says = [&open(guest(1), 90)[..], &KEEPALIVE, &KEEPALIVE].concat();
        let tells = update(2, 1);
        paced(Duration::from_secs(1), done, |at| {
            opening.write_all(&says[at..=at])?;
            telling.write_all(&tells[at..=at])?;
            hearing.read_exact(&mut [0])?;
            Ok(true)
        })?;
        Ok(())
    })
}

#[test]
fn silence_after_the_open_ends_with_the_hold_time() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    while_it_lasts(&scene, length(1), |_| {
        let silent: Result<Vec<TcpStream>> = (1..=50)
            .map(|number| {
                let mut stream = call(guest(number), None)?;
                stream.write_all(&open(guest(number), 3))?;
                Ok(stream)
            })
            .collect();
        // Those that say nothing at all are let go of when they go.
        let mute: Result<Vec<TcpStream>> = (101..=150).map(|number| call(guest(number), None)).collect();
        for mut stream in silent? {
            let body = loop {
                let (kind, body) = receive_whole(&mut stream)?;
                if kind == MessageType::Notification {
                    break body;
                }
            };
            let told = Notification::parse(&body).context("a NOTIFICATION")?;
            ensure!(told == Notification::hold_timer_expired(), "told {told}");
        }
        drop(mute?);
        Ok(())
    })
}

#[test]
fn a_peer_that_flaps_ten_times_a_second_troubles_nobody() -> Result<()> {
    let flapping = "[[bgp.peer]]\nname = \"flapping\"\naddress = \"10.0.1.1\"\nasn = 64601\npassive = true\n\
        import = \"accept-all\"\nexport = \"accept-all\"\n";
    let scene = Scene::new(&format!("{CONFIGURATION}{flapping}"))?;
    while_it_lasts(&scene, length(4), |done| {
        // One that is configured, and is kept waiting after each failure; one of the range, which begins anew each time.
        paced(Duration::from_millis(100), done, |_| {
            for number in [1, 2] {
                let mut stream = call(guest(number), None)?;
                // The configured one may be told to wait, at any moment.
                let _ = establish(&mut stream, 90).and_then(|()| Ok(stream.write_all(&update(number, 1))?));
            }
            Ok(true)
        })?;
        Ok(())
    })?;
    let lines = scene.router.log().lines().filter(|line| line.contains("flapping")).count();
    ensure!(lines < 60 + 20 * length(4).as_secs() as usize, "{lines} lines about it");
    Ok(())
}

/// Address `n` of those that are only routed to the outside.
fn crowd(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 1, 0, 0]) + 1 + n)
}

#[test]
fn a_thousand_peers_at_once_come_and_go() -> Result<()> {
    const PEERS: u32 = 1000;
    let range = "[[bgp.peer]]\nname = \"crowd\"\nlisten-range = \"10.1.0.0/16\"\nasn = \"any\"\n\
        import = \"accept-all\"\nexport = \"accept-all\"\n";
    let scene = Scene::new(&format!("{CONFIGURATION}{range}"))?;
    scene.host.ip(&["route", "add", "10.1.0.0/16", "via", "10.0.0.2"])?;
    scene.outside.ip(&["route", "add", "local", "10.1.0.0/16", "dev", "lo"])?;
    let before = scene.router.memory("bgp")?;
    let crowd = scene.outside.run(|| {
        let mut streams = (0..PEERS).map(|n| call(crowd(n), None)).collect::<Result<Vec<_>>>()?;
        for (n, stream) in (0..).zip(&mut streams) {
            stream.write_all(&open(crowd(n), 90))?;
        }
        for stream in &mut streams {
            stream.write_all(&KEEPALIVE)?;
        }
        // A route each, behind the neighbour: that of the crowd is not on a link of the router.
        for (n, stream) in (0..).zip(&mut streams) {
            let asn = guest_asn(crowd(n)).0.to_be_bytes();
            let third = (n / 256) as u8;
            let attributes =
                [&[0x40, 1, 1, 0, 0x40, 2, 6, 2, 1][..], &asn, &[0x40, 3, 4, 10, 0, 0, 2]].concat();
            let nlri = [24, 30, third, n as u8];
            let length = (19 + 4 + attributes.len() + nlri.len()) as u16;
            let header =
                [&[0xff; 16][..], &length.to_be_bytes(), &[2, 0, 0, 0, attributes.len() as u8]].concat();
            stream.write_all(&[header, attributes, nlri.to_vec()].concat())?;
        }
        anyhow::Ok(streams)
    })??;
    scene.neighbor.wait_routes(PEERS as usize, LIMIT)?;
    let asked = Instant::now();
    scene.router.show(&["bgp", "summary"])?;
    let grown = scene.router.memory("bgp")?.saturating_sub(before);
    println!(
        "{PEERS} peers: {} KiB each, a summary in {:?}",
        (grown >> 10) / u64::from(PEERS),
        asked.elapsed()
    );
    ensure!(grown < 256 << 20, "{PEERS} peers cost {grown} octets");
    drop(crowd);
    scene.neighbor.wait_routes(0, LIMIT)?;
    scene.is_unharmed()
}

/// End-of-RIB of both families (RFC 4724 section 2).
const END_OF_RIB: [&[u8]; 2] = [&[0, 23, 2, 0, 0, 0, 0], &[0, 29, 2, 0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1]];

/// A guest that changes its routes as fast as it can, until it is told why it may not, or another was.
fn hurry(number: u8, done: &AtomicBool) -> Result<Option<Notification>> {
    let mut stream = call(guest(number), None)?;
    establish(&mut stream, 90)?;
    for message in END_OF_RIB {
        stream.write_all(&[&[0xff; 16][..], message].concat())?;
    }
    let changes: Vec<u8> = (0..100).flat_map(|community| update(number, community)).collect();
    let mut writing = stream.try_clone()?;
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) && writing.write_all(&changes).is_ok() {}
            // Whoever reads hears of the end.
            let _ = writing.shutdown(Shutdown::Both);
        });
        let told = loop {
            match receive_whole(&mut stream) {
                Ok((MessageType::Notification, body)) => break Notification::parse(&body),
                Ok(_) => {}
                Err(_) => break None,
            }
        };
        done.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?;
        Ok(told)
    })
}

#[test]
fn who_has_others_wait_for_longer_than_it_may_is_ended_alone() -> Result<()> {
    let scene = Scene::new(&format!("{CONFIGURATION}max-cost = 1\n"))?;
    let told = scene.outside.run(|| {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let both = [1, 2].map(|number| {
                scope.spawn({
                    let done = &done;
                    move || hurry(number, done)
                })
            });
            let told = both.map(|guest| guest.join().map_err(|_| anyhow::anyhow!("a guest panicked"))?);
            told.into_iter().collect::<Result<Vec<_>>>()
        })
    })??;
    let resources = Notification::cease(CeaseSubcode::OutOfResources);
    ensure!(told.iter().flatten().any(|told| *told == resources), "{told:?}");
    wait::until("the line about it", LIMIT, || match scene.router.log().contains("cost-over-limit") {
        true => Ok(()),
        false => Err("no line".to_owned()),
    })?;
    scene.is_unharmed()
}
