//! A router, its peers, and what keeps its sessions.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{
    netns::output,
    redis::{PORT, Redis},
};
use holdfast_types::Afi;
use serde_json::Value;

use super::proxy::Proxy;
use crate::{
    cgroup::Cgroup,
    daemon::{Daemon, Setup},
    net::{Links, Net},
    rows::{Bench, HOLD},
};

/// Longest wait for protection: a whole table may have to be copied.
const LIMIT: Duration = Duration::from_secs(120);
/// Between two questions whether it is there. Each takes some of the time of a processor.
const ASKING: Duration = Duration::from_millis(20);

/// What sessions outlive.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Tier {
    /// Nothing.
    Off,
    /// The death of their process.
    One,
    /// That of their host as well: they are in a store, whose replies come so much later.
    Two { delay: Duration },
}

impl Tier {
    /// In a store that is as fast as it is.
    pub(super) const STORED: Self = Self::Two { delay: Duration::ZERO };

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Off => "nonstop off",
            Self::One => "tier 1",
            Self::Two { .. } => "tier 2",
        }
    }
}

/// A store, in the host of the router.
pub(super) struct Store {
    _proxy: Option<Proxy>,
    pub(super) server: Redis,
    cgroup: Cgroup,
}

impl Store {
    /// Processor time of the server.
    pub(super) fn cpu(&self) -> Result<Duration> {
        self.cgroup.cpu()
    }
}

/// All of it. What uses others comes before them.
pub(super) struct Scene {
    pub(super) bench: Bench,
    pub(super) store: Option<Store>,
}

/// How the replicator sees the store.
#[derive(Clone, Debug)]
pub(super) struct Status(Value);

impl Status {
    pub(super) fn number(&self, name: &str) -> Result<f64> {
        self.0[name].as_f64().with_context(|| format!("no {name} in {}", self.0))
    }

    /// Whether the store has everything, and so many sessions wait for it.
    fn is_full(&self, sessions: usize) -> bool {
        let is = |name: &str, value: &str| self.0[name] == value;
        let of = self.0["sessions"].as_array().map_or(&[][..], Vec::as_slice);
        let gated = of.iter().filter(|session| session["protected"] == true && session["gate"] == "gated");
        is("protection", "full") && is("phase", "whole") && gated.count() == sessions
    }
}

impl Scene {
    /// Starts Holdfast with so many peers, and waits until their sessions are kept as they are to be.
    pub(super) fn ours(tier: Tier, peers: usize, change: impl FnOnce(&mut Setup)) -> Result<Self> {
        let name = if tier == Tier::Off { "holdfast-plain" } else { "holdfast" };
        let daemon = Daemon::all(&[])?.into_iter().find(|daemon| daemon.name == name);
        let net = Net::new(peers, Afi::IPV4, Links::Few)?;
        let mut store = None;
        if let Tier::Two { delay } = tier {
            let server = Redis::start(Some(&net.router), &[])?;
            let cgroup = Cgroup::new("store")?;
            cgroup.take(server.pid()?.as_raw_nonzero().get() as u32)?;
            let proxy = match delay.is_zero() {
                true => None,
                false => Some(Proxy::start(&net.router, &server.socket(), delay)?),
            };
            store = Some(Store { _proxy: proxy, server, cgroup });
        }
        let port = match tier {
            Tier::Two { delay } if !delay.is_zero() => super::proxy::PORT,
            _ => PORT,
        };
        let at = store.is_some().then(|| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        let bench = Bench::on(net, &daemon.context("Holdfast is described")?, (Afi::IPV4, HOLD), |setup| {
            setup.store = at;
            change(setup);
        })?;
        let mut scene = Self { bench, store };
        if scene.store.is_some() {
            scene.until_full(0.0)?;
        }
        Ok(scene)
    }

    /// What the replicator says.
    pub(super) fn status(&self) -> Result<Status> {
        let setup = &self.bench.running.setup;
        let mut command = std::process::Command::new(&setup.holdfast);
        command.args(["show", "nsr", "--json"]).env("HOLDFAST_RUNTIME_DIR", &setup.directory);
        let mut all: Value = serde_json::from_str(&output(&mut command)?)?;
        Ok(Status(all["store"].take()))
    }

    /// Waits until the store has everything, and has lost so much in all; when that was, at most [`ASKING`] late.
    pub(super) fn until_full(&mut self, losses: f64) -> Result<(Instant, Status)> {
        let (start, sessions) = (Instant::now(), self.bench.load.sessions.len());
        loop {
            let status = self.status()?;
            if status.is_full(sessions) && status.number("losses")? >= losses {
                return Ok((Instant::now(), status));
            }
            ensure!(start.elapsed() < LIMIT, "no protection by the store: {}", status.0);
            self.bench.load.rest(ASKING)?;
        }
    }
}
