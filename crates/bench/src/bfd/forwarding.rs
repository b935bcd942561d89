//! Watches the kernel's table of the router: by whom routes lead, and how many changes of it there are.
//!
//! Routes are asked for one by one, as a packet would be: whatever changes them (a route, a next hop, a group of them) is
//! seen alike. The kernel tells of each change with the number of the request that it came from: so many requests were made.

use std::{
    collections::HashSet,
    net::Ipv4Addr,
    os::fd::OwnedFd,
    sync::mpsc::{self, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use holdfast_lab::netns::Namespace;
use holdfast_sys::{netlink::join_group, process::run_in_real_time};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink, sockopt,
    },
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);
/// Behind the far end of BFD and the routers' BFD.
const PRIORITY: u8 = 1;
/// RTNLGRP_IPV4_ROUTE, RTNLGRP_NEXTHOP.
const GROUPS: [u32; 2] = [7, 32];
/// A route takes most of a page there, and a router may change hundreds of thousands in a second.
const BUFFER: usize = 1 << 30;
/// Octets of a header of netlink, and of `struct rtmsg` behind it.
const HEADER: usize = 16;
const RTMSG: usize = 12;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const RTA_GATEWAY: u16 = 5;

/// When routes led elsewhere, and how many requests had changed the table until then.
#[derive(Copy, Clone, Debug)]
pub(super) struct Changed {
    pub(super) first: Instant,
    pub(super) last: Instant,
    pub(super) requests_until_first: usize,
    pub(super) requests_until_last: usize,
}

/// Waits until packets to all of these leave by this gateway.
pub(super) fn until_via(
    host: &Namespace,
    samples: &[Ipv4Addr],
    gateway: Ipv4Addr,
    limit: Duration,
) -> Result<()> {
    let samples = samples.to_vec();
    host.run(move || {
        let (asking, start) = (Asking::new()?, Instant::now());
        loop {
            let via = asking.count_via(&samples, gateway)?;
            if via == samples.len() {
                return Ok(());
            }
            ensure!(
                start.elapsed() < limit,
                "{via} of {} routes lead by {gateway} after {limit:?}",
                samples.len()
            );
            thread::sleep(100 * LOOK);
        }
    })?
}

/// Notes when packets to these leave by this gateway, which they do not before, and how many requests that took. It
/// watches when this returns.
pub(super) fn watch(
    host: &Namespace,
    samples: Vec<Ipv4Addr>,
    gateway: Ipv4Addr,
    limit: Duration,
) -> Result<JoinHandle<Result<Changed>>> {
    let (ready, is_ready) = mpsc::channel();
    let thread = host.spawn(move || follow(&samples, gateway, limit, &ready))?;
    match is_ready.recv() {
        Ok(()) => Ok(thread),
        Err(_) => bail!(match thread.join() {
            Ok(Err(error)) => error,
            _ => anyhow!("nobody watches"),
        }),
    }
}

fn follow(samples: &[Ipv4Addr], gateway: Ipv4Addr, limit: Duration, ready: &Sender<()>) -> Result<Changed> {
    let (asking, mut listening) = (Asking::new()?, Listening::new()?);
    // Without, it looks a little later on a busy machine.
    let _ = run_in_real_time(PRIORITY);
    ensure!(asking.count_via(samples, gateway)? == 0, "some routes lead by {gateway} already");
    let (start, mut first) = (Instant::now(), None);
    let _ = ready.send(());
    loop {
        let via = asking.count_via(samples, gateway)?;
        let now = Instant::now();
        let requests = listening.count()?;
        if via > 0 {
            first.get_or_insert((now, requests));
        }
        if via == samples.len()
            && let Some((first, requests_until_first)) = first
        {
            return Ok(Changed { first, last: now, requests_until_first, requests_until_last: requests });
        }
        ensure!(start.elapsed() < limit, "{via} of {} routes have changed after {limit:?}", samples.len());
        thread::sleep(LOOK);
    }
}

/// Where packets to an address go.
struct Asking(OwnedFd);

impl Asking {
    fn new() -> Result<Self> {
        Ok(Self(socket()?))
    }

    fn count_via(&self, samples: &[Ipv4Addr], gateway: Ipv4Addr) -> Result<usize> {
        let mut count = 0;
        for sample in samples {
            count += usize::from(self.gateway(*sample)? == Some(gateway));
        }
        Ok(count)
    }

    /// `None`: there is no route, or none with a gateway.
    fn gateway(&self, destination: Ipv4Addr) -> Result<Option<Ipv4Addr>> {
        rustix::net::send(&self.0, &request(destination), SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (octets, _) = rustix::net::recv(&self.0, &mut answer, RecvFlags::empty())?;
        Ok(gateway_of(&answer[..octets]))
    }
}

fn request(destination: Ipv4Addr) -> Vec<u8> {
    let length = HEADER + RTMSG + 8;
    let mut octets = Vec::with_capacity(length);
    octets.extend_from_slice(&(length as u32).to_ne_bytes());
    octets.extend_from_slice(&RTM_GETROUTE.to_ne_bytes());
    octets.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    octets.extend_from_slice(&[0; 8]);
    // AF_INET, a whole address.
    octets.extend_from_slice(&[2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // RTA_DST.
    octets.extend_from_slice(&8_u16.to_ne_bytes());
    octets.extend_from_slice(&1_u16.to_ne_bytes());
    octets.extend_from_slice(&destination.octets());
    octets
}

fn gateway_of(answer: &[u8]) -> Option<Ipv4Addr> {
    let header = Header::read(answer).filter(|header| header.kind == RTM_NEWROUTE)?;
    let mut rest = answer.get(HEADER + RTMSG..header.length)?;
    while let Some((head, _)) = rest.split_first_chunk::<4>() {
        let [length, kind] = [u16::from_ne_bytes([head[0], head[1]]), u16::from_ne_bytes([head[2], head[3]])];
        let value = rest.get(4..usize::from(length))?;
        if kind == RTA_GATEWAY {
            return value.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets));
        }
        rest = rest.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// What the kernel tells of changes.
struct Listening {
    socket: OwnedFd,
    /// Who has asked for changes, and the number of the request.
    requests: HashSet<(u32, u32)>,
    room: Vec<u8>,
}

impl Listening {
    fn new() -> Result<Self> {
        let socket = socket()?;
        sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)?;
        for group in GROUPS {
            join_group(&socket, group)?;
        }
        Ok(Self { socket, requests: HashSet::new(), room: vec![0; 1 << 16] })
    }

    /// How many requests have changed something until now.
    fn count(&mut self) -> Result<usize> {
        loop {
            match rustix::net::recv(&self.socket, &mut self.room, RecvFlags::DONTWAIT) {
                Ok((octets, _)) => {
                    let mut rest = &self.room[..octets];
                    while let Some(header) = Header::read(rest) {
                        // What the kernel does by itself has no port.
                        if header.port != 0 {
                            self.requests.insert((header.port, header.sequence));
                        }
                        rest = rest.get(header.length.next_multiple_of(4)..).unwrap_or_default();
                    }
                }
                Err(Errno::AGAIN) => return Ok(self.requests.len()),
                Err(error) => return Err(error).context("changes of the table were lost"),
            }
        }
    }
}

struct Header {
    length: usize,
    kind: u16,
    sequence: u32,
    port: u32,
}

impl Header {
    fn read(octets: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let word = octets.get(at..).and_then(|rest| rest.first_chunk());
            word.map(|word| u32::from_ne_bytes(*word))
        };
        let kind = u16::from_ne_bytes(*octets.get(4..)?.first_chunk()?);
        let header = Self { length: word(0)? as usize, kind, sequence: word(8)?, port: word(12)? };
        (HEADER..=octets.len()).contains(&header.length).then_some(header)
    }
}

fn socket() -> Result<OwnedFd> {
    // Without a number the protocol is NETLINK_ROUTE, 0.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .context("netlink")?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with RTA_DST, RTA_OIF of an odd length, and RTA_GATEWAY.
    fn answer(kind: u16) -> Vec<u8> {
        let mut octets = vec![0; HEADER + RTMSG];
        for (name, value) in [(1_u16, &[192, 0, 2, 1][..]), (4, &[7, 0, 0]), (5, &[10, 0, 0, 2])] {
            octets.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            octets.extend_from_slice(&name.to_ne_bytes());
            octets.extend_from_slice(value);
            octets.resize(octets.len().next_multiple_of(4), 0);
        }
        let length = octets.len() as u32;
        octets[..4].copy_from_slice(&length.to_ne_bytes());
        octets[4..6].copy_from_slice(&kind.to_ne_bytes());
        octets
    }

    #[test]
    fn the_gateway_is_found_among_other_attributes_and_only_in_a_route() {
        assert_eq!(gateway_of(&answer(RTM_NEWROUTE)), Some([10, 0, 0, 2].into()));
        // NLMSG_ERROR.
        assert_eq!(gateway_of(&answer(2)), None);
        for length in 0..answer(RTM_NEWROUTE).len() {
            assert_eq!(gateway_of(&answer(RTM_NEWROUTE)[..length]), None);
        }
    }

    #[test]
    fn a_request_is_as_long_as_it_says() {
        let request = request([192, 0, 2, 1].into());
        let header = Header::read(&request).expect("a header");
        assert_eq!((header.length, header.kind), (request.len(), RTM_GETROUTE));
        assert_eq!(request[32..], [192, 0, 2, 1]);
    }
}
