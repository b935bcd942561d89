//! Numbered networks between hosts: number N is `10.0.N.0/24` and `2001:db8:N::/64`, on interface `nN` at both ends.
//!
//! So configurations in tests can be read without looking anything up: `10.0.2.1` is the first host of network 2.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use anyhow::Result;

use crate::{
    netns::{End, Namespace, link},
    peers::Bird,
    speaker::{Speaker, SpeakerConfig},
};

/// How a configuration for the router of a [`Star`] begins: AS 65000, and neighbours need not wait for it.
pub const ROUTER: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[bgp]
connect-retry = 1
"#;

/// Our end or theirs: the order in which [`join`] was told the hosts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// Address `.1` and `::1`.
    First,
    /// Address `.2` and `::2`.
    Second,
}

/// IPv4 address of a host in a network.
pub fn v4(network: u8, side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, network, side as u8 + 1)
}

/// IPv6 address of a host in a network.
pub fn v6(network: u8, side: Side) -> Ipv6Addr {
    // The number is written as in the IPv4 network, so it is read as hexadecimal here.
    let digits = u16::from_str_radix(&network.to_string(), 16).expect("decimal digits are hexadecimal ones");
    Ipv6Addr::new(0x2001, 0xdb8, digits, 0, 0, 0, 0, side as u16 + 1)
}

/// Joins two hosts by a network.
pub fn join(network: u8, first: &Namespace, second: &Namespace) -> Result<()> {
    let interface = format!("n{network}");
    let addresses = |side| [format!("{}/24", v4(network, side)), format!("{}/64", v6(network, side))];
    let (near, far) = (addresses(Side::First), addresses(Side::Second));
    link(
        &End { host: first, interface: &interface, addresses: &[&near[0], &near[1]] },
        &End { host: second, interface: &interface, addresses: &[&far[0], &far[1]] },
    )
}

/// A router's host in the middle and neighbours around it, the first in network 1, the second in network 2, and so on.
/// The router is [`Side::First`] everywhere.
#[derive(Debug)]
pub struct Star {
    /// Where the router under test runs.
    pub router: Namespace,
    neighbors: Vec<Namespace>,
}

impl Star {
    /// Makes the hosts and joins them.
    pub fn new(neighbors: u8) -> Result<Self> {
        let router = Namespace::new("router")?;
        let mut all = Vec::new();
        for network in 1..=neighbors {
            let neighbor = Namespace::new(&format!("peer{network}"))?;
            join(network, &router, &neighbor)?;
            all.push(neighbor);
        }
        Ok(Self { router, neighbors: all })
    }

    /// The neighbour in a network.
    ///
    /// # Panics
    /// There is no such network.
    pub fn neighbor(&self, network: u8) -> &Namespace {
        &self.neighbors[usize::from(network) - 1]
    }

    /// BIRD at a neighbour, with a session `holdfast` to the router over IPv4, and these lines about it. It has these
    /// IPv4 prefixes to announce.
    pub fn bird(&self, network: u8, asn: u32, prefixes: &[&str], session: &str) -> Result<Bird> {
        let (near, router) = (v4(network, Side::Second), v4(network, Side::First));
        let routes: Vec<_> = prefixes.iter().map(|prefix| format!("route {prefix} blackhole;")).collect();
        let routes = routes.join(" ");
        let configuration = format!(
            "router id {near};
            timeformat protocol iso long ms;
            protocol device {{ }}
            protocol static {{ ipv4; {routes} }}
            protocol bgp holdfast {{
              local {near} as {asn}; neighbor {router} as 65000;
              connect delay time 1; connect retry time 1; error wait time 1, 2;
              ipv4 {{ import all; export all; }};
              {session}
            }}"
        );
        Bird::start(self.neighbor(network), &configuration)
    }

    /// Takes connections at a neighbour's port, and never reads: those that it has.
    pub fn deaf(&self, network: u8, port: u16) -> Result<Arc<Mutex<Vec<TcpStream>>>> {
        let accepted: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let kept = Arc::clone(&accepted);
        self.neighbor(network).run(move || {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
            thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    kept.lock().expect("no panic").push(stream);
                }
            });
            Ok::<_, anyhow::Error>(())
        })??;
        Ok(accepted)
    }

    /// A speaker at a neighbour that connects to the router over IPv4, changed as the test wants it.
    pub fn speaker(&self, network: u8, asn: u32, change: impl FnOnce(&mut SpeakerConfig)) -> Result<Speaker> {
        let near: IpAddr = v4(network, Side::First).into();
        let mut config = SpeakerConfig::connect(v4(network, Side::Second).into(), near, asn);
        config.next_hop_v6 = v6(network, Side::Second);
        change(&mut config);
        self.neighbor(network).run(move || Speaker::spawn(config))?
    }

    /// The same over IPv6.
    pub fn speaker_v6(
        &self,
        network: u8,
        asn: u32,
        change: impl FnOnce(&mut SpeakerConfig),
    ) -> Result<Speaker> {
        let near: IpAddr = v6(network, Side::First).into();
        let mut config = SpeakerConfig::connect(v6(network, Side::Second).into(), near, asn);
        config.next_hop_v4 = v4(network, Side::Second).into();
        change(&mut config);
        self.neighbor(network).run(move || Speaker::spawn(config))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_can_be_read_off_the_number() {
        assert_eq!(v4(12, Side::First).to_string(), "10.0.12.1");
        assert_eq!(v6(12, Side::Second).to_string(), "2001:db8:12::2");
    }
}
