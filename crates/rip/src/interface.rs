//! Interfaces, as the operator describes them, and what the router knows of each.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Instant,
};

use holdfast_types::IpPrefix;

use crate::{
    Metric, Protocol,
    neighbour::{Budget, Neighbours},
    send::{Job, Pace},
};

/// Networks of a link that are sent datagrams: each costs a copy of every update.
pub const MOST_SOURCES: usize = 16;

/// What neighbours are told of routes that go through them (RFC 2453 section 3.9, RFC 2080 section 2.6).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub enum SplitHorizon {
    /// That the router cannot reach those destinations.
    #[default]
    PoisonedReverse,
    /// Nothing.
    Simple,
    /// The same as of all other routes.
    Off,
}

/// An address of the router, and who is directly reached from there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct InterfaceAddress<P: Protocol> {
    /// The address of the router itself.
    pub address: P::Address,
    /// The network of the link; of a point-to-point link with single addresses, the address of the other side.
    pub network: P::Prefix,
}

/// How the router speaks over one interface.
#[derive(Clone, Debug)]
pub struct Interface<P: Protocol> {
    /// Addresses and networks; of IPv6, the link-local ones as well. Neighbours on other interfaces are told of the networks.
    pub addresses: Vec<InterfaceAddress<P>>,
    /// What the link adds to each distance: 1 to 15 (RFC 2453 section 3.5). At infinity, nothing comes through.
    pub cost: Metric,
    /// The router listens, and sends nothing: the setting "none" of RFC 2453 section 5.1.
    pub passive: bool,
    /// What neighbours are told of routes that go through them.
    pub split_horizon: SplitHorizon,
    /// Octets of the longest IP packet; datagrams of RIPng fill it (RFC 2080 section 2.1).
    pub mtu: u32,
    /// What authenticates all messages in both directions; with `None`, authenticated messages are discarded (RFC 2453 section
    /// 5.2).
    pub authentication: Option<P::Credentials>,
}

impl<P: Protocol> Interface<P> {
    /// An active interface with cost 1, poisoned reverse and an MTU of 1500 octets.
    pub fn new(addresses: Vec<InterfaceAddress<P>>) -> Self {
        Self {
            addresses,
            cost: Metric::ONE,
            passive: false,
            split_horizon: SplitHorizon::default(),
            mtu: 1500,
            authentication: None,
        }
    }

    /// Whether the router can send to it without another router.
    pub(crate) fn reaches(&self, address: P::Address) -> bool {
        let host = P::host(address);
        let reached =
            |own: &InterfaceAddress<P>| own.network.contains(host) && !is_of_all::<P>(own.network, host);
        P::is_link_local(address) || self.addresses.iter().any(reached)
    }

    /// Whether it can be a next hop or a neighbour whose routes are used.
    pub(crate) fn has_router(&self, address: P::Address) -> bool {
        if P::LINK_LOCAL { P::is_link_local(address) } else { self.reaches(address) }
    }

    pub(crate) fn owns(&self, address: P::Address) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// An address in each network of the link, in order; none where the kernel's choice is the right one: of RIPng the link-local
    /// address.
    pub(crate) fn sources(&self) -> Vec<P::Address> {
        let mut sources = Vec::new();
        let mut networks = BTreeSet::new();
        if !P::LINK_LOCAL {
            let first = self.addresses.iter().filter(|own| networks.insert(own.network));
            sources.extend(first.take(MOST_SOURCES).map(|own| own.address));
        }
        sources
    }

    /// What other neighbours are told of.
    pub(crate) fn networks(&self) -> impl Iterator<Item = P::Prefix> {
        self.addresses.iter().map(|own| own.network).filter(|network| P::is_destination(*network))
    }
}

/// Whether a host of an IPv4 network stands for the network or for all of its hosts (RFC 1122 section 3.2.1.3); networks of
/// one or two addresses have hosts only (RFC 3021).
fn is_of_all<P: Protocol>(network: P::Prefix, host: P::Prefix) -> bool {
    if P::LINK_LOCAL || network.length() + 2 > P::Prefix::WIDTH {
        return false;
    }
    let hosts = u128::MAX >> network.length() & !(u128::MAX >> P::Prefix::WIDTH);
    let number = host.bits() & hosts;
    number == 0 || number == hosts
}

/// What has come and gone over an interface (compare RFC 1724 section 4).
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Regular updates that were begun.
    pub updates: u64,
    /// Triggered updates that were begun.
    pub triggered_updates: u64,
    /// Datagrams that were sent, of all kinds.
    pub sent: u64,
    /// Datagrams that came, without those of the router itself.
    pub received: u64,
    /// Datagrams that were malformed, or from somebody who is no neighbour.
    pub bad_packets: u64,
    /// Entries that were ignored in responses and requests.
    pub bad_routes: u64,
    /// Datagrams that were not authentic, or older than others.
    pub authentication_failures: u64,
    /// Requests that were not answered, because too many had come.
    pub refused_requests: u64,
}

/// An interface at work.
#[derive(Debug)]
pub(crate) struct Link<P: Protocol> {
    pub(crate) config: Interface<P>,
    pub(crate) counters: Counters,
    pub(crate) neighbours: Neighbours<P>,
    pub(crate) jobs: VecDeque<Job<P>>,
    pub(crate) answers: Budget,
    /// Of what all neighbours are sent.
    pub(crate) pace: Pace,
    /// The next regular update.
    pub(crate) regular: Instant,
    /// No triggered update before.
    pub(crate) quiet: Instant,
    /// Changes up to this number are in updates that were begun.
    pub(crate) told: u64,
}

impl<P: Protocol> Link<P> {
    pub(crate) fn new(config: Interface<P>, now: Instant, regular: Instant, told: u64) -> Self {
        Self {
            config,
            counters: Counters::default(),
            neighbours: Neighbours::default(),
            jobs: VecDeque::new(),
            answers: Budget::new(now),
            pace: Pace::new(now),
            regular,
            quiet: now,
            told,
        }
    }

    /// Whether there are changes that no update tells yet. One triggered update is under way at a time; a regular one does
    /// not keep it waiting.
    pub(crate) fn has_news(&self, change: u64) -> bool {
        self.told < change && !self.jobs.iter().any(Job::is_triggered)
    }

    /// When there is something to do.
    pub(crate) fn due(&self, change: u64) -> Option<Instant> {
        if self.config.passive {
            return None;
        }
        let triggered = self.has_news(change).then_some(self.quiet);
        [Some(self.regular), triggered, self.next_datagram()].into_iter().flatten().min()
    }
}
