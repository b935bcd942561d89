//! The network in memory: octets are late, repeated and kept back, and always the same with the same seed.

use std::{rc::Rc, time::Duration};

use super::open::{Open, anybody};
use holdfast_transport::{
    Closed, Connection, Failure, Listener,
    memory::{MemoryListener, Network},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Builder,
    time::{Instant, timeout},
};

const R1: ([u8; 4], u16) = ([192, 0, 2, 1], 40_000);
const R2: ([u8; 4], u16) = ([192, 0, 2, 2], 179);

fn run<T>(story: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async { timeout(Duration::from_secs(3600), story).await }).expect("the story hangs")
}

async fn pair(network: &Network) -> (Connection, Connection, MemoryListener) {
    let mut listener = network.listener(R2.into(), Rc::new(Open));
    let expected = anybody();
    let (dialed, accepted) =
        tokio::join!(network.connect(R1.into(), R2.into(), &expected), listener.accept());
    (dialed.expect("dialed"), accepted.expect("accepted"), listener)
}

/// When each of a hundred octets arrives.
async fn arrivals(network: &Network) -> Vec<Duration> {
    let (mut dialed, mut accepted, _listener) = pair(network).await;
    let begin = Instant::now();
    let mut arrivals = Vec::new();
    for octet in 0..100_u8 {
        dialed.stream.write_all(&[octet]).await.expect("write");
        assert_eq!(accepted.stream.read_u8().await.expect("read"), octet);
        arrivals.push(begin.elapsed());
    }
    arrivals
}

#[test]
fn a_way_takes_its_time_and_a_handshake_both_ways() {
    run(async {
        let network = Network::new(1);
        network.set_delay(Duration::from_millis(20));
        let begin = Instant::now();
        let (mut dialed, mut accepted, _listener) = pair(&network).await;
        assert_eq!(begin.elapsed(), Duration::from_millis(40));
        dialed.stream.write_all(b"!").await.expect("write");
        accepted.stream.read_u8().await.expect("read");
        assert_eq!(begin.elapsed(), Duration::from_millis(60));
        assert_eq!(dialed.control.stats().smoothed_rtt_us, 40_000);
        assert_eq!(dialed.control.stats().lost_packets, 0);
    });
}

#[test]
fn one_seed_loses_the_same_and_another_something_else() {
    let lossy = |seed| {
        run(async move {
            let network = Network::new(seed);
            network.set_delay(Duration::from_millis(1));
            network.set_loss(0.3);
            arrivals(&network).await
        })
    };
    assert_eq!(lossy(1), lossy(1));
    assert_ne!(lossy(1), lossy(2));
    // A third is repeated: far later than a hundred ways.
    assert!(lossy(1)[99] > Duration::from_millis(300), "{:?}", lossy(1)[99]);
}

#[test]
fn what_was_sent_over_a_line_that_is_cut_arrives_when_it_is_mended() {
    run(async {
        let network = Network::new(1);
        let (mut dialed, mut accepted, _listener) = pair(&network).await;
        dialed.stream.write_all(b"1").await.expect("write");
        network.cut();
        dialed.stream.write_all(b"2").await.expect("nobody is told");
        // What had arrived before is there.
        assert_eq!(accepted.stream.read_u8().await.expect("read"), b'1');
        let cut = timeout(Duration::from_secs(30), accepted.stream.read_u8()).await;
        assert!(cut.is_err(), "nothing arrives");
        let (second, ()) = tokio::join!(accepted.stream.read_u8(), async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            network.restore();
        });
        assert_eq!(second.expect("read"), b'2');
    });
}

#[test]
fn both_give_up_when_nothing_is_heard_for_too_long() {
    run(async {
        let network = Network::new(1);
        let (mut dialed, accepted, _listener) = pair(&network).await;
        network.cut();
        let begin = Instant::now();
        assert_eq!(accepted.control.closed().await, Closed::TimedOut);
        assert_eq!(begin.elapsed(), Duration::from_secs(60));
        dialed.stream.read_u8().await.expect_err("it has ended");
        assert_eq!(dialed.control.closed().await, Closed::TimedOut);
        assert_eq!(begin.elapsed(), Duration::from_secs(60));
    });
}

#[test]
fn whoever_is_cut_off_does_not_answer() {
    run(async {
        let network = Network::new(1);
        network.set_delay(Duration::from_millis(100));
        let (dialed, accepted, _listener) = pair(&network).await;
        assert!(dialed.control.answers().await);
        network.cut();
        let begin = Instant::now();
        assert!(!accepted.control.answers().await);
        // Three probe timeouts of a round trip of 200 ms.
        assert_eq!(begin.elapsed(), Duration::from_millis(3 * (3 * 200 + 25)));
        let (answers, ()) = tokio::join!(accepted.control.answers(), async { network.restore() });
        assert!(answers, "it is heard again in time");
    });
}

#[test]
fn whoever_waits_to_write_gives_up_as_well() {
    run(async {
        let network = Network::new(1);
        let (mut dialed, _accepted, _listener) = pair(&network).await;
        let chunk = vec![7; 1 << 20];
        let cut = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            network.cut();
        };
        let begin = Instant::now();
        let (written, ()) = tokio::join!(dialed.stream.write_all(&chunk), cut);
        written.expect_err("nobody has read it");
        assert_eq!(begin.elapsed(), Duration::from_secs(61));
    });
}

#[test]
fn nothing_is_kept_of_writing_nothing() {
    run(async {
        let network = Network::new(1);
        let (mut dialed, mut accepted, _listener) = pair(&network).await;
        assert_eq!(dialed.stream.write(b"").await.expect("write"), 0);
        dialed.stream.write_all(b"!").await.expect("write");
        assert_eq!(accepted.stream.read(&mut [0; 8]).await.expect("read"), 1);
    });
}

#[test]
fn nobody_gets_through_a_line_that_is_cut() {
    run(async {
        let network = Network::new(1);
        let _listener = network.listener(R2.into(), Rc::new(Open));
        network.cut();
        let dialed = network.connect(R1.into(), R2.into(), &anybody()).await;
        assert_eq!(dialed.expect_err("nobody answers"), Failure::TimedOut);
    });
}

#[test]
fn a_listener_makes_place_for_another_at_its_address() {
    run(async {
        let network = Network::new(1);
        let mut old = network.listener(R2.into(), Rc::new(Open));
        let mut new = network.listener(R2.into(), Rc::new(Open));
        assert!(matches!(old.accept().await, Err(Failure::Unreachable(_))));
        drop(old);
        let expected = anybody();
        let (dialed, accepted) = tokio::join!(network.connect(R1.into(), R2.into(), &expected), new.accept());
        assert!(dialed.is_ok() && accepted.is_ok());
        drop(new);
        let nobody = network.connect(R1.into(), R2.into(), &expected).await.expect_err("nobody is there");
        assert_eq!(nobody.to_string(), "nobody listens at 192.0.2.2:179");
    });
}
