//! The stage: a route server in one host, its members in another.
//!
//! ```text
//!  members 10.1.1.0 to 10.1.4.231 ── route server 10.0.0.1, AS 65000
//! ```

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Options, Played, Step, asker::Asker};
use crate::{
    members::{Members, MembersConfig, address, asn},
    netns::{End, Namespace, link},
    router::{Router, binary},
    wait,
};

const ROUTER_AS: u32 = 65_000;
/// `bgp` is quiet if it has used less than a tenth of this time.
const QUIET: Duration = Duration::from_millis(300);

pub(super) struct Scene {
    // Dropped in this order: the operator before the router, this before the hosts.
    asker: Asker,
    members: Option<Members>,
    router: Router,
    outside: Namespace,
    _host: Namespace,
    config: MembersConfig,
    changes: usize,
    flaps: usize,
    /// Of the export policies, by member.
    versions: Vec<u8>,
    max_paths: u32,
    probes: u32,
    /// Processor time of the `bgp` that this is, when it had nothing to do the last time.
    quiet_cpu: (i32, Duration),
    before: Before,
}

/// Counts at the beginning of a step.
#[derive(Copy, Clone, Debug, Default)]
struct Before {
    announced: u64,
    withdrawn: u64,
    lost: u64,
    hung: u64,
}

impl Scene {
    pub(super) fn new(options: &Options) -> Result<Self> {
        ensure!(options.members > 1 && options.members <= 60_000, "from 2 to 60,000 members");
        ensure!(options.prefixes > 0 && options.members * options.prefixes <= 1 << 20, "1,048,576 prefixes");
        let (host, outside) = (Namespace::new("exchange")?, Namespace::new("members")?);
        link(
            &End { host: &host, interface: "lan", addresses: &["10.0.0.1/8"] },
            &End { host: &outside, interface: "lan", addresses: &["10.0.0.2/8"] },
        )?;
        // All addresses of a network are the host's.
        outside.ip(&["route", "add", "local", "10.1.0.0/16", "dev", "lan"])?;
        resolve(&host, &outside, options.members)?;
        let config = MembersConfig {
            router: ([10, 0, 0, 1], 179).into(),
            router_as: ROUTER_AS,
            members: options.members,
            prefixes: options.prefixes,
            hold_time: options.hold_time,
        };
        let (versions, max_paths) = (vec![1; options.members], 1);
        let router = Router::start(&host, &configuration(&versions, max_paths))?;
        Ok(Self {
            asker: Asker::start(router.directory())?,
            members: None,
            quiet_cpu: (0, Duration::ZERO),
            router,
            outside,
            _host: host,
            config,
            changes: options.changes.min(options.members),
            flaps: options.flaps,
            versions,
            max_paths,
            probes: 0,
            before: Before::default(),
        })
    }

    pub(super) fn log_tail(&self) -> String {
        self.router.log_tail()
    }

    /// What was wrong in messages.
    pub(super) fn wrong(&self) -> Vec<String> {
        self.members.as_ref().map(Members::wrong).unwrap_or_default()
    }

    /// Why the last sessions were lost, a few of them.
    pub(super) fn why_lost(&self) -> String {
        let why = |members: &[crate::members::Member]| {
            let why =
                members.iter().enumerate().filter_map(|(number, member)| Some((number, member.why.clone()?)));
            why.take(3).map(|(number, why)| format!("member {number}: {why}")).collect::<Vec<_>>().join("; ")
        };
        self.members.as_ref().map(|members| members.ask(why)).unwrap_or_default()
    }

    /// Plays a step until nothing more happens.
    pub(super) fn play(&mut self, step: Step, limit: Duration) -> Result<Played> {
        self.quiet_cpu = self.until_quiet(limit)?;
        self.before = self.counts()?;
        self.asker.asked();
        self.asker.pause(false);
        if let Some(members) = &self.members {
            members.forget_latest();
        }
        let begin = Instant::now();
        self.act(step, limit)?;
        let command = begin.elapsed();
        let members = self.members.as_ref().context("members")?;
        if step != Step::Exchange {
            members.probe(self.probes as usize, true);
            self.probes += 1;
        }
        members.until_routes(self.probes, &self.versions, limit)?;
        let routes = begin.elapsed();
        self.asker.pause(true);
        let (pid, cpu) = self.until_quiet(limit)?;
        let quiet = begin.elapsed();
        // What nobody expected comes late.
        let members = self.members.as_ref().context("members")?;
        members.until_routes(self.probes, &self.versions, limit)?;
        let (before, now) = (self.before, self.counts()?);
        let milliseconds = |time: Duration| time.as_millis() as u64;
        let late = members.ask(|members| members.iter().map(|member| member.latest).max());
        Ok(Played {
            step,
            command_ms: milliseconds(command),
            routes_ms: milliseconds(routes),
            quiet_ms: milliseconds(quiet),
            cpu_ms: milliseconds(match self.quiet_cpu {
                (same, before) if same == pid => cpu.saturating_sub(before),
                _ => cpu,
            }),
            announced: now.announced - before.announced,
            withdrawn: now.withdrawn - before.withdrawn,
            late_ms: milliseconds(late.unwrap_or_default()),
            summary: self.asker.asked(),
            longest_turn_us: self.longest_turns()?,
            median_turn_us: self.median_turns()?,
            hung: now.hung - before.hung,
            lost: now.lost - before.lost,
        })
    }

    fn act(&mut self, step: Step, limit: Duration) -> Result<()> {
        match step {
            Step::Exchange => {
                self.members = Some(Members::start(&self.outside, self.config.clone())?);
                Ok(())
            }
            Step::Kill => self.router.kill("bgp"),
            Step::Hang => {
                let bgp = self.router.pid("bgp")?;
                kill_process(bgp, Signal::STOP)?;
                self.until_another(bgp, limit)
            }
            Step::Upgrade => {
                let to = self.copy()?;
                self.router.cli(&["upgrade", "--binary", to.to_str().context("a path")?]).map(drop)
            }
            Step::MaxPaths => {
                self.max_paths += 1;
                let bgp = self.router.pid("bgp")?;
                self.reload()?;
                self.until_another(bgp, limit)
            }
            Step::AllPolicies => {
                self.versions.iter_mut().for_each(next_version);
                self.reload()
            }
            Step::OnePolicyEach => (0..self.changes).try_for_each(|member| {
                next_version(&mut self.versions[member]);
                self.reload()
            }),
            Step::Flap => self.flap(limit),
        }
    }

    fn until_another(&self, bgp: Pid, limit: Duration) -> Result<()> {
        wait::until("another bgp", limit, || match self.router.pid("bgp") {
            Ok(pid) if pid != bgp => Ok(()),
            other => Err(format!("{other:?}")),
        })
    }

    fn reload(&self) -> Result<()> {
        fs::write(self.router.configuration(), configuration(&self.versions, self.max_paths))?;
        let said = self.router.cli(&["reload"])?;
        ensure!(!said.contains("sessions ended"), "{said}");
        Ok(())
    }

    /// The last member does, so that the others have prefixes before and after its own.
    fn flap(&self, limit: Duration) -> Result<()> {
        let members = self.members.as_ref().context("members")?;
        let member = self.config.members - 1;
        for _ in 0..self.flaps {
            let sessions = members.ask(|members| members[member].sessions);
            members.flap(member);
            members.until("a flap", limit, |number, one| number != member || one.sessions > sessions)?;
        }
        Ok(())
    }

    /// A copy of the program that is another file, and another one than the last copy.
    fn copy(&self) -> Result<PathBuf> {
        let path = self.router.directory().join("copy");
        fs::copy(binary()?, &path)?;
        File::options().append(true).open(&path)?.write_all(b"\n")?;
        Ok(path)
    }

    fn counts(&self) -> Result<Before> {
        let shown = self.router.show(&["processes"])?;
        let all = shown.as_object().context("processes by name")?;
        let hung = all.values().filter_map(|process| process["hung"].as_u64()).sum();
        let counts = |members: &[crate::members::Member]| Before {
            announced: members.iter().map(|member| member.announced).sum(),
            withdrawn: members.iter().map(|member| member.withdrawn).sum(),
            lost: members.iter().map(|member| u64::from(member.lost)).sum(),
            hung,
        };
        Ok(self.members.as_ref().map_or(Before { hung, ..Before::default() }, |members| members.ask(counts)))
    }

    fn longest_turns(&self) -> Result<BTreeMap<String, u64>> {
        let shown = self.router.show(&["processes"])?;
        let all = shown.as_object().context("processes by name")?;
        let turns = all.iter().filter_map(|(name, process)| {
            let turn = process["longest_turn_us"].as_u64().filter(|turn| *turn > 0)?;
            Some((name.clone(), turn))
        });
        Ok(turns.collect())
    }

    fn median_turns(&self) -> Result<BTreeMap<String, u64>> {
        let lines = self.router.cli(&["show", "counters", "holdfast_process_turn_seconds", "--json"])?;
        let mut medians = BTreeMap::new();
        for line in lines.lines() {
            let shown: Value = serde_json::from_str(line).context("a counter")?;
            let process = shown["labels"]["process"].as_str().context("a process")?;
            if let Some(median) = median(&shown["value"]) {
                medians.insert(process.to_owned(), median);
            }
        }
        Ok(medians)
    }

    /// Waits until `bgp` has nothing to do; which process that is, and its processor time.
    fn until_quiet(&self, limit: Duration) -> Result<(i32, Duration)> {
        self.asker.pause(true);
        let begin = Instant::now();
        let look =
            || -> Result<_> { Ok((self.router.pid("bgp")?.as_raw_nonzero().get(), self.router.cpu("bgp")?)) };
        let mut last = look()?;
        loop {
            std::thread::sleep(QUIET);
            let now = look()?;
            if now.0 == last.0 && now.1 - last.1 < QUIET / 10 {
                return Ok(now);
            }
            ensure!(begin.elapsed() < limit, "bgp is busy after {} s", limit.as_secs());
            last = now;
        }
    }
}

/// The end of the range with the median, in microseconds; `None` where there is none.
fn median(histogram: &Value) -> Option<u64> {
    let count = histogram["count"].as_u64().filter(|count| *count > 0)?;
    let mut below = 0;
    for bucket in histogram["buckets"].as_array()? {
        below += bucket[1].as_u64()?;
        if 2 * below >= count {
            return Some((bucket[0].as_f64()? * 1e6).round() as u64);
        }
    }
    // Above the last range that has an end.
    Some(u64::MAX)
}

fn next_version(version: &mut u8) {
    *version = *version % 255 + 1;
}

/// The kernel keeps about 1,024 neighbours for all hosts together, and these may not be forgotten in between: they are
/// permanent, which does not count.
fn resolve(host: &Namespace, outside: &Namespace, members: usize) -> Result<()> {
    let shown = outside.ip(&["-o", "link", "show", "lan"])?;
    let ethernet = shown.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
    let ethernet = ethernet.context("an Ethernet address")?;
    let mut batch = String::new();
    for member in 0..members {
        writeln!(batch, "neighbor add {} lladdr {ethernet} dev lan nud permanent", address(member))?;
    }
    let mut ip = Command::new("ip").args(["-n", host.name(), "-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    ip.stdin.take().context("its input")?.write_all(batch.as_bytes())?;
    ensure!(ip.wait()?.success(), "ip refused neighbours");
    Ok(())
}

/// As the manual's page has it: each client has a view and a policy of its own.
fn configuration(versions: &[u8], max_paths: u32) -> String {
    let mut text = format!(
        "[router]\nid = \"10.0.0.1\"\nasn = {ROUTER_AS}\n[fea]\nbackend = \"none\"\n[bgp]\nmax-paths = {max_paths}\n\
         [[bgp.group]]\nname = \"clients\"\nroute-server-client = true\nown-view = true\npassive = true\n\
         import = \"accept-all\"\n"
    );
    for (member, version) in versions.iter().enumerate() {
        let (address, asn) = (address(member), asn(member).0);
        text.push_str(&format!(
            "[[policy]]\nname = \"to-{member}\"\nterm = [\n    {{ from = {{ neighbor-as = {asn} }}, then = \"reject\" }},\n    \
             {{ then = {{ add-communities = [\"{ROUTER_AS}:{version}:{member}\"], action = \"accept\" }} }},\n]\n\
             [[bgp.peer]]\nname = \"member-{member}\"\ngroup = \"clients\"\naddress = \"{address}\"\nasn = {asn}\n\
             export = \"to-{member}\"\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_turns_is_the_end_of_its_range() {
        let of = |counts: [u64; 3], count: u64| {
            let buckets: Vec<_> = [0.00005, 0.002, 0.2].into_iter().zip(counts).collect();
            median(&serde_json::json!({ "count": count, "sum": 1.0, "buckets": buckets }))
        };
        assert_eq!([of([5, 5, 0], 10), of([4, 2, 4], 10)], [Some(50), Some(2_000)]);
        assert_eq!([of([0, 0, 4], 9), of([0, 0, 0], 0)], [Some(u64::MAX), None]);
    }

    #[test]
    fn each_member_has_a_policy_of_its_own_in_a_configuration_that_is_right() {
        let text = configuration(&[1, 255, 7], 2);
        let config =
            holdfast_config::parse(&text, "members", holdfast_config::Schema::new([])).expect("no errors");
        let bgp = config.bgp.expect("bgp");
        let exports: std::collections::BTreeSet<_> =
            bgp.peers.iter().map(|peer| format!("{:?}", peer.export)).collect();
        assert_eq!((bgp.peers.len(), exports.len()), (3, 3));
        assert!(bgp.peers.iter().all(|peer| peer.paths.own_view), "{:?}", bgp.peers);
        let mut version = 255;
        next_version(&mut version);
        assert_eq!(version, 1, "zero is no version");
    }
}
