//! Octets are carried between a connection and a local socket, and both end as they should.

use std::{net::SocketAddr, rc::Rc, time::Duration};

use super::open::{Open, anybody};
use holdfast_transport::{ByteCounters, Closed, Connection, Listener, Parting, carry, memory::Network};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    runtime::Builder,
    task::{JoinHandle, LocalSet, spawn_local, yield_now},
    time::{Instant, timeout},
};

/// A peer, the line to it, and who uses the local socket; between them, one that carries.
struct Story {
    network: Network,
    peer: Connection,
    inner: UnixStream,
    meter: Rc<ByteCounters>,
    parting: Rc<Parting>,
    carrying: JoinHandle<Closed>,
}

impl Story {
    async fn begin() -> Self {
        let network = Network::new(3);
        let [from, to] = [179, 180].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let mut listener = network.listener(to, Rc::new(Open));
        let expected = anybody();
        let (peer, ours) = tokio::join!(network.connect(from, to, &expected), listener.accept());
        let (inner, other) = UnixStream::pair().expect("a pair");
        let (meter, parting) = (Rc::new(ByteCounters::default()), Rc::new(Parting::default()));
        let carrying = spawn_local(carry(ours.expect("accepted"), other, meter.clone(), parting.clone()));
        Self { network, peer: peer.expect("dialed"), inner, meter, parting, carrying }
    }

    async fn closed(self) -> Closed {
        self.carrying.await.expect("no panic")
    }
}

/// Time that somebody waits passes at once when nobody has anything to do.
fn run(story: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    let ended = LocalSet::new().block_on(&runtime, async { timeout(Duration::from_secs(600), story).await });
    ended.expect("the story hangs");
}

#[test]
fn octets_pass_both_ways_and_are_counted_on_the_inner_side() {
    run(async {
        let mut story = Story::begin().await;
        story.peer.stream.write_all(b"from the peer").await.expect("write");
        let mut heard = [0; 13];
        story.inner.read_exact(&mut heard).await.expect("read");
        assert_eq!(&heard, b"from the peer");
        story.inner.write_all(b"to the peer").await.expect("write");
        let mut heard = [0; 11];
        story.peer.stream.read_exact(&mut heard).await.expect("read");
        assert_eq!(&heard, b"to the peer");
        assert_eq!((story.meter.received.get(), story.meter.sent.get()), (13, 11));
    });
}

#[test]
fn an_end_inside_closes_the_connection_behind_the_last_octet() {
    run(async {
        let mut story = Story::begin().await;
        story.inner.write_all(&[5; 200_000]).await.expect("write");
        // Not everything of it can be on the line by now.
        drop(std::mem::replace(&mut story.inner, UnixStream::pair().expect("a pair").0));
        let mut heard = Vec::new();
        story.peer.stream.read_to_end(&mut heard).await.expect("in order");
        assert_eq!(heard.len(), 200_000);
        drop(story.peer);
        assert_eq!(story.carrying.await.expect("no panic"), Closed::Here);
    });
}

#[test]
fn an_end_inside_with_octets_unread_is_one_too() {
    run(async {
        let mut story = Story::begin().await;
        story.peer.stream.write_all(b"nobody reads this").await.expect("write");
        story.inner.readable().await.expect("it is there");
        story.inner.write_all(b"the last words").await.expect("write");
        drop(std::mem::replace(&mut story.inner, UnixStream::pair().expect("a pair").0));
        let mut heard = [0; 14];
        story.peer.stream.read_exact(&mut heard).await.expect("they arrive");
        assert_eq!(&heard, b"the last words");
        let begin = Instant::now();
        story.peer.stream.read_to_end(&mut Vec::new()).await.expect("in order");
        assert_eq!(begin.elapsed(), Duration::ZERO, "nobody had to be waited for");
    });
}

#[test]
fn an_end_of_the_peer_arrives_behind_its_last_octet() {
    run(async {
        let mut story = Story::begin().await;
        story.peer.stream.write_all(&[6; 50_000]).await.expect("write");
        story.peer.stream.shutdown().await.expect("in order");
        let mut heard = Vec::new();
        story.inner.read_to_end(&mut heard).await.expect("read");
        assert_eq!(heard.len(), 50_000);
        assert_eq!(story.meter.received.get(), 50_000);
        assert_eq!(story.closed().await, Closed::Peer(0, String::new()));
    });
}

#[test]
fn what_the_peer_closed_with_is_handed_up() {
    run(async {
        let mut story = Story::begin().await;
        story.peer.stream.write_all(b"last words").await.expect("write");
        story.peer.control.close(6, "shut down by hand");
        let mut heard = Vec::new();
        story.inner.read_to_end(&mut heard).await.expect("read");
        assert_eq!(heard, b"last words");
        assert_eq!(story.closed().await, Closed::Peer(6, "shut down by hand".to_owned()));
    });
}

#[test]
fn a_line_that_is_cut_ends_after_its_idle_time() {
    run(async {
        let mut story = Story::begin().await;
        story.network.cut();
        let begin = Instant::now();
        story.inner.read_to_end(&mut Vec::new()).await.expect("an end");
        assert_eq!(story.carrying.await.expect("no panic"), Closed::TimedOut);
        // And what might still have come was waited for.
        assert!((60..=65).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    });
}

#[test]
fn an_end_inside_is_seen_though_the_peer_takes_nothing() {
    run(async {
        let mut story = Story::begin().await;
        let chunk = [8; 64 * 1024];
        let mut written = 0;
        while let Ok(length) = timeout(Duration::from_secs(1), story.inner.write(&chunk)).await {
            written += length.expect("open");
            assert!(written < 8 << 20, "it takes whatever comes");
        }
        drop(std::mem::replace(&mut story.inner, UnixStream::pair().expect("a pair").0));
        let begin = Instant::now();
        assert_eq!(story.carrying.await.expect("no panic"), Closed::Here);
        assert_eq!(begin.elapsed().as_secs(), 5);
        drop(story.peer);
    });
}

#[test]
fn whoever_does_not_read_inside_stops_the_peer() {
    run(async {
        let mut story = Story::begin().await;
        let chunk = [9; 64 * 1024];
        let mut written = 0;
        while let Ok(length) = timeout(Duration::from_secs(1), story.peer.stream.write(&chunk)).await {
            written += length.expect("open");
            assert!(written < 8 << 20, "it takes whatever comes");
        }
        yield_now().await;
        assert!(story.meter.received.get() < written as u64);
        // All of it is there for whoever reads after all.
        let mut heard = vec![0; written];
        story.inner.read_exact(&mut heard).await.expect("read");
        assert_eq!(story.meter.received.get(), written as u64);
    });
}

#[test]
fn who_is_told_why_is_not_waited_for() {
    run(async {
        let mut story = Story::begin().await;
        let start = Instant::now();
        story.inner.write_all(b"Cease").await.expect("write");
        story.parting.with(0x605);
        story.parting.with(7);
        drop(story.inner);
        // It hears the last words, and says nothing and does not end.
        let mut heard = Vec::new();
        let read = story.peer.stream.read_to_end(&mut heard).await;
        assert_eq!((read.expect("it ends in order"), heard), (5, b"Cease".to_vec()));
        assert_eq!(story.peer.control.closed().await, Closed::Peer(0x605, String::new()));
        assert_eq!(story.carrying.await.expect("no panic"), Closed::Here);
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    });
}
