//! Peers that have to prove who they are, over TLS and QUIC: the test is one of them.

use std::{
    fs::File,
    io::Write,
    net::{SocketAddr, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    time::Duration,
};

use holdfast_api::transport::v1::{
    Configuration, Connection, Empty, Listener, MeterReply, MeterRequest, Peer, Protocol, Secrets,
    TransportClient, Trust,
};
use holdfast_tls::{
    Identity, PeerTls, Seeds,
    keys::{Algorithm, PrivateKey, Validity, self_signed},
};
use holdfast_transport::{Connection as Dialled, Expected, Failure, noq, tls};
use holdfast_xrl::ReplyStream;
use prost::Message;
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::{NEIGHBOR, PORT, ROUTER, Router, handed, peer, story};

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
        let socket = UdpSocket::bind((NEIGHBOR, 0)).expect("bound");
        let endpoint = noq::Endpoint::new(socket, &Seeds::random()).expect("an endpoint");
        endpoint.connect(SocketAddr::new(ROUTER.into(), PORT), None, &self.expects(router)).await
    }
}

/// The router with this key, where the neighbour has to have that one.
async fn configure(router: &Router, ours: &Own, theirs: &Own) {
    let door: TransportClient = router.manager.wait_for("transport").await.expect("it is there");
    door.keep(Empty {}, vec![ours.secrets()]).await.expect("kept");
    let trust = Trust { pins: vec![theirs.key.fingerprint().to_vec()], ..Trust::default() };
    let neighbor = Peer {
        transports: vec![Protocol::Quic.into(), Protocol::Tls.into()],
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
