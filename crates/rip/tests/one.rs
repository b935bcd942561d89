//! What one router makes of what it hears (RFC 2453 section 3.9.2).

use std::time::{Duration, Instant};

use holdfast_rip::{
    AcceptAll, Candidate, Datagram, Event, Interface, InterfaceAddress, MOST_SOURCES, Metric, Origin, Policy,
    Protocol, Refused, Rejected, Rip, Ripng, Ripv2, Settings, Source,
};
use holdfast_rip_wire::{Command, Entry, Writer};
use holdfast_types::Ipv4Prefix;

use super::networks::{Plan, secs};

/// A router with the address 10.0.1.1 on wire 1 and 10.0.2.1 on wire 2.
pub(crate) struct One<P: Plan = Ripv2, Q = AcceptAll> {
    pub(crate) now: Instant,
    pub(crate) rip: Rip<P, Q>,
}

impl<P: Plan> One<P> {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default(), AcceptAll)
    }
}

impl<P: Plan, Q: Policy<P>> One<P, Q> {
    pub(crate) fn with(settings: Settings, policy: Q) -> Self {
        let now = Instant::now();
        let mut one = Self { now, rip: Rip::with_policy(settings, now, policy) };
        for wire in [1, 2] {
            one.rip.set_interface(now, wire, Interface::new(P::addresses(wire, 0)));
        }
        one.quiet();
        one
    }

    /// Sends everything away.
    pub(crate) fn quiet(&mut self) {
        while self.rip.poll_transmit().is_some() {}
    }

    pub(crate) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.rip.next_deadline().filter(|due| *due <= end) {
            self.now = due;
            self.rip.advance(due);
            self.quiet();
        }
        self.now = end;
    }

    pub(crate) fn datagram<'a>(&self, wire: u32, router: usize, octets: &'a [u8]) -> Datagram<'a, P> {
        let source = P::source(wire, router);
        Datagram { interface: wire, source, port: P::PORT, hop_limit: 255, multicast: true, octets }
    }

    /// What a router on a wire tells.
    fn hear(&mut self, wire: u32, router: usize, entry: Entry<P>) -> Result<(), Rejected> {
        let octets = response(&[entry]);
        self.rip.receive(self.now, &self.datagram(wire, router, &octets))
    }

    /// A destination with a metric, from a router of wire 1.
    fn tells(&mut self, router: usize, prefix: P::Prefix, metric: u32) -> Option<u8> {
        self.hear(1, router, entry(prefix, metric)).expect("good");
        self.rip.route(prefix).map(|route| route.metric.get())
    }

    fn events(&mut self) -> Vec<Event<P>> {
        std::iter::from_fn(|| self.rip.poll_event()).collect()
    }

    fn neighbour(&self, prefix: P::Prefix) -> Option<P::Address> {
        match self.rip.route(prefix)?.source {
            Source::Learned { neighbour, .. } => Some(neighbour),
            _ => None,
        }
    }

    fn next_hop(&self, prefix: P::Prefix) -> Option<P::Address> {
        match self.rip.route(prefix)?.source {
            Source::Learned { next_hop, .. } => Some(next_hop),
            _ => None,
        }
    }
}

fn metric(value: u32) -> Metric {
    Metric::new(value).expect("1 to 16")
}

pub(crate) fn entry<P: Protocol>(prefix: P::Prefix, distance: u32) -> Entry<P> {
    Entry { prefix, tag: 0, metric: metric(distance), next_hop: None }
}

pub(crate) fn response<P: Protocol>(entries: &[Entry<P>]) -> Vec<u8> {
    let mut writer = Writer::new(Command::Response, None, 1500);
    assert!(entries.iter().all(|entry| writer.push(entry)));
    writer.finish(0)
}

fn net() -> Ipv4Prefix {
    Ripv2::destination(1)
}

#[test]
fn the_router_of_a_route_may_change_it_and_others_only_better_it() {
    let mut one = One::<Ripv2>::new();
    assert_eq!(one.tells(1, net(), 16), None, "no use for a route that is not reachable");
    assert_eq!(one.tells(1, net(), 15), None, "nor for one that becomes so by the cost");
    assert_eq!(one.tells(1, net(), 5), Some(6));
    assert_eq!(one.tells(2, net(), 5), Some(6));
    assert_eq!(one.neighbour(net()), Some(Ripv2::source(1, 1)));
    assert_eq!(one.tells(2, net(), 16), Some(6));
    assert_eq!(one.tells(2, net(), 4), Some(5));
    assert_eq!(one.neighbour(net()), Some(Ripv2::source(1, 2)));
    assert_eq!(one.tells(1, net(), 6), Some(5));
    assert_eq!(one.tells(2, net(), 9), Some(10));
    assert_eq!(one.tells(2, net(), 16), Some(16));
    assert_eq!(one.tells(1, net(), 14), Some(15), "anything is better than garbage");
    assert_eq!(one.neighbour(net()), Some(Ripv2::source(1, 1)));
}

#[test]
fn events_tell_what_is_so_when_they_are_polled() {
    let mut one = One::<Ripv2>::new();
    one.hear(1, 1, Entry { tag: 9, ..entry(net(), 5) }).expect("good");
    let route = |distance| Event::Route {
        prefix: net(),
        next_hop: Ripv2::source(1, 1),
        interface: 1,
        metric: metric(distance),
        tag: 9,
        neighbour: Ripv2::source(1, 1),
    };
    assert_eq!(one.events(), [route(6)]);
    one.hear(1, 1, Entry { tag: 9, ..entry(net(), 5) }).expect("good");
    assert_eq!(one.events(), [], "repeating is no news");
    one.hear(1, 1, Entry { tag: 9, ..entry(net(), 2) }).expect("good");
    one.hear(1, 1, Entry { tag: 9, ..entry(net(), 3) }).expect("good");
    assert_eq!(one.events(), [route(4)]);
    one.tells(1, net(), 16);
    one.tells(1, net(), 16);
    assert_eq!(one.events(), [Event::Gone { prefix: net() }]);
}

#[test]
fn garbage_is_not_kept_longer_because_it_is_repeated() {
    let mut one = One::<Ripv2>::new();
    one.tells(1, net(), 1);
    one.tells(1, net(), 16);
    for _ in 0..11 {
        one.wait(secs(10));
        assert_eq!(one.tells(1, net(), 16), Some(16));
    }
    one.wait(secs(10));
    assert_eq!(one.tells(1, net(), 16), None);
}

#[test]
fn an_equal_route_takes_over_when_half_of_the_time_is_over() {
    let mut one = One::<Ripv2>::new();
    one.tells(1, net(), 5);
    one.wait(secs(89));
    one.tells(2, net(), 5);
    assert_eq!(one.neighbour(net()), Some(Ripv2::source(1, 1)));
    one.wait(secs(1));
    one.tells(2, net(), 6);
    assert_eq!(one.neighbour(net()), Some(Ripv2::source(1, 1)), "but no worse one");
    one.tells(2, net(), 5);
    assert_eq!(one.neighbour(net()), Some(Ripv2::source(1, 2)));
    one.wait(secs(179));
    assert_eq!(one.neighbour(net()), Some(Ripv2::source(1, 2)));
}

#[test]
fn a_next_hop_counts_if_it_is_on_the_network() {
    let mut one = One::<Ripv2>::new();
    let via = |hop| Entry { next_hop: Some(hop), ..entry(net(), 5) };
    one.hear(1, 1, via(Ripv2::source(1, 7))).expect("good");
    assert_eq!(one.next_hop(net()), Some(Ripv2::source(1, 7)));
    assert_eq!(one.neighbour(net()), Some(Ripv2::source(1, 1)));
    one.hear(1, 1, via(Ripv2::source(2, 7))).expect("good");
    assert_eq!(one.next_hop(net()), Some(Ripv2::source(1, 1)), "not on another network");
    one.hear(1, 1, via(Ripv2::source(1, 0))).expect("good");
    assert_eq!(one.rip.route(net()).map(|route| route.metric), Some(Metric::INFINITY), "not through itself");
    assert_eq!(one.rip.interfaces().map(|shown| shown.counters.bad_routes).sum::<u64>(), 1);
}

#[test]
fn a_next_hop_of_ripng_is_link_local() {
    let mut one = One::<Ripng>::new();
    let prefix = Ripng::destination(1);
    one.hear(1, 1, Entry { next_hop: Some(Ripng::source(1, 7)), ..entry(prefix, 5) }).expect("good");
    assert_eq!(one.next_hop(prefix), Some(Ripng::source(1, 7)));
}

#[test]
fn routes_of_our_own_come_first() {
    let mut one = One::<Ripv2>::new();
    assert_eq!(one.tells(1, Ripv2::network(1), 1), Some(1), "the network is connected");
    one.tells(1, net(), 5);
    one.rip.redistribute(one.now, net(), metric(10), 3).expect("taken");
    assert_eq!(one.rip.route(net()).map(|r| r.source), Some(Source::Own(Origin::Redistributed)));
    assert_eq!(one.events().len(), 1, "the caller still has the shorter one");
    one.tells(1, net(), 9);
    assert_eq!(one.events(), [Event::Gone { prefix: net() }], "what may come from ourselves is none");
    assert_eq!(one.tells(2, net(), 2), Some(10));
    assert_eq!(one.events().len(), 1);
    assert!(one.rip.withdraw_redistributed(one.now, net()));
    assert!(!one.rip.withdraw_redistributed(one.now, net()));
    assert_eq!(one.neighbour(net()), Some(Ripv2::source(1, 2)));
    assert!(one.events().is_empty());
    one.rip.redistribute(one.now, net(), metric(1), 3).expect("taken");
    one.rip.redistribute(one.now, net(), metric(16), 3).expect("taken");
    assert_eq!(one.rip.route(net()).map(|r| (r.metric, r.tag)), Some((Metric::INFINITY, 3)));
}

#[test]
fn what_is_no_destination_is_not_redistributed() {
    let mut one = One::<Ripv2>::new();
    for text in ["224.0.0.0/4", "127.0.0.0/8", "0.0.0.0/8"] {
        let prefix = text.parse().expect("a prefix");
        assert_eq!(one.rip.redistribute(one.now, prefix, Metric::ONE, 0), Err(Refused::Destination));
    }
    let default = "0.0.0.0/0".parse().expect("a prefix");
    assert_eq!(one.rip.redistribute(one.now, default, Metric::ONE, 0), Ok(()));
}

#[test]
fn link_local_networks_are_not_told() {
    let one = One::<Ripng>::new();
    let all: Vec<_> = one.rip.routes().map(|route| route.prefix).collect();
    assert_eq!(all, [Ripng::network(1), Ripng::network(2)]);
}

#[test]
fn bad_entries_are_counted_and_the_others_used() {
    let mut one = One::<Ripv2>::new();
    let mut octets = response::<Ripv2>(&[entry(Ripv2::destination(1), 1), entry(Ripv2::destination(2), 1)]);
    octets[4 + 19] = 17;
    one.rip.receive(one.now, &one.datagram(1, 1, &octets)).expect("good");
    assert_eq!(one.rip.route(Ripv2::destination(1)), None);
    assert!(one.rip.route(Ripv2::destination(2)).is_some());
    assert_eq!(one.rip.interfaces().next().map(|shown| shown.counters.bad_routes), Some(1));
    assert_eq!(one.rip.neighbours().next().map(|shown| shown.neighbour.bad_routes), Some(1));
}

#[test]
fn new_addresses_lose_what_they_do_not_reach() {
    let mut one = One::<Ripv2>::new();
    one.tells(1, net(), 1);
    one.hear(2, 1, entry(Ripv2::destination(2), 1)).expect("good");
    one.events();
    one.rip.set_interface(one.now, 1, Interface::new(Ripv2::addresses(1, 5)));
    assert!(one.events().is_empty(), "another address on the same network");
    one.rip.set_interface(one.now, 1, Interface::new(Ripv2::addresses(7, 0)));
    assert_eq!(one.events(), [Event::Gone { prefix: net() }]);
    assert_eq!(one.rip.route(Ripv2::network(1)).map(|r| r.metric), Some(Metric::INFINITY));
    assert_eq!(one.rip.route(Ripv2::network(7)).map(|r| r.metric), Some(Metric::ONE));
    assert!(one.rip.route(Ripv2::destination(2)).is_some_and(|route| route.metric.is_reachable()));
}

#[test]
fn a_network_of_two_interfaces_stays_with_one() {
    let mut one = One::<Ripv2>::new();
    let again = InterfaceAddress { address: Ripv2::source(1, 9), network: Ripv2::network(1) };
    one.rip.set_interface(one.now, 3, Interface { cost: metric(4), ..Interface::new(vec![again]) });
    assert_eq!(one.rip.route(Ripv2::network(1)).map(|r| r.metric), Some(Metric::ONE));
    one.rip.remove_interface(one.now, 1);
    assert_eq!(one.rip.route(Ripv2::network(1)).map(|r| r.metric), Some(metric(4)));
}

/// Refuses one destination, and makes others longer.
struct Longer {
    refused: Option<Ipv4Prefix>,
}

impl Policy<Ripv2> for Longer {
    fn import(&mut self, interface: u32, prefix: Ipv4Prefix, route: &mut Candidate) -> bool {
        route.metric = route.metric.plus(metric(interface));
        route.tag = 5;
        self.refused != Some(prefix)
    }

    fn export(&mut self, _: u32, prefix: Ipv4Prefix, route: &mut Candidate) -> bool {
        route.tag += 1;
        prefix != Ripv2::destination(3)
    }
}

#[test]
fn a_policy_refuses_and_changes_routes() {
    let mut one = One::<Ripv2, _>::with(Settings::default(), Longer { refused: None });
    assert_eq!(one.tells(1, net(), 5), Some(7));
    one.tells(1, Ripv2::destination(3), 5);
    one.wait(secs(5));
    one.rip.policy_mut().refused = Some(net());
    assert_eq!(one.tells(1, net(), 5), Some(16), "lost when it is repeated");
    one.rip.policy_mut().refused = None;
    assert_eq!(one.tells(1, net(), 5), Some(7));
    one.wait(secs(6));
    let all = [&[1][..], &[2; 1], &[0; 2]].concat();
    assert_eq!(all.len(), 4);
    one.rip.set_interface(one.now, 2, Interface::new(Ripv2::addresses(2, 0)));
    one.quiet();
    one.now += secs(6);
    one.rip.advance(one.now);
    let sent: Vec<_> =
        std::iter::from_fn(|| one.rip.poll_transmit()).filter(|sent| sent.interface == 2).collect();
    let told: Vec<_> = sent.iter().flat_map(|sent| super::networks::entries::<Ripv2>(&sent.octets)).collect();
    assert!(told.iter().any(|entry| entry.prefix == net() && entry.tag == 6));
    assert!(told.iter().all(|entry| entry.prefix != Ripv2::destination(3)));
}

#[test]
fn a_full_table_is_told_once() {
    let mut one = One::<Ripv2>::with(Settings { max_routes: 18, ..Settings::default() }, AcceptAll);
    let fill = |one: &mut One| {
        for number in 0..30 {
            one.tells(1, Ripv2::destination(number), 1);
        }
        one.events().iter().filter(|event| **event == Event::TableFull).count()
    };
    assert_eq!(fill(&mut one), 1);
    assert_eq!((one.rip.route_count(), one.rip.ignored_routes()), (18, 14));
    assert_eq!(fill(&mut one), 0);
    one.wait(secs(301));
    assert_eq!(one.rip.route_count(), 2);
    assert_eq!(fill(&mut one), 1);
}

/// RFC 2453 section 3.9.2: a neighbor discards a response whose source is in none of its networks, so each network of a link is
/// sent updates from an address in it. Two addresses in one network are one sender.
#[test]
fn each_network_of_a_link_is_sent_updates_from_an_address_in_it() {
    let own = |address: &str, network: &str| InterfaceAddress::<Ripv2> {
        address: address.parse().expect("an address"),
        network: network.parse().expect("a prefix"),
    };
    let now = Instant::now();
    let mut rip = Rip::<Ripv2>::new(Settings::default(), now);
    let addresses = vec![
        own("10.0.1.1", "10.0.1.0/24"),
        own("10.0.1.9", "10.0.1.0/24"),
        own("10.0.7.1", "10.0.7.0/24"),
        own("10.9.9.1", "10.9.9.2/32"),
    ];
    rip.set_interface(now, 1, Interface::new(addresses));
    let sent: Vec<_> = std::iter::from_fn(|| rip.poll_transmit()).collect();
    let sources: Vec<_> = sent.iter().filter_map(|sent| sent.source).map(|it| it.to_string()).collect();
    assert_eq!(sources, ["10.0.1.1", "10.0.7.1", "10.9.9.1"], "the request for the whole table");
    assert!(sent.iter().all(|one| one.octets == sent[0].octets && one.destination == Ripv2::GROUP));

    let many = (0..40).map(|net| own(&format!("10.0.{net}.1"), &format!("10.0.{net}.0/24"))).collect();
    rip.set_interface(now, 2, Interface::new(many));
    let sent = std::iter::from_fn(|| rip.poll_transmit()).filter(|sent| sent.interface == 2).count();
    assert_eq!(sent, MOST_SOURCES);
}

#[test]
fn ripng_is_sent_from_the_address_that_the_kernel_chooses() {
    let now = Instant::now();
    let mut rip = Rip::<Ripng>::new(Settings::default(), now);
    rip.set_interface(now, 1, Interface::new(Ripng::addresses(1, 0)));
    let sent: Vec<_> = std::iter::from_fn(|| rip.poll_transmit()).map(|sent| sent.source).collect();
    assert_eq!(sent, [None]);
}
