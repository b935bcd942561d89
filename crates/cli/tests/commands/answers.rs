//! What the processes of the router answer.

use holdfast_api::{
    bgp::v1::{
        self as bgp, AggregateState, AggregatesReply, BgpServer, ClearDampenedRequest, ClearReply,
        ClearRequest, Dampened, DampenedRoute, Drop, FamilyState, MessageCount, Neighbor, NeighborBfd,
        NeighborView, NsrReply, NsrSession, Path, Paths, PolicyChange, PolicyPlace, PolicyReply, PolicyTrace,
        Prefix, RangeTotals, RangesReply, ShowDampenedRequest, ShowNeighborRoutesRequest,
        ShowNeighborsRequest, ShowRangesRequest, ShowRouteRequest, ShowRoutesRequest, ShutdownRequest,
        StartPeerRequest, StopPeerRequest, Summary, SummaryFamily, SummaryPeer, TracePolicyReply,
        TracePolicyRequest, WatchRequest, Watched,
    },
    fea::v1::{self as fea, FeaServer},
    manager::v1::{self as manager, ManagerServer},
    rib::v1::{self as rib, RibServer, ShownRoute, ShownRoutes},
    routes::v1::{NextHop, NextHopKind, RouteBatch},
    transport::v1::{self as transport, TransportClient},
};
use holdfast_xrl::{CallContext, Client, Handler, IncomingCall, ReplySink, Service, ServiceInfo, XrlError};

/// Methods that no command calls.
fn unasked<T>() -> Result<T, XrlError> {
    Err(XrlError::internal("no command should call this"))
}

/// The speaker of a table, by its router id.
pub(crate) struct Bgp(pub(crate) &'static str);

fn peers() -> [SummaryPeer; 2] {
    [
        SummaryPeer {
            name: "transit-1".into(),
            address: "10.1.0.2".into(),
            asn: 65101,
            local_asn: 65001,
            messages_received: 500,
            messages_sent: 400,
            state: "Established".into(),
            uptime_milliseconds: 3_600_000,
            prefixes_received: 1000,
            prefixes_accepted: 990,
            prefixes_sent: 3,
            connections_established: 2,
            connections_dropped: 1,
            description: "port 7".into(),
            ..SummaryPeer::default()
        },
        SummaryPeer {
            name: "down-1".into(),
            address: "10.1.0.3".into(),
            asn: 65102,
            local_asn: 65001,
            state: "Active".into(),
            last_error: "connection refused".into(),
            ..SummaryPeer::default()
        },
    ]
}

fn neighbor(peer: SummaryPeer) -> Neighbor {
    let count = |kind: &str, sent, received| MessageCount { kind: kind.into(), sent, received };
    Neighbor {
        peer: Some(peer),
        link: "external".into(),
        hold_time: 90,
        keepalive: 30,
        configured_hold_time: 90,
        capabilities_sent: [
            "route refresh",
            "extended message",
            "four-octet AS 65001",
            "multiprotocol ipv4-unicast",
        ]
        .map(str::to_owned)
        .into(),
        capabilities_received: ["route refresh", "four-octet AS 65101", "multiprotocol ipv6-unicast"]
            .map(str::to_owned)
            .into(),
        messages: vec![count("UPDATE", 3, 490), count("ROUTE-REFRESH", 1, 0)],
        families: vec![FamilyState {
            family: "ipv4-unicast".into(),
            received: 1000,
            accepted: 990,
            ..FamilyState::default()
        }],
        import: "in".into(),
        bfd: Some(NeighborBfd {
            state: "up".into(),
            remote_state: "up".into(),
            diagnostic: "control detection time expired".into(),
            profile: "fast".into(),
            hops: "single".into(),
            strict: true,
            since_milliseconds: 61_000,
            detection_microseconds: 150_000,
            remote_control_plane_independent: true,
            ..NeighborBfd::default()
        }),
        ..Neighbor::default()
    }
}

fn paths(prefix: String) -> Prefix {
    let path = |peer: &str, address: &str, as_path: &str| Path {
        peer: peer.into(),
        peer_address: address.into(),
        peer_router_id: "10.9.9.9".into(),
        peer_asn: 65101,
        next_hop: address.into(),
        as_path: as_path.into(),
        origin: "igp".into(),
        valid: true,
        external: true,
        igp_metric: Some(10),
        ..Path::default()
    };
    let communities = vec!["65101:1".into(), "65101:2".into()];
    let best = Path { best: true, med: Some(5), communities, ..path("transit-1", "10.1.0.2", "65101 65200") };
    let other = Path { reason: "longer AS path".into(), ..path("down-1", "10.1.0.3", "65102 65102 65200") };
    Prefix { prefix, paths: vec![best, other] }
}

impl BgpServer for Bgp {
    async fn configure(
        &self,
        _: &CallContext,
        _: bgp::Configuration,
    ) -> Result<bgp::ConfigureReply, XrlError> {
        unasked()
    }

    async fn shutdown(&self, _: &CallContext, _: ShutdownRequest) -> Result<bgp::Empty, XrlError> {
        unasked()
    }

    async fn show_summary(&self, _: &CallContext, _: bgp::Empty) -> Result<Summary, XrlError> {
        let family = SummaryFamily {
            family: "ipv4-unicast".into(),
            prefixes: 1000,
            paths: 1000,
            peers: peers().into(),
        };
        let unused = SummaryFamily { family: "ipv6-unicast".into(), ..SummaryFamily::default() };
        let families = vec![family, unused];
        Ok(Summary { router_id: self.0.into(), asn: 65001, families, memory_bytes: 1 << 20 })
    }

    async fn show_neighbors(
        &self,
        _: &CallContext,
        request: ShowNeighborsRequest,
        mut replies: ReplySink<Neighbor>,
    ) -> Result<(), XrlError> {
        if !request.peer.is_empty() && peers().iter().all(|peer| peer.name != request.peer) {
            return Err(XrlError::not_found(format!("there is no peer `{}`", request.peer)));
        }
        for peer in peers() {
            if request.peer.is_empty() || request.peer == peer.name {
                replies.send(neighbor(peer)).await?;
            }
        }
        Ok(())
    }

    async fn show_ranges(
        &self,
        _: &CallContext,
        request: ShowRangesRequest,
    ) -> Result<RangesReply, XrlError> {
        if request.range != "guests" {
            return Err(XrlError::not_found("there is no listen range"));
        }
        let range = RangeTotals {
            name: "guests".into(),
            prefix: "10.2.0.0/16".into(),
            peers: 2,
            peers_seen: 7,
            connections_established: 6,
            connections_dropped: 4,
            drops: vec![Drop { reason: "AS_PATH: AS number 0".into(), count: 3 }],
            faults: vec!["20.0.0.0/24: AS_PATH: AS number 0".into()],
            last_error: "connection closed by the peer".into(),
            last_error_of: "10.2.0.9".into(),
        };
        Ok(RangesReply { ranges: vec![range] })
    }

    async fn show_routes(
        &self,
        _: &CallContext,
        _: ShowRoutesRequest,
        mut replies: ReplySink<Paths>,
    ) -> Result<(), XrlError> {
        for batch in 0..1000 {
            let prefix = |n: u32| format!("10.{}.{}.0/24", n >> 8, n & 255);
            let prefixes = (batch * 100..(batch + 1) * 100).map(|n| paths(prefix(n))).collect();
            replies.send(Paths { prefixes, ..Paths::default() }).await?;
        }
        Ok(())
    }

    async fn show_neighbor_routes(
        &self,
        _: &CallContext,
        request: ShowNeighborRoutesRequest,
        mut replies: ReplySink<Paths>,
    ) -> Result<(), XrlError> {
        if request.peer != "transit-1" {
            return Err(XrlError::not_found(format!("there is no peer {:?}", request.peer)));
        }
        let mut shown = paths("198.51.100.0/24".into());
        shown.paths.truncate(1);
        if request.view() == NeighborView::Filtered {
            shown.paths[0].reason = "refused by policy transit-in, term bogons".into();
        }
        replies.send(Paths { prefixes: vec![shown], ..Paths::default() }).await
    }

    async fn watch(&self, _: &CallContext, _: WatchRequest, _: ReplySink<Watched>) -> Result<(), XrlError> {
        Err(XrlError::denied("no operator watches"))
    }

    async fn show_route(&self, _: &CallContext, request: ShowRouteRequest) -> Result<Paths, XrlError> {
        match request.destination.as_str() {
            "10.0.0.7" | "10.0.0.0/24" => Ok(Paths {
                prefixes: vec![paths("10.0.0.0/24".into())],
                advertised_to: vec!["customer-1".into()],
                ..Paths::default()
            }),
            "x" => Err(XrlError::invalid_argument("`x` is no prefix")),
            _ => Ok(Paths::default()),
        }
    }

    async fn clear(&self, _: &CallContext, request: ClearRequest) -> Result<ClearReply, XrlError> {
        let wanted = peers().into_iter().filter(|peer| request.peer == "*" || request.peer == peer.name);
        let soft = if request.soft { " (soft)" } else { "" };
        let cleared: Vec<_> = wanted.map(|peer| format!("{}{soft}", peer.name)).collect();
        match cleared.is_empty() {
            true => Err(XrlError::not_found(format!("there is no peer `{}`", request.peer))),
            false => Ok(ClearReply { cleared }),
        }
    }

    async fn stop_peer(&self, cx: &CallContext, request: StopPeerRequest) -> Result<ClearReply, XrlError> {
        let mut reply =
            self.clear(cx, ClearRequest { peer: request.peer, ..ClearRequest::default() }).await?;
        reply.cleared.iter_mut().for_each(|name| name.push_str(&format!(" ({})", request.text)));
        Ok(reply)
    }

    async fn start_peer(&self, cx: &CallContext, request: StartPeerRequest) -> Result<ClearReply, XrlError> {
        self.clear(cx, ClearRequest { peer: request.peer, ..ClearRequest::default() }).await
    }

    async fn show_signing(&self, _: &CallContext, _: bgp::Empty) -> Result<bgp::SigningReply, XrlError> {
        Ok(bgp::SigningReply { kept: 3, lost: 1, waiting: 2, memory_octets: 4_096 })
    }

    async fn show_aggregates(&self, _: &CallContext, _: bgp::Empty) -> Result<AggregatesReply, XrlError> {
        let aggregate = |prefix: &str, contributors, counting, origin: &str| AggregateState {
            prefix: prefix.into(),
            summary_only: contributors > 0,
            contributors,
            counting,
            origin: origin.into(),
        };
        let aggregates = vec![
            aggregate("10.0.0.0/8", 1200, false, "IGP"),
            aggregate("192.0.2.0/24", 0, false, ""),
            aggregate("2001:db8::/32", 40, true, ""),
        ];
        Ok(AggregatesReply { aggregates })
    }

    async fn show_dampened(
        &self,
        _: &CallContext,
        request: ShowDampenedRequest,
        mut replies: ReplySink<Dampened>,
    ) -> Result<(), XrlError> {
        let route = |prefix: &str, suppressed: bool| DampenedRoute {
            prefix: prefix.into(),
            peer: "transit-1".into(),
            peer_address: "192.0.2.1".into(),
            penalty: if suppressed { 6123 } else { 500 },
            flaps: 7,
            period_milliseconds: 61_000,
            suppressed,
            reuse_milliseconds: if suppressed { 2_725_000 } else { 0 },
        };
        replies.send(Dampened { routes: vec![route("10.0.0.0/24", true)] }).await?;
        if request.all {
            replies.send(Dampened { routes: vec![route("10.0.1.0/24", false)] }).await?;
        }
        Ok(())
    }

    async fn clear_dampened(
        &self,
        _: &CallContext,
        request: ClearDampenedRequest,
    ) -> Result<bgp::Empty, XrlError> {
        match request.prefix.as_str() {
            "" | "10.0.0.0/24" => Ok(bgp::Empty {}),
            prefix => Err(XrlError::not_found(format!("no route to {prefix} has flapped"))),
        }
    }

    async fn trace_policy(
        &self,
        _: &CallContext,
        request: TracePolicyRequest,
    ) -> Result<TracePolicyReply, XrlError> {
        if request.policy != "from-transit" {
            return Err(XrlError::not_found(format!("there is no policy `{}`", request.policy)));
        }
        let place = |term: &str| PolicyPlace {
            policy: request.policy.clone(),
            term: term.into(),
            ..Default::default()
        };
        let bogons = PolicyPlace {
            failed: "prefix-set = [\"bogons\"]".into(),
            found: request.destination.clone(),
            ..place("bogons")
        };
        let rest = PolicyPlace {
            changes: vec!["local-preference 80".into()],
            decision: "accept".into(),
            ..place("rest")
        };
        let trace = PolicyTrace {
            peer: if request.peer.is_empty() { "transit-1".into() } else { request.peer },
            accepted: true,
            decided_by: "rest".into(),
            places: vec![bogons, rest],
            result: vec!["local-preference 80".into()],
        };
        Ok(TracePolicyReply { prefix: request.destination, traces: vec![trace] })
    }

    async fn show_policy(&self, _: &CallContext, _: bgp::Empty) -> Result<PolicyReply, XrlError> {
        let [transit, down] =
            peers().map(|peer| PolicyChange { peer: peer.name, address: peer.address, ..Default::default() });
        let under_way = PolicyChange {
            direction: "import".into(),
            policy: "from-transit".into(),
            running: true,
            done: 250_000,
            total: 1_000_000,
            age_milliseconds: 2000,
            took_milliseconds: 2000,
            ..transit
        };
        let ended = PolicyChange {
            direction: "export".into(),
            age_milliseconds: 90_000,
            took_milliseconds: 1234,
            ..down
        };
        Ok(PolicyReply { changes: vec![under_way, ended] })
    }

    async fn show_nsr(&self, _: &CallContext, _: bgp::Empty) -> Result<NsrReply, XrlError> {
        let [transit, down] =
            peers().map(|peer| NsrSession { peer: peer.name, address: peer.address, ..Default::default() });
        let transit = NsrSession {
            protected: true,
            incoming_octets: 3 << 10,
            snapshot_octets: 5 << 20,
            outgoing_octets: 1 << 10,
            lag_octets: 4 << 10,
            snapshot_age_milliseconds: 90_000,
            has_snapshot: true,
            ..transit
        };
        let down = NsrSession { reason: "not established".into(), ..down };
        Ok(NsrReply {
            enabled: true,
            log_octets_total: 1 << 30,
            log_octets_used: 6 << 20,
            resumed_sessions: 1,
            // 1 January 2001: some time ago whenever this runs.
            resumed_at_unix_milliseconds: 978_307_200_000,
            lives: 2,
            last_resume_milliseconds: 35,
            sessions: vec![transit, down],
        })
    }
}

/// It carries the session with `transit-1`.
pub(crate) struct Transport;

impl Service for Transport {
    fn info(&self) -> &'static ServiceInfo {
        TransportClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        match call.method() {
            TransportClient::SHOW_CONNECTIONS => {
                call.streaming(|_, _: transport::Empty, _, mut replies| async move {
                    let (peer, protocol) = ("transit-1".into(), transport::Protocol::Quic.into());
                    let connection = transport::Connection { peer, protocol, ..Default::default() };
                    let connection = Some(connection);
                    replies.send(transport::CarriedConnection { connection, ..Default::default() }).await
                })
            }
            _ => call.unknown(),
        }
    }
}

pub(crate) struct Rib;

fn hop(gateway: &[u8], interface: &str) -> NextHop {
    NextHop { gateway: gateway.into(), interface: interface.into(), ..NextHop::default() }
}

fn route(prefix: &str, origin: &str, next_hops: Vec<NextHop>, resolved: Vec<NextHop>) -> ShownRoute {
    let (prefix, origin) = (prefix.into(), origin.into());
    ShownRoute {
        prefix,
        origin,
        next_hops,
        resolved,
        selected: true,
        installed: true,
        ..ShownRoute::default()
    }
}

impl RibServer for Rib {
    async fn configure(&self, _: &CallContext, _: rib::Configuration) -> Result<rib::Empty, XrlError> {
        unasked()
    }

    async fn add_origin(
        &self,
        _: &CallContext,
        _: rib::AddOriginRequest,
    ) -> Result<rib::AddOriginReply, XrlError> {
        unasked()
    }

    async fn routes(&self, _: &CallContext, _: rib::OriginRoutes) -> Result<rib::Empty, XrlError> {
        unasked()
    }

    async fn end_of_sync(&self, _: &CallContext, _: rib::EndOfSyncRequest) -> Result<rib::Empty, XrlError> {
        unasked()
    }

    async fn told(&self, _: &CallContext, _: rib::ToldRequest) -> Result<rib::Empty, XrlError> {
        unasked()
    }

    async fn register(&self, _: &CallContext, _: rib::RegisterRequest) -> Result<rib::Resolution, XrlError> {
        unasked()
    }

    async fn unregister(&self, _: &CallContext, _: rib::RegisterRequest) -> Result<rib::Empty, XrlError> {
        unasked()
    }

    async fn invalidations(
        &self,
        _: &CallContext,
        _: rib::Empty,
        _: ReplySink<rib::Invalidation>,
    ) -> Result<(), XrlError> {
        unasked()
    }

    async fn redistribute(
        &self,
        _: &CallContext,
        _: rib::RedistributeRequest,
        _: ReplySink<rib::Redistributed>,
    ) -> Result<(), XrlError> {
        unasked()
    }

    async fn lookup(&self, _: &CallContext, _: rib::RegisterRequest) -> Result<ShownRoutes, XrlError> {
        unasked()
    }

    async fn show_routes(
        &self,
        _: &CallContext,
        request: rib::ShowRoutesRequest,
        mut replies: ReplySink<ShownRoutes>,
    ) -> Result<(), XrlError> {
        if !request.destination.is_empty() {
            return Ok(());
        }
        let (gateway, neighbor) = (hop(&[10, 9, 0, 1], ""), hop(&[10, 1, 0, 2], "eth0"));
        let connected = hop(&[], "eth0");
        let first = vec![
            route("10.1.0.0/24", "connected", vec![connected.clone()], vec![connected]),
            ShownRoute {
                kind: NextHopKind::Blackhole.into(),
                ..route("192.0.2.0/24", "static", vec![], vec![])
            },
            route("198.51.100.0/24", "bgp", vec![gateway.clone()], vec![neighbor]),
        ];
        let second = vec![
            ShownRoute {
                selected: false,
                installed: false,
                ..route("198.51.100.0/24", "static", vec![gateway.clone()], vec![])
            },
            ShownRoute {
                installed: false,
                rejected: true,
                rejected_reason: "Nexthop has invalid gateway".into(),
                ..route("203.0.113.0/24", "static", vec![gateway.clone()], vec![gateway])
            },
        ];
        for routes in [first, second] {
            replies.send(ShownRoutes { routes }).await?;
        }
        Ok(())
    }

    async fn show_status(&self, _: &CallContext, _: rib::Empty) -> Result<rib::Status, XrlError> {
        unasked()
    }
}

pub(crate) struct Fea;

impl FeaServer for Fea {
    async fn configure(&self, _: &CallContext, _: fea::Configuration) -> Result<fea::Empty, XrlError> {
        unasked()
    }

    async fn interfaces(
        &self,
        _: &CallContext,
        _: fea::Empty,
        _: ReplySink<fea::InterfaceEvent>,
    ) -> Result<(), XrlError> {
        unasked()
    }

    async fn sync_begin(&self, _: &CallContext, _: fea::Empty) -> Result<fea::SyncBeginReply, XrlError> {
        unasked()
    }

    async fn apply(&self, _: &CallContext, _: RouteBatch) -> Result<fea::Empty, XrlError> {
        unasked()
    }

    async fn define_at_once(&self, _: &CallContext, _: RouteBatch) -> Result<fea::Empty, XrlError> {
        unasked()
    }

    async fn sync_end(&self, _: &CallContext, _: fea::Empty) -> Result<fea::Empty, XrlError> {
        unasked()
    }

    async fn losses(&self, _: &CallContext, _: fea::Empty, _: ReplySink<fea::Loss>) -> Result<(), XrlError> {
        unasked()
    }

    async fn refusals(
        &self,
        _: &CallContext,
        _: fea::Empty,
        _: ReplySink<fea::RefusalEvent>,
    ) -> Result<(), XrlError> {
        unasked()
    }

    async fn show_interfaces(
        &self,
        _: &CallContext,
        _: fea::Empty,
    ) -> Result<fea::ShowInterfacesReply, XrlError> {
        let mut link_local = vec![0xfe, 0x80];
        link_local.resize(15, 0);
        link_local.push(1);
        let interface = fea::Interface {
            index: 2,
            name: "eth0".into(),
            up: true,
            running: false,
            mtu: 1500,
            mac: vec![2, 0, 0, 0, 0, 1],
            addresses: vec![
                fea::Address { address: vec![10, 1, 0, 1], length: 24, ..fea::Address::default() },
                fea::Address { address: link_local, length: 64, ..fea::Address::default() },
            ],
        };
        Ok(fea::ShowInterfacesReply { interfaces: vec![interface] })
    }

    async fn show_status(&self, _: &CallContext, _: fea::Empty) -> Result<fea::Status, XrlError> {
        unasked()
    }

    async fn compare(&self, _: &CallContext, _: fea::Empty) -> Result<fea::Repairs, XrlError> {
        unasked()
    }

    async fn shutdown(&self, _: &CallContext, _: fea::ShutdownRequest) -> Result<fea::Empty, XrlError> {
        unasked()
    }
}

const OLD: &str = "0.1.0+00000001";
const NEW: &str = "0.2.0+00000002";

/// The configuration.
pub(crate) const RUNNING: &str = r#"[router]
id = "10.0.0.1"
asn = 65001 # ours
[[bgp.peer]]
name = "transit-1"
address = "10.1.0.2"
asn = 65101
"#;

pub(crate) struct Manager;

impl ManagerServer for Manager {
    async fn adopt(
        &self,
        _: &CallContext,
        _: manager::AdoptRequest,
        _: Vec<std::os::fd::OwnedFd>,
    ) -> Result<manager::Empty, XrlError> {
        unasked()
    }

    async fn stop(&self, _: &CallContext, _: manager::Empty) -> Result<manager::Empty, XrlError> {
        unasked()
    }

    async fn reload(&self, _: &CallContext, _: manager::Empty) -> Result<manager::ReloadReply, XrlError> {
        let changes = vec!["peers added: customer-7".to_owned()];
        let problems = vec!["bgp: no answer to its configuration".to_owned()];
        Ok(manager::ReloadReply { changes, problems, notes: vec!["the standby has not taken it yet".into()] })
    }

    /// Tells back who is to be left out.
    async fn reload_without(
        &self,
        _: &CallContext,
        request: manager::ReloadWithoutRequest,
    ) -> Result<manager::ReloadReply, XrlError> {
        let changes = vec![format!("without {}", request.without.join(", "))];
        Ok(manager::ReloadReply { changes, ..manager::ReloadReply::default() })
    }

    async fn diff(
        &self,
        _: &CallContext,
        request: manager::DiffRequest,
    ) -> Result<manager::DiffReply, XrlError> {
        let mut diff = manager::DiffReply::default();
        if request.text != RUNNING {
            diff.changes.push("peers changed: transit-1".to_owned());
            diff.ending.push("transit-1".to_owned());
            let (peer, cause) = ("transit-1".to_owned(), "it has too much".to_owned());
            diff.over.push(manager::EndingSession { peer, vrf: "blue".to_owned(), cause });
        }
        if !request.text.contains("asn = 65001 # ours") {
            diff.restart.push("`asn` in [router]".to_owned());
        }
        Ok(diff)
    }

    async fn show_descriptors(
        &self,
        _: &CallContext,
        _: manager::Empty,
    ) -> Result<manager::ShowDescriptorsReply, XrlError> {
        let text = "does = \"tries\"\ndoc = \"A toy.\"\nprogram = \"/bin/true\"\n[[key]]\nname = \"word\"\n\
            type = \"text\"\ndoc = \"a word of it\"\n";
        let toy = manager::Descriptor { name: "toy".to_owned(), text: text.to_owned() };
        Ok(manager::ShowDescriptorsReply { descriptors: vec![toy] })
    }

    async fn show_configuration(
        &self,
        _: &CallContext,
        _: manager::Empty,
    ) -> Result<manager::ConfigurationReply, XrlError> {
        let (text, file) = (RUNNING.to_owned(), "/etc/holdfast/router.toml".to_owned());
        Ok(manager::ConfigurationReply { text, base: 7, file, unconfirmed_seconds: 60 })
    }

    /// Has everything that it is asked to do told back.
    async fn commit(
        &self,
        _: &CallContext,
        request: manager::CommitRequest,
    ) -> Result<manager::CommitReply, XrlError> {
        assert_eq!(request.base, 7);
        let manager::CommitRequest { text, force, comment, confirm_seconds, without, .. } = request;
        let without = without.concat();
        let asked =
            format!("{} lines, {force}, {confirm_seconds} s, {comment}{without}", text.lines().count());
        Ok(manager::CommitReply { version: 3, changes: vec![asked], ..manager::CommitReply::default() })
    }

    async fn confirm(&self, _: &CallContext, _: manager::Empty) -> Result<manager::Empty, XrlError> {
        Ok(manager::Empty {})
    }

    async fn history(&self, _: &CallContext, _: manager::Empty) -> Result<manager::HistoryReply, XrlError> {
        let version = |number, uid, current| manager::Version {
            number,
            time: 1_795_287_070,
            uid,
            comment: "port 7".to_owned(),
            current,
        };
        Ok(manager::HistoryReply { versions: vec![version(3, Some(0), true), version(2, None, false)] })
    }

    async fn show_version(
        &self,
        _: &CallContext,
        request: manager::VersionRequest,
    ) -> Result<manager::ConfigurationReply, XrlError> {
        assert_eq!(request.number, 2);
        let text = RUNNING.replace("10.1.0.2", "10.1.0.9");
        Ok(manager::ConfigurationReply { text, ..manager::ConfigurationReply::default() })
    }

    async fn alive(&self, _: &CallContext, _: manager::AliveRequest) -> Result<manager::Empty, XrlError> {
        unasked()
    }

    /// Does what a router does whose keeper then cannot be replaced.
    async fn upgrade(
        &self,
        _: &CallContext,
        request: manager::UpgradeRequest,
        fds: Vec<std::os::fd::OwnedFd>,
        mut replies: ReplySink<manager::UpgradeProgress>,
    ) -> Result<(), XrlError> {
        assert!(fds.len() == 1 && request.path.starts_with(b"/"), "{request:?}");
        let text = if request.dry_run { "would be replaced" } else { "replaced" };
        if request.dry_run {
            let (build, process) = (NEW.into(), "transport".into());
            let text = "would be replaced".into();
            let retires = !request.now;
            let progress = manager::UpgradeProgress { build, process, text, retires, ..Default::default() };
            replies.send(progress).await?;
        }
        let mut progress = manager::UpgradeProgress {
            build: NEW.into(),
            process: "bgp".into(),
            text: text.into(),
            milliseconds: 7,
            ..Default::default()
        };
        replies.send(progress.clone()).await?;
        progress.last = true;
        if request.dry_run { Ok(()) } else { replies.send(progress).await }
    }

    async fn signal(
        &self,
        _: &CallContext,
        request: manager::SignalRequest,
    ) -> Result<manager::SignalReply, XrlError> {
        Ok(manager::SignalReply { instance: format!("{}-42", request.target), pid: 42 })
    }

    async fn show_vrfs(
        &self,
        _: &CallContext,
        _: manager::Empty,
    ) -> Result<manager::ShowVrfsReply, XrlError> {
        let vrf = |name: &str, table, device: &str, netns: &str| manager::Vrf {
            name: name.into(),
            table,
            device: device.into(),
            netns: netns.into(),
        };
        Ok(manager::ShowVrfsReply {
            vrfs: vec![vrf("blue", 100, "vrf-blue", ""), vrf("red", 254, "", "red")],
        })
    }

    async fn show_processes(
        &self,
        _: &CallContext,
        _: manager::Empty,
    ) -> Result<manager::ShowProcessesReply, XrlError> {
        let bgp = manager::Process {
            name: "bgp".into(),
            pid: 42,
            state: "running".into(),
            uptime_seconds: 60,
            memory_bytes: 2 << 20,
            build: NEW.into(),
            quarantined: vec!["Newcomers".into()],
            longest_turn_microseconds: 1234,
            busy_milliseconds: 3200,
            ..manager::Process::default()
        };
        let rib = manager::Process {
            name: "rib".into(),
            state: "backing off".into(),
            restarts: 4,
            last_exit: "hung".into(),
            last_end: "hung".into(),
            hung: 2,
            retry_seconds: 3,
            ..manager::Process::default()
        };
        let own = |name: &str, build: &str| manager::Process {
            name: name.into(),
            state: "running".into(),
            build: build.into(),
            ..manager::Process::default()
        };
        let processes = vec![own("keeper", OLD), own("manager", NEW), bgp, rib];
        Ok(manager::ShowProcessesReply { processes })
    }
}
