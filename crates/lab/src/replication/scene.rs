//! The stage: a router with a store, stock routers at its side, and one more peer whose routes go to them.
//!
//! ```text
//!  stock ──1── router ──8── another peer         stock routers at 2, 3 … where there are several
//!                └─────9──── proxy ── redis-server
//! ```

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_types::{Asn, Family, Prefix};

use super::{
    book::Book,
    judge::{Capture, Verdict},
    proxy::Proxy,
    stock::{HOLD_TIME, Special, Stock, name},
};
use crate::{
    drill::{scene::fixed_table, stock, time::now},
    netns::{Namespace, output},
    redis::{PORT, Redis, sentinel::Pair},
    router::{Files, Router},
    speaker::{Speaker, SpeakerConfig},
    table::{AttributeSet, Table},
    topology::{Side, join, v4, v6},
    wait,
};

/// How long anything may take in tests.
pub const LIMIT: Duration = Duration::from_secs(30);
/// Routes of the other peer, beside those of [`Set::routes`].
pub const OTHERS: u16 = 200;
const OTHER: u8 = 8;
const STORE: u8 = 9;

/// What keeps the sessions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// redis-server, behind a proxy.
    Redis,
    /// Files.
    File,
    /// Memory of the router.
    Memory,
}

/// What there is to be.
#[derive(Clone, Debug)]
pub struct Set<'a> {
    /// What keeps the sessions.
    pub kind: Kind,
    /// Which stock routers.
    pub peers: stock::Kind,
    /// A stock router for each.
    pub specials: &'a [Special],
    /// More lines of the section `[router]`.
    pub router: &'a str,
    /// More lines of the section `[nonstop.store]`.
    pub more: &'a str,
    /// More words for redis-server.
    pub options: &'a [&'a str],
    /// Instead of a server of its own: these two, of which the first is preferred.
    pub pair: Option<&'a Pair>,
    /// Files beside the configuration.
    pub files: Files,
    /// Routes of the other peer that stay.
    pub routes: u32,
    /// How long it may take until all is there.
    pub limit: Duration,
    /// The clock of redis-server can be set wrong.
    pub clock: bool,
    /// Seconds after which a silent session with a stock router ends.
    pub hold_time: u32,
}

impl Default for Set<'_> {
    fn default() -> Self {
        Self {
            kind: Kind::Redis,
            peers: stock::Kind::Bird,
            specials: &[Special::Waits],
            router: "",
            more: "",
            options: &[],
            pair: None,
            files: Files::new(),
            routes: 0,
            limit: LIMIT,
            clock: false,
            hold_time: HOLD_TIME,
        }
    }
}

/// All that runs. What is used by others comes before them.
#[derive(Debug)]
pub struct Scene {
    /// The stock routers.
    pub stocks: Vec<Stock>,
    /// The other peer.
    pub other: Speaker,
    /// What came to it.
    pub at_other: Capture,
    /// The router.
    pub router: Router,
    /// Between the router and its store.
    pub proxy: Option<Proxy>,
    /// Between the router and the second of two servers.
    pub second_proxy: Option<Proxy>,
    /// The store.
    pub redis: Option<Redis>,
    /// Where the other peer is.
    pub other_host: Namespace,
    /// Where the router is.
    pub host: Namespace,
    /// Where the proxy is.
    pub store_host: Namespace,
    /// Where the files of a store are: a disk of its own.
    pub directory: Option<PathBuf>,
    limit: Duration,
    routes: u32,
    /// Since when all sessions are gated, in microseconds since 1970.
    pub gated: u64,
}

/// Lines about a peer.
fn peer(name: &str, address: IpAddr, asn: u32, more: &str) -> String {
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {asn}\nimport = \"accept-all\"\n{more}\n"
    )
}

/// The address of the store, or of the proxy in front of it.
pub fn store_address() -> SocketAddr {
    SocketAddr::new(v4(STORE, Side::Second).into(), PORT)
}

impl Scene {
    /// Starts all with BIRDs, and waits until every session is gated.
    ///
    /// # Errors
    /// It does not come about.
    pub fn start(kind: Kind, specials: &[Special], more: &str) -> Result<Self> {
        let mut scene = Self::open(&Set { kind, specials, more, ..Set::default() })?;
        scene.until_gated()?;
        Ok(scene)
    }

    /// Starts all with one BIRD that dials and redis-server, and waits until every session is gated.
    ///
    /// # Errors
    /// It does not come about.
    pub fn start_default() -> Result<Self> {
        Self::start(Kind::Redis, &[Special::Waits], "")
    }

    /// Starts all, and waits until every session is up and every route in the router.
    ///
    /// # Errors
    /// It does not come about.
    pub fn open(set: &Set<'_>) -> Result<Self> {
        let (host, other_host, store_host) =
            (Namespace::new("router")?, Namespace::new("other")?, Namespace::new("store")?);
        join(OTHER, &host, &other_host)?;
        join(STORE, &host, &store_host)?;
        let mut configuration = format!(
            "[router]\nid = \"10.0.0.1\"\nasn = 65000\n{}\n[bgp]\nconnect-retry = 1\n\
             hold-time = {}\n",
            set.router, set.hold_time
        );
        configuration += &peer(
            "other",
            v4(OTHER, Side::Second).into(),
            65008,
            "passive = true\nfamilies = [\"ipv4-unicast\", \"ipv6-unicast\"]\nexport = \"reject-all\"",
        );
        let (mut redis, mut proxy, mut second_proxy, mut directory) = (None, None, None, None);
        configuration += &match set.kind {
            Kind::Redis => {
                let (at, second_at) = (store_address(), SocketAddr::new(store_address().ip(), PORT + 1));
                let addresses = match set.pair {
                    Some(pair) => {
                        let first = Proxy::start(&store_host, at, &pair.first.socket())?;
                        second_proxy = Some(first.beside(&store_host, second_at, &pair.second.socket())?);
                        proxy = Some(first);
                        format!("\"{at}\", \"{second_at}\"")
                    }
                    None => {
                        let server = match set.clock {
                            true => Redis::start_with_clock(set.options)?,
                            false => Redis::start(None, set.options)?,
                        };
                        proxy = Some(Proxy::start(&store_host, at, &server.socket())?);
                        redis = Some(server);
                        format!("\"{at}\"")
                    }
                };
                format!("[nonstop.store]\nkind = \"redis\"\naddresses = [{addresses}]\n{}\n", set.more)
            }
            Kind::File => {
                let path = std::env::temp_dir().join(format!("{}-store", host.name()));
                std::fs::create_dir_all(&path)?;
                // A disk of its own, which somebody else may fill.
                let mut mount = std::process::Command::new("mount");
                output(mount.args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(&path))?;
                let lines = format!("kind = \"file\"\ndirectory = \"{}\"\n{}\n", path.display(), set.more);
                directory = Some(path);
                format!("[nonstop.store]\n{lines}")
            }
            Kind::Memory => format!("[nonstop.store]\nkind = \"memory\"\n{}\n", set.more),
        };
        let mut hosts = Vec::new();
        for (special, network) in set.specials.iter().copied().zip(1..) {
            let stock_host = Namespace::new(&name(network))?;
            join(network, &host, &stock_host)?;
            let address = special.address(network, Side::Second);
            let more = format!("export = \"accept-all\"\n{}", special.router());
            configuration += &peer(&name(network), address, 65000 + u32::from(network), &more);
            let capture = Capture::start(&stock_host, &format!("n{network}"))?;
            hosts.push((special, network, stock_host, capture));
        }
        let at_other = Capture::start(&other_host, &format!("n{OTHER}"))?;
        let router = Router::start_with_files(&host, &configuration, &set.files)?;
        let mut stocks = Vec::new();
        for (special, network, host, capture) in hosts {
            stocks.push(Stock::start(set.peers, special, network, host, capture)?);
        }
        // The sessions with stock routers have the lower numbers.
        for stock in &stocks {
            router.until_established(&stock.name, set.limit).with_context(|| stock.log())?;
        }
        let mut tables = vec![Arc::new(Table::of_24s(7, OTHERS))];
        if set.routes > 0 {
            tables.push(Arc::new(fixed_table(set.routes)));
            tables.push(Arc::new(table_v6(set.routes / 5)));
        }
        let other = other_host.run(|| {
            let (near, far) = (v4(OTHER, Side::Second), v4(OTHER, Side::First));
            let mut config = SpeakerConfig::connect(near.into(), far.into(), 65008);
            config.families = vec![Family::IPV4_UNICAST, Family::IPV6_UNICAST];
            config.next_hop_v6 = v6(OTHER, Side::Second);
            config.tables = tables;
            Speaker::spawn(config)
        })??;
        let scene = Self {
            stocks,
            other,
            at_other,
            router,
            proxy,
            second_proxy,
            redis,
            other_host,
            host,
            store_host,
            directory,
            limit: set.limit,
            routes: set.routes,
            gated: 0,
        };
        scene.other.wait_established(set.limit)?;
        scene.settle(0)?;
        Ok(scene)
    }

    /// Waits until every session is gated, and every route at the stock routers.
    ///
    /// # Errors
    /// It does not come about.
    pub fn until_gated(&mut self) -> Result<()> {
        self.until_told(u64::from(OTHERS))?;
        self.until_protected("full", self.limit)?;
        self.gated = now();
        Ok(())
    }

    /// The proxy.
    ///
    /// # Errors
    /// There is none.
    pub fn proxy(&self) -> Result<&Proxy> {
        self.proxy.as_ref().context("there is a proxy")
    }

    /// The address of the other peer.
    pub fn other_address(&self) -> IpAddr {
        v4(OTHER, Side::Second).into()
    }

    /// What the proxies have read.
    ///
    /// # Errors
    /// There is none.
    pub fn book(&self) -> Result<MutexGuard<'_, Book>> {
        let proxy = self.proxy.as_ref().or(self.second_proxy.as_ref());
        Ok(proxy.context("there is a proxy")?.book())
    }

    /// The server.
    ///
    /// # Errors
    /// There is none.
    pub fn redis(&self) -> Result<&Redis> {
        self.redis.as_ref().context("there is a server")
    }

    /// A command of redis-cli.
    ///
    /// # Errors
    /// It says one.
    pub fn redis_cli(&self, words: &[&str]) -> Result<String> {
        self.redis()?.cli(words)
    }

    /// What the replicator says, as text.
    ///
    /// # Errors
    /// It does not answer.
    pub fn show(&self) -> Result<String> {
        self.router.cli(&["call", "replicator/replicator.v1/Show"])
    }

    /// Waits until this protects the sessions; when it is "full", until all of them are gated.
    ///
    /// # Errors
    /// It does not come about.
    pub fn until_protected(&self, wanted: &str, limit: Duration) -> Result<String> {
        wait::until(&format!("protection {wanted}"), limit, || {
            let shown = self.show().map_err(|error| error.to_string())?;
            let gated = shown.matches("\"gate\":\"gated\"").count() > self.stocks.len();
            let is_it = shown.contains(&format!("protection:txt={wanted}"));
            if is_it && (gated || wanted != "full") { Ok(shown) } else { Err(shown) }
        })
        .with_context(|| self.trouble())
    }

    /// Stock routers change some routes.
    ///
    /// # Errors
    /// One does not take it.
    pub fn change(&self, version: usize) -> Result<()> {
        self.stocks.iter().try_for_each(|stock| stock.change(version))
    }

    /// The other peer announces some routes more, which go to the stock routers.
    pub fn announce(&self, number: u8) {
        self.other.announce(Arc::new(Table::of_24s(number, 50)));
    }

    /// The other peer announces so many routes more.
    pub fn announce_many(&self, routes: u32) {
        let prefix = |number| Prefix::new(Ipv4Addr::from_bits(0x3c00_0000 + number).into(), 32);
        let prefixes = (0..routes).map(|number| prefix(number).expect("a length of IPv4"));
        self.other.announce(Arc::new(Table::plain(prefixes)));
    }

    /// Drops what goes in one direction between the router and its store, or does so no more: to the store, or from it.
    ///
    /// # Errors
    /// There are no rules here.
    pub fn part(&self, to_store: bool, parts: bool) -> Result<()> {
        let (chain, port) = if to_store { ("INPUT", "--dport") } else { ("OUTPUT", "--sport") };
        let action = if parts { "-I" } else { "-D" };
        let port = [port.to_owned(), PORT.to_string()];
        let mut command = self.store_host.command("iptables");
        output(command.args([action, chain, "-p", "tcp"]).args(port).args(["-j", "DROP"]))?;
        Ok(())
    }

    /// Waits until what the stock routers have announced, in this version, is in the router.
    ///
    /// # Errors
    /// It does not come there.
    pub fn settle(&self, version: usize) -> Result<()> {
        for stock in &self.stocks {
            let sign = stock.sign(version);
            wait::until("the last route", self.limit, || {
                let shown = self.router.cli(&["show", "route", &sign]).map_err(|error| error.to_string())?;
                if shown.contains(&sign) { Ok(()) } else { Err(shown) }
            })
            .with_context(|| format!("{}; {}", stock.log(), self.trouble()))?;
        }
        Ok(())
    }

    /// What went wrong, for who mends it.
    pub fn trouble(&self) -> String {
        let log = self.router.log();
        let about = |line: &&str| ["gate", "replicator"].iter().any(|word| line.contains(word));
        let lines: Vec<_> = log.lines().filter(about).collect();
        format!("{}\n{}\n{}", self.show().unwrap_or_default(), lines.join("\n"), self.router.log_tail())
    }

    /// Waits until so many routes of the other peer, and those that stay, are at all stock routers.
    ///
    /// # Errors
    /// They do not come there.
    pub fn until_told(&self, routes: u64) -> Result<()> {
        for stock in &self.stocks {
            let routes = match stock.special {
                Special::V6 => u64::from(self.routes / 5),
                _ => routes + u64::from(self.routes),
            };
            wait::until("routes of the other peer", self.limit, || {
                let count = stock.received().map_err(|error| error.to_string())?;
                if count >= routes { Ok(()) } else { Err(format!("{count} of {routes}")) }
            })
            .with_context(|| self.trouble())?;
        }
        Ok(())
    }

    /// No session was ever lost, and no peer has said a word.
    ///
    /// # Errors
    /// One was, or has.
    pub fn ensure_quiet(&self) -> Result<()> {
        self.stocks.iter().try_for_each(Stock::ensure_quiet).with_context(|| self.trouble())
    }

    /// The judge's words on all that came to the peers in these times.
    ///
    /// # Errors
    /// A session of theirs cannot be found.
    pub fn judge(&self, times: &[(u64, u64)]) -> Result<Vec<Verdict>> {
        // What was seen comes through a pipe.
        std::thread::sleep(Duration::from_millis(200));
        let book = self.book()?;
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
    ///
    /// # Errors
    /// Something has.
    pub fn ensure_replicated(&self, times: &[(u64, u64)]) -> Result<()> {
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

    /// Changes routes on both sides for a while; the last version.
    ///
    /// # Errors
    /// A stock router does not take it.
    pub fn churn(&self, duration: Duration, mut version: usize) -> Result<usize> {
        let start = Instant::now();
        while start.elapsed() < duration {
            version += 1;
            self.change(version)?;
            self.announce(10 + (version % 200) as u8);
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(version)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            let _ = std::process::Command::new("umount").arg("--lazy").arg(directory).status();
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// IPv6 routes of the other peer that stay, ten to a set of attributes.
pub(crate) fn table_v6(count: u32) -> Table {
    let mut table = Table::default();
    for number in 0..count {
        if number % 10 == 0 {
            let as_path = vec![Asn(64512), Asn(100_000 + number)];
            let bytes = AttributesBuilder { as_path, ..AttributesBuilder::new(Origin::Igp) }.build();
            table.sets.push(AttributeSet { bytes });
        }
        let address = Ipv6Addr::from_bits((0x2a00_u128 << 112) + (u128::from(number) << 80));
        let prefix = Prefix::new(address.into(), 48).expect("a length of IPv6");
        table.routes.push((prefix, table.sets.len() as u32 - 1));
    }
    table
}

/// So many IPv4 routes, each with a path of its own.
pub fn table_of_paths(count: u32) -> Table {
    let mut table = Table::default();
    for number in 0..count {
        let as_path = vec![Asn(64512), Asn(100_000 + number)];
        let bytes = AttributesBuilder { as_path, ..AttributesBuilder::new(Origin::Igp) }.build();
        let prefix = Prefix::new(Ipv4Addr::from_bits(0x3c00_0000 + number).into(), 32);
        table.routes.push((prefix.expect("a length of IPv4"), number));
        table.sets.push(AttributeSet { bytes });
    }
    table
}

/// A counter of TCP or IP of a host, by its name in `/proc/net/netstat` or `/proc/net/snmp`.
///
/// # Errors
/// It is not counted.
pub fn counter(host: &Namespace, name: &str) -> Result<u64> {
    let text = output(host.command("cat").args(["/proc/net/netstat", "/proc/net/snmp"]))?;
    let lines: Vec<_> = text.lines().collect();
    let pairs = lines.as_chunks::<2>().0.iter();
    let found = pairs
        .flat_map(|[names, values]| names.split(' ').zip(values.split(' ')))
        .find(|(found, _)| *found == name);
    Ok(found.context("it is counted")?.1.parse()?)
}
