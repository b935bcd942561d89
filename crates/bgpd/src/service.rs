//! `bgp.v1`: configured by the manager, asked by the operator.

use std::{
    cell::RefCell,
    fmt::Display,
    net::IpAddr,
    os::fd::OwnedFd,
    rc::Rc,
    str::FromStr,
    time::{Duration, Instant},
};

use holdfast_api::bgp::v1::{
    self as api, AggregatesReply, BgpClient, BgpDispatcher, BgpServer, ClearDampenedRequest, ClearReply,
    ClearRequest, ConfigureReply, Dampened, Empty, Neighbor as ShownNeighbor, NsrReply, Paths, PolicyReply,
    RangesReply, ShowDampenedRequest, ShowNeighborRoutesRequest, ShowNeighborsRequest, ShowRangesRequest,
    ShowRouteRequest, ShowRoutesRequest, ShutdownRequest, SigningReply, StartPeerRequest, StopPeerRequest,
    Summary, TracePolicyReply, TracePolicyRequest, WatchRequest, Watched,
};
use holdfast_bgp_pipeline::{
    AggregateConfig, PathView, PeerIndex, Pipeline, SignatureStore, SigningCounts, Stage,
};
use holdfast_bgp_wire::notification::MAX_TEXT;
use holdfast_damping::Damping;
use holdfast_policy::{PathSecurity, PathValidity, Program, Validity};
use holdfast_process::{
    Prepare, Prepared, Refusal, hash_key,
    preparation::{self, Part},
    serve_preparation, spawn_task,
};
use holdfast_types::{Family, Prefix};
use holdfast_xrl::{CallContext, Node, ReplySink, XrlError};
use tokio::task::AbortHandle;
use tracing::{Instrument, info, warn};

use crate::{
    apply,
    bgp::Bgp,
    config::{Configuration, Neighbor, Peers, Policies, Range, Settings},
    context::{Context, Plugs},
    custody::FdStore,
    door, freeze, kept_signatures,
    location::Location,
    neighbors,
    nonstop::LogJournal,
    points::Points,
    policy::{self, Asked},
    redistribute,
    redistribution::Wanted,
    rib,
    roster::{Present, Stopped},
    show,
    speaker::Speaker,
    takeover::{self, Configured},
    tasks,
    vrf::Vrfs,
    watch,
};

/// Prefixes in one reply of a stream.
const ROWS: usize = 256;
/// Pages without a route in a row; then there is a sign of life.
const SILENT_PAGES: usize = 64;
/// How long sessions may take to say goodbye at a shutdown.
const GOODBYE: Duration = Duration::from_secs(5);
/// How often it is looked whether the tables of a VRF that is gone are empty, and how long they may take.
const SWEEP_LOOK: Duration = Duration::from_millis(10);
const SWEEP: Duration = Duration::from_secs(60);

/// Serves `bgp.v1`: for the default table, or for a VRF.
pub(crate) struct Server {
    surroundings: Context,
    plugs: Plugs,
    /// The others, for the default table's.
    vrfs: Option<Vrfs>,
    policies: RefCell<Policies>,
    /// What may come next.
    prepared: Prepared<Option<Policies>>,
    running: RefCell<Option<Running>>,
    /// One configuration at a time.
    configuring: tokio::sync::Mutex<()>,
}

/// What a configuration has set going.
struct Running {
    bgp: Rc<Bgp>,
    /// Feeds the rib.
    rib: Option<AbortHandle>,
    networks: Vec<Prefix>,
    aggregates: Vec<AggregateConfig>,
    /// Follows the rib's word on other protocols' routes.
    redistribution: Option<(Wanted, AbortHandle)>,
    rib_policy: Option<Program>,
    /// Takes the connections that the door lets in.
    accepting: Option<AbortHandle>,
    /// Hears of the neighbours of peers without address, if there are such.
    neighbors: Option<AbortHandle>,
}

impl Server {
    pub(crate) fn new(surroundings: Context, plugs: Plugs, vrfs: Option<Vrfs>) -> Self {
        Self {
            surroundings,
            plugs,
            vrfs,
            policies: RefCell::default(),
            prepared: Prepared::default(),
            running: RefCell::default(),
            configuring: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn bgp(&self) -> Result<Rc<Bgp>, XrlError> {
        let running = self.running.borrow();
        let running =
            running.as_ref().ok_or_else(|| XrlError::unavailable("bgp has no configuration yet"))?;
        Ok(Rc::clone(&running.bgp))
    }

    /// The speakers of VRFs, if this is for the default table.
    #[cfg(test)]
    pub(crate) fn vrfs(&self) -> Option<&Vrfs> {
        self.vrfs.as_ref()
    }

    fn damping(&self) -> Result<(Rc<Bgp>, Rc<RefCell<Damping>>), XrlError> {
        let bgp = self.bgp()?;
        let damping = bgp.speaker.borrow().damping.clone();
        let missing = || XrlError::failed_precondition("no route is damped: there is no [bgp.damping]");
        Ok((bgp, damping.ok_or_else(missing)?))
    }

    /// With what the process before has left.
    async fn start(&self, configuration: &Configuration) -> Result<Running, XrlError> {
        let settings = configuration.settings.clone();
        let custody = &self.surroundings.custody;
        let now = Instant::now();
        let damping = settings.damping.map(|parameters| Rc::new(RefCell::new(Damping::new(parameters, now))));
        let own = damping.iter().map(|damping| Box::new(Rc::clone(damping)) as Box<dyn Stage>);
        let stages = own.chain((self.plugs.stages)()).collect();
        let quarantine = &self.surroundings.quarantine;
        let stages = quarantine.plug(stages).await?;
        let rewriters = quarantine.plug_rewriters((self.plugs.rewriters)()).await?;
        let opened = match settings.nonstop {
            // What a stage is to blame for, nothing that was received is.
            Some(octets) if self.surroundings.quarantine.is_new() => {
                Some(takeover::open(custody, octets).await?.without_suspicion())
            }
            Some(octets) => Some(takeover::open(custody, octets).await?),
            None => takeover::open_last(custody).await?,
        };
        let was_busy = self.surroundings.turns.progress.last_was_busy;
        let opened = opened.map(|opened| if was_busy { opened.after_work() } else { opened });
        let before = custody.peers().await?;
        let present = Self::present(custody, before).await;
        let stopped = Self::stopped(custody).await?;
        let mut pipeline = Pipeline::new(settings.pipeline(hash_key()));
        if let Some(store) = self.signatures(configuration).await {
            pipeline.keep_signatures(store);
        }
        let log = opened.as_ref().map(|opened| Rc::clone(&opened.log));
        if let Some(log) = &log {
            log.keeps_sent.set(configuration.holds_sent);
            pipeline.keep_journal(Box::new(LogJournal(Rc::clone(log))));
        }
        stages.into_iter().for_each(|stage| pipeline.add_stage(stage, now));
        rewriters.into_iter().for_each(|(slot, stage)| pipeline.add_rewriter(slot, stage));
        pipeline.set_rib_policy(configuration.rib_policy.clone());
        pipeline.set_aggregates(&configuration.aggregates);
        let with_rib = settings.rib;
        let mut speaker = Speaker::new(settings, pipeline, stopped, now);
        (speaker.protection.log, speaker.damping) = (log.clone(), damping);
        speaker.sessions.set_routes_kept(configuration.routes_kept);
        if let Some((present, is_known)) = present {
            let configured = Configured::new(configuration);
            let expected = |location: &Location| configured.find(location).map(|found| found.1);
            speaker.sessions.set_present(present, is_known, expected);
        }
        speaker.tell_of_progress(self.surroundings.turns.progress.finished, &self.surroundings.turns.waiters);
        speaker.reporter.points = Points::of(&self.surroundings.profile);
        let bgp = tasks::start(speaker, self.surroundings.clone());
        bgp.redistribution.borrow_mut().expect(&configuration.redistribute);
        // Before any route is there.
        if configuration.validates {
            self.surroundings.validation.recover().await;
        }
        self.surroundings.validation.set(&bgp, configuration.validates);
        if let Some(log) = log {
            bgp.spawn_for_life(freeze::run(Rc::clone(&bgp), log));
        }
        if let Some(opened) = opened {
            takeover::resume(&bgp, opened, configuration).await;
        }
        bgp.with(|speaker, now| apply::stopped(speaker, configuration, now));
        let rib = with_rib.then(|| bgp.spawn(rib::run(Rc::clone(&bgp))));
        let rib_policy = configuration.rib_policy.clone();
        Ok(Running {
            bgp,
            rib,
            networks: Vec::new(),
            aggregates: configuration.aggregates.clone(),
            redistribution: None,
            rib_policy,
            accepting: None,
            neighbors: None,
        })
    }

    /// Where signatures of ours are kept, if any are made. Without memory for it each is made anew for whoever asks.
    async fn signatures(&self, configuration: &Configuration) -> Option<Box<dyn SignatureStore>> {
        let kept = configuration.signing.kept;
        match kept_signatures::open(&self.surroundings.custody, &configuration.peers, kept).await {
            Ok(signatures) => Some(Box::new(kept_signatures::Store(signatures?))),
            Err(error) => {
                warn!(event = "signatures-not-kept", "no signature of ours is kept: {error}");
                None
            }
        }
    }

    /// Whose routes were here, and whether that is known; without memory for it the next process waits for everybody.
    async fn present(custody: &FdStore, before: Option<OwnedFd>) -> Option<(Present, bool)> {
        match before.map(Present::recover) {
            Some(Ok(Some(present))) => return Some((present, true)),
            Some(Err(error)) => {
                warn!(event = "peers-unknown", "whose routes were here is not known: {error}");
            }
            Some(Ok(None)) | None => {}
        }
        let created =
            Present::create("holdfast-peers").and_then(|present| Ok((present.descriptor()?, present)));
        let kept = match created {
            Ok((copy, present)) => {
                custody.put_peers(copy).await.map(|()| present).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match kept {
            Ok(present) => Some((present, false)),
            Err(error) => {
                warn!(
                    event = "peers-unknown",
                    "the next process will not know whose routes are here: {error}"
                );
                None
            }
        }
    }

    /// Whom the operator keeps down.
    async fn stopped(custody: &FdStore) -> Result<Stopped, XrlError> {
        match custody.stopped().await?.map(Stopped::recover) {
            Some(Ok(Some(stopped))) => return Ok(stopped),
            Some(Ok(None)) => warn!(event = "stops-unknown", "it is not known which peers were stopped"),
            Some(Err(error)) => {
                warn!(event = "stops-unknown", "it is not known which peers were stopped: {error}");
            }
            None => {}
        }
        let created =
            Stopped::create("holdfast-stopped").and_then(|stopped| Ok((stopped.descriptor()?, stopped)));
        let (copy, stopped) =
            created.map_err(|error| XrlError::internal(format!("memory for stopped peers: {error}")))?;
        custody.put_stopped(copy).await?;
        Ok(stopped)
    }

    async fn take_configuration(&self, configuration: Configuration) -> Result<Vec<String>, XrlError> {
        if self.running.borrow().is_none() {
            let started = self.start(&configuration).await?;
            self.running.replace(Some(started));
        } else if !self.bgp()?.speaker.borrow().pipeline.keeps_signatures()
            && let Some(store) = self.signatures(&configuration).await
        {
            self.bgp()?.with(|speaker, _| speaker.pipeline.keep_signatures(store));
        }
        let bgp = self.bgp()?;
        if let Some(octets) = configuration.settings.nonstop
            && bgp.speaker.borrow().protection.log.is_none()
        {
            self.protect(&bgp, octets).await?;
        }
        let gone = || XrlError::internal("bgp has just started");
        self.running.borrow_mut().as_mut().ok_or_else(gone)?.begin(&configuration)?;
        let ended = apply::peers(&bgp, &configuration.peers).await;
        self.running.borrow_mut().as_mut().ok_or_else(gone)?.finish(configuration);
        Ok(ended)
    }

    /// From now on sessions that come up outlive this process; of those that are up it is not known what they have been
    /// told.
    async fn protect(&self, bgp: &Rc<Bgp>, octets: u64) -> Result<(), XrlError> {
        let log = takeover::open(&self.surroundings.custody, octets).await?.log;
        bgp.with(|speaker, _| {
            speaker.pipeline.keep_journal(Box::new(LogJournal(Rc::clone(&log))));
            speaker.protection.log = Some(Rc::clone(&log));
        });
        bgp.spawn_for_life(freeze::run(Rc::clone(bgp), log));
        Ok(())
    }

    /// Ends all sessions; returns when their peers have been told so, or have had their time.
    async fn close(&self, text: &str) {
        let Ok(bgp) = self.bgp() else { return };
        info!(event = "sessions-closing", "closing all sessions");
        if let Some(running) = &mut *self.running.borrow_mut() {
            running.accept(false);
            // The end of the sessions is no reason to withdraw routes: the kernel may be meant to keep them.
            running.leave_rib();
        }
        bgp.with(|speaker, now| speaker.shut_down(text, now));
        quiet(&bgp).await;
    }

    /// The VRF is gone from the configuration. Returns as [`close`](Self::close) does, the names of those whose sessions
    /// were up; then the tables are emptied in slices.
    pub(crate) async fn end(&self) -> Vec<String> {
        let _turn = self.configuring.lock().await;
        let Some(mut running) = self.running.take() else { return Vec::new() };
        let span = self.surroundings.span.clone();
        let ended = running.withdraw().instrument(span).await;
        if let Err(error) = self.surroundings.custody.drop_all().await {
            warn!(event = "custody-kept", "the keeper does not give up what it has of a VRF: {error}");
        }
        spawn_task(running.sweep());
        ended
    }
}

/// Returns when all connections are closed, or have had their time.
async fn quiet(bgp: &Bgp) {
    let quiet = async {
        while !bgp.speaker.borrow().sessions.is_quiet() {
            bgp.closed.notified().await;
        }
    };
    if tokio::time::timeout(GOODBYE, quiet).await.is_err() {
        warn!(event = "sessions-closing-late", "not all peers took our goodbye in time");
    }
}

impl Running {
    /// Makes the settings and our own routes what is configured; the peers come next, then [`Self::finish`]. Sessions that go
    /// on find our routes here when what they were told is compared.
    fn begin(&mut self, configuration: &Configuration) -> Result<(), XrlError> {
        let Configuration { settings, peers, signing, holds_sent, networks, aggregates, .. } = configuration;
        let &Settings { decision, as_sets, nonstop, .. } = settings;
        let fixed = Settings { decision, as_sets, nonstop, ..self.bgp.speaker.borrow().settings.clone() };
        if fixed != *settings {
            return Err(XrlError::failed_precondition(
                "AS number, router id and the other settings of the whole speaker change with a restart of bgp only",
            ));
        }
        self.bgp.with(|speaker, now| {
            (speaker.settings.decision, speaker.settings.nonstop) = (decision, nonstop);
            speaker.pipeline.set_decision(decision);
            speaker.pipeline.set_kept_signatures(signing.kept);
            speaker.pipeline.set_signing_rate(signing.rate);
            speaker.pipeline.set_bgpsec_pace(signing.pace);
            speaker.protection.log.iter().for_each(|log| log.keeps_sent.set(*holds_sent));
            speaker.change_as_sets(as_sets, now);
            apply::rename_ranges(speaker, &self.bgp.ranges.borrow(), &peers.ranges);
            apply::networks(speaker, &self.networks, networks);
            if self.aggregates != *aggregates {
                speaker.pipeline.set_aggregates(aggregates);
            }
        });
        self.networks.clone_from(networks);
        self.aggregates.clone_from(aggregates);
        Ok(())
    }

    /// The same of what is beside the peers.
    fn finish(&mut self, configuration: Configuration) {
        let Configuration { peers, redistribute, rib_policy, validates, .. } = configuration;
        door::refit(&self.bgp, &peers.refit);
        self.bgp.surroundings.validation.set(&self.bgp, validates);
        self.change_redistribution(redistribute);
        self.change_rib_policy(rib_policy);
        let are_on_links = peers.neighbors.iter().any(Neighbor::is_on_link);
        *self.bgp.ranges.borrow_mut() = peers.ranges;
        self.accept(true);
        self.hear_neighbors(are_on_links);
    }

    fn hear_neighbors(&mut self, wanted: bool) {
        match (wanted, &self.neighbors) {
            (true, None) => {
                self.neighbors = Some(self.bgp.spawn(neighbors::run(Rc::clone(&self.bgp))));
            }
            (false, Some(task)) => {
                task.abort();
                self.neighbors = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// The rib is asked again for everything; what stays is not touched.
    fn change_redistribution(&mut self, wanted: Wanted) {
        let before = self.redistribution.as_ref().map(|(wanted, _)| wanted);
        if before.map_or(wanted.is_empty(), |before| *before == wanted) {
            return;
        }
        let task = self.bgp.spawn(redistribute::run(Rc::clone(&self.bgp), wanted.clone()));
        if let Some((_, earlier)) = self.redistribution.replace((wanted, task)) {
            earlier.abort();
        }
    }

    /// The rib is told everything again; what stays is not touched there.
    fn change_rib_policy(&mut self, policy: Option<Program>) {
        if self.rib_policy == policy {
            return;
        }
        self.rib_policy.clone_from(&policy);
        let fed = self.rib.is_some();
        self.leave_rib();
        self.bgp.with(|speaker, _| speaker.pipeline.set_rib_policy(policy));
        self.rib = fed.then(|| self.bgp.spawn(rib::run(Rc::clone(&self.bgp))));
    }

    /// The rib hears no more of us. What becomes of the routes that it has is for others to decide.
    fn leave_rib(&mut self) {
        if let Some(task) = self.rib.take() {
            task.abort();
            self.bgp.with(|speaker, _| speaker.pipeline.rib_detach());
        }
    }

    fn accept(&mut self, wanted: bool) {
        match (wanted, &self.accepting) {
            (true, None) => self.accepting = Some(self.bgp.spawn(door::accept(Rc::clone(&self.bgp)))),
            (false, Some(task)) => {
                task.abort();
                self.accepting = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Has no peers any more, nor routes of its own; as [`Server::end`].
    async fn withdraw(&mut self) -> Vec<String> {
        self.accept(false);
        self.hear_neighbors(false);
        self.leave_rib();
        self.change_redistribution(Wanted::new());
        self.bgp.surroundings.validation.set(&self.bgp, false);
        self.bgp.ranges.borrow_mut().clear();
        let networks = std::mem::take(&mut self.networks);
        self.bgp.with(|speaker, _| {
            apply::networks(speaker, &networks, &[]);
            speaker.pipeline.set_aggregates(&[]);
        });
        let ended = apply::peers(&self.bgp, &Peers::default()).await;
        quiet(&self.bgp).await;
        ended
    }

    /// Waits until nothing is in the tables: a large one is not forgotten at once.
    async fn sweep(self) {
        let swept = async {
            while !self.bgp.speaker.borrow().is_empty() {
                tokio::time::sleep(SWEEP_LOOK).await;
            }
        };
        let _ = tokio::time::timeout(SWEEP, swept).await;
        self.bgp.end();
    }
}

/// What a server says of another configuration. It keeps its policies, which take long to compile.
struct Judge(Rc<Server>);

impl Prepare for Judge {
    type Prepared = Option<Policies>;

    async fn prepare(&self, parts: Vec<Part>) -> Result<Option<Policies>, Refusal> {
        let mut kept = None;
        for part in parts {
            let message = preparation::read::<BgpClient>(&part.configuration)?;
            let now = self.0.policies.borrow().clone();
            let (_, policies) = now.clone().read(message, None).await?;
            // Those of a VRF that is yet to come are for its own server.
            if part.vrf == self.0.surroundings.vrf().unwrap_or_default() {
                kept = Some(policies).filter(|policies| policies.differ_from(&now));
            }
        }
        Ok(kept)
    }
}

/// Serves a table, and has the manager ask it what it says of another configuration.
pub(crate) fn serve(node: &Node, server: &Rc<Server>) {
    serve_preparation(node, Judge(Rc::clone(server)), server.prepared.clone());
    node.serve(BgpDispatcher(Rc::clone(server)));
}

impl BgpServer for Server {
    async fn configure(
        &self,
        _: &CallContext,
        request: api::Configuration,
    ) -> Result<ConfigureReply, XrlError> {
        let is_checked = request.consistency_check;
        let _turn = self.configuring.lock().await;
        let (now, prepared) = (self.policies.borrow().clone(), self.prepared.take().flatten());
        let (mut configuration, policies) = now.read(request, prepared).await?;
        self.policies.replace(policies);
        let vrfs = std::mem::take(&mut configuration.vrfs);
        let span = self.surroundings.span.clone();
        let mut ended = self.take_configuration(configuration).instrument(span).await?;
        self.bgp()?.with(|speaker, _| speaker.pipeline.check_consistency(is_checked));
        match &self.vrfs {
            Some(ours) => ended.extend(ours.follow(&vrfs).await?),
            None if vrfs.is_empty() => {}
            None => return Err(XrlError::invalid_argument("a VRF has no VRFs")),
        }
        Ok(ConfigureReply { ended, quarantined: self.surroundings.quarantine.left_out() })
    }

    async fn shutdown(&self, _: &CallContext, request: ShutdownRequest) -> Result<Empty, XrlError> {
        let close = |server: Rc<Self>| {
            let (text, span) = (request.text.clone(), server.surroundings.span.clone());
            spawn_task(async move { server.close(&text).await }.instrument(span))
        };
        let vrfs: Vec<_> = self.vrfs.iter().flat_map(Vrfs::servers).map(close).collect();
        self.close(&request.text).await;
        for closed in vrfs {
            // One whose task has panicked has ended the process.
            let _ = closed.await;
        }
        Ok(Empty {})
    }

    async fn show_summary(&self, _: &CallContext, _: Empty) -> Result<Summary, XrlError> {
        Ok(show::summary(&self.bgp()?.speaker.borrow(), Instant::now()))
    }

    async fn show_aggregates(&self, _: &CallContext, _: Empty) -> Result<AggregatesReply, XrlError> {
        let bgp = self.bgp()?;
        let aggregates = bgp.speaker.borrow().pipeline.aggregates();
        Ok(AggregatesReply { aggregates: aggregates.into_iter().map(show::aggregate).collect() })
    }

    async fn show_signing(&self, _: &CallContext, _: Empty) -> Result<SigningReply, XrlError> {
        let SigningCounts { kept, lost, waiting, octets } =
            self.bgp()?.speaker.borrow().pipeline.signing_counts();
        Ok(SigningReply { kept, lost, waiting, memory_octets: octets as u64 })
    }

    async fn show_neighbors(
        &self,
        _: &CallContext,
        request: ShowNeighborsRequest,
        mut replies: ReplySink<ShownNeighbor>,
    ) -> Result<(), XrlError> {
        let bgp = self.bgp()?;
        let indexes = match request.peer.as_str() {
            "" => bgp.speaker.borrow().sessions.indexes(),
            peer => vec![find(&bgp, peer)?],
        };
        for index in indexes {
            replies.ready().await?;
            let neighbor = show::neighbor(&bgp.speaker.borrow(), index, Instant::now());
            // A peer of a listen range may have gone meanwhile.
            if let Some(neighbor) = neighbor {
                replies.send(neighbor).await?;
            }
        }
        Ok(())
    }

    async fn show_ranges(
        &self,
        _: &CallContext,
        request: ShowRangesRequest,
    ) -> Result<RangesReply, XrlError> {
        let bgp = self.bgp()?;
        let (speaker, ranges) = (bgp.speaker.borrow(), bgp.ranges.borrow());
        let wanted = |range: &&Range| {
            let (name, network) = (&range.template.source.name, range.network.to_string());
            ["", name, &network].contains(&request.range.as_str())
        };
        let ranges: Vec<_> = ranges.iter().filter(wanted).map(|range| show::range(&speaker, range)).collect();
        if ranges.is_empty() && !request.range.is_empty() {
            return Err(XrlError::not_found(format!("there is no listen range {:?}", request.range)));
        }
        Ok(RangesReply { ranges })
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
        let validity = read_state::<Validity>(&request.validity)?;
        let aspa = read_state::<PathValidity>(&request.aspa)?;
        let bgpsec = read_state::<PathSecurity>(&request.bgpsec)?;
        let wanted = |view: &PathView| {
            (peer.is_none() || view.peer == peer)
                && (validity.is_none() || view.states.map(|states| states.validity) == validity)
                && (aspa.is_none() || view.states.map(|states| states.path) == aspa)
                && bgpsec.is_none_or(|state| view.states.unwrap_or_default().signatures == state)
        };
        let mut silent = 0;
        for family in Family::ALL {
            if request.afi != 0 && u32::from(family.afi.0) != request.afi {
                continue;
            }
            let mut after = None;
            loop {
                // Rows are made for who takes them: a reader may have many answers that it does not read.
                replies.ready().await?;
                let rows = bgp.speaker.borrow_mut().pipeline.routes(family, after, ROWS);
                let Some((last, _)) = rows.last() else { break };
                after = Some(*last);
                let prefixes = show::prefixes(&bgp.speaker.borrow(), rows, wanted);
                send_page(&mut replies, prefixes, &mut silent).await?;
                // A reader that is fast enough would otherwise keep everybody else waiting.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn show_neighbor_routes(
        &self,
        _: &CallContext,
        request: ShowNeighborRoutesRequest,
        mut replies: ReplySink<Paths>,
    ) -> Result<(), XrlError> {
        let bgp = self.bgp()?;
        let index = find(&bgp, &request.peer)?;
        let view = show::view(request.view());
        let session = bgp.speaker.borrow().pipeline.shown_session(index, view);
        let Some(session) = session else { return Ok(()) };
        let wanted = |family: &Family| request.afi == 0 || u32::from(family.afi.0) == request.afi;
        let mut silent = 0;
        for family in Family::ALL.into_iter().filter(wanted) {
            let mut after = None;
            loop {
                replies.ready().await?;
                let page =
                    bgp.speaker.borrow_mut().pipeline.neighbor_routes(session, view, family, after, ROWS);
                let page = page.ok_or_else(|| XrlError::unavailable("the session has ended"))?;
                let prefixes = show::neighbor_prefixes(&bgp.speaker.borrow(), view, page.routes);
                send_page(&mut replies, prefixes, &mut silent).await?;
                after = page.next;
                if after.is_none() {
                    break;
                }
                // A walk over a large table in which the peer has little would otherwise keep everybody else waiting.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn watch(
        &self,
        _: &CallContext,
        request: WatchRequest,
        replies: ReplySink<Watched>,
    ) -> Result<(), XrlError> {
        watch::serve::serve(&self.bgp()?, request, replies).await
    }

    async fn show_route(&self, _: &CallContext, request: ShowRouteRequest) -> Result<Paths, XrlError> {
        let bgp = self.bgp()?;
        let mut speaker = bgp.speaker.borrow_mut();
        speaker.pipeline.set_now(Instant::now());
        let prefix = destination(&speaker, &request.destination)?;
        let views = speaker.pipeline.explain(prefix);
        if views.is_empty() {
            return Err(no_route(&request.destination));
        }
        let sent = speaker.pipeline.sent_to(prefix);
        let sent_to: Vec<_> = sent.into_iter().filter_map(|sent| show::sent_to(&speaker, sent)).collect();
        let advertised_to = sent_to.iter().map(|sent| sent.peer.clone()).collect();
        let vrps = bgp.surroundings.validation.covering(prefix);
        Ok(Paths {
            prefixes: show::prefixes(&speaker, vec![(prefix, views)], |_| true),
            advertised_to,
            sent_to,
            validates: vrps.is_some(),
            vrps: vrps.iter().flatten().map(ToString::to_string).collect(),
        })
    }

    async fn clear(&self, _: &CallContext, request: ClearRequest) -> Result<ClearReply, XrlError> {
        let bgp = self.bgp()?;
        let text = if request.text.is_empty() { "cleared by the operator" } else { for_peer(&request.text)? };
        let cleared = for_each(&bgp, &request.peer, |speaker, index, now| {
            match (request.soft, request.soft_in) {
                (_, true) => return speaker.ask_again(index),
                (true, false) => speaker.announce_again(index, now),
                (false, false) => speaker.clear_peer(index, text, now),
            }
            true
        })?;
        match cleared.cleared.is_empty() && request.soft_in && request.peer != "*" {
            true => Err(XrlError::failed_precondition(
                "its session is not up, or it does not answer ROUTE-REFRESH",
            )),
            false => Ok(cleared),
        }
    }

    async fn stop_peer(&self, _: &CallContext, request: StopPeerRequest) -> Result<ClearReply, XrlError> {
        let text = for_peer(&request.text)?;
        for_each(&self.bgp()?, &request.peer, |speaker, index, now| {
            speaker.stop_peer(index, text, now);
            true
        })
    }

    async fn start_peer(&self, _: &CallContext, request: StartPeerRequest) -> Result<ClearReply, XrlError> {
        let bgp = self.bgp()?;
        let started = for_each(&bgp, &request.peer, Speaker::start_peer)?;
        match started.cleared.is_empty() && request.peer != "*" {
            true => Err(XrlError::failed_precondition("the configuration says `disabled = true`")),
            false => Ok(started),
        }
    }

    async fn show_dampened(
        &self,
        _: &CallContext,
        request: ShowDampenedRequest,
        mut replies: ReplySink<Dampened>,
    ) -> Result<(), XrlError> {
        let (bgp, damping) = self.damping()?;
        let mut after = None;
        loop {
            replies.ready().await?;
            let (flaps, next) = damping.borrow().flaps(Instant::now(), after, ROWS);
            let routes = show::dampened(&bgp.speaker.borrow(), &flaps, request.all);
            if !routes.is_empty() {
                replies.send(Dampened { routes }).await?;
            }
            if next.is_none() {
                return Ok(());
            }
            after = next;
            tokio::task::yield_now().await;
        }
    }

    async fn clear_dampened(
        &self,
        _: &CallContext,
        request: ClearDampenedRequest,
    ) -> Result<Empty, XrlError> {
        let (bgp, damping) = self.damping()?;
        if request.prefix.is_empty() {
            bgp.with(|_, _| damping.borrow_mut().clear());
            return Ok(Empty {});
        }
        let prefix = request.prefix.parse::<Prefix>();
        let prefix = prefix.map_err(|error| XrlError::invalid_argument(error.to_string()))?;
        match bgp.with(|_, _| damping.borrow_mut().clear_prefix(prefix)) {
            true => Ok(Empty {}),
            false => Err(XrlError::not_found(format!("no route to {prefix} has flapped"))),
        }
    }

    async fn trace_policy(
        &self,
        _: &CallContext,
        request: TracePolicyRequest,
    ) -> Result<TracePolicyReply, XrlError> {
        let bgp = self.bgp()?;
        let (program, source) = self.policies.borrow().get(&request.policy)?;
        let asked = match (request.peer.as_str(), request.export_peer.as_str()) {
            ("", "") => Asked::Received(None),
            (peer, "") => Asked::Received(Some(find(&bgp, peer)?)),
            ("", peer) => Asked::Exported(find(&bgp, peer)?),
            _ => {
                return Err(XrlError::invalid_argument(
                    "either a received path or an announcement is traced",
                ));
            }
        };
        let mut speaker = bgp.speaker.borrow_mut();
        let prefix = destination(&speaker, &request.destination)?;
        let traces = policy::trace(&mut speaker, prefix, asked, &program, &source);
        if traces.is_empty() {
            return Err(no_route(&request.destination));
        }
        Ok(TracePolicyReply { prefix: prefix.to_string(), traces })
    }

    async fn show_policy(&self, _: &CallContext, _: Empty) -> Result<PolicyReply, XrlError> {
        Ok(PolicyReply { changes: policy::changes(&self.bgp()?.speaker.borrow(), Instant::now()) })
    }

    async fn show_nsr(&self, _: &CallContext, _: Empty) -> Result<NsrReply, XrlError> {
        Ok(show::nsr(&self.bgp()?.speaker.borrow(), Instant::now()))
    }
}

/// A prefix, or the longest match of an address.
fn destination(speaker: &Speaker, text: &str) -> Result<Prefix, XrlError> {
    let found = match (text.parse::<Prefix>(), text.parse::<IpAddr>()) {
        (Ok(prefix), _) => Some(prefix),
        (_, Ok(address)) => speaker.pipeline.longest_match(Prefix::host(address)),
        (Err(error), Err(_)) => return Err(XrlError::invalid_argument(error.to_string())),
    };
    found.ok_or_else(|| no_route(text))
}

/// A state that is asked for; none is any.
fn read_state<T: FromStr<Err: Display>>(text: &str) -> Result<Option<T>, XrlError> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|error: T::Err| XrlError::invalid_argument(error.to_string())),
    }
}

fn no_route(text: &str) -> XrlError {
    XrlError::not_found(format!("no route to {text}"))
}

/// Does something with the peer of this name or address, or with all for `*`; those for which it was done.
fn for_each(
    bgp: &Rc<Bgp>,
    peer: &str,
    mut act: impl FnMut(&mut Speaker, PeerIndex, Instant) -> bool,
) -> Result<ClearReply, XrlError> {
    let indexes: Vec<_> = match peer {
        "*" => bgp.speaker.borrow().sessions.indexes(),
        peer => vec![find(bgp, peer)?],
    };
    let cleared = bgp.with(|speaker, now| {
        let mut done = Vec::new();
        for index in indexes {
            let Some(slot) = speaker.sessions.slot(index) else { continue };
            let name = slot.neighbor.name.clone();
            if act(speaker, index, now) {
                done.push(name);
            }
        }
        done
    });
    Ok(ClearReply { cleared })
}

/// Sends a page of a walk if there is anything in it, or if nothing was for so many that the reader might think us dead.
async fn send_page(
    replies: &mut ReplySink<Paths>,
    prefixes: Vec<holdfast_api::bgp::v1::Prefix>,
    silent: &mut usize,
) -> Result<(), XrlError> {
    *silent += 1;
    if prefixes.is_empty() && *silent < SILENT_PAGES {
        return Ok(());
    }
    *silent = 0;
    replies.send(Paths { prefixes, ..Paths::default() }).await
}

fn find(bgp: &Rc<Bgp>, peer: &str) -> Result<PeerIndex, XrlError> {
    let found = bgp.speaker.borrow().sessions.peer_named(peer);
    found.ok_or_else(|| {
        let is_range = bgp.ranges.borrow().iter().any(|range| range.template.name == peer);
        let instead = if is_range { ", but a listen range: name one of its peers by address" } else { "" };
        XrlError::not_found(format!("there is no peer {peer:?}{instead}"))
    })
}

/// A text that goes out with a NOTIFICATION (RFC 9003 section 2).
fn for_peer(text: &str) -> Result<&str, XrlError> {
    match () {
        () if text.len() > MAX_TEXT => Err(XrlError::invalid_argument(format!(
            "the text has {} octets: a peer is told up to {MAX_TEXT}",
            text.len()
        ))),
        () if text.contains(char::is_control) => {
            Err(XrlError::invalid_argument("the text has control characters: it is one line for people"))
        }
        () => Ok(text),
    }
}
