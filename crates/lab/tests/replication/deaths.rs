//! The death of the whole router: whoever is started next goes on with its sessions, from the store alone.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
};

use anyhow::{Result, bail, ensure};
use holdfast_bgp_wire::{KEEPALIVE, MessageType, next_message};
use holdfast_lab::{
    drill::{stock, time::now},
    netns::{Namespace, output},
    replication::{
        scene::{LIMIT, OTHERS, Scene, Set},
        stock::{Special, Stock},
    },
    router::{Files, LeaseDirectory, Router, binary},
    speaker::{Speaker, SpeakerConfig},
    topology::{Side, join, v4},
    wait,
};

use super::SECOND;

/// A router dies three times under changes both ways, with all its processes, and is started again in the same place.
fn the_router_dies(peers: stock::Kind, specials: &[Special]) -> Result<()> {
    let mut scene = Scene::open(&Set { peers, specials, routes: 2000, ..Set::default() })?;
    scene.until_gated()?;
    let mut version = scene.churn(SECOND, 0)?;
    for round in 0..3 {
        scene.router.die()?;
        version += 1;
        scene.change(version)?;
        scene.announce(201 + round);
        scene.router.begin_again(&scene.host)?;
        version = scene.churn(SECOND, version)?;
    }
    scene.settle(version)?;
    scene.until_told(250)?;
    let shown = scene.until_protected("full", LIMIT)?;
    ensure!(shown.contains("restored:u32"), "{shown}");
    scene.ensure_replicated(&[(scene.gated, now())])?;
    scene.ensure_quiet()
}

/// What a peer does while no router is there.
enum End {
    /// Its process dies: FIN.
    Fin,
    /// Its kernel forgets the connection: RST.
    Reset,
    /// It ends the session in order: NOTIFICATION and FIN.
    Notification,
}

/// Ends the connections of BGP in the kernel of a host.
fn forget(host: &Namespace) -> Result<()> {
    let connections = ["-K", "state", "established", "( dport = :179 or sport = :179 )"];
    output(host.command("ss").args(connections)).map(drop)
}

/// A session that its peer has ended meanwhile begins anew, and the one beside it goes on.
fn a_peer_ends_meanwhile(end: End) -> Result<()> {
    let specials = &[Special::Waits, Special::Md5];
    let mut scene = Scene::open(&Set { specials, routes: 2000, ..Set::default() })?;
    scene.until_gated()?;
    let version = scene.churn(SECOND, 0)?;
    scene.settle(version)?;
    scene.router.die()?;
    let victim = &mut scene.stocks[0];
    match end {
        End::Fin => {
            victim.kill()?;
            victim.start_again()?;
        }
        End::Reset => forget(&victim.host)?,
        End::Notification => victim.restart()?,
    }
    scene.router.begin_again(&scene.host)?;
    let version = scene.churn(SECOND, version)?;
    scene.settle(version)?;
    scene.until_told(250)?;
    scene.until_protected("full", LIMIT)?;
    let log = scene.router.log();
    let has_ended = ["session-down", "session-given-up"].iter().any(|event| log.contains(event));
    ensure!(has_ended, "nobody has noticed: {log}");
    scene.stocks[1].ensure_quiet()
}

#[test]
fn a_peer_that_dies_while_no_router_is_there_begins_anew() -> Result<()> {
    a_peer_ends_meanwhile(End::Fin)
}

#[test]
fn a_connection_that_is_reset_while_no_router_is_there_begins_anew() -> Result<()> {
    a_peer_ends_meanwhile(End::Reset)
}

#[test]
fn a_session_that_is_ended_while_no_router_is_there_begins_anew() -> Result<()> {
    a_peer_ends_meanwhile(End::Notification)
}

/// An outage that is longer than the hold time ends all sessions, at both sides, and they come back.
#[test]
fn sessions_whose_hold_time_is_over_while_no_router_is_there_begin_anew() -> Result<()> {
    const HOLD_TIME: u32 = 3;
    let set = Set { specials: &[Special::Waits, Special::Dials], hold_time: HOLD_TIME, ..Set::default() };
    let mut scene = Scene::open(&set)?;
    scene.until_gated()?;
    scene.router.die()?;
    thread::sleep(SECOND * (HOLD_TIME + 1));
    scene.router.begin_again(&scene.host)?;
    until_sessions(&scene, &[2, 2])?;
    let version = scene.churn(SECOND, 0)?;
    scene.settle(version)?;
    scene.until_told(u64::from(OTHERS))?;
    scene.until_protected("full", LIMIT).map(drop)
}

/// Waits until each stock router has had so many sessions.
fn until_sessions(scene: &Scene, wanted: &[usize]) -> Result<()> {
    until_one_of(scene, &[wanted]).map(drop)
}

/// Waits until the stock routers have had one of these numbers of sessions each: which.
fn until_one_of(scene: &Scene, wanted: &[&[usize]]) -> Result<usize> {
    wait::until("sessions that began anew", LIMIT, || {
        let counts: Result<Vec<usize>> = scene.stocks.iter().map(Stock::sessions).collect();
        let found = counts.as_ref().ok().and_then(|counts| wanted.iter().position(|one| one == counts));
        found.ok_or_else(|| format!("{counts:?}"))
    })
}

/// Drops every RST of a host.
fn say_no_reset(host: &Namespace) -> Result<()> {
    let rule = ["-I", "OUTPUT", "-p", "tcp", "--tcp-flags", "RST", "RST", "-j", "DROP"];
    output(host.command("iptables").args(rule)).map(drop)
}

/// The peer knows nothing of a connection that was made again, does not say so, and dials. The session with that connection
/// stays (RFC 4271 section 6.8) until its hold time is over, and those beside it go on.
#[test]
fn a_connection_that_collides_with_one_that_was_made_again_ends_and_comes_back() -> Result<()> {
    let set = Set { specials: &[Special::Nothing, Special::Md5], hold_time: 9, ..Set::default() };
    let mut scene = Scene::open(&set)?;
    scene.until_gated()?;
    scene.router.die()?;
    forget(&scene.stocks[0].host)?;
    say_no_reset(&scene.stocks[0].host)?;
    scene.router.begin_again(&scene.host)?;
    until_sessions(&scene, &[2, 1])?;
    let version = scene.churn(SECOND, 0)?;
    scene.settle(version)?;
    scene.until_told(u64::from(OTHERS))?;
    scene.until_protected("full", LIMIT)?;
    let log = scene.router.log();
    ensure!(log.contains("sent Hold Timer Expired"), "{log}");
    scene.stocks[1].ensure_quiet()
}

/// A session whose objects have been damaged in the store begins anew, which its peer hears of, and the one beside it goes on.
#[test]
fn a_session_that_the_store_does_not_have_as_a_whole_begins_anew_alone() -> Result<()> {
    // Its peer hears of it when it next says something: a third of this later at most.
    let set = Set { specials: &[Special::Waits, Special::Md5], hold_time: 30, ..Set::default() };
    let mut scene = Scene::open(&set)?;
    scene.until_gated()?;
    scene.router.die()?;
    // Longer than anything that is read, and no description.
    for (part, field, value) in
        [("data", "v0/s/1/record", "string.rep('x', 2000000)"), ("index", "0/s/1/in", "'junk'")]
    {
        for key in scene.redis_cli(&["KEYS", &format!("*:{part}")])?.lines() {
            let script = format!("return redis.call('HSET', KEYS[1], '{field}', {value})");
            scene.redis_cli(&["EVAL", &script, "1", key])?;
        }
    }
    scene.router.begin_again(&scene.host)?;
    // Whichever was the first.
    let other = until_one_of(&scene, &[&[1, 2], &[2, 1]])?;
    let log = scene.router.log();
    ensure!(log.contains("0/s/1/record is missing in the store"), "{log}");
    let version = scene.churn(SECOND, 0)?;
    scene.settle(version)?;
    scene.until_told(u64::from(OTHERS))?;
    scene.until_protected("full", LIMIT)?;
    scene.stocks[other].ensure_quiet()
}

/// Its gate has the packet queue: nobody beside it could make its sessions again.
#[test]
fn a_router_that_was_stopped_beside_its_standby_goes_on_with_its_sessions() -> Result<()> {
    let lease = LeaseDirectory::new("beside")?;
    let more = format!("lease-directory = \"{}\"", lease.path().display());
    let specials = &[Special::Waits, Special::Md5];
    let mut scene = Scene::open(&Set { specials, more: &more, ..Set::default() })?;
    scene.until_gated()?;
    let configuration = fs::read_to_string(scene.router.configuration())?;
    let standby = Router::launch(&binary()?, &scene.host, &configuration, &Files::new(), &["--standby"])?;
    standby.until_standby()?;
    let pids = scene.router.pids()?;
    scene.router.pause(&pids)?;
    // Longer than its lease lasts.
    thread::sleep(5 * SECOND);
    pids.iter().try_for_each(|pid| scene.router.resume(*pid))?;
    let version = scene.churn(SECOND, 0)?;
    scene.settle(version)?;
    scene.until_told(u64::from(OTHERS))?;
    scene.until_protected("full", LIMIT)?;
    standby.until_role("standby", LIMIT)?;
    scene.ensure_quiet()
}

const LATE: u8 = 5;

/// An OPEN of AS 65005 without capabilities (RFC 4271 section 4.2).
fn open() -> Vec<u8> {
    let mut octets = vec![255; 16];
    octets.extend([0, 29, 1, 4]);
    octets.extend(65005_u16.to_be_bytes());
    octets.extend([0, 90, 10, 0, LATE, 2, 0]);
    octets
}

/// A connection over which both sides have said OPEN, and the router KEEPALIVE.
fn half_open() -> Result<TcpStream> {
    let mut stream = TcpStream::connect((v4(LATE, Side::First), 179))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&open())?;
    let mut heard = Vec::new();
    loop {
        let mut room = [0; 4096];
        let count = stream.read(&mut room)?;
        ensure!(count > 0, "the router has closed it");
        heard.extend(&room[..count]);
        let mut left = &heard[..];
        while let Ok(Some(message)) = next_message(left, room.len()) {
            if message.kind == MessageType::KeepAlive {
                return Ok(stream);
            }
            left = &left[message.wire.len()..];
        }
    }
}

/// A connection without a session is not protected: it ends with the router, and its peer comes back.
#[test]
fn an_open_that_is_under_way_ends_with_the_router_and_the_peer_comes_back() -> Result<()> {
    let late = format!(
        "[[bgp.peer]]\nname = \"late\"\naddress = \"{}\"\nasn = 65005\npassive = true\nimport = \"accept-all\"",
        v4(LATE, Side::Second)
    );
    let specials = &[Special::Waits, Special::Md5];
    let mut scene = Scene::open(&Set { specials, more: &late, ..Set::default() })?;
    scene.until_gated()?;
    let host = Namespace::new("late")?;
    join(LATE, &scene.host, &host)?;
    let mut stream = host.run(half_open)??;
    scene.router.die()?;
    // Its kernel says so again and again until somebody answers.
    stream.write_all(&KEEPALIVE)?;
    scene.router.begin_again(&scene.host)?;
    match stream.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => bail!("{other:?}: {}", scene.router.log()),
    }
    let config = SpeakerConfig::connect(v4(LATE, Side::Second).into(), v4(LATE, Side::First).into(), 65005);
    let late = host.run(|| Speaker::spawn(config))??;
    late.wait_established(LIMIT)?;
    let version = scene.churn(SECOND, 0)?;
    scene.settle(version)?;
    scene.until_told(250)?;
    scene.until_protected("full", LIMIT)?;
    scene.ensure_quiet()
}

#[test]
fn sessions_with_frr_outlive_all_processes_of_the_router() -> Result<()> {
    the_router_dies(stock::Kind::Frr, &[Special::Md5, Special::V6])
}

#[test]
fn sessions_with_bird_outlive_all_processes_of_the_router() -> Result<()> {
    the_router_dies(stock::Kind::Bird, &[Special::Waits, Special::Dials, Special::Md5])
}
