//! All that runs: a router, maybe a standby, four stock routers, a feeder with a whole table, a store, and packets.

use std::{
    path::PathBuf,
    process::Child,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use super::{
    Engine, Kind, Options, Pause, Standby,
    judge::Mac,
    lan::{INTERFACE, Lan, ROUTER_AS, SERVICE, mac, service, v4, v6},
    peers::{FEEDER, LOADING, Peers, SETTLING, STOCKS, destination},
    stock::{HOLD_TIME, address, asn},
};
use crate::{
    docker::Image,
    drill::{
        replication::epoch_in,
        time::{micros, now},
    },
    netns::{Namespace, output},
    redis::{PORT, Redis},
    replication::stock::Special,
    router::{self, Files, LeaseDirectory, Router},
    traffic::Traffic,
    wait,
};

/// How far behind the peers the kernel may be.
const IN_STEP: Duration = Duration::from_secs(10);
const STORE: u8 = 30;
const SENDER: u8 = 31;

/// All that runs. What is used by others comes before them.
#[derive(Debug)]
pub struct Scene {
    /// Everybody with a session.
    pub peers: Peers,
    /// Who has the sessions.
    pub router: Router,
    /// Who waits for them.
    pub standby: Option<Router>,
    /// Those that have died with their hosts, until there is time to tidy up.
    dead: Vec<(Router, Option<Namespace>)>,
    /// Who has lost them while its processes were stopped, and which these are.
    stopped: Option<Stopped>,
    /// The store.
    pub redis: Redis,
    hosts: Hosts,
    kind: Kind,
    /// Standbys have the routes.
    is_preheated: bool,
    configuration: String,
    /// A commit that was begun before the router died, and its number.
    commit: Option<(u32, Child)>,
    commits: u32,
}

#[derive(Debug)]
struct Stopped {
    router: Router,
    /// In the order in which they go on.
    pids: Vec<Pid>,
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
    /// What containers are made of, if hosts are containers.
    image: Option<Image>,
    lease: LeaseDirectory,
    /// Beside each configuration.
    files: Files,
    /// What every second router is started from, and whether the next one is.
    other_build: Option<PathBuf>,
    is_other: bool,
}

impl Hosts {
    fn new_number(&mut self) -> (&'static str, u8) {
        let number = self.next;
        self.next = 3 - number;
        (if number == 1 { "a" } else { "b" }, number)
    }

    /// A host for a router; `None` if a host comes with its router.
    fn new_router(&mut self) -> Result<Option<Namespace>> {
        if self.image.is_some() {
            return Ok(None);
        }
        let (role, number) = self.new_number();
        self.lan.host(role, number).map(Some)
    }

    /// A router begins in this host, or in a new container.
    fn launch(
        &mut self,
        host: Option<Namespace>,
        configuration: &str,
        more: &[&str],
    ) -> Result<(Namespace, Router)> {
        let number = self.next;
        match (&self.image, host) {
            (_, Some(host)) => {
                let build = match self.other_build.clone().filter(|_| self.is_other) {
                    Some(other) => other,
                    None => router::binary()?,
                };
                self.is_other = !self.is_other;
                let router = Router::launch(&build, &host, configuration, &self.files, more)?;
                Ok((host, router))
            }
            (Some(image), None) => {
                let make_ready = |host: &Namespace| self.lan.join(host, number).map(drop);
                let (lease, files) = (self.lease.path(), &self.files);
                let launched = Router::launch_contained(image, configuration, files, lease, more, make_ready);
                let (router, host) = launched?;
                self.new_number();
                Ok((host, router))
            }
            (None, None) => bail!("no host"),
        }
    }
}

/// The policy of routes to stock routers: all but those with many communities.
const SHORT: &str = "[[policy]]\nname = \"short\"\nlast = { action = \"accept\" }\n[[policy.term]]\nfrom = { community = [\"64512:0\"] }\n\
                     then = \"reject\"\n";

fn peer(name: &str, special: Special, number: u8, export: &str, more: &str) -> String {
    let (address, local) = (address(special, number), service(special == Special::V6));
    format!(
        "[[bgp.peer]]\nname = \"{name}\"\naddress = \"{address}\"\nlocal-address = \"{local}\"\nasn = {}\n\
         import = \"accept-all\"\nexport = \"{export}\"\n{more}\n",
        asn(number)
    )
}

fn configuration(lease: &str, options: &Options) -> String {
    let key = if options.commit { "key-file = \"store.key\"\n" } else { "" };
    let standby = match options.standby {
        Standby::None | Standby::Cold => "cold",
        Standby::Preheated => "preheated",
    };
    let (memory, octets, export, policy) = match options.communities {
        0 => ("", "", "accept-all", ""),
        _ => ("nonstop-memory = \"8 GiB\"\n", "max-octets = \"4 GiB\"", "short", SHORT),
    };
    let mut text = format!(
        "[router]\nid = \"{}\"\nasn = {ROUTER_AS}\n[log]\nformat = \"json\"\n\
         [nonstop]\nstandby = \"{standby}\"\n\
         [[nonstop.address]]\naddress = \"{v4}/24\"\ninterface = \"{INTERFACE}\"\n\
         [[nonstop.address]]\naddress = \"{v6}/64\"\ninterface = \"{INTERFACE}\"\n[nonstop.store]\nkind = \"redis\"\naddresses = [\"{}:{PORT}\"]\nlease-directory = \"{lease}\"\n{key}\
         [bgp]\nconnect-retry = 1\nhold-time = {HOLD_TIME}\n{memory}",
        v4(SERVICE),
        v4(STORE),
        v4 = service(false),
        v6 = service(true)
    );
    for (number, special) in STOCKS {
        text += &peer(&format!("stock{number}"), special, number, export, special.router());
    }
    text += &peer(
        "feeder",
        Special::Waits,
        FEEDER,
        "accept-all",
        &format!(
            "passive = true\nfamilies = [\"ipv4-unicast\", \"ipv6-unicast\"]\nnext-hop-ipv6 = \"{}\"\n{octets}",
            service(true)
        ),
    );
    text += policy;
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
        let lease = LeaseDirectory::new("lease")?;
        let configuration = configuration(lease.path().to_str().context("a path that is text")?, options);
        let mut hosts = Hosts {
            router: None,
            other: None,
            feeder: feeder_host,
            sender,
            _store: store,
            lan,
            next: 1,
            image: match options.engine {
                Engine::Netns => None,
                Engine::Docker => Some(Image::new(&router::binary()?)?),
            },
            lease,
            files: Files::from([("store.key".to_owned(), "a secret of both routers\n".to_owned())]),
            other_build: options.other_build.clone(),
            is_other: false,
        };
        let host = hosts.new_router()?;
        let (host, router) = hosts.launch(host, &configuration, &[])?;
        router.wait_running()?;
        hosts.router = Some(host);
        let peers = Peers::start(options, &hosts.lan, &hosts.feeder, |stock| {
            router.until_established(&stock.name, LOADING).with_context(|| stock.log()).map(drop)
        })
        .with_context(|| router.log_tail())?;
        let scene = Self {
            peers,
            router,
            standby: None,
            stopped: None,
            redis,
            hosts,
            kind,
            is_preheated: options.standby == Standby::Preheated,
            configuration,
            commit: None,
            commits: 0,
            dead: Vec::new(),
        };
        scene.until_protected()?;
        Ok(scene)
    }

    /// Waits until the store has every session.
    ///
    /// # Errors
    /// It does not.
    pub fn until_protected(&self) -> Result<()> {
        wait::until("protection by the store", LOADING, || {
            let shown = self.show().map_err(|error| error.to_string())?;
            let gated = shown.matches("\"gate\":\"gated\"").count();
            let is_it = shown.contains("protection:txt=full") && gated == self.peers.judges();
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
        self.peers.packets(&self.hosts.sender, &self.hosts.feeder)
    }

    /// Has a standby wait.
    ///
    /// # Errors
    /// It does not run.
    pub fn prepare(&mut self) -> Result<()> {
        self.dead.clear();
        if let Some(standby) = &self.standby {
            // It has been stopped, and has lost the sessions.
            return if self.is_preheated { self.until_preheated(standby) } else { Ok(()) };
        }
        let standby = match self.kind {
            Kind::Keeper => {
                let host = self.hosts.router.take();
                let (host, standby) = self.hosts.launch(host, &self.configuration, &["--standby"])?;
                self.hosts.router = Some(host);
                standby.until_standby()?;
                standby
            }
            Kind::Container => {
                let host = self.hosts.new_router()?;
                let (host, standby) = self.hosts.launch(host, &self.configuration, &["--standby"])?;
                self.hosts.other = Some(host);
                standby.until_standby()?;
                standby
            }
        };
        if self.kind == Kind::Container {
            until_gate_stands(&standby)?;
        }
        if self.is_preheated && self.kind == Kind::Container {
            self.until_preheated(&standby).with_context(|| standby.log_tail())?;
        }
        self.standby = Some(standby);
        Ok(())
    }

    /// Waits until a standby has the routes of every session.
    fn until_preheated(&self, standby: &Router) -> Result<()> {
        wait::until("the routes at the standby", LOADING, || {
            let shown = standby.cli(&["call", "replicator/replicator.v1/Show"]);
            let shown = shown.map_err(|error| error.to_string())?;
            let follows = shown.contains("preheated:txt=following");
            let has_all = shown.contains(&format!("stand_ins:u32={}", self.peers.judges()));
            if follows && has_all { Ok(()) } else { Err(shown) }
        })?;
        let host = self.hosts.other.as_ref().context("a host")?;
        wait::until("the routes in its kernel", LOADING, || {
            let routes = crate::kernel::routes(host, false).map_err(|error| error.to_string())?.len();
            if routes >= self.peers.routes() as usize { Ok(()) } else { Err(format!("{routes} routes")) }
        })
    }

    /// A commit begins at the router.
    ///
    /// # Errors
    /// It cannot be executed.
    pub fn begin_commit(&mut self) -> Result<()> {
        self.commits += 1;
        let name = commit_name(self.commits);
        let lines = format!("set prefix-set.{name}.prefixes 192.0.2.0/24");
        self.commit = Some((self.commits, self.router.begin_commit(&lines, "commit")?));
        Ok(())
    }

    /// What was committed at a router that has died since runs at the next one, if the operator was told so.
    ///
    /// # Errors
    /// It does not.
    pub fn ensure_committed(&mut self) -> Result<()> {
        let Some((number, child)) = self.commit.take() else { return Ok(()) };
        let said = child.wait_with_output()?;
        let shown = self.router.cli(&["call", "manager/manager.v1/ShowConfiguration"])?;
        let runs = shown.contains(&commit_name(number));
        println!("commit {number}: {}, and {}", said.status, if runs { "runs" } else { "does not run" });
        if said.status.success() && !runs {
            bail!("commit {number} is lost: {shown}");
        }
        Ok(())
    }

    /// Kills the router, with its host if that is what the drill is about, and has the next one take over. That one dies,
    /// too, so long after it has begun to do so, and a third one takes over. When the last death was.
    ///
    /// # Errors
    /// Processes or hosts cannot be made.
    pub fn fail(&mut self, keeper_only: bool, again: Option<Duration>) -> Result<u64> {
        self.dead.clear();
        let others: Vec<Pid> = if keeper_only { Vec::new() } else { self.router.pids()? };
        // What the next one needs is made before, where it is not a part of the takeover.
        if self.standby.is_none() && self.kind == Kind::Container {
            self.hosts.other = self.hosts.new_router()?;
        }
        let mut at = self.kill(&others)?;
        if let Some(pause) = again {
            // The addresses of the dead host may be used again.
            if self.kind == Kind::Container {
                self.hosts.other = self.hosts.new_router()?;
            }
            let begins = || self.logged("lease-taken", at).map(drop).ok_or_else(|| self.router.log_tail());
            wait::until("the lease", SETTLING, begins)?;
            std::thread::sleep(pause);
            // It does not say yet which its processes are.
            at = self.kill(&[])?;
        }
        Ok(at)
    }

    /// Kills the router, with its host if that is what the drill is about, and lets the next one begin.
    fn kill(&mut self, others: &[Pid]) -> Result<u64> {
        let host = self.hosts.router.as_ref().context("a host")?;
        let (dead, port): (Option<Mac>, _) = match self.kind {
            Kind::Container => (Some(mac(host)?), Some(self.hosts.lan.port(host)?)),
            Kind::Keeper => (None, None),
        };
        let at = now();
        if dead.is_some() {
            // The next one may begin before this one is gone altogether.
            self.peers.failed(at, dead);
        }
        self.router.kill_all(others)?;
        let mut gone = None;
        if let Some(port) = port {
            self.hosts.lan.cut(&port)?;
            gone = std::mem::replace(&mut self.hosts.router, self.hosts.other.take());
        }
        self.router.wait_gone()?;
        if dead.is_none() {
            // Nothing tells the segments of the two from each other.
            self.peers.failed(at, dead);
        }
        let next = match self.standby.take() {
            Some(standby) => standby,
            None => {
                let host = self.hosts.router.take();
                let (host, router) = self.hosts.launch(host, &self.configuration, &[])?;
                self.hosts.router = Some(host);
                router
            }
        };
        self.dead.push((std::mem::replace(&mut self.router, next), gone));
        Ok(at)
    }

    /// Waits until new sessions can begin: the router listens beside the connections that were made again.
    ///
    /// # Errors
    /// It does not.
    pub fn until_listens(&self) -> Result<()> {
        let host = self.hosts.router.as_ref().context("a host")?;
        wait::until("listening sockets", SETTLING, || {
            let all = output(host.command("ss").args(["-Hltn", "sport = :179"]));
            let all = all.map_err(|error| error.to_string())?;
            if all.contains("0.0.0.0:179") && all.contains("[::]:179") { Ok(()) } else { Err(all) }
        })
        .with_context(|| self.router.log_tail())
    }

    /// What the last router that died has logged in the end, and all that the one after it has, but for a session that does not
    /// come up.
    pub fn logs(&self) -> String {
        let dead: String = self.dead.iter().map(|(router, _)| router.log_tail() + "\n").collect();
        let log = self.router.log();
        let lines: Vec<_> = log.lines().filter(|line| !line.contains("\"session-failed\"")).collect();
        let others = self.standby.iter().chain(self.stopped.iter().map(|stopped| &stopped.router));
        let others: String = others.map(|router| format!("\nbeside it: {}", router.log_tail())).collect();
        format!("{dead}{}{others}", lines.join("\n"))
    }

    /// How many routes the kernel has too many or too few of.
    ///
    /// # Errors
    /// It does not say.
    pub fn differences(&self) -> Result<usize> {
        let host = self.hosts.router.as_ref().context("a host")?;
        // The kernel may be told behind the peers.
        let until = Instant::now() + IN_STEP;
        loop {
            let differences = self.peers.differences(host)?;
            if differences == 0 || Instant::now() > until {
                return Ok(differences);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops processes of the router, and has the standby take over. When that was.
    ///
    /// # Errors
    /// There is no standby, or no such process.
    pub fn pause(&mut self, pause: Pause) -> Result<u64> {
        // Whoever is silent is killed and followed by another one before the lease is over: who would see to that is stopped as well.
        let named = |names: &[&str]| names.iter().map(|name| self.router.pid(name)).collect::<Result<_>>();
        let pids: Vec<Pid> = match pause {
            Pause::All => self.router.pids()?,
            Pause::Gate => named(&["gate", "replicator", "manager"])?,
            Pause::Replicator => named(&["replicator", "manager"])?,
        };
        let stopped = mac(self.hosts.router.as_ref().context("a host")?)?;
        let at = now();
        self.router.pause(&pids)?;
        self.peers.failed(at, Some(stopped));
        let next = self.standby.take().context("a standby")?;
        std::mem::swap(&mut self.hosts.router, &mut self.hosts.other);
        let router = std::mem::replace(&mut self.router, next);
        self.stopped = Some(Stopped { router, pids });
        Ok(at)
    }

    /// What was stopped goes on.
    ///
    /// # Errors
    /// It is not there any more.
    pub fn resume(&self) -> Result<()> {
        let Stopped { router, pids } = self.stopped.as_ref().context("a router that was stopped")?;
        for pid in pids {
            router.resume(*pid)?;
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
        router.until_standby()?;
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
}

fn commit_name(number: u32) -> String {
    format!("committed-{number}")
}

fn until_gate_stands(router: &Router) -> Result<()> {
    let stands = || router.log().contains("gate-stands").then_some(()).ok_or_else(|| router.log_tail());
    wait::until("the gate", SETTLING, stands)
}

/// Gives a host the addresses of the sessions.
pub(super) fn give_service(host: &Namespace) -> Result<()> {
    host.ip(&["address", "add", &format!("{}/24", v4(SERVICE)), "dev", INTERFACE])?;
    host.ip(&["address", "add", &format!("{}/64", v6(SERVICE)), "dev", INTERFACE, "nodad"])?;
    Ok(())
}
