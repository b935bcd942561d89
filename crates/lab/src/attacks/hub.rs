//! A segment where everybody hears everything: hosts at a bridge that learns nothing.

use std::cell::Cell;

use anyhow::Result;

use crate::netns::{End, Namespace, link};

/// The interface of each host there.
pub const INTERFACE: &str = "n1";

/// A bridge in a namespace of its own.
#[derive(Debug)]
pub struct Hub {
    bridge: Namespace,
    ports: Cell<u8>,
}

impl Hub {
    /// A hub without hosts.
    pub fn new() -> Result<Self> {
        let bridge = Namespace::new("hub")?;
        // What has been learnt is forgotten at once: each frame goes out of every port but its own.
        bridge.ip(&["link", "add", "hub", "type", "bridge", "ageing_time", "0"])?;
        bridge.ip(&["link", "set", "hub", "up"])?;
        Ok(Self { bridge, ports: Cell::new(0) })
    }

    /// Connects a host by [`INTERFACE`], which gets these addresses (`address/length`). The name of its port.
    pub fn join(&self, host: &Namespace, addresses: &[&str]) -> Result<String> {
        self.ports.set(self.ports.get() + 1);
        let port = format!("p{}", self.ports.get());
        link(
            &End { host: &self.bridge, interface: &port, addresses: &[] },
            &End { host, interface: INTERFACE, addresses },
        )?;
        self.bridge.ip(&["link", "set", &port, "master", "hub"])?;
        Ok(port)
    }

    /// Has the host at a port given packets as they would be on a wire, not several as one (segmentation offload).
    pub fn split(&self, port: &str) -> Result<()> {
        self.bridge.ip(&["link", "set", port, "gso_max_segs", "1"]).map(drop)
    }
}
