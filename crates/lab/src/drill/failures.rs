//! What is done to `bgp`, one way each.

use std::{
    net::Ipv4Addr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::{MAX_LEN, Origin, UpdateEncoder, edit::AttributesBuilder};
use holdfast_sys::{CapabilitySet, process::keep_capabilities};
use holdfast_types::{Asn, Ipv4Prefix};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::{
    churn::prefixes,
    judge::Judge,
    phases::{lines, phrase},
    process::Drill,
    scene::SETTLING,
    time::now,
    watch::Watch,
};
use crate::{
    table::{AttributeSet, Table},
    wait,
};

/// After a new `bgp` is there, until it is killed under load.
const UNDER_LOAD_MS: u32 = 150;
/// How many of 10,000 kills are followed by one under load.
const UNDER_LOAD: u32 = 2_500;
/// How long SIGSTOP lasts: less than a hold time, and than it takes to be killed as hung.
const STOPPED: Duration = Duration::from_secs(1);
/// More memory than it has, for `memory`.
const ROOM: u64 = 4 << 20;
/// What is fed to fill memory, or the log: routes, and communities of each, no two the same. More than 20 MiB in few
/// routes, so that kernels and captures need not be big.
const FAT: u32 = 8000;
const FAT_COMMUNITIES: u32 = 700;
const FAT_ROUTES: Ipv4Addr = Ipv4Addr::new(110, 0, 0, 0);
/// Between two kills of `loop`.
const LOOP: Duration = Duration::from_millis(500);
/// Deaths that a poisoned UPDATE may cause.
const MOST_POISONED: u64 = 3;
/// The community of the poisoned UPDATE.
pub(super) const POISON: u32 = 65002 << 16 | 666;
/// Tells `bgp` of it, with this before it if it is to loop instead of aborting.
pub(super) const POISON_VARIABLE: &str = "HOLDFAST_TEST_POISON";
pub(super) const LOOPING: &str = "loop:";
const POISONED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 0);
/// For `full`: a log that cannot hold them.
pub(super) const SMALL_LOG: &str = "nonstop-memory = \"8 MiB\"";
/// For a death or for giving up, where one must come.
const LIMIT: Duration = Duration::from_secs(60);

impl Drill<'_> {
    fn kill(&mut self) -> Result<Pid> {
        let pid = self.scene.router.pid("bgp")?;
        let at = now();
        kill_process(pid, Signal::KILL)?;
        self.kills.push((at, self.scene.serials()));
        Ok(pid)
    }

    /// Kills it and waits until all is as it should be, or, unless it is the last, sometimes not so long.
    pub(super) fn kill_and_recover(&mut self, last: bool) -> Result<()> {
        let killed = self.kill()?;
        self.wait_new(killed)?;
        let number = self.kills.len();
        if !last && self.random.chance(UNDER_LOAD) {
            println!("  kill {number} of {}: the next comes under load", self.options.kills);
            self.pause(UNDER_LOAD_MS);
            return Ok(());
        }
        self.recover()?;
        let (at, serials) = self.kills[number - 1];
        let total = self.scene.at_stock.ask(|judge| judge.first_after(serials.feeder));
        let total = total.map_or(0, |passed| passed.saturating_sub(at)) / 1000;
        println!("  kill {number} of {}: recovered after {total} ms", self.options.kills);
        Ok(())
    }

    /// Waits until what is changed from now on has passed, and all that was changed before it.
    fn recover(&self) -> Result<()> {
        self.scene.wait_passed(self.scene.serials())?;
        self.scene.settle()?;
        self.scene.change();
        Ok(())
    }

    fn wait_new(&self, old: Pid) -> Result<Pid> {
        wait::until("a new bgp", LIMIT, || match self.scene.router.pid("bgp") {
            Ok(pid) if pid != old => Ok(pid),
            Ok(_) => Err("the old one".to_owned()),
            Err(error) => Err(format!("{error:#}")),
        })
    }

    /// Stops it for a while and lets it go on.
    pub(super) fn stop(&mut self) -> Result<()> {
        let pid = self.scene.router.pid("bgp")?;
        kill_process(pid, Signal::STOP)?;
        std::thread::sleep(STOPPED);
        kill_process(pid, Signal::CONT)?;
        self.recover()?;
        println!("  stop {} of {}", self.done + 1, self.options.kills);
        ensure!(self.scene.router.pid("bgp")? == pid, "another bgp");
        Ok(())
    }

    /// Leaves it hardly any memory and feeds it until it dies. Once: a session of which the same octets are processed at
    /// three deaths is taken for a poisoned one.
    pub(super) fn exhaust_memory(&mut self) -> Result<()> {
        self.done = 1;
        let pid = self.scene.router.pid("bgp")?;
        let most = Some(data_of(pid)? + ROOM);
        limit_data(pid, Rlimit { current: most, maximum: most })?;
        let table = Arc::new(fat_table());
        self.scene.feeder.announce(Arc::clone(&table));
        self.wait_new(pid).context("fed beyond its memory")?;
        println!("  bgp had no more memory and died");
        self.wait_held(table.routes.len())?;
        self.scene.feeder.withdraw(table);
        self.wait_held(0)?;
        self.recover()
    }

    /// Waits until the stock router has so many routes beside those of the drill; then changes go on.
    fn wait_held(&self, more: usize) -> Result<()> {
        self.scene.settle()?;
        let wanted = self.scene.announced().feeder.len() + more;
        wait::until("all routes at the stock router", SETTLING, || {
            let held = self.scene.at_stock.ask(Judge::held);
            if held == wanted { Ok(()) } else { Err(format!("{held} of {wanted}")) }
        })?;
        self.scene.change();
        Ok(())
    }

    /// Sends an UPDATE on which it dies, again and again, until the feeder's session is given up.
    pub(super) fn poison(&mut self) -> Result<()> {
        let attributes = AttributesBuilder {
            as_path: vec![Asn(65002)],
            next_hop: Some(Ipv4Addr::new(10, 0, 2, 2)),
            communities: vec![POISON],
            ..AttributesBuilder::new(Origin::Igp)
        };
        let prefix = Ipv4Prefix::new(POISONED, 24).context("a length of IPv4")?;
        let mut update = Vec::new();
        UpdateEncoder::new(MAX_LEN).announce(&attributes.build(), [prefix], &mut update)?;
        self.scene.feeder.send_raw(update);
        self.done = 1;
        self.wait_given_up(&self.scene.at_feeder, "the feeder's session")?;
        let deaths = self.deaths();
        ensure!(
            (1..=MOST_POISONED).contains(&deaths),
            "{deaths} deaths by the poisoned UPDATE instead of 1 to {MOST_POISONED}"
        );
        self.recover()
    }

    /// Waits for a NOTIFICATION Cease that the router sends.
    fn wait_given_up(&self, watch: &Watch, what: &str) -> Result<()> {
        wait::until(what, LIMIT, || match watch.ask(|judge| judge.last_notification().cloned()) {
            Some(notification) if notification.code == CEASE => Ok(()),
            Some(other) => Err(format!("{other}")),
            None => Err("not given up".to_owned()),
        })
    }

    /// Kills every new one soon after it has taken the sessions over.
    pub(super) fn crash_loop(&mut self) -> Result<()> {
        while self.done < self.options.kills {
            let (at, next) = (now(), Instant::now() + LOOP);
            let killed = self.kill()?;
            self.done += 1;
            self.wait_new(killed)?;
            wait::until("sessions taken over", LIMIT, || {
                let taken_over = lines(&self.scene.router.log()).iter().any(|line| {
                    line.process == "bgp" && line.at >= at && line.message.starts_with(phrase::ALL_RESUMED)
                });
                if taken_over { Ok(()) } else { Err(format!("not after death {}", self.done)) }
            })?;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        self.recover()
    }

    /// Fills the log beyond its end, and empties it again.
    pub(super) fn fill(&mut self) -> Result<()> {
        self.done = 1;
        let unprotected = || -> Result<usize> {
            let nsr = self.scene.router.show(&["nsr"])?;
            println!("  show nsr: {nsr}");
            let octets = |key| nsr[key].as_u64().with_context(|| format!("no {key}"));
            ensure!(nsr["enabled"] == true, "nothing is protected at all");
            ensure!(octets("logUsed")? <= octets("logTotal")?, "the log is larger than it may be");
            let peers = nsr["peers"].as_object().context("no peers")?.values();
            let unprotected: Vec<_> = peers.filter(|peer| peer["protected"] != true).collect();
            ensure!(
                unprotected.iter().all(|peer| peer["reason"].is_string()),
                "unprotected without a reason"
            );
            Ok(unprotected.len())
        };
        ensure!(unprotected()? == 0, "not all sessions are protected at the beginning");
        let table = Arc::new(fat_table());
        self.scene.feeder.announce(Arc::clone(&table));
        self.wait_held(table.routes.len())?;
        ensure!(unprotected()? > 0, "the log holds more than fits");
        self.scene.feeder.withdraw(table);
        self.wait_held(0)?;
        self.recover()?;
        let deaths = self.deaths();
        ensure!(deaths == 0, "{deaths} deaths");
        Ok(())
    }
}

/// Routes with many communities, no set of them twice.
fn fat_table() -> Table {
    let mut table = Table::default();
    for (number, prefix) in (0..).zip(prefixes(FAT_ROUTES, FAT)) {
        let communities = (0..FAT_COMMUNITIES).map(|community| (64512 + number % 1000) << 16 | community);
        let attributes = AttributesBuilder {
            as_path: vec![Asn(64512), Asn(10_000 + number)],
            communities: communities.collect(),
            ..AttributesBuilder::new(Origin::Igp)
        };
        table.sets.push(AttributeSet { bytes: attributes.build() });
        table.routes.push((prefix, number));
    }
    table
}

/// The error code of a session ended in order (RFC 4271 section 4.5).
const CEASE: u8 = 6;

/// Octets of data that a process has (proc(5)): what its limit is about.
fn data_of(pid: Pid) -> Result<u64> {
    let kibibytes = status_of(pid, "VmData:")?;
    Ok(kibibytes.trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// A line of what the kernel says of a process.
fn status_of(pid: Pid, key: &str) -> Result<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    Ok(line.with_context(|| format!("no {key}"))?.trim().to_owned())
}

/// Limits the data of a process, as the user that it is: root alone may lack CAP_SYS_RESOURCE.
fn limit_data(pid: Pid, limit: Rlimit) -> Result<()> {
    let users = status_of(pid, "Uid:")?;
    let user: u32 = users.split_whitespace().next().context("a user")?.parse()?;
    // Users belong to threads here.
    let limiting = std::thread::spawn(move || {
        if user != rustix::process::getuid().as_raw() {
            keep_capabilities(CapabilitySet::empty(), Some(user))?;
        }
        Ok(prlimit(Some(pid), Resource::Data, limit).map(drop)?)
    });
    limiting.join().map_err(|_| anyhow::anyhow!("limiting panicked"))?
}
