//! A whole router, its neighbours, and its caches.

use std::{
    fmt::Write as _,
    fs,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_bgp_wire::Capability;
use holdfast_lab::{router::Router, signed::private_key};
use holdfast_path_validation::P256Signer;
use holdfast_rtr::Dataset;
use holdfast_rtr_wire::Record;
use holdfast_types::{Afi, Asn, RouterKey};
use serde::Deserialize;

use super::{cache::RtrCache, signing::prefix};
use crate::{
    cgroup::Cgroup,
    daemon::{ASN, peer_asn},
    hearing::{Hearing, Sum},
    load::{Load, Session},
    net::{Links, Net},
};

/// Longest wait for anything.
pub(super) const LIMIT: Duration = Duration::from_secs(600);
/// Between two looks at what a process says of itself.
const LOOK: Duration = Duration::from_millis(50);
/// The same where what it takes to answer is measured with the rest.
const SELDOM: Duration = Duration::from_millis(200);
/// The port of the first cache.
const FIRST_PORT: u16 = 8282;
/// Behind all other ASs.
const FIRST_FILLER: u32 = 1_000_000;
/// Neighbours that take signed paths.
const TAKERS: Asn = Asn(64_496);
/// The file of the router's private key.
const OWN_KEY: &str = "own.pem";
/// How long a router is left alone before its memory is read.
pub(super) const REST: Duration = Duration::from_millis(500);

/// A neighbour.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Signs its paths, and is told of nothing; the state of a path means what the word says.
    Signs { validation: &'static str },
    /// Does not sign, and is told of nothing.
    Plain,
    /// Is told of everything.
    Sink,
    /// The same with signed paths. All of these are in one AS.
    Takes,
}

impl Role {
    /// The AS number of a neighbour.
    fn asn(self, number: usize) -> Asn {
        match self {
            Self::Signs { .. } | Self::Plain | Self::Sink => peer_asn(number),
            Self::Takes => TAKERS,
        }
    }

    /// What it offers in its OPEN beside what any session does.
    fn offers(self) -> Vec<Capability> {
        match self {
            // Paths of many hops are longer than 4,096 octets.
            Self::Signs { .. } => vec![bgpsec(true), Capability::ExtendedMessage],
            Self::Takes => vec![bgpsec(false)],
            Self::Plain | Self::Sink => Vec::new(),
        }
    }
}

/// Signed paths in one direction.
fn bgpsec(send: bool) -> Capability {
    Capability::Bgpsec { version: 0, send, afi: Afi::IPV4 }
}

/// What there is.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) roles: Vec<Role>,
    pub(super) caches: u16,
    pub(super) nonstop: bool,
    /// Seconds.
    pub(super) hold: u16,
    /// The last so many neighbours come when [`Scene::join`] says so.
    pub(super) late: usize,
    /// The first so many routes are networks of our own.
    pub(super) networks: u32,
}

impl Plan {
    pub(super) fn of(roles: &[Role]) -> Self {
        Self { roles: roles.to_vec(), caches: 1, nonstop: true, hold: 90, late: 0, networks: 0 }
    }

    /// Signatures of our own are what it is about: no cache, and so every private key counts as published.
    pub(super) fn of_signing(roles: &[Role], late: usize) -> Self {
        Self { caches: 0, late, ..Self::of(roles) }
    }
}

/// Everything, up. Fields end in their order.
pub(super) struct Scene {
    pub(super) load: Load,
    pub(super) router: Router,
    cgroup: Cgroup,
    caches: Vec<RtrCache>,
    plan: Plan,
    net: Net,
}

/// Where everything is to be, before anything runs: what takes long is made while no session waits.
pub(super) struct Hosts(Net);

impl Hosts {
    pub(super) fn new(neighbors: usize) -> Result<Self> {
        Ok(Self(Net::new(neighbors, Afi::IPV4, Links::Few)?))
    }

    /// A neighbour's address.
    pub(super) fn address(&self, number: usize) -> IpAddr {
        self.0.places[number].peer
    }
}

/// What `pathsec.v1/Status` says.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) router_keys: u64,
    pub(super) verified: u64,
    pub(super) remembered: u64,
    pub(super) failed: u64,
    pub(super) signed: u64,
    pub(super) jobs_under_way: u64,
}

/// Processor time of the router's processes that take part, and of all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    pub(super) bgp: Duration,
    pub(super) pathsec: Duration,
    pub(super) all: Duration,
}

impl Cpu {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            bgp: self.bgp - before.bgp,
            pathsec: self.pathsec - before.pathsec,
            all: self.all - before.all,
        }
    }
}

impl Scene {
    /// Starts it; caches have nothing yet.
    pub(super) fn start(plan: &Plan) -> Result<Self> {
        Self::on(Hosts::new(plan.roles.len())?, plan)
    }

    /// The same on hosts that are there already, one for each neighbour.
    pub(super) fn on(Hosts(net): Hosts, plan: &Plan) -> Result<Self> {
        let first = net.places[0].peer;
        let caches = (0..plan.caches)
            .map(|number| RtrCache::start(&net.load, SocketAddr::new(first, FIRST_PORT + number)))
            .collect::<Result<Vec<_>>>()?;
        let peers: Vec<_> = net.places.iter().map(|place| place.peer).collect();
        let cgroup = Cgroup::new("bgpsec")?;
        let files = [(OWN_KEY.to_owned(), private_key(ASN)?.0)].into();
        let router = Router::start_with_files(&net.router, &configuration(plan, &peers), &files)?;
        for process in router.show(&["processes"])?.as_object().context("processes")?.values() {
            let pid = process["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            cgroup.take(pid.context("a process without an id")?)?;
        }
        let (mut places, roles, hold) = (net.places.clone(), plan.roles.clone(), plan.hold);
        places.truncate(roles.len() - plan.late);
        let limit = Duration::from_secs(30);
        let load = net.load.run(move || {
            let asn = |number: usize| roles[number].asn(number);
            Load::offering(&places, asn, |number| roles[number].offers(), hold, limit)
        })?;
        let load = load.with_context(|| router.log_tail())?;
        Ok(Self { load, router, cgroup, caches, plan: plan.clone(), net })
    }

    /// Has the next neighbour come, which notes what it hears in this way; its number.
    pub(super) fn join(&mut self, hearing: Hearing) -> Result<usize> {
        let number = self.load.sessions.len();
        let (place, role, hold) = (self.net.places[number], self.plan.roles[number], self.plan.hold);
        let session = self
            .net
            .load
            .run(move || Session::establish(&place, role.asn(number), role.offers(), hold, hearing))?;
        self.load.add(session.with_context(|| self.router.log_tail())?)?;
        Ok(number)
    }

    /// Waits until a neighbour was told of so many routes since it has come or has forgotten what came before.
    pub(super) fn until_told(&mut self, session: usize, routes: u32) -> Result<()> {
        let done = |load: &mut Load| Ok(load.sessions[session].announced >= u64::from(routes));
        self.load.until("the routes", LIMIT, done).with_context(|| self.router.log_tail())
    }

    /// The same with signed paths: what these come to.
    pub(super) fn until_signed(&mut self, session: usize, routes: u32) -> Result<Sum> {
        let heard = |load: &Load| match load.sessions[session].hearing {
            Hearing::Signed(sum) => Ok(sum),
            _ => anyhow::bail!("session {session} hears otherwise"),
        };
        let done = |load: &mut Load| Ok(heard(load)?.routes >= u64::from(routes));
        self.load.until("the signed routes", LIMIT, done).with_context(|| self.router.log_tail())?;
        let sum = heard(&self.load)?;
        ensure!(sum.routes == u64::from(routes), "{} of {routes} routes", sum.routes);
        Ok(sum)
    }

    /// A neighbour's address.
    pub(super) fn address(&self, number: usize) -> IpAddr {
        self.net.places[number].peer
    }

    /// The AS that paths are signed for.
    pub(super) fn target() -> Asn {
        Asn(ASN)
    }

    /// The AS of those who take signed paths.
    pub(super) fn takers() -> Asn {
        TAKERS
    }

    /// Has a cache say these keys, and waits until `pathsec` has so many; the time from word to table.
    pub(super) fn give(
        &mut self,
        cache: usize,
        keys: impl IntoIterator<Item = RouterKey>,
    ) -> Result<Duration> {
        let data = dataset(keys);
        let count = data.len() as u64;
        let said = self.say(cache, data);
        self.until("the keys", LOOK, |status| status.router_keys == count)?;
        Ok(said.elapsed())
    }

    /// Has a cache say this; when it did.
    pub(super) fn say(&self, cache: usize, data: Dataset) -> Instant {
        self.caches[cache].publish(data)
    }

    /// Waits until `rpki` has so many keys of this cache.
    pub(super) fn until_heard(&mut self, cache: usize, count: usize) -> Result<()> {
        let start = Instant::now();
        loop {
            let shown = self.router.show(&["rpki", "caches"])?;
            let name = format!("cache-{cache}");
            let caches = shown["caches"].as_array().context("caches")?;
            if caches.iter().any(|shown| shown["name"] == name && shown["routerKeyCount"] == count) {
                return Ok(());
            }
            ensure!(start.elapsed() < LIMIT, "the keys of {name}: {shown}");
            self.load.rest(LOOK)?;
        }
    }

    /// What `pathsec` says.
    pub(super) fn status(&self) -> Result<Status> {
        let said = self.router.cli(&["call", "pathsec/pathsec.v1/Status", "--json"])?;
        serde_json::from_str(&said).with_context(|| said.clone())
    }

    /// Waits until `pathsec` says something, sessions being served meanwhile.
    fn until(&mut self, what: &str, look: Duration, wanted: impl Fn(&Status) -> bool) -> Result<Status> {
        let start = Instant::now();
        loop {
            let status = self.status()?;
            if wanted(&status) {
                return Ok(status);
            }
            ensure!(start.elapsed() < LIMIT, "{what}: {status:?}\n{}", self.router.log_tail());
            self.load.rest(look)?;
        }
    }

    /// Sends these octets, and waits until so many signatures more were looked at, and nothing is under way.
    pub(super) fn verify(&mut self, session: usize, octets: Vec<u8>, signatures: u64) -> Result<Status> {
        let before = self.status()?;
        self.load.sessions[session].send(octets.into());
        let sum = |status: &Status| status.verified + status.remembered;
        let done = sum(&before) + signatures;
        self.until("the signatures", SELDOM, |status| sum(status) >= done && status.jobs_under_way == 0)
    }

    /// Sends these octets, and gives `bgp` time to take in what is in the sockets when the last of them has been sent.
    pub(super) fn send(&mut self, session: usize, octets: Vec<u8>) -> Result<()> {
        self.load.sessions[session].send(octets.into());
        self.load.until("the routes to be taken", LIMIT, |load| Ok(load.sessions[session].is_idle()))?;
        self.load.rest(REST)
    }

    /// Processor time until now.
    pub(super) fn cpu(&self) -> Result<Cpu> {
        let of = |name: &str| -> Result<Duration> {
            let tasks = format!("/proc/{}/task", self.router.pid(name)?.as_raw_nonzero());
            let mut sum = 0;
            for task in fs::read_dir(tasks)? {
                // Nanoseconds on a processor come first.
                let text = fs::read_to_string(task?.path().join("schedstat"))?;
                sum += text.split(' ').next().context("schedstat")?.parse::<u64>()?;
            }
            Ok(Duration::from_nanos(sum))
        };
        Ok(Cpu { bgp: of("bgp")?, pathsec: of("pathsec")?, all: self.cgroup.cpu()? })
    }

    /// Octets of memory of all processes, after a rest.
    pub(super) fn memory(&mut self) -> Result<u64> {
        self.load.rest(REST)?;
        self.memory_now()
    }

    /// Waits until each process has looked for memory that it may give back, which it does every 10 s. Of a few `things` it
    /// would not be worth its while.
    pub(super) fn until_given_back(&mut self, things: u32) -> Result<()> {
        if things < 10_000 { Ok(()) } else { self.load.rest(Duration::from_secs(12)) }
    }

    /// The same at once.
    pub(super) fn memory_now(&self) -> Result<u64> {
        self.cgroup.memory()
    }

    /// The same of each process by its name, at once.
    pub(super) fn memory_of_each(&self) -> Result<Vec<(String, u64)>> {
        self.cgroup.memory_of_each()
    }

    /// The longest turn of `bgp`, in milliseconds.
    pub(super) fn longest_turn(&self) -> Result<f64> {
        let shown = self.router.show(&["processes"])?;
        Ok(shown["bgp"]["longest_turn_us"].as_f64().with_context(|| shown.to_string())? / 1e3)
    }
}

/// These keys, as a cache has them.
pub(super) fn dataset(keys: impl IntoIterator<Item = RouterKey>) -> Dataset {
    let mut data = Dataset::default();
    for key in keys {
        data.insert(Record::RouterKey(key));
    }
    data
}

/// Keys of routers that sign nothing.
pub(super) fn fillers(count: u32) -> Result<Vec<RouterKey>> {
    (1..=count).map(|number| Ok(P256Signer::generate(Asn(FIRST_FILLER + number))?.router_key())).collect()
}

/// Threads that verify: all processors but one, and one at least.
pub(super) fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() - 1).max(1))
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn configuration(plan: &Plan, peers: &[IpAddr]) -> String {
    let mut text = format!(
        r#"
[router]
id = "10.0.0.1"
asn = {ASN}
[rib]
enabled = false
[fea]
backend = "none"
[bgp]
connect-retry = 1
nonstop = {}
nonstop-memory = "4 GiB"
"#,
        plan.nonstop
    );
    for number in 0..plan.caches {
        let _ = write!(
            text,
            r#"
[[rpki.cache]]
name = "cache-{number}"
address = "{}"
port = {}
preference = 10
"#,
            peers[0],
            FIRST_PORT + number
        );
    }
    if plan.roles.contains(&Role::Takes) {
        let _ = write!(text, "[bgpsec]\nkeys = [{{ asn = {ASN}, file = \"{OWN_KEY}\" }}]\n");
    }
    for route in 0..plan.networks {
        let _ = write!(text, "[[bgp.network]]\nprefix = \"{}\"\n", prefix(route));
    }
    for ((number, address), role) in peers.iter().enumerate().zip(&plan.roles) {
        let asn = role.asn(number);
        let _ = write!(
            text,
            r#"
[[bgp.peer]]
name = "peer-{number}"
address = "{address}"
asn = {asn}
passive = true
hold-time = {}
import = "accept-all"
"#,
            plan.hold
        );
        match role {
            Role::Signs { validation } => {
                let _ = write!(
                    text,
                    "bgpsec = {{ receive = true, require-session = true }}\nbgpsec-validation = \"{validation}\"\n"
                );
            }
            Role::Plain => {}
            Role::Sink => text += "export = \"accept-all\"\n",
            Role::Takes => {
                text += "export = \"accept-all\"\nbgpsec = { send = true, require-session = true }\n";
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_is_accepted() {
        let peers: Vec<IpAddr> = (1..4).map(|number| [10, 0, number, 2].into()).collect();
        for validation in ["log", "require"] {
            let roles = [Role::Signs { validation }, Role::Plain, Role::Sink];
            let plan = Plan { caches: 2, hold: 3, nonstop: false, networks: 2, ..Plan::of(&roles) };
            let text = configuration(&plan, &peers);
            holdfast_config::parse(&text, "router.toml", holdfast_config::Schema::new([]))
                .unwrap_or_else(|error| panic!("{error:?} in {text}"));
        }
    }
}
