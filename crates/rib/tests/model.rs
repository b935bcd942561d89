//! The table against a model that keeps plain maps and works everything out from scratch.

use std::time::Duration;

use holdfast_rib::Neighbor;

use super::support::{
    CLIENTS, CONTENTS, INTERFACES, ORIGINS, PREFIXES, SUBSCRIBERS, addresses, contents, interface_addresses,
    world::World,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Announce { origin: usize, prefix: usize, handle: usize, metric: u32, distance: Option<u8>, source: u32 },
    Withdraw { origin: usize, prefix: usize },
    Redefine { origin: usize, handle: usize, content: usize },
    Undefine { origin: usize, handle: usize },
    Die { origin: usize },
    Return { origin: usize },
    EndOfSync { origin: usize },
    Told { origin: usize, awaited: Vec<u32> },
    Pass { seconds: u64 },
    Interface { index: usize, up: bool, addresses: usize },
    InterfaceGone { index: usize },
    Fail { address: usize, interface: u32, failed: bool },
    Register { client: usize, address: usize },
    Unregister { client: usize, address: usize },
    ClientGone { client: usize },
    Work { budget: usize },
    FibAttach,
    FibDetach,
    FibPoll { max: usize },
    FibPollAtOnce,
    HoldSync { held: bool },
    Subscribe { subscriber: usize },
    Unsubscribe { subscriber: usize },
    RedistPoll { subscriber: usize, max: usize },
    Check,
}

fn op() -> impl Strategy<Value = Op> {
    let origin = || 0..ORIGINS.len();
    let prefix = || 0..PREFIXES.len();
    let address = || 0..addresses().len();
    prop_oneof![
        24 => (origin(), prefix(), 0..CONTENTS, 0..3u32, prop_oneof![
            6 => Just(None), 2 => (1..4u8).prop_map(Some), 1 => Just(Some(255)),
        ], 0..4u32).prop_map(|(origin, prefix, handle, metric, distance, source)|
            Op::Announce { origin, prefix, handle, metric, distance, source }),
        10 => (origin(), prefix()).prop_map(|(origin, prefix)| Op::Withdraw { origin, prefix }),
        3 => (origin(), 0..CONTENTS, 0..CONTENTS)
            .prop_map(|(origin, handle, content)| Op::Redefine { origin, handle, content }),
        2 => (origin(), 0..CONTENTS).prop_map(|(origin, handle)| Op::Undefine { origin, handle }),
        2 => origin().prop_map(|origin| Op::Die { origin }),
        3 => origin().prop_map(|origin| Op::Return { origin }),
        3 => origin().prop_map(|origin| Op::EndOfSync { origin }),
        3 => (origin(), prop::collection::vec(0..4u32, 1..4))
            .prop_map(|(origin, awaited)| Op::Told { origin, awaited }),
        1 => (1..130u64).prop_map(|seconds| Op::Pass { seconds }),
        5 => (0..INTERFACES, prop::bool::weighted(0.8), 0..interface_addresses().len())
            .prop_map(|(index, up, addresses)| Op::Interface { index, up, addresses }),
        1 => (0..INTERFACES).prop_map(|index| Op::InterfaceGone { index }),
        8 => (address(), 0..=INTERFACES as u32, prop::bool::weighted(0.7))
            .prop_map(|(address, interface, failed)| Op::Fail { address, interface, failed }),
        8 => (0..CLIENTS, address()).prop_map(|(client, address)| Op::Register { client, address }),
        1 => (0..CLIENTS, address()).prop_map(|(client, address)| Op::Unregister { client, address }),
        1 => (0..CLIENTS).prop_map(|client| Op::ClientGone { client }),
        5 => (1..6usize).prop_map(|budget| Op::Work { budget }),
        1 => Just(Op::FibAttach),
        1 => Just(Op::FibDetach),
        6 => (1..8usize).prop_map(|max| Op::FibPoll { max }),
        4 => Just(Op::FibPollAtOnce),
        1 => any::<bool>().prop_map(|held| Op::HoldSync { held }),
        1 => (0..SUBSCRIBERS).prop_map(|subscriber| Op::Subscribe { subscriber }),
        1 => (0..SUBSCRIBERS).prop_map(|subscriber| Op::Unsubscribe { subscriber }),
        4 => (0..SUBSCRIBERS, 1..8usize).prop_map(|(subscriber, max)| Op::RedistPoll { subscriber, max }),
        4 => Just(Op::Check),
    ]
}

fn run(world: &mut World, op: Op) {
    match op {
        Op::Announce { origin, prefix, handle, metric, distance, source } => {
            world.announce(origin, PREFIXES[prefix], handle, metric, distance, source);
        }
        Op::Withdraw { origin, prefix } => world.withdraw(origin, PREFIXES[prefix]),
        Op::Redefine { origin, handle, content } => world.redefine(origin, handle, contents(content)),
        Op::Undefine { origin, handle } => world.undefine(origin, handle),
        Op::Die { origin } => world.die(origin),
        Op::Return { origin } => world.come_back(origin),
        Op::EndOfSync { origin } => world.end_of_sync(origin),
        Op::Told { origin, awaited } => world.told(origin, &awaited),
        Op::Pass { seconds } => world.pass(Duration::from_secs(seconds)),
        Op::Interface { index, up, addresses } => {
            world.interface(index, up, interface_addresses()[addresses].clone());
        }
        Op::InterfaceGone { index } => world.interface_gone(index),
        Op::Fail { address, interface, failed } => {
            world.fail(Neighbor { address: addresses()[address], interface }, failed);
        }
        Op::FibPollAtOnce => world.fib_poll_at_once(),
        Op::Register { client, address } => world.register(client, addresses()[address]),
        Op::Unregister { client, address } => world.unregister(client, addresses()[address]),
        Op::ClientGone { client } => world.client_gone(client),
        Op::Work { budget } => {
            world.rib.work(budget);
        }
        Op::FibAttach => world.fib_attach(),
        Op::FibDetach => world.fib_detach(),
        Op::FibPoll { max } => {
            world.fib_poll(max);
        }
        Op::HoldSync { held } => world.hold_sync(held),
        Op::Subscribe { subscriber } => world.subscribe(subscriber),
        Op::Unsubscribe { subscriber } => world.unsubscribe(subscriber),
        Op::RedistPoll { subscriber, max } => {
            world.redist_poll(subscriber, max);
        }
        Op::Check => world.check(),
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(600))]

    #[test]
    fn the_table_agrees_with_the_model(
        log_capacity in prop_oneof![4..12usize, Just(1024)],
        via_default: bool,
        ops in prop::collection::vec(op(), 1..160),
    ) {
        let mut world = World::new(log_capacity, via_default);
        for op in ops {
            run(&mut world, op);
        }
        world.check();
    }
}
