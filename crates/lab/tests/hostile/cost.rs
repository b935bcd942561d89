//! What one peer can cost others: it sends what is dear (`fuzz/corpus/cost`), as much as it can. Four clean sessions with the
//! shortest hold time go on, and the operator is answered.
//!
//! `make test` sends a little of two recipes; `make drills` sends 100 MB of each and prints the table for
//! `docs/performance.md`. Only there times are looked at.

use std::{
    io::{Read, Write},
    net::{Ipv6Addr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{Capability, KEEPALIVE, MessageType};
use holdfast_lab::{
    recipe::{self, Recipe, Sender, Setup},
    wait,
};
use holdfast_types::Family;
use serde_json::Value;

use crate::hostile::{
    CONFIGURATION, LIMIT, Scene, call, establish_as, guest, guest_asn, open_with, receive, receive_whole,
    update_of,
};

/// Seconds; the router says something every third of it.
const HOLD_TIME: u16 = 3;
/// Twice the time between two KEEPALIVEs.
const KEEPALIVES: Duration = Duration::from_secs(2);
/// Between two UPDATEs of a clean peer, for a route that no recipe has.
const TICK: Duration = Duration::from_millis(20);
const TICKING: [u8; 4] = [24, 31, 0, 11];
/// What `make test` sends.
const FEW: [&str; 2] = ["collide-ipv6", "sets"];

/// What was seen while a recipe was sent.
#[derive(Debug, Default)]
struct Seen {
    took: Duration,
    /// How late the clean sessions heard something, each time.
    late: Vec<Duration>,
    /// How long UPDATEs of a clean session took to another one, each.
    latency: Vec<Duration>,
    slowest_answer: Duration,
    cpu_ms: u64,
    longest_turn_us: u64,
}

/// A session that says KEEPALIVE in time: how late it hears from the router, each time.
pub(super) fn clean(number: u8, hold_time: u16, done: &AtomicBool) -> Result<Vec<Duration>> {
    let mut stream = call(guest(number), None)?;
    establish_as(&mut stream, &open_with(guest(number), hold_time, Vec::new()))?;
    let usual = Duration::from_secs(u64::from(hold_time)) / 3;
    let mut talking = stream.try_clone()?;
    thread::scope(|scope| {
        let talker = scope.spawn(move || -> Result<()> {
            while !done.load(Ordering::Relaxed) {
                talking.write_all(&KEEPALIVE)?;
                // The pace of a peer.
                thread::sleep(usual * 4 / 5);
            }
            Ok(())
        });
        let (mut late, mut last) = (Vec::new(), Instant::now());
        while !done.load(Ordering::Relaxed) {
            let kind = receive(&mut stream).context("the clean session")?;
            ensure!(kind != MessageType::Notification, "the clean session was ended");
            let silence = last.elapsed();
            if kind == MessageType::KeepAlive || silence > usual {
                late.push(silence.saturating_sub(usual));
            }
            last = Instant::now();
        }
        talker.join().map_err(|_| anyhow::anyhow!("the talker panicked"))??;
        Ok(late)
    })
}

/// UPDATEs from one clean session to another.
#[derive(Default)]
struct Ticks {
    done: AtomicBool,
    /// Sent so far.
    sent: AtomicU32,
}

impl Ticks {
    fn session(number: u8) -> Result<TcpStream> {
        let mut stream = call(guest(number), None)?;
        establish_as(&mut stream, &open_with(guest(number), HOLD_TIME, Vec::new()))?;
        Ok(stream)
    }

    /// Announces the route with the next number, again and again; when each left.
    fn send(&self) -> Result<Vec<Instant>> {
        let mut stream = Self::session(21)?;
        let mut told = stream.try_clone()?;
        thread::spawn(move || {
            let mut ignored = [0; 1 << 16];
            while told.read(&mut ignored).is_ok_and(|count| count > 0) {}
        });
        let mut left = Vec::new();
        while !self.done.load(Ordering::Relaxed) {
            left.push(Instant::now());
            let number = self.sent.fetch_add(1, Ordering::Relaxed);
            stream.write_all(&update_of(21, number, &TICKING))?;
            thread::sleep(TICK);
        }
        // Until the last one has arrived.
        stream.write_all(&KEEPALIVE)?;
        thread::sleep(Duration::from_secs(1));
        Ok(left)
    }

    /// Which numbers came, and when, until the last one.
    fn receive(&self) -> Result<Vec<(u32, Instant)>> {
        let mut stream = Self::session(22)?;
        let (mut arrived, mut said) = (Vec::new(), Instant::now());
        let is_last = |arrived: &[(u32, Instant)]| {
            let sent = self.sent.load(Ordering::Relaxed);
            self.done.load(Ordering::Relaxed) && arrived.last().is_some_and(|(number, _)| number + 1 == sent)
        };
        while !is_last(&arrived) {
            let (kind, body) = receive_whole(&mut stream).context("the clean session")?;
            if kind == MessageType::Update && body.ends_with(&TICKING) {
                let at = body.windows(3).position(|octets| octets == [0xc0, 8, 4]).context("a community")?;
                let number = body[at + 3..].first_chunk().context("a number")?;
                arrived.push((u32::from_be_bytes(*number), Instant::now()));
            }
            if said.elapsed() > Duration::from_millis(500) {
                stream.write_all(&KEEPALIVE)?;
                said = Instant::now();
            }
        }
        Ok(arrived)
    }

    /// How long each took: a number that was overtaken before it was sent on arrives with the next one.
    fn latency(left: &[Instant], arrived: &[(u32, Instant)]) -> Vec<Duration> {
        let mut arrived = arrived.iter().peekable();
        let took = (0..).zip(left).map_while(|(number, left)| {
            while arrived.next_if(|(other, _)| *other < number).is_some() {}
            arrived.peek().map(|(_, at)| at.saturating_duration_since(*left))
        });
        took.collect()
    }
}

/// The last of the best 999 of 1,000.
fn worst(sorted: &[Duration]) -> Duration {
    sorted[(sorted.len() * 999 / 1000).min(sorted.len() - 1)]
}

/// Sends so many octets of a recipe; reads and forgets what it is told.
pub(super) fn attack(recipe: &Recipe, octets: usize) -> Result<TcpStream> {
    let from = guest(1);
    let mut stream = call(from, None)?;
    let modes = Family::ALL.map(|family| (family, 2)).to_vec();
    let several = if recipe.paths > 0 { vec![Capability::AddPath(modes)] } else { Vec::new() };
    establish_as(&mut stream, &open_with(from, 90, several))?;
    stream.set_write_timeout(None)?;
    let mut told = stream.try_clone()?;
    thread::spawn(move || {
        let mut ignored = [0; 1 << 16];
        while told.read(&mut ignored).is_ok_and(|count| count > 0) {}
    });
    let sender = Sender {
        asn: guest_asn(from).0,
        next_hop_v4: from,
        next_hop_v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    };
    stream.write_all(&recipe.octets(&sender, recipe.path, octets))?;
    Ok(stream)
}

fn run(recipe: &Recipe, octets: usize) -> Result<Seen> {
    let several = "add-path = { receive = true }\n";
    let scene = Scene::new(&format!("{CONFIGURATION}{}", if recipe.paths > 0 { several } else { "" }))?;
    scene.host.ip(&["-6", "addr", "add", "2001:db8::1/32", "dev", "eth0", "nodad"])?;
    let done = Arc::new(AtomicBool::new(false));
    let clean: Vec<_> = (11..=14)
        .map(|number| {
            let done = Arc::clone(&done);
            scene.outside.spawn(move || clean(number, HOLD_TIME, &done))
        })
        .collect::<Result<_>>()?;
    let ticks = Arc::new(Ticks::default());
    let (sending, receiving) = (Arc::clone(&ticks), Arc::clone(&ticks));
    let receiving = scene.outside.spawn(move || receiving.receive())?;
    let sending = scene.outside.spawn(move || sending.send())?;
    let start = Instant::now();
    let attacker = scene.outside.spawn({
        let recipe = recipe.clone();
        move || attack(&recipe, octets)
    })?;
    let mut seen = Seen::default();
    let mut ask = || -> Result<()> {
        let asked = Instant::now();
        scene.router.show(&["bgp", "summary"])?;
        seen.slowest_answer = seen.slowest_answer.max(asked.elapsed());
        Ok(())
    };
    while !attacker.is_finished() {
        ask()?;
    }
    let stream = attacker.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
    // All of it is read when the router has counted it.
    let cost = |scene: &Scene| -> Result<Value> {
        let neighbors = scene.router.show(&["bgp", "neighbors"])?;
        Ok(neighbors[guest(1).to_string()]["cost"].clone())
    };
    wait::until("everything read", LIMIT * 10, || {
        ask().map_err(|error| error.to_string())?;
        let cost = cost(&scene).map_err(|error| error.to_string())?;
        if cost["octets_in"].as_u64() >= Some(octets as u64) { Ok(()) } else { Err(cost.to_string()) }
    })?;
    seen.took = start.elapsed();
    let cost = cost(&scene)?;
    seen.cpu_ms = cost["cpu_ms"].as_u64().context("cpu_ms")?;
    seen.longest_turn_us = cost["longest_turn_us"].as_u64().context("longest_turn_us")?;
    // However soon it was read: each clean session hears a KEEPALIVE in this time.
    thread::sleep(KEEPALIVES.saturating_sub(start.elapsed()));
    done.store(true, Ordering::Relaxed);
    ticks.done.store(true, Ordering::Relaxed);
    let arrived = receiving.join().map_err(|_| anyhow::anyhow!("who receives panicked"))??;
    let left = sending.join().map_err(|_| anyhow::anyhow!("who sends panicked"))??;
    seen.latency = Ticks::latency(&left, &arrived);
    for session in clean {
        seen.late.extend(session.join().map_err(|_| anyhow::anyhow!("a clean session panicked"))??);
    }
    drop(stream);
    let status = scene.neighbor.status();
    ensure!(
        status.established && status.sessions == 1,
        "the neighbour's session flapped: {:?}",
        status.ended
    );
    seen.late.sort_unstable();
    seen.latency.sort_unstable();
    Ok(seen)
}

#[test]
fn what_one_peer_sends_delays_nobody() -> Result<()> {
    let is_drill = std::env::var_os("HOLDFAST_DRILLS").is_some();
    let octets = if is_drill { 100 << 20 } else { 1 << 20 };
    println!(
        "| what one peer sends, {} MiB | s | its CPU s | longest turn, ms | KEEPALIVEs late, p99.9, ms | UPDATEs between clean peers, p99.9, ms | summary, ms |",
        octets >> 20
    );
    println!("|---|---|---|---|---|---|---|");
    let mut late = Vec::new();
    for (path, recipe) in recipe::all()? {
        let is_wanted = is_drill || FEW.iter().any(|few| path.file_stem().is_some_and(|stem| stem == *few));
        // The RIB is sent nothing but what `bgp` makes of a peer's octets.
        if !is_wanted || recipe.speaker == Setup::Rib {
            continue;
        }
        let seen = run(&recipe, octets).with_context(|| recipe.what.clone())?;
        ensure!(!seen.late.is_empty(), "{}: the clean sessions heard nothing", recipe.what);
        ensure!(!seen.latency.is_empty(), "{}: no UPDATE has reached a clean session", recipe.what);
        let (late_by, took) = (worst(&seen.late), worst(&seen.latency));
        println!(
            "| {} | {:.1} | {:.1} | {:.1} | {} | {} | {} |",
            recipe.what,
            seen.took.as_secs_f64(),
            seen.cpu_ms as f64 / 1e3,
            seen.longest_turn_us as f64 / 1e3,
            late_by.as_millis(),
            took.as_millis(),
            seen.slowest_answer.as_millis()
        );
        // Who sends, the router and who is told keep two cores busy; on quiet ones the goal is 100 ms.
        let slow = took > Duration::from_millis(300);
        if late_by > Duration::from_millis(100) || slow || seen.slowest_answer > Duration::from_secs(1) {
            late.push(recipe.what);
        }
    }
    ensure!(!is_drill || late.is_empty(), "others noticed: {}", late.join("; "));
    Ok(())
}
