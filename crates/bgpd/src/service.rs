//! `bgp.v1`: configured by the manager, asked by the operator.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    bgp::v1::{
        self as api, BgpServer, ClearReply, ClearRequest, ConfigureReply, Empty, Neighbor as ShownNeighbor,
        Paths, ShowNeighborsRequest, ShowRouteRequest, ShowRoutesRequest, ShutdownRequest, Summary,
    },
    keeper::v1::KeeperClient,
};
use holdfast_bgp_pipeline::{PeerIndex, Pipeline};
use holdfast_bgp_session::{Input, StopReason};
use holdfast_process::{Resolver, spawn_task};
use holdfast_types::{Family, Prefix};
use holdfast_xrl::{CallContext, ReplySink, XrlError};
use tokio::task::AbortHandle;
use tracing::{info, warn};

use crate::{
    apply,
    config::{Configuration, Policies, listen_address},
    rib, show,
    speaker::Speaker,
    tasks::{Bgp, listen, seed},
};

/// Prefixes in one reply of a stream.
const ROWS: usize = 256;
/// How long sessions may take to say goodbye at a shutdown.
const GOODBYE: Duration = Duration::from_secs(5);

/// Serves `bgp.v1`.
pub(crate) struct Server {
    resolver: Resolver,
    keeper: KeeperClient,
    policies: RefCell<Policies>,
    running: RefCell<Option<Running>>,
}

/// What a configuration has set going.
struct Running {
    bgp: Rc<Bgp>,
    /// Feeds the rib.
    rib: Option<AbortHandle>,
    networks: Vec<Prefix>,
    listeners: BTreeMap<std::net::SocketAddr, AbortHandle>,
}

impl Server {
    pub(crate) fn new(resolver: Resolver, keeper: KeeperClient) -> Self {
        Self { resolver, keeper, policies: RefCell::default(), running: RefCell::default() }
    }

    fn bgp(&self) -> Result<Rc<Bgp>, XrlError> {
        let running = self.running.borrow();
        let running =
            running.as_ref().ok_or_else(|| XrlError::unavailable("bgp has no configuration yet"))?;
        Ok(Rc::clone(&running.bgp))
    }

    fn start(&self, configuration: &Configuration) -> Running {
        let settings = configuration.settings.clone();
        let pipeline = Pipeline::new(settings.pipeline(seed()));
        let with_rib = settings.rib;
        let speaker = Speaker::new(settings, pipeline, Instant::now());
        let bgp = Bgp::new(speaker, self.resolver.clone(), self.keeper.clone());
        let rib = with_rib.then(|| spawn_task(rib::run(Rc::clone(&bgp))).abort_handle());
        Running { bgp, rib, networks: Vec::new(), listeners: BTreeMap::new() }
    }
}

impl Running {
    /// Makes what runs what is configured. Peers that have not changed are not touched. The sessions that ended.
    fn apply(&mut self, configuration: Configuration) -> Result<Vec<String>, XrlError> {
        let Configuration { settings, peers, networks, listen: listeners } = configuration;
        if self.bgp.speaker.borrow().settings != settings {
            return Err(XrlError::failed_precondition(
                "AS number, router id and the other settings of the whole speaker change with a restart of bgp only",
            ));
        }
        let ended = self.bgp.with(|speaker, now| {
            let ended = apply::peers(speaker, &peers, now);
            apply::networks(speaker, &self.networks, &networks);
            ended
        });
        self.networks = networks;
        *self.bgp.ranges.borrow_mut() = peers.ranges;
        self.change_listeners(listeners);
        Ok(ended)
    }

    /// The rib hears no more of us. What becomes of the routes that it has is for others to decide.
    fn leave_rib(&mut self) {
        if let Some(task) = self.rib.take() {
            task.abort();
            self.bgp.with(|speaker, _| speaker.pipeline.rib_detach());
        }
    }

    fn change_listeners(&mut self, wanted: Vec<api::ListenAddress>) {
        let wanted: BTreeMap<_, _> =
            wanted.into_iter().map(|request| (listen_address(&request), request)).collect();
        self.listeners.retain(|address, task| {
            let stays = wanted.contains_key(address);
            if !stays {
                task.abort();
            }
            stays
        });
        for (address, request) in wanted {
            self.listeners
                .entry(address)
                .or_insert_with(|| spawn_task(listen(Rc::clone(&self.bgp), request)).abort_handle());
        }
    }
}

impl BgpServer for Server {
    async fn configure(
        &self,
        _: &CallContext,
        request: api::Configuration,
    ) -> Result<ConfigureReply, XrlError> {
        let configuration = Configuration::read(request, &mut self.policies.borrow_mut())?;
        let mut running = self.running.borrow_mut();
        let running = running.get_or_insert_with(|| self.start(&configuration));
        Ok(ConfigureReply { ended: running.apply(configuration)? })
    }

    async fn shutdown(&self, _: &CallContext, request: ShutdownRequest) -> Result<Empty, XrlError> {
        let Ok(bgp) = self.bgp() else { return Ok(Empty {}) };
        info!("closing all sessions");
        if let Some(running) = &mut *self.running.borrow_mut() {
            running.change_listeners(Vec::new());
            // The end of the sessions is no reason to withdraw routes: the kernel may be meant to keep them.
            running.leave_rib();
        }
        bgp.with(|speaker, now| speaker.shut_down(&request.text, now));
        let quiet = async {
            while !bgp.speaker.borrow().is_quiet() {
                bgp.closed.notified().await;
            }
        };
        if tokio::time::timeout(GOODBYE, quiet).await.is_err() {
            warn!("not all peers took our goodbye in time");
        }
        Ok(Empty {})
    }

    async fn show_summary(&self, _: &CallContext, _: Empty) -> Result<Summary, XrlError> {
        Ok(show::summary(&self.bgp()?.speaker.borrow(), Instant::now()))
    }

    async fn show_neighbors(
        &self,
        _: &CallContext,
        request: ShowNeighborsRequest,
        mut replies: ReplySink<ShownNeighbor>,
    ) -> Result<(), XrlError> {
        let bgp = self.bgp()?;
        let indexes = match request.peer.as_str() {
            "" => bgp.speaker.borrow().slots.keys().copied().collect(),
            peer => vec![find(&bgp, peer)?],
        };
        for index in indexes {
            let neighbor = show::neighbor(&bgp.speaker.borrow(), index, Instant::now());
            // A peer of a listen range may have gone meanwhile.
            if let Some(neighbor) = neighbor {
                replies.send(neighbor).await?;
            }
        }
        Ok(())
    }

    async fn show_routes(
        &self,
        _: &CallContext,
        request: ShowRoutesRequest,
        mut replies: ReplySink<Paths>,
    ) -> Result<(), XrlError> {
        let bgp = self.bgp()?;
        let peer = match request.peer.as_str() {
            "" => None,
            peer => Some(find(&bgp, peer)?),
        };
        for family in Family::ALL {
            if request.afi != 0 && u32::from(family.afi.0) != request.afi {
                continue;
            }
            let mut after = None;
            loop {
                let rows = bgp.speaker.borrow_mut().pipeline.routes(family, after, ROWS);
                let Some((last, _)) = rows.last() else { break };
                after = Some(*last);
                let prefixes = show::prefixes(&bgp.speaker.borrow(), rows, peer);
                if !prefixes.is_empty() {
                    replies.send(Paths { prefixes, advertised_to: Vec::new() }).await?;
                }
                // A reader that is fast enough would otherwise keep everybody else waiting.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn show_route(&self, _: &CallContext, request: ShowRouteRequest) -> Result<Paths, XrlError> {
        let bgp = self.bgp()?;
        let mut speaker = bgp.speaker.borrow_mut();
        let text = &request.destination;
        let found = match (text.parse::<Prefix>(), text.parse::<IpAddr>()) {
            (Ok(prefix), _) => Some(prefix),
            (_, Ok(address)) => speaker.pipeline.longest_match(Prefix::host(address)),
            (Err(error), Err(_)) => return Err(XrlError::invalid_argument(error.to_string())),
        };
        let missing = || XrlError::not_found(format!("no route to {text}"));
        let prefix = found.ok_or_else(missing)?;
        let views = speaker.pipeline.explain(prefix);
        if views.is_empty() {
            return Err(missing());
        }
        let told = speaker.pipeline.advertised_to(prefix);
        let name = |index| speaker.slots.get(index).map(|slot| slot.neighbor.name.clone());
        let advertised_to = told.iter().filter_map(name).collect();
        Ok(Paths { prefixes: show::prefixes(&speaker, vec![(prefix, views)], None), advertised_to })
    }

    async fn clear(&self, _: &CallContext, request: ClearRequest) -> Result<ClearReply, XrlError> {
        let bgp = self.bgp()?;
        let indexes: Vec<_> = match request.peer.as_str() {
            "*" => bgp.speaker.borrow().slots.keys().copied().collect(),
            peer => vec![find(&bgp, peer)?],
        };
        let cleared = bgp.with(|speaker, now| {
            let mut cleared = Vec::new();
            for index in indexes {
                let Some(slot) = speaker.slots.get(&index) else { continue };
                cleared.push(slot.neighbor.name.clone());
                if request.soft {
                    for family in slot.neighbor.families() {
                        speaker.pipeline.route_refresh(index, family);
                    }
                } else {
                    let reason = StopReason::AdminReset("cleared by the operator".into());
                    speaker.input(index, Input::Stop(reason), now);
                }
            }
            cleared
        });
        Ok(ClearReply { cleared })
    }
}

fn find(bgp: &Rc<Bgp>, peer: &str) -> Result<PeerIndex, XrlError> {
    let found = bgp.speaker.borrow().peer_named(peer);
    found.ok_or_else(|| XrlError::not_found(format!("there is no peer {peer:?}")))
}
