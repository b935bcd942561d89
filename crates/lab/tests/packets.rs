//! Raw IP of routing protocols through `fea`: relayed for a toy that has no socket, and on a socket of a process of ours that
//! cannot do more with it than was granted.
//!
//! ```text
//!  near ──1── far     10.0.1.1, 10.0.1.2: granted to the toy
//!       ──2──         10.0.2.1, 10.0.2.2: not
//! ```

use std::{
    cell::RefCell,
    future::Future,
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::Command,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use holdfast_api::{
    fea::v1::{Configuration as FeaConfiguration, Empty as FeaEmpty, FeaClient},
    keeper::v1::{Empty as KeeperEmpty, KeeperClient, ListReply},
    socket::v1::{
        Configuration, Packet, RawGrant, RawRequest, ReceiveRequest, ReceivedPackets, SendRequest,
        SocketClient,
    },
};
use holdfast_lab::{
    netns::Namespace,
    topology::{Side, join, v4, v6},
};
use holdfast_process::{Boot, Network, Rights};
use holdfast_sandbox::Sandbox;
use holdfast_xrl::{
    Channel, Client, ErrorKind, Finder, Handler, IncomingCall, Link, Node, PeerIdentity, ReplyStream,
    Resolver, Service, ServiceInfo, XrlError,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tokio::{
    task::{LocalSet, spawn_local},
    time::timeout,
};

const LIMIT: Duration = Duration::from_secs(30);
/// What is awaited that must not come.
const MOMENT: Duration = Duration::from_millis(300);
/// For experiments (RFC 3692).
const NUMBER: u32 = 253;
const OSPF: u32 = 89;
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 5);
const OTHER_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 9);
const END: &[u8] = b"end";

/// Takes `fea` to a Finder, and forgets what it is given.
#[derive(Clone)]
struct Keeper(Finder);

impl Service for Keeper {
    fn info(&self) -> &'static ServiceInfo {
        KeeperClient::SERVICE
    }

    fn dispatch(&self, call: IncomingCall<'_>) -> Handler {
        let method = KeeperClient::SERVICE.method(call.method());
        let finder = self.0.clone();
        match method.map(|method| method.name) {
            Some("AttachFinder") => call.unary(|_, _: KeeperEmpty, _| async move {
                let (near, far) =
                    UnixStream::pair().map_err(|error| XrlError::internal(error.to_string()))?;
                let identity = PeerIdentity::new("fea").class("socket").pid(7);
                finder.attach(far.into(), identity).map_err(|error| XrlError::internal(error.to_string()))?;
                Ok((KeeperEmpty {}, vec![near.into()]))
            }),
            Some("List") => {
                call.unary(|_, _: KeeperEmpty, _| async { Ok((ListReply::default(), Vec::new())) })
            }
            _ => call.unknown(),
        }
    }
}

/// The process `fea` of a host, and its Finder.
struct Fea {
    finder: Finder,
    manager: Resolver,
    /// What they have resolved ends with them.
    protocols: RefCell<Vec<Resolver>>,
}

impl Fea {
    async fn start(grants: Vec<RawGrant>) -> Result<Self> {
        let finder = Finder::new();
        let door = Node::new("keeper");
        door.serve(Keeper(finder.clone()));
        let (near, far) = UnixStream::pair()?;
        door.attach(far.into(), PeerIdentity::new("fea"))?;
        let client = KeeperClient::new(Channel::connect(near.into())?);
        spawn_local(async move {
            let _open = door;
            holdfast_fea::run(Boot::new(Node::new("fea"), client)).await.expect("it lives");
        });
        let fea = Self {
            manager: resolver(&finder, PeerIdentity::new("manager")),
            finder,
            protocols: RefCell::default(),
        };
        let backend = FeaConfiguration { backend: "none".into(), ..FeaConfiguration::default() };
        fea.manager.wait_for::<FeaClient>("fea").await?.configure(backend).await?;
        fea.grant(grants).await?;
        Ok(fea)
    }

    async fn grant(&self, raw: Vec<RawGrant>) -> Result<()> {
        let sockets: SocketClient = self.manager.wait_for("socket").await?;
        sockets.configure(Configuration { raw, ..Configuration::default() }).await?;
        Ok(())
    }

    /// What a protocol of this class gets from the Finder, as the manager lets it in.
    async fn find<C: Client>(&self, class: &str, service: &str) -> Result<C> {
        let classes = vec![class.to_owned()];
        let protocol = resolver(&self.finder, PeerIdentity { classes, ..PeerIdentity::new("protocol") });
        let found = protocol.wait_for(service).await?;
        self.protocols.borrow_mut().push(protocol);
        Ok(found)
    }

    async fn sockets_of(&self, class: &str) -> Result<SocketClient> {
        self.find(class, "socket").await
    }
}

fn resolver(finder: &Finder, identity: PeerIdentity) -> Resolver {
    let (near, far) = Link::pair();
    finder.attach_link(far, identity);
    Resolver::over(Channel::over(near))
}

/// A host with `fea`, on which this story is told.
fn on<F: Future<Output = Result<()>>>(
    host: &Namespace,
    grants: Vec<RawGrant>,
    story: impl FnOnce(Fea) -> F + Send + 'static,
) -> Result<JoinHandle<Result<()>>> {
    host.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let story = async move { timeout(LIMIT, story(Fea::start(grants).await?)).await? };
        LocalSet::new().block_on(&runtime, story)
    })
}

fn done(story: JoinHandle<Result<()>>) -> Result<()> {
    story.join().map_err(|_| anyhow::anyhow!("the story panicked"))?
}

fn hosts() -> Result<(Namespace, Namespace)> {
    let (near, far) = (Namespace::new("near")?, Namespace::new("far")?);
    for network in [1, 2] {
        join(network, &near, &far)?;
    }
    Ok((near, far))
}

fn grant(class: &str, afi: u32, protocol: u32, descriptors: bool) -> RawGrant {
    let group = if afi == 1 { GROUP.octets().to_vec() } else { group_v6().to_vec() };
    RawGrant {
        class: class.into(),
        afi,
        protocol,
        groups: vec![group],
        hops: 1,
        interfaces: vec!["n1".into()],
        descriptors,
    }
}

fn of_toy() -> Vec<RawGrant> {
    [1, 2].map(|afi| grant("toy", afi, NUMBER, false)).into()
}

/// ff02::5.
fn group_v6() -> [u8; 16] {
    std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 5).octets()
}

fn address(afi: u32, network: u8, side: Side) -> Vec<u8> {
    if afi == 1 { v4(network, side).octets().to_vec() } else { v6(network, side).octets().to_vec() }
}

fn packet(source: Vec<u8>, destination: Vec<u8>, payload: &[u8]) -> Packet {
    Packet { interface: "n1".into(), source, destination, hops: 0, payload: payload.into() }
}

fn to_group(afi: u32, payload: &[u8]) -> Packet {
    let group = grant("", afi, 0, false).groups.remove(0);
    packet(address(afi, 1, Side::First), group, payload)
}

async fn send(sockets: &SocketClient, afi: u32, protocol: u32, packet: Packet) -> Result<(), XrlError> {
    let reply = sockets.send(SendRequest { afi, protocol, packets: vec![packet] }).await?;
    if reply.sent == 1 { Ok(()) } else { Err(XrlError::internal(reply.failure)) }
}

async fn next(stream: &mut ReplyStream<ReceivedPackets>) -> Result<Packet> {
    let received = stream.next().await?.context("it has no end")?;
    let [packet] = received.packets.as_slice() else { anyhow::bail!("one at a time: {received:?}") };
    Ok(packet.clone())
}

/// Answers each packet to its sender, turned around, until the last one; what it has heard.
async fn echo(fea: Fea, afi: u32) -> Result<Vec<Vec<u8>>> {
    let sockets = fea.sockets_of("toy").await?;
    let (mut heard, protocol) = (Vec::new(), NUMBER);
    let mut stream = sockets.receive(ReceiveRequest { afi, protocol });
    loop {
        let Packet { interface, source, payload, .. } = next(&mut stream).await?;
        ensure!(interface == "n1", "{interface}");
        let turned: Vec<u8> = payload.iter().rev().copied().collect();
        send(&sockets, afi, protocol, packet(address(afi, 1, Side::Second), source, &turned)).await?;
        heard.push(payload);
        if heard.last().is_some_and(|last| last == END) {
            return Ok(heard);
        }
    }
}

/// Sends until it is answered: the other end may not listen yet, and an interface may not be known yet.
async fn until_answered(
    sockets: &SocketClient,
    stream: &mut ReplyStream<ReceivedPackets>,
    packet: &Packet,
    afi: u32,
) -> Result<Packet> {
    loop {
        let sent = send(sockets, afi, NUMBER, packet.clone()).await;
        if let Ok(answer) = timeout(MOMENT, next(stream)).await {
            let expected: Vec<u8> = packet.payload.iter().rev().copied().collect();
            match answer {
                // One may have been sent twice.
                Ok(answer) if answer.payload != expected => continue,
                answer => return answer,
            }
        }
        if let Err(error) = sent {
            println!("not sent yet: {error}");
        }
    }
}

/// What a toy tries that it may not, each with what it is told.
fn forbidden(afi: u32) -> Vec<(u32, Packet, &'static str)> {
    let allowed = to_group(afi, b"forged");
    let other_group = if afi == 1 { OTHER_GROUP.octets().to_vec() } else { [&[0xff; 15][..], &[9]].concat() };
    vec![
        (OSPF, allowed.clone(), "you may not use IP protocol 89"),
        (NUMBER, Packet { source: address(afi, 1, Side::Second), ..allowed.clone() }, "is no address of"),
        // An address of this host, and not of this interface.
        (NUMBER, Packet { source: address(afi, 2, Side::First), ..allowed.clone() }, "is no address of"),
        (NUMBER, Packet { interface: "n2".into(), ..allowed.clone() }, "on interface \"n2\""),
        (NUMBER, Packet { destination: other_group, ..allowed }, "you were not granted the group"),
    ]
}

#[test]
fn a_toy_sends_and_receives_raw_ip_without_a_socket_and_nothing_that_is_not_its_own() -> Result<()> {
    for afi in [1, 2] {
        let (near, far) = hosts()?;
        let family = if afi == 1 { Domain::IPV4 } else { Domain::IPV6 };
        let ospf =
            far.run(move || Socket::new(family, Type::RAW, Some(Protocol::from(OSPF.cast_signed()))))??;
        ospf.set_read_timeout(Some(MOMENT))?;
        let (heard, all) = std::sync::mpsc::channel();
        let echoing = on(&far, of_toy(), move |fea| async move { Ok(heard.send(echo(fea, afi).await?)?) })?;
        let telling = on(&near, of_toy(), move |fea| async move {
            let sockets = fea.sockets_of("toy").await?;
            let mut stream = sockets.receive(ReceiveRequest { afi, protocol: NUMBER });
            let answer = until_answered(&sockets, &mut stream, &to_group(afi, b"hello"), afi).await?;
            ensure!(answer.source == address(afi, 1, Side::Second), "{answer:?}");
            ensure!(answer.destination == address(afi, 1, Side::First), "{answer:?}");
            ensure!(answer.hops == 1, "{answer:?}");
            for (protocol, packet, reason) in forbidden(afi) {
                let refused = send(&sockets, afi, protocol, packet.clone()).await.err();
                let refused = refused.with_context(|| format!("{packet:?} was sent"))?;
                ensure!(
                    refused.kind() == ErrorKind::Denied && refused.message().contains(reason),
                    "{refused}"
                );
            }
            // Nobody else has what the toy has.
            let others = fea.sockets_of("other").await?;
            let refused = send(&others, afi, NUMBER, to_group(afi, b"forged")).await.err();
            ensure!(refused.is_some_and(|error| error.kind() == ErrorKind::Denied));
            until_answered(&sockets, &mut stream, &to_group(afi, END), afi).await.map(drop)
        })?;
        done(telling)?;
        done(echoing)?;
        let heard = all.recv()?;
        ensure!(heard.iter().all(|payload| payload == b"hello" || payload == END), "{heard:?}");
        ospf.recv(&mut [MaybeUninit::uninit(); 64]).expect_err("no packet of OSPF has come");
    }
    Ok(())
}

/// Makes the first network again: to the kernel both interfaces are others then.
fn make_again(near: &str, far: &str) -> Result<()> {
    let ip = |arguments: String| holdfast_lab::netns::ip(&arguments.split(' ').collect::<Vec<_>>());
    ip(format!("-n {near} link delete n1"))?;
    ip(format!("link add n1 netns {near} type veth peer name n1 netns {far}"))?;
    for (host, side) in [(near, Side::First), (far, Side::Second)] {
        ip(format!("-n {host} address add {}/24 dev n1", v4(1, side)))?;
        ip(format!("-n {host} link set n1 up"))?;
    }
    Ok(())
}

#[test]
fn a_stream_follows_an_interface_that_is_made_again_and_ends_with_its_grant() -> Result<()> {
    let (near, far) = hosts()?;
    let echoing = on(&far, of_toy(), |fea| async move { echo(fea, 1).await.map(drop) })?;
    let names = [&near, &far].map(|host| host.name().to_owned());
    let telling = on(&near, of_toy(), move |fea| async move {
        let sockets = fea.sockets_of("toy").await?;
        let mut stream = sockets.receive(ReceiveRequest { afi: 1, protocol: NUMBER });
        until_answered(&sockets, &mut stream, &to_group(1, b"hello"), 1).await?;
        make_again(&names[0], &names[1])?;
        until_answered(&sockets, &mut stream, &to_group(1, END), 1).await?;
        fea.grant(vec![grant("other", 1, NUMBER, false)]).await?;
        let ended = loop {
            match stream.next().await {
                Ok(Some(_)) => {}
                Ok(None) => anyhow::bail!("it ended without a word"),
                Err(error) => break error,
            }
        };
        ensure!(ended.kind() == ErrorKind::Denied, "{ended}");
        Ok(())
    })?;
    done(telling)?;
    done(echoing)
}

#[test]
fn a_protocol_sees_the_interfaces_and_calls_nothing_else_of_fea() -> Result<()> {
    let (near, _far) = hosts()?;
    done(on(&near, of_toy(), |fea| async move {
        let client: FeaClient = fea.find("toy", "fea").await?;
        let mut stream = client.interfaces(FeaEmpty {});
        let mut ours = Vec::new();
        while let Some(event) = stream.next().await? {
            ours.extend(event.interface.filter(|interface| interface.name == "n1"));
            if event.synced {
                break;
            }
        }
        let addresses = ours.iter().flat_map(|interface| &interface.addresses);
        ensure!(addresses.map(|own| &own.address).any(|own| *own == address(1, 1, Side::First)), "{ours:?}");
        let refused = [
            client.sync_begin(FeaEmpty {}).await.map(drop),
            client.show_status(FeaEmpty {}).await.map(drop),
            client.configure(FeaConfiguration::default()).await.map(drop),
            fea.sockets_of("toy").await?.configure(Configuration::default()).await.map(drop),
        ];
        for outcome in refused {
            ensure!(outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Denied), "{outcome:?}");
        }
        Ok(())
    })?)
}

/// In the environment of a process that stands for one of ours.
const INSIDE: &str = "HOLDFAST_RAW_SOCKET";
const OWN: &str = "packets::a_socket_of_our_own_process_does_what_was_granted_and_no_more";
/// How the process ends when all is as it should be.
const AS_IT_SHOULD_BE: i32 = 42;

/// The life of that process, with the socket as its standard input.
fn our_process() -> Result<()> {
    let socket = Socket::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let refused = |outcome: std::io::Result<()>| match outcome.err().and_then(|error| error.raw_os_error()) {
        Some(1) => Ok(()),
        other => Err(anyhow::anyhow!("not EPERM but {other:?}")),
    };
    let everything = [SockFilter::new(6, 0, 0, u32::MAX)];
    // The kernel itself has locked the filter. It is seccomp that forbids headers.
    refused(socket.detach_filter()).context("with all rights")?;
    refused(socket.attach_filter(&everything)).context("with all rights")?;
    socket.set_header_included_v4(true)?;
    socket.set_header_included_v4(false)?;
    Sandbox::new(Rights::worker(Network::Datagrams)).close()?;
    refused(socket.set_header_included_v4(true)).context("a header of its own")?;
    refused(socket.set_freebind_v4(true)).context("a source of its own")?;
    refused(socket.detach_filter()).context("no filter")?;
    refused(socket.attach_filter(&everything)).context("another filter")?;
    // It may join another group, and still does not hear it.
    socket.join_multicast_v4(&OTHER_GROUP, &v4(1, Side::First))?;
    let to = SocketAddr::new(GROUP.into(), 0);
    socket.send_to(b"hello", &to.into())?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 64];
    socket.set_nonblocking(false)?;
    let (octets, from) = socket.recv_from(&mut buffer)?;
    let from = from.as_socket().context("an address")?;
    ensure!(
        from.ip() == IpAddr::from(v4(1, Side::Second)) && octets == 20 + b"granted".len(),
        "{from} {octets}"
    );
    Ok(())
}

/// Answers what comes to the group with a packet to another one, and then with one to the group.
fn far_end(far: &Namespace) -> Result<JoinHandle<Result<Vec<u8>>>> {
    let socket = far.run(|| -> std::io::Result<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(OSPF.cast_signed())))?;
        socket.bind_device(Some(b"n1"))?;
        socket.join_multicast_v4(&GROUP, &v4(1, Side::Second))?;
        socket.set_read_timeout(Some(LIMIT))?;
        Ok(socket)
    })??;
    Ok(std::thread::spawn(move || {
        let mut packet = vec![0; 64];
        let octets = rustix::net::recv(&socket, packet.as_mut_slice(), rustix::net::RecvFlags::empty())?.1;
        for (group, payload) in [(OTHER_GROUP, &b"foreign!"[..]), (GROUP, b"granted")] {
            socket.send_to(payload, &SocketAddr::new(group.into(), 0).into())?;
        }
        packet.truncate(octets);
        Ok(packet)
    }))
}

#[test]
fn a_socket_of_our_own_process_does_what_was_granted_and_no_more() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        our_process()?;
        std::process::exit(AS_IT_SHOULD_BE);
    }
    let (near, far) = hosts()?;
    let answering = far_end(&far)?;
    let grants = vec![grant("ours", 1, OSPF, true), grant("toy", 1, NUMBER, false)];
    done(on(&near, grants, |fea| async move {
        let request =
            |interface: &str, protocol| RawRequest { interface: interface.into(), afi: 1, protocol };
        let ours = fea.sockets_of("ours").await?;
        for (interface, protocol) in [("n2", OSPF), ("n1", NUMBER)] {
            let refused = ours.raw(request(interface, protocol)).await.err();
            ensure!(refused.is_some_and(|error| error.kind() == ErrorKind::Denied), "{interface} {protocol}");
        }
        let toys = fea.sockets_of("toy").await?;
        let refused = toys.raw(request("n1", NUMBER)).await.err();
        ensure!(refused.is_some_and(|error| error.message().contains("Send and Receive")));
        let (_, descriptors) = ours.raw(request("n1", OSPF)).await?;
        let socket: OwnedFd = descriptors.into_iter().next().context("a descriptor")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", OWN, "--nocapture"]).env(INSIDE, "1").stdin(socket);
        let status = tokio::task::spawn_blocking(move || command.status()).await??;
        ensure!(status.code() == Some(AS_IT_SHOULD_BE), "{status}");
        Ok(())
    })?)?;
    let packet = answering.join().map_err(|_| anyhow::anyhow!("it panicked"))??;
    // TTL, protocol, source: those of the grant, of the socket, of the interface.
    ensure!(packet.get(8..10) == Some(&[1, 89][..]), "{packet:?}");
    ensure!(
        packet.get(12..16) == Some(&v4(1, Side::First).octets()[..]) && packet.ends_with(b"hello"),
        "{packet:?}"
    );
    Ok(())
}
