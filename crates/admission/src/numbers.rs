use std::rc::Rc;

use crate::{
    Attempt, ByAddress, ByHello, Handshakes, PeerState, Peers, PrefixTable, Pressure, Rate, Retry,
    RetryPolicy, Shed, Sources, Stage,
};

/// What an operator may set (`[admission]`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// When senders are asked to prove their address.
    pub retry: RetryPolicy,
    /// Handshakes under way from which on there is load.
    pub load_handshakes: usize,
    /// Attempts in a second from which on there is load.
    pub load_attempts: u32,
    /// Attempts that are looked at while nothing proves their address, of all addresses together.
    pub unvalidated: Rate,
    /// Attempts of one address, or of one /64 but for its peers: before they are asked for a proof, and of proven ones.
    pub by_address: Rate,
    /// Handshakes under way at most.
    pub most_handshakes: usize,
    /// Protocols (ALPN) that may have a quarter more.
    pub priority_alpn: Vec<Vec<u8>>,
    /// Lines about refusals in the log, in a second.
    pub log_per_second: u32,
}

impl Default for Numbers {
    /// For a router with some hundred peers, all of which may come at once.
    fn default() -> Self {
        Self {
            retry: RetryPolicy::UnderLoad,
            load_handshakes: 64,
            load_attempts: 500,
            unvalidated: Rate { per_second: 2000, burst: 4000 },
            by_address: Rate { per_second: 20, burst: 40 },
            most_handshakes: 1024,
            priority_alpn: Vec::new(),
            log_per_second: 5,
        }
    }
}

impl Numbers {
    /// The stages, from the cheapest to the dearest, for a [`Chain`](crate::Chain). `known` is who may come at all: peers,
    /// listen ranges, and the sets of the configuration; `protocols` are those of the listener (ALPN), none where there are
    /// no such. The pressure is shared by all listeners of a process.
    pub fn stages(
        &self,
        pressure: &Rc<Pressure>,
        known: PrefixTable,
        protocols: impl IntoIterator<Item = Vec<u8>>,
        peers: impl Fn(&dyn Attempt) -> PeerState + Clone + 'static,
    ) -> Vec<Box<dyn Stage>> {
        let retry = Retry::new(self.retry, pressure.clone()).by_address(self.by_address, known.ipv6_hosts());
        let by_address = ByAddress::new(self.by_address, known.ipv6_hosts());
        vec![
            Box::new(Sources::new(known)),
            Box::new(Shed::new(self.unvalidated)),
            Box::new(retry),
            Box::new(by_address),
            Box::new(Peers::new(peers.clone())),
            Box::new(
                ByHello::new(protocols).priority(self.priority_alpn.iter().cloned(), self.most_handshakes),
            ),
            Box::new(Handshakes::new(self.most_handshakes, peers)),
        ]
    }
}
