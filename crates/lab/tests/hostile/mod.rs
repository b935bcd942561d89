//! The router attacked from outside: by peers' bytes, by connections, by peers that do not read, over the operator's
//! socket, and by the death of its manager at bad moments.
//!
//! ```text
//!  neighbour 10.0.0.2, AS 65001 ────┐
//!  guests    10.0.1.0/24, any AS ───┴── Holdfast 10.0.0.1, AS 65000
//! ```
//!
//! The neighbour is a good one. Whatever happens, its session must never end, no process may die, and when it is over
//! the router holds no more descriptors than before. Guests come from a listen range and do what the test wants.

mod cost;
mod incidents;
mod memory;
mod pace;
mod signatures;

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bgp_wire::{Capability, KEEPALIVE, MAX_EXTENDED_LEN, MessageType, Open, next_message};
use holdfast_lab::{
    kernel,
    netns::{End, Namespace, link},
    router::{Router, binary},
    speaker::{Speaker, SpeakerConfig},
    table::{Synthetic, Table},
    wait,
};
use holdfast_types::{Asn, Family, RouterId};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NEIGHBOR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Nobody is configured here.
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
const GUESTS: u8 = 250;
const PROCESSES: [&str; 6] = ["keeper", "manager", "fea", "rib", "transport", "bgp"];
/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);

const CONFIGURATION: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[bgp]
[[bgp.peer]]
name = "neighbor"
address = "10.0.0.2"
asn = 65001
passive = true
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "guest"
listen-range = "10.0.1.0/24"
asn = "any"
import = "accept-all"
export = "accept-all"
"#;

/// The scene of every attack.
struct Scene {
    neighbor: Speaker,
    router: Router,
    host: Namespace,
    outside: Namespace,
    before: Picture,
}

/// What an attack must leave as it is, or with fewer descriptors: one that somebody was just about to close counts before.
#[derive(Debug)]
struct Picture {
    processes: BTreeMap<&'static str, i32>,
    descriptors: BTreeMap<&'static str, usize>,
}

impl Picture {
    fn take(router: &Router) -> Result<Self> {
        let mut picture = Self { processes: BTreeMap::new(), descriptors: BTreeMap::new() };
        for name in PROCESSES {
            let pid = router.pid(name)?.as_raw_nonzero().get();
            picture.processes.insert(name, pid);
            picture.descriptors.insert(name, fs::read_dir(format!("/proc/{pid}/fd"))?.count());
        }
        Ok(picture)
    }

    fn is_no_more_than(&self, before: &Self) -> bool {
        let is_no_more = |(now, before): (&usize, &usize)| now <= before;
        self.processes == before.processes
            && self.descriptors.values().zip(before.descriptors.values()).all(is_no_more)
    }
}

impl Scene {
    fn new(configuration: &str) -> Result<Self> {
        let (host, outside) = (Namespace::new("router")?, Namespace::new("outside")?);
        let guests: Vec<_> = (1..=GUESTS).map(|number| format!("{}/16", guest(number))).collect();
        let (neighbor, stranger) = (format!("{NEIGHBOR}/16"), format!("{STRANGER}/16"));
        let mut addresses = vec![&*neighbor, &*stranger];
        addresses.extend(guests.iter().map(String::as_str));
        link(
            &End { host: &host, interface: "eth0", addresses: &[&format!("{ROUTER}/16")] },
            &End { host: &outside, interface: "eth0", addresses: &addresses },
        )?;
        let router = Router::start(&host, configuration)?;
        let config = SpeakerConfig::connect(NEIGHBOR.into(), ROUTER.into(), 65001);
        let neighbor = outside.run(move || Speaker::spawn(config))??;
        neighbor.wait_established(LIMIT)?;
        neighbor.wait_end_of_rib(Family::IPV4_UNICAST, LIMIT)?;
        // The last connection between processes that a router at rest has.
        wait::until("bgp at the rib", LIMIT, || {
            if router.log().contains("registered at the rib") { Ok(()) } else { Err(router.log_tail()) }
        })?;
        let before = Picture::take(&router)?;
        Ok(Self { neighbor, router, host, outside, before })
    }

    /// Runs an attack outside, then sees that nothing of it is left.
    fn survives(&self, attack: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        self.outside.run(attack)??;
        self.is_unharmed()
    }

    fn is_unharmed(&self) -> Result<()> {
        wait::until("everything as before", LIMIT, || {
            let now = Picture::take(&self.router).map_err(|error| error.to_string())?;
            if now.is_no_more_than(&self.before) {
                Ok(())
            } else {
                Err(format!("{now:?}, before {:?}", self.before))
            }
        })?;
        let status = self.neighbor.status();
        ensure!(
            status.established && status.sessions == 1,
            "the neighbour's session flapped: {:?}",
            status.ended
        );
        Ok(())
    }
}

fn guest(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, number)
}

/// A connection to the router from an address of ours.
fn call(from: Ipv4Addr, receive_buffer: Option<usize>) -> Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    if let Some(octets) = receive_buffer {
        sockopt::set_socket_recv_buffer_size(&socket, octets)?;
    }
    bind(&socket, &SocketAddr::new(from.into(), 0))?;
    connect(&socket, &SocketAddr::new(ROUTER.into(), 179))
        .with_context(|| format!("connecting from {from}"))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// Begins to connect to the router from an address of ours, and does not wait.
fn knock(from: Ipv4Addr) -> Result<OwnedFd> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    bind(&socket, &SocketAddr::new(from.into(), 0))?;
    match connect(&socket, &SocketAddr::new(ROUTER.into(), 179)) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error).with_context(|| format!("connecting from {from}")),
    }
}

fn guest_asn(address: Ipv4Addr) -> Asn {
    Asn(64_600 + u32::from(address.octets()[3]))
}

fn open(from: Ipv4Addr, hold_time: u16) -> Vec<u8> {
    open_with(from, hold_time, Vec::new())
}

/// With further capabilities.
fn open_with(from: Ipv4Addr, hold_time: u16, more: Vec<Capability>) -> Vec<u8> {
    let asn = guest_asn(from);
    let families = [Family::IPV4_UNICAST, Family::IPV6_UNICAST].map(Capability::Multiprotocol);
    let others = [Capability::FourOctetAs(asn), Capability::RouteRefresh, Capability::ExtendedMessage];
    let capabilities = families.into_iter().chain(others).chain(more).collect();
    let router_id = RouterId::new(from.to_bits()).expect("no guest is 0.0.0.0");
    Open { asn, hold_time, router_id, capabilities }.encode()
}

/// The next whole message: its type.
fn receive(stream: &mut TcpStream) -> Result<MessageType> {
    Ok(receive_whole(stream)?.0)
}

/// The next whole message: its type and its body.
fn receive_whole(stream: &mut TcpStream) -> Result<(MessageType, Vec<u8>)> {
    let mut message = vec![0; 19];
    stream.read_exact(&mut message)?;
    message.resize(usize::from(u16::from_be_bytes([message[16], message[17]])), 0);
    stream.read_exact(&mut message[19..])?;
    let message = next_message(&message, MAX_EXTENDED_LEN).map_err(|error| anyhow::anyhow!("{error}"))?;
    let message = message.context("a whole message")?;
    Ok((message.kind, message.body.to_vec()))
}

/// Our side of the handshake.
fn establish(stream: &mut TcpStream, hold_time: u16) -> Result<()> {
    let IpAddr::V4(from) = stream.local_addr()?.ip() else { bail!("an IPv4 connection") };
    establish_as(stream, &open(from, hold_time))
}

/// The same with an OPEN of its own.
fn establish_as(stream: &mut TcpStream, open: &[u8]) -> Result<()> {
    stream.write_all(open)?;
    ensure!(receive(stream)? == MessageType::Open, "an OPEN");
    ensure!(receive(stream)? == MessageType::KeepAlive, "a KEEPALIVE");
    Ok(stream.write_all(&KEEPALIVE)?)
}

fn session(number: u8) -> Result<TcpStream> {
    let mut stream = call(guest(number), None)?;
    establish(&mut stream, 90)?;
    Ok(stream)
}

/// Says bytes, then nothing more; waits until the router has closed, which says that it has read them all.
fn say(mut stream: TcpStream, octets: &[u8]) -> Result<()> {
    match stream.write_all(octets) {
        Ok(()) => stream.shutdown(std::net::Shutdown::Write)?,
        // It did not even want to hear the rest.
        Err(error) if is_reset(&error) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    match std::io::copy(&mut stream, &mut std::io::sink()) {
        Err(error) if !is_reset(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

fn is_reset(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected)
}

/// Knuth's MMIX generator: the same attack every time.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn mutate(&mut self, message: &mut [u8]) {
        for _ in 0..=self.below(4) {
            // Mostly what is behind the header: a session that ends at once tests little.
            let first = if self.below(20) == 0 { 0 } else { 19.min(message.len() - 1) };
            let at = first + self.below(message.len() - first);
            message[at] = [0, 1, 2, 4, 0x40, 0x80, 0xff, self.below(256) as u8][self.below(8)];
        }
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn hex(path: &Path) -> Result<Vec<u8>> {
    let digits: Vec<u8> = fs::read(path)?.into_iter().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8; 2]| Ok(u8::from_str_radix(str::from_utf8(pair)?, 16)?);
    digits.as_chunks().0.iter().map(octet).collect()
}

/// The fuzzers' messages, and those of `HOLDFAST_DATA` if it is there.
fn messages() -> Result<Vec<Vec<u8>>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/message");
    let mut messages = files(&corpus)?.iter().map(fs::read).collect::<std::io::Result<Vec<_>>>()?;
    match std::env::var_os("HOLDFAST_DATA") {
        Some(data) => {
            for folder in ["handmade", "tcpdump-tests"] {
                let all = files(&Path::new(&data).join("messages").join(folder))?;
                for path in all.iter().filter(|path| path.extension().is_some_and(|name| name == "hex")) {
                    messages.push(hex(path)?);
                }
            }
        }
        None => println!("HOLDFAST_DATA is not set: the messages of the fuzzers only"),
    }
    Ok(messages)
}

#[test]
fn no_message_of_one_peer_touches_another() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    let messages = messages()?;
    scene.survives(move || {
        for (index, message) in messages.iter().enumerate() {
            say(session((index % usize::from(GUESTS)) as u8 + 1)?, message)?;
        }
        let mut random = Lcg(1);
        for number in 1..=GUESTS {
            let mut stream = Vec::new();
            for _ in 0..20 {
                let mut message = messages[random.below(messages.len())].clone();
                random.mutate(&mut message);
                stream.extend(message);
            }
            say(session(number)?, &stream)?;
        }
        Ok(())
    })
}

#[test]
fn no_open_brings_more_than_its_own_connection_down() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    scene.survives(|| {
        let mut random = Lcg(2);
        for number in 1..=GUESTS {
            let mut message = open(guest(number), 90);
            random.mutate(&mut message);
            say(call(guest(number), None)?, &message)?;
        }
        // A session is one octet at a time as good as at once.
        let mut slow = call(guest(1), None)?;
        for octet in open(guest(1), 90).iter().chain(&KEEPALIVE) {
            slow.write_all(&[*octet])?;
        }
        ensure!(receive(&mut slow)? == MessageType::Open && receive(&mut slow)? == MessageType::KeepAlive);
        say(slow, &KEEPALIVE[..18])
    })
}

#[test]
fn floods_of_connections_leave_nothing_behind() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    scene.survives(|| {
        let flood = |from: &dyn Fn(usize) -> Ipv4Addr| {
            // Of one address there are not so many let in: the others are reset, some while they connect.
            let is_told = |error: &anyhow::Error| {
                error
                    .downcast_ref()
                    .is_some_and(|errno: &rustix::io::Errno| *errno == rustix::io::Errno::CONNRESET)
            };
            let connections = (0..1000).map(|index| match call(from(index), None) {
                Err(error) if is_told(&error) => Ok(None),
                called => called.map(Some),
            });
            drop(connections.collect::<Result<Vec<_>>>()?);
            anyhow::Ok(())
        };
        // Nobody is configured there: the kernel answers none of them.
        let strangers: Result<Vec<_>> = (0..1000).map(|_| knock(STRANGER)).collect();
        let strangers = strangers?;
        flood(&|_| guest(1))?;
        let answered = strangers.iter().filter(|socket| rustix::net::getpeername(socket).is_ok()).count();
        ensure!(answered == 0, "{answered} strangers were answered");
        drop(strangers);
        flood(&|index| guest((index % usize::from(GUESTS)) as u8 + 1))?;
        // The neighbour has a session: a second connection from there is refused, however often.
        flood(&|_| NEIGHBOR)
    })
}

/// An UPDATE of a guest for 200 prefixes, all guests the same, with another community each time.
fn update(number: u8, community: u32) -> Vec<u8> {
    let nlri: Vec<u8> = (0..200).flat_map(|third| [24, 20, 0, third]).collect();
    update_of(number, community, &nlri)
}

/// The same for other prefixes.
fn update_of(number: u8, community: u32, nlri: &[u8]) -> Vec<u8> {
    let asn = guest_asn(guest(number)).0.to_be_bytes();
    let attributes = [
        &[0x40, 1, 1, 0][..],
        &[0x40, 2, 6, 2, 1],
        &asn,
        &[0x40, 3, 4],
        &guest(number).octets(),
        &[0xc0, 8, 4],
        &community.to_be_bytes(),
    ]
    .concat();
    let length = 19 + 2 + 2 + attributes.len() + nlri.len();
    [
        &[0xff; 16][..],
        &(length as u16).to_be_bytes(),
        &[MessageType::Update as u8, 0, 0],
        &(attributes.len() as u16).to_be_bytes(),
        &attributes,
        nlri,
    ]
    .concat()
}

/// What the replication log holds of sessions.
fn log_used(scene: &Scene) -> Result<u64> {
    scene.router.show(&["nsr"])?["logUsed"].as_u64().context("logUsed")
}

#[test]
fn sessions_that_flap_leave_nothing_behind() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    let flap = || {
        (1..=GUESTS).try_for_each(|number| {
            let mut stream = session(number)?;
            if number % 2 == 0 {
                // Dropped with octets unread: reset, in the middle of an UPDATE.
                return Ok(stream.write_all(&update(number, 1)[..500])?);
            }
            say(stream, &update(number, 1))
        })
    };
    scene.survives(flap)?;
    let first = scene.router.heap("bgp")?;
    let held = log_used(&scene)?;
    scene.survives(move || (0..4).try_for_each(|_| flap()))?;
    let grown = scene.router.heap("bgp")?.saturating_sub(first);
    println!("1,000 sessions: bgp had {first} octets, and has {grown} more after them");
    ensure!(grown < 4 << 20, "1,000 sessions cost {grown} octets");
    // The log is apart: the blocks of sessions that were are freed when a number of them has come together.
    let (held_before, held_after) = (held >> 20, log_used(&scene)? >> 20);
    println!("the log holds {held_after} MiB, and had {held_before} MiB before");
    ensure!(held_after < held_before + 40, "the log keeps what has ended: {held_after} MiB");
    // The next guest is served as the first would have been.
    let last = scene.outside.run(|| {
        let mut last = session(1)?;
        last.write_all(&update(1, 2))?;
        anyhow::Ok(last)
    })??;
    scene.neighbor.wait_routes(200, LIMIT)?;
    drop(last);
    scene.neighbor.wait_routes(0, LIMIT)?;
    Ok(())
}

#[test]
fn a_route_that_flaps_is_told_at_the_receivers_pace() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    scene.survives(|| {
        let mut stream = session(1)?;
        for community in 0..20_000 {
            stream.write_all(&update(1, community))?;
        }
        say(stream, &[])
    })?;
    scene.neighbor.wait_routes(0, LIMIT)?;
    let announced = scene.neighbor.status().announced;
    println!("4,000,000 announcements of 200 prefixes: the neighbour saw {announced}");
    Ok(())
}

/// Routes enough to fill any socket's buffers.
fn table(seed: u64) -> Arc<Table> {
    Arc::new(Synthetic::ipv4(seed, 200_000).build())
}

#[test]
fn a_peer_that_reads_nothing_holds_nobody_up() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    let config = SpeakerConfig::connect(guest(2).into(), ROUTER.into(), 64_602);
    let sink = scene.outside.run(move || Speaker::spawn(config))??;
    sink.wait_established(LIMIT)?;
    let mut deaf = scene.outside.run(|| {
        let mut deaf = call(guest(1), Some(4096))?;
        establish(&mut deaf, 90)?;
        anyhow::Ok(deaf)
    })??;
    let mut before = None;
    for seed in 1..=3 {
        // Three Internets of other prefixes, one after the other: what the deaf one misses is all of them.
        scene.neighbor.announce(table(seed));
        sink.wait_routes(200_000, LIMIT)?;
        let memory = scene.router.memory("bgp")?;
        println!("table {seed}: bgp has {} MiB", memory >> 20);
        let first = *before.get_or_insert(memory);
        ensure!(memory < first + (48 << 20), "what is not read costs {first} octets, then {memory}");
        scene.neighbor.withdraw(table(seed));
        sink.wait_routes(0, LIMIT)?;
    }
    deaf.write_all(&KEEPALIVE)?;
    let guests = scene.router.show(&["bgp", "summary"])?;
    let deaf_one = &guests["ipv4Unicast"]["peers"][guest(1).to_string()];
    ensure!(deaf_one["state"] == "Established", "only the send hold timer may end its session: {deaf_one}");
    drop((deaf, sink));
    scene.is_unharmed()
}

/// A session of 3 s hold time: the longest silence of the router, measured until told to stop.
fn longest_silence(done: &AtomicBool) -> Result<Duration> {
    let mut stream = call(guest(3), None)?;
    establish(&mut stream, 3)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !done.load(Ordering::Relaxed) {
        let message = receive(&mut stream).context("the router was silent for the hold time")?;
        longest = longest.max(last.elapsed());
        last = Instant::now();
        match message {
            MessageType::KeepAlive => stream.write_all(&KEEPALIVE)?,
            MessageType::Notification => bail!("the router closed a session of 3 s hold time"),
            MessageType::Open | MessageType::Update | MessageType::RouteRefresh => {}
        }
    }
    Ok(longest)
}

#[test]
fn under_full_load_keepalives_are_in_time_and_the_operator_is_answered() -> Result<()> {
    // The third guest is told no routes, so that it hears KEEPALIVEs alone.
    let quiet = "[[bgp.peer]]\nname = \"quiet\"\naddress = \"10.0.1.3\"\nasn = 64603\npassive = true\n";
    let scene = Scene::new(&format!("{CONFIGURATION}{quiet}"))?;
    let done = Arc::new(AtomicBool::new(false));
    let silence = scene.outside.spawn({
        let done = Arc::clone(&done);
        move || longest_silence(&done)
    })?;
    let whole = Arc::new(Synthetic { as_sets: false, ..Synthetic::full(1) }.build());
    let count = whole.count(Family::IPV4_UNICAST);
    let mut configs = [1, 2].map(|number| {
        let asn = 64_600 + u32::from(number);
        SpeakerConfig::connect(guest(number).into(), ROUTER.into(), asn)
    });
    configs[0].tables = vec![Arc::clone(&whole)];
    configs[1].tables = vec![whole];
    let feeders = configs.map(|config| scene.outside.run(move || Speaker::spawn(config)));
    let mut slowest = Duration::ZERO;
    wait::until("the table", Duration::from_secs(120), || {
        let asked = Instant::now();
        let shown = scene.router.show(&["bgp", "summary"]).map_err(|error| error.to_string())?;
        slowest = slowest.max(asked.elapsed());
        let prefixes = shown["ipv4Unicast"]["ribCount"].as_u64().unwrap_or(0);
        let sent = scene.neighbor.status().routes;
        if sent == count { Ok(()) } else { Err(format!("{prefixes} prefixes, {sent} of {count} sent on")) }
    })?;
    done.store(true, Ordering::Relaxed);
    let silence = silence.join().map_err(|_| anyhow::anyhow!("the quiet session's thread"))??;
    println!("longest silence {silence:?}, slowest summary {slowest:?}");
    ensure!(slowest < Duration::from_secs(2), "an operator waited {slowest:?}");
    for feeder in feeders {
        drop(feeder??);
    }
    scene.is_unharmed()
}

/// A frame of XRL.
fn frame(kind: u8, call: u32, descriptors: u16, length: u32, body: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes()[..], &call.to_be_bytes(), &[0; 4], &[kind, 0], &descriptors.to_be_bytes(), body]
        .concat()
}

#[test]
fn the_operators_socket_takes_any_octets() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    let path = scene.router.directory().join("holdfast.sock");
    // Unknown kind, endless, promised and never sent, descriptors that do not come, unknown key, items and credit of
    // nobody, an answer that is none.
    let mut attacks = vec![
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        frame(99, 1, 0, 0, &[]),
        frame(2, 1, 0, u32::MAX, &[]),
        frame(2, 1, 0, 16 << 20, &[0; 1000]),
        frame(2, 1, 40, 0, &[]),
        frame(2, 1, 3, 0, &[]),
        frame(1, 0, 0, 16, &[7; 16]),
        frame(4, 5, 0, 3, b"abc"),
        frame(7, 5, 0, 2, b"ab"),
        frame(5, 0, 0, 2, b"zz"),
    ];
    // Calls that are cancelled as fast as they are made, and calls beyond any window.
    attacks.push(
        (1..20_000).flat_map(|id| [frame(2, id, 0, 0, &[]), frame(6, id, 0, 0, &[])].concat()).collect(),
    );
    attacks.push((1..200_000).flat_map(|id| frame(2, id, 0, 0, &[])).collect());
    for octets in attacks {
        let mut stream = UnixStream::connect(&path)?;
        // The router may close before it has read all.
        let _ = stream.write_all(&octets);
    }
    let idle: Vec<_> = (0..2000).map(|_| UnixStream::connect(&path)).collect::<std::io::Result<_>>()?;
    let asked = Instant::now();
    scene.router.show(&["processes"])?;
    println!("with 2,000 connections: answered within {:?}", asked.elapsed());
    let memory = scene.router.memory("manager")?;
    ensure!(memory < 64 << 20, "2,000 idle connections: the manager has {memory} octets");
    drop(idle);
    scene.is_unharmed()
}

#[test]
fn an_operator_may_not_do_what_processes_may() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    for method in [
        "bgp/bgp.v1/Configure",
        "bgp/bgp.v1/Shutdown",
        "rib/rib.v1/Routes",
        "fea/fea.v1/SyncEnd",
        "transport/transport.v1/Listen",
        "manager/manager.v1/Adopt",
        "keeper/keeper.v1/Spawn",
    ] {
        let refused = scene.router.cli(&["call", method]).err().map(|error| error.to_string());
        let refused = refused.with_context(|| format!("{method} was carried out"))?;
        // The keeper is no component at all: nobody but its own children has a way to it.
        ensure!(refused.contains("may not call") || refused.contains("no component"), "{method}: {refused}");
    }
    scene.is_unharmed()
}

#[test]
fn readers_that_do_not_read_cost_little() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    scene.neighbor.announce(table(4));
    wait::until("the table", LIMIT, || {
        let shown = scene.router.show(&["bgp", "summary"]).map_err(|error| error.to_string())?;
        match shown["ipv4Unicast"]["ribCount"].as_u64() {
            Some(200_000) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    let before = scene.router.memory("bgp")?;
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut command = Command::new(binary()?);
        command
            .args(["show", "bgp", "routes", "--json"])
            .env("HOLDFAST_RUNTIME_DIR", scene.router.directory());
        let mut reader = command.stdout(Stdio::piped()).spawn()?;
        // It has begun, and will be stuck in the middle.
        let mut begun = [0; 1000];
        reader.stdout.as_mut().context("stdout")?.read_exact(&mut begun)?;
        readers.push(reader);
    }
    let asked = Instant::now();
    scene.router.show(&["bgp", "summary"])?;
    let grown = scene.router.memory("bgp")?.saturating_sub(before);
    println!("20 stuck readers: {} KiB, a summary takes {:?}", grown >> 10, asked.elapsed());
    ensure!(grown < 128 << 20, "20 stuck readers cost {grown} octets");
    for mut reader in readers {
        reader.kill()?;
        reader.wait()?;
    }
    scene.is_unharmed()
}

#[test]
fn a_new_manager_finds_what_runs_with_or_without_its_configuration() -> Result<()> {
    let mut scene = Scene::new(CONFIGURATION)?;
    let forgive = |scene: &mut Scene| -> Result<()> {
        // Only the manager is another one.
        scene.before.processes.insert("manager", scene.router.pid("manager")?.as_raw_nonzero().get());
        scene.is_unharmed()
    };
    for _ in 0..4 {
        scene.router.kill("manager")?;
        scene.router.wait_running()?;
        forgive(&mut scene)?;
    }
    let (file, hidden) = (scene.router.configuration(), scene.router.directory().join("hidden"));
    fs::rename(&file, &hidden)?;
    scene.router.kill("manager")?;
    wait::until("a word of the missing file", LIMIT, || {
        let log = scene.router.log();
        if log.contains("router.toml: No such file") { Ok(()) } else { Err(scene.router.log_tail()) }
    })?;
    fs::rename(&hidden, &file)?;
    scene.router.wait_running()?;
    forgive(&mut scene)
}

#[test]
fn an_interface_that_flaps_under_load_loses_nothing_in_the_end() -> Result<()> {
    let scene = Scene::new(CONFIGURATION)?;
    let others = ["20.200.0.0/16", "20.201.0.0/16"];
    for prefix in others {
        scene.host.ip(&["route", "add", "blackhole", prefix, "proto", "99"])?;
    }
    let table = table(5);
    scene.neighbor.announce(Arc::clone(&table));
    for _ in 0..5 {
        scene.host.ip(&["link", "set", "eth0", "down"])?;
        scene.host.ip(&["link", "set", "eth0", "up"])?;
    }
    wait::until("all routes in the kernel", LIMIT, || {
        let count = kernel::routes(&scene.host, false).map_err(|error| error.to_string())?.len();
        if count == table.routes.len() { Ok(()) } else { Err(format!("{count} of {}", table.routes.len())) }
    })?;
    scene.is_unharmed()?;
    let Scene { router, host, .. } = scene;
    router.stop()?;
    ensure!(kernel::routes(&host, false)?.is_empty(), "routes are left after an orderly stop");
    ensure!(
        host.ip(&["route", "show", "proto", "99"])?.lines().count() == others.len(),
        "others' routes are gone"
    );
    Ok(())
}
