//! Every key of the schema is changed under live sessions, and those end that `holdfast diff` had named.
//!
//! ```text
//!  BIRD one ──1──┐            ┌──4── FRR inside, of our AS
//!  FRR two ───2──┤  Holdfast  ├──5── BIRD, of the range guests
//!  BIRD three ─3─┘            └──6── another Holdfast, over TLS: secure
//! ```
//!
//! How often a session has ended is counted at its other end. What of the schema a step changes follows from the
//! configurations, so that a key that is new, and that no step changes, fails the test.

mod rows;
mod steps;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    keys::Signer,
    netns::Namespace,
    peers::{Bird, Frr},
    router::{Files, Router},
    topology::Star,
    wait,
};
use serde_json::Value as Json;
use toml::Table;

use self::{
    rows::Rows,
    steps::{BASE, LAST, LIMITS, LOAD, STEPS, Step, patched},
};

const LIMIT: Duration = Duration::from_secs(30);

/// The other end of a session.
enum Peer {
    Bird(Bird),
    /// With our address.
    Frr(Frr, &'static str),
    Router(Router),
}

/// How often a session has come up there, and whether it is up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Seen {
    established: u64,
    is_up: bool,
}

impl Seen {
    fn ended(self) -> u64 {
        self.established - u64::from(self.is_up)
    }
}

impl Peer {
    fn seen(&self) -> Result<Seen> {
        let of_json = |shown: &Json| Seen {
            established: shown["connectionsEstablished"].as_u64().unwrap_or(0),
            is_up: shown["bgpState"] == "Established",
        };
        Ok(match self {
            Self::Bird(bird) => {
                let established = || {
                    bird.log().lines().filter(|line| line.contains("BGP session established")).count() as u64
                };
                // A session that comes up between the two questions is in both answers or in none.
                let mut before = established();
                loop {
                    let is_up = bird.birdc("show protocols holdfast")?.contains("Established");
                    let after = established();
                    if before == after {
                        break Seen { established: after, is_up };
                    }
                    before = after;
                }
            }
            Self::Frr(frr, address) => {
                let shown: Json =
                    serde_json::from_str(&frr.vtysh(&format!("show bgp neighbors {address} json"))?)?;
                of_json(&shown[address])
            }
            Self::Router(router) => of_json(&router.neighbor("other")?),
        })
    }
}

/// BIRD, which brings a network of its own and this many more.
fn bird(star: &Star, network: u8, asn: u32, router: u32, more: u32) -> Result<Peer> {
    // Each has attributes of its own, which are kept for it.
    let more = (0..more).map(|number| {
        let (third, fourth) = (number >> 8, number & 0xff);
        format!(" route 20.{third}.{fourth}.0/24 blackhole {{ bgp_community.add((65001, {number})); }};")
    });
    let more: String = more.collect();
    let configuration = format!(
        "router id 10.0.{network}.2;
        protocol device {{ }}
        protocol static {{ ipv4; route 198.51.{network}.0/24 blackhole;{more} }}
        protocol bgp holdfast {{
          local 10.0.{network}.2 as {asn}; neighbor 10.0.{network}.1 as {router};
          connect delay time 1; connect retry time 1; error wait time 1, 2;
          ipv4 {{ import all; export all; }};
          debug {{ events }};
        }}"
    );
    Ok(Peer::Bird(Bird::start(star.neighbor(network), &configuration)?))
}

fn frr(star: &Star, network: u8, asn: u32, address: &'static str) -> Result<Peer> {
    let configuration = format!(
        "router bgp {asn}
          bgp router-id 10.0.{network}.2
          no bgp ebgp-requires-policy
          neighbor {address} remote-as 65000
          neighbor {address} timers connect 1
          address-family ipv4 unicast
            network 198.51.{network}.0/24
        "
    );
    Ok(Peer::Frr(Frr::start(star.neighbor(network), &configuration)?, address))
}

/// The other Holdfast.
fn secure(star: &Star, files: &Files) -> Result<Peer> {
    let configuration = r#"
[router]
id = "10.0.6.2"
asn = 65006
[tls]
certificate = "certificate.pem"
key = "key.pem"
[bgp]
connect-retry = 1
[[bgp.peer]]
name = "other"
address = "2001:db8:6::1"
asn = 65000
transport = ["tls", "quic"]
tls-name = "r1.example"
tls-authorities = "authority.pem"
import = "accept-all"
export = "accept-all"
"#;
    Ok(Peer::Router(Router::start_with_files(star.neighbor(6), configuration, files)?))
}

struct Scene {
    router: Router,
    peers: BTreeMap<&'static str, Peer>,
    rows: Rows,
    /// Of those the steps so far have changed.
    tried: BTreeSet<String>,
    running: Table,
    /// What the last reload has said, and which sessions were to end because of a limit.
    said: (String, BTreeSet<String>),
}

impl Scene {
    fn new(star: &Star, signer: &Signer, base: Table) -> Result<Self> {
        let (shown, other) = (signer.sign("r2.example")?, signer.sign("r1.example")?);
        let mut files = signer.files("r1")?;
        files.extend(other.files().into_iter().map(|(name, text)| (format!("other-{name}"), text)));
        files.insert("revoked.pem".into(), signer.revoke(&signer.sign("r9.example")?)?);
        files.insert("bob.key".into(), "fedcba9876543210".into());
        files.insert("store.password".into(), "hunter2\n".into());
        files.insert("store.key".into(), "a secret of all routers\n".into());
        let exceptions = r#"{ "slurmVersion": 1,
            "validationOutputFilters": { "prefixFilters": [], "bgpsecFilters": [] },
            "locallyAddedAssertions": { "prefixAssertions": [], "bgpsecAssertions": [] } }"#;
        files.insert("exceptions.json".into(), exceptions.into());
        let described = "does = \"does nothing\"\ndoc = \"Nothing.\"\nprogram = \"/bin/true\"\n";
        files.insert("described.toml".into(), described.into());
        let pin = shown.pin();
        let mut theirs = signer.files_of(&shown);
        theirs.insert("pin".into(), pin.clone());
        let peers = BTreeMap::from([
            ("one", bird(star, 1, 65001, 65000, LOAD)?),
            ("two", frr(star, 2, 65002, "10.0.2.1")?),
            ("three", bird(star, 3, 65003, 65100, 0)?),
            ("inside", frr(star, 4, 65000, "10.0.4.1")?),
            ("guests", bird(star, 5, 65005, 65000, 0)?),
            ("secure", secure(star, &theirs)?),
        ]);
        let router = Router::start_with_files(&star.router, &base.to_string(), &files)?;
        let scene = Self {
            router,
            peers,
            rows: Rows::read()?,
            tried: BTreeSet::new(),
            running: base,
            said: Default::default(),
        };
        scene.until_up()?;
        Ok(scene)
    }

    fn seen(&self) -> Result<BTreeMap<&'static str, Seen>> {
        self.peers.iter().map(|(name, peer)| Ok((*name, peer.seen()?))).collect()
    }

    fn until_up(&self) -> Result<()> {
        // Ours waits the longer the more often we were somebody else.
        for (name, peer) in &self.peers {
            if let Peer::Router(router) = peer
                && !peer.seen()?.is_up
            {
                router.cli(&["clear", "bgp", "other"]).with_context(|| format!("clearing at {name}"))?;
            }
        }
        wait::until("all sessions", LIMIT, || {
            let seen = self.seen().map_err(|error| format!("{error:#}"))?;
            if seen.values().all(|seen| seen.is_up) { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .with_context(|| self.router.log_tail())
    }

    /// Waits until "one" has brought its load and those who are told of it have it: a limit is exceeded, or is not, by then.
    fn until_loaded(&self) -> Result<()> {
        let load = u64::from(LOAD);
        let loaded = || {
            let shown = self.router.show(&["bgp", "neighbors"]).map_err(|error| format!("{error:#}"))?;
            let count = |address: &str, of: &str| {
                shown[address]["addressFamilyInfo"]["ipv4Unicast"][of].as_u64().unwrap_or(0)
            };
            let counts = [
                count("10.0.1.2", "acceptedPrefixCounter"),
                count("10.0.2.2", "sentPrefixCounter"),
                count("10.0.5.2", "sentPrefixCounter"),
            ];
            if counts.iter().all(|count| *count > load) { Ok(()) } else { Err(format!("{counts:?}")) }
        };
        wait::until("the load", LIMIT, loaded).with_context(|| self.router.log_tail())
    }

    /// Whose sessions end with another configuration, as `diff` says it, and whose because of a limit.
    fn foretold(&self, text: &str) -> Result<[BTreeSet<String>; 2]> {
        let file = self.router.directory().join("next.toml");
        fs::write(&file, text)?;
        let runtime = self.router.directory().to_str().context("a path")?.to_owned();
        let file = file.to_str().context("a path")?;
        // Where something differs its exit code is none of success.
        let binary = holdfast_lab::router::binary()?;
        let said = std::process::Command::new(binary)
            .args(["diff", "--json", "-c", file, "--runtime-dir", &runtime])
            .output()?;
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        let said: Json = serde_json::from_slice(&said.stdout).with_context(|| error)?;
        ensure!(said["restart"].as_array().is_some_and(Vec::is_empty), "{said}");
        ensure!(said["changes"].as_array().is_some_and(|changes| !changes.is_empty()), "{text}");
        let names = said["sessions_ended"].as_array().context("a list")?;
        let over = said["over_limits"].as_array().context("a list")?;
        // A member of a range is `RANGE:ADDRESS`.
        let over = over.iter().filter_map(|over| over["peer"].as_str()?.split(':').next());
        Ok([
            names.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
            over.map(str::to_owned).collect(),
        ])
    }

    /// What a reload says. The devices of the VRF `blue` are not there: that is a fault, and the configuration runs.
    fn reload(&self) -> Result<String> {
        match self.router.cli(&["reload"]) {
            Ok(said) => Ok(said),
            Err(error) => {
                let said = format!("{error:#}");
                let is_expected = said.contains("runs, with faults") && said.contains("no interface `blue");
                if is_expected { Ok(said) } else { Err(error) }
            }
        }
    }

    /// Goes over to another configuration, and compares whose sessions end with what was foretold.
    fn go(&mut self, name: &str, to: Table, comes_up: bool) -> Result<BTreeSet<String>> {
        let changed = self.rows.changed(&self.running, &to);
        let (text, before) = (to.to_string(), self.seen()?);
        let [foretold, over] = self.foretold(&text).with_context(|| format!("{name}: {text}"))?;
        // `disabled` says itself that there is to be no session.
        let ends = changed.iter().filter(|row| *row != "bgp.peer.disabled");
        let ends = ends.map(|row| self.rows.ends(row)).collect::<Result<Vec<_>>>()?.contains(&true);
        let has_open = ends || changed.contains("bgp.peer.disabled") || changed.contains("bgp");
        let manager = self.router.pid("manager")?;
        fs::write(self.router.configuration(), &text)?;
        let said = self.reload().with_context(|| format!("{name}: {}", self.router.log_tail()))?;
        if said.lines().any(|line| line.starts_with("processes replaced") && line.contains("manager")) {
            wait::until("the next manager", LIMIT, || {
                let now = self.router.pid("manager").map_err(|error| error.to_string())?;
                if now == manager { Err("the same".to_owned()) } else { Ok(()) }
            })?;
        }
        self.router.wait_running().with_context(|| name.to_owned())?;
        // One that was down may have come up just before the reload.
        let expected = |peer: &str, ended: u64| match foretold.contains(peer) {
            true if before[peer].is_up => ended == 1,
            true => ended <= 1,
            false => ended == 0,
        };
        let ended =
            |seen: &BTreeMap<&'static str, Seen>, peer: &str| seen[peer].ended() - before[peer].ended();
        let compare = || {
            let seen = self.seen().map_err(|error| format!("{error:#}"))?;
            let differ = self.peers.keys().filter(|peer| !expected(peer, ended(&seen, peer)));
            let differ: Vec<_> = differ.collect();
            if differ.is_empty() { Ok(()) } else { Err(format!("{differ:?}: {seen:?}, before {before:?}")) }
        };
        wait::until("the ends that were foretold, and no others", LIMIT, compare)
            .with_context(|| format!("{name}: foretold {foretold:?}; {said}; {}", self.router.log_tail()))?;
        if comes_up {
            self.until_up().with_context(|| name.to_owned())?;
            // Nor has one ended since.
            compare().map_err(anyhow::Error::msg).with_context(|| format!("{name}, later"))?;
        }
        // Sessions that are up and not protected end with bgp, whatever is changed; they are named.
        ensure!(has_open || foretold == over || said.contains("processes replaced"), "{name}: {foretold:?}");
        self.tried.extend(changed);
        self.running = to;
        self.said = (said, over);
        Ok(foretold)
    }

    fn step(&mut self, step: &Step, from: &Table, fill: &dyn Fn(&str) -> String) -> Result<Table> {
        let patch: Table = fill(step.patch).parse().with_context(|| step.name.to_owned())?;
        let to = patched(from, &patch);
        self.go_as(step.name, to.clone(), step.ended, step.comes_up)?;
        Ok(to)
    }

    /// Goes over to another configuration, in which these sessions are to end.
    fn go_as(&mut self, name: &str, to: Table, ended: &[&str], comes_up: bool) -> Result<()> {
        let foretold = self.go(name, to, comes_up)?;
        let expected: BTreeSet<String> = ended.iter().map(|name| (*name).to_owned()).collect();
        ensure!(foretold == expected, "{name}: {foretold:?} instead of {expected:?}");
        Ok(())
    }

    /// Turns the boolean keys that no step changes: those together that are to end no session, and each other one alone. A
    /// key that needs another one is refused here: it wants a step.
    fn turn_flags(&mut self, base: &Table, by_hand: &BTreeSet<String>) -> Result<()> {
        let flags = self.rows.flags().into_iter().filter(|flag| !by_hand.contains(&flag.row));
        let (ending, others): (Vec<_>, Vec<_>) = flags.partition(|flag| flag.ends);
        let all = others.iter().try_fold(base.clone(), |to, flag| flag.turned(&to))?;
        self.go_as("all that ends no session", all, &[], true)?;
        for flag in ending {
            self.go(&format!("back, before {}", flag.row), base.clone(), true)?;
            let everybody: Vec<_> = self.peers.keys().copied().collect();
            let ended: &[&str] = if flag.of_peer { &["one"] } else { &everybody };
            self.go_as(&flag.row, flag.turned(base)?, ended, true)?;
        }
        self.go("back from boolean keys", base.clone(), true)?;
        Ok(())
    }
}

#[test]
fn of_every_key_those_sessions_end_that_were_foretold() -> Result<()> {
    let star = Star::new(6)?;
    let signer = Signer::new("authority")?;
    let base: Table = BASE.parse()?;
    let mut scene = Scene::new(&star, &signer, base.clone())?;
    let pin = match &scene.peers["secure"] {
        Peer::Router(router) => fs::read_to_string(router.directory().join("pin"))?,
        Peer::Bird(_) | Peer::Frr(..) => String::new(),
    };
    let apart = Namespace::new("apart")?;
    let fill = |patch: &str| patch.replace("PIN", &pin).replace("NAMESPACE", apart.name());
    for step in &STEPS {
        let begun = std::time::Instant::now();
        scene.step(step, &base, &fill)?;
        scene.go(&format!("back from: {}", step.name), base.clone(), true)?;
        println!("{}: {:.1} s", step.name, begun.elapsed().as_secs_f64());
    }
    for step in &LIMITS {
        scene.until_loaded().with_context(|| format!("before: {}", step.name))?;
        scene.step(step, &base, &fill)?;
        let (said, over) = &scene.said;
        let expected: BTreeSet<String> = step.ended.iter().map(|name| (*name).to_owned()).collect();
        ensure!(*over == expected, "{}: {over:?} because of a limit", step.name);
        for name in step.ended {
            ensure!(
                said.lines().any(|line| line.starts_with("sessions ended") && line.contains(name)),
                "{said}"
            );
            ensure!(
                said.lines()
                    .any(|line| line.starts_with(name) && line.contains("1000") || line.contains("1048576")),
                "{said}"
            );
        }
        scene.go(&format!("back from: {}", step.name), base.clone(), false)?;
        if step.patch.contains("max-octets = \"1 MiB\"") {
            // It would be tried again after a pause.
            scene.router.cli(&["clear", "bgp", "one"])?;
        }
        scene.until_up().with_context(|| format!("after: {}", step.name))?;
    }
    let mut by_hand = BTreeSet::new();
    for step in STEPS.iter().chain(&LIMITS).chain(&LAST) {
        let patch = fill(step.patch).parse()?;
        by_hand.extend(scene.rows.changed(&base, &patched(&base, &patch)));
    }
    scene.turn_flags(&base, &by_hand)?;
    let mut at = base;
    for step in &LAST {
        at = scene.step(step, &at, &fill)?;
    }
    let missing: Vec<_> = scene.rows.all().difference(&scene.tried).cloned().collect();
    ensure!(missing.is_empty(), "no step changes {missing:?}");
    Ok(())
}
