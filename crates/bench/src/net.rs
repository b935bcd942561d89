//! Two hosts, one for the router under test and one for all its peers, joined by a link for each peer or one for many.

use std::{
    fmt::Write as _,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use holdfast_lab::netns::Namespace;
use holdfast_types::Afi;

/// Peers that have a link of their own, of [`Links::Few`].
const OWN_LINKS: usize = 16;
/// The peers' end of the link that many share.
const MAC: &str = "02:00:00:00:00:02";

/// Which links there are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Links {
    /// The first sixteen peers have one of their own, the rest share one.
    Few,
    /// All share one, as the members of an exchange do.
    One,
    /// One for each peer of the first half, which its counterpart in the second half shares. The router's end of the first
    /// is called `l0`, and so on.
    Pairs,
}

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
    pub(crate) fn new(peers: usize, afi: Afi, links: Links) -> Result<Self> {
        Self::joined((0..peers).map(|number| {
            let (link, host) = match links {
                Links::Few => (number.min(OWN_LINKS), number.saturating_sub(OWN_LINKS)),
                Links::One => (0, number),
                Links::Pairs => (number % (peers / 2), number / (peers / 2)),
            };
            let is_shared = links == Links::One || links == Links::Few && link == OWN_LINKS;
            let place = if is_shared { on_shared(0, host, afi) } else { on_own(link, host, afi) };
            (link, place, is_shared)
        }))
    }

    /// So many peers on each of these links, with addresses of IPv4. Those of a link share it.
    pub(crate) fn sharing(peers: &[usize]) -> Result<Self> {
        let on = |(link, count): (usize, &usize)| {
            (0..*count).map(move |host| (link, on_shared(link as u8, host, Afi::IPV4), true))
        };
        Self::joined(peers.iter().enumerate().flat_map(on))
    }

    /// Peers by their links, in order: where each is, and whether it shares its link.
    fn joined(peers: impl Iterator<Item = (usize, Place, bool)>) -> Result<Self> {
        let (router, load) = (Namespace::new("router")?, Namespace::new("load")?);
        let (mut joining, mut near, mut far) = (String::new(), String::new(), String::new());
        let (mut places, mut joined) = (Vec::new(), 0);
        for (link, place, is_shared) in peers {
            if link == joined {
                joined += 1;
                let [here, there] = [router.name(), load.name()];
                writeln!(
                    joining,
                    "link add l{link} netns {here} type veth peer name l{link} netns {there} address {MAC}"
                )?;
                near += &address_command(place.router, link, is_shared);
                near += &format!("link set l{link} up\n");
                far += &format!("link set l{link} up\n");
            }
            far += &address_command(place.peer, link, is_shared);
            if is_shared {
                // The kernel has room for a thousand neighbours that it finds by itself, on all hosts together.
                writeln!(near, "neighbour add {} lladdr {MAC} dev l{link} nud permanent", place.peer)?;
            }
            places.push(place);
        }
        batch(&[], &joining)?;
        batch(&["-n", router.name()], &near)?;
        batch(&["-n", load.name()], &far)?;
        Ok(Self { router, load, places })
    }
}

/// Peer `host` on a link with room for few.
fn on_own(link: usize, host: usize, afi: Afi) -> Place {
    let address = |host: usize| match afi == Afi::IPV4 {
        true => IpAddr::V4(Ipv4Addr::new(10, 110 + (link / 250) as u8, (link % 250) as u8, host as u8)),
        false => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, link as u16 + 1, 0, 0, 0, 0, host as u16)),
    };
    Place { router: address(1), peer: address(2 + host) }
}

/// Peer `host` in one of eight networks with room for many.
fn on_shared(network: u8, host: usize, afi: Afi) -> Place {
    let address = |high: usize, low: usize| match afi == Afi::IPV4 {
        true => IpAddr::V4(Ipv4Addr::new(10, 101 + network, high as u8, low as u8)),
        false => {
            let network = 0xffff - u16::from(network);
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, high as u16, low as u16))
        }
    };
    Place { router: address(0, 1), peer: address(host / 200 + 1, host % 200 + 1) }
}

fn address_command(address: IpAddr, link: usize, is_shared: bool) -> String {
    // The shared link is one network of all its addresses; another has room for few.
    let (length, flags) = match (address, is_shared) {
        (IpAddr::V4(_), false) => (24, ""),
        (IpAddr::V4(_), true) => (16, ""),
        (IpAddr::V6(_), _) => (64, " nodad"),
    };
    format!("address add {address}/{length} dev l{link}{flags}\n")
}

fn batch(arguments: &[&str], commands: &str) -> Result<()> {
    let mut ip = Command::new("ip").args(arguments).args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    ip.stdin.take().context("ip takes no commands")?.write_all(commands.as_bytes())?;
    let status = ip.wait()?;
    ensure!(status.success(), "ip -batch ended with {status}");
    Ok(())
}
