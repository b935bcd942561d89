//! Two hosts, one for the router under test and one for all its peers, joined by a link for each peer or one for many.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::netns::Namespace;
use holdfast_types::Afi;

/// Peers that have a link of their own; the rest share one.
const OWN_LINKS: usize = 16;

/// Where a peer is and what it talks to.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Place {
    /// The peer's address.
    pub(crate) peer: IpAddr,
    /// The router's address on the same link.
    pub(crate) router: IpAddr,
}

/// The hosts.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) router: Namespace,
    pub(crate) load: Namespace,
    pub(crate) places: Vec<Place>,
}

impl Net {
    /// For so many peers, each with an address of this kind.
    pub(crate) fn new(peers: usize, afi: Afi) -> Result<Self> {
        let (router, load) = (Namespace::new("router")?, Namespace::new("load")?);
        let own = peers.min(OWN_LINKS);
        let mut commands = [String::new(), String::new()];
        let mut places = Vec::new();
        for number in 0..own {
            let place = of_own(number, afi);
            link(&router, &load, number)?;
            for (host, address) in [place.router, place.peer].into_iter().enumerate() {
                commands[host] += &address_command(address, number);
            }
            places.push(place);
        }
        if peers > own {
            link(&router, &load, own)?;
            for number in 0..peers - own {
                let place = of_shared(number, afi);
                if number == 0 {
                    commands[0] += &address_command(place.router, own);
                }
                commands[1] += &address_command(place.peer, own);
                places.push(place);
            }
        }
        for (host, commands) in [&router, &load].into_iter().zip(commands) {
            batch(host, &commands)?;
        }
        Ok(Self { router, load, places })
    }
}

fn of_own(number: usize, afi: Afi) -> Place {
    let number = number as u16 + 1;
    let address = |host| match afi == Afi::IPV4 {
        true => IpAddr::V4(Ipv4Addr::new(10, 100, number as u8, host)),
        false => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, host.into())),
    };
    Place { router: address(1), peer: address(2) }
}

fn of_shared(number: usize, afi: Afi) -> Place {
    let address = |high: usize, low: usize| match afi == Afi::IPV4 {
        true => IpAddr::V4(Ipv4Addr::new(10, 101, high as u8, low as u8)),
        false => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, high as u16, low as u16)),
    };
    Place { router: address(0, 1), peer: address(number / 200 + 1, number % 200 + 1) }
}

fn link(router: &Namespace, load: &Namespace, number: usize) -> Result<()> {
    let name = format!("l{number}");
    let (near, far) = (router.name(), load.name());
    holdfast_lab::netns::ip(&[
        "link", "add", &name, "netns", near, "type", "veth", "peer", "name", &name, "netns", far,
    ])?;
    Ok(())
}

fn address_command(address: IpAddr, link: usize) -> String {
    // The shared link is one network of all its addresses; a link of one's own has room for two.
    let (length, flags) = match (address, link < OWN_LINKS) {
        (IpAddr::V4(_), true) => (24, ""),
        (IpAddr::V4(_), false) => (16, ""),
        (IpAddr::V6(_), _) => (64, " nodad"),
    };
    format!("address add {address}/{length} dev l{link}{flags}\nlink set l{link} up\n")
}

fn batch(host: &Namespace, commands: &str) -> Result<()> {
    let mut ip = Command::new("ip").args(["-n", host.name(), "-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    ip.stdin.take().context("ip takes no commands")?.write_all(commands.as_bytes())?;
    let status = ip.wait()?;
    ensure!(status.success(), "ip -batch ended with {status}");
    Ok(())
}
