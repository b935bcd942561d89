//! What the kernel drops before the router is asked: datagrams of neighbours that have passed a router, connections from where
//! nobody is expected.
//!
//! ```text
//!  r1 10.0.1.1 ──n1── 10.0.1.2 r2 10.0.2.1 ──n2── 10.0.2.2 r3
//! ```

use std::{
    io::{self, ErrorKind, Read},
    net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::{
    keys::Signer,
    netns::Namespace,
    router::Router,
    topology::{ROUTER, Star, join},
    wait,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);
const BGP: u16 = 179;

/// Over QUIC, with peers by number and what is said of each.
fn configuration(number: u8, peers: &[(u8, &str, &str)]) -> String {
    let peers: String = peers
        .iter()
        .map(|(peer, address, rest)| {
            format!(
                r#"
[[bgp.peer]]
name = "r{peer}"
address = "{address}"
asn = 6500{peer}
transport = "quic"
tls-authorities = "authority.pem"
tls-name = "r{peer}.example"
import = "accept-all"
export = "accept-all"
{rest}
"#
            )
        })
        .collect();
    format!(
        r#"
[router]
id = "10.0.0.{number}"
asn = 6500{number}
[tls]
certificate = "certificate.pem"
key = "key.pem"
[bgp]
connect-retry = 1
{peers}"#
    )
}

/// What `show listeners` has of the one for this protocol and IPv4.
fn listener(router: &Router, protocol: &str) -> Result<Value> {
    let shown = router.show(&["listeners"])?;
    let is_it = |listener: &&Value| listener["protocol"] == protocol && listener["address"] == "0.0.0.0";
    let found = shown["listeners"].as_array().and_then(|listeners| listeners.iter().find(is_it));
    found.cloned().with_context(|| shown.to_string())
}

/// Waits until the kernel has dropped so many packets there since `before`.
fn until_dropped(router: &Router, protocol: &str, before: u64, count: u64) -> Result<()> {
    wait::until("drops", LIMIT, || {
        let shown = listener(router, protocol).map_err(|error| error.to_string())?;
        if shown["kernelDrops"].as_u64() >= Some(before + count) { Ok(()) } else { Err(shown.to_string()) }
    })
}

fn drops(router: &Router, protocol: &str) -> Result<u64> {
    listener(router, protocol)?["kernelDrops"].as_u64().context("a number")
}

/// Attempts that the first stage has seen.
fn seen(router: &Router) -> Result<Value> {
    Ok(listener(router, "quic")?["stages"][0]["seen"].clone())
}

#[test]
fn over_quic_a_neighbour_is_one_hop_away_and_others_share_the_socket() -> Result<()> {
    let hosts = [Namespace::new("r1")?, Namespace::new("r2")?, Namespace::new("r3")?];
    let [first, second, third] = &hosts;
    join(1, first, second)?;
    join(2, second, third)?;
    second.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))??;
    first.ip(&["route", "add", "10.0.2.0/24", "via", "10.0.1.2"])?;
    third.ip(&["route", "add", "10.0.1.0/24", "via", "10.0.2.1"])?;
    let signer = Signer::new("Lab CA")?;
    let r1_with = |r3: &str| {
        let r3 = format!("passive = true\n{r3}");
        configuration(
            1,
            &[(2, "10.0.1.2", "passive = true\nttl-security = true"), (3, "10.0.2.2", r3.as_str())],
        )
    };
    let keys = signer.files("r1")?;
    let r1 = Router::start_with_files(first, &r1_with("ttl-security = true"), &keys)?;
    let r2 = configuration(2, &[(1, "10.0.1.1", "ttl-security = true")]);
    let r2 = Router::start_with_files(second, &r2, &signer.files("r2")?)?;
    r1.until_established("r2", LIMIT)?;
    let before = (drops(&r1, "quic")?, seen(&r1)?);
    let r3 = configuration(3, &[(1, "10.0.1.1", "multihop = 2")]);
    let r3 = Router::start_with_files(third, &r3, &signer.files("r3")?)?;

    // r3 sends with 255 as all do, of which a router is left too many.
    until_dropped(&r1, "quic", before.0, 2)?;
    ensure!(seen(&r1)? == before.1, "one has come through: {}", listener(&r1, "quic")?);
    ensure!(r1.neighbor("r3")?["bgpState"] != "Established");

    // And what claims to be r2's, of one who is further away.
    let before = drops(&r1, "quic")?;
    second.run(|| -> io::Result<()> {
        let socket = UdpSocket::bind("10.0.1.2:0")?;
        socket.set_ttl(64)?;
        (0..10).try_for_each(|_| socket.send_to(&[0xc0; 1200], "10.0.1.1:179").map(drop))
    })??;
    until_dropped(&r1, "quic", before, 10)?;

    r1.reload_with_files(&r1_with("multihop = 2\nhold-time = 9"), &keys)?;
    r1.until_established("r3", LIMIT).with_context(|| r3.log_tail())?;
    let dropped = drops(&r1, "quic")?;
    // The session stays until its hold time is over: nothing of r3 is let in any more.
    r1.reload_with_files(&r1_with("ttl-security = true\nhold-time = 9"), &keys)?;
    r1.until_neighbor("r3", LIMIT, |shown| shown["bgpState"] != "Established")?;
    until_dropped(&r1, "quic", dropped, 2)?;
    for (router, peer) in [(&r1, "r2"), (&r2, "r1")] {
        let shown = router.neighbor(peer)?;
        ensure!(shown["bgpState"] == "Established" && shown["connectionsDropped"] == 0, "{shown}");
    }
    Ok(())
}

#[test]
fn over_tcp_a_member_of_a_set_is_refused_and_a_stranger_hears_nothing() -> Result<()> {
    let star = Star::new(1)?;
    let host = star.neighbor(1);
    host.ip(&["addr", "add", "10.0.1.3/24", "dev", "n1"])?;
    let peer = "[[bgp.peer]]\nname = \"other\"\naddress = \"10.0.1.9\"\nasn = 65001\nttl-security = true\n";
    let set = "[[admission.set]]\nname = \"region\"\nprefixes = [\"10.0.1.2/32\"]\n";
    let router = Router::start(&star.router, &format!("{ROUTER}{peer}{set}"))?;
    let call = |from: Ipv4Addr| host.run(move || call(from, SocketAddrV4::new([10, 0, 1, 1].into(), BGP)));
    wait::until("a listener", LIMIT, || match listener(&router, "tcp") {
        Ok(shown) if shown["fault"].is_null() => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    let before = drops(&router, "tcp")?;
    // It begins to listen at some time after it is shown.
    wait::until("a reset", LIMIT, || match call([10, 0, 1, 2].into()) {
        Ok(Ok(Err(error))) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    ensure!(drops(&router, "tcp")? == before, "the kernel has dropped what it should not");
    ensure!(listener(&router, "tcp")?["stages"][0]["passed"] == 1);

    match call([10, 0, 1, 3].into())? {
        Err(error) if error.kind() == ErrorKind::TimedOut => {}
        other => bail!("{other:?}"),
    }
    until_dropped(&router, "tcp", before, 1)
}

/// Calls from an address: whether there is an answer soon, and then, what becomes of who only listens.
fn call(from: Ipv4Addr, to: SocketAddrV4) -> io::Result<io::Result<usize>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(from, 0))?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let soon = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
    if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&soon))? == 0 {
        return Err(ErrorKind::TimedOut.into());
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT))?;
    // A refusal is here already, a reset may be.
    Ok(stream.read(&mut [0]))
}
