//! Deaths of `bgp` while something else is broken: who is down, silent or stuck delays nobody.
//!
//! ```text
//!  feeder ──1── Holdfast ──2── sink
//!  AS 65001     │       └──3── what is broken, if it is outside: a peer, a cache, a collector
//!             kernel
//! ```
//!
//! While `bgp` is dead the feeder withdraws some of its routes. When the next one is there they leave the sink and the
//! kernel, and no route that stays is ever absent. `HOLDFAST_DRILLS` (`make drills`) tries everything that can be broken.

use std::{
    collections::BTreeSet,
    fmt,
    net::Ipv4Addr,
    path::PathBuf,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    caches::StayRtr,
    kernel::{self, Monitor},
    netns::output,
    router::Router,
    speaker::Speaker,
    table::Table,
    topology::Star,
    wait,
};
use holdfast_types::Prefix;
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(40);
/// What is not waited for is gone within: it was two minutes. `make drills` prints how long it takes.
const SOON: Duration = Duration::from_secs(10);
/// A stopped process is let go on before it counts as hung.
const PAUSE: Duration = Duration::from_millis(1200);

const CONFIGURATION: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[[policy]]
name = "no-invalid"
last = "accept"
[[policy.term]]
name = "invalid"
from = { validity = "invalid" }
then = "reject"
[bgp]
connect-retry = 1
[[bgp.peer]]
name = "feeder"
address = "10.0.1.2"
asn = 65001
import = "no-invalid"
export = "accept-all"
[[bgp.peer]]
name = "sink"
address = "10.0.2.2"
asn = 65002
import = "accept-all"
export = "accept-all"
"#;

/// What is broken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Broken {
    /// A peer has never been there.
    PeerDown,
    /// A peer closes its connection while `bgp` is dead, and stays away.
    PeerCloses,
    /// A peer without protection, whose session ends with the process, does not come back.
    PeerStaysAway,
    /// It comes back.
    PeerComesBack,
    /// `rpki` has told what holds, and says nothing more.
    RpkiSilent,
    /// `rpki` has never heard its cache.
    RpkiDeaf,
    /// A protocol whose routes are redistributed is not there.
    ProtocolSilent,
    /// A collector does not read.
    CollectorStuck,
    /// There is no room for dumps.
    DiskFull,
    /// `fea` stands still.
    FeaStopped,
    /// `rib` stands still.
    RibStopped,
}

const ALL: [Broken; 11] = [
    Broken::PeerDown,
    Broken::PeerCloses,
    Broken::PeerStaysAway,
    Broken::PeerComesBack,
    Broken::RpkiSilent,
    Broken::RpkiDeaf,
    Broken::ProtocolSilent,
    Broken::CollectorStuck,
    Broken::DiskFull,
    Broken::FeaStopped,
    Broken::RibStopped,
];

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerDown => "a peer is down",
            Self::PeerCloses => "a peer closes during the death",
            Self::PeerStaysAway => "a peer without protection stays away",
            Self::PeerComesBack => "a peer without protection comes back",
            Self::RpkiSilent => "rpki is silent",
            Self::RpkiDeaf => "rpki has never heard its cache",
            Self::ProtocolSilent => "a redistributed protocol is silent",
            Self::CollectorStuck => "a collector is stuck",
            Self::DiskFull => "the disk is full",
            Self::FeaStopped => "fea is stopped",
            Self::RibStopped => "rib is stopped",
        })
    }
}

impl Broken {
    /// What the configuration has besides.
    fn configuration(self, disk: &Disk) -> String {
        match self {
            Self::PeerDown | Self::PeerCloses => {
                "[[bgp.peer]]\nname = \"other\"\naddress = \"10.0.3.2\"\nasn = 65003\n\
                 import = \"accept-all\"\nexport = \"accept-all\"\n"
                    .into()
            }
            Self::PeerStaysAway | Self::PeerComesBack => {
                "[rib]\nstale-time = 6\n\
                 [[bgp.peer]]\nname = \"other\"\naddress = \"10.0.3.2\"\nasn = 65003\nnonstop = false\n\
                 import = \"accept-all\"\nexport = \"accept-all\"\n"
                    .into()
            }
            Self::RpkiSilent | Self::RpkiDeaf => {
                // Shorter than an `rpki` without caches was waited for.
                let seconds = if is_drill() { 1 } else { 6 };
                format!(
                    "[rib]\nstale-time = {seconds}\n\
                     [[rpki.cache]]\nname = \"cache\"\naddress = \"10.0.3.2\"\nrefresh = 2\nretry = 1\n"
                )
            }
            Self::ProtocolSilent => {
                "[[protocol]]\nname = \"toy\"\n[[bgp.redistribute]]\nfrom = \"toy\"\npolicy = \"accept-all\"\n\
                 [[bgp.redistribute]]\nfrom = \"static\"\npolicy = \"accept-all\"\n\
                 [[static]]\nprefix = \"192.0.2.0/24\"\ninterface = \"n2\"\n"
                    .into()
            }
            Self::CollectorStuck => {
                "[[bgp.bmp]]\nname = \"deaf\"\naddress = \"10.0.3.2\"\nsend = [\"pre-policy\", \"loc-rib\"]\n".into()
            }
            Self::DiskFull => {
                format!("[[bgp.mrt]]\nfile = {:?}\ninterval = 1\n", disk.directory.join("updates.%s.mrt"))
            }
            Self::FeaStopped | Self::RibStopped => String::new(),
        }
    }

    /// The process that stands still.
    fn stopped(self) -> Option<&'static str> {
        match self {
            Self::RpkiSilent => Some("rpki"),
            Self::FeaStopped => Some("fea"),
            Self::RibStopped => Some("rib"),
            Self::PeerDown
            | Self::PeerCloses
            | Self::PeerStaysAway
            | Self::PeerComesBack
            | Self::RpkiDeaf
            | Self::ProtocolSilent
            | Self::CollectorStuck
            | Self::DiskFull => None,
        }
    }
}

/// Whether all is tried, with 10,000 routes more.
fn is_drill() -> bool {
    std::env::var_os("HOLDFAST_DRILLS").is_some()
}

fn prefixes(second: u8, count: u8) -> BTreeSet<Prefix> {
    let prefix =
        |third| Prefix::new(Ipv4Addr::new(50, second, third, 0).into(), 24).expect("a length of IPv4");
    (0..count).map(prefix).collect()
}

fn table(prefixes: &BTreeSet<Prefix>) -> Arc<Table> {
    Arc::new(Table::plain(prefixes.iter().copied()))
}

/// A file system of its own, with no room. Given back when dropped.
struct Disk {
    directory: PathBuf,
}

impl Disk {
    fn new(full: bool) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("holdfast-disk-{}-{full}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        if full {
            output(
                Command::new("mount")
                    .args(["-t", "tmpfs", "-o", "size=64k,mode=1777", "tmpfs"])
                    .arg(&directory),
            )?;
            // As much as there is room for.
            let _ = std::fs::write(directory.join("rest"), vec![1; 128 << 10]);
        }
        Ok(Self { directory })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = output(Command::new("umount").arg("-l").arg(&self.directory));
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Waits until exactly these are in the kernel, beside what is no route of BGP.
fn until_kernel(star: &Star, router: &Router, expected: &BTreeSet<Prefix>, limit: Duration) -> Result<()> {
    let is_ours = |prefix: &Prefix| prefix.to_string().starts_with("50.");
    wait::until("the kernel's routes", limit, || {
        let found = kernel::routes(&star.router, false).map_err(|error| format!("{error:#}"))?;
        let found: BTreeSet<Prefix> = found.into_keys().filter(is_ours).collect();
        match found == *expected {
            true => Ok(()),
            false => Err(format!("{} routes instead of {}", found.len(), expected.len())),
        }
    })
    .with_context(|| router.log_tail())
}

fn until_sink(sink: &Speaker, router: &Router, expected: &BTreeSet<Prefix>, limit: Duration) -> Result<()> {
    let is_ours = |prefix: &Prefix| prefix.to_string().starts_with("50.");
    wait::until("the sink's routes", limit, || {
        let found: BTreeSet<Prefix> = sink.routes().into_keys().filter(is_ours).collect();
        match found == *expected {
            true => Ok(()),
            false => Err(format!("{} routes instead of {}", found.len(), expected.len())),
        }
    })
    .with_context(|| router.log_tail())
}

fn until_heard(router: &Router) -> Result<()> {
    wait::until("what bgp has heard", LIMIT, || match router.log().contains("event=\"rpki-heard\"") {
        true => Ok(()),
        false => Err("nothing".to_owned()),
    })
    .with_context(|| router.log_tail())
}

fn drill(broken: Broken) -> Result<()> {
    let star = Star::new(3)?;
    let disk = Disk::new(broken == Broken::DiskFull)?;
    let (mut stays, goes, others, invalid) =
        (prefixes(0, 50), prefixes(1, 50), prefixes(2, 50), prefixes(3, 100));
    if is_drill() {
        stays.extend((10..50).flat_map(|second| prefixes(second, 250)));
    }
    let _collector = (broken == Broken::CollectorStuck).then(|| star.deaf(3, 11019)).transpose()?;
    let vrps = BTreeSet::from([("50.3.0.0/16".to_owned(), 24, 64_999)]);
    let cache = (broken == Broken::RpkiSilent).then(|| StayRtr::start(star.neighbor(3), &vrps, &[]));
    let _cache = cache.transpose()?;
    let router = Router::start(&star.router, &[CONFIGURATION, &broken.configuration(&disk)].concat())?;
    if broken == Broken::RpkiSilent {
        until_heard(&router)?;
    }
    let sink = star.speaker(2, 65002, |_| {})?;
    let mut tables = vec![table(&stays), table(&goes)];
    tables.extend((broken == Broken::RpkiSilent).then(|| table(&invalid)));
    let feeder = star.speaker(1, 65001, |config| config.tables = tables)?;
    let has_other = [Broken::PeerCloses, Broken::PeerStaysAway, Broken::PeerComesBack].contains(&broken);
    let comes_back = broken == Broken::PeerComesBack;
    let other = has_other.then(|| {
        star.speaker(3, 65003, |config| {
            (config.tables, config.reconnect) = (vec![table(&others)], comes_back);
        })
    });
    let other = other.transpose()?;
    let mut before: BTreeSet<Prefix> = stays.union(&goes).copied().collect();
    if other.is_some() {
        before.extend(&others);
    }
    until_kernel(&star, &router, &before, LIMIT)?;
    until_sink(&sink, &router, &before, LIMIT)?;

    let pid = |name: &str| router.pid(name);
    let stopped = broken.stopped().map(pid).transpose()?;
    let monitor = Monitor::start(&star.router)?;
    let status = sink.status();
    signal(stopped, Signal::STOP)?;
    // It does not see any of this.
    let bgp = pid("bgp")?;
    kill_process(bgp, Signal::STOP)?;
    feeder.withdraw(table(&goes));
    feeder.wait_sent(LIMIT)?;
    if let Some(other) = other.as_ref().filter(|_| broken == Broken::PeerCloses) {
        other.flap();
        other.wait_down(LIMIT)?;
    }
    let death = Instant::now();
    kill_process(bgp, Signal::KILL)?;
    if broken == Broken::RibStopped {
        // Without next hops nobody knows what to tell: all stay where they are.
        thread::sleep(PAUSE);
        signal(stopped, Signal::CONT)?;
    }
    let with_others: BTreeSet<Prefix> = stays.union(&others).copied().collect();
    let is_unprotected = [Broken::PeerStaysAway, Broken::PeerComesBack].contains(&broken);
    let at_sink = if broken == Broken::PeerComesBack { &with_others } else { &stays };
    let in_kernel = if is_unprotected { &with_others } else { &stays };
    until_sink(&sink, &router, at_sink, SOON).context("at the sink")?;
    let told = death.elapsed();
    if broken == Broken::FeaStopped {
        signal(stopped, Signal::CONT)?;
    }
    until_kernel(&star, &router, in_kernel, SOON).context("in the kernel")?;
    println!(
        "bgp dies and {broken}: the sink is right after {told:?}, the kernel after {:?}",
        death.elapsed()
    );
    let resumed = router.log();
    println!(
        "{}",
        resumed.lines().filter(|line| line.contains("sessions-resumed")).collect::<Vec<_>>().join("\n")
    );
    signal(stopped.filter(|_| broken == Broken::RpkiSilent), Signal::CONT)?;
    if broken == Broken::PeerStaysAway {
        until_kernel(&star, &router, &stays, SOON).context("when its time is over")?;
    }

    let changes = monitor.changes()?;
    let is_of = |line: &String, routes: &BTreeSet<Prefix>| {
        line.split(' ').filter_map(|word| word.parse().ok()).any(|prefix: Prefix| routes.contains(&prefix))
    };
    let kept = if broken == Broken::PeerComesBack { &with_others } else { &stays };
    let absent = changes.deleted.iter().find(|line| is_of(line, kept));
    ensure!(absent.is_none(), "a route that stays was absent: {absent:?}");
    let shown = changes.written.iter().find(|line| is_of(line, &invalid));
    ensure!(shown.is_none(), "an invalid route was in the kernel: {shown:?}");
    let after = sink.status();
    ensure!(
        feeder.status().sessions == 1 && after.sessions == 1,
        "a session has ended: {}",
        router.log_tail()
    );
    ensure!(
        is_unprotected || after.announced == status.announced,
        "the sink was told something anew: {status:?} {after:?}"
    );
    router.stop()
}

fn signal(pid: Option<Pid>, signal: Signal) -> Result<()> {
    pid.into_iter().try_for_each(|pid| Ok(kill_process(pid, signal)?))
}

#[test]
fn a_peer_that_was_never_there_keeps_no_stale_route_in_the_kernel() -> Result<()> {
    drill(Broken::PeerDown)
}

#[test]
fn what_a_peer_had_that_goes_away_during_the_death_leaves_the_kernel() -> Result<()> {
    drill(Broken::PeerCloses)
}

#[test]
fn of_a_peer_without_protection_that_stays_away_alone_stale_routes_stay_for_their_time() -> Result<()> {
    drill(Broken::PeerStaysAway)
}

#[test]
fn no_route_of_a_peer_without_protection_that_comes_back_is_ever_absent() -> Result<()> {
    drill(Broken::PeerComesBack)
}

#[test]
fn what_the_rpki_has_said_holds_on_when_rpki_is_silent() -> Result<()> {
    drill(Broken::RpkiSilent)
}

#[test]
fn a_cache_that_was_never_heard_delays_nobody() -> Result<()> {
    drill(Broken::RpkiDeaf)
}

/// With `HOLDFAST_DRILLS` all that can be broken, without it one of those that have no test of their own.
#[test]
fn whatever_else_is_broken_delays_nobody() -> Result<()> {
    let broken: &[Broken] = if is_drill() { &ALL } else { &[Broken::ProtocolSilent] };
    broken.iter().try_for_each(|broken| drill(*broken).with_context(|| broken.to_string()))
}
