//! The stage: a router with a store, BIRD at its side, and one more peer whose routes go to BIRD.
//!
//! ```text
//!  BIRD ──1── router ──8── another peer          BIRD at 2, 3 … where there are several
//!               └─────9──── proxy ── redis-server
//! ```

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    drill::time::now,
    netns::Namespace,
    peers::Bird,
    redis::{PORT, Redis},
    router::Router,
    speaker::{Speaker, SpeakerConfig},
    table::Table,
    topology::{Side, join, v4, v6},
    wait,
};
use holdfast_types::Prefix;

use super::{
    judge::{Capture, Verdict},
    proxy::Proxy,
};

pub(super) const LIMIT: Duration = Duration::from_secs(30);
/// Routes of BIRD.
pub(super) const ROUTES: usize = 2000;
/// Routes that come and go.
const CHANGING: usize = 200;
/// Routes of the other peer.
const OTHERS: u16 = 200;
const OTHER: u8 = 8;
const STORE: u8 = 9;
const HOLD_TIME: u32 = 30;

/// What keeps the sessions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Redis,
    File,
    Memory,
}

/// What is special about the session with a BIRD.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Special {
    /// BIRD dials or the router does.
    Nothing,
    Md5,
    /// Over IPv6; the router waits.
    V6,
    /// The router waits.
    Waits,
    /// The router dials.
    Dials,
}

impl Special {
    fn router(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Md5 => "md5 = \"secret\"",
            Self::V6 => "families = [\"ipv6-unicast\"]\npassive = true",
            Self::Waits => "passive = true",
            Self::Dials => "",
        }
    }

    fn bird(self) -> &'static str {
        match self {
            Self::Nothing | Self::V6 | Self::Waits => "",
            Self::Md5 => "password \"secret\";",
            Self::Dials => "passive yes;",
        }
    }
}

/// A BIRD and what came to it.
pub(super) struct Stock {
    pub(super) bird: Bird,
    pub(super) capture: Capture,
    pub(super) host: Namespace,
    pub(super) address: IpAddr,
    pub(super) special: Special,
    name: String,
}

/// All that runs. What is used by others comes before them.
pub(super) struct Scene {
    pub(super) stocks: Vec<Stock>,
    pub(super) other: Speaker,
    pub(super) router: Router,
    pub(super) proxy: Option<Proxy>,
    pub(super) redis: Option<Redis>,
    _hosts: [Namespace; 3],
    directory: Option<std::path::PathBuf>,
    /// Since when all sessions are gated, in microseconds since 1970.
    pub(super) gated: u64,
}

fn prefix(special: Special, network: u8, number: usize) -> String {
    match special {
        Special::V6 => format!("2001:db8:{network}00:{number:x}::/64"),
        _ => format!("100.{}.{}.0/24", usize::from(network) * 16 + number / 256, number % 256),
    }
}

/// The prefix that only this version has, of the last fifty.
fn sign(special: Special, network: u8, version: usize) -> String {
    prefix(special, network, ROUTES + CHANGING + version % 50)
}

/// Routes of a BIRD; some of them are in every other version only.
pub(super) fn routes(special: Special, network: u8, version: usize) -> String {
    let changing = (ROUTES..ROUTES + CHANGING).filter(|number| number % 2 == version % 2);
    let mut text = String::new();
    for number in (0..ROUTES).chain(changing) {
        let _ = writeln!(text, "route {} blackhole;", prefix(special, network, number));
    }
    let _ = writeln!(text, "route {} blackhole;", sign(special, network, version));
    text
}

impl Scene {
    /// Starts all, and waits until every session is gated.
    pub(super) fn start(kind: Kind, specials: &[Special], more: &str) -> Result<Self> {
        let (host, other_host, store) =
            (Namespace::new("router")?, Namespace::new("other")?, Namespace::new("store")?);
        join(OTHER, &host, &other_host)?;
        join(STORE, &host, &store)?;
        let at = SocketAddr::new(v4(STORE, Side::Second).into(), PORT);
        let mut configuration = format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65000\n[bgp]\nconnect-retry = 1\nhold-time = {HOLD_TIME}\n\
             [[bgp.peer]]\nname = \"other\"\naddress = \"{}\"\nasn = 65008\npassive = true\n\
             families = [\"ipv4-unicast\", \"ipv6-unicast\"]\n\
             import = \"accept-all\"\nexport = \"reject-all\"\n",
            v4(OTHER, Side::Second)
        );
        let (mut redis, mut proxy, mut directory) = (None, None, None);
        configuration += &match kind {
            Kind::Redis => {
                let server = Redis::start(None, &[])?;
                proxy = Some(Proxy::start(&store, at, &server.socket())?);
                redis = Some(server);
                format!("[nonstop.store]\nkind = \"redis\"\naddresses = [\"{at}\"]\n{more}\n")
            }
            Kind::File => {
                let path = std::env::temp_dir().join(format!("{}-store", host.name()));
                std::fs::create_dir_all(&path)?;
                let text =
                    format!("[nonstop.store]\nkind = \"file\"\ndirectory = \"{}\"\n{more}\n", path.display());
                directory = Some(path);
                text
            }
            Kind::Memory => format!("[nonstop.store]\nkind = \"memory\"\n{more}\n"),
        };
        let mut hosts = Vec::new();
        for (special, network) in specials.iter().zip(1..) {
            let peer = Namespace::new(&format!("bird{network}"))?;
            join(network, &host, &peer)?;
            let address: IpAddr = match special {
                Special::V6 => v6(network, Side::Second).into(),
                _ => v4(network, Side::Second).into(),
            };
            let _ = writeln!(
                configuration,
                "[[bgp.peer]]\nname = \"bird{network}\"\naddress = \"{address}\"\nasn = 6500{network}\n\
                 import = \"accept-all\"\nexport = \"accept-all\"\n{}",
                special.router()
            );
            let capture = Capture::start(&peer, &format!("n{network}"))?;
            hosts.push((*special, network, address, peer, capture));
        }
        let router = Router::start(&host, &configuration)?;
        let mut stocks = Vec::new();
        for (special, network, address, host, capture) in hosts {
            let near: IpAddr = match special {
                Special::V6 => v6(network, Side::First).into(),
                _ => v4(network, Side::First).into(),
            };
            let family = if special == Special::V6 { "ipv6" } else { "ipv4" };
            let text = format!(
                "router id 10.0.{network}.2;
                timeformat protocol iso long ms;
                protocol device {{ }}
                protocol static {{ {family};\ninclude \"routes.conf\";\n}}
                protocol bgp holdfast {{
                  debug {{ events, states }};
                  local {address} as 6500{network}; neighbor {near} as 65000;
                  connect delay time 1; connect retry time 1; error wait time 1, 2;
                  hold time {HOLD_TIME}; graceful restart off;
                  {family} {{ import all; export all; }};
                  {}
                }}",
                special.bird()
            );
            let files = [("routes.conf", &*routes(special, network, 0))];
            let bird = Bird::start_with(&host, &text, &files)?;
            let name = format!("bird{network}");
            stocks.push(Stock { bird, capture, host, address, special, name });
        }
        // The sessions with BIRD have the lower numbers.
        for (stock, network) in stocks.iter().zip(1..) {
            router.until_established(&format!("bird{network}"), LIMIT).with_context(|| stock.bird.log())?;
        }
        let other = other_host.run(|| {
            let (near, far) = (v4(OTHER, Side::Second), v4(OTHER, Side::First));
            let mut config = SpeakerConfig::connect(near.into(), far.into(), 65008);
            config.tables = vec![Arc::new(Table::of_24s(7, OTHERS))];
            Speaker::spawn(config)
        })??;
        let mut scene = Self {
            stocks,
            other,
            router,
            proxy,
            redis,
            _hosts: [host, other_host, store],
            directory,
            gated: 0,
        };
        scene.other.wait_established(LIMIT)?;
        scene.settle(0)?;
        scene.until_protected("full", LIMIT)?;
        scene.gated = now();
        Ok(scene)
    }

    pub(super) fn proxy(&self) -> Result<&Proxy> {
        self.proxy.as_ref().context("there is a proxy")
    }

    pub(super) fn redis(&self) -> Result<&Redis> {
        self.redis.as_ref().context("there is a server")
    }

    /// A command of redis-cli.
    pub(super) fn redis_cli(&self, words: &[&str]) -> Result<String> {
        let mut command = std::process::Command::new("redis-cli");
        command.arg("-s").arg(self.redis()?.socket()).args(words);
        holdfast_lab::netns::output(&mut command)
    }

    /// What the replicator says, as text.
    pub(super) fn show(&self) -> Result<String> {
        self.router.cli(&["call", "replicator/replicator.v1/Show"])
    }

    /// Waits until this protects the sessions; when it is "full", until all of them are gated.
    pub(super) fn until_protected(&self, wanted: &str, limit: Duration) -> Result<String> {
        wait::until(&format!("protection {wanted}"), limit, || {
            let shown = self.show().map_err(|error| error.to_string())?;
            let gated = shown.matches("\"gate\":\"gated\"").count() > self.stocks.len();
            let is_it = shown.contains(&format!("protection:txt={wanted}"));
            if is_it && (gated || wanted != "full") { Ok(shown) } else { Err(shown) }
        })
        .with_context(|| self.trouble())
    }

    /// BIRDs change some routes.
    pub(super) fn change(&self, version: usize) -> Result<()> {
        for (stock, network) in self.stocks.iter().zip(1..) {
            stock.bird.reconfigure("routes.conf", &routes(stock.special, network, version))?;
        }
        Ok(())
    }

    /// The other peer changes some routes, which go to the BIRDs.
    pub(super) fn announce(&self, number: u8) {
        self.other.announce(Arc::new(Table::of_24s(number, 50)));
    }

    /// The other peer announces so many routes more.
    pub(super) fn announce_many(&self, routes: u32) {
        let prefix = |number| Prefix::new(Ipv4Addr::from_bits(0x3c00_0000 + number).into(), 32);
        let prefixes = (0..routes).map(|number| prefix(number).expect("a length of IPv4"));
        self.other.announce(Arc::new(Table::plain(prefixes)));
    }

    /// Waits until what the BIRDs have announced, in this version, is in the router.
    pub(super) fn settle(&self, version: usize) -> Result<()> {
        for (stock, network) in self.stocks.iter().zip(1..) {
            let sign = sign(stock.special, network, version);
            wait::until("the last route", LIMIT, || {
                let shown = self.router.cli(&["show", "route", &sign]).map_err(|error| error.to_string())?;
                if shown.contains(&sign) { Ok(()) } else { Err(shown) }
            })
            .with_context(|| format!("{}; {}", stock.bird.log(), self.trouble()))?;
        }
        Ok(())
    }

    /// What went wrong, for who mends it.
    pub(super) fn trouble(&self) -> String {
        let log = self.router.log();
        let about = |line: &&str| ["gate", "replicator"].iter().any(|word| line.contains(word));
        let lines: Vec<_> = log.lines().filter(about).collect();
        format!("{}\n{}\n{}", self.show().unwrap_or_default(), lines.join("\n"), self.router.log_tail())
    }

    /// Waits until the routes of the other peer are at all BIRDs of IPv4.
    pub(super) fn until_told(&self, routes: u64) -> Result<()> {
        for stock in self.stocks.iter().filter(|stock| stock.special != Special::V6) {
            wait::until("routes of the other peer", LIMIT, || {
                let count = stock.bird.count("protocol holdfast").map_err(|error| error.to_string())?;
                if count >= routes { Ok(()) } else { Err(format!("{count} of {routes}")) }
            })
            .with_context(|| self.trouble())?;
        }
        Ok(())
    }

    /// No session was ever lost, and no peer has said a word.
    pub(super) fn ensure_quiet(&self) -> Result<()> {
        for stock in &self.stocks {
            let log = stock.bird.log();
            let sessions = stock.bird.sessions().with_context(|| self.trouble())?;
            ensure!(sessions == 1, "{}: {sessions} sessions: {log}\n{}", stock.name, self.trouble());
            let said = |line: &&str| {
                ["<ERR>", "<WARN>", "<RMT>", "<BUG>", "<AUTH>"].iter().any(|w| line.contains(w))
            };
            ensure!(log.lines().find(said).is_none(), "{}: {log}", stock.name);
            let connection = stock.capture.stream(stock.address)?;
            ensure!((connection.fins, connection.resets) == (0, 0), "{connection:?}");
        }
        Ok(())
    }

    /// The judge's words on all that came to the peers in these times.
    pub(super) fn judge(&self, times: &[(u64, u64)]) -> Result<Vec<Verdict>> {
        // What was seen comes through a pipe.
        std::thread::sleep(Duration::from_millis(200));
        let book = self.proxy()?.book();
        let judge = |stock: &Stock| {
            let connection = stock.capture.stream(stock.address)?;
            let verdict = connection.judge(&book, times, 0)?;
            let mut waits = connection.waits((times[0].0, now()));
            waits.sort_unstable();
            println!(
                "acknowledged after {:?} ms in the middle, {:?} at most",
                waits.get(waits.len() / 2),
                waits.last()
            );
            println!(
                "{}: {} segments judged, up to {} in and {} out; {} batches, {} claims, refused: {:?}",
                stock.name,
                verdict.judged,
                verdict.acknowledged,
                verdict.brought,
                book.confirmed,
                book.claims,
                book.refused
            );
            Ok(verdict)
        };
        self.stocks.iter().map(judge).collect()
    }

    /// Nothing left in these times that the store did not have.
    pub(super) fn ensure_replicated(&self, times: &[(u64, u64)]) -> Result<()> {
        for (verdict, stock) in self.judge(times)?.iter().zip(&self.stocks) {
            ensure!(
                verdict.faults.is_empty(),
                "{}: {:#?} and {} more\n{}",
                stock.name,
                verdict.faults,
                verdict.more,
                self.trouble()
            );
            ensure!(verdict.judged > 0, "{}: nothing came", stock.name);
        }
        Ok(())
    }

    /// Changes routes on both sides for a while.
    pub(super) fn churn(&self, duration: Duration, mut version: usize) -> Result<usize> {
        let start = Instant::now();
        while start.elapsed() < duration {
            version += 1;
            self.change(version)?;
            self.announce(10 + version as u8);
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(version)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// A counter of `TcpExt` of a host.
pub(super) fn counter(host: &Namespace, name: &str) -> Result<u64> {
    let text = holdfast_lab::netns::output(host.command("cat").arg("/proc/net/netstat"))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next().context("names")?, lines.next().context("values")?);
    let found = names.split(' ').zip(values.split(' ')).find(|(found, _)| *found == name);
    Ok(found.context("it is counted")?.1.parse()?)
}
