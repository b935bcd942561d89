//! Octets arrive, unchanged and in their order; keys change and nothing is lost.

use holdfast_transport::{Connection, Protocol, Stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, split},
    join,
};

use crate::tests::backends::{
    backend::Backend,
    door::{Door, TestGate},
    for_every_backend,
    people::{Pair, greet, hear, rest, routers, say},
};

for_every_backend! {
    octets_arrive_unchanged_and_in_order_both_ways,
    a_direction_that_was_shut_down_ends_behind_the_last_octet,
    keys_are_changed_on_the_way,
    it_is_known_how_it_goes,
    many_connections_do_not_mix,
    a_socket_is_handed_out_where_there_is_one,
}

/// Far more than all buffers on the way.
const MUCH: usize = 4 << 20;

/// Octets of which no two windows are the same.
fn pattern(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..MUCH).map(|_| next()).collect()
}

/// Sends all of it, and gets as much.
async fn exchange(stream: &mut Box<dyn Stream>, ours: &[u8]) -> Vec<u8> {
    let (mut from, mut to) = split(stream);
    let mut theirs = vec![0; MUCH];
    let sending = async {
        to.write_all(ours).await?;
        to.flush().await
    };
    let (sent, received) = join!(sending, from.read_exact(&mut theirs));
    sent.expect("all is sent");
    received.expect("all is received");
    theirs
}

async fn octets_arrive_unchanged_and_in_order_both_ways(backend: &dyn Backend) {
    let Pair { mut dialed, mut accepted, .. } = Pair::new(backend).await;
    let (ours, theirs) = (pattern(1), pattern(2));
    let (got_there, got_here) =
        join!(exchange(&mut accepted.stream, &theirs), exchange(&mut dialed.stream, &ours));
    assert!(got_there == ours, "from the dialer");
    assert!(got_here == theirs, "to the dialer");
}

async fn a_direction_that_was_shut_down_ends_behind_the_last_octet(backend: &dyn Backend) {
    let Pair { mut dialed, mut accepted, .. } = Pair::new(backend).await;
    say(&mut dialed, b"all that I say").await;
    let ((), heard) =
        join!(async { dialed.stream.shutdown().await.expect("in order") }, rest(&mut accepted),);
    assert_eq!(heard, (b"all that I say".to_vec(), true));
    // The other one is still open.
    say(&mut accepted, b"so be it").await;
    let ((), heard) =
        join!(async { accepted.stream.shutdown().await.expect("in order") }, rest(&mut dialed),);
    assert_eq!(heard, (b"so be it".to_vec(), true));
}

async fn keys_are_changed_on_the_way(backend: &dyn Backend) {
    let Pair { mut dialed, mut accepted, .. } = Pair::new(backend).await;
    let can = backend.abilities().updates_keys;
    for _ in 0..2 {
        assert_eq!(dialed.control.update_keys(), can);
        greet(&mut dialed, &mut accepted).await;
    }
    assert_eq!(accepted.control.update_keys(), can);
    greet(&mut dialed, &mut accepted).await;
    let updates = (dialed.control.stats().key_updates, accepted.control.stats().key_updates);
    match backend.protocol() {
        // Both ends change at once, not again before the last change has arrived, and by themselves too.
        Protocol::Quic => assert!(updates.0 >= 1 && updates.1 >= 1, "{updates:?}"),
        _ => assert_eq!(updates, if can { (2, 1) } else { (0, 0) }),
    }
}

async fn it_is_known_how_it_goes(backend: &dyn Backend) {
    let Pair { dialed, accepted, door } = Pair::new(backend).await;
    assert_eq!(dialed.control.remote(), door.local);
    assert_eq!(accepted.control.remote(), accepted.identity.remote);
    for connection in [&dialed, &accepted] {
        let stats = connection.control.stats();
        // There is neither a way nor loss in memory, unless a test wants them.
        let way = backend.protocol() != Protocol::Memory;
        assert_eq!(stats.smoothed_rtt_us > 0, way, "{stats:?}");
        assert_eq!(stats.migrations, 0);
    }
}

async fn many_connections_do_not_mix(backend: &dyn Backend) {
    const MANY: usize = 40;
    let (r1, r2) = routers();
    let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    let to_r2 = r1.expects(&r2);
    let mut pairs: Vec<(Connection, Connection)> = Vec::new();
    for number in 0..MANY {
        let mut dialed = backend.dial(door.local, &to_r2).await.expect("it is let in");
        let mut accepted = door.next().await;
        say(&mut dialed, format!("{number:05}").as_bytes()).await;
        hear(&mut accepted, format!("{number:05}").as_bytes()).await;
        pairs.push((dialed, accepted));
    }
    for (number, (dialed, accepted)) in pairs.iter_mut().enumerate().rev() {
        say(accepted, format!("{number:07}").as_bytes()).await;
        hear(dialed, format!("{number:07}").as_bytes()).await;
    }
    assert_eq!(door.gate.judged(), MANY);
    assert_eq!(door.gate.under_way().get(), 0);
}

async fn a_socket_is_handed_out_where_there_is_one(backend: &dyn Backend) {
    let Pair { dialed, mut accepted, .. } = Pair::new(backend).await;
    let is_tcp = backend.protocol() == Protocol::Tcp;
    match dialed.stream.into_socket() {
        Ok(socket) => {
            assert!(is_tcp, "octets of this one come about here");
            let mut stream = std::net::TcpStream::from(socket);
            std::io::Write::write_all(&mut stream, b"without you").expect("write");
            hear(&mut accepted, b"without you").await;
            // Nothing of ours keeps it open.
            drop(stream);
            assert_eq!(rest(&mut accepted).await, (Vec::new(), true));
        }
        Err(stream) => {
            assert!(!is_tcp, "this is the kernel's own");
            let mut dialed = Connection { stream, ..dialed };
            greet(&mut dialed, &mut accepted).await;
        }
    }
}
