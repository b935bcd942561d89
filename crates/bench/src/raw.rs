//! Routes into the kernel with nothing around it: what a forwarding engine can be measured by.
//!
//! Messages are made before, one next-hop object is named by all, a thousand go in a write, and nothing is read but the answer to
//! the last of them, or the first refusal.

use std::{os::fd::OwnedFd, time::Duration, time::Instant};

use anyhow::{Context, Result, ensure};
use holdfast_lab::{netns::Namespace, table::Table};
use holdfast_types::{IpPrefix, Ipv4Prefix, Prefix};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink};

/// Routes in a write.
const WRITE: usize = 1_000;
/// Octets of a request to add a route.
const REQUEST: usize = 52;
/// The number of the object.
const OBJECT: u32 = 1;
/// `NLM_F_REQUEST | NLM_F_EXCL | NLM_F_CREATE`, and `NLM_F_ACK`.
const ADD: u16 = 0x601;
const ACKNOWLEDGE: u16 = 0x4;

/// Writes the IPv4 routes of a table, in their order, into an empty one of a new host: how long that takes.
pub(crate) fn write(table: &Table) -> Result<Duration> {
    let prefix = |route: &(Prefix, u32)| match route.0 {
        Prefix::V4(prefix) => Some(prefix),
        Prefix::V6(_) => None,
    };
    let prefixes: Vec<Ipv4Prefix> = table.routes.iter().filter_map(prefix).collect();
    let writes: Vec<Vec<u8>> = prefixes.chunks(WRITE).map(requests).collect();
    let host = Namespace::new("raw")?;
    host.ip(&["link", "add", "l0", "type", "veth", "peer", "name", "l1"])?;
    host.ip(&["link", "set", "l0", "up"])?;
    host.ip(&["link", "set", "l1", "up"])?;
    host.ip(&["address", "add", "10.110.0.1/24", "dev", "l0"])?;
    host.ip(&["nexthop", "add", "id", &OBJECT.to_string(), "via", "10.110.0.2", "dev", "l0"])?;
    host.run(move || send(&writes))?
}

fn send(writes: &[Vec<u8>]) -> Result<Duration> {
    let socket = socket()?;
    let mut answer = [0; 4096];
    let start = Instant::now();
    for write in writes {
        rustix::net::send(&socket, write, SendFlags::empty())?;
        rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
        let code = answer[16..].first_chunk().map(|code| i32::from_ne_bytes(*code));
        ensure!(code == Some(0), "the kernel refuses a route: {code:?}");
    }
    Ok(start.elapsed())
}

fn socket() -> Result<OwnedFd> {
    // Without a number the protocol is NETLINK_ROUTE, 0.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .context("netlink")?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

/// `RTM_NEWROUTE` for each; the last asks for an answer.
fn requests(prefixes: &[Ipv4Prefix]) -> Vec<u8> {
    let mut octets = Vec::with_capacity(prefixes.len() * REQUEST);
    for (place, prefix) in prefixes.iter().enumerate() {
        let flags = if place + 1 == prefixes.len() { ADD | ACKNOWLEDGE } else { ADD };
        octets.extend_from_slice(&(REQUEST as u32).to_ne_bytes());
        octets.extend_from_slice(&24_u16.to_ne_bytes());
        octets.extend_from_slice(&flags.to_ne_bytes());
        octets.extend_from_slice(&[0; 8]);
        // AF_INET, the length, RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_UNIVERSE, RTN_UNICAST.
        octets.extend_from_slice(&[2, prefix.length(), 0, 0, 254, 4, 0, 1, 0, 0, 0, 0]);
        // RTA_DST, RTA_PRIORITY, RTA_NH_ID.
        let attributes =
            [(1_u16, prefix.address().octets()), (6, 20_u32.to_ne_bytes()), (30, OBJECT.to_ne_bytes())];
        for (kind, value) in attributes {
            octets.extend_from_slice(&8_u16.to_ne_bytes());
            octets.extend_from_slice(&kind.to_ne_bytes());
            octets.extend_from_slice(&value);
        }
    }
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_its_prefix_and_only_the_last_asks_for_an_answer() {
        let prefixes = ["10.0.0.0/8", "192.0.2.0/24"].map(|text| text.parse().expect("a prefix"));
        let octets = requests(&prefixes);
        let (requests, rest) = octets.as_chunks::<REQUEST>();
        assert!(rest.is_empty());
        let seen: Vec<_> = requests.iter().map(|r| (r[6] & 4, r[17], [r[32], r[33], r[34], r[35]])).collect();
        assert_eq!(seen, [(0, 8, [10, 0, 0, 0]), (4, 24, [192, 0, 2, 0])]);
    }
}
