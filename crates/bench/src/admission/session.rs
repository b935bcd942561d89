//! What a BGP session over QUIC loses while one of its routers is flooded with ClientHellos.
//!
//! ```text
//!  feeder ──TCP── r1 ──QUIC── r2 ──TCP── sink
//!                              │
//!                           stranger
//! ```
//!
//! Feeder and sink are one program ([`crate::load`]). All routes change again and again, so that the session is as busy as it
//! can be, for some time without a flood and then with each of them, in turns. Then nothing is said for longer than
//! the hold time, in each flood: KEEPALIVEs alone keep the session up.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use holdfast_lab::{
    keys::Signer,
    netns::Namespace,
    router::{Files, Router},
    table::{Synthetic, Table},
    topology::{Side, join, v4},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    attacker::{Ammunition, Attack},
    cases::Backend,
    clients::{Clients, Outcome, STORM},
    median, name,
};
use crate::{daemon::peer_asn, feed, load::Load, net::Place};

/// Seconds, of the session that is flooded.
const HOLD: u16 = 9;
/// The longest that it takes until a KEEPALIVE is due: a third of the hold time.
const KEEPALIVE: Duration = Duration::from_secs(HOLD as u64 / 3);
/// Nothing is said for so long.
const REST: Duration = Duration::from_secs(HOLD as u64 + 3);
/// Between two looks at the session meanwhile.
const LOOK: Duration = Duration::from_millis(200);
/// Longest wait for sessions and routes.
const LIMIT: Duration = Duration::from_secs(60);
/// Where both routers have QUIC.
const PORT: u16 = 1179;
/// Where r2 has nothing.
const CLOSED: u16 = 1180;
/// The networks of the picture.
const BETWEEN: u8 = 1;
const FEEDER_SIDE: u8 = 2;
const SINK_SIDE: u8 = 3;
const STRANGER_SIDE: u8 = 4;
/// Sessions of the load, in order.
const FEEDER: usize = 0;
const SINK: usize = 1;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these libraries.
    #[arg(long, value_delimiter = ',')]
    backends: Vec<Backend>,
    /// Routes that change at once.
    #[arg(long, default_value_t = 100_000)]
    routes: usize,
    /// Seconds of each flood in a run.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Runs of each; figures are medians.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// An object of JSON for each library and flood, a line each, instead of the table.
    #[arg(long)]
    json: bool,
}

/// 10,000 ClientHellos a second.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Flood {
    /// None at all.
    None,
    /// To a port at which nobody listens: what it costs the machine that they are sent, and come.
    Elsewhere,
    /// From an address that r2 does not know.
    Strangers,
    /// From r1's address, as if it was forged.
    Peer,
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Row {
    mode: &'static str,
    backend: Backend,
    flood: Flood,
    /// Routes that came through in a second.
    routes_per_s: f64,
    /// To those without a flood.
    ratio: f64,
    /// To those with the flood that comes to nobody.
    ratio_to_elsewhere: f64,
    /// Longest time in which a router has heard nothing of the other one, while neither had anything to say but KEEPALIVEs.
    silence_s: f64,
    /// How often the session has ended.
    flaps: u64,
    /// Datagrams of the flood in a second.
    attacks_per_s: f64,
    /// The share of them that admission has judged; the kernel has dropped the others, or nobody was there.
    judged: f64,
    runs: usize,
}

impl Row {
    fn print(&self) {
        println!(
            "{:8} {:10} {:>9.0} {:>6.2} {:>9.2} {:>10.2} {:>6} {:>10.0} {:>7.2}",
            name(self.backend),
            name(self.flood),
            self.routes_per_s,
            self.ratio,
            self.ratio_to_elsewhere,
            self.silence_s,
            self.flaps,
            self.attacks_per_s,
            self.judged,
        );
    }
}

/// Of one library and flood.
struct Measured {
    flood: Flood,
    routes_per_s: Vec<f64>,
    silence: Duration,
    flaps: u64,
    flooded: Outcome,
    judged: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0 && arguments.routes > 0, "nothing is to be done");
    let hellos = Clients::new()?.hellos()?;
    let backends = match arguments.backends.is_empty() {
        true => Backend::value_variants(),
        false => &arguments.backends,
    };
    if !arguments.json {
        println!(
            "{:8} {:10} {:>9} {:>6} {:>9} {:>10} {:>6} {:>10} {:>7}",
            "library",
            "flood",
            "routes/s",
            "ratio",
            "elsewhere",
            "silence s",
            "flaps",
            "datagram/s",
            "judged"
        );
    }
    for &backend in backends {
        for row in rows(backend, &hellos, arguments)? {
            if arguments.json {
                println!("{}", serde_json::to_string(&row)?);
            } else {
                row.print();
            }
        }
    }
    Ok(())
}

fn rows(backend: Backend, hellos: &Ammunition, arguments: &Arguments) -> Result<Vec<Row>> {
    let mut bench = Bench::start(backend, hellos.clone(), arguments.routes)?;
    let mut all: Vec<_> = Flood::value_variants().iter().map(|&flood| Measured::new(flood)).collect();
    for _ in 0..arguments.runs {
        for measured in &mut all {
            bench.flow(Duration::from_secs(arguments.seconds), measured)?;
        }
    }
    for measured in &mut all {
        bench.rest(measured)?;
    }
    let of = |measured: &Measured| median(measured.routes_per_s.clone());
    let [none, elsewhere] = [Flood::None, Flood::Elsewhere]
        .map(|flood| all.iter().find(|measured| measured.flood == flood).map_or(f64::NAN, of));
    let row = |measured: &Measured| Row {
        mode: "session",
        backend,
        flood: measured.flood,
        routes_per_s: of(measured),
        ratio: of(measured) / none,
        ratio_to_elsewhere: of(measured) / elsewhere,
        silence_s: measured.silence.as_secs_f64(),
        flaps: measured.flaps,
        attacks_per_s: measured.flooded.attacks_per_s(),
        judged: measured.judged as f64 / (measured.flooded.attacks.max(1)) as f64,
        runs: arguments.runs,
    };
    Ok(all.iter().map(row).collect())
}

impl Measured {
    fn new(flood: Flood) -> Self {
        let (routes_per_s, silence, flooded) = (Vec::new(), Duration::ZERO, Outcome::default());
        Self { flood, routes_per_s, silence, flaps: 0, flooded, judged: 0 }
    }
}

/// Both routers with their session up, and who plays around them.
struct Bench {
    r1: Router,
    r2: Router,
    load: Load,
    hellos: Ammunition,
    /// Two tables of the same prefixes, as UPDATEs.
    feeds: [Arc<[u8]>; 2],
    routes: u64,
    sent: usize,
    /// Of r1, and of the stranger. They go last.
    hosts: [Namespace; 4],
}

impl Bench {
    fn start(backend: Backend, hellos: Ammunition, routes: usize) -> Result<Self> {
        let [r1, r2, load, stranger] = ["r1", "r2", "load", "stranger"].map(Namespace::new);
        let hosts = [r1?, r2?, load?, stranger?];
        let [r1, r2, load, stranger] = &hosts;
        join(BETWEEN, r1, r2)?;
        join(FEEDER_SIDE, r1, load)?;
        join(SINK_SIDE, r2, load)?;
        join(STRANGER_SIDE, r2, stranger)?;
        let signer = Signer::new("Bench CA")?;
        let start = |host, end: &End| -> Result<Router> {
            let mut files: Files = signer.sign(&format!("r{}.example", end.number))?.files();
            files.insert("authority.pem".to_owned(), signer.certificate());
            Router::start_with_files(host, &end.configuration(backend), &files)
        };
        let ends = [End::new(1, FEEDER_SIDE, FEEDER), End::new(2, SINK_SIDE, SINK)];
        let [r2, r1] = [start(r2, &ends[1])?, start(r1, &ends[0])?];
        r1.until_established("router", LIMIT)?;
        let places = ends.map(End::place);
        let from = places[FEEDER].peer;
        let load = load.run(move || Load::establish(&places, peer_asn, HOLD, LIMIT))??;
        let (old, new) = (Synthetic::ipv4(1, routes).build(), Synthetic::ipv4(2, routes).build());
        let changed = old.routes.iter().zip(&new.routes).map(|(old, new)| (old.0, new.1)).collect();
        let changed = Table { routes: changed, sets: new.sets };
        let feed = |table| -> Result<Arc<[u8]>> { Ok(feed::announce(table, from, peer_asn(FEEDER))?.into()) };
        let feeds = [feed(&old)?, feed(&changed)?];
        let mut bench = Self { r1, r2, load, hellos, feeds, routes: routes as u64, sent: 0, hosts };
        // What is measured is change.
        bench.change()?;
        bench.change()?;
        Ok(bench)
    }

    /// Announces all routes anew, and waits until the sink has them.
    fn change(&mut self) -> Result<()> {
        let wanted = self.load.sessions[SINK].announced + self.routes;
        self.load.sessions[FEEDER].send(Arc::clone(&self.feeds[self.sent % 2]));
        self.sent += 1;
        self.load.until("the routes", LIMIT, |load| Ok(load.sessions[SINK].announced >= wanted))
    }

    /// Changes all routes again and again for about so long.
    fn flow(&mut self, time: Duration, measured: &mut Measured) -> Result<()> {
        self.during(measured, |bench, measured| {
            let (start, mut changes) = (Instant::now(), 0);
            while start.elapsed() < time {
                bench.change()?;
                changes += bench.routes;
            }
            measured.routes_per_s.push(changes as f64 / start.elapsed().as_secs_f64());
            Ok(())
        })
    }

    /// Says nothing, and looks when the routers have heard of each other.
    fn rest(&mut self, measured: &mut Measured) -> Result<()> {
        self.during(measured, |bench, measured| {
            let start = Instant::now();
            while start.elapsed() < REST {
                bench.load.rest(LOOK)?;
                // When it was busy last does not count.
                if start.elapsed() > KEEPALIVE {
                    for shown in bench.both()? {
                        let silence = shown["bgpTimerLastRead"].as_u64().context("when it has read")?;
                        measured.silence = measured.silence.max(Duration::from_millis(silence));
                    }
                }
            }
            Ok(())
        })
    }

    /// While the flood comes.
    fn during(
        &mut self,
        measured: &mut Measured,
        story: impl FnOnce(&mut Self, &mut Measured) -> Result<()>,
    ) -> Result<()> {
        let before = (self.flaps()?, self.judged()?);
        let attack = self.flood(measured.flood)?;
        let result = story(self, measured);
        if let Some(attack) = attack {
            measured.flooded.add(&attack.call_off());
        }
        result.with_context(|| format!("r1: {}\nr2: {}", self.r1.log_tail(), self.r2.log_tail()))?;
        // What is still in the socket's queue.
        sleep(LOOK);
        measured.flaps += self.flaps()? - before.0;
        measured.judged += self.judged()? - before.1;
        Ok(())
    }

    fn flood(&self, flood: Flood) -> Result<Option<Attack>> {
        let [r1, _, _, stranger] = &self.hosts;
        let (host, from, to) = match flood {
            Flood::None => return Ok(None),
            Flood::Elsewhere => (stranger, v4(STRANGER_SIDE, Side::Second), at(STRANGER_SIDE, CLOSED)),
            Flood::Strangers => (stranger, v4(STRANGER_SIDE, Side::Second), at(STRANGER_SIDE, PORT)),
            Flood::Peer => {
                (r1, v4(BETWEEN, Side::First), SocketAddr::new(v4(BETWEEN, Side::Second).into(), PORT))
            }
        };
        let hellos = self.hellos.clone();
        host.run(move || hellos.keep_firing(from, to, STORM))?.map(Some)
    }

    /// How often the session between the routers has ended.
    fn flaps(&self) -> Result<u64> {
        let dropped = |shown: &Value| shown["connectionsDropped"].as_u64();
        let [r1, r2] = self.both()?;
        dropped(&r1).zip(dropped(&r2)).map(|(r1, r2)| r1 + r2).context("how often it has ended")
    }

    /// What both say of their session.
    fn both(&self) -> Result<[Value; 2]> {
        Ok([self.r1.neighbor("router")?, self.r2.neighbor("router")?])
    }

    /// Attempts over QUIC that r2 has judged.
    fn judged(&self) -> Result<u64> {
        let shown = self.r2.show(&["listeners"])?;
        let all = shown["listeners"].as_array().context("listeners")?;
        let quic = all
            .iter()
            .filter(|listener| listener["protocol"].as_str().is_some_and(|it| it.starts_with("quic")));
        Ok(quic.filter_map(|listener| listener["stages"][0]["seen"].as_u64()).sum())
    }
}

/// A router's own end of a network at its edge.
fn at(network: u8, port: u16) -> SocketAddr {
    SocketAddr::new(v4(network, Side::First).into(), port)
}

/// One of both routers.
#[derive(Copy, Clone)]
struct End {
    number: u8,
    /// Where its part of the load is.
    side: u8,
    session: usize,
}

impl End {
    fn new(number: u8, side: u8, session: usize) -> Self {
        Self { number, side, session }
    }

    fn place(self) -> Place {
        let [router, peer] = [Side::First, Side::Second].map(|side| IpAddr::V4(v4(self.side, side)));
        Place { peer, router }
    }

    fn configuration(self, backend: Backend) -> String {
        let (number, other) = (self.number, 3 - self.number);
        let (key, transport) = match backend {
            Backend::Noq => ("quic-port", "quic"),
            Backend::S2n => ("quic-s2n-port", "quic-s2n"),
        };
        let passive = number == 2;
        let load = self.place().peer;
        let load_asn = peer_asn(self.session).0;
        format!(
            r#"
[router]
id = "10.0.{BETWEEN}.{number}"
asn = 6500{number}
[rib]
enabled = false
[fea]
backend = "none"
[tls]
certificate = "certificate.pem"
key = "key.pem"
[bgp]
{key} = {PORT}
hold-time = {HOLD}
[[bgp.peer]]
name = "router"
address = "10.0.{BETWEEN}.{other}"
asn = 6500{other}
passive = {passive}
transport = "{transport}"
tls-authorities = "authority.pem"
tls-name = "r{other}.example"
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "load"
address = "{load}"
asn = {load_asn}
passive = true
import = "accept-all"
export = "accept-all"
"#
        )
    }
}
