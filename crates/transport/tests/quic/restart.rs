//! What a successor with the same seeds does for the connections of its predecessor.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::mpsc,
    thread,
    time::Duration,
};

use holdfast_tls::Seeds;
use holdfast_transport::{Closed, Connection, Expected, Listener, Stray, noq::Endpoint};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::LocalSet,
};

use crate::tests::quic::{
    endpoint,
    gate::TestGate,
    meet, pass,
    peers::{Router, pair},
    relay::Relay,
    run, run_for, seeds, talk,
};

/// A process that has listened, with a dialer's connection, until it was killed: nobody says good-bye.
fn killed(r1: &Router, r2: &Router, udp: UdpSocket, generations: &'static [u8]) -> Killed {
    let expected = r2.expects(r1);
    let (up, when_up) = mpsc::channel();
    let (kill, killed) = oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async move {
            let endpoint = Endpoint::new(udp, &seeds(generations)).expect("an endpoint");
            let mut listener = endpoint.listen(TestGate::open(expected));
            up.send(()).expect("somebody waits");
            let mut accepted = listener.accept().await.expect("accepted");
            pass_on(&mut accepted).await;
            killed.await.expect("the end");
        });
        // What noq still had to do, nobody does.
    });
    when_up.recv().expect("it is up");
    Killed { kill, thread }
}

struct Killed {
    kill: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Killed {
    fn now(self) {
        self.kill.send(()).expect("it lives");
        self.thread.join().expect("it ends");
    }
}

/// What it hears, it says.
async fn pass_on(accepted: &mut Connection) {
    let mut octets = [0; 4];
    accepted.stream.read_exact(&mut octets).await.expect("read");
    accepted.stream.write_all(&octets).await.expect("written");
}

fn bind(at: SocketAddr) -> UdpSocket {
    UdpSocket::bind(at).expect("the socket is free again")
}

/// The dialer learns it with the first packet that it sends, and not when its own patience ends.
fn reset_after_restart(successor: &'static [u8], asks: bool) {
    run(async move {
        let (r1, r2) = pair();
        let udp = bind("127.0.0.1:0".parse().expect("an address"));
        let at = udp.local_addr().expect("an address");
        let predecessor = killed(&r1, &r2, udp, &[1]);
        let client = endpoint();
        let mut dialed = client.connect(at, None, &r1.expects(&r2)).await.expect("dialed");
        let mut octets = [0; 4];
        dialed.stream.write_all(b"ping").await.expect("written");
        dialed.stream.read_exact(&mut octets).await.expect("read");
        predecessor.now();

        let server = Endpoint::new(bind(at), &seeds(successor)).expect("an endpoint");
        let gate = TestGate::open(r2.expects(&r1));
        let mut listener = server.listen(gate.clone());
        match asks {
            true => assert!(!dialed.control.answers().await),
            false => dialed.stream.write_all(&[0; 100]).await.expect("written"),
        }
        assert_eq!(dialed.control.closed().await, Closed::Reset);
        assert!(gate.strays.borrow().contains(&Stray::Reset), "it is counted");

        // And comes again.
        let expected = r1.expects(&r2);
        let (again, accepted) = tokio::join!(client.connect(at, None, &expected), listener.accept());
        let (mut again, mut accepted) = (again.expect("dialed"), accepted.expect("accepted"));
        pass(b"here", &mut again.stream, &mut accepted.stream).await;
        talk(&mut again, &mut accepted).await;
    });
}

#[test]
fn connections_of_the_predecessor_are_reset_at_once() {
    reset_after_restart(&[1], false);
}

#[test]
fn also_when_the_seeds_have_rotated() {
    reset_after_restart(&[2, 1], false);
}

#[test]
fn also_when_it_is_only_asked_whether_they_are_alive() {
    reset_after_restart(&[1], true);
}

/// A session lives for months, and a generation of seeds for two days.
#[test]
fn also_a_connection_that_is_older_than_both_generations() {
    run_for(5 * Seeds::LIFETIME, async {
        let (r1, r2) = pair();
        let (server, client) = (endpoint(), endpoint());
        // Whoever says nothing is not looked for meanwhile.
        let patient = |expected: Expected| Expected { idle: Seeds::LIFETIME, ..expected };
        let mut listener = server.listen(TestGate::open(patient(r2.expects(&r1))));
        let relay = Relay::new(server.local()).await;
        let (mut dialed, mut accepted) =
            meet(&client, relay.address(), &patient(r1.expects(&r2)), &mut listener).await;
        talk(&mut dialed, &mut accepted).await;
        tokio::time::pause();
        for generations in [&[2, 1], &[3, 2]] {
            server.set_seeds(&seeds(generations));
            // A jump: nobody has to say twelve hours long that it lives.
            tokio::time::advance(Seeds::LIFETIME / 2 + Duration::from_secs(60)).await;
            for _ in 0..3 {
                talk(&mut dialed, &mut accepted).await;
            }
        }
        tokio::time::resume();

        let successor = Endpoint::new(bind("127.0.0.1:0".parse().expect("an address")), &seeds(&[4, 3]));
        let successor = successor.expect("an endpoint");
        let _listener = successor.listen(TestGate::open(r2.expects(&r1)));
        relay.leads_to(successor.local());
        dialed.stream.write_all(&[0; 100]).await.expect("written");
        let closed = tokio::time::timeout(Duration::from_secs(10), dialed.control.closed()).await;
        assert_eq!(closed.expect("it is told"), Closed::Reset);
    });
}
