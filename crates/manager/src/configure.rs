//! What each process is told of the configuration.

pub(crate) mod address;
mod door;
mod packets;
mod rpki;

use std::{collections::VecDeque, net::IpAddr, time::Duration};

use holdfast_api::{
    bgp::v1::{self as bgp_api, BgpClient},
    fea::v1::{self as fea_api, FeaClient},
    glass::v1::{self as glass_api, GlassClient},
    metrics::v1::{self as metrics_api, ExporterClient},
    monitor::v1::{self as monitor_api, MonitorClient},
    process::v1::{self as process_api, ProcessClient},
    rib::v1::{self as rib_api, RibClient},
    routes::v1::{NextHop, NextHopKind},
    rpki::v1::{self as rpki_api, RpkiClient},
    socket::v1::{self as socket_api, SocketClient},
    transport::v1::{self as transport_api, Empty as TransportEmpty, TransportClient},
};
use holdfast_config::{
    Config,
    schema::{
        Aggregate, AsSets, Bgp, Bmp, BmpTable, Damping, Glass, Metrics, Mrt, MrtKind, Peer, PeerAsn,
        ProcessSection, Protocol, Redistribute, Remote, Size, StaticRoute, StaticTarget, Vrf, VrfPlace,
    },
    session,
};
use holdfast_xrl::{Client, XrlError, scoped};
use serde_json::Value;

use self::address::{octets, plain_listener};
use crate::{apart::apart, manager::Manager, secrets::Secrets};

/// A process that takes its configuration takes no longer than this.
pub(crate) const CONFIGURE_LIMIT: Duration = Duration::from_secs(20);
/// How long routes that an earlier `bgp` left wait for its peers to come back and send theirs.
const SYNC_LIMIT_SECONDS: u32 = 120;

/// What a process is told of a configuration. Equal parts: nothing has to be said.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    /// Whoever opens sockets is told the peers and their secrets.
    Socket(socket_api::Configuration),
    /// What only `transport` may know: before who is let in, since that needs it.
    Keep(Secrets),
    /// Who is let in, and what they have to prove.
    Transport(transport_api::Configuration),
    Fea(fea_api::Configuration),
    Rib(rib_api::Configuration),
    Bgp(Box<bgp_api::Configuration>),
    Metrics(metrics_api::ExporterConfiguration),
    Glass(glass_api::Configuration),
    Monitor(monitor_api::Configuration),
    Rpki(rpki_api::Configuration),
    /// Of a process with a section for itself, by its name.
    Own(&'static str, process_api::Configuration),
}

/// A part, and of which table it is.
#[derive(Debug, PartialEq)]
pub(crate) struct Message {
    /// For the instance of this VRF; `None`: for the process itself.
    pub(crate) vrf: Option<String>,
    pub(crate) part: Part,
}

/// What the process of this name is told, in this order: first, for itself, which VRFs there are, and then for each what
/// it is told for that.
pub(crate) fn parts(process: &str, config: &Config) -> Result<Vec<Message>, XrlError> {
    let mut messages = Vec::new();
    for table in std::iter::once(None).chain(config.vrfs.iter().map(Some)) {
        let vrf = table.map(|vrf| vrf.name.clone());
        let parts = parts_of(process, config, table)?.into_iter();
        messages.extend(parts.map(|part| Message { vrf: vrf.clone(), part }));
    }
    Ok(messages)
}

/// The same for one table: that of a VRF, or the default one.
fn parts_of(process: &str, config: &Config, table: Option<&Vrf>) -> Result<Vec<Part>, XrlError> {
    Ok(match (process, table) {
        ("manager", _) if !config.rib.enabled => vec![Part::Socket(sockets(config, table))],
        ("fea", _) => vec![Part::Socket(sockets(config, table)), Part::Fea(fea(config, table))],
        ("transport", _) => vec![
            Part::Keep(Secrets::of(config, door::needs_seeds(config))),
            Part::Transport(transport(config, table)),
        ],
        ("rib", _) => vec![Part::Rib(rib(config, table))],
        ("bgp", _) => match &config.bgp {
            Some(bgp) => vec![Part::Bgp(Box::new(speaker(config, bgp, table)?))],
            None => Vec::new(),
        },
        ("metrics", None) => config.metrics.iter().map(|metrics| Part::Metrics(exporter(metrics))).collect(),
        ("glass", None) => config.glass.iter().map(|glass| Part::Glass(looking_glass(glass))).collect(),
        ("rpki", None) => vec![Part::Rpki(rpki::caches(&config.rpki))],
        ("monitor", None) => config.bgp.iter().map(|bgp| Part::Monitor(monitor(config, bgp))).collect(),
        (name, None) => match config.sections.get_key_value(name) {
            Some((name, section)) => vec![Part::Own(name, own(config, section)?)],
            None => Vec::new(),
        },
        _ => Vec::new(),
    })
}

/// A section for one process, as it is; a routing protocol filters routes, too.
fn own(config: &Config, section: &ProcessSection) -> Result<process_api::Configuration, XrlError> {
    let settings = Value::from(section.values.clone()).to_string().into_bytes();
    let policies = section.routing.map(|_| policies(config)).transpose()?.unwrap_or_default();
    Ok(process_api::Configuration { settings, policies })
}

fn policies(config: &Config) -> Result<String, XrlError> {
    serde_json::to_string(&config.policy)
        .map_err(|error| XrlError::internal(format!("writing the policies: {error}")))
}

/// The processes that speak a routing protocol in this table, by name.
fn routing<'c>(
    config: &'c Config,
    table: Option<&Vrf>,
) -> impl Iterator<Item = (&'static str, &'c ProcessSection)> {
    let vrf = table.map(|vrf| vrf.name.as_str());
    let sections = config.sections.iter().filter(move |(_, section)| section.routes_in(vrf));
    sections.map(|(process, section)| (*process, section))
}

/// Whether a process is the router's own, and no protocol of somebody else.
fn is_ours(config: &Config, process: &str) -> bool {
    config.protocols.iter().all(|protocol| protocol.name != process)
}

/// Whether what is in this VRF is in this table.
fn is_in(vrf: Option<&String>, table: Option<&Vrf>) -> bool {
    vrf == table.map(|table| &table.name)
}

/// The names of the VRFs, for the process itself.
fn vrfs(config: &Config, table: Option<&Vrf>) -> Vec<String> {
    match table {
        None => config.vrfs.iter().map(|vrf| vrf.name.clone()).collect(),
        Some(_) => Vec::new(),
    }
}

/// Whoever is of this class for a table. A process begins the instance of a VRF when it is told of it: that may not be
/// there yet.
async fn client<C: Client>(manager: &Manager, class: &str, vrf: Option<&str>) -> Result<C, XrlError> {
    match vrf {
        None => manager.resolver.client(class).await,
        Some(_) => manager.resolver.wait_for(&scoped(class, vrf)).await,
    }
}

/// Tells the process that takes this part; the sessions that ended by it.
pub(crate) async fn tell(manager: &Manager, message: Message) -> Result<Vec<String>, XrlError> {
    let vrf = message.vrf.as_deref();
    match message.part {
        Part::Socket(part) => {
            client::<SocketClient>(manager, "socket", vrf).await?.configure(part).await?;
        }
        Part::Keep(secrets) => {
            let descriptors = secrets.descriptors(manager);
            let descriptors =
                descriptors.map_err(|error| XrlError::internal(format!("memory for secrets: {error}")))?;
            client::<TransportClient>(manager, "transport", vrf)
                .await?
                .keep(TransportEmpty {}, descriptors)
                .await?;
        }
        Part::Transport(part) => {
            client::<TransportClient>(manager, "transport", vrf).await?.configure(part).await?;
        }
        Part::Fea(part) => {
            client::<FeaClient>(manager, "fea", vrf).await?.configure(part).await?;
        }
        Part::Rib(part) => {
            client::<RibClient>(manager, "rib", vrf).await?.configure(part).await?;
        }
        Part::Metrics(part) => {
            client::<ExporterClient>(manager, "metrics", vrf).await?.configure(part).await?;
        }
        Part::Glass(part) => {
            client::<GlassClient>(manager, "glass", vrf).await?.configure(part).await?;
        }
        Part::Monitor(part) => {
            client::<MonitorClient>(manager, "monitor", vrf).await?.configure(part).await?;
        }
        Part::Rpki(part) => {
            client::<RpkiClient>(manager, "rpki", vrf).await?.configure(part).await?;
        }
        Part::Own(process, part) => {
            client::<ProcessClient>(manager, process, vrf).await?.configure(part).await?;
        }
        Part::Bgp(mut part) => {
            let is_its = |name: &&String| part.peers.iter().any(|peer| peer.name == **name);
            let refit: Vec<String> = manager.refit.borrow().iter().filter(is_its).cloned().collect();
            part.refit.clone_from(&refit);
            let reply = client::<BgpClient>(manager, "bgp", vrf).await?.configure(*part).await?;
            manager.refit.borrow_mut().retain(|name| !refit.contains(name));
            manager.supervisor.borrow_mut().leaves_out("bgp", reply.quarantined);
            return Ok(reply.ended);
        }
    }
    Ok(Vec::new())
}

/// Tells a process all of its configuration. A VRF that refuses its part, or does not answer, keeps no other from theirs.
///
/// # Errors
/// Of the process itself, which then has no VRFs to be told; or of the first VRF, when all have been told.
pub(crate) async fn tell_all(manager: &Manager, process: &str) -> Result<(), XrlError> {
    let (name, config) = (process.to_owned(), manager.config());
    let mut messages = VecDeque::from(apart(move || parts(&name, &config)).await??);
    let mut result = Ok(());
    while let Some(vrf) = messages.front().map(|message| message.vrf.clone()) {
        let told = async {
            while let Some(message) = messages.pop_front_if(|message| message.vrf == vrf) {
                tell(manager, message).await?;
            }
            Ok(())
        };
        let told = tokio::time::timeout(CONFIGURE_LIMIT, told).await;
        let told = told.unwrap_or_else(|_| Err(XrlError::timeout("no answer to its configuration")));
        match (told, &vrf) {
            (Ok(()), _) => {}
            (Err(error), None) => return Err(error),
            (Err(error), Some(name)) => {
                let error = XrlError::new(error.kind(), format!("VRF {name}: {}", error.message()));
                result = result.and(Err(error));
            }
        }
        messages.retain(|message| message.vrf != vrf);
    }
    result
}

fn exporter(metrics: &Metrics) -> metrics_api::ExporterConfiguration {
    let (address, port) = (octets(metrics.listen.ip()), metrics.listen.port().into());
    metrics_api::ExporterConfiguration { address, port }
}

fn monitor(config: &Config, bgp: &Bgp) -> monitor_api::Configuration {
    let dump = |mrt: &Mrt| monitor_api::Dump {
        file: mrt.file.clone(),
        table: mrt.what == MrtKind::Table,
        interval_seconds: seconds(mrt.interval),
        most_octets: mrt.max_size.map_or(0, Size::octets),
    };
    let collector = |bmp: &Bmp| monitor_api::Collector {
        name: bmp.name.clone(),
        peer: collector_peer(bmp),
        adj_rib_in: bmp.send.contains(&BmpTable::PrePolicy),
        adj_rib_out: bmp.send.contains(&BmpTable::AdjRibOut),
        loc_rib: bmp.send.contains(&BmpTable::LocRib),
        statistics_seconds: seconds(bmp.statistics),
    };
    monitor_api::Configuration {
        router_id: config.router.id.bits(),
        asn: config.router.asn.0,
        dumps: bgp.mrt.iter().map(dump).collect(),
        collectors: bgp.bmp.iter().map(collector).collect(),
    }
}

/// What whoever opens sockets calls a collector: no name of a peer has a space.
fn collector_peer(bmp: &Bmp) -> String {
    format!("collector {}", bmp.name)
}

fn socket_collector(bmp: &Bmp) -> socket_api::Peer {
    socket_api::Peer {
        name: collector_peer(bmp),
        address: octets(bmp.address),
        port: bmp.port.into(),
        only_dialled: true,
        ..socket_api::Peer::default()
    }
}

fn looking_glass(glass: &Glass) -> glass_api::Configuration {
    let (address, port) = (octets(glass.listen.ip()), glass.listen.port().into());
    glass_api::Configuration { address, port }
}

fn fea(config: &Config, table: Option<&Vrf>) -> fea_api::Configuration {
    let number = table.map_or(config.fea.table, |vrf| place(vrf).table);
    let vrfs = if table.is_none() { config.vrfs.iter().map(place).collect() } else { Vec::new() };
    fea_api::Configuration { backend: config.fea.backend.name().into(), table: number, vrfs }
}

fn place(vrf: &Vrf) -> fea_api::Vrf {
    let name = vrf.name.clone();
    match vrf.place.clone() {
        VrfPlace::Device { name: device, table } => {
            fea_api::Vrf { name, table, device, netns: String::new() }
        }
        VrfPlace::Netns { name: netns, table } => fea_api::Vrf { name, table, device: String::new(), netns },
    }
}

/// The sockets under protocols. Collectors and caches are dialled, and are nobody who is let in.
fn sockets(config: &Config, table: Option<&Vrf>) -> socket_api::Configuration {
    let vrf = table.map(|vrf| vrf.name.as_str());
    let peers = config.bgp.iter().flat_map(|bgp| &bgp.peers);
    let peers = peers.filter(|peer| is_in(peer.vrf.as_ref(), table)).map(|peer| socket_peer(peer, config));
    let collectors = config.bgp.iter().filter(|_| table.is_none()).flat_map(|bgp| &bgp.bmp);
    let caches = config.rpki.caches.iter().filter(|_| table.is_none());
    let listen = listen(config, table).into_iter().map(|request| socket_api::ListenRequest {
        address: request.address,
        afi: request.afi,
        port: request.port,
        plain: request.plain,
        role: request.role,
    });
    socket_api::Configuration {
        peers: peers.chain(collectors.map(socket_collector)).chain(caches.map(rpki::socket)).collect(),
        listen: listen.collect(),
        heard: door::heard(config),
        datagrams: packets::datagrams(routing(config, table), vrf),
        raw: packets::raw(routing(config, table), vrf, |process| is_ours(config, process)),
    }
}

fn transport(config: &Config, table: Option<&Vrf>) -> transport_api::Configuration {
    let peers = config.bgp.iter().flat_map(|bgp| &bgp.peers);
    let peers = peers.filter(|peer| is_in(peer.vrf.as_ref(), table)).map(|peer| transport_peer(peer, config));
    let caches = config.rpki.caches.iter().filter(|_| table.is_none());
    let mut told = transport_api::Configuration {
        peers: peers.chain(caches.map(rpki::peer)).collect(),
        listen: listen(config, table),
        vrfs: vrfs(config, table),
        ..transport_api::Configuration::default()
    };
    door::complete_all(&mut told, config, table);
    told
}

/// Where somebody listens in a table, and for whom.
fn listen(config: &Config, table: Option<&Vrf>) -> Vec<transport_api::ListenRequest> {
    let mut listen: Vec<_> = config.bgp.iter().flat_map(|bgp| listeners(bgp, table)).collect();
    if table.is_none() {
        let metrics = config.metrics.iter().map(|metrics| (metrics.listen, "metrics"));
        let glass = config.glass.iter().map(|glass| (glass.listen, "glass"));
        let xrl = config.xrl.listen.iter().map(|address| (*address, "manager"));
        let others = metrics.chain(glass).chain(xrl);
        listen.extend(others.map(|(address, role)| plain_listener(address, role)));
    }
    listen
}

fn rib(config: &Config, table: Option<&Vrf>) -> rib_api::Configuration {
    let distance = &config.rib.distance;
    let distances = [
        ("connected", distance.connected),
        ("static", distance.static_),
        ("ebgp", distance.ebgp),
        ("ibgp", distance.ibgp),
    ];
    let own = distances.map(|(name, distance)| (name.to_owned(), distance.into()));
    let processes = routing(config, table).map(|(process, _)| process.to_owned()).collect::<Vec<_>>();
    let of_processes = processes.iter().map(|process| {
        let distance = distance.processes.get(process.as_str());
        (process.clone(), distance.copied().map_or(u32::from(u8::MAX), u32::from))
    });
    let bgp = config.bgp.iter().map(|_| "bgp".to_owned());
    // Those with a descriptor are among the processes.
    let is_other = |protocol: &&Protocol| table.is_none() && protocol.descriptor.is_none();
    let protocols = || config.protocols.iter().filter(is_other);
    let others = protocols().map(|protocol| (protocol.name.clone(), protocol.distance.into()));
    let statics = config.statics.iter().filter(|route| is_in(route.vrf.as_ref(), table));
    rib_api::Configuration {
        statics: statics.map(static_route).collect(),
        distances: own.into_iter().chain(others).chain(of_processes).collect(),
        stale_seconds: seconds(config.rib.stale_time),
        expected_origins: bgp
            .chain(protocols().map(|protocol| protocol.name.clone()))
            .chain(processes.iter().cloned())
            .collect(),
        vrfs: vrfs(config, table),
    }
}

fn static_route(route: &StaticRoute) -> rib_api::StaticRoute {
    let (kind, next_hops) = match &route.target {
        StaticTarget::Blackhole => (NextHopKind::Blackhole, Vec::new()),
        StaticTarget::Interface(name) => {
            (NextHopKind::Forward, vec![NextHop { interface: name.clone(), ..NextHop::default() }])
        }
        StaticTarget::NextHop { address, interface } => {
            let interface = interface.clone().unwrap_or_default();
            let hop = NextHop { gateway: octets(*address), interface, ..NextHop::default() };
            (NextHopKind::Forward, vec![hop])
        }
    };
    rib_api::StaticRoute {
        prefix: route.prefix.to_string(),
        kind: kind.into(),
        next_hops,
        tag: route.tag,
        ..Default::default()
    }
}

/// Where a peer is, as messages say it.
struct At {
    address: Vec<u8>,
    range_length: Option<u8>,
    interface: String,
}

fn at(remote: &Remote) -> At {
    let (address, range_length, interface) = match remote {
        Remote::Address(address) => (octets(*address), None, String::new()),
        Remote::LinkLocal(address, interface) => (address.octets().to_vec(), None, interface.clone()),
        Remote::Interface(interface) => (Vec::new(), None, interface.clone()),
        Remote::Range(prefix) => (octets(prefix.address()), Some(prefix.length()), String::new()),
    };
    At { address, range_length, interface }
}

fn socket_peer(peer: &Peer, config: &Config) -> socket_api::Peer {
    let At { address, range_length, interface } = at(&peer.remote);
    socket_api::Peer {
        name: peer.name.clone(),
        address,
        is_range: range_length.is_some(),
        range_length: range_length.unwrap_or(0).into(),
        port: peer.rules.port.into(),
        local_address: peer.local_address.map(octets).unwrap_or_default(),
        interface,
        md5: peer.md5.as_ref().map(|key| key.expose().as_bytes().to_vec()).unwrap_or_default(),
        ttl_security: peer.rules.ttl_security,
        ttl: ttl(peer, config),
        only_dialled: false,
    }
}

/// The key of its TCP segments is for whoever opens sockets only.
fn transport_peer(peer: &Peer, config: &Config) -> transport_api::Peer {
    let socket = socket_peer(peer, config);
    let mut told = transport_api::Peer {
        name: socket.name,
        address: socket.address,
        is_range: socket.is_range,
        range_length: socket.range_length,
        port: socket.port,
        local_address: socket.local_address,
        interface: socket.interface,
        ttl_security: socket.ttl_security,
        ttl: socket.ttl,
        ..transport_api::Peer::default()
    };
    door::complete(&mut told, peer);
    told
}

/// What we send with: 1 to a neighbour of another AS, the kernel's choice inside our own.
fn ttl(peer: &Peer, config: &Config) -> u32 {
    match (peer.rules.multihop, &peer.asn) {
        (Some(ttl), _) => ttl.into(),
        (None, PeerAsn::One(asn)) if *asn == config.router.asn => 0,
        (None, _) => 1,
    }
}

fn speaker(config: &Config, bgp: &Bgp, table: Option<&Vrf>) -> Result<bgp_api::Configuration, XrlError> {
    let policies = policies(config)?;
    let network = |prefix: &holdfast_types::Prefix| bgp_api::Network { prefix: prefix.to_string() };
    let networks = table.map_or(&bgp.networks, |vrf| &vrf.networks);
    let aggregates = bgp.aggregates.iter().filter(|_| table.is_none());
    let peers = bgp.peers.iter().filter(|peer| is_in(peer.vrf.as_ref(), table));
    let redistribute = bgp.redistribute.iter().filter(|wanted| is_in(wanted.vrf.as_ref(), table));
    Ok(bgp_api::Configuration {
        router_id: config.router.id.bits(),
        asn: config.router.asn.0,
        accept_as_sets: bgp.as_sets == AsSets::Accept,
        max_paths: bgp.max_paths.into(),
        rib: config.rib.enabled,
        peers: peers.map(|peer| bgp_peer(peer, config)).collect::<Result<_, _>>()?,
        networks: networks.iter().map(network).collect(),
        aggregates: aggregates.map(aggregate).collect(),
        policies,
        ebgp_distance: config.rib.distance.ebgp.into(),
        ibgp_distance: config.rib.distance.ibgp.into(),
        sync_seconds: SYNC_LIMIT_SECONDS,
        default_local_pref: bgp.local_preference,
        // Of what a manager said before there was `refit`.
        restart: Vec::new(),
        refit: Vec::new(),
        nonstop: bgp.nonstop,
        redistribute: redistribute.map(redistribution).collect(),
        rib_policy: bgp.rib_policy.clone().unwrap_or_default(),
        nonstop_octets: if bgp.nonstop { bgp.nonstop_memory.octets() } else { 0 },
        damping: bgp.damping.map(damping),
        routes_kept: config.rib.enabled && config.fea.keep_routes,
        cluster_id: bgp.cluster_id.map_or(0, holdfast_types::RouterId::bits),
        confederation_id: bgp.confederation.as_ref().map_or(0, |confederation| confederation.id.0),
        confederation_members: bgp
            .confederation
            .iter()
            .flat_map(|confederation| confederation.members.iter().map(|asn| asn.0))
            .collect(),
        always_compare_med: bgp.decision.always_compare_med,
        med_missing_as_worst: bgp.decision.med_missing_as_worst,
        multipath_same_neighbor: !bgp.decision.multipath_relax,
        prefer_oldest: bgp.decision.prefer_oldest,
        consistency_check: bgp.consistency_check,
        validates: !config.rpki.caches.is_empty(),
        vrfs: vrfs(config, table),
        // `transport` listens.
        listen: Vec::new(),
    })
}

fn aggregate(wanted: &Aggregate) -> bgp_api::Aggregate {
    bgp_api::Aggregate {
        prefix: wanted.prefix.to_string(),
        summary_only: wanted.summary_only,
        contributors: wanted.contributors.clone().unwrap_or_default(),
        policy: wanted.policy.clone().unwrap_or_default(),
    }
}

fn redistribution(wanted: &Redistribute) -> bgp_api::Redistribution {
    bgp_api::Redistribution { from: wanted.from.clone(), policy: wanted.policy.clone() }
}

fn damping(damping: Damping) -> bgp_api::Damping {
    bgp_api::Damping {
        half_life_seconds: seconds(damping.half_life),
        suppress: damping.suppress,
        reuse: damping.reuse,
        max_suppress_seconds: seconds(damping.max_suppress),
    }
}

/// Where BGP listens: the addresses that are configured are those of the default table.
fn listeners(bgp: &Bgp, table: Option<&Vrf>) -> Vec<transport_api::ListenRequest> {
    let listener = |address: Vec<u8>, afi| transport_api::ListenRequest {
        address,
        afi,
        port: bgp.port.into(),
        ..transport_api::ListenRequest::default()
    };
    if bgp.listen.is_empty() || table.is_some() {
        return [1, 2].map(|afi| listener(Vec::new(), afi)).into();
    }
    let at = |&address: &IpAddr| listener(octets(address), if address.is_ipv4() { 1 } else { 2 });
    bgp.listen.iter().map(at).collect()
}

/// What `transport` alone may know is left out (`schema::Peer`).
pub(crate) fn bgp_peer(peer: &Peer, config: &Config) -> Result<bgp_api::Peer, XrlError> {
    let settings = serde_json::to_vec(peer);
    Ok(bgp_api::Peer {
        name: peer.name.clone(),
        session: session(peer),
        settings: settings.map_err(|error| XrlError::internal(format!("writing a peer: {error}")))?,
        orf_prefixes: peer.orf_prefix_set.iter().flat_map(|name| prefixes(config, name)).collect(),
        ..bgp_api::Peer::default()
    })
}

/// What is in a prefix set.
fn prefixes(config: &Config, name: &str) -> Vec<String> {
    let set = config.policy.prefix_sets.iter().find(|set| set.name == name);
    set.into_iter().flat_map(|set| &set.prefixes).map(ToString::to_string).collect()
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}
