//! One LAN for all: a bridge in a host of its own.
//!
//! ```text
//!  A 1 ──┐                     ┌── 21 to 24  stock routers, which know the router as 10
//!  B 2 ──┤       bridge        ├── 25  feeder, and the destination of all packets
//!  Redis 30 ─────┴─────────────┴── 31  who sends packets
//! ```
//! Host N has `10.1.0.N` and `2001:db8:1::N`, in decimal digits both.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use holdfast_sys::open_tap;

use super::judge::Mac;
use crate::{
    netns::{End, Namespace, link, output},
    shaper::{Shaper, Way},
};

/// The AS number of the router under test.
pub use crate::drill::stock::ROUTER_AS;
/// What the address of the router has for its last number, wherever it runs.
pub const SERVICE: u8 = 10;
/// Interface of each host.
pub const INTERFACE: &str = "eth0";
const BRIDGE: &str = "br0";

/// IPv4 address of a host.
pub const fn v4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, number)
}

/// IPv6 address of a host.
pub const fn v6(number: u8) -> Ipv6Addr {
    // Two decimal digits are read as hexadecimal ones.
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, (number / 10 * 16 + number % 10) as u16)
}

/// The address of the router, wherever it runs.
pub fn service(is_v6: bool) -> IpAddr {
    if is_v6 { v6(SERVICE).into() } else { v4(SERVICE).into() }
}

/// The bridge.
#[derive(Debug)]
pub struct Lan {
    switch: Namespace,
    ports: AtomicU32,
}

impl Lan {
    /// Makes it.
    ///
    /// # Errors
    /// There are no bridges here.
    pub fn new() -> Result<Self> {
        let switch = Namespace::new("switch")?;
        switch.ip(&["link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0"])?;
        switch.ip(&["link", "set", BRIDGE, "up"])?;
        Ok(Self { switch, ports: AtomicU32::new(0) })
    }

    /// A new host with this number.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn host(&self, role: &str, number: u8) -> Result<Namespace> {
        let host = Namespace::new(role)?;
        self.join(&host, number)?;
        Ok(host)
    }

    /// Gives a host this number.
    ///
    /// # Errors
    /// It has another one.
    pub fn join(&self, host: &Namespace, number: u8) -> Result<()> {
        prepare(host)?;
        let (addresses, port) = (addresses(number), self.next_port());
        link(
            &End { host, interface: INTERFACE, addresses: &[&addresses[0], &addresses[1]] },
            &End { host: &self.switch, interface: &port, addresses: &[] },
        )?;
        self.switch.ip(&["link", "set", &port, "master", BRIDGE])?;
        Ok(())
    }

    /// The same at the end of a wire that is not as it should be.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn distant_host(&self, role: &str, number: u8, way: Way, seed: u64) -> Result<(Namespace, Shaper)> {
        let host = Namespace::new(role)?;
        prepare(&host)?;
        let port = self.next_port();
        let far = host.run(|| open_tap(INTERFACE))??;
        let name = port.clone();
        let near = self.switch.run(move || open_tap(&name))??;
        for address in addresses(number) {
            let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
            host.ip(&[&["address", "add", &address, "dev", INTERFACE], nodad].concat())?;
        }
        self.switch.ip(&["link", "set", &port, "master", BRIDGE])?;
        for (end, interface) in [(&host, INTERFACE), (&self.switch, &port)] {
            end.ip(&["link", "set", interface, "up"])?;
        }
        Ok((host, Shaper::start([far, near], way, seed)?))
    }

    /// Where a host is joined.
    ///
    /// # Errors
    /// It is not.
    pub fn port(&self, host: &Namespace) -> Result<String> {
        let number = &links(host, &["show", INTERFACE])?[0]["link_index"];
        let ports = links(&self.switch, &["show"])?;
        let port = ports.as_array().and_then(|all| all.iter().find(|port| &port["ifindex"] == number));
        Ok(port.and_then(|port| port["ifname"].as_str()).context("a port of the switch")?.to_owned())
    }

    /// Nothing reaches the host at a port any more, or comes from it. Its kernel does not notice, so it does no work for routes
    /// that go nowhere: what it does holds up all hosts of this machine.
    ///
    /// # Errors
    /// There is no such port.
    pub fn cut(&self, port: &str) -> Result<()> {
        self.switch.ip(&["link", "set", port, "nomaster"]).map(drop)
    }

    fn next_port(&self) -> String {
        format!("p{}", self.ports.fetch_add(1, Ordering::Relaxed))
    }
}

fn addresses(number: u8) -> [String; 2] {
    [format!("{}/24", v4(number)), format!("{}/64", v6(number))]
}

fn prepare(host: &Namespace) -> Result<()> {
    let off = ["all", "default"]
        .map(|which| ["accept", "send"].map(|what| format!("net.ipv4.conf.{which}.{what}_redirects=0")));
    let mut settings: Vec<_> = off.into_iter().flatten().collect();
    // Docker turns it off where it gives no network.
    settings.extend(["all", "default"].map(|which| format!("net.ipv6.conf.{which}.disable_ipv6=0")));
    // Link-local addresses are there at once: BIRD looks for its own only when a session begins.
    settings.push("net.ipv6.conf.default.accept_dad=0".to_owned());
    settings.push("net.ipv4.ip_forward=1".to_owned());
    settings.push("net.ipv6.conf.all.forwarding=1".to_owned());
    output(host.command("sysctl").arg("-qw").args(settings)).map(drop)
}

fn links(host: &Namespace, what: &[&str]) -> Result<serde_json::Value> {
    let shown = host.ip(&[&["-j", "link"], what].concat())?;
    Ok(serde_json::from_str(&shown)?)
}

/// The Ethernet address of a host.
///
/// # Errors
/// It is not said.
pub fn mac(host: &Namespace) -> Result<Mac> {
    let shown = links(host, &["show", INTERFACE])?;
    let text = shown[0]["address"].as_str().context("an Ethernet address")?;
    let octets: Vec<u8> =
        text.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<_, _>>()?;
    octets.try_into().ok().with_context(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_addresses_end_in_the_same_digits() {
        assert_eq!((v4(24).to_string(), v6(24).to_string()), ("10.1.0.24".into(), "2001:db8:1::24".into()));
        assert_eq!(
            (service(false).to_string(), service(true).to_string()),
            ("10.1.0.10".into(), "2001:db8:1::10".into())
        );
    }
}
