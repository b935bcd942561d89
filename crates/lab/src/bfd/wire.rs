//! A link that falls silent without either end losing its carrier: two hosts at a bridge.
//!
//! ```text
//!  us ──n1── (p1) bridge (p2) ──n1── them
//! ```

use anyhow::Result;

use crate::{
    netns::{End, Namespace, link},
    topology::{Side, v4, v6},
};

/// The bridge, between the two hosts of a network of [`crate::topology`].
#[derive(Debug)]
pub struct Wire {
    bridge: Namespace,
}

impl Wire {
    /// Joins two hosts.
    ///
    /// # Errors
    /// The kernel has no bridges.
    pub fn new(network: u8, first: &Namespace, second: &Namespace) -> Result<Self> {
        let bridge = Namespace::new("wire")?;
        bridge.ip(&["link", "add", "br0", "type", "bridge", "mcast_snooping", "0"])?;
        let interface = format!("n{network}");
        for (host, side, port) in [(first, Side::First, "p1"), (second, Side::Second, "p2")] {
            let (v4, v6) = (format!("{}/24", v4(network, side)), format!("{}/64", v6(network, side)));
            let end = End { host, interface: &interface, addresses: &[&v4, &v6] };
            link(&end, &End { host: &bridge, interface: port, addresses: &[] })?;
            bridge.ip(&["link", "set", port, "master", "br0"])?;
        }
        bridge.ip(&["link", "set", "br0", "up"])?;
        Ok(Self { bridge })
    }

    /// From now on nothing passes, or all does again. Both ends keep their carrier.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_silent(&self, is_silent: bool) -> Result<()> {
        self.bridge.ip(&["link", "set", "br0", if is_silent { "down" } else { "up" }]).map(drop)
    }
}
