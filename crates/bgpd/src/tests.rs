//! The speaker with peers that the test plays, over real sockets on loopback: what it decides about connections,
//! and that nothing of them is left when they are over. No task runs here: the test reads and writes by hand.
//! `process` is the whole process for the others.

mod awaited;
mod bfd;
mod carried;
mod corpora;
mod door;
mod kept_signatures;
mod links;
mod pressure;
mod process;
mod restart;
mod signing;
mod takeover;
mod validation;
mod vrf;

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use holdfast_api::{bgp::v1 as api, transport::v1 as transport};
use holdfast_bgp_pipeline::{Journal, JournalEntry, OriginateAttributes, PeerIndex, Pipeline};
use holdfast_bgp_session::{Level, PeerAsn, State, StopReason, Timer};
use holdfast_bgp_wire::{Capability, KEEPALIVE, MessageType, Notification, Open, next_message};
use holdfast_config::schema::{LimitAction, Peer, PrefixLimit, Size};
use holdfast_nsr::EntryId;
use holdfast_types::{Asn, Family, HashKey, RouterId};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::nonstop::{FORMATS, LogJournal, ReplicationLog, Shared};
use crate::{
    apply::Applying,
    config::{Configuration, Neighbor, Peers, Policies},
    connection::Key,
    location::Location,
    roster::Stopped,
    sessions::{Effect, slot::Slot},
    speaker::{MOST_EXPIRED, Read, Speaker, Write},
    stream::{AcceptedConnection, Stream},
};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const GUEST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 9));
/// The End-of-RIB of IPv4 unicast (RFC 4724 section 2): an UPDATE with nothing in it.
const END_OF_RIB: [u8; 23] =
    [255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 23, 2, 0, 0, 0, 0];

/// A speaker with a passive peer, a range of guests, and the far end of one connection.
struct Scene {
    speaker: Speaker,
    peer: PeerIndex,
    range: Neighbor,
    now: Instant,
}

/// A connection: our side of it by its key, and the peer's.
struct Line {
    key: Key,
    far: Box<dyn Far>,
}

/// The far end of a connection.
trait Far: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Far for T {}

fn configuration() -> Configuration {
    let peer = |name: &str, address: [u8; 4], asn, range_length| api::Peer {
        name: name.into(),
        address: address.into(),
        asn,
        is_range: range_length > 0,
        range_length,
        passive: true,
        families: vec!["ipv4-unicast".into()],
        hold_time: 90,
        connect_retry_seconds: 5,
        ..Default::default()
    };
    let message = api::Configuration {
        router_id: 0x0a00_0001,
        asn: 65_000,
        max_paths: 1,
        default_local_pref: 100,
        sync_seconds: 120,
        peers: vec![peer("peer", [10, 0, 0, 2], 65_001, 0), peer("guests", [10, 0, 1, 0], 0, 24)],
        ..Default::default()
    };
    Policies::default().read_at_once(message, None).expect("a configuration that makes sense").0
}

/// Memory for stopped peers, with nobody in it.
fn stopped() -> Stopped {
    Stopped::create("stopped").expect("memory")
}

impl Scene {
    fn new() -> Self {
        let now = Instant::now();
        let Configuration { settings, peers: Peers { mut neighbors, mut ranges, .. }, .. } = configuration();
        let pipeline = Pipeline::new(settings.pipeline(HashKey::new([1, 0])));
        let mut speaker = Speaker::new(settings, pipeline, stopped(), now);
        let peer = speaker.add_peer(neighbors.remove(0), false, 1, now);
        Self { speaker, peer, range: ranges.remove(0).template, now }
    }

    /// The peer connects.
    async fn connect(&mut self, index: PeerIndex) -> Line {
        let (near, far) = pair().await;
        self.take(index, handed(near), far)
    }

    /// The door hands over a connection of the peer.
    fn take(&mut self, index: PeerIndex, handed: AcceptedConnection, far: impl Far + 'static) -> Line {
        let key = self.speaker.accepted(index, handed, &[], self.now).expect("the connection is taken");
        Line { key, far: Box::new(far) }
    }

    /// A guest connects.
    async fn guest(&mut self) -> Line {
        let index = self.speaker.add_peer(self.range.at(Location::Address(GUEST)), true, 2, self.now);
        self.connect(index).await
    }

    /// The peer's part of the handshake.
    async fn establish(&mut self, line: &mut Line) {
        self.says(line, &open()).await;
        self.says(line, &KEEPALIVE).await;
        assert_eq!(self.state(line.key.0), Some(State::Established));
        // The last is the End-of-RIB of a table with nothing in it.
        let heard = self.hears(line).await;
        assert_eq!(heard, [MessageType::Open, MessageType::KeepAlive, MessageType::Update]);
    }

    /// The peer sends bytes, and the speaker reads them.
    async fn says(&mut self, line: &mut Line, octets: &[u8]) -> Read {
        line.far.write_all(octets).await.expect("room in the socket");
        self.reads(line.key).await
    }

    async fn reads(&mut self, key: Key) -> Read {
        if let Some(connection) = self.speaker.sessions.connection(key) {
            let stream = std::rc::Rc::clone(&connection.stream);
            stream.readable().await.expect("a socket");
        }
        self.speaker.receive(key, self.now, &|| false)
    }

    /// The speaker writes what it has; the peer reads so many messages of it.
    async fn hears<const N: usize>(&mut self, line: &mut Line) -> [MessageType; N] {
        self.speaker.transmit(line.key, self.now, &|| false);
        let mut kinds = [MessageType::KeepAlive; N];
        for kind in &mut kinds {
            *kind = line.next().await.0;
        }
        kinds
    }

    fn slot(&self) -> &Slot {
        self.speaker.sessions.slot(self.peer).expect("a peer")
    }

    fn is_synced(&mut self, now: Instant) -> bool {
        self.speaker.sessions.is_synced(&self.speaker.settings, now)
    }

    fn state(&self, index: PeerIndex) -> Option<State> {
        Some(self.speaker.sessions.slot(index)?.session.state())
    }
}

impl Line {
    /// The next message that the peer reads.
    async fn next(&mut self) -> (MessageType, Vec<u8>) {
        let mut octets = vec![0; 19];
        self.far.read_exact(&mut octets).await.expect("a header");
        octets.resize(usize::from(u16::from_be_bytes([octets[16], octets[17]])), 0);
        self.far.read_exact(&mut octets[19..]).await.expect("a body");
        let message = next_message(&octets, 4096).expect("a good message").expect("a whole one");
        (message.kind, message.body.to_vec())
    }
}

/// A speaker with so many internal peers, which are told of our own routes, and the far ends of their sessions.
async fn internal(count: u8) -> (Scene, Vec<Line>) {
    let mut scene = Scene::new();
    let mut lines = Vec::new();
    for n in 0..count {
        let neighbor = Neighbor {
            asn: PeerAsn::Internal,
            ..scene.range.at(Location::Address(Ipv4Addr::new(10, 0, 2, n).into()))
        };
        let peer = scene.speaker.add_peer(neighbor, false, n.into(), scene.now);
        let mut line = scene.connect(peer).await;
        scene.says(&mut line, &open_of(Asn(65_000))).await;
        scene.says(&mut line, &KEEPALIVE).await;
        let _: [MessageType; 3] = scene.hears(&mut line).await;
        lines.push(line);
    }
    while scene.speaker.write_ready(scene.now, &|| false) {}
    (scene, lines)
}

/// Both ends of a connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port of loopback");
    let address = listener.local_addr().expect("an address");
    let (near, far) = tokio::join!(listener.accept(), TcpStream::connect(address));
    (near.expect("a connection").0, far.expect("a connection"))
}

/// Our end, as the door hands it over.
fn handed(near: TcpStream) -> AcceptedConnection {
    let near = near.into_std().expect("a socket");
    let stream = Stream::new(near.into()).expect("a stream");
    AcceptedConnection::new(transport::Connection::default(), stream).expect("it has addresses")
}

fn open() -> Vec<u8> {
    open_of(Asn(65_001))
}

fn open_of(asn: Asn) -> Vec<u8> {
    open_with(asn, Vec::new())
}

/// With further capabilities.
fn open_with(asn: Asn, more: Vec<Capability>) -> Vec<u8> {
    let usual = [Capability::Multiprotocol(Family::IPV4_UNICAST), Capability::FourOctetAs(asn)];
    let capabilities = usual.into_iter().chain(more).collect();
    let router_id = RouterId::new(0x0a00_0002).expect("not 0");
    Open { asn, hold_time: 90, router_id, capabilities }.encode()
}

#[tokio::test]
async fn a_message_in_pieces_counts_when_it_is_whole() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    let open = open();
    let (first, second) = open.split_at(20);
    assert_eq!(scene.says(&mut line, first).await, Read::Wait);
    assert_eq!(scene.state(scene.peer), Some(State::OpenSent));
    scene.says(&mut line, second).await;
    assert_eq!(scene.state(scene.peer), Some(State::OpenConfirm));
}

#[tokio::test]
async fn messages_that_come_together_are_all_taken() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.says(&mut line, &[&open()[..], &KEEPALIVE, &END_OF_RIB, &KEEPALIVE[..5]].concat()).await;
    assert_eq!(scene.state(scene.peer), Some(State::Established));
    scene.speaker.drain_pipeline(scene.now);
    let slot = scene.slot();
    assert!(slot.end_of_rib.contains(&Family::IPV4_UNICAST));
}

/// The End-of-RIBs and KEEPALIVEs that the peer's session has received.
fn received(scene: &Scene) -> (u64, u64) {
    let counted = &scene.slot().session.counters().received;
    (counted.of(MessageType::Update), counted.of(MessageType::KeepAlive))
}

#[tokio::test]
async fn what_a_turn_leaves_comes_first_in_the_next() {
    for is_protected in [false, true] {
        let mut scene = Scene::new();
        let log = is_protected.then(|| protected(&mut scene));
        let mut line = scene.connect(scene.peer).await;
        scene.establish(&mut line).await;
        let (updates, keepalives) = received(&scene);
        let said = [&END_OF_RIB[..], &KEEPALIVE, &END_OF_RIB, &KEEPALIVE[..5]].concat();
        line.far.write_all(&said).await.expect("room in the socket");
        let stream =
            std::rc::Rc::clone(&scene.speaker.sessions.connection(line.key).expect("a connection").stream);
        stream.readable().await.expect("a socket");
        let mut turn = || scene.speaker.receive(line.key, scene.now, &|| true);
        assert_eq!(
            [turn(), turn(), turn(), turn()],
            [Read::More; 4],
            "a message each, then what is no whole one"
        );
        assert_eq!(turn(), Read::Wait, "the socket is empty");
        assert_eq!(received(&scene), (updates + 2, keepalives + 1));
        if let Some(log) = log {
            let (log, id) = (log.log.borrow(), log.log.borrow().sessions().next().expect("a session"));
            assert!(log.read(id, log.incoming(id).end - 5) == &KEEPALIVE[..5], "it waits in the log");
        }
        assert_eq!(scene.says(&mut line, &KEEPALIVE[5..]).await, Read::Wait);
        assert_eq!(received(&scene), (updates + 2, keepalives + 2));
    }
}

#[tokio::test]
async fn a_long_update_is_taken_in_a_part_in_each_turn() {
    const PREFIXES: u32 = 10_000;
    let one = |number: u32| [&[32][..], &(0x1000_0000 + number * 256).to_be_bytes()].concat();
    let nlri: Vec<u8> = (0..PREFIXES).flat_map(one).collect();
    let attributes = [64, 1, 1, 0, 64, 2, 6, 2, 1, 0, 0, 0xfd, 0xe9, 64, 3, 4, 10, 0, 0, 2];
    let body = [&[0, 0, 0, attributes.len() as u8][..], &attributes, &nlri].concat();
    let update = [&[255; 16][..], &(19 + body.len() as u16).to_be_bytes(), &[2], &body].concat();
    for is_protected in [false, true] {
        let mut scene = Scene::new();
        if is_protected {
            protected(&mut scene);
        }
        let mut line = scene.connect(scene.peer).await;
        scene.says(&mut line, &open_with(Asn(65_001), vec![Capability::ExtendedMessage])).await;
        scene.says(&mut line, &KEEPALIVE).await;
        let (updates, keepalives) = received(&scene);
        line.far.write_all(&[&update[..], &KEEPALIVE].concat()).await.expect("room in the socket");
        let stream =
            std::rc::Rc::clone(&scene.speaker.sessions.connection(line.key).expect("a connection").stream);
        let (mut turns, mut size) = (0, 0);
        while received(&scene) != (updates + 1, keepalives + 1) {
            if scene.speaker.receive(line.key, scene.now, &|| true) == Read::Wait {
                stream.readable().await.expect("a socket");
            }
            let (before, now) = (size, scene.speaker.pipeline.table_size(Family::IPV4_UNICAST).0);
            assert!(now - before <= 1024, "{before} routes, then {now}");
            turns += usize::from(now > before);
            size = now;
        }
        assert_eq!((size, turns), (PREFIXES as usize, 10));
    }
}

#[tokio::test]
async fn a_peer_whose_octets_wait_here_is_not_called_silent() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let late = scene.now + Duration::from_secs(91);
    line.far.write_all(&[KEEPALIVE, KEEPALIVE].concat()).await.expect("room in the socket");
    let stream =
        std::rc::Rc::clone(&scene.speaker.sessions.connection(line.key).expect("a connection").stream);
    stream.readable().await.expect("a socket");
    scene.speaker.expire(late);
    assert_eq!(scene.state(scene.peer), Some(State::Established), "they are in the socket");
    scene.now = late;
    let read = scene.speaker.receive(line.key, scene.now, &|| true);
    assert_eq!(read, Read::More);
    scene.now += Duration::from_secs(91);
    scene.speaker.expire(scene.now);
    assert_eq!(scene.state(scene.peer), Some(State::Established), "one was read, and waits");
    assert_eq!(scene.speaker.receive(line.key, scene.now, &|| true), Read::More);
    scene.now += Duration::from_secs(91);
    scene.speaker.expire(scene.now);
    assert_eq!(scene.state(scene.peer), Some(State::Idle), "nothing waits");
}

#[tokio::test]
async fn what_a_peer_has_acknowledged_leaves_the_log_while_more_is_sent() {
    let mut scene = Scene::new();
    let log = protected(&mut scene);
    log.keeps_sent.set(true);
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let id = log.log.borrow().sessions().next().expect("a session");
    let (octets, mut room) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    for _ in 0..48 {
        let connection = scene.speaker.sessions.connection_mut(line.key).expect("a connection");
        connection.queue(octets.clone().into(), None);
        connection.write(scene.now).expect("room in the socket");
        line.far.read_exact(&mut room).await.expect("what was sent");
        let held = log.log.borrow().unacknowledged(id);
        // Three MiB in all; acknowledgements come a little later.
        assert!(held.end - held.start <= 512 << 10, "{held:?}");
    }
}

#[tokio::test]
async fn the_end_of_a_connection_wakes_the_task_that_writes_and_leaves_nothing() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let connection = scene.speaker.sessions.connection(line.key).expect("a connection");
    let (stream, wake) = (std::rc::Rc::clone(&connection.stream), std::rc::Rc::clone(&connection.wake));
    // What was rung so far is heard.
    let _ = tokio::time::timeout(Duration::ZERO, wake.notified()).await;
    drop(line.far);
    assert_eq!(scene.reads(line.key).await, Read::Gone);
    let woken = tokio::time::timeout(Duration::from_secs(5), wake.notified()).await;
    woken.expect("the task that writes is woken");
    assert_eq!(scene.speaker.transmit(line.key, scene.now, &|| false), Write::Gone);
    assert!(scene.speaker.sessions.is_quiet());
    assert_eq!(std::rc::Rc::strong_count(&stream), 1, "nobody but this test holds the socket");
}

/// A log for sessions of this scene.
fn protected(scene: &mut Scene) -> std::rc::Rc<ReplicationLog> {
    let memory = holdfast_sys::memory::SharedMemory::create("test", 4 << 20).expect("memory");
    let log = holdfast_nsr::Log::create(Shared(memory), FORMATS, [7; 16]).expect("room for a log");
    let log = ReplicationLog::new(log);
    scene.speaker.pipeline.keep_journal(Box::new(LogJournal(std::rc::Rc::clone(&log))));
    scene.speaker.protection.log = Some(std::rc::Rc::clone(&log));
    scene.speaker.sessions.slot_mut(scene.peer).expect("a peer").neighbor.source.nonstop = true;
    log
}

#[tokio::test]
async fn an_established_session_is_in_the_log_until_its_connection_is_gone() {
    let mut scene = Scene::new();
    let log = protected(&mut scene);
    let mut line = scene.connect(scene.peer).await;
    assert_eq!(log.log.borrow().sessions().count(), 0, "what is coming up is not protected");
    // The End-of-RIB comes in the octets that bring the session up, and half a message with it.
    scene.says(&mut line, &[&open()[..], &KEEPALIVE, &END_OF_RIB, &KEEPALIVE[..5]].concat()).await;
    assert_eq!(scene.speaker.sessions.poll_effect(), Some(Effect::Keep(line.key)));
    let id = log.log.borrow().sessions().next().expect("a session");
    assert_eq!(
        log.log.borrow().read(id, log.log.borrow().incoming(id).start),
        [&END_OF_RIB[..], &KEEPALIVE[..5]].concat()
    );
    let stream =
        std::rc::Rc::clone(&scene.speaker.sessions.connection(line.key).expect("a connection").stream);
    let consumed = holdfast_sys::tcp::consumed(&*stream).expect("a socket");
    assert_eq!(log.log.borrow().incoming(id).end, consumed, "the log is where the kernel is");
    while scene.speaker.transmit(line.key, scene.now, &|| false) == Write::Yield {}
    let written = holdfast_sys::tcp::written(&*stream).expect("a socket");
    assert_eq!(log.log.borrow().outgoing(id), written..written);
    drop(stream);
    drop(line.far);
    assert_eq!(scene.reads(line.key).await, Read::Gone);
    assert_eq!((log.log.borrow().sessions().count(), log.poll_left()), (0, Some(id)), "the keeper is told");
    assert_eq!(scene.speaker.sessions.poll_effect(), None);
}

#[tokio::test]
async fn histories_that_have_ended_are_freed_before_they_fill_the_log() {
    let mut scene = Scene::new();
    let log = protected(&mut scene);
    let free = log.log.borrow().free_blocks();
    let mut journal = LogJournal(std::rc::Rc::clone(&log));
    let mut last = JournalEntry::NONE;
    while !log.wants_collecting() {
        last = journal.append(JournalEntry::NONE, b"history");
        assert_ne!(last, JournalEntry::LOST, "there is room until then");
    }
    assert!(log.log.borrow().free_blocks() < free);
    log.collect(vec![EntryId::from_bits(last.0)]);
    assert!(!log.wants_collecting());
    assert_eq!(log.log.borrow().free_blocks(), free - 1, "one goes on");
}

#[tokio::test]
async fn a_session_that_finds_no_room_in_the_log_goes_on_without() {
    let mut scene = Scene::new();
    let log = protected(&mut scene);
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    scene.says(&mut line, &KEEPALIVE[..7]).await;
    scene.speaker.give_up_protection(line.key);
    let connection = scene.speaker.sessions.connection(line.key).expect("a connection");
    assert!(connection.held.is_none() && log.log.borrow().sessions().count() == 0);
    scene.says(&mut line, &[&KEEPALIVE[7..], &END_OF_RIB].concat()).await;
    // The octets may take a moment to the other side.
    while scene.slot().session.counters().received.of(MessageType::Update) == 0 {
        scene.reads(line.key).await;
    }
    scene.speaker.drain_pipeline(scene.now);
    assert_eq!(scene.state(scene.peer), Some(State::Established));
    assert!(scene.slot().end_of_rib.contains(&Family::IPV4_UNICAST), "in the middle of a message");
}

#[tokio::test]
async fn a_fault_is_answered_and_what_follows_it_is_not_read() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let mut fault = KEEPALIVE;
    fault[18] = 9;
    assert_eq!(scene.says(&mut line, &[fault, KEEPALIVE].concat()).await, Read::Gone);
    assert_eq!(scene.state(scene.peer), Some(State::Idle));
    let done = scene.speaker.transmit(line.key, scene.now, &|| false);
    assert_eq!(done, Write::Finish, "the connection is closed in order");
    let (kind, body) = line.next().await;
    assert_eq!(kind, MessageType::Notification);
    // RFC 4271 section 6.1: Bad Message Type, with the type.
    assert_eq!(Notification::parse(&body), Some(Notification { code: 1, subcode: 3, data: vec![9] }));
}

#[tokio::test]
async fn a_second_connection_does_not_harm_an_established_session() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let mut second = scene.connect(scene.peer).await;
    scene.says(&mut second, &open()).await;
    let heard = scene.hears(&mut second).await;
    assert_eq!(heard, [MessageType::Open, MessageType::Notification]);
    assert_eq!(scene.speaker.transmit(second.key, scene.now, &|| false), Write::Finish);
    assert_eq!(scene.state(scene.peer), Some(State::Established));
    assert!(scene.speaker.sessions.session_connection(scene.peer).is_some_and(|(key, _)| key == line.key));
}

#[tokio::test]
async fn a_peer_of_a_range_lives_as_long_as_its_connection() {
    let mut scene = Scene::new();
    // Before its OPEN, and in a session.
    for established in [false, true] {
        let mut line = scene.guest().await;
        assert_eq!(scene.state(line.key.0), Some(State::OpenSent));
        if established {
            scene.establish(&mut line).await;
        }
        assert!(scene.speaker.sessions.peer_at(&Location::Address(GUEST)).is_some());
        drop(line.far);
        scene.reads(line.key).await;
        assert_eq!(
            scene.speaker.sessions.peers(),
            1,
            "only the configured peer is left (established: {established})"
        );
        assert!(scene.speaker.sessions.is_quiet());
    }
}

#[tokio::test]
async fn a_peer_of_a_range_whose_open_is_refused_is_told_so_and_forgotten() {
    let mut scene = Scene::new();
    let mut line = scene.guest().await;
    let mut refused = open();
    refused[19] = 3;
    assert_eq!(scene.says(&mut line, &refused).await, Read::Gone);
    assert_eq!(scene.speaker.sessions.peer_at(&Location::Address(GUEST)), None);
    assert_eq!(scene.hears(&mut line).await, [MessageType::Open, MessageType::Notification]);
}

#[tokio::test]
async fn a_configured_peer_stays_when_its_connection_goes() {
    let mut scene = Scene::new();
    let line = scene.connect(scene.peer).await;
    drop(line.far);
    scene.reads(line.key).await;
    assert_eq!(scene.state(scene.peer), Some(State::Active));
    assert_eq!(scene.speaker.sessions.peer_at(&Location::Address(PEER)), Some(scene.peer));
}

#[tokio::test]
async fn a_peer_that_is_removed_is_told_so_while_its_connection_says_goodbye() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    scene.speaker.remove_peer(scene.peer, StopReason::PeerDeconfigured, scene.now);
    assert_eq!(scene.speaker.sessions.peer_at(&Location::Address(PEER)), None);
    assert_eq!(scene.hears(&mut line).await, [MessageType::Notification]);
    assert_eq!(scene.speaker.transmit(line.key, scene.now, &|| false), Write::Finish);
    scene.speaker.drop_connection(line.key);
    assert!(scene.speaker.sessions.is_quiet() && scene.speaker.sessions.next_deadline().is_none());
}

#[tokio::test]
async fn a_silent_peer_is_ended_when_its_hold_time_is_over() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let end = scene.now + Duration::from_secs(90);
    while let Some(at) = scene.speaker.sessions.next_deadline().filter(|&at| at <= end) {
        scene.now = at;
        scene.speaker.expire(at);
        scene.speaker.transmit(line.key, at, &|| false);
    }
    let mut keepalives = 0;
    while line.next().await.0 == MessageType::KeepAlive {
        keepalives += 1;
    }
    assert!(keepalives >= 2, "it heard {keepalives} KEEPALIVEs before the NOTIFICATION");
    assert_eq!(scene.now, end);
    assert_eq!(scene.state(scene.peer), Some(State::Idle));
}

#[tokio::test]
async fn the_table_is_complete_when_every_peer_has_sent_its_own_or_time_is_over() {
    let mut scene = Scene::new();
    assert!(!scene.is_synced(scene.now), "the peer is not there yet");
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    assert!(!scene.is_synced(scene.now));
    scene.says(&mut line, &END_OF_RIB).await;
    scene.speaker.drain_pipeline(scene.now);
    assert!(scene.is_synced(scene.now));
    let mut alone = Scene::new();
    assert!(alone.is_synced(alone.now + Duration::from_secs(120)));
}

#[tokio::test]
async fn a_shut_down_says_why_on_every_session() {
    let mut scene = Scene::new();
    let mut lines = [scene.connect(scene.peer).await, scene.guest().await];
    for line in &mut lines {
        scene.establish(line).await;
    }
    scene.speaker.shut_down("maintenance", scene.now);
    for line in &mut lines {
        assert_eq!(scene.speaker.transmit(line.key, scene.now, &|| false), Write::Finish);
        let (kind, body) = line.next().await;
        // RFC 9003 section 2: the length, then the text.
        assert_eq!(
            (kind, &body[..3], &body[3..]),
            (MessageType::Notification, &[6, 2, 11][..], &b"maintenance"[..])
        );
    }
}

#[tokio::test]
async fn a_route_is_written_to_all_peers_before_anything_else_happens() {
    let (mut scene, mut lines) = internal(40).await;
    let route = "192.0.2.0/24".parse().expect("a prefix");
    scene.speaker.pipeline.originate(route, &OriginateAttributes::default());
    // One turn is for fewer than there are.
    assert!(scene.speaker.write_ready(scene.now, &|| false));
    assert!(!scene.speaker.write_ready(scene.now, &|| false));
    for line in &mut lines {
        let (kind, body) = line.next().await;
        assert_eq!((kind, &body[body.len() - 4..]), (MessageType::Update, &[24, 192, 0, 2][..]));
        assert_eq!(
            scene.speaker.transmit(line.key, scene.now, &|| false),
            Write::Idle,
            "nothing is left for the task"
        );
    }
}

#[tokio::test]
async fn a_keepalive_is_written_at_once_although_the_turn_is_over_for_routes() {
    let (mut scene, mut lines) = internal(3).await;
    scene
        .speaker
        .pipeline
        .originate("192.0.2.0/24".parse().expect("a prefix"), &OriginateAttributes::default());
    let slots = scene.speaker.sessions.slots();
    let due = slots.filter_map(|(_, slot)| slot.session.deadline(Timer::Keepalive)).max().expect("a timer");
    // Every KEEPALIVE timer is over, and nobody has had a turn to be told the route.
    scene.speaker.expire(due);
    scene.speaker.write_urgent(due);
    for line in &mut lines {
        loop {
            let (kind, body) = line.next().await;
            assert!(!body.ends_with(&[24, 192, 0, 2]), "the route has not been sent");
            if kind == MessageType::KeepAlive {
                break;
            }
        }
    }
}

#[tokio::test]
async fn timers_that_are_due_at_once_are_run_in_several_turns() {
    let (mut scene, _lines) = internal(MOST_EXPIRED as u8 + 1).await;
    let slots = scene.speaker.sessions.slots();
    let due = slots.filter_map(|(_, slot)| slot.session.deadline(Timer::Keepalive)).max().expect("a timer");
    let is_left = |scene: &Scene| scene.speaker.sessions.first_deadline().is_some_and(|(at, _)| at <= due);
    scene.speaker.expire(due);
    assert!(is_left(&scene), "of one peer more");
    scene.speaker.expire(due);
    assert!(!is_left(&scene));
}

#[tokio::test]
async fn a_turn_that_is_over_leaves_other_peers_and_what_is_left_for_this_one_to_later_turns() {
    let (mut scene, mut lines) = internal(3).await;
    let route = |n: u32| format!("10.{}.{}.0/24", n >> 8, n & 255).parse().expect("a prefix");
    for n in 0..1 << 13 {
        let attributes = OriginateAttributes { med: Some(n), ..OriginateAttributes::default() };
        scene.speaker.pipeline.originate(route(n), &attributes);
    }
    // Each turn is over at once: one window for one peer.
    let written = |scene: &Scene| -> Vec<u64> {
        let slots = scene.speaker.sessions.slots();
        slots.map(|(_, slot)| slot.session.counters().sent.of(MessageType::Update)).collect()
    };
    let mut before = written(&scene);
    let mut grown = |scene: &Scene| {
        let now = written(scene);
        let grown: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        before = now;
        grown
    };
    for turn in 0..lines.len() {
        assert!(
            scene.speaker.write_ready(scene.now, &|| true),
            "there are other peers, or more for this one"
        );
        let grown = grown(&scene);
        // The first one is the peer of the scene, which is not up.
        let told: Vec<usize> = (0..grown.len()).filter(|peer| grown[*peer] > 0).collect();
        assert!(told == [turn + 1] && grown[turn + 1] <= 4096, "{grown:?}");
    }
    // What is left is for the tasks of their connections.
    assert!(!scene.speaker.write_ready(scene.now, &|| true));
    for (turn, line) in lines.iter_mut().enumerate() {
        assert_eq!(scene.speaker.transmit(line.key, scene.now, &|| true), Write::Yield);
        assert!(grown(&scene)[turn + 1] <= 4096);
        assert_eq!(line.next().await.0, MessageType::Update);
    }
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_left_to_its_task_and_holds_up_nobody() {
    let (mut scene, mut lines) = internal(2).await;
    let mut fast = lines.remove(1);
    let slow = &lines[0];
    let route = |n: u32| format!("10.{}.{}.0/24", n >> 8, n & 255).parse().expect("a prefix");
    for n in 0..1 << 16 {
        scene
            .speaker
            .pipeline
            .originate(route(n), &OriginateAttributes { med: Some(n), ..OriginateAttributes::default() });
        if n % 1024 == 0 {
            scene.speaker.write_ready(scene.now, &|| false);
        }
    }
    let connection = scene.speaker.sessions.connection(slow.key).expect("a connection");
    let wake = std::rc::Rc::clone(&connection.wake);
    let woken = tokio::time::timeout(Duration::from_secs(5), wake.notified()).await;
    woken.expect("the task that waits for the socket is woken");
    let mut routes = 0;
    while routes < 1 << 16 {
        scene.speaker.transmit(fast.key, scene.now, &|| false);
        assert_eq!(fast.next().await.0, MessageType::Update);
        routes += 1;
    }
    let connection = scene.speaker.sessions.connection(slow.key).expect("a connection");
    assert!(connection.queued() <= 1 << 16, "what it does not read stays in the pipeline");
    scene.speaker.pace();
}

/// An UPDATE that announces so many prefixes.
fn prefixes(count: u8) -> Vec<u8> {
    let attributes = holdfast_bgp_wire::edit::AttributesBuilder {
        next_hop: Some(Ipv4Addr::new(10, 0, 0, 2)),
        ..holdfast_bgp_wire::edit::AttributesBuilder::new(holdfast_bgp_wire::Origin::Igp)
    };
    let prefix = |n| holdfast_types::Ipv4Prefix::new(Ipv4Addr::new(203, 0, n, 0), 24).expect("a prefix");
    let mut out = Vec::new();
    let sent = holdfast_bgp_wire::UpdateEncoder::new(4096).announce(
        &attributes.build(),
        (0..count).map(prefix),
        &mut out,
    );
    assert_eq!(sent, Ok(1));
    out
}

#[tokio::test]
async fn above_its_limit_a_peer_is_ended_until_it_is_raised_or_cleared() {
    for raise in [true, false] {
        let mut scene = Scene::new();
        let mut line = scene.connect(scene.peer).await;
        scene.establish(&mut line).await;
        scene.speaker.change_peer(scene.peer, limited(&scene, 3), scene.now);
        scene.says(&mut line, &prefixes(3)).await;
        assert_eq!(scene.state(scene.peer), Some(State::Established), "a limit may be reached");

        scene.speaker.change_peer(scene.peer, limited(&scene, 2), scene.now);
        let slot = scene.slot();
        assert!(slot.limited && slot.session.state() == State::Idle, "a lowered limit acts at once");
        assert_eq!(scene.hears(&mut line).await, [MessageType::Notification]);
        match raise {
            true => scene.speaker.change_peer(scene.peer, limited(&scene, 5), scene.now),
            false => scene.speaker.clear_peer(scene.peer, "", scene.now),
        }
        assert_eq!(scene.state(scene.peer), Some(State::Active));
    }
}

#[tokio::test]
async fn above_its_octets_a_peer_is_ended_and_tried_again() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let with = |scene: &Scene, max_octets| {
        configured(scene, |source| source.rules.max_octets = Size::of_octets(max_octets))
    };
    scene.speaker.change_peer(scene.peer, with(&scene, 2000), scene.now);
    scene.says(&mut line, &prefixes(100)).await;
    let kept = scene.speaker.pipeline.kept_octets(scene.peer);
    assert!((1600..2000).contains(&kept), "{kept}");
    let slot = scene.slot();
    assert_eq!((slot.session.state(), slot.octets), (State::Established, Level::Near));

    scene.speaker.change_peer(scene.peer, with(&scene, 1000), scene.now);
    scene.speaker.transmit(line.key, scene.now, &|| false);
    let (kind, body) = line.next().await;
    let said = Notification::parse(&body).map(|said| (said.code, said.subcode));
    assert_eq!((kind, said), (MessageType::Notification, Some((6, 8))));
    let slot = scene.slot();
    assert_eq!(slot.session.state(), State::Idle);
    assert!(slot.session.poll_timeout().is_some(), "it is tried again");
    assert_eq!(slot.octets, Level::Fine, "the next session is warned of, too");
}

#[tokio::test]
async fn who_has_others_wait_for_longer_than_it_may_is_ended_and_tried_again() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    let neighbor = configured(&scene, |source| source.rules.max_cost = Some(10));
    scene.speaker.change_peer(scene.peer, neighbor, scene.now);
    let waited = |scene: &mut Scene, millis| {
        let is_too_much = scene.speaker.was_waited_for(scene.peer, Duration::from_millis(millis), scene.now);
        (is_too_much, scene.slot().cost_level)
    };
    assert_eq!(waited(&mut scene, 60_000), (false, Level::Fine), "the tables are exchanged");
    scene.says(&mut line, &END_OF_RIB).await;
    scene.speaker.drain_pipeline(scene.now);
    assert_eq!(waited(&mut scene, 700), (false, Level::Fine));
    assert_eq!(waited(&mut scene, 300), (false, Level::Near));
    scene.now += Duration::from_secs(10);
    assert_eq!(waited(&mut scene, 1000), (false, Level::Near), "ten seconds count");
    assert_eq!(waited(&mut scene, 10), (true, Level::Over));

    scene.speaker.stop_for_cost(scene.peer, scene.now);
    scene.speaker.transmit(line.key, scene.now, &|| false);
    let (kind, body) = line.next().await;
    let said = Notification::parse(&body).map(|said| (said.code, said.subcode));
    assert_eq!((kind, said), (MessageType::Notification, Some((6, 8))));
    let slot = scene.slot();
    assert!(slot.session.poll_timeout().is_some(), "it is tried again");
    assert_eq!(slot.cost_level, Level::Fine, "the next session begins with nothing");
}

#[tokio::test]
async fn a_session_that_another_limit_ends_is_told_as_ended_by_the_configuration() {
    let octets: fn(&Scene) -> Neighbor =
        |scene| configured(scene, |source| source.rules.max_octets = Size::of_octets(1000));
    let cost: fn(&Scene) -> Neighbor = |scene| configured(scene, |source| source.rules.max_cost = Some(10));
    let prefixes_of: fn(&Scene) -> Neighbor = |scene| limited(scene, 99);
    let enough: fn(&Scene) -> Neighbor = |scene| limited(scene, 100);
    for (change, ends) in [(octets, true), (cost, true), (prefixes_of, true), (enough, false)] {
        let mut scene = Scene::new();
        let mut line = scene.connect(scene.peer).await;
        scene.establish(&mut line).await;
        scene.says(&mut line, &prefixes(100)).await;
        scene.says(&mut line, &END_OF_RIB).await;
        scene.speaker.drain_pipeline(scene.now);
        // Nobody has said yet how long others may wait.
        assert!(!scene.speaker.was_waited_for(scene.peer, Duration::from_secs(2), scene.now));
        let wanted = Peers { neighbors: vec![change(&scene)], ..Peers::default() };
        let name = wanted.neighbors[0].name.clone();
        let ended = configure_peers(&mut scene.speaker, &wanted, scene.now);
        let expected = if ends { vec![name] } else { Vec::new() };
        assert_eq!(ended, expected);
        assert_eq!(scene.state(scene.peer) == Some(State::Established), !ends);
    }
}

#[tokio::test]
async fn a_guest_is_kept_away_longer_each_time_that_it_costs_too_much_until_it_is_cleared() {
    let mut scene = Scene::new();
    scene.range.source.rules.max_octets = Size::of_octets(1000);
    let mut pauses = Vec::new();
    for round in 0..4 {
        let mut line = scene.guest().await;
        scene.establish(&mut line).await;
        if round == 3 {
            scene.speaker.clear_peer(line.key.0, "", scene.now);
            assert_eq!(scene.speaker.sessions.peer_at(&Location::Address(GUEST)), None);
            line = scene.guest().await;
            scene.establish(&mut line).await;
        }
        scene.says(&mut line, &prefixes(100)).await;
        let slot = scene.speaker.sessions.slot(line.key.0).expect("a peer");
        assert_eq!(slot.session.state(), State::Idle, "it is there, and is not taken");
        let due = slot.session.poll_timeout().expect("a pause");
        pauses.push(due - scene.now);
        assert_eq!(scene.hears(&mut line).await, [MessageType::Notification]);
        while scene.speaker.pipeline.work(1000) {}
        scene.now = due;
        scene.speaker.expire(scene.now);
        assert_eq!(scene.speaker.sessions.peer_at(&Location::Address(GUEST)), None, "it may come again");
    }
    assert!(pauses[0] < pauses[1] && pauses[1] < pauses[2] && pauses[3] < pauses[1], "{pauses:?}");
}

/// The peer with a limit of so many prefixes.
fn limited(scene: &Scene, received: u32) -> Neighbor {
    let limit = PrefixLimit {
        family: Family::IPV4_UNICAST,
        received: Some(received),
        accepted: None,
        announced: None,
        warn_percent: 75,
        action: LimitAction::Idle,
        restart_after: Duration::from_secs(300),
    };
    configured(scene, |source| source.limits = vec![limit])
}

/// The peer as a manager would say it that changes this.
/// Makes the peers those that are wanted; whose session had to end.
fn configure_peers(speaker: &mut Speaker, wanted: &Peers, now: Instant) -> Vec<String> {
    let mut applying = Applying::new(speaker, wanted);
    // In as many slices as there can be.
    while applying.work(speaker, now, &|| true) {}
    applying.ended
}

fn configured(scene: &Scene, change: impl FnOnce(&mut Peer)) -> Neighbor {
    let mut source = scene.slot().neighbor.source.clone();
    change(&mut source);
    as_told(&source)
}

/// A peer, by a message.
fn as_told(source: &Peer) -> Neighbor {
    let peer = api::Peer {
        name: source.name.clone(),
        session: holdfast_config::session(source),
        settings: serde_json::to_vec(source).expect("JSON"),
        ..Default::default()
    };
    let message = api::Configuration { router_id: 0x0a00_0001, peers: vec![peer], ..Default::default() };
    let (read, _) = Policies::default().read_at_once(message, None).expect("a configuration");
    read.peers.neighbors[0].clone()
}

#[tokio::test]
async fn a_stopped_peer_stays_down_until_it_is_started() {
    let mut scene = Scene::new();
    let mut line = scene.connect(scene.peer).await;
    scene.establish(&mut line).await;
    scene.speaker.stop_peer(scene.peer, "back at 5", scene.now);
    scene.speaker.transmit(line.key, scene.now, &|| false);
    let (kind, body) = line.next().await;
    let text = Notification::parse(&body).and_then(|said| said.text().map(str::to_owned));
    assert_eq!((kind, text.as_deref()), (MessageType::Notification, Some("back at 5")));
    scene.speaker.clear_peer(scene.peer, "", scene.now);
    assert_eq!(scene.state(scene.peer), Some(State::Idle));
    assert!(scene.speaker.start_peer(scene.peer, scene.now));
    assert_eq!(scene.state(scene.peer), Some(State::Active));
}
