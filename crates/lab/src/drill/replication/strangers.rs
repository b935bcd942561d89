//! Others on the router's host and in its networks.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use holdfast_gate::nfnetlink::{self, Messages, Received};
use holdfast_sys::netlink::{Family, Socket};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};

use crate::{
    attacks::packet::{Body, Packet, Tcp, flag},
    netns::Namespace,
    table::random::Random,
};

/// The packet queue of the router.
const QUEUE: u16 = 179;
/// Octets of answers of the kernel.
const ROOM: usize = 64 << 10;
/// How long the queue is tried to be had.
const PATIENCE: Duration = Duration::from_secs(5);
/// Segments of connections that nobody knows, at a time.
const SEGMENTS: u32 = 20;

/// Asks for the packet queue of a host, as another program would; whether it was given. It is as long as the socket is there.
pub(super) fn take_queue(host: &Namespace) -> Result<(Socket, bool)> {
    host.run(bind)?
}

fn bind() -> Result<(Socket, bool)> {
    let socket = Socket::open(Family::Netfilter, ROOM)?;
    let mut messages = Messages::default();
    messages.bind_queue(QUEUE, 64, 1);
    socket.send(messages.octets())?;
    let mut buffer = vec![0; ROOM];
    let mut failed = 0;
    nfnetlink::read(socket.receive(&mut buffer)?, |received| {
        if let Received::Outcome { errno, .. } = received {
            failed = failed.max(errno);
        }
    });
    Ok((socket, failed == 0))
}

/// Tries to get the packet queue of a host, again and again, until whoever has it is gone.
pub(super) fn seize_queue(host: &Namespace) -> Result<JoinHandle<Result<Socket>>> {
    host.spawn(|| {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let (socket, true) = bind()? {
                return Ok(socket);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("another program has the packet queue all the time")
    })
}

/// Sends segments to the router from ports that have no connection: it answers each with a reset, whose number to acknowledge means
/// nothing.
pub(super) fn provoke_resets(host: &Namespace, address: IpAddr, random: &mut Random) -> Result<()> {
    let IpAddr::V4(address) = address else { bail!("{address} is not of IPv4") };
    let [a, b, c, _] = address.octets();
    let router = SocketAddrV4::new(Ipv4Addr::new(a, b, c, 1), 179);
    let packets: Vec<_> = (0..SEGMENTS)
        .map(|number| {
            let tcp = Tcp {
                sequence: random.below(u32::MAX),
                acknowledgment: random.below(u32::MAX),
                flags: flag::ACK,
                window: 500,
                options: Vec::new(),
                payload: vec![0; 8],
            };
            let from = SocketAddrV4::new(address, 20_000 + number as u16);
            Packet { from, to: router, body: Body::Tcp(tcp) }.to_octets()
        })
        .collect();
    host.run(move || {
        let raw =
            socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::RAW))?;
        for packet in packets {
            sendto(&raw, &packet, SendFlags::empty(), &SocketAddr::V4(SocketAddrV4::new(*router.ip(), 0)))
                .context("a segment")?;
        }
        Ok(())
    })?
}
