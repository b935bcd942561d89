//! BMP: a connection to a collector, and what it is sent (RFC 7854).
//!
//! The collector gets everything anew with each connection. One that does not read is cut off, tried again after a while, and
//! costs nobody else anything: what waits for it waits in `bgp`'s bounded queue, and when that is too short, too, the connection
//! ends and all begins anew.

use std::{collections::HashMap, io, net::IpAddr, time::Duration};

use holdfast_api::{
    bgp::v1::{
        BgpClient, Neighbor, ShowNeighborsRequest, WatchEvent, WatchRequest, Watched, WatchedDown,
        WatchedPeer, watch_event::What, watched_down::Reason as Why,
    },
    monitor::v1::Collector,
    transport::v1::{DialRequest, TransportClient},
};
use holdfast_bgp_wire::{Capability, Open};
use holdfast_bmp::{Down, Peer, Reason, Statistic, Table, Writer};
use holdfast_process::Resolver;
use holdfast_types::{Asn, Family, RouterId};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::{debug, info, warn};

use crate::{routes, unix_microseconds};

/// Pause before the second attempt; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// A connection that lived this long is tried again at once.
const GOOD_LIFE: Duration = Duration::from_secs(60);
/// How long a connection may take to come up.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// A collector that takes nothing for so long is cut off.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long `bgp` may take for its counts.
const ANSWER: Duration = Duration::from_secs(10);

/// Who we are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Own {
    pub(crate) router_id: u32,
    pub(crate) asn: u32,
}

/// Feeds a collector, for ever.
pub(crate) async fn run(resolver: Resolver, own: Own, collector: Collector) {
    let mut pause = FIRST_PAUSE;
    // One line when it changes between reachable and not.
    let mut said = false;
    loop {
        let begin = Instant::now();
        let error = match connect(&resolver, &collector).await {
            Ok(stream) => {
                said = false;
                info!(event = "bmp-connected", collector = collector.name, "collector connected");
                let mut station = Station::new(&resolver, own, &collector, stream);
                station.live().await
            }
            Err(error) => error,
        };
        if !std::mem::replace(&mut said, true) {
            warn!(event = "bmp-lost", collector = collector.name, "no connection to the collector: {error}");
        }
        if begin.elapsed() >= GOOD_LIFE {
            pause = FIRST_PAUSE;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

async fn connect(resolver: &Resolver, collector: &Collector) -> io::Result<TcpStream> {
    let failed = |error: holdfast_xrl::XrlError| io::Error::other(error.message().to_owned());
    let transport: TransportClient = resolver.wait_for("transport").await.map_err(failed)?;
    let dialled = transport.dial(DialRequest { peer: collector.peer.clone() }).await;
    let (_, fds) = dialled.map_err(failed)?;
    let fd = fds.into_iter().next().ok_or_else(|| io::Error::other("no descriptor came"))?;
    let stream = TcpStream::from_std(fd.into())?;
    timeout(DIAL_LIMIT, stream.writable()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}

/// One connection.
struct Station<'a> {
    resolver: &'a Resolver,
    collector: &'a Collector,
    stream: TcpStream,
    words: Words,
}

impl<'a> Station<'a> {
    fn new(resolver: &'a Resolver, own: Own, collector: &'a Collector, stream: TcpStream) -> Self {
        Self { resolver, collector, stream, words: Words::new(own, collector.clone()) }
    }

    /// Until something ends it, which is returned.
    async fn live(&mut self) -> io::Error {
        match self.feed().await {
            Ok(reason) => {
                self.words.out.termination(reason);
                let _ = self.write().await;
                io::Error::other("bgp has ended, or was too fast for it")
            }
            Err(error) => error,
        }
    }

    async fn feed(&mut self) -> io::Result<Reason> {
        let failed = |error: holdfast_xrl::XrlError| io::Error::other(error.message().to_owned());
        let bgp: BgpClient = self.resolver.wait_for("bgp").await.map_err(failed)?;
        self.words.begin();
        self.write().await?;
        let mut events = bgp.watch(self.words.request());
        let every = Duration::from_secs(self.collector.statistics_seconds.into());
        let mut report = Instant::now() + every;
        let mut ignored = [0; 256];
        loop {
            tokio::select! {
                // RFC 7854 section 3.2: a collector says nothing; this is how its end is noticed.
                read = self.stream.read(&mut ignored) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::ConnectionReset.into());
                    }
                }
                item = events.next() => match item {
                    Ok(Some(watched)) if watched.lost > 0 => return Ok(Reason::OutOfResources),
                    Ok(Some(watched)) => self.words.take(watched),
                    Ok(None) | Err(_) => return Ok(Reason::Unspecified),
                },
                () = sleep_until(report), if !every.is_zero() => {
                    report = Instant::now() + every;
                    match timeout(ANSWER, counts(&bgp)).await {
                        Ok(Ok(neighbors)) => self.words.statistics(&neighbors),
                        Ok(Err(_)) | Err(_) => debug!("no counts for the collector"),
                    }
                }
            }
            self.write().await?;
        }
    }

    async fn write(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.words.out.bytes);
        let written = timeout(PATIENCE, self.stream.write_all(&bytes)).await;
        written.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it does not read"))?
    }
}

async fn counts(bgp: &BgpClient) -> Result<Vec<Neighbor>, holdfast_xrl::XrlError> {
    let mut stream = bgp.show_neighbors(ShowNeighborsRequest::default());
    let mut neighbors = Vec::new();
    while let Some(neighbor) = stream.next().await? {
        neighbors.push(neighbor);
    }
    Ok(neighbors)
}

/// What a collector is told, without any connection.
struct Words {
    own: Own,
    wants: Collector,
    out: Writer,
    peers: HashMap<u32, WatchedPeer>,
}

impl Words {
    fn new(own: Own, wants: Collector) -> Self {
        Self { own, wants, out: Writer::default(), peers: HashMap::new() }
    }

    fn request(&self) -> WatchRequest {
        WatchRequest {
            received_updates: self.wants.adj_rib_in,
            sent_updates: self.wants.adj_rib_out,
            loc_rib: self.wants.loc_rib,
            dump_received: self.wants.adj_rib_in,
            dump_sent: self.wants.adj_rib_out,
            dump_best: self.wants.loc_rib,
            ..WatchRequest::default()
        }
    }

    /// Initiation; and the Loc-RIB, which is up as long as the connection (RFC 9069 section 5.2).
    fn begin(&mut self) {
        let router_id = std::net::Ipv4Addr::from_bits(self.own.router_id).to_string();
        self.out.initiation(&router_id, concat!("holdfast ", env!("CARGO_PKG_VERSION")));
        if self.wants.loc_rib {
            let (peer, open) = (self.loc_rib(unix_microseconds()), self.own_open());
            self.out.peer_up(&peer, (IpAddr::from([0; 4]), 0, 0), (&open, &open), "global");
        }
    }

    fn loc_rib(&self, at: u64) -> Peer {
        Peer {
            table: Table::LocRib,
            address: IpAddr::from([0; 4]),
            asn: Asn(self.own.asn),
            router_id: self.own.router_id,
            two_octet_as: false,
            at,
        }
    }

    /// RFC 9069 section 5.3: an OPEN that says what UPDATEs of the Loc-RIB have.
    fn own_open(&self) -> Vec<u8> {
        let Some(router_id) = RouterId::new(self.own.router_id) else { return Vec::new() };
        let families = Family::ALL.into_iter().map(Capability::Multiprotocol);
        let capabilities = families.chain([Capability::FourOctetAs(Asn(self.own.asn))]).collect();
        Open { asn: Asn(self.own.asn), hold_time: 0, router_id, capabilities }.encode()
    }

    fn peer(&self, peer: &WatchedPeer, table: Table, at: u64) -> Option<Peer> {
        Some(Peer {
            table,
            address: routes::address(&peer.address)?,
            asn: Asn(peer.asn),
            router_id: peer.router_id,
            // What is told of a table is written anew.
            two_octet_as: false,
            at,
        })
    }

    /// Whether sessions are monitored, not only what comes of all of them.
    fn monitors_peers(&self) -> bool {
        self.wants.adj_rib_in || self.wants.adj_rib_out
    }

    fn take(&mut self, watched: Watched) {
        watched.events.into_iter().for_each(|event| self.event(event));
        let at = unix_microseconds();
        let monitored: Vec<_> =
            watched.dumped.iter().filter_map(|dumped| Some((routes::prefix(dumped)?, dumped))).collect();
        if watched.best {
            let peer = self.loc_rib(at);
            let all = monitored.iter().flat_map(|(prefix, it)| it.paths.iter().map(|path| (*prefix, path)));
            routes::updates(all, &mut |update| self.out.route_monitoring(&peer, update));
            if let Some(family) = family(watched.ended_afi) {
                self.out.route_monitoring(&peer, &routes::end_of_rib(family));
            }
            return;
        }
        let table = if watched.sent_to.is_some() { Table::AdjRibOut } else { Table::AdjRibIn };
        let numbers: Vec<u32> = match watched.sent_to {
            Some(number) => vec![number],
            None => self.peers.keys().copied().collect(),
        };
        for number in numbers {
            let Some(peer) = self.peers.get(&number).and_then(|peer| self.peer(peer, table, at)) else {
                continue;
            };
            let of_peer =
                monitored.iter().flat_map(|(prefix, it)| it.paths.iter().map(|path| (*prefix, path)));
            let of_peer =
                of_peer.filter(|(_, path)| watched.sent_to.is_some() || path.number == Some(number));
            routes::updates(of_peer, &mut |update| self.out.route_monitoring(&peer, update));
            if let Some(family) = family(watched.ended_afi) {
                self.out.route_monitoring(&peer, &routes::end_of_rib(family));
            }
        }
    }

    fn event(&mut self, WatchEvent { at_microseconds: at, what }: WatchEvent) {
        match what {
            Some(What::Up(up)) => self.up(up, at),
            Some(What::Down(down)) => self.down(&down, at),
            Some(What::Received(message)) => {
                self.updates(message.number, Table::AdjRibIn, at, &message.octets);
            }
            Some(What::Sent(message)) => self.updates(message.number, Table::AdjRibOut, at, &message.octets),
            Some(What::Best(best)) => {
                let (Some(prefix), peer) = (routes::prefix(&best), self.loc_rib(at)) else { return };
                match best.paths.is_empty() {
                    true => self.out.route_monitoring(&peer, &routes::withdrawal(prefix)),
                    false => {
                        let all = best.paths.iter().map(|path| (prefix, path));
                        routes::updates(all, &mut |update| self.out.route_monitoring(&peer, update));
                    }
                }
            }
            Some(What::State(_)) | None => {}
        }
    }

    /// RFC 8671 section 6.3: a session is up or down once, whatever is monitored of it.
    fn up(&mut self, up: WatchedPeer, at: u64) {
        let local = routes::address(&up.local_address).filter(|_| self.monitors_peers());
        if let (Some(local), Some(peer)) = (local, self.peer(&up, Table::AdjRibIn, at)) {
            let opens = (&up.sent_open[..], &up.received_open[..]);
            self.out.peer_up(&peer, (local, up.local_port as u16, up.port as u16), opens, "");
        }
        self.peers.insert(up.number, up);
    }

    fn down(&mut self, down: &WatchedDown, at: u64) {
        let Some(known) = self.peers.remove(&down.number).filter(|_| self.monitors_peers()) else { return };
        let why = match down.reason() {
            Why::Sent => Down::Sent(&down.notification),
            Why::Received => Down::Received(&down.notification),
            Why::Lost => Down::Lost,
            // ManualStop is event 2.
            Why::Stopped => Down::Closed(2),
        };
        if let Some(peer) = self.peer(&known, Table::AdjRibIn, at) {
            self.out.peer_down(&peer, why);
        }
    }

    fn updates(&mut self, number: u32, table: Table, at: u64, messages: &[u8]) {
        let Some(known) = self.peers.get(&number) else { return };
        let Some(peer) = self.peer(known, table, at) else { return };
        let peer = Peer { two_octet_as: !known.four_octet_as, ..peer };
        routes::each(messages, &mut |update| self.out.route_monitoring(&peer, update));
    }

    fn statistics(&mut self, neighbors: &[Neighbor]) {
        let at = unix_microseconds();
        let mut best = [0; 2];
        for neighbor in neighbors {
            let families =
                || neighbor.families.iter().filter_map(|it| Some((it.family.parse::<Family>().ok()?, it)));
            for (family, state) in families() {
                best[usize::from(family != Family::IPV4_UNICAST)] += state.best;
            }
            let address = neighbor.peer.as_ref().map(|peer| peer.address.as_str()).unwrap_or_default();
            let known = self.peers.values().find(|known| {
                routes::address(&known.address).is_some_and(|known| known.to_string() == address)
            });
            let Some(known) = known.cloned() else { continue };
            // RFC 8671 section 6.2: the kind of a number says which table it is about.
            let Some(peer) = self.peer(&known, Table::AdjRibIn, at) else { continue };
            let mut statistics = Vec::new();
            if self.wants.adj_rib_in {
                statistics.push(Statistic::AdjRibIn(families().map(|(_, it)| it.received).sum()));
                statistics.extend(families().map(|(family, it)| Statistic::AdjRibInOf(family, it.received)));
            }
            if self.wants.adj_rib_out {
                statistics.push(Statistic::AdjRibOut(families().map(|(_, it)| it.sent).sum()));
                statistics.extend(families().map(|(family, it)| Statistic::AdjRibOutOf(family, it.sent)));
            }
            if !statistics.is_empty() {
                self.out.statistics(&peer, &statistics);
            }
        }
        if self.wants.loc_rib {
            let peer = self.loc_rib(at);
            let [v4, v6] = best;
            let statistics = [
                Statistic::LocRib(v4 + v6),
                Statistic::LocRibOf(Family::IPV4_UNICAST, v4),
                Statistic::LocRibOf(Family::IPV6_UNICAST, v6),
            ];
            self.out.statistics(&peer, &statistics);
        }
    }
}

fn family(afi: u32) -> Option<Family> {
    Family::ALL.into_iter().find(|family| u32::from(family.afi.0) == afi)
}
