//! A peer whose signatures are bad: each costs the router as much as a good one does (RFC 8205 section 8.3). Another signer
//! gets its verdicts meanwhile, other sessions go on, and nothing grows.
//!
//! `make test` attacks for some seconds of each kind; `HOLDFAST_ATTACK` says for how many, and `make drills` attacks for ten
//! minutes. Only there times are looked at.

use std::{
    collections::HashMap,
    io::Write,
    net::TcpStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{
    Capability, MAX_LEN, MessageType, NextHop, UpdateEncoder, nlri::prefixes, update::sections,
};
use holdfast_lab::{
    signed::{Hop, SpkiCache, path, path_of, signer, update},
    wait,
};
use holdfast_path_validation::{P256Signer, SUITE_P256};
use holdfast_types::{Afi, Asn, IpPrefix, Ipv4Prefix, Prefix};
use serde_json::Value;

use crate::hostile::{
    CONFIGURATION, LIMIT, NEIGHBOR, Scene, call, cost::clean, establish_as, guest, guest_asn, open_with,
    receive_whole,
};

const ROUTER_AS: Asn = Asn(65_000);
/// Guests, by what they do.
const ATTACKER: u8 = 1;
const SIGNER: u8 = 2;
const WATCHER: u8 = 3;
/// Routes of the attacker: it announces them again and again, never with the same signatures.
const ROUTES: u32 = 8192;
/// Hops of a path at most, as configured by default.
const MOST_HOPS: usize = 64;
/// Such paths at most.
const MOST_LONG: u32 = 2000;
/// What a peer may have verified in vain at once, and each second (`docs/manual/bgpsec.md`).
const FAILED_HOPS: u64 = 4096;
const FAILED_HOPS_A_SECOND: u64 = 1024;
/// Routes of the signer that are there at a time.
const KEPT: u32 = 1000;
/// How long it is looked at what there is without an attack.
const BEFORE: Duration = Duration::from_secs(2);
/// Where times are looked at.
const MOST_P99_MS: f64 = 50.0;
const HOLD_TIME: u16 = 9;
/// The signer's pace.
const PACE: Duration = Duration::from_millis(10);
/// What the router may keep of all this: the memory of good signatures, routes and queues.
const MOST_GROWTH: u64 = 64 << 20;
/// Batches that were under way when the budget was used up, and what the answers of others take.
const UNDER_WAY: u64 = 8 * (256 + 64);

/// Of each kind of attack.
fn seconds() -> u64 {
    let wanted = std::env::var("HOLDFAST_ATTACK").ok().and_then(|text| text.parse().ok());
    let is_drill = std::env::var_os("HOLDFAST_DRILLS").is_some();
    wanted.unwrap_or(if is_drill { 200 } else { 4 })
}

fn prefix(first: u8, number: u32) -> Result<Prefix> {
    let text = format!("{first}.{}.{}.0/24", number / 256 % 256, number % 256);
    text.parse().ok().context(text)
}

/// Messages that are sent again and again, and where in each are four octets that make another signature of it.
struct Ammunition {
    octets: Vec<u8>,
    places: Vec<usize>,
}

impl Ammunition {
    /// One path for all prefixes: its signature is bad anyhow.
    fn new(by: &P256Signer) -> Result<Self> {
        let mut all = Self { octets: Vec::new(), places: Vec::new() };
        let value = path(&[by], ROUTER_AS, prefix(20, 0)?)?;
        for number in 0..ROUTES {
            let message = announced(&value, ATTACKER, prefix(20, number)?)?;
            let begin = message.windows(value.len()).position(|window| window == value);
            // In the middle of *s*, where the signature is still one of DER.
            all.places.push(all.octets.len() + begin.context("the path is in it")? + value.len() - 12);
            all.octets.extend(message);
        }
        Ok(all)
    }

    /// Sends them for so long, as fast as they are taken.
    fn fire(&mut self, stream: &mut TcpStream, time: Duration) -> Result<u64> {
        let (start, mut sent, mut round) = (Instant::now(), 0, 0_u32);
        while start.elapsed() < time {
            round += 1;
            for place in &self.places {
                self.octets[*place..*place + 4].copy_from_slice(&round.to_be_bytes());
            }
            stream.write_all(&self.octets)?;
            sent += self.places.len() as u64;
        }
        Ok(sent)
    }
}

/// Announcements of long paths whose oldest signature alone is bad, and withdrawals of them.
fn long(keys: &Keys, routes: u32) -> Result<[Vec<u8>; 2]> {
    let hops = std::iter::repeat_n(&keys.origin, MOST_HOPS - 1).chain([&keys.attacker]);
    let hops: Vec<_> = hops.map(Hop::of).collect();
    let spoil = |hop: usize, mut signature: Vec<u8>| {
        let last = signature.len() - 1;
        signature[last] ^= u8::from(hop == 0);
        signature
    };
    let [mut announcements, mut withdrawals] = [Vec::new(), Vec::new()];
    for number in 0..routes {
        let prefix = prefix(21, number)?;
        let value = path_of(&hops, &[SUITE_P256], ROUTER_AS, prefix, &spoil)?;
        announcements.extend(announced(&value, ATTACKER, prefix)?);
        withdraw(prefix, &mut withdrawals);
    }
    Ok([announcements, withdrawals])
}

fn announced(path: &[u8], by: u8, prefix: Prefix) -> Result<Vec<u8>> {
    update(path, NextHop::V4(guest(by)), prefix)
}

fn withdraw(prefix: Prefix, out: &mut Vec<u8>) {
    UpdateEncoder::new(MAX_LEN).withdraw(Ipv4Prefix::from_prefix(prefix), out);
}

struct Keys {
    attacker: P256Signer,
    signer: P256Signer,
    origin: P256Signer,
    unknown: P256Signer,
}

impl Keys {
    fn new() -> Result<Self> {
        let of_guest = |number| signer(guest_asn(guest(number)).0);
        Ok(Self {
            attacker: of_guest(ATTACKER)?,
            signer: of_guest(SIGNER)?,
            origin: signer(64_496)?,
            unknown: of_guest(ATTACKER)?,
        })
    }
}

/// A session with the router, in the place of a guest; what comes is read and given to somebody.
fn session(number: u8, more: Vec<Capability>, heard: impl Fn(&[u8]) + Send + 'static) -> Result<TcpStream> {
    let from = guest(number);
    let mut stream = call(from, None)?;
    establish_as(&mut stream, &open_with(from, 0, more))?;
    stream.set_write_timeout(None)?;
    let mut reader = stream.try_clone()?;
    reader.set_read_timeout(None)?;
    thread::spawn(move || {
        while let Ok((kind, body)) = receive_whole(&mut reader) {
            if kind == MessageType::Update {
                heard(&body);
            }
        }
    });
    Ok(stream)
}

fn signs() -> Vec<Capability> {
    vec![Capability::Bgpsec { version: 0, send: true, afi: Afi::IPV4 }]
}

/// When each route of the signer was sent, and how long it took until the watcher had it.
#[derive(Default)]
struct Passages {
    sent: HashMap<Prefix, Instant>,
    took: Vec<Duration>,
}

type Shared = Arc<Mutex<Passages>>;

fn lock(passages: &Shared) -> MutexGuard<'_, Passages> {
    passages.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the watcher hears of.
fn heard(passages: &Shared, body: &[u8]) {
    let Ok(sections) = sections(body) else { return };
    let mut passages = lock(passages);
    for prefix in prefixes::<Ipv4Prefix>(sections.nlri).flatten() {
        if let Some(sent) = passages.sent.remove(&Prefix::V4(prefix)) {
            passages.took.push(sent.elapsed());
        }
    }
}

/// Announces one route after the other, and withdraws each when a second has passed ten times.
fn sign(keys: &Keys, stream: &mut TcpStream, passages: &Shared, done: &AtomicBool) -> Result<()> {
    let mut next = Instant::now();
    for number in 0_u32.. {
        if done.load(Ordering::Relaxed) {
            return Ok(());
        }
        let at = |number: u32| prefix(100, number % (4 * KEPT));
        let mut octets = Vec::new();
        if let Some(old) = number.checked_sub(KEPT) {
            withdraw(at(old)?, &mut octets);
        }
        let route = at(number)?;
        octets.extend(announced(&path(&[&keys.origin, &keys.signer], ROUTER_AS, route)?, SIGNER, route)?);
        lock(passages).sent.insert(route, Instant::now());
        stream.write_all(&octets)?;
        next += PACE;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// The value below which so many of 1000 are.
fn quantile(sorted: &[Duration], of_1000: usize) -> Duration {
    let at = (sorted.len() * of_1000 / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

struct Stage {
    scene: Scene,
    keys: Arc<Keys>,
    _cache: SpkiCache,
    passages: Shared,
    done: Arc<AtomicBool>,
    memory: u64,
}

impl Stage {
    fn new() -> Result<Self> {
        let peer = |name, number| {
            format!(
                "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{}\"\nasn = {}\npassive = true\nimport = \"accept-all\"\n\
                 export = \"reject-all\"\nbgpsec = {{ receive = true, require-session = true }}\n\
                 bgpsec-validation = \"require\"\n",
                guest(number),
                guest_asn(guest(number)).0
            )
        };
        let cache = format!(
            "[[rpki.cache]]\nname = \"keys\"\naddress = \"{NEIGHBOR}\"\nport = 8282\npreference = 10\nretry = 1\n"
        );
        let peers = [peer("attacker", ATTACKER), peer("signer", SIGNER)].concat();
        let scene = Scene::new(&format!("{CONFIGURATION}{peers}{cache}"))?;
        let keys = Keys::new()?;
        let public = [&keys.attacker, &keys.signer, &keys.origin].map(P256Signer::router_key);
        let cache = SpkiCache::start(&scene.outside, (NEIGHBOR, 8282).into(), &public)?;
        let (keys, passages, done) = (Arc::new(keys), Shared::default(), Arc::default());
        let mut stage = Self { scene, keys, _cache: cache, passages, done, memory: 0 };
        stage.until("keys", |shown| shown["router_keys"] == public.len())?;
        stage.memory = stage.kept()?;
        Ok(stage)
    }

    fn kept(&self) -> Result<u64> {
        Ok(self.scene.router.kept("bgp")? + self.scene.router.kept("pathsec")?)
    }

    fn shown(&self) -> Result<Value> {
        self.scene.router.show(&["bgpsec"])
    }

    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let found = wait::until(what, LIMIT * 4, || {
            let shown = self.shown().map_err(|error| format!("{error:#}"))?;
            if is_so(&shown) { Ok(shown) } else { Err(shown.to_string()) }
        });
        found.with_context(|| self.scene.router.log_tail())
    }

    fn failed(&self) -> Result<u64> {
        self.shown()?["failed"].as_u64().context("a number")
    }

    /// What came of the routes that the signer has sent since the last time.
    fn look(&self, what: &str, is_drill: bool) -> Result<()> {
        let mut took = std::mem::take(&mut lock(&self.passages).took);
        took.sort_unstable();
        let growth = self.kept()?.saturating_sub(self.memory);
        let [half, p99, most] = [500, 990, 1000].map(|of| quantile(&took, of).as_secs_f64() * 1e3);
        println!(
            "{what}: {} routes of another peer, {half:.1} ms p50, {p99:.1} ms p99, {most:.1} ms at most; {} KiB more",
            took.len(),
            growth >> 10
        );
        ensure!(took.len() > 50, "{what}: the other peer's routes do not pass");
        ensure!(!is_drill || p99 < MOST_P99_MS, "{what}: {p99} ms");
        ensure!(growth <= MOST_GROWTH, "{what}: {growth} octets more");
        Ok(())
    }

    /// The attacker's own good route is verified: its debt is paid.
    fn debt_is_paid(&self, stream: &mut TcpStream) -> Result<Duration> {
        let start = Instant::now();
        let route = prefix(22, 0)?;
        stream.write_all(&announced(&path(&[&self.keys.attacker], ROUTER_AS, route)?, ATTACKER, route)?)?;
        wait::until("the attacker's good route", LIMIT * 4, || {
            let shown = self.scene.router.show(&["bgp", "route", &route.to_string()]);
            let shown = shown.map_err(|error| format!("{error:#}"))?;
            let is_valid = shown["paths"][0]["bgpsec"]["state"] == "valid";
            if is_valid { Ok(()) } else { Err(shown.to_string()) }
        })?;
        let mut octets = Vec::new();
        withdraw(route, &mut octets);
        stream.write_all(&octets)?;
        Ok(start.elapsed())
    }

    fn attack(&self, time: Duration, is_drill: bool) -> Result<()> {
        let mut stream = self.scene.outside.run(|| session(ATTACKER, signs(), |_| ()))??;
        self.look("before", is_drill)?;

        let (start, failed) = (Instant::now(), self.failed()?);
        let mut bad = Ammunition::new(&self.keys.attacker)?;
        // Once each: that is more than the budget, and nothing but signatures.
        stream.write_all(&bad.octets)?;
        wait::until("the budget is used up", LIMIT, || {
            let is_said = self.scene.router.log().contains("bgpsec-bad-signatures");
            if is_said { Ok(()) } else { Err("nothing is said".to_owned()) }
        })?;
        let sent = bad.fire(&mut stream, time)?;
        self.look("bad signatures", is_drill)?;
        let paid = self.debt_is_paid(&mut stream)?;
        let failed = self.failed()? - failed;
        let most = FAILED_HOPS + FAILED_HOPS_A_SECOND * (start.elapsed().as_secs() + 1) + UNDER_WAY;
        println!(
            "{sent} sent, {failed} verified in vain, a good route after them in {:.1} s",
            paid.as_secs_f64()
        );
        ensure!(failed >= FAILED_HOPS && failed <= most, "{failed} verified in vain, at most {most}");
        let (start, failed) = (Instant::now(), self.failed()?);
        let routes = (64 + FAILED_HOPS_A_SECOND as u32 / 64 * time.as_secs() as u32).min(MOST_LONG);
        let [announcements, withdrawals] = long(&self.keys, routes)?;
        // The second time all but the oldest signatures are remembered as good.
        for round in 1..=2 {
            stream.write_all(&announcements)?;
            thread::sleep((time / 2 * round).saturating_sub(start.elapsed()));
            stream.write_all(&withdrawals)?;
        }
        self.look("long paths", is_drill)?;
        let failed = self.failed()? - failed;
        println!("{routes} long paths twice, {failed} bad signatures found");
        ensure!(failed > 0, "no long path was verified");
        let paid = self.debt_is_paid(&mut stream)?;

        let sent = Ammunition::new(&self.keys.unknown)?.fire(&mut stream, time)?;
        self.look("unknown keys", is_drill)?;
        println!("a good route in {:.1} s; {sent} sent with unknown keys", paid.as_secs_f64());
        self.debt_is_paid(&mut stream)?;
        let shown = self.scene.router.neighbor("attacker")?;
        ensure!(shown["bgpState"] == "Established" && shown["connectionsDropped"] == 0, "{shown}");
        Ok(())
    }
}

#[test]
fn bad_signatures_of_one_peer_hold_nobody_else_up() -> Result<()> {
    let (time, is_drill) = (Duration::from_secs(seconds()), std::env::var_os("HOLDFAST_DRILLS").is_some());
    let stage = Stage::new()?;
    let outside = &stage.scene.outside;
    let clean: Vec<_> = (11..=14)
        .map(|number| {
            let done = Arc::clone(&stage.done);
            outside.spawn(move || clean(number, HOLD_TIME, &done))
        })
        .collect::<Result<_>>()?;
    let passages = Arc::clone(&stage.passages);
    let _watcher =
        outside.run(move || session(WATCHER, Vec::new(), move |body| heard(&passages, body)))??;
    let mut stream = outside.run(|| session(SIGNER, signs(), |_| ()))??;
    let attacked = thread::scope(|scope| {
        let signing = scope.spawn(|| sign(&stage.keys, &mut stream, &stage.passages, &stage.done));
        thread::sleep(BEFORE);
        let attacked = stage.attack(time, is_drill);
        stage.done.store(true, Ordering::Relaxed);
        signing.join().map_err(|_| anyhow::anyhow!("the signer panicked"))??;
        attacked
    });
    let sessions =
        clean.into_iter().map(|session| session.join().map_err(|_| anyhow::anyhow!("it panicked")));
    let late = sessions.collect::<Result<Vec<_>>>()?.into_iter().collect::<Result<Vec<_>>>();
    attacked.with_context(|| stage.scene.router.log_tail())?;
    println!("a clean session was told something {:?} late at most", late?.concat().iter().max());
    drop((stream, _watcher));
    let status = stage.scene.neighbor.status();
    ensure!(
        status.established && status.sessions == 1,
        "the neighbour's session flapped: {:?}",
        status.ended
    );
    Ok(())
}
