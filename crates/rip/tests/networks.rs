//! Routers that are joined in memory, under a clock that jumps to the next deadline.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    net::{Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use holdfast_rip::{
    Datagram, Event, Interface, InterfaceAddress, Metric, Protocol, Rip, Ripng, Ripv2, Settings, Transmit,
};
use holdfast_rip_wire::{BadEntry, Command, Entry, Layout, Message};

/// Addresses of both families for the same networks.
pub(crate) trait Plan: Protocol {
    /// The network of a wire.
    fn network(wire: u32) -> Self::Prefix;
    /// Any destination, one for each number.
    fn destination(number: u32) -> Self::Prefix;
    /// Where a router sends from on a wire.
    fn source(wire: u32, router: usize) -> Self::Address;
    fn addresses(wire: u32, router: usize) -> Vec<InterfaceAddress<Self>>;
}

impl Plan for Ripv2 {
    fn network(wire: u32) -> Self::Prefix {
        format!("10.0.{wire}.0/24").parse().expect("a prefix")
    }

    fn destination(number: u32) -> Self::Prefix {
        let [_, a, b, c] = number.to_be_bytes();
        format!("{}.{b}.{c}.0/24", 20 + a).parse().expect("a prefix")
    }

    fn source(wire: u32, router: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, wire as u8, router as u8 + 1)
    }

    fn addresses(wire: u32, router: usize) -> Vec<InterfaceAddress<Self>> {
        vec![InterfaceAddress { address: Self::source(wire, router), network: Self::network(wire) }]
    }
}

impl Plan for Ripng {
    fn network(wire: u32) -> Self::Prefix {
        format!("2001:db8:0:{wire:x}::/64").parse().expect("a prefix")
    }

    fn destination(number: u32) -> Self::Prefix {
        format!("2001:db8:ff:{number:x}::/64").parse().expect("a prefix")
    }

    fn source(_: u32, router: usize) -> Ipv6Addr {
        format!("fe80::{:x}", router + 1).parse().expect("an address")
    }

    fn addresses(wire: u32, router: usize) -> Vec<InterfaceAddress<Self>> {
        let address = format!("2001:db8:0:{wire:x}::{:x}", router + 1).parse().expect("an address");
        let link = "fe80::/64".parse().expect("a prefix");
        vec![
            InterfaceAddress { address: Self::source(wire, router), network: link },
            InterfaceAddress { address, network: Self::network(wire) },
        ]
    }
}

/// Something that was sent, and when.
#[derive(Debug)]
pub(crate) struct Sent<P: Protocol> {
    pub(crate) at: Duration,
    pub(crate) router: usize,
    pub(crate) transmit: Transmit<P>,
}

impl<P: Protocol> Sent<P> {
    pub(crate) fn command(&self) -> Command {
        Message::<P>::read(&self.transmit.octets).expect("a message").command()
    }

    pub(crate) fn is_multicast(&self) -> bool {
        self.transmit.destination == P::GROUP
    }

    pub(crate) fn entries(&self) -> Vec<Entry<P>> {
        entries(&self.transmit.octets)
    }

    /// The metric of a destination that it tells.
    pub(crate) fn metric(&self, prefix: P::Prefix) -> Option<u8> {
        self.entries().into_iter().find(|entry| entry.prefix == prefix).map(|entry| entry.metric.get())
    }
}

pub(crate) fn entries<P: Protocol>(octets: &[u8]) -> Vec<Entry<P>> {
    let message = Message::<P>::read(octets).expect("a message");
    let entries: Result<Vec<_>, BadEntry> = message.entries().collect();
    entries.expect("good entries")
}

/// Metric, interface and next hop of each destination.
type Rib<P> = BTreeMap<<P as Layout>::Prefix, (u8, u32, <P as Layout>::Address)>;

/// Routers and wires. The interface of a router on a wire has the number of the wire.
#[derive(Debug)]
pub(crate) struct Net<P: Plan> {
    start: Instant,
    pub(crate) now: Instant,
    pub(crate) routers: Vec<Rip<P>>,
    pub(crate) wires: BTreeMap<u32, Vec<usize>>,
    /// Wires that let nothing through.
    pub(crate) cut: BTreeSet<u32>,
    pub(crate) sent: Vec<Sent<P>>,
    /// What the events of each router have made.
    pub(crate) ribs: Vec<Rib<P>>,
}

impl<P: Plan> Net<P> {
    /// So many routers, without wires.
    pub(crate) fn new(routers: usize) -> Self {
        Self::with(routers, Settings::default())
    }

    pub(crate) fn with(routers: usize, settings: Settings) -> Self {
        let now = Instant::now();
        let router =
            |number: usize| Rip::new(Settings { seed: settings.seed + number as u64, ..settings }, now);
        Self {
            start: now,
            now,
            routers: (0..routers).map(router).collect(),
            wires: BTreeMap::new(),
            cut: BTreeSet::new(),
            sent: Vec::new(),
            ribs: vec![BTreeMap::new(); routers],
        }
    }

    /// Routers one after the other: wire 1 is between the first and the second.
    pub(crate) fn line(routers: usize) -> Self {
        let mut net = Self::new(routers);
        for wire in 1..routers {
            net.join(wire as u32, &[wire - 1, wire], |_| ());
        }
        net
    }

    /// Puts a wire between routers.
    pub(crate) fn join(&mut self, wire: u32, members: &[usize], change: impl Fn(&mut Interface<P>)) {
        for &router in members {
            self.attach(wire, router, &change);
        }
    }

    pub(crate) fn attach(&mut self, wire: u32, router: usize, change: impl Fn(&mut Interface<P>)) {
        let mut interface = Interface::new(P::addresses(wire, router));
        change(&mut interface);
        self.routers[router].set_interface(self.now, wire, interface);
        let members = self.wires.entry(wire).or_default();
        if !members.contains(&router) {
            members.push(router);
        }
    }

    pub(crate) fn redistribute(&mut self, router: usize, prefix: P::Prefix, metric: u32) {
        let metric = Metric::new(metric).expect("1 to 16");
        self.routers[router].redistribute(self.now, prefix, metric, 77).expect("taken");
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Until so many seconds from now.
    pub(crate) fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        for _ in 0..1_000_000 {
            self.deliver();
            let next = self.routers.iter().filter_map(Rip::next_deadline).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            for router in &mut self.routers {
                if router.next_deadline().is_some_and(|due| due <= self.now) {
                    router.advance(self.now);
                }
            }
        }
        panic!("the routers do not come to rest");
    }

    /// Until nobody has anything to say now.
    pub(crate) fn deliver(&mut self) {
        while let Some((router, transmit)) =
            (0..self.routers.len()).find_map(|router| Some((router, self.routers[router].poll_transmit()?)))
        {
            self.carry(router, &transmit);
            self.sent.push(Sent { at: self.elapsed(), router, transmit });
        }
        for (router, rib) in self.routers.iter_mut().zip(&mut self.ribs) {
            while let Some(event) = router.poll_event() {
                match event {
                    Event::Route { prefix, next_hop, interface, metric, .. } => {
                        rib.insert(prefix, (metric.get(), interface, next_hop));
                    }
                    Event::Gone { prefix } => _ = rib.remove(&prefix),
                    Event::TableFull => {}
                }
            }
        }
    }

    fn carry(&mut self, from: usize, transmit: &Transmit<P>) {
        let wire = transmit.interface;
        if self.cut.contains(&wire) {
            return;
        }
        let multicast = transmit.destination == P::GROUP;
        // What is multicast comes back as well.
        for &to in &self.wires[&wire] {
            if multicast || transmit.destination == P::source(wire, to) {
                let datagram = Datagram {
                    interface: wire,
                    source: P::source(wire, from),
                    port: P::PORT,
                    hop_limit: 255,
                    multicast,
                    octets: &transmit.octets,
                };
                let _ = self.routers[to].receive(self.now, &datagram);
            }
        }
    }

    /// The metric that the routing table of a router has from RIP.
    pub(crate) fn metric(&self, router: usize, prefix: P::Prefix) -> Option<u8> {
        self.ribs[router].get(&prefix).map(|(metric, ..)| *metric)
    }

    /// What a router tells of a destination.
    pub(crate) fn told(&self, router: usize, prefix: P::Prefix) -> Option<u8> {
        self.routers[router].route(prefix).map(|route| route.metric.get())
    }

    /// Responses that a router has sent to all over an interface, since so many were sent.
    pub(crate) fn updates(&self, router: usize, wire: u32, since: usize) -> impl Iterator<Item = &Sent<P>> {
        self.sent[since..].iter().filter(move |sent| {
            sent.router == router
                && sent.transmit.interface == wire
                && sent.is_multicast()
                && sent.command() == Command::Response
        })
    }
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
