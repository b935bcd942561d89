//! The same death of a stock router. Nobody goes on with its sessions: it is started again at once, and all begin anew.
//!
//! It says what the others are spared. The stage is that of [`super::peers`], without a store. Neither router forwards packets.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use super::{
    LONGEST_PAUSE_MS, Options, PACE,
    lan::{Lan, ROUTER_AS, SERVICE, service, v4},
    peers::{FEEDER, LOADING, Peers, STOCKS},
    scene::give_service,
    stock::{self, HOLD_TIME, Stock, address, asn},
};
use crate::{
    drill::{phases::Column, process::flaps, stock::Session, time::now},
    netns::Namespace,
    peers::{Bird, Frr, GoBgp, Programs},
    replication::stock::Special,
    table::random::Random,
    wait,
};

/// Which stock router is tested.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// BIRD.
    Bird,
    /// FRR's bgpd.
    Frr,
    /// GoBGP.
    Gobgp,
}

impl Kind {
    fn version(self, programs: &Programs) -> Result<String> {
        let stock = match self {
            Self::Bird => stock::Kind::Bird,
            Self::Frr => stock::Kind::Frr,
            Self::Gobgp => stock::Kind::Gobgp,
        };
        stock.version(programs)
    }
}

#[derive(Debug)]
enum Dut {
    Bird(Bird),
    Frr(Frr),
    Gobgp(GoBgp),
}

impl Dut {
    fn start(kind: Kind, programs: Programs, host: &Namespace) -> Result<Self> {
        Ok(match kind {
            Kind::Bird => Self::Bird(Bird::start_of(programs, host, &bird(), &[])?),
            Kind::Frr => Self::Frr(Frr::start_of(programs, host, &frr())?),
            Kind::Gobgp => Self::Gobgp(GoBgp::start_of(programs, host, &gobgp())?),
        })
    }

    fn kill(&mut self) -> Result<()> {
        match self {
            Self::Bird(bird) => bird.kill(),
            Self::Frr(frr) => frr.kill(),
            Self::Gobgp(gobgp) => gobgp.kill(),
        }
    }

    fn start_again(&mut self, host: &Namespace) -> Result<()> {
        match self {
            Self::Bird(bird) => bird.start_again(host),
            Self::Frr(frr) => frr.start_again(host),
            Self::Gobgp(gobgp) => gobgp.start_again(host),
        }
    }

    fn log(&self) -> String {
        match self {
            Self::Bird(bird) => bird.log(),
            Self::Frr(frr) => frr.log(),
            Self::Gobgp(gobgp) => gobgp.lines().into_iter().map(|(_, line)| line + "\n").collect(),
        }
    }
}

/// A neighbour in the configuration of the stock router.
struct Neighbor {
    name: String,
    special: Special,
    number: u8,
    is_feeder: bool,
}

fn neighbors() -> impl Iterator<Item = Neighbor> {
    let stock =
        |(number, special)| Neighbor { name: format!("stock{number}"), special, number, is_feeder: false };
    let feeder =
        Neighbor { name: "feeder".to_owned(), special: Special::Waits, number: FEEDER, is_feeder: true };
    STOCKS.into_iter().map(stock).chain([feeder])
}

impl Neighbor {
    fn is_waited_for(&self) -> bool {
        matches!(self.special, Special::V6 | Special::Waits)
    }

    fn is_v6(&self) -> bool {
        self.special == Special::V6
    }
}

fn bird() -> String {
    let mut text = format!("router id {};\nprotocol device {{ }}\n", v4(SERVICE));
    for neighbor in neighbors() {
        let (own, far) = (service(neighbor.is_v6()), address(neighbor.special, neighbor.number));
        let families: &[&str] = match (neighbor.is_feeder, neighbor.is_v6()) {
            (true, _) => &["ipv4", "ipv6"],
            (false, true) => &["ipv6"],
            (false, false) => &["ipv4"],
        };
        let families: String =
            families.iter().map(|family| format!("{family} {{ import all; export all; }};\n")).collect();
        text += &format!(
            "protocol bgp {} {{
               local {own} as {ROUTER_AS}; neighbor {far} as {};
               connect delay time 1; connect retry time 1; error wait time 1, 2;
               hold time {HOLD_TIME}; graceful restart off;
               {} {} {}
               {families}
             }}\n",
            neighbor.name,
            asn(neighbor.number),
            if neighbor.special == Special::Md5 { "password \"secret\";" } else { "" },
            if neighbor.is_waited_for() { "passive yes;" } else { "" },
            if neighbor.special == Special::Dials { "ttl security on;" } else { "" },
        );
    }
    text
}

fn frr() -> String {
    let (mut session, mut v4_families, mut v6_families) = (String::new(), String::new(), String::new());
    for neighbor in neighbors() {
        let far = address(neighbor.special, neighbor.number);
        session += &format!(
            "neighbor {far} remote-as {}
             neighbor {far} update-source {}
             neighbor {far} timers 10 {HOLD_TIME}
             neighbor {far} timers connect 1
             neighbor {far} advertisement-interval 0\n",
            asn(neighbor.number),
            service(neighbor.is_v6())
        );
        if neighbor.special == Special::Md5 {
            session += &format!("neighbor {far} password secret\n");
        }
        if neighbor.special == Special::Dials {
            session += &format!("neighbor {far} ttl-security hops 1\n");
        }
        if neighbor.is_waited_for() {
            session += &format!("neighbor {far} passive\n");
        }
        if !neighbor.is_v6() {
            v4_families += &format!("neighbor {far} activate\n");
        }
        if neighbor.is_v6() || neighbor.is_feeder {
            v6_families += &format!("neighbor {far} activate\n");
        }
    }
    format!(
        "log timestamp precision 3
         router bgp {ROUTER_AS}
         bgp router-id {}
         bgp graceful-restart-disable
         no bgp ebgp-requires-policy
         no bgp default ipv4-unicast
         {session}
         address-family ipv4 unicast\n{v4_families} exit-address-family
         address-family ipv6 unicast\n{v6_families} exit-address-family\n",
        v4(SERVICE)
    )
}

fn gobgp() -> String {
    let mut text = format!("[global.config]\nas = {ROUTER_AS}\nrouter-id = \"{}\"\n", v4(SERVICE));
    for neighbor in neighbors() {
        text += &format!(
            "[[neighbors]]
             [neighbors.config]
             neighbor-address = \"{}\"
             peer-as = {}
             {}
             [neighbors.timers.config]
             connect-retry = 1
             hold-time = {HOLD_TIME}
             keepalive-interval = 10
             [neighbors.ttl-security.config]
             enabled = {}
             ttl-min = 255
             [neighbors.transport.config]
             local-address = \"{}\"
             passive-mode = {}\n",
            address(neighbor.special, neighbor.number),
            asn(neighbor.number),
            if neighbor.special == Special::Md5 { "auth-password = \"secret\"" } else { "" },
            neighbor.special == Special::Dials,
            service(neighbor.is_v6()),
            neighbor.is_waited_for()
        );
        for family in ["ipv4", "ipv6"] {
            if neighbor.is_feeder || neighbor.is_v6() == (family == "ipv6") {
                text += &format!(
                    "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{family}-unicast\"\n"
                );
            }
        }
    }
    text
}

/// When what came, in microseconds from the death on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Times {
    detection: Option<u64>,
    start: u64,
    tcp: Option<u64>,
    sessions: Option<u64>,
    bgp: Option<u64>,
    total: u64,
}

/// What it costs.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The router that dies.
    pub dut: Kind,
    /// Its name and version.
    pub dut_version: String,
    /// The stock routers beside it.
    pub peer: stock::Kind,
    /// Their name and version.
    pub peer_version: String,
    /// IPv4 routes of the feeder that stayed.
    pub routes: u32,
    /// Seed of all chance.
    pub seed: u64,
    /// Deaths.
    pub kills: u32,
    /// After how many of them everything was there again.
    pub measured: usize,
    /// From the death until the first peer logged it; this and the following in seconds, all from the death on.
    pub detection: Option<Column>,
    /// Until the router had started again and answered.
    pub start: Option<Column>,
    /// Until the first segment of a new connection was at a peer.
    pub tcp_recovery: Option<Column>,
    /// Until all stock routers had a session again, by their logs.
    pub sessions: Option<Column>,
    /// Until a route that was fed after the death was at a stock router.
    pub application_recovery: Option<Column>,
    /// Until every route was everywhere.
    pub total: Option<Column>,
    /// How often sessions of stock routers went down, by their own logs.
    pub peer_flaps: u64,
    /// How long they were down together, in seconds.
    pub peer_downtime_s: f64,
    /// What did not come about.
    pub faults: Vec<String>,
    /// Everything came again each time.
    pub ok: bool,
}

/// Kills a stock router, and starts it again, as often as is wanted.
///
/// # Errors
/// The stage could not be set.
pub fn dut(kind: Kind, options: &Options) -> Result<Report> {
    let start = Instant::now();
    let programs = options.programs();
    let lan = Lan::new()?;
    let (host, feeder) = (lan.host("dut", 1)?, lan.host("feeder", FEEDER)?);
    give_service(&host)?;
    let mut router = Dut::start(kind, programs.clone(), &host)?;
    let peers = Peers::start(options, &lan, &feeder, |stock| until_up(stock, 0));
    let mut peers = match peers {
        Ok(peers) => peers,
        Err(error) => return Err(error.context(router.log())),
    };
    println!("all sessions are up after {:.1} s", start.elapsed().as_secs_f64());
    let (mut random, mut times, mut faults) = (Random::new(options.seed), Vec::new(), Vec::new());
    let (before, mut kills) = (now(), 0);
    for number in 1..=options.rounds {
        if start.elapsed() > Duration::from_secs(options.limit) {
            faults.push(format!("only {} of {} within {} s", number - 1, options.rounds, options.limit));
            break;
        }
        churn(&mut peers, Duration::from_millis(random.below(LONGEST_PAUSE_MS).into()))?;
        kills += 1;
        match death(&mut peers, &mut router, &host) {
            Ok(one) => {
                let ms = |time: Option<u64>| time.map_or("-".to_owned(), |time| (time / 1000).to_string());
                println!(
                    "death {number} of {}: noticed {} ms, started {} ms, first segment {} ms, sessions {} ms, new route \
                     {} ms, all {} ms",
                    options.rounds,
                    ms(one.detection),
                    one.start / 1000,
                    ms(one.tcp),
                    ms(one.sessions),
                    ms(one.bgp),
                    one.total / 1000
                );
                times.push(one);
            }
            Err(error) => {
                faults.push(format!("death {number}: {error:#}"));
                eprintln!("{}", router.log());
                break;
            }
        }
    }
    for stock in &peers.stocks {
        faults.extend(stock.findings().into_iter().map(|found| format!("{}: {found}", stock.name)));
    }
    let column = |of: fn(&Times) -> Option<u64>| Column::of(times.iter().filter_map(of));
    let all = peers.stocks.iter().map(|stock| flaps(&stock.sessions(), before, now()));
    let (peer_flaps, down) = all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    Ok(Report {
        dut: kind,
        dut_version: kind.version(&programs)?,
        peer: options.peer,
        peer_version: options.peer.version(&programs)?,
        routes: options.routes,
        seed: options.seed,
        kills,
        measured: times.len(),
        detection: column(|times| times.detection),
        start: column(|times| Some(times.start)),
        tcp_recovery: column(|times| times.tcp),
        sessions: column(|times| times.sessions),
        application_recovery: column(|times| times.bgp),
        total: column(|times| Some(times.total)),
        peer_flaps,
        peer_downtime_s: down as f64 / 1e6,
        ok: faults.is_empty() && kills > 0,
        faults,
    })
}

/// Waits until the session of a stock router is up, later than at a time.
fn until_up(stock: &Stock, after: u64) -> Result<()> {
    wait::until("a session", LOADING, || match stock.sessions().last() {
        Some((at, Session::Up)) if *at > after => Ok(()),
        other => Err(format!("{}: {other:?}", stock.name)),
    })
}

fn churn(peers: &mut Peers, time: Duration) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        let next = Instant::now() + PACE;
        peers.step()?;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn death(peers: &mut Peers, router: &mut Dut, host: &Namespace) -> Result<Times> {
    let at = now();
    router.kill()?;
    peers.failed(at, None);
    peers.forget();
    router.start_again(host)?;
    let start = now() - at;
    // What the feeder announces now is new. Others change nothing, since a router without a session takes nothing.
    peers.feed();
    for stock in &peers.stocks {
        until_up(stock, at)?;
    }
    peers.until_again()?;
    let total = now() - at;
    let first = |wanted: Session| {
        let of = move |stock: &Stock| {
            stock.sessions().into_iter().find(|(time, session)| *time >= at && *session == wanted)
        };
        peers.stocks.iter().filter_map(of).map(|(time, _)| time - at)
    };
    let since = |time: Option<u64>| time.map(|time| time.saturating_sub(at));
    let after = |of: fn(&super::judge::After) -> Option<u64>| {
        since((0..peers.judges()).filter_map(|peer| of(&peers.judge(peer).after)).min())
    };
    Ok(Times {
        detection: first(Session::Down).min(),
        start,
        tcp: after(|after| after.began),
        sessions: first(Session::Up).max(),
        bgp: after(|after| after.route),
        total,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} without anybody who goes on, {} as peers, {} routes, seed {}: {} deaths, all there again after {}",
            self.dut_version, self.peer_version, self.routes, self.seed, self.kills, self.measured
        )?;
        for (name, column) in [
            ("noticed", self.detection),
            ("started again", self.start),
            ("first segment", self.tcp_recovery),
            ("all sessions", self.sessions),
            ("first new route", self.application_recovery),
            ("all routes", self.total),
        ] {
            if let Some(column) = column {
                column.line(f, name)?;
            }
        }
        writeln!(f, "  sessions: {} flaps of peers, {:.3} s down", self.peer_flaps, self.peer_downtime_s)?;
        for fault in &self.faults {
            writeln!(f, "  fault: {fault}")?;
        }
        write!(f, "  {}", if self.ok { "ok" } else { "FAILED" })
    }
}
