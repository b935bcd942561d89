//! Anything at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use holdfast_rip::{Datagram, Event, Interface, Metric, Rip, Ripng, Ripv2, Settings, Source, SplitHorizon};
use holdfast_rip_wire::{Command, Message, Writer};
use proptest::prelude::*;

use super::{
    networks::{Net, Plan},
    one::entry,
};

#[derive(Clone, Debug)]
enum Op {
    /// Routes of a router on a wire.
    Tell {
        wire: u32,
        router: usize,
        routes: Vec<(u32, u32)>,
        damage: Option<(usize, u8)>,
    },
    Ask {
        wire: u32,
        router: usize,
        everything: bool,
    },
    Octets {
        wire: u32,
        octets: Vec<u8>,
    },
    Wait(u64),
    SetInterface {
        wire: u32,
        passive: bool,
        horizon: u8,
    },
    RemoveInterface(u32),
    Redistribute {
        number: u32,
        metric: u32,
    },
    Withdraw(u32),
    /// Takes only so many datagrams away.
    Send(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let wire = 0..3_u32;
    let routes = proptest::collection::vec((0..40_u32, 1..=16_u32), 0..25);
    prop_oneof![
        4 => (wire.clone(), 1..4_usize, routes, proptest::option::weighted(0.2, (0..100_usize, any::<u8>())))
            .prop_map(|(wire, router, routes, damage)| Op::Tell { wire, router, routes, damage }),
        1 => (wire.clone(), 1..4_usize, any::<bool>())
            .prop_map(|(wire, router, everything)| Op::Ask { wire, router, everything }),
        1 => (wire.clone(), proptest::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(wire, octets)| Op::Octets { wire, octets }),
        3 => prop_oneof![0..3_u64, 0..100_u64, 0..400_u64].prop_map(Op::Wait),
        1 => (wire.clone(), any::<bool>(), 0..3_u8)
            .prop_map(|(wire, passive, horizon)| Op::SetInterface { wire, passive, horizon }),
        1 => wire.prop_map(Op::RemoveInterface),
        1 => (0..40_u32, 1..=16_u32).prop_map(|(number, metric)| Op::Redistribute { number, metric }),
        1 => (0..40_u32).prop_map(Op::Withdraw),
        1 => (0..5_usize).prop_map(Op::Send),
    ]
}

fn horizon(number: u8) -> SplitHorizon {
    [SplitHorizon::PoisonedReverse, SplitHorizon::Simple, SplitHorizon::Off][usize::from(number)]
}

const MOST: usize = 30;

struct Run<P: Plan> {
    now: Instant,
    rip: Rip<P>,
    rib: BTreeMap<P::Prefix, P::Address>,
}

impl<P: Plan> Run<P> {
    fn new() -> Self {
        let now = Instant::now();
        let rip = Rip::new(Settings { max_routes: MOST, max_neighbours: 2, ..Settings::default() }, now);
        Self { now, rip, rib: BTreeMap::new() }
    }

    fn apply(&mut self, op: Op) {
        let now = self.now;
        match op {
            Op::Tell { wire, router, routes, damage } => {
                let mut writer = Writer::<P>::new(Command::Response, None, 1500);
                for (number, metric) in routes {
                    writer.push(&entry(P::destination(number), metric));
                }
                let mut octets = writer.finish(0);
                if let Some((at, value)) = damage {
                    let at = at % octets.len();
                    octets[at] = value;
                }
                self.receive(wire, router, &octets);
            }
            Op::Ask { wire, router, everything: true } => {
                self.receive(wire, router, &Writer::<P>::whole_table(None).finish(0));
            }
            Op::Ask { wire, router, everything: false } => {
                let mut writer = Writer::<P>::new(Command::Request, None, 1500);
                writer.push(&entry(P::destination(1), 1));
                self.receive(wire, router, &writer.finish(0));
            }
            Op::Octets { wire, octets } => self.receive(wire, 1, &octets),
            Op::Wait(seconds) => self.wait(Duration::from_secs(seconds)),
            Op::SetInterface { wire, passive, horizon: number } => {
                let interface = Interface::new(P::addresses(wire, 0));
                let split_horizon = horizon(number);
                self.rip.set_interface(now, wire, Interface { passive, split_horizon, ..interface });
            }
            Op::RemoveInterface(wire) => _ = self.rip.remove_interface(now, wire),
            Op::Redistribute { number, metric } => {
                let metric = Metric::new(metric).expect("1 to 16");
                let _ = self.rip.redistribute(now, P::destination(number), metric, 0);
            }
            Op::Withdraw(number) => _ = self.rip.withdraw_redistributed(now, P::destination(number)),
            Op::Send(most) => self.send(most),
        }
    }

    fn receive(&mut self, wire: u32, router: usize, octets: &[u8]) {
        let source = P::source(wire, router);
        let datagram =
            Datagram { interface: wire, source, port: P::PORT, hop_limit: 255, multicast: true, octets };
        let _ = self.rip.receive(self.now, &datagram);
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0;
        self.send(usize::MAX);
        while let Some(due) = self.rip.next_deadline().filter(|due| *due <= end) {
            steps += 1;
            assert!(steps < 1000, "it comes to rest");
            self.now = self.now.max(due);
            self.rip.advance(self.now);
            self.send(usize::MAX);
        }
        self.now = end;
    }

    fn send(&mut self, most: usize) {
        let mut sent = 0;
        while sent < most
            && let Some(transmit) = self.rip.poll_transmit()
        {
            sent += 1;
            assert!(sent < 1000, "it comes to an end");
            let message = Message::<P>::read(&transmit.octets).expect("can be read");
            assert!(message.command() == Command::Request || message.entries().all(|entry| entry.is_ok()));
        }
    }

    /// What holds after each call.
    fn check(&mut self) {
        while let Some(event) = self.rip.poll_event() {
            match event {
                Event::Route { prefix, next_hop, .. } => _ = self.rib.insert(prefix, next_hop),
                Event::Gone { prefix } => _ = self.rib.remove(&prefix),
                Event::TableFull => {}
            }
        }
        for route in self.rip.routes() {
            match route.source {
                Source::Learned { next_hop, expires, interface, .. } => {
                    assert!(route.metric.is_reachable() && expires >= self.now);
                    assert_eq!(self.rib.get(&route.prefix), Some(&next_hop));
                    assert!(self.rip.interfaces().any(|shown| shown.id == interface));
                }
                Source::Garbage { expires, .. } => {
                    assert!(!route.metric.is_reachable() && expires >= self.now);
                    assert_eq!(self.rib.get(&route.prefix), None);
                }
                Source::Own(_) => assert!(route.metric.is_reachable()),
            }
        }
        assert!(self.rib.keys().all(|prefix| self.rip.route(*prefix).is_some()));
        assert!(self.rip.route_count() <= MOST + 3);
        assert!(self.rip.neighbours().count() <= 3 * 2);
    }
}

fn anything<P: Plan>(ops: Vec<Op>) {
    let mut run = Run::<P>::new();
    for op in ops {
        run.apply(op);
        run.check();
    }
    // In the end all is forgotten but what is our own.
    run.wait(Duration::from_secs(301));
    run.check();
    assert!(run.rip.routes().all(|route| matches!(route.source, Source::Own(_))));
}

/// The distance of each router from the first, over wires that are whole; `None` if there is no way.
fn distances(routers: usize, wires: &BTreeMap<u32, Vec<usize>>, cut: &BTreeSet<u32>) -> Vec<Option<u8>> {
    let mut found = vec![None; routers];
    found[0] = Some(1);
    for _ in 0..routers {
        for (_, members) in wires.iter().filter(|(wire, _)| !cut.contains(wire)) {
            let best = members.iter().filter_map(|router| found[*router]).min();
            for router in members {
                found[*router] = [found[*router], best.map(|best: u8| best + 1)].into_iter().flatten().min();
            }
        }
    }
    found
}

fn shortest_ways<P: Plan>(
    wires: &[(usize, usize)],
    changes: &[usize],
    number: u8,
) -> Result<(), TestCaseError> {
    const ROUTERS: usize = 5;
    let mut net = Net::<P>::new(ROUTERS);
    for (wire, (one, other)) in wires.iter().enumerate().filter(|(_, (one, other))| one != other) {
        net.join(wire as u32, &[*one, *other], |interface| interface.split_horizon = horizon(number));
    }
    let prefix = P::destination(1);
    net.redistribute(0, prefix, 1);
    for change in changes {
        // Routes that are lost time out, count to infinity, and come anew.
        net.run(180 + 16 * 5 + 5 * 35);
        let expected = distances(ROUTERS, &net.wires, &net.cut);
        for (router, expected) in expected.iter().enumerate().skip(1) {
            prop_assert_eq!(net.metric(router, prefix), *expected, "router {}", router);
        }
        let wire = (change % wires.len()) as u32;
        if !net.cut.remove(&wire) {
            net.cut.insert(wire);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(holdfast_testing::cases(100))]

    #[test]
    fn nothing_that_happens_breaks_a_promise(ops in proptest::collection::vec(op(), 1..60)) {
        anything::<Ripv2>(ops.clone());
        anything::<Ripng>(ops);
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(40))]

    #[test]
    fn routers_find_the_shortest_ways(
        wires in proptest::collection::vec((0..5_usize, 0..5_usize), 1..9),
        changes in proptest::collection::vec(0..9_usize, 1..6),
        number in 0..3_u8,
    ) {
        shortest_ways::<Ripv2>(&wires, &changes, number)?;
        shortest_ways::<Ripng>(&wires, &changes, number)?;
    }
}
