//! Deaths of all that verifies and signs paths, while their signer changes them all the time.
//!
//! ```text
//!  BIRD ──1── Holdfast ──2── signer, AS 65002: signed routes
//!     │         │ │             │
//!  tcpdump    3 │ │ 4        tcpdump
//!           cache │
//!                taker, AS 65004: is told of all routes with signatures, tcpdump
//! ```
//!
//! The peer's routes are used only where they are valid (`bgpsec-validation = "require"`), so a route that loses its state is
//! a withdrawal at BIRD, and one that should not have it an announcement. Each UPDATE there is looked for in what the signer has
//! sent. The AS at the end of a path is its serial number: one key has the names of all of them.
//!
//! The taker ([`taker`]) must be told of each change once, with signatures that are good. Whoever dies, what did not change is not
//! sent to it again, be it with the same signature or with another.

mod taker;

use std::{
    collections::BTreeSet,
    fmt,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use holdfast_bgp_wire::{MAX_LEN, NextHop, UpdateEncoder};
use holdfast_bgpsec_wire::Segment;
use holdfast_path_validation::{P256Signer, SUITE_P256, Signer};
use holdfast_types::{Asn, IpPrefix, Ipv4Prefix, Prefix, RouterKey};
use serde::Serialize;
use serde_json::Value;

use super::{
    audit::{Audit, audit},
    churn::{Churn, Churner, Ranges, SERIALS, prefixes},
    judge::{Counts, Judge},
    process::flaps,
    record::Record,
    report::Wire,
    scene::told,
    stock::{self, ROUTER_AS, STOCK_AS, Stock},
    time::now,
    watch::Watch,
};
use crate::{
    router::Router,
    signed::{Hop, SpkiCache, path, path_of, private_key, segment, signer, update},
    speaker::Speaker,
    table::random::Random,
    topology::{Side, Star, v4},
    wait,
};
use taker::Taker;

const SIGNER: u8 = 2;
const SIGNER_AS: u32 = 65_002;
const CACHE: u8 = 3;
const CACHE_PORT: u16 = 8282;
/// The file of the router's private key.
const OWN_KEY: &str = "own.pem";
/// The ASs behind the signer.
const BEHIND: [u32; 2] = [64_512, 64_513];

const STOCK_FIXED: Ipv4Addr = Ipv4Addr::new(20, 0, 0, 0);
const STOCK_ROUTES: u32 = 100;
const STOCK_UNCHANGED: Ranges =
    Ranges { moving: Ipv4Addr::new(100, 64, 0, 0), once: Ipv4Addr::new(118, 0, 0, 0) };
const FIXED: Ipv4Addr = Ipv4Addr::new(60, 0, 0, 0);
/// Routes with a bad signature: never used, and never anything else.
const BAD: Ipv4Addr = Ipv4Addr::new(61, 0, 0, 0);
const BAD_ROUTES: u32 = 5;
const CHANGING: Ranges = Ranges { moving: Ipv4Addr::new(100, 96, 0, 0), once: Ipv4Addr::new(119, 0, 0, 0) };
/// Between two changes.
const PACE: Duration = Duration::from_millis(60);
/// Serial numbers that there are keys for: changes of half an hour.
const MOST_SERIALS: u32 = 60_000;

const LOADING: Duration = Duration::from_secs(120);
const SETTLING: Duration = Duration::from_secs(60);
/// Between two kills at most, once all is as it should be.
const LONGEST_PAUSE_MS: u32 = 500;
/// Kills of one process in a row after which the router would wait before each start, if they came without a pause: it does from
/// 30 in a minute on.
const BURST: u32 = 25;
/// From one kill to the next where there are more.
const SPACING: Duration = Duration::from_millis(2100);
/// Between two looks at the router: to ask it is work.
const LOOKING: Duration = Duration::from_millis(50);
/// Of all signatures, how many may be verified again after a death: one in so many.
const AGAIN: u64 = 100;

/// What a drill is.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Signed routes that do not change, beside those that do.
    #[arg(long, default_value_t = 1000)]
    pub routes: u32,
    /// How often each of `bgp`, `pathsec`, `rpki` and the cache is killed.
    #[arg(long, default_value_t = 3)]
    pub kills: u32,
    /// Another seed gives other moments and other changes.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds after which no further kill is made.
    #[arg(long, default_value_t = 1500)]
    pub limit: u64,
    /// The judge is judged: the key of an AS behind the signer is taken away before the first death, so that all routes
    /// lose their state. The drill must fail.
    #[arg(long)]
    pub take_key: bool,
    /// The report as JSON, in the last line.
    #[arg(long)]
    pub json: bool,
}

/// Who dies.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Victim {
    /// The process that has the sessions and the routes.
    Bgp,
    /// The process that verifies.
    Pathsec,
    /// The process that asks the cache.
    Rpki,
    /// The cache, which is no process of the router.
    Cache,
}

impl Victim {
    /// In the order of their series: what a `pathsec` remembers, a later `bgp` need not have verified.
    const ALL: [Self; 4] = [Self::Bgp, Self::Rpki, Self::Cache, Self::Pathsec];

    fn name(self) -> &'static str {
        match self {
            Self::Bgp => "bgp",
            Self::Pathsec => "pathsec",
            Self::Rpki => "rpki",
            Self::Cache => "cache",
        }
    }
}

/// The deaths of one of them.
#[derive(Clone, Debug, Serialize)]
pub struct Deaths {
    /// Whose.
    pub of: Victim,
    /// How many.
    pub deaths: u32,
    /// Signatures that were verified again: after the worst death, and together.
    pub most_again: u64,
    /// The same of all deaths.
    pub again: u64,
    /// From the death until all keys were there and a later change was at BIRD: the longest, in seconds.
    pub slowest_s: f64,
}

/// What a drill found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Signed routes that stayed.
    pub routes: u32,
    /// Signatures of those.
    pub signatures: u64,
    /// Seed of all chance.
    pub seed: u64,
    /// By who died.
    pub deaths: Vec<Deaths>,
    /// Signatures that were verified again after one more death of `bgp`, in front of a `pathsec` that remembers little.
    pub after_pathsec: u64,
    /// Signed routes that were announced meanwhile.
    pub changes: u64,
    /// How often BIRD's session went down, by its own log, the signer's, and the taker's.
    pub flaps: [u64; 3],
    /// What was counted on the wire, of these sessions.
    #[serde(flatten)]
    pub wire: Wire,
    /// What became of each UPDATE: of the signer to BIRD, of BIRD to the signer, and of either to the taker.
    pub passages: [Audit; 4],
    /// Announcements to the taker with signatures that are good.
    pub signed: u64,
    /// What is not as it must be.
    pub faults: Vec<String>,
    /// Nothing is.
    pub ok: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} signed routes ({} signatures), {} changes",
            self.routes, self.signatures, self.changes
        )?;
        for Deaths { of, deaths, most_again, again, slowest_s } in &self.deaths {
            writeln!(
                f,
                "{:>8}: {deaths} deaths, {again} signatures verified again, {most_again} after the worst, \
                 slowest {slowest_s:.2} s",
                of.name()
            )?;
        }
        writeln!(f, "     bgp: once more after these, {} signatures verified again", self.after_pathsec)?;
        let sum = |count: fn(&Audit) -> u64| self.passages.iter().map(count).sum::<u64>();
        let [lost, doubled] = [sum(|audit| audit.lost), sum(|audit| audit.doubled)];
        let corrupted = sum(|audit| audit.corrupted);
        writeln!(
            f,
            "sessions down: {:?}; UPDATEs to all: {}, {} well signed; lost {lost}, doubled {doubled}, unexplained \
             {corrupted}",
            self.flaps, self.wire.updates, self.signed
        )?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "  {fault}"))?;
        write!(f, "{}", if self.ok { "ok" } else { "FAILED" })
    }
}

/// Routers that sign.
struct Keys {
    behind: [P256Signer; 2],
    own: P256Signer,
    /// What caches say of the router's.
    router: RouterKey,
    /// Of all serial numbers.
    serials: P256Signer,
}

impl Keys {
    fn new(router: RouterKey) -> Result<Self> {
        let [one, other] = BEHIND.map(signer);
        Ok(Self { behind: [one?, other?], own: signer(SIGNER_AS)?, router, serials: signer(SERIALS)? })
    }

    fn public(&self) -> Vec<RouterKey> {
        let mut keys: Vec<_> = self.behind.iter().chain([&self.own]).map(P256Signer::router_key).collect();
        keys.push(self.router.clone());
        let of_serials = self.serials.router_key();
        keys.extend(
            (1..=MOST_SERIALS).map(|serial| RouterKey { asn: Asn(SERIALS + serial), ..of_serials.clone() }),
        );
        keys
    }

    /// The UPDATE of a route that stays.
    fn fixed(&self, prefix: Prefix, is_good: bool) -> Result<Vec<u8>> {
        let routers = [&self.behind[0], &self.behind[1], &self.own];
        let spoil = |hop: usize, mut signature: Vec<u8>| {
            if hop + 1 == routers.len()
                && let Some(last) = signature.last_mut()
            {
                *last ^= 1;
            }
            signature
        };
        let value = match is_good {
            true => path(&routers, Asn(ROUTER_AS), prefix)?,
            false => path_of(&routers.map(Hop::of), &[SUITE_P256], Asn(ROUTER_AS), prefix, &spoil)?,
        };
        update(&value, next_hop(), prefix)
    }

    /// The UPDATE of a change.
    fn change(&self, prefix: Prefix, serial: Option<u32>) -> Result<Vec<u8>> {
        let Some(serial) = serial else {
            let mut octets = Vec::new();
            UpdateEncoder::new(MAX_LEN).withdraw(Ipv4Prefix::from_prefix(prefix), &mut octets);
            return Ok(octets);
        };
        ensure!(serial <= MOST_SERIALS, "there are no more keys");
        let origin = Segment { asn: Asn(SERIALS + serial), ..segment(self.serials.asn()) };
        let hops = [Hop { segment: origin, ..Hop::of(&self.serials) }, Hop::of(&self.own)];
        let value = path_of(&hops, &[SUITE_P256], Asn(ROUTER_AS), prefix, &|_, signature| signature)?;
        update(&value, next_hop(), prefix)
    }
}

/// Signatures of a route that changes.
const SIGNATURES: u64 = 2;

fn next_hop() -> NextHop {
    NextHop::V4(v4(SIGNER, Side::Second))
}

/// Everything that runs.
struct Scene<'a> {
    churner: Churner,
    /// Signed routes that were announced and have a serial number.
    announced: Arc<AtomicU64>,
    stock: Stock,
    signer: Arc<Speaker>,
    taker: Taker,
    router: Router,
    cache: SpkiCache,
    at_stock: Watch,
    at_signer: Watch,
    keys: Arc<Keys>,
    public: usize,
    star: &'a Star,
}

/// Runs a drill; prints how it goes on.
///
/// # Errors
/// The stage could not be set, or something outside the router failed. What the router does wrong is in the report.
pub fn bgpsec(options: &Options) -> Result<Report> {
    let star = Star::new(4)?;
    println!("signing {} routes", options.routes);
    let mut scene = Scene::start(&star, options).context("setting the stage")?;
    let before = (now(), scene.counted());
    if options.take_key {
        let keys: Vec<_> = scene.keys.public().into_iter().filter(|key| key.asn.0 != BEHIND[0]).collect();
        scene.cache.serve(&keys)?;
        scene.public -= 1;
    }
    scene.churner.resume();
    let mut deaths = Victim::ALL.map(|of| Deaths { of, deaths: 0, most_again: 0, again: 0, slowest_s: 0.0 });
    let mut faults = Vec::new();
    let killed = scene.kill_all(options, &mut deaths, &mut faults);
    let after_pathsec = killed.and_then(|again| scene.settle().map(|()| again)).unwrap_or_else(|error| {
        faults.push(format!("{error:#}"));
        eprintln!("{}", scene.router.log_tail());
        0
    });
    scene.churner.pause();
    Ok(Report { after_pathsec, ..scene.report(options, deaths, before, faults) })
}

impl<'a> Scene<'a> {
    fn start(star: &'a Star, options: &Options) -> Result<Self> {
        let watch =
            |network| Watch::start(star.neighbor(network), &format!("n{network}"), v4(network, Side::First));
        let (at_stock, at_signer) = (watch(stock::NETWORK)?, watch(SIGNER)?);
        let (private, own) = private_key(ROUTER_AS)?;
        let keys = Arc::new(Keys::new(own.router_key())?);
        let public = keys.public();
        let listen = (v4(CACHE, Side::Second), CACHE_PORT).into();
        let cache = SpkiCache::start(star.neighbor(CACHE), listen, &public)?;
        let files = [(OWN_KEY.to_owned(), private)].into();
        let router = Router::start_with_files(&star.router, &configuration(), &files)?;
        let taker = Taker::start(star)?;
        let unchanged = Churn::new(STOCK_UNCHANGED, options.seed ^ 1);
        let host = star.neighbor(stock::NETWORK);
        let stock = Stock::start(stock::Kind::Bird, host, STOCK_FIXED, STOCK_ROUTES, &unchanged)?;
        let signer = Arc::new(star.speaker(SIGNER, SIGNER_AS, |config| config.signs = true)?);
        signer.wait_established(LOADING)?;
        for prefix in prefixes(FIXED, options.routes) {
            signer.send_raw(keys.fixed(prefix, true)?);
        }
        for prefix in prefixes(BAD, BAD_ROUTES) {
            signer.send_raw(keys.fixed(prefix, false)?);
        }
        let churn = Churn::new(CHANGING, options.seed ^ 2);
        for (prefix, serial) in churn.now() {
            signer.send_raw(keys.change(*prefix, *serial)?);
        }
        signer.end_of_rib();
        let announced = Arc::<AtomicU64>::default();
        let (theirs, signs, counted) = (Arc::clone(&signer), Arc::clone(&keys), Arc::clone(&announced));
        let moving = churn.now().len();
        let (told_stock, told_taker) = (told(&at_stock), told(&taker.watch));
        let has_arrived = move |prefix, serial| told_stock(prefix, serial) && told_taker(prefix, serial);
        let churner = Churner::start(churn, PACE, has_arrived, move |_, changes| {
            for (prefix, serial) in changes {
                theirs.send_raw(signs.change(*prefix, *serial)?);
                counted.fetch_add(u64::from(serial.is_some()), Ordering::SeqCst);
            }
            Ok(())
        })?;
        let public = public.len();
        let scene = Self {
            churner,
            announced,
            stock,
            signer,
            taker,
            router,
            cache,
            at_stock,
            at_signer,
            keys,
            public,
            star,
        };
        let (of_signer, of_stock) =
            (options.routes as usize + moving, STOCK_ROUTES as usize + super::churn::MOVING as usize);
        let wanted = [of_signer, of_stock, of_signer + of_stock];
        wait::until("all routes at all peers", LOADING, || {
            let found = scene.watches().map(|(_, watch)| watch.ask(Judge::held));
            if found == wanted { Ok(()) } else { Err(format!("{found:?} of {wanted:?}")) }
        })
        .with_context(|| scene.router.log_tail())?;
        scene.wait_quiet()?;
        Ok(scene)
    }

    fn kill_all(&mut self, options: &Options, all: &mut [Deaths], faults: &mut Vec<String>) -> Result<u64> {
        let (mut random, start) = (Random::new(options.seed), Instant::now());
        let most = u64::from(options.routes) * 3 / AGAIN;
        for deaths in &mut *all {
            let of = deaths.of;
            for number in 1..=options.kills {
                let next = Instant::now() + SPACING;
                ensure!(
                    start.elapsed() < Duration::from_secs(options.limit),
                    "no more than {number} in time"
                );
                let (again, took) = self
                    .kill(of, &mut random)
                    .with_context(|| format!("number {number} of {}", of.name()))?;
                deaths.deaths += 1;
                deaths.again += again;
                deaths.most_again = deaths.most_again.max(again);
                deaths.slowest_s = deaths.slowest_s.max(took.as_secs_f64());
                if again > most {
                    let of = of.name();
                    faults.push(format!(
                        "{again} signatures are verified again after death {number} of {of}, at most {most}"
                    ));
                }
                faults.extend(self.other_states()?);
                if options.kills > BURST {
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            }
            println!(
                "{} deaths of {}: {} s since the beginning",
                deaths.deaths,
                of.name(),
                start.elapsed().as_secs()
            );
        }
        // The last `pathsec` remembers little: what no snapshot has is verified.
        let (again, _) = self.kill(Victim::Bgp, &mut random).context("the last one of bgp")?;
        faults.extend(self.other_states()?);
        Ok(again)
    }

    /// Kills it at a random moment under changes. How many signatures were verified again, and how long it took until all was as
    /// before.
    fn kill(&mut self, victim: Victim, random: &mut Random) -> Result<(u64, Duration)> {
        // Nothing is under way where it is counted; changes go on from here until all is as before.
        self.churner.pause();
        let mut verified = self.wait_quiet()?;
        let mut announced = self.announced.load(Ordering::SeqCst);
        self.churner.resume();
        std::thread::sleep(Duration::from_millis(random.below(LONGEST_PAUSE_MS).into()));
        let start = Instant::now();
        match victim {
            Victim::Cache => self.cache.kill_and_start(self.star.neighbor(CACHE))?,
            Victim::Bgp | Victim::Rpki => self.router.kill(victim.name())?,
            Victim::Pathsec => {
                self.router.kill(victim.name())?;
                // What the next one counts begins here.
                (verified, announced) = (0, self.announced.load(Ordering::SeqCst));
            }
        }
        self.wait_keys()?;
        let serial = self.churner.serial();
        for (host, watch) in [("BIRD", &self.at_stock), ("the taker", &self.taker.watch)] {
            wait::until("a later change", SETTLING, || {
                let has_come = watch.ask(|judge| judge.first_after(serial));
                has_come.map(drop).ok_or_else(|| format!("none after {serial} at {host}"))
            })?;
        }
        let took = start.elapsed();
        self.churner.pause();
        let now = self.wait_quiet()?;
        let fresh = SIGNATURES * (self.announced.load(Ordering::SeqCst) - announced);
        self.churner.resume();
        Ok((now.saturating_sub(verified).saturating_sub(fresh), took))
    }

    fn shown(&self) -> Result<Value> {
        self.router.show(&["bgpsec"])
    }

    fn wait_keys(&self) -> Result<()> {
        wait::until("all keys", SETTLING, || {
            std::thread::sleep(LOOKING);
            let shown = self.shown().map_err(|error| format!("{error:#}"))?;
            let has_all = shown["known"] != false && shown["router_keys"] == self.public;
            if has_all { Ok(()) } else { Err(shown.to_string()) }
        })
    }

    /// Waits until all is verified that was sent; how many signatures were, by this process.
    fn wait_quiet(&self) -> Result<u64> {
        wait::until("nothing to verify", SETTLING, || {
            std::thread::sleep(LOOKING);
            let shown = self.shown().map_err(|error| format!("{error:#}"))?;
            let peer = &shown["peers"][0];
            let is_quiet = shown["queued_hops"] == 0 && peer["unverified"] == 0;
            match shown["verified"].as_u64().filter(|_| is_quiet) {
                Some(verified) => Ok(verified),
                None => Err(shown.to_string()),
            }
        })
    }

    /// Routes that stay and are not in the state that they had at the beginning, by what the router shows. That the others are
    /// valid is seen at BIRD.
    fn other_states(&self) -> Result<Vec<String>> {
        let bad: BTreeSet<String> = prefixes(BAD, BAD_ROUTES).map(|prefix| prefix.to_string()).collect();
        let shown = self.router.show(&["bgp", "routes", "--bgpsec", "not-valid"])?;
        let found: BTreeSet<String> =
            shown["routes"].as_object().context("routes")?.keys().cloned().collect();
        let differ = found.symmetric_difference(&bad).take(5);
        Ok(differ.map(|prefix| format!("{prefix} has another state than before")).collect())
    }

    /// Nothing changes any more, and all has arrived.
    fn settle(&self) -> Result<()> {
        let churn = self.churner.pause();
        ensure!(self.churner.failure().is_none(), "{}", self.churner.failure().unwrap_or_default());
        for (host, watch) in [("BIRD", &self.at_stock), ("the taker", &self.taker.watch)] {
            wait::until("the last changes", SETTLING, || {
                match watch.ask(|judge| judge.differences(churn.now())) {
                    0 => Ok(()),
                    missing => Err(format!("{missing} differences at {host}")),
                }
            })?;
        }
        Ok(())
    }

    fn watches(&self) -> [(&'static str, &Watch); 3] {
        [("BIRD", &self.at_stock), ("the signer", &self.at_signer), ("the taker", &self.taker.watch)]
    }

    fn counted(&self) -> [Counts; 3] {
        self.watches().map(|(_, watch)| watch.ask(Judge::counts))
    }

    /// What became of each UPDATE: of the signer to BIRD, of BIRD to the signer, and of either to the taker.
    fn passages(&self) -> [Audit; 4] {
        // A route comes when its verdict or its signature does, so its place among the others is no promise.
        let any_order = 0..u64::MAX;
        let compare = |sent: &Record, told: &Record| audit(sent, told, std::slice::from_ref(&any_order));
        let [by_signer, by_stock] =
            [&self.at_signer, &self.at_stock].map(|watch| watch.ask(|judge| judge.sent().clone()));
        let [to_stock, to_signer, to_taker] =
            self.watches().map(|(_, watch)| watch.ask(|judge| judge.told().clone()));
        let mut passages = [
            compare(&by_signer, &to_stock),
            compare(&by_stock, &to_signer),
            compare(&by_signer, &to_taker.without(&by_stock)),
            compare(&by_stock, &to_taker.without(&by_signer)),
        ];
        // What is not valid is lost on purpose.
        let bad = prefixes(BAD, BAD_ROUTES).map(|prefix| format!("{prefix}:")).collect::<Vec<_>>();
        let is_bad = |finding: &String| bad.iter().any(|bad| finding.starts_with(bad.as_str()));
        for of_signer in [0, 2] {
            let audit = &mut passages[of_signer];
            audit.lost = audit.lost.saturating_sub(u64::from(BAD_ROUTES));
            audit.findings.retain(|finding| !is_bad(finding));
        }
        passages
    }

    /// Announcements to the taker that are well signed; what else there was is a fault.
    fn verified(&self, faults: &mut Vec<String>) -> u64 {
        let verified = match self.taker.verify(self.keys.public()) {
            Ok(verified) => verified,
            Err(error) => {
                faults.push(format!("the taker: {error:#}"));
                return 0;
            }
        };
        faults.extend(verified.faults.iter().map(|fault| format!("the taker: {fault}")));
        let is_signed = |prefix: &&Prefix| self.at_signer.ask(|judge| !judge.sent().of(**prefix).is_empty());
        let stripped = verified.unsigned.iter().filter(is_signed).count();
        if stripped > 0 {
            faults.push(format!("the taker: {stripped} prefixes are told without their signatures"));
        }
        verified.signed
    }

    fn report(
        &self,
        options: &Options,
        deaths: [Deaths; 4],
        (began, before): (u64, [Counts; 3]),
        mut faults: Vec<String>,
    ) -> Report {
        let passages = self.passages();
        let directions = ["to BIRD", "to the signer", "of the signer to the taker", "of BIRD to the taker"];
        for (direction, audit) in directions.into_iter().zip(&passages) {
            faults.extend(audit.findings.iter().map(|finding| format!("{direction}: {finding}")));
            if audit.lost + audit.doubled + audit.corrupted > 0 && audit.findings.is_empty() {
                faults.push(format!("{direction}: {audit:?}"));
            }
        }
        if self
            .at_stock
            .ask(|judge| prefixes(BAD, BAD_ROUTES).any(|prefix| judge.told().route(prefix).is_some()))
        {
            faults.push("BIRD was told of a route that is not valid".to_owned());
        }
        let held = self.at_stock.ask(|judge| {
            prefixes(FIXED, options.routes).filter(|prefix| judge.told().route(*prefix).is_none()).count()
        });
        if held > 0 {
            faults.push(format!("BIRD lacks {held} routes that are valid"));
        }
        let wire = Wire::of(&self.counted(), &before);
        if wire.syn + wire.fin + wire.rst + wire.notifications > 0 {
            faults.push(format!("connections were harmed: {wire:?}"));
        }
        let ended = |speaker: &Speaker| {
            let status = speaker.status();
            u64::from(status.sessions) - 1 + u64::from(!status.established)
        };
        let of_stock = flaps(&self.stock.sessions(), began, now()).0;
        let flaps = [of_stock, ended(&self.signer), ended(&self.taker.speaker)];
        if flaps != [0; 3] {
            faults.push(format!("sessions went down: BIRD's, the signer's and the taker's, {flaps:?}"));
        }
        let signed = self.verified(&mut faults);
        for (host, watch) in self.watches() {
            faults.extend(watch.findings().into_iter().map(|finding| format!("{host}: {finding}")));
        }
        Report {
            routes: options.routes,
            signatures: u64::from(options.routes) * 3,
            seed: options.seed,
            deaths: deaths.to_vec(),
            after_pathsec: 0,
            changes: self.announced.load(Ordering::SeqCst),
            flaps,
            wire,
            passages,
            signed,
            ok: faults.is_empty(),
            faults,
        }
    }
}

fn configuration() -> String {
    let peer = |name, network, asn| {
        let address = v4(network, Side::Second);
        format!(
            "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {asn}\npassive = true\n\
             import = \"accept-all\"\nexport = \"accept-all\"\n"
        )
    };
    let cache = v4(CACHE, Side::Second);
    format!(
        "[router]\nid = \"10.0.0.1\"\nasn = {ROUTER_AS}\n[log]\nformat = \"json\"\n[bgp]\n{}{}\
         bgpsec = {{ receive = true, require-session = true }}\nbgpsec-validation = \"require\"\n\
         {}bgpsec = {{ send = true, require-session = true }}\n\
         [bgpsec]\nkeys = [{{ asn = {ROUTER_AS}, file = \"{OWN_KEY}\" }}]\n\
         [[rpki.cache]]\nname = \"keys\"\naddress = \"{cache}\"\nport = {CACHE_PORT}\npreference = 10\n\
         refresh = 1\nretry = 1\n",
        peer("stock", stock::NETWORK, STOCK_AS),
        peer("signer", SIGNER, SIGNER_AS),
        peer("taker", taker::NETWORK, taker::AS)
    )
}
