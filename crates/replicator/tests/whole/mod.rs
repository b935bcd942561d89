//! The whole of it: a primary, its replicator, its gate, the store and standbys die at every step of random runs.
//!
//! ```text
//!  peers ══ kernel ── app ──> nsr::Log ──> Copier ──> Writer ──> store ──> restore ──> the next host
//!    ^        │                                         │ marks
//!    └── Flows (gate) <─────────────────────────────────┘
//! ```
//! Peers, kernel and application are models, and the store is the one with faults. All else is what runs in a router. Checked at
//! each step: nothing leaves that the store did not have, whoever takes over has what peers believe, and no peer is told
//! anything twice, in another order, or that nobody has said. In the end each was told everything.

mod app;
mod host;
mod world;

use std::ops::Range;

use proptest::prelude::*;
use world::World;

/// Sessions.
const PEERS: usize = 3;

/// Octets of a peer's stream.
fn said(peer: usize, range: Range<u64>) -> Vec<u8> {
    range.map(|offset| (offset.wrapping_mul(7) ^ offset >> 5) as u8 ^ peer as u8).collect()
}

/// A step. Where a process dies in the middle of one, `false` or a number says how far it comes.
#[derive(Clone, Debug)]
enum Act {
    /// A peer says something, and it arrives.
    Say(usize, u64),
    Arrive(usize, u64),
    /// The application reads, processes, writes, and looks at what was acknowledged.
    Read(usize, u64, bool),
    Process(usize, u64, Option<usize>),
    Write(usize, usize, bool),
    Look(usize),
    Snapshot(usize, usize),
    Fold(usize),
    Revive,
    /// The kernel sends something, or the oldest again; the peer acknowledges.
    Transmit(usize, bool),
    Acknowledge(usize),
    Release,
    Replicate(usize),
    Peek(usize),
    /// The store does the oldest request; the oldest answer arrives.
    Work,
    Take,
    Cut,
    LoseAll,
    LoseLast(usize),
    Fail(bool),
    KillGate,
    KillReplicator,
    TakeOver {
        late: bool,
        dies: bool,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let peer = 0..PEERS;
    let lives = || prop_oneof![20 => Just(true), 1 => Just(false)];
    prop_oneof![
        8 => (peer.clone(), 1..900_u64).prop_map(|(peer, count)| Act::Say(peer, count)),
        8 => (peer.clone(), 1..900_u64).prop_map(|(peer, count)| Act::Arrive(peer, count)),
        8 => (peer.clone(), 1..900_u64, lives()).prop_map(|(peer, count, is_said)| Act::Read(peer, count, is_said)),
        8 => (peer.clone(), 1..900_u64, prop_oneof![20 => Just(None), 1 => (0..PEERS).prop_map(Some)])
            .prop_map(|(peer, count, most)| Act::Process(peer, count, most)),
        8 => (peer.clone(), 1..100_usize, lives()).prop_map(|(peer, count, is_said)| Act::Write(peer, count, is_said)),
        3 => peer.clone().prop_map(Act::Look),
        3 => (peer.clone(), 0..4000_usize).prop_map(|(peer, padding)| Act::Snapshot(peer, padding)),
        2 => peer.clone().prop_map(Act::Fold),
        3 => Just(Act::Revive),
        12 => (peer.clone(), any::<bool>()).prop_map(|(peer, again)| Act::Transmit(peer, again)),
        4 => peer.clone().prop_map(Act::Acknowledge),
        4 => Just(Act::Release),
        12 => prop_oneof![5500..9000_usize, Just(holdfast_store::MOST_OCTETS)].prop_map(Act::Replicate),
        2 => peer.prop_map(Act::Peek),
        14 => Just(Act::Work),
        14 => Just(Act::Take),
        1 => Just(Act::Cut),
        1 => Just(Act::LoseAll),
        1 => (1..6_usize).prop_map(Act::LoseLast),
        1 => any::<bool>().prop_map(Act::Fail),
        1 => Just(Act::KillGate),
        1 => Just(Act::KillReplicator),
        3 => (any::<bool>(), any::<bool>()).prop_map(|(late, dies)| Act::TakeOver { late, dies }),
    ]
}

/// Where a session begins: offsets of its streams, and numbers of its sockets. They pass 2^32 soon, or never.
fn begin() -> impl Strategy<Value = (u64, u64, u32, u32)> {
    let offset = || prop_oneof![Just(0_u64), ((1_u64 << 32) - 900)..(1_u64 << 32)];
    let number = || prop_oneof![any::<u32>(), (u32::MAX - 900)..=u32::MAX];
    (offset(), offset(), number(), number())
}

proptest! {
    #![proptest_config(holdfast_testing::cases(60))]

    #[test]
    fn whoever_dies_nothing_is_lost_doubled_or_acknowledged_too_early(
        begins in prop::array::uniform3(begin()),
        acts in prop::collection::vec(act(), 1..220),
    ) {
        let mut world = World::new(begins);
        for act in acts {
            world.act(act);
            world.check();
        }
        world.settle();
        world.check();
    }
}
