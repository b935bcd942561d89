//! Three stock routers and a puppet with a session each, and what they say of it: who dies at our end must not be noticed.
//!
//! ```text
//!             ┌─n1── BIRD, which speaks BGP with us
//!             ├─n2── FRR, which does, too
//!  Holdfast ──┼─n3── BIRD, with meticulous SHA1: the next hop of a static route
//!             └─n4── puppet, which measures how long we were silent; a client of no protocol follows it
//! ```

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::{
    Follower, PROTOCOL,
    packet::Control,
    profile,
    puppet::Puppet,
    rows,
    stock::{Stock, bird_protocol, frr_bfd},
    until_session,
};
use crate::{
    peers::Programs,
    router::{Router, binary},
    topology::{ROUTER, Side, Star, v4},
    wait,
};

const LIMIT: Duration = Duration::from_secs(40);
/// Networks, the last of which is the puppet's.
const NETWORKS: u8 = 4;
/// Who is asked how often its session was down, in the order of networks.
pub const NAMES: [&str; 4] = ["BIRD", "FRR", "BIRD with SHA1", "puppet"];
/// Our peers of BGP, by name.
const PEERS: [&str; 2] = ["bird", "frr"];
/// What is behind the next hop of the static route.
const FIXED: &str = "203.0.113.0/24";

/// What must not change: how often sessions of BFD were down, by those at the other ends ([`NAMES`]), and how often those of BGP
/// came up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Of BFD.
    pub downs: [u64; 4],
    /// Of BGP.
    pub sessions: [u64; 2],
}

/// Everything that runs.
#[derive(Debug)]
pub struct Scene {
    /// The hosts.
    pub star: Star,
    /// Ours.
    pub router: Router,
    ends: [Stock; 3],
    puppet: Puppet,
}

fn address(network: u8, side: Side) -> String {
    v4(network, side).to_string()
}

impl Scene {
    /// Sessions whose failures are found within three times so many milliseconds; all are Up. Nobody follows them any more.
    ///
    /// # Errors
    /// Something does not start, or a session does not come up.
    pub fn new(interval: u32) -> Result<Self> {
        let star = Star::new(NETWORKS)?;
        let router = Router::start(&star.router, &configuration(interval))?;
        let options = format!("interval {interval} ms; multiplier 3;");
        let keyed =
            format!("{options} authentication meticulous keyed sha1; password \"of both\" {{ id 9; }};");
        let bgp = "protocol bgp holdfast { local 10.0.1.2 as 65001; neighbor 10.0.1.1 as 65000; bfd on; \
                   connect delay time 1; connect retry time 1; ipv4 { import all; export all; }; }";
        let machine = Programs::Machine;
        let bird = Stock::bird(&machine, star.neighbor(1), &bird_protocol(&options, &[]), bgp)?;
        let lines = ["receive", "transmit"].map(|word| format!("{word}-interval {interval}"));
        let bgp = "router bgp 65001\n bgp router-id 10.0.2.2\n no bgp ebgp-requires-policy\n \
                   neighbor 10.0.2.1 remote-as 65000\n neighbor 10.0.2.1 timers connect 1\n \
                   neighbor 10.0.2.1 bfd\n neighbor 10.0.2.1 bfd profile lab\nexit\n";
        let frr = Stock::frr(&machine, star.neighbor(2), &frr_bfd(&[&lines[0], &lines[1]], &[]), bgp)?;
        let session = ["10.0.3.1 dev \"n3\" local 10.0.3.2"];
        let sha1 = Stock::bird(&machine, star.neighbor(3), &bird_protocol(&keyed, &session), "")?;
        let ends = [bird, frr, sha1];
        let [ours, theirs] = [Side::First, Side::Second].map(|side| v4(NETWORKS, side).into());
        let says = Control { intervals: [interval * 1000, interval * 1000, 0], ..Control::new(7) };
        let puppet = Puppet::start(star.neighbor(NETWORKS), theirs, ours, says)?;
        let scene = Self { star, router, ends, puppet };
        // What it follows outlives it by two minutes.
        let _follower = scene.follow()?;
        scene.until_agreed(u64::from(interval) * 3).with_context(|| scene.router.log_tail())?;
        Ok(scene)
    }

    /// Somebody follows the puppet.
    ///
    /// # Errors
    /// The program does not start.
    pub fn follow(&self) -> Result<Follower> {
        let remote = address(NETWORKS, Side::Second);
        Follower::start(&self.router, &format!("remote:ip={remote}&profile=plain&hops=SINGLE"))
    }

    fn until_agreed(&self, detection: u64) -> Result<()> {
        for (network, end) in (1..).zip(&self.ends) {
            end.until(&address(network, Side::First), "up", LIMIT)?;
        }
        self.puppet.until_up(LIMIT)?;
        for network in 1..=NETWORKS {
            let remote = address(network, Side::Second);
            let is_agreed = |row: &Value| row["status"] == "up" && row["detection-time"] == detection;
            until_session(&self.router, &remote, LIMIT, is_agreed)?;
        }
        PEERS.into_iter().try_for_each(|peer| self.router.until_established(peer, LIMIT).map(drop))?;
        self.until_protected()?;
        // Theirs, too: what they say first is slow.
        self.until_packets()
    }

    /// Waits until the next `bgp` can go on with all sessions.
    ///
    /// # Errors
    /// They are not protected in time.
    pub fn until_protected(&self) -> Result<()> {
        wait::until("protection", LIMIT, || {
            let shown = self.router.show(&["nsr"]).map_err(|error| error.to_string())?;
            let peers = shown["peers"].as_object().into_iter().flatten();
            let protected = peers.filter(|(_, peer)| peer["protected"] == true).count();
            if protected == PEERS.len() { Ok(()) } else { Err(shown.to_string()) }
        })
    }

    /// What must not change.
    ///
    /// # Errors
    /// Somebody does not answer.
    pub fn counts(&self) -> Result<Counts> {
        let of = |peer| {
            let shown = self.router.neighbor(peer)?;
            shown["connectionsEstablished"].as_u64().with_context(|| shown.to_string())
        };
        Ok(Counts { downs: self.downs()?, sessions: [of(PEERS[0])?, of(PEERS[1])?] })
    }

    fn downs(&self) -> Result<[u64; 4]> {
        let of = |network: u8| self.ends[usize::from(network) - 1].downs(&address(network, Side::First));
        Ok([of(1)?, of(2)?, of(3)?, self.puppet.downs()])
    }

    /// The longest time since the last call in which nothing of ours came to the puppet.
    pub fn longest_silence(&self) -> Duration {
        self.puppet.take_gap()
    }

    /// Waits until whoever is `bfd` now has sent and received in each session.
    ///
    /// # Errors
    /// It has not in time.
    pub fn until_packets(&self) -> Result<()> {
        wait::until("packets both ways", LIMIT, || {
            let rows = rows(&self.router, "counters").map_err(|error| format!("{error:#}"))?;
            let moves = |name: &str| rows.iter().all(|row| row[name].as_u64() > Some(1));
            let all = moves("control-packet-input") && moves("control-packet-output");
            if all && rows.len() == NAMES.len() { Ok(()) } else { Err(format!("{rows:?}")) }
        })
        .with_context(|| self.router.log_tail())
    }

    /// Sends a signal to `bfd`, and waits for the next one; how long that took.
    ///
    /// # Errors
    /// There is none in time.
    pub fn replace_by(&self, signal: Signal) -> Result<Duration> {
        let (before, begin) = (self.router.pid("bfd")?, Instant::now());
        kill_process(before, signal)?;
        wait::until("another bfd", LIMIT, || match self.router.pid("bfd") {
            Ok(pid) if pid != before => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .with_context(|| self.router.log_tail())?;
        Ok(begin.elapsed())
    }

    /// Upgrades the router to the same binary with an octet more, which is another build; or back.
    ///
    /// # Errors
    /// It is refused, or `bfd` stays.
    pub fn upgrade(&self, is_back: bool) -> Result<()> {
        let new = self.router.directory().join("new");
        if !is_back {
            fs::copy(binary()?, &new)?;
            fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
            OpenOptions::new().append(true).open(&new)?.write_all(b"\n")?;
        }
        let to = if is_back { binary()? } else { new };
        let before = self.router.pid("bfd")?;
        let said = self.router.cli(&["upgrade", "--binary", to.to_str().context("a path")?])?;
        ensure!(self.router.pid("bfd")? != before, "bfd was not replaced: {said}");
        Ok(())
    }

    /// What is not as it was: sessions that were down since, or are not Up.
    ///
    /// # Errors
    /// Somebody does not answer.
    pub fn faults(&self, before: Counts) -> Result<Vec<String>> {
        let now = self.counts()?;
        let mut faults = Vec::new();
        for (name, (before, now)) in NAMES.into_iter().zip(before.downs.into_iter().zip(now.downs)) {
            faults.extend((before != now).then(|| format!("{name}: down {} times", now - before)));
        }
        for (peer, (before, now)) in PEERS.into_iter().zip(before.sessions.into_iter().zip(now.sessions)) {
            let state = &self.router.neighbor(peer)?["bgpState"];
            let is_same = before == now && state == "Established";
            faults.extend(
                (!is_same).then(|| format!("BGP with {peer}: {state}, {before} and then {now} times")),
            );
        }
        let rows = rows(&self.router, "peers")?;
        faults.extend((rows.len() != NAMES.len()).then(|| format!("there are {} sessions", rows.len())));
        let others = rows.iter().filter(|row| row["status"] != "up");
        faults.extend(others.map(|row| format!("{} is {}", row["peer"], row["status"])));
        let way = self.star.router.ip(&["route", "show", FIXED])?;
        faults.extend((!way.contains("via 10.0.3.2")).then(|| format!("the static route: {way:?}")));
        Ok(faults)
    }

    /// The puppet says nothing for a detection time: the judge is to see that.
    pub fn silence_puppet(&self, lasts: Duration) {
        self.puppet.set_silent(true);
        std::thread::sleep(lasts);
        self.puppet.set_silent(false);
    }
}

fn configuration(interval: u32) -> String {
    let peer = |name, network, bfd| {
        let address = address(network, Side::Second);
        format!(
            "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = 65001\nbfd = {{ profile = \"{bfd}\" }}\n\
             import = \"accept-all\"\nexport = \"accept-all\"\n"
        )
    };
    let [bird, frr] = PEERS;
    let key = "[[bfd.profile.key]]\nid = 9\nsecret = \"of both\"";
    let profiles = profile("plain", interval, "") + &profile("keyed", interval, key);
    let fixed = format!(
        "[[static]]\nprefix = \"{FIXED}\"\nnext-hop = \"10.0.3.2\"\nbfd = {{ profile = \"keyed\" }}\n"
    );
    [ROUTER, &peer(bird, 1, "plain"), &peer(frr, 2, "plain"), PROTOCOL, &fixed, "[bfd]\n", &profiles].concat()
}
