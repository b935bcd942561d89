//! All that runs: a router, maybe a standby, four stock routers, a feeder with a whole table, a store, and packets.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_types::{Family, Prefix};
use rustix::process::Pid;

use super::{
    Kind, Options, Pause, Standby,
    audit::Audit,
    judge::{Judge, Mac, Tally},
    lan::{INTERFACE, Lan, ROUTER_AS, SERVICE, mac, service, v4, v6},
    stock::{HOLD_TIME, ROUTES, Stock, Watch, address, asn},
};
use crate::{
    drill::{
        replication::epoch_in,
        scene::fixed_table,
        time::{micros, now},
    },
    netns::Namespace,
    redis::{PORT, Redis},
    replication::{scene::table_v6, stock::Special},
    router::Router,
    speaker::{Speaker, SpeakerConfig},
    table::Table,
    traffic::Traffic,
    wait,
};

/// For a whole table to be everywhere, or a store to have it.
const LOADING: Duration = Duration::from_secs(180);
/// For the last changes to be everywhere, after whatever was done.
const SETTLING: Duration = Duration::from_secs(60);
/// The stock routers, by number on the LAN.
const STOCKS: [(u8, Special); 4] =
    [(21, Special::Md5), (22, Special::V6), (23, Special::Waits), (24, Special::Dials)];
const FEEDER: u8 = 25;
const STORE: u8 = 30;
const SENDER: u8 = 31;
/// Prefixes of a stock router, and of the feeder for each family, that one step announces, and as many that it withdraws.
const AT_ONCE: u32 = 25;
const FIXED: Ipv4Addr = Ipv4Addr::new(60, 0, 0, 0);

/// Numbers of prefixes that are used once.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// How many were ever announced.
    next: u32,
    /// How many of them were withdrawn: the first ones.
    gone: u32,
    /// Those before this one are at all peers, and may be withdrawn.
    settled: u32,
}

impl Numbers {
    /// Takes the next ones, and as many old ones, of those that are everywhere.
    fn step(&mut self) -> (Vec<u32>, Vec<u32>) {
        let (next, gone) = (self.next, self.gone);
        self.next += AT_ONCE;
        self.gone = (gone + AT_ONCE).min(self.settled);
        ((next..self.next).collect(), (gone..self.gone).collect())
    }

    fn all(&self) -> Vec<u32> {
        (self.gone..self.next).collect()
    }
}

/// All that runs. What is used by others comes before them.
#[derive(Debug)]
pub struct Scene {
    /// The stock routers.
    pub stocks: Vec<Stock>,
    /// The feeder.
    pub feeder: Speaker,
    /// What came to it.
    pub at_feeder: Watch,
    /// Who has the sessions.
    pub router: Router,
    /// Who waits for them.
    pub standby: Option<Router>,
    /// Who has lost them while its processes were stopped, and which these are.
    stopped: Option<Stopped>,
    /// The store.
    pub redis: Redis,
    hosts: Hosts,
    kind: Kind,
    /// Standbys have the routes.
    is_preheated: bool,
    configuration: String,
    _lease: LeaseDirectory,
    /// By stock router, and of the feeder.
    numbers: Vec<Numbers>,
    steps: usize,
    announced: Arc<Table>,
    routes: u32,
}

#[derive(Debug)]
struct Stopped {
    router: Router,
    /// In the order in which they go on.
    pids: Vec<Pid>,
    /// The keeper, too.
    whole: bool,
}

#[derive(Debug)]
struct Hosts {
    /// Where the router runs.
    router: Option<Namespace>,
    /// Where the next one runs; in a drill of the keeper that is the same one.
    other: Option<Namespace>,
    feeder: Namespace,
    sender: Namespace,
    _store: Namespace,
    lan: Lan,
    /// Which of the two numbers of a router's host comes next.
    next: u8,
}

impl Hosts {
    fn new_router(&mut self) -> Result<Namespace> {
        let number = self.next;
        self.next = 3 - number;
        self.lan.host(if number == 1 { "a" } else { "b" }, number)
    }
}

/// The number of a prefix that the feeder uses once.
fn number_of(prefix: Prefix) -> Option<u32> {
    match prefix {
        Prefix::V4(prefix) if prefix.address().octets()[0] == 119 => {
            Some(prefix.address().to_bits() & 0xff_ffff)
        }
        Prefix::V6(prefix) => {
            let [0x2a10, 0, high, low, ..] = prefix.address().segments() else { return None };
            Some(u32::from(high) << 16 | u32::from(low))
        }
        Prefix::V4(_) => None,
    }
}

fn feeder_prefixes(number: u32) -> [Prefix; 2] {
    let v6 = Ipv6Addr::new(0x2a10, 0, (number >> 16) as u16, number as u16, 0, 0, 0, 0);
    let v6 = Prefix::new(v6.into(), 64).expect("a length of IPv6");
    [Prefix::host(Ipv4Addr::from_bits(119 << 24 | number).into()), v6]
}

fn peer(name: &str, special: Special, number: u8, more: &str) -> String {
    let (address, local) = (address(special, number), service(special == Special::V6));
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nlocal-address = \"{local}\"\nasn = {}\n\
         import = \"accept-all\"\nexport = \"accept-all\"\n{more}\n",
        asn(number)
    )
}

fn configuration(lease: &str, standby: Standby) -> String {
    let standby = match standby {
        Standby::None | Standby::Cold => "cold",
        Standby::Preheated => "preheated",
    };
    let mut text = format!(
        "[router]\nid = \"{}\"\nasn = {ROUTER_AS}\n[log]\nformat = \"json\"\n\
         [nonstop]\nstandby = \"{standby}\"\n\
         [[nonstop.address]]\naddress = \"{v4}/24\"\ninterface = \"{INTERFACE}\"\n\
         [[nonstop.address]]\naddress = \"{v6}/64\"\ninterface = \"{INTERFACE}\"\n[nonstop.store]\nkind = \"redis\"\naddresses = [\"{}:{PORT}\"]\nlease-directory = \"{lease}\"\n\
         [bgp]\nconnect-retry = 1\nhold-time = {HOLD_TIME}\n",
        v4(SERVICE),
        v4(STORE),
        v4 = service(false),
        v6 = service(true)
    );
    for (number, special) in STOCKS {
        text += &peer(&format!("stock{number}"), special, number, special.router());
    }
    text += &peer(
        "feeder",
        Special::Waits,
        FEEDER,
        &format!(
            "passive = true\nfamilies = [\"ipv4-unicast\", \"ipv6-unicast\"]\nnext-hop-ipv6 = \"{}\"",
            service(true)
        ),
    );
    text
}

impl Scene {
    /// Starts all, and waits until every route is everywhere and every session protected.
    ///
    /// # Errors
    /// It does not come about.
    pub fn start(kind: Kind, options: &Options) -> Result<Self> {
        let lan = Lan::new()?;
        let store = lan.host("store", STORE)?;
        let redis = Redis::start(Some(&store), &[])?;
        let (feeder_host, sender) = (lan.host("feeder", FEEDER)?, lan.host("sender", SENDER)?);
        sender.ip(&["route", "add", "default", "via", &v4(SERVICE).to_string()])?;
        let target = destination(options.routes);
        feeder_host.ip(&["address", "add", &format!("{target}/32"), "dev", "lo"])?;
        let mut hosts =
            Hosts { router: None, other: None, feeder: feeder_host, sender, _store: store, lan, next: 1 };
        let host = hosts.new_router()?;
        let lease = std::env::temp_dir().join(format!("holdfast-lab-{}-lease", std::process::id()));
        std::fs::create_dir_all(&lease)?;
        let lease = LeaseDirectory(lease);
        let configuration = configuration(lease.0.to_str().context("a path that is text")?, options.standby);
        let at_feeder = Watch::start(&hosts.feeder, service(false), number_of)?;
        let router = Router::launch(&host, &configuration, &[])?;
        router.wait_running()?;
        hosts.router = Some(host);
        let mut stocks = Vec::new();
        for (number, special) in STOCKS {
            let host = hosts.lan.host(&format!("stock{number}"), number)?;
            let stock = Stock::start(options.peer, special, number, host, number_of)?;
            // The sessions with stock routers have the lower numbers.
            router.until_established(&stock.name, LOADING).with_context(|| stock.log())?;
            stocks.push(stock);
        }
        let tables = vec![Arc::new(fixed_table(options.routes)), Arc::new(table_v6(options.routes / 5))];
        let feeder = hosts.feeder.run(|| {
            let mut config = SpeakerConfig::connect(v4(FEEDER).into(), service(false), asn(FEEDER));
            config.families = vec![Family::IPV4_UNICAST, Family::IPV6_UNICAST];
            config.next_hop_v6 = v6(FEEDER);
            config.tables = tables;
            Speaker::spawn(config)
        })??;
        let scene = Self {
            numbers: vec![Numbers::default(); stocks.len() + 1],
            stocks,
            feeder,
            at_feeder,
            router,
            standby: None,
            stopped: None,
            redis,
            hosts,
            kind,
            is_preheated: options.standby == Standby::Preheated,
            configuration,
            _lease: lease,
            steps: 0,
            announced: Arc::default(),
            routes: options.routes,
        };
        scene.until_loaded().with_context(|| scene.router.log_tail())?;
        scene.until_protected()?;
        Ok(scene)
    }

    fn until_loaded(&self) -> Result<()> {
        let fed = |is_v6: bool| if is_v6 { self.routes / 5 } else { self.routes };
        wait::until("all routes at all peers", LOADING, || {
            let mut said = Vec::new();
            for (at, is_v6) in self.receivers().into_iter().enumerate() {
                let of_stocks =
                    self.senders(at).filter(|from| *from < self.stocks.len()).count() as u32 * ROUTES;
                let expected = of_stocks + is_v6.map_or(0, fed);
                let held = self.judge(at).told.prefixes.len();
                if held < expected as usize {
                    said.push(format!("{held} of {expected} at {}", self.name(at)));
                }
            }
            if said.is_empty() { Ok(()) } else { Err(said.join(", ")) }
        })
    }

    /// All who are told something: whether it is IPv6, or `None` for both families.
    fn receivers(&self) -> Vec<Option<bool>> {
        let stocks = self.stocks.iter().map(|stock| Some(stock.special == Special::V6));
        stocks.chain([None]).collect()
    }

    /// Whose routes go to a receiver.
    fn senders(&self, to: usize) -> impl Iterator<Item = usize> {
        let all = self.receivers();
        (0..all.len()).filter(move |from| {
            *from != to && (all[to].is_none() || all[*from].is_none() || all[*from] == all[to])
        })
    }

    /// The judge of a peer: the stock routers', then the feeder's.
    pub fn judge(&self, at: usize) -> MutexGuard<'_, Judge> {
        self.stocks.get(at).map_or_else(|| self.at_feeder.judge(), Stock::judge)
    }

    /// How many judges there are.
    pub fn judges(&self) -> usize {
        self.stocks.len() + 1
    }

    /// The name of a peer.
    pub fn name(&self, at: usize) -> &str {
        self.stocks.get(at).map_or("feeder", |stock| &stock.name)
    }

    /// One stock router and the feeder announce some prefixes, and withdraw others that are everywhere.
    ///
    /// # Errors
    /// The stock router does not take it.
    pub fn step(&mut self) -> Result<()> {
        let at = self.steps % self.stocks.len();
        self.steps += 1;
        let (new, old) = self.numbers[at].step();
        let all = self.numbers[at].all();
        self.stocks[at].change(&all, &new, &old)?;
        let last = self.numbers.len() - 1;
        self.numbers[last].step();
        let all = self.numbers[last].all();
        let new = Arc::new(Table::plain(all.into_iter().flat_map(feeder_prefixes)));
        let old = std::mem::replace(&mut self.announced, Arc::clone(&new));
        self.feeder.replace(old, new);
        Ok(())
    }

    /// The number that the feeder's next prefix will have.
    pub fn number(&self) -> u32 {
        self.numbers[self.stocks.len()].next
    }

    /// Waits until the last changes are everywhere.
    ///
    /// # Errors
    /// They do not come.
    pub fn settle(&mut self) -> Result<()> {
        let last = self.stocks.len();
        wait::until("the last changes at all peers", SETTLING, || {
            let mut said = Vec::new();
            for (at, is_v6) in self.receivers().into_iter().enumerate() {
                let mut expected = (0, 0);
                for from in self.senders(at) {
                    // The feeder has two prefixes for each number.
                    let times = if from == last && is_v6.is_none() { 2 } else { 1 };
                    expected.0 += u64::from(self.numbers[from].next) * times;
                    expected.1 += u64::from(self.numbers[from].gone) * times;
                }
                let told = self.judge(at).told.once;
                if told.0 < expected.0 || told.1 < expected.1 {
                    said.push(format!("{told:?} of {expected:?} at {}", self.name(at)));
                }
            }
            if said.is_empty() { Ok(()) } else { Err(said.join(", ")) }
        })?;
        for numbers in &mut self.numbers {
            numbers.settled = numbers.next;
        }
        Ok(())
    }

    /// Waits until the store has every session.
    ///
    /// # Errors
    /// It does not.
    pub fn until_protected(&self) -> Result<()> {
        wait::until("protection by the store", LOADING, || {
            let shown = self.show().map_err(|error| error.to_string())?;
            let gated = shown.matches("\"gate\":\"gated\"").count();
            let is_it = shown.contains("protection:txt=full") && gated == self.judges();
            if is_it { Ok(()) } else { Err(shown) }
        })
        .with_context(|| self.router.log_tail())
    }

    fn show(&self) -> Result<String> {
        self.router.cli(&["call", "replicator/replicator.v1/Show"])
    }

    /// How many routers have had the lease.
    ///
    /// # Errors
    /// The router does not say.
    pub fn epoch(&self) -> Result<u64> {
        epoch_in(&self.show()?)
    }

    /// Packets through the router.
    ///
    /// # Errors
    /// The first one does not arrive.
    pub fn packets(&self) -> Result<Traffic> {
        let to = SocketAddr::new(destination(self.routes).into(), 9999);
        Traffic::start(&self.hosts.sender, &self.hosts.feeder, to)
    }

    /// Has a standby wait.
    ///
    /// # Errors
    /// It does not run.
    pub fn prepare(&mut self) -> Result<()> {
        if let (Some(standby), Some(host)) = (&self.standby, &self.hosts.other) {
            // It has been stopped, and has lost the sessions.
            return if self.is_preheated { self.until_preheated(standby, host) } else { Ok(()) };
        }
        if self.kind == Kind::Container {
            self.hosts.other = Some(self.hosts.new_router()?);
        }
        let host = self.hosts.other.as_ref().or(self.hosts.router.as_ref()).context("a host")?;
        let standby = self.router.standby(host)?;
        if self.is_preheated {
            self.until_preheated(&standby, host).with_context(|| standby.log_tail())?;
        }
        self.standby = Some(standby);
        Ok(())
    }

    /// Waits until a standby has the routes of every session.
    fn until_preheated(&self, standby: &Router, host: &Namespace) -> Result<()> {
        wait::until("the routes at the standby", LOADING, || {
            let shown = standby.cli(&["call", "replicator/replicator.v1/Show"]);
            let shown = shown.map_err(|error| error.to_string())?;
            let follows = shown.contains("preheated:txt=following");
            let has_all = shown.contains(&format!("stand_ins:u32={}", self.judges()));
            if follows && has_all { Ok(()) } else { Err(shown) }
        })?;
        wait::until("the routes in its kernel", LOADING, || {
            let routes = crate::kernel::routes(host, false).map_err(|error| error.to_string())?.len();
            if routes >= self.routes as usize { Ok(()) } else { Err(format!("{routes} routes")) }
        })
    }

    /// Kills the router, with its host if that is what the drill is about, and has the next one take over. When that
    /// was.
    ///
    /// # Errors
    /// Processes or hosts cannot be made.
    pub fn fail(&mut self, keeper_only: bool) -> Result<u64> {
        let others: Vec<Pid> = if keeper_only { Vec::new() } else { self.router.pids()? };
        // What the next one needs is made before, where it is not a part of the takeover.
        if self.standby.is_none() && self.kind == Kind::Container {
            self.hosts.other = Some(self.hosts.new_router()?);
        }
        let host = self.hosts.router.as_ref().context("a host")?;
        let dead: Option<Mac> = if self.kind == Kind::Container { Some(mac(host)?) } else { None };
        let at = now();
        self.router.kill_all(&others)?;
        if self.kind == Kind::Container {
            host.ip(&["link", "set", INTERFACE, "down"])?;
            self.hosts.router = self.hosts.other.take();
        }
        let number = self.number();
        for judge in 0..self.judges() {
            self.judge(judge).failed(at, number, dead);
        }
        let host = self.hosts.router.as_ref().context("a host")?;
        self.router = match self.standby.take() {
            Some(standby) => standby,
            None => Router::launch(host, &self.configuration, &[])?,
        };
        Ok(at)
    }

    /// Stops processes of the router, and has the standby take over. When that was.
    ///
    /// # Errors
    /// There is no standby, or no such process.
    pub fn pause(&mut self, pause: Pause) -> Result<u64> {
        let pids = match pause {
            Pause::All => self.router.pids()?,
            Pause::Gate => vec![self.router.pid("gate")?, self.router.pid("replicator")?],
            Pause::Replicator => vec![self.router.pid("replicator")?],
        };
        let whole = pause == Pause::All;
        let stopped = mac(self.hosts.router.as_ref().context("a host")?)?;
        let at = now();
        self.router.pause(&pids, whole)?;
        let number = self.number();
        for judge in 0..self.judges() {
            self.judge(judge).failed(at, number, Some(stopped));
        }
        let next = self.standby.take().context("a standby")?;
        std::mem::swap(&mut self.hosts.router, &mut self.hosts.other);
        let router = std::mem::replace(&mut self.router, next);
        self.stopped = Some(Stopped { router, pids, whole });
        Ok(at)
    }

    /// What was stopped goes on.
    ///
    /// # Errors
    /// It is not there any more.
    pub fn resume(&self) -> Result<()> {
        let Stopped { router, pids, whole } = self.stopped.as_ref().context("a router that was stopped")?;
        for pid in pids {
            router.resume(*pid, *whole)?;
            // Each one acts before the next one is there to tell it something.
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Waits until the router that was stopped has seen that it has lost the sessions.
    ///
    /// # Errors
    /// It does not.
    pub fn until_fenced(&self, limit: Duration) -> Result<()> {
        let router = &self.stopped.as_ref().context("a router that was stopped")?.router;
        router.until_role("fenced", limit).with_context(|| router.log_tail())
    }

    /// The operator makes the router that was stopped a standby.
    ///
    /// # Errors
    /// It does not become one.
    pub fn reset(&mut self) -> Result<()> {
        let Stopped { router, .. } = self.stopped.take().context("a router that was stopped")?;
        router.cli(&["takeover", "--reset"])?;
        router.until_waiting()?;
        self.standby = Some(router);
        Ok(())
    }

    /// When the router first logged an event, in microseconds since 1970, and behind a time.
    pub fn logged(&self, event: &str, after: u64) -> Option<u64> {
        self.router.log().lines().find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            let at = micros(line["timestamp"].as_str()?)?;
            (line["event"] == event && at >= after).then_some(at)
        })
    }

    /// Compares what every peer has sent with what the others were told. Nothing may be under way.
    pub fn audit(&self) -> Vec<(String, Audit)> {
        let sent: Vec<Tally> = (0..self.judges()).map(|at| self.judge(at).sent.clone()).collect();
        let one = |(at, is_v6): (usize, Option<bool>)| {
            let sent: Vec<&Tally> = self.senders(at).map(|from| &sent[from]).collect();
            let is_wanted =
                |prefix: &Prefix| is_v6.is_none_or(|is_v6| is_v6 == matches!(prefix, Prefix::V6(_)));
            let mut audit = Audit::of(&self.judge(at).told, &sent, is_wanted);
            let planned = u64::from(self.numbers[at].next) * if at == self.stocks.len() { 2 } else { 1 };
            let seen = self.judge(at).sent.once.0;
            if seen != planned {
                audit
                    .findings
                    .push(format!("it has announced {seen} prefixes of {planned} that it uses once"));
            }
            (self.name(at).to_owned(), audit)
        };
        self.receivers().into_iter().enumerate().map(one).collect()
    }

    /// Routes that were ever announced and are not withdrawn are in the kernel: how many are not, or are there and should not.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn differences(&self) -> Result<usize> {
        let host = self.hosts.router.as_ref().context("a host")?;
        let kernel = crate::kernel::routes(host, false)?;
        let held = u64::from(self.routes)
            + self
                .numbers
                .iter()
                .zip(self.receivers())
                .map(|(numbers, is_v6)| match is_v6 {
                    Some(true) => 0,
                    Some(false) => u64::from(ROUTES + numbers.next - numbers.gone),
                    None => u64::from(numbers.next - numbers.gone),
                })
                .sum::<u64>();
        Ok(kernel.len().abs_diff(held as usize))
    }

    /// Every peer has one session, and has said nothing.
    ///
    /// # Errors
    /// A session has ended.
    pub fn ensure_quiet(&self) -> Result<()> {
        self.stocks.iter().try_for_each(Stock::ensure_quiet)?;
        ensure!(self.feeder.status().sessions == 1, "feeder: {:?}", self.feeder.status().ended);
        Ok(())
    }
}

/// Where packets go to: the last route that a new table has.
fn destination(routes: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIXED.to_bits() + ((routes - 1) << 8) + 1)
}

/// Where the lock file of all routers is; removed when dropped.
#[derive(Debug)]
struct LeaseDirectory(PathBuf);

impl Drop for LeaseDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_prefix_is_read_off_it() {
        for number in [0, 25, 70_000] {
            assert_eq!(feeder_prefixes(number).map(number_of), [Some(number); 2]);
        }
        assert_eq!(number_of(Prefix::host([171, 0, 0, 1].into())), None);
    }

    #[test]
    fn only_what_is_everywhere_is_withdrawn_and_once() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.step(), ((0..25).collect(), vec![]));
        numbers.settled = 20;
        assert_eq!(numbers.step(), ((25..50).collect(), (0..20).collect()));
        assert_eq!(numbers.step().1, Vec::<u32>::new());
        assert_eq!(numbers.all(), (20..75).collect::<Vec<_>>());
    }
}
