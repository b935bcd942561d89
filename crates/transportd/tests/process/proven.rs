//! Peers that have to prove who they are, over TLS and QUIC: the test is one of them.

use std::{
    fs::File,
    io::{ErrorKind, Write},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use holdfast_api::transport::v1::{
    Admission, Configuration, Connection, Empty, Listener, MeterReply, MeterRequest, Peer, Protocol,
    RetireRequest, Secrets, TransportClient, Trust,
};
use holdfast_process::OLD_TRANSPORT;
use holdfast_tls::{
    Identity, PeerTls, Seeds,
    keys::{Algorithm, PrivateKey, Validity, self_signed},
};
use holdfast_transport::{Connection as Dialled, Expected, Failure, noq, tls};
use holdfast_xrl::{Client, ErrorKind as XrlErrorKind, ReplyStream};
use prost::Message;
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::oneshot,
    task::LocalSet,
    time::sleep,
};

use crate::carried::REJECTED;

use super::{NEIGHBOR, PORT, ROUTER, Router, call, handed, peer, process, read, story};

/// A router's key, and the certificate that it has made of it.
struct Own {
    key: PrivateKey,
    certificate: Vec<u8>,
}

impl Own {
    fn new(name: &str) -> Self {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        let certificate = self_signed(&key, &[name.to_owned()], Validity::days(1)).expect("a certificate");
        Self { key, certificate }
    }

    /// What the manager sends of it.
    fn secrets(&self) -> OwnedFd {
        let told = Secrets { private_key: self.key.der().to_vec(), ..Secrets::default() };
        let memory = memfd_create("secrets", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let mut file = File::from(memory.expect("memory"));
        file.write_all(&told.encode_to_vec()).expect("written");
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE).expect("sealed");
        file.into()
    }

    /// Who has it expects the router with this key.
    fn expects(&self, router: &Self) -> Expected {
        let identity = Identity::new(std::slice::from_ref(&self.certificate), self.key.der());
        let trust = holdfast_tls::Trust { pins: vec![router.key.fingerprint()], ..Default::default() };
        let tls = PeerTls::new(&identity.expect("they belong together"), &trust, None).expect("fine");
        Expected { peer: "router".into(), tls: Some(tls), idle: Duration::from_secs(30), ttl_security: false }
    }

    async fn over_tls(&self, router: &Self) -> Result<Dialled, Failure> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None);
        let socket = socket.expect("a socket");
        bind(&socket, &SocketAddr::new(NEIGHBOR.into(), 0)).expect("bound");
        let _ = connect(&socket, &SocketAddr::new(ROUTER.into(), PORT));
        tls::connect(socket, &self.expects(router)).await
    }

    async fn over_quic(&self, router: &Self) -> Result<Dialled, Failure> {
        over_quic(&self.expects(router)).await
    }

    /// A connection whose dialer says a word, in a thread of its own, which can be frozen.
    fn elsewhere(&self, router: &Self) -> Elsewhere {
        let expected = self.expects(router);
        let (freeze, frozen) = oneshot::channel::<Freeze>();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            LocalSet::new().block_on(&runtime.expect("a runtime"), async {
                let mut dialled = over_quic(&expected).await.expect("connected");
                dialled.stream.write_all(b"OPEN").await.expect("written");
                let Freeze { is_frozen, end } = frozen.await.expect("somebody wants it");
                is_frozen.send(()).expect("somebody waits");
                // Nothing else runs here.
                end.recv().expect_err("nobody says anything");
            });
        });
        Elsewhere(freeze)
    }
}

/// Who dials in another thread.
struct Elsewhere(oneshot::Sender<Freeze>);

struct Freeze {
    is_frozen: oneshot::Sender<()>,
    end: Receiver<()>,
}

impl Elsewhere {
    /// From now on it says nothing, and hears nothing, until what is returned is dropped.
    async fn freeze(self) -> Sender<()> {
        let ((is_frozen, now), (until, end)) = (oneshot::channel(), channel());
        assert!(self.0.send(Freeze { is_frozen, end }).is_ok(), "it lives");
        now.await.expect("frozen");
        until
    }
}

async fn over_quic(expected: &Expected) -> Result<Dialled, Failure> {
    let socket = UdpSocket::bind((NEIGHBOR, 0)).expect("bound");
    let endpoint = noq::Endpoint::new(socket, &Seeds::random()).expect("an endpoint");
    endpoint.connect(SocketAddr::new(ROUTER.into(), PORT), None, expected).await
}

/// The router with this key, where the neighbour has to have that one.
async fn configure(router: &Router, ours: &Own, theirs: &Own) {
    configure_over(router, ours, theirs, [Protocol::Quic, Protocol::Tls]).await;
}

/// The same where the neighbour may use these.
async fn configure_over(router: &Router, ours: &Own, theirs: &Own, transports: [Protocol; 2]) {
    let door: TransportClient = router.manager.wait_for("transport").await.expect("it is there");
    door.keep(Empty {}, vec![ours.secrets()]).await.expect("kept");
    let trust = Trust { pins: vec![theirs.key.fingerprint().to_vec()], ..Trust::default() };
    let neighbor = Peer {
        transports: transports.map(Into::into).to_vec(),
        trust: Some(trust),
        ..peer("neighbor", NEIGHBOR)
    };
    let more = Configuration {
        certificates: vec![ours.certificate.clone()],
        quic_port: PORT.into(),
        ..Configuration::default()
    };
    router.configure_with(&[neighbor], more).await;
    while listeners(router).await.len() < 2 {
        tokio::task::yield_now().await;
    }
}

/// Those that listen.
async fn listeners(router: &Router) -> Vec<Listener> {
    let mut shown = router.door().await.show_listeners(Empty {});
    let mut all = Vec::new();
    while let Some(listener) = shown.next().await.expect("it lives") {
        all.push(listener);
    }
    all
}

/// Octets go both ways through what was handed over, and are counted.
async fn talk(router: &Router, accepted: &mut ReplyStream<Connection>, mut dialled: Dialled) -> Connection {
    dialled.stream.write_all(b"OPEN").await.expect("written");
    dialled.stream.flush().await.expect("sent");
    let (connection, descriptor) = handed(accepted).await;
    let pair = UnixStream::from_std(StdStream::from(descriptor)).expect("a stream");
    let (mut from, mut to) = pair.into_split();
    let mut octets = [0; 4];
    from.read_exact(&mut octets).await.expect("they arrive");
    assert_eq!(&octets, b"OPEN");
    to.write_all(b"KEEPALIVE").await.expect("written");
    let mut octets = [0; 9];
    dialled.stream.read_exact(&mut octets).await.expect("they arrive");
    assert_eq!(&octets, b"KEEPALIVE");
    let meter = router.door().await.meter(MeterRequest { number: connection.number }).await;
    assert_eq!(meter.expect("it is carried"), MeterReply { received: 4, sent: 9 });
    drop((from, to));
    assert_eq!(dialled.stream.read(&mut octets).await.ok(), Some(0), "it ends with the protocol's end");
    connection
}

#[test]
fn who_has_the_key_is_let_in_and_what_it_says_is_carried() {
    story(|router| async move {
        let (ours, theirs) = (Own::new("r1"), Own::new("r2"));
        configure(&router, &ours, &theirs).await;
        let mut accepted = router.door().await.accept(Empty {});
        let dialled = theirs.over_quic(&ours).await.expect("connected");
        let quic = talk(&router, &mut accepted, dialled).await;
        let dialled = theirs.over_tls(&ours).await.expect("connected");
        let tls = talk(&router, &mut accepted, dialled).await;
        assert_eq!([quic.protocol(), tls.protocol()], [Protocol::Quic, Protocol::Tls]);
        assert!(quic.number != 0 && tls.number != quic.number);
        for connection in [quic, tls] {
            let proof = holdfast_tls::fingerprint_words(&theirs.key.fingerprint());
            assert!(connection.proof.contains(&proof), "{}", connection.proof);
            assert_eq!(connection.peer, "neighbor");
        }
    });
}

#[test]
fn a_connection_that_is_silent_is_replaced_by_the_next_one_of_the_peer() {
    story(|router| async move {
        let (ours, theirs) = (Own::new("r1"), Own::new("r2"));
        configure(&router, &ours, &theirs).await;
        let mut accepted = router.door().await.accept(Empty {});
        let elsewhere = theirs.elsewhere(&ours);
        let (first, first_end) = handed(&mut accepted).await;
        let mut first_end = UnixStream::from_std(StdStream::from(first_end)).expect("a stream");
        first_end.read_exact(&mut [0; 4]).await.expect("its word");
        let frozen = elsewhere.freeze().await;

        let second = theirs.over_quic(&ours).await.expect("connected");
        let (replacing, _second_end) = handed(&mut accepted).await;
        assert_eq!((&first.replaces, &replacing.replaces), (&vec![], &vec![first.number]));
        let error = first_end.try_read(&mut [0]).expect_err("it has not ended before");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(first_end);
        let meter = || async { router.door().await.meter(MeterRequest { number: first.number }).await };
        while meter().await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }

        // The second one is alive: with a third both are bgp's.
        let third = theirs.over_quic(&ours).await.expect("connected");
        let (beside, _third_end) = handed(&mut accepted).await;
        assert!(beside.replaces.is_empty(), "{beside:?}");
        for connection in [&second, &third] {
            assert!(connection.control.answers().await);
        }
        drop(frozen);
    });
}

/// Octets go both ways through a connection that was handed over before.
async fn talk_on(dialled: &mut Dialled, end: &mut UnixStream) {
    dialled.stream.write_all(b"UPDATE").await.expect("written");
    dialled.stream.flush().await.expect("sent");
    let mut octets = [0; 6];
    end.read_exact(&mut octets).await.expect("they arrive");
    assert_eq!(&octets, b"UPDATE");
    end.write_all(b"REFRESH").await.expect("written");
    let mut octets = [0; 7];
    dialled.stream.read_exact(&mut octets).await.expect("they arrive");
    assert_eq!(&octets, b"REFRESH");
}

fn stream(descriptor: OwnedFd) -> UnixStream {
    UnixStream::from_std(StdStream::from(descriptor)).expect("a stream")
}

#[test]
fn what_is_carried_stays_with_who_retires_and_what_is_new_is_for_the_next_one() {
    story(|router| async move {
        let (ours, theirs) = (Own::new("r1"), Own::new("r2"));
        configure(&router, &ours, &theirs).await;
        let mut accepted = router.door().await.accept(Empty {});
        let elsewhere = theirs.elsewhere(&ours);
        let (frozen, frozen_end) = handed(&mut accepted).await;
        let mut quic = theirs.over_quic(&ours).await.expect("connected");
        let (over_quic, quic_end) = handed(&mut accepted).await;
        let mut tls = theirs.over_tls(&ours).await.expect("connected");
        let (over_tls, tls_end) = handed(&mut accepted).await;
        let (frozen_end, mut quic_end, mut tls_end) = (stream(frozen_end), stream(quic_end), stream(tls_end));

        let manager: TransportClient = router.manager.client("transport").await.expect("it is there");
        let asked = manager.retire(RetireRequest { dry_run: true }).await.expect("it can");
        assert_eq!(asked.connections, 3);
        router.bgp.client::<TransportClient>(OLD_TRANSPORT).await.map(drop).expect_err("nothing was done");
        // It may have gone before it has answered.
        let _ = manager.retire(RetireRequest { dry_run: false }).await;
        manager.channel().closed().await;
        process(&router.keeper);
        configure(&router, &ours, &theirs).await;
        let mut accepted = router.door().await.accept(Empty {});
        let old: TransportClient = router.bgp.wait_for(OLD_TRANSPORT).await.expect("it is there");
        let refused = old.accept(Empty {}).next().await.expect_err("it lets nobody in");
        assert_eq!(refused.kind(), XrlErrorKind::FailedPrecondition);
        let manager: TransportClient = router.manager.client(OLD_TRANSPORT).await.expect("it is there");
        manager.keep(Empty {}, vec![ours.secrets()]).await.expect("it takes seeds");
        let refused = manager.configure(Configuration::default()).await.expect_err("nothing else");
        assert_eq!(refused.kind(), XrlErrorKind::FailedPrecondition);
        for _ in 0..8 {
            talk_on(&mut quic, &mut quic_end).await;
            talk_on(&mut tls, &mut tls_end).await;
        }
        for number in [over_quic.number, over_tls.number] {
            let meter = old.meter(MeterRequest { number }).await;
            assert_eq!(meter, Ok(MeterReply { received: 48, sent: 56 }));
            let unknown = router.door().await.meter(MeterRequest { number }).await.expect_err("the other's");
            assert_eq!(unknown.kind(), XrlErrorKind::NotFound);
        }

        // Who comes is the next one's, which has the old one's silent connection replaced.
        let silent = elsewhere.freeze().await;
        let mut new = theirs.over_quic(&ours).await.expect("connected");
        let (connection, new_end) = handed(&mut accepted).await;
        assert_eq!(connection.replaces, [frozen.number]);
        let mut new_end = stream(new_end);
        for _ in 0..8 {
            talk_on(&mut new, &mut new_end).await;
            talk_on(&mut quic, &mut quic_end).await;
        }
        assert!(router.door().await.meter(MeterRequest { number: connection.number }).await.is_ok());

        // It ends with the last of its connections.
        drop((frozen_end, quic_end, tls_end));
        old.channel().closed().await;
        talk_on(&mut new, &mut new_end).await;
        drop(silent);
    });
}

#[test]
fn who_carries_nothing_does_not_retire() {
    story(|router| async move {
        let (ours, theirs) = (Own::new("r1"), Own::new("r2"));
        configure(&router, &ours, &theirs).await;
        let manager: TransportClient = router.manager.client("transport").await.expect("it is there");
        let asked = manager.retire(RetireRequest { dry_run: false }).await.expect("it answers");
        assert_eq!(asked.connections, 0);
        assert!(router.keeper.1.borrow().is_empty());
        let mut accepted = router.door().await.accept(Empty {});
        let dialled = theirs.over_tls(&ours).await.expect("it lets in");
        talk(&router, &mut accepted, dialled).await;
    });
}

#[test]
fn who_connects_over_and_over_is_refused() {
    story(|router| async move {
        let (ours, theirs) = (Own::new("r1"), Own::new("r2"));
        configure(&router, &ours, &theirs).await;
        let mut accepted = router.door().await.accept(Empty {});
        let mut all = Vec::new();
        // One more than are looked at beside a new one.
        for _ in 0..9 {
            let dialled = theirs.over_quic(&ours).await.expect("connected");
            all.push((dialled, handed(&mut accepted).await));
        }
        // Its handshake is good; the refusal may arrive with the end of it.
        match theirs.over_quic(&ours).await {
            Ok(mut refused) => {
                let _ = refused.stream.write_all(b"OPEN").await;
                let said = refused.stream.read(&mut [0]).await;
                assert!(matches!(said, Ok(0) | Err(_)), "there it ends: {said:?}");
            }
            Err(failure) => {
                let Failure::GivenUp(said) = &failure else { panic!("refused in another way: {failure:?}") };
                assert!(said.ends_with(&format!("(code {REJECTED})")), "{said}");
            }
        }
        for (dialled, _) in &all {
            assert!(dialled.control.answers().await);
        }
    });
}

#[test]
fn who_has_another_key_is_not_let_in() {
    story(|router| async move {
        let (ours, theirs, others) = (Own::new("r1"), Own::new("r2"), Own::new("r2"));
        configure(&router, &ours, &theirs).await;
        let refused = others.over_quic(&ours).await.expect_err("it is somebody else");
        assert!(matches!(refused, Failure::Untrusted(_)), "{refused:?}");
        // By TLS it learns so when it reads.
        let mut dialled = others.over_tls(&ours).await.expect("its own part is done");
        dialled.stream.read(&mut [0]).await.expect_err("it is told");
        let counted = loop {
            let counted: Vec<_> =
                listeners(&router).await.iter().map(|one| (one.failed, one.established)).collect();
            if counted.iter().all(|(failed, _)| *failed > 0) {
                break counted;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(counted, [(1, 0), (1, 0)]);
    });
}

/// A ClientHello (RFC 8446 section 4.1.2) that offers this one protocol.
fn client_hello(alpn: &[u8; 5]) -> Vec<u8> {
    let mut hello = vec![1, 0, 0, 57, 3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0x13, 1, 1, 0, 0, 14, 0, 16, 0, 8 + 2, 0, 6 + 2, 5]);
    hello.extend(alpn);
    hello.extend([1, b'x']);
    [&[22, 3, 1, 0, 61][..], &hello].concat()
}

#[test]
fn who_speaks_something_else_over_tls_is_refused_by_its_first_flight_and_counted_once() {
    story(|router| async move {
        let (ours, theirs) = (Own::new("r1"), Own::new("r2"));
        configure(&router, &ours, &theirs).await;
        let calling = call(NEIGHBOR, |mut stream| {
            // In two segments, the first of which says nothing.
            let hello = client_hello(b"h2c-1");
            stream.set_nodelay(true).expect("TCP_NODELAY");
            stream.write_all(&hello[..7]).expect("written");
            stream.write_all(&hello[7..]).expect("written");
            read(stream)
        });
        assert_eq!(calling.await, Err(ErrorKind::ConnectionReset), "not even an alert");
        let all = listeners(&router).await;
        let tcp = all.iter().find(|one| one.protocol() == Protocol::Tcp).expect("it listens");
        let counted: Vec<_> =
            tcp.stages.iter().map(|stage| (&*stage.name, stage.seen, stage.refused)).collect();
        let before = ["sources", "shed", "retry", "by-address", "peers"].map(|name| (name, 1, 0));
        assert_eq!(counted[..5], before);
        assert_eq!(counted[5..], [("hello", 1, 1), ("handshakes", 0, 0)]);
        assert_eq!((tcp.failed, tcp.handshakes), (0, 0));
    });
}

#[test]
fn who_may_use_tls_and_tcp_comes_over_either() {
    story(|router| async move {
        let (ours, theirs) = (Own::new("r1"), Own::new("r2"));
        configure_over(&router, &ours, &theirs, [Protocol::Tls, Protocol::Tcp]).await;
        let mut accepted = router.door().await.accept(Empty {});
        let dialled = theirs.over_tls(&ours).await.expect("connected");
        assert_eq!(talk(&router, &mut accepted, dialled).await.protocol(), Protocol::Tls);
        let calling = tokio::task::spawn_local(call(NEIGHBOR, |mut stream| {
            stream.write_all(&[0xff]).expect("written");
            read(stream)
        }));
        let (connection, socket) = handed(&mut accepted).await;
        assert_eq!((connection.protocol(), connection.number), (Protocol::Tcp, 0), "the kernel's own socket");
        drop(socket);
        // With its octet unread.
        assert_eq!(calling.await.expect("no panic"), Err(ErrorKind::ConnectionReset));
    });
}

#[test]
fn where_silent_members_of_a_range_hold_all_handshakes_a_configured_peer_is_let_in() {
    story(|router| async move {
        let (ours, theirs) = (Own::new("r1"), Own::new("r2"));
        let door: TransportClient = router.manager.wait_for("transport").await.expect("it is there");
        door.keep(Empty {}, vec![ours.secrets()]).await.expect("kept");
        let trust = Trust { pins: vec![theirs.key.fingerprint().to_vec()], ..Trust::default() };
        let range = Peer {
            is_range: true,
            range_length: 8,
            transports: [Protocol::Tls, Protocol::Tcp].map(Into::into).to_vec(),
            trust: Some(trust),
            ..peer("range", Ipv4Addr::new(127, 0, 0, 0))
        };
        let more = Configuration {
            certificates: vec![ours.certificate.clone()],
            admission: Some(Admission { most_handshakes: 2, ..Admission::default() }),
            ..Configuration::default()
        };
        router.configure_with(&[peer("neighbor", NEIGHBOR), range], more).await;
        let mut accepted = router.door().await.accept(Empty {});
        let silent = |last| Ipv4Addr::new(127, 0, 1, last);
        let held = [call(silent(1), |stream| stream).await, call(silent(2), |stream| stream).await];
        while router.listener().await.handshakes < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(call(silent(3), read).await, Err(ErrorKind::ConnectionReset), "there is no room");
        let calling = tokio::task::spawn_local(call(NEIGHBOR, read));
        let (connection, socket) = handed(&mut accepted).await;
        assert_eq!(connection.peer, "neighbor");
        drop(socket);
        assert_eq!(calling.await.expect("no panic"), Ok(0));
        drop(held);
    });
}
