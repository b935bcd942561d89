//! Packets of BFD that nobody should send: each field wrong once, and ten thousand packets a second of strangers.
//!
//! ```text
//!  puppet ──n1── Holdfast ──n2── stranger
//! ```

use std::{
    net::{IpAddr, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    bfd::{
        Follower, PROTOCOL, counter,
        packet::{AUTHENTICATION, Control, DOWN, INIT, MULTIPOINT, UP},
        profile,
        puppet::{MULTIHOP, Puppet, SINGLE_HOP, sender},
        status, until_state,
    },
    router::Router,
    topology::{ROUTER, Side, Star, v4, v6},
    wait,
};
use socket2::SockRef;

const LIMIT: Duration = Duration::from_secs(30);
const REMOTE: &str = "10.0.1.2";
/// What was kept before and after an attack may differ by so much: room that lists have grown to.
const SLACK: u64 = 1 << 20;
const RATE: u64 = 10_000;

struct Scene {
    star: Star,
    router: Router,
    puppet: Puppet,
    _followers: [Follower; 2],
}

impl Scene {
    fn new() -> Result<Self> {
        let star = Star::new(2)?;
        let [ours, theirs] = [v4(1, Side::First), v4(1, Side::Second)];
        let configuration = format!("{ROUTER}{PROTOCOL}[bfd]\n{}", profile("lab", 300, ""));
        let router = Router::start(&star.router, &configuration)?;
        let puppet = Puppet::start(star.neighbor(1), theirs.into(), ours.into(), Control::new(77))?;
        // The second one is not there; for it the port of sessions over several hops is open.
        let requests = ["remote:ip=10.0.1.2&profile=lab", "remote:ip=10.0.2.9&profile=lab&hops=MULTIPLE"];
        let [near, far] = requests.map(|request| Follower::start(&router, request));
        let scene = Self { star, router, puppet, _followers: [near?, far?] };
        scene.puppet.until_up(LIMIT).with_context(|| scene.router.log_tail())?;
        until_state(&scene.router, "10.0.2.9", "down", LIMIT)?;
        Ok(scene)
    }

    /// A packet that would be right.
    fn right(&self) -> Result<Control> {
        let yours = self.puppet.heard().0.context("a packet of the router")?.mine;
        Ok(Control { yours, state: UP, ..self.puppet.says() })
    }

    fn stranger(&self) -> Result<UdpSocket> {
        sender(self.star.neighbor(2), v4(2, Side::Second).into(), 255)
    }

    fn ensure_up(&self, what: &str) -> Result<()> {
        let session =
            until_state(&self.router, REMOTE, "up", Duration::ZERO).with_context(|| what.to_owned())?;
        ensure!(session["remote-status"] == "up" && self.puppet.says().state == UP, "{what}: {session}");
        ensure!(counter(&self.router, REMOTE, "session-down")? == 0, "{what}: it was down");
        Ok(())
    }
}

/// What is sent, and by what name it is counted.
struct Wrong {
    what: String,
    octets: Vec<u8>,
    counted: &'static str,
}

fn wrong(what: impl Into<String>, packet: &Control, counted: &'static str) -> Wrong {
    Wrong { what: what.into(), octets: packet.octets(), counted }
}

/// Packets that are no better for where they come from.
fn wrong_packets(right: &Control) -> Vec<Wrong> {
    let digest = |kind: u8, length: u8| [vec![kind, length, 1, 0, 0, 0, 0, 9], vec![7; 20]].concat();
    let authentic = |rest: Vec<u8>| Control { flags: AUTHENTICATION, rest, ..right.clone() };
    let mut all: Vec<_> = [0, 2, 7]
        .map(|version| {
            wrong(format!("version {version}"), &Control { version, ..right.clone() }, "malformed")
        })
        .into();
    all.extend([0, 1, 23, 25, 255].map(|length| {
        let packet = Control { length: Some(length), ..right.clone() };
        wrong(format!("length {length}"), &packet, "malformed")
    }));
    let octets = right.octets();
    all.extend([0, 1, 3, 4, 12, 23].map(|cut| {
        let what = format!("{cut} octets");
        Wrong { what, octets: octets[..cut].to_vec(), counted: "malformed" }
    }));
    let right = || right.clone();
    all.extend([
        wrong("no multiplier", &Control { multiplier: 0, ..right() }, "malformed"),
        wrong("multipoint", &Control { flags: MULTIPOINT, ..right() }, "malformed"),
        wrong("no discriminator of its own", &Control { mine: 0, ..right() }, "malformed"),
        wrong("Up, and not ours", &Control { yours: 0, state: UP, ..right() }, "malformed"),
        wrong("Init, and not ours", &Control { yours: 0, state: INIT, ..right() }, "malformed"),
        wrong("another's discriminator", &Control { yours: right().yours ^ 1, ..right() }, "no-session"),
        wrong("authentication of no octets", &authentic(vec![]), "malformed"),
        wrong("authentication of one octet", &authentic(vec![1]), "malformed"),
        wrong("a password", &authentic(vec![1, 9, 1, b's', b'e', b'c', b'r', b'e', b't']), "not-authentic"),
        wrong("a digest of SHA1", &authentic(digest(5, 28)), "not-authentic"),
        wrong("a digest of a wrong length", &authentic(digest(5, 24)), "not-authentic"),
        wrong("a digest that nobody knows", &authentic(digest(99, 28)), "not-authentic"),
    ]);
    all
}

#[test]
fn every_field_that_is_wrong_is_counted_and_changes_nothing() -> Result<()> {
    let scene = Scene::new()?;
    let right = scene.right()?;
    let [ours, theirs]: [IpAddr; 2] = [v4(1, Side::First).into(), v4(1, Side::Second).into()];
    let counted_after = |what: &str, counted: &str, send: &dyn Fn() -> std::io::Result<()>| -> Result<()> {
        let before = status(&scene.router, counted)?;
        send()?;
        wait::until(&format!("{what}: {counted}"), LIMIT, || match status(&scene.router, counted) {
            Ok(now) if now == before + 1 => Ok(()),
            other => Err(format!("{before}, then {other:?}")),
        })?;
        scene.ensure_up(what)
    };
    for Wrong { what, octets, counted } in wrong_packets(&right) {
        counted_after(&what, counted, &|| scene.puppet.send(&octets, SINGLE_HOP))?;
    }
    // Right ones from a wrong place.
    for ttl in [254, 64, 1] {
        let socket = sender(scene.star.neighbor(1), theirs, ttl)?;
        counted_after(&format!("TTL {ttl}"), "dropped-by-kernel", &|| {
            socket.send_to(&right.octets(), (ours, SINGLE_HOP)).map(drop)
        })?;
    }
    let stranger = scene.stranger()?;
    let beside: IpAddr = v4(2, Side::First).into();
    let greeting = Control { yours: 0, state: DOWN, ..right.clone() };
    counted_after("the port of several hops", "misdirected", &|| {
        scene.puppet.send(&right.octets(), MULTIHOP)
    })?;
    counted_after("another interface", "misdirected", &|| {
        stranger.send_to(&right.octets(), (beside, SINGLE_HOP)).map(drop)
    })?;
    counted_after("a stranger who greets", "no-session", &|| {
        stranger.send_to(&greeting.octets(), (beside, SINGLE_HOP)).map(drop)
    })?;
    until_state(&scene.router, "10.0.2.9", "down", Duration::ZERO)?;
    scene.router.stop()
}

#[test]
fn packets_over_ipv6_from_further_away_are_dropped() -> Result<()> {
    let scene = Scene::new()?;
    let remote: IpAddr = v6(1, Side::Second).into();
    let to = (IpAddr::from(v6(1, Side::First)), SINGLE_HOP);
    let follower = Follower::start(&scene.router, &format!("remote:ip={remote}&profile=lab"))?;
    follower.until("DOWN", LIMIT)?;
    // The answer to a greeting says that there is a socket, and what the session is called.
    let greeting = Control::new(99);
    let socket = scene.star.neighbor(1).run(move || UdpSocket::bind((remote, 49_400)))??;
    let mouth = SockRef::from(&socket);
    mouth.set_unicast_hops_v6(255)?;
    wait::until("a session over IPv6", LIMIT, || {
        socket.send_to(&greeting.octets(), to).map_err(|error| error.to_string())?;
        let states = follower.states();
        if states.iter().any(|state| state == "INIT") { Ok(()) } else { Err(format!("{states:?}")) }
    })?;
    for hops in [254, 1] {
        let before = status(&scene.router, "dropped-by-kernel")?;
        mouth.set_unicast_hops_v6(hops)?;
        socket.send_to(&greeting.octets(), to)?;
        wait::until("a drop", LIMIT, || match status(&scene.router, "dropped-by-kernel") {
            Ok(now) if now == before + 1 => Ok(()),
            other => Err(format!("{before}, then {other:?}")),
        })?;
    }
    scene.ensure_up("over IPv4")?;
    scene.router.stop()
}

/// Right ones that say odd things: what they say counts until the next one.
#[test]
fn the_widest_and_narrowest_values_do_no_harm() -> Result<()> {
    let scene = Scene::new()?;
    let right = scene.right()?;
    let pid = scene.router.pid("bfd")?;
    for intervals in
        [[0, 0, 0], [u32::MAX, u32::MAX, u32::MAX], [u32::MAX, 0, 1], [1, 1, 1], [0, u32::MAX, 0]]
    {
        for multiplier in [1, 255] {
            for diagnostic in [0, 31] {
                let odd = Control { intervals, multiplier, diagnostic, ..right.clone() };
                scene.puppet.send(&odd.octets(), SINGLE_HOP)?;
            }
        }
        let before = scene.puppet.heard().1;
        wait::until("packets as before", LIMIT, || match scene.puppet.heard().1 - before {
            count if count > 3 => Ok(()),
            count => Err(format!("{count}")),
        })
        .with_context(|| format!("{intervals:?}"))?;
    }
    ensure!(scene.router.pid("bfd")? == pid, "{}", scene.router.log_tail());
    // One of these may have had it found a failure; but not for long.
    scene.puppet.until_up(LIMIT)?;
    scene.router.stop()
}

/// A stranger's packets, each of another kind than the one before.
fn flood(socket: &UdpSocket, to: IpAddr, right: &Control, lasts: Duration) -> std::io::Result<u64> {
    let (begin, mut sent, mut number) = (Instant::now(), 0, 0x9e37_79b9_u32);
    while begin.elapsed() < lasts {
        while sent < RATE * begin.elapsed().as_millis() as u64 / 1000 {
            number = number.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            let (yours, state, flags) = match sent % 4 {
                0 => (0, DOWN, 0),
                1 => (number | 1, UP, 0),
                2 => (number | 1, UP, AUTHENTICATION),
                _ => (right.yours, UP, 0),
            };
            let packet = Control { mine: number | 1, yours, state, flags, ..right.clone() };
            // A full queue loses some, as networks do.
            if socket.send_to(&packet.octets(), (to, SINGLE_HOP)).is_ok() {
                sent += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(sent)
}

#[test]
fn ten_thousand_packets_a_second_of_strangers_are_counted_and_nothing_else() -> Result<()> {
    const NAMES: [&str; 6] =
        ["malformed", "no-session", "misdirected", "not-authentic", "dropped-by-kernel", "unsent"];
    let scene = Scene::new()?;
    let (right, stranger) = (scene.right()?, scene.stranger()?);
    let counts = || NAMES.iter().map(|name| status(&scene.router, name)).collect::<Result<Vec<_>>>();
    // A first second, for what is made once.
    let beside: IpAddr = v4(2, Side::First).into();
    flood(&stranger, beside, &right, Duration::from_secs(1))?;
    let (before, lines) = (counts()?, scene.router.log().lines().count());
    let (heap, pid, packets) = (scene.router.heap("bfd")?, scene.router.pid("bfd")?, scene.puppet.heard().1);
    let cpu = scene.router.cpu("bfd")?;
    let lasts = Duration::from_secs(6);
    let attacker = std::thread::spawn(move || flood(&stranger, beside, &right, lasts));
    let (begin, mut answers, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    while begin.elapsed() < lasts {
        let asked = Instant::now();
        scene.router.show(&["bgp", "summary"])?;
        scene.ensure_up("under attack")?;
        slowest = slowest.max(asked.elapsed());
        answers += 1;
    }
    let sent = attacker.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
    let counted = |now: &[u64]| now.iter().zip(&before).map(|(now, before)| now - before).sum::<u64>();
    let now = wait::until("all counted", LIMIT, || match counts() {
        Ok(now) if counted(&now) >= sent => Ok(now),
        other => Err(format!("{sent} sent; {before:?}, then {other:?}")),
    })?;
    let cpu = scene.router.cpu("bfd")? - cpu;
    println!(
        "{sent} packets in {lasts:?}: {:?}, {cpu:?} of a processor, {answers} answers, the slowest after {slowest:?}",
        NAMES.iter().zip(now.iter().zip(&before).map(|(now, before)| now - before)).collect::<Vec<_>>()
    );
    ensure!(sent >= RATE * lasts.as_secs() / 2, "only {sent} were sent");
    ensure!(now[5] == before[5], "packets of ours were not sent");
    ensure!(scene.router.pid("bfd")? == pid, "{}", scene.router.log_tail());
    let after = scene.router.heap("bfd")?;
    ensure!(after <= heap + SLACK, "{heap} octets before, {after} after");
    // Its packets went on: one in 300 ms at the least.
    let ours = scene.puppet.heard().1 - packets;
    ensure!(ours >= lasts.as_millis() as u64 / 600, "{ours} packets of ours in {lasts:?}");
    ensure!(slowest < Duration::from_secs(5), "an answer took {slowest:?}");
    let more = scene.router.log().lines().count() - lines;
    ensure!(more < 50, "{more} lines in the log: {}", scene.router.log_tail());
    scene.ensure_up("afterwards")?;
    scene.router.stop()
}
