//! Caches that lie, and caches that know less: scripted ones, which say what no real one would.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::{
    router::Router,
    topology::{ROUTER, Star},
    wait,
};
use holdfast_rtr_wire::{ErrorCode, ErrorReport, Frame, Pdu, Record, Serial, Version};
use holdfast_types::{Asn, Vrp};

const LIMIT: Duration = Duration::from_secs(60);
const CACHE: &str = r#"
[[rpki.cache]]
name = "one"
address = "10.0.1.2"
retry = 1
"#;

/// A cache's end of a connection.
struct Session {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Session {
    /// The next PDU of the router, and its version.
    fn next(&mut self) -> Result<(Version, Pdu)> {
        loop {
            if let Some((frame, rest)) = Frame::split(&self.read)? {
                let version = Version::from_octet(frame.octets()[0]).context("a version")?;
                let (pdu, length) = (frame.pdu(version)?, self.read.len() - rest.len());
                self.read.drain(..length);
                return Ok((version, pdu));
            }
            let mut room = [0; 4096];
            match self.stream.read(&mut room)? {
                0 => bail!("the router has closed the connection"),
                length => self.read.extend(&room[..length]),
            }
        }
    }

    fn say(&mut self, version: Version, pdus: &[Pdu]) -> Result<()> {
        let mut octets = Vec::new();
        for pdu in pdus {
            pdu.write(version, &mut octets)?;
        }
        Ok(self.stream.write_all(&octets)?)
    }

    /// What the router complains of, before it closes the connection.
    fn complaint(&mut self) -> Result<ErrorCode> {
        let (_, pdu) = self.next()?;
        let Pdu::ErrorReport(report) = pdu else { bail!("{pdu:?} is no complaint") };
        ensure!(self.next().is_err(), "and nothing follows");
        Ok(report.code)
    }
}

fn announced(prefix: &str) -> Pdu {
    let prefix = prefix.parse().expect("a prefix");
    Pdu::Announce(Record::Vrp(Vrp::new(prefix, 24, Asn(64_496)).expect("it goes with it")))
}

fn withdrawn(prefix: &str) -> Pdu {
    match announced(prefix) {
        Pdu::Announce(record) => Pdu::Withdraw(record),
        other => other,
    }
}

const BEGIN: Pdu = Pdu::CacheResponse { session: 7 };

fn end(serial: u32) -> Pdu {
    Pdu::EndOfData { session: 7, serial: Serial(serial), timing: None }
}

/// What a cache does on one connection after the other, and reports.
type Script = fn(&mut Session, &Sender<String>) -> Result<()>;

fn serve(star: &Star, scripts: &'static [Script]) -> Result<Receiver<String>> {
    let (tell, told) = channel();
    star.neighbor(1).spawn(move || {
        let outcome = || -> Result<()> {
            let listener = TcpListener::bind("0.0.0.0:323")?;
            tell.send("listening".to_owned())?;
            for script in scripts {
                let (stream, _) = listener.accept()?;
                stream.set_read_timeout(Some(LIMIT))?;
                script(&mut Session { stream, read: Vec::new() }, &tell)?;
            }
            Ok(())
        };
        if let Err(error) = outcome() {
            // The test may have ended.
            let _ = tell.send(format!("failed: {error:#}"));
        }
    })?;
    ensure!(told.recv_timeout(LIMIT)? == "listening", "it does not listen");
    Ok(told)
}

fn prefixes(router: &Router) -> Result<Vec<String>> {
    let shown = router.show(&["rpki", "vrps"])?;
    let all = shown["prefixes"].as_array().context("prefixes")?.iter();
    Ok(all.filter_map(|row| row["prefix"].as_str().map(str::to_owned)).collect())
}

fn until_prefixes(router: &Router, wanted: &[&str]) -> Result<()> {
    wait::until("prefixes", LIMIT, || {
        let shown = prefixes(router).map_err(|error| format!("{error:#}"))?;
        if shown == wanted { Ok(()) } else { Err(format!("{shown:?}")) }
    })
    .with_context(|| router.log_tail())
}

#[test]
fn a_cache_that_has_lost_count_is_told_so_and_asked_for_all() -> Result<()> {
    const SCRIPTS: &[Script] = &[
        |session, tell| {
            let (version, query) = session.next()?;
            ensure!(query == Pdu::ResetQuery, "{query:?}");
            session.say(version, &[BEGIN, announced("192.0.2.0/24"), announced("192.0.2.0/24")])?;
            Ok(tell.send(format!("twice: {}", session.complaint()?))?)
        },
        |session, tell| {
            let (version, query) = session.next()?;
            ensure!(query == Pdu::ResetQuery, "{query:?}");
            session.say(version, &[BEGIN, announced("192.0.2.0/24"), end(1)])?;
            session.say(version, &[Pdu::SerialNotify { session: 7, serial: Serial(2) }])?;
            let (_, query) = session.next()?;
            ensure!(query == Pdu::SerialQuery { session: 7, serial: Serial(1) }, "{query:?}");
            session.say(version, &[BEGIN, announced("198.51.100.0/24"), withdrawn("203.0.113.0/24")])?;
            Ok(tell.send(format!("unknown: {}", session.complaint()?))?)
        },
        |session, tell| {
            let (version, query) = session.next()?;
            ensure!(query == Pdu::ResetQuery, "{query:?}");
            session.say(version, &[BEGIN, announced("203.0.113.0/24"), end(3)])?;
            tell.send("whole".to_owned())?;
            // Then it is no cache at all.
            session.say(version, &[Pdu::SerialNotify { session: 7, serial: Serial(4) }])?;
            session.next()?;
            session.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
            session.complaint()?;
            Ok(tell.send("no cache".to_owned())?)
        },
    ];
    let star = Star::new(1)?;
    let told = serve(&star, SCRIPTS)?;
    let router = Router::start(&star.router, &[ROUTER, CACHE].concat())?;
    ensure!(told.recv_timeout(LIMIT)? == "twice: Duplicate Announcement Received (7)");
    ensure!(prefixes(&router)?.is_empty(), "nothing of an answer holds before its end");
    let second = told.recv_timeout(LIMIT)?;
    ensure!(second == "unknown: Withdrawal of Unknown Record (6)", "{second}");
    ensure!(told.recv_timeout(LIMIT)? == "whole", "all was asked for again");
    until_prefixes(&router, &["203.0.113.0/24"])?;
    ensure!(told.recv_timeout(LIMIT)? == "no cache", "it is told so as well");
    until_prefixes(&router, &["203.0.113.0/24"])?;
    let shown = &router.show(&["rpki", "caches"])?["caches"][0];
    ensure!(shown["used"] == true && shown["lastError"].is_string(), "{shown}");
    ensure!(router.show(&["processes"])?["rpki"]["restarts"] == 0, "it has not died of that");
    router.stop()
}

#[test]
fn a_cache_of_an_older_version_is_asked_in_that() -> Result<()> {
    fn refuses(session: &mut Session, tell: &Sender<String>) -> Result<()> {
        let (version, _) = session.next()?;
        let report =
            ErrorReport { code: ErrorCode::UnsupportedProtocolVersion, pdu: Vec::new(), text: String::new() };
        session.say(Version::V0, &[Pdu::ErrorReport(report)])?;
        Ok(tell.send(format!("asked in {version}"))?)
    }
    const SCRIPTS: &[Script] = &[refuses, |session, tell| {
        let (version, _) = session.next()?;
        session.say(version, &[BEGIN, announced("192.0.2.0/24"), end(1)])?;
        tell.send(format!("asked in {version}"))?;
        // Until the router ends.
        let _ = session.next();
        Ok(())
    }];
    let star = Star::new(1)?;
    let told = serve(&star, SCRIPTS)?;
    let router = Router::start(&star.router, &[ROUTER, CACHE].concat())?;
    ensure!(told.recv_timeout(LIMIT)? == "asked in 2");
    ensure!(told.recv_timeout(LIMIT)? == "asked in 0", "as the cache's report was");
    until_prefixes(&router, &["192.0.2.0/24"])?;
    let shown = &router.show(&["rpki", "caches"])?["caches"][0];
    ensure!(shown["version"] == 0, "{shown}");
    router.stop()
}
