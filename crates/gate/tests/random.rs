//! Random runs against a model that knows true offsets.

use std::collections::BTreeMap;

use holdfast_gate::{Claim, Flows, MOST_ACKS, Segment, SlotState, kept, nfnetlink::Verdict};
use proptest::prelude::*;

use crate::tests::scene::{ROOM, Scene, connection, key};

#[derive(Clone, Debug)]
enum Step {
    /// Data that was not sent before, or was, so many octets back.
    Data {
        back: u8,
        octets: u8,
    },
    /// So many octets more of the peer are acknowledged.
    Ack {
        more: u8,
        window: u8,
    },
    Fin,
    Reset,
    /// A reset of a connection that nobody knows.
    Stranger,
    Raise {
        received: u8,
        sent: u8,
    },
    State(u8),
    Lease(bool),
    Release,
    Restart,
    /// A connection with the same addresses, whose numbers are so far from their end.
    Anew {
        iss: u8,
        irs: u8,
    },
    Claim,
    Free,
}

fn step() -> impl Strategy<Value = (u8, Step)> {
    let one = prop_oneof![
        8 => (0..40_u8, 1..60_u8).prop_map(|(back, octets)| Step::Data { back, octets }),
        8 => (0..30_u8, 0..3_u8).prop_map(|(more, window)| Step::Ack { more, window }),
        1 => Just(Step::Fin),
        1 => Just(Step::Reset),
        1 => Just(Step::Stranger),
        8 => (0..60_u8, 0..60_u8).prop_map(|(received, sent)| Step::Raise { received, sent }),
        2 => (1..4_u8).prop_map(Step::State),
        2 => any::<bool>().prop_map(Step::Lease),
        8 => Just(Step::Release),
        1 => Just(Step::Restart),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(iss, irs)| Step::Anew { iss, irs }),
        2 => Just(Step::Claim),
        1 => Just(Step::Free),
    ];
    (0..3_u8, one)
}

/// A connection as its kernel knows it.
#[derive(Clone, Default)]
struct Host {
    iss: u32,
    irs: u32,
    sent: u64,
    acked: u64,
    birth: u64,
    is_alive: bool,
    fin: bool,
    claim: Option<Claim>,
    state: Option<SlotState>,
    marks: (u64, u64),
}

/// What a packet truly is.
#[derive(Clone, Copy)]
struct Truth {
    host: usize,
    birth: u64,
    ack: u64,
    end: u64,
    has_data: bool,
    fin: bool,
    rst: bool,
}

struct Run {
    scene: Scene,
    hosts: Vec<Host>,
    truths: BTreeMap<u32, Truth>,
    memory: Vec<u8>,
    last: BTreeMap<(usize, u64), u32>,
}

impl Run {
    fn new() -> Self {
        let mut memory = vec![0; kept::KEPT];
        kept::begin(&mut memory);
        let hosts = vec![Host::default(); 3];
        let mut run =
            Self { scene: Scene::new(), hosts, truths: BTreeMap::new(), memory, last: BTreeMap::new() };
        for host in 0..3 {
            run.anew(host, 20, 30);
        }
        run
    }

    fn anew(&mut self, host: usize, iss: u8, irs: u8) {
        let (iss, irs) = (u32::MAX - u32::from(iss), u32::MAX - u32::from(irs));
        let before = &self.hosts[host];
        if before.is_alive && (before.iss, before.irs) == (iss, irs) {
            return;
        }
        if !self.scene.lease {
            let id = self.truths.last_key_value().map_or(0, |(id, _)| id + 1);
            let birth = before.birth;
            self.truths
                .insert(id, Truth { host, birth, ack: 0, end: 0, has_data: false, fin: false, rst: false });
            self.scene.segment(Segment::made(
                connection(host as u16 + 1),
                "SA",
                iss,
                irs.wrapping_add(1),
                0,
                0,
            ));
            assert!(matches!(self.scene.verdicts.last(), Some((last, Verdict::Drop, _)) if *last == id));
            self.judge();
            return;
        }
        let birth = before.birth + 1;
        // The use of the slot stays that of the connection before: the model has nothing more to do with it.
        let claim = before.claim;
        self.hosts[host] = Host { iss, irs, birth, is_alive: true, claim, ..Host::default() };
        let truth = Truth { host, birth, ack: 0, end: 0, has_data: false, fin: false, rst: false };
        self.send(host, "SA", iss, 0, truth);
    }

    fn send(&mut self, host: usize, flags: &str, seq: u32, window: u16, truth: Truth) {
        let ack = self.hosts[host].irs.wrapping_add(1).wrapping_add(truth.ack as u32);
        let payload = if truth.has_data {
            let first = self.hosts[host].iss.wrapping_add(1).wrapping_add(truth.end as u32);
            first.wrapping_sub(seq)
        } else {
            0
        };
        let segment = Segment::made(connection(host as u16 + 1), flags, seq, ack, window, payload);
        // Verdicts are looked at behind the call, so the truth has to be there before.
        let id = self.truths.last_key_value().map_or(0, |(id, _)| id + 1);
        self.truths.insert(id, truth);
        assert_eq!(self.scene.segment(segment), id);
        self.judge();
    }

    /// Looks at each verdict as soon as it is there, so that watermarks are those of its moment.
    fn judge(&mut self) {
        for (id, verdict, _) in std::mem::take(&mut self.scene.verdicts) {
            let truth = self.truths[&id];
            let host = &self.hosts[truth.host];
            if verdict == Verdict::Drop {
                continue;
            }
            let last = self.last.insert((truth.host, truth.birth), id);
            assert!(last.is_none_or(|last| last < id), "in order");
            assert!(truth.host == 9 || truth.birth == host.birth, "of this connection");
            match host.state {
                Some(SlotState::Gated) => {
                    assert!(self.scene.lease && !truth.fin && !truth.rst);
                    assert!(truth.ack <= host.marks.0, "acknowledged is what is replicated");
                    assert!(!truth.has_data || truth.end <= host.marks.1, "sent is what is replicated");
                }
                Some(SlotState::Closed) => panic!("nothing leaves"),
                Some(SlotState::Open | SlotState::Free) | None => {}
            }
        }
        let held = self.scene.flows.held();
        assert_eq!(self.scene.waiting().len(), held, "each packet is held or has its verdict");
        assert!(held < 3 * 200 + 3 * MOST_ACKS);
    }

    fn step(&mut self, host: usize, step: &Step) {
        let now = self.hosts[host].clone();
        let truth = Truth {
            host,
            birth: now.birth,
            ack: now.acked,
            end: now.sent,
            has_data: false,
            fin: false,
            rst: false,
        };
        let seq = |offset: u64| now.iss.wrapping_add(1).wrapping_add(offset as u32);
        match *step {
            Step::Data { back, octets } if now.is_alive && !now.fin => {
                let start = now.sent.saturating_sub(back.into());
                let end = start + u64::from(octets);
                self.hosts[host].sent = end.max(now.sent);
                self.send(host, "A", seq(start), 5, Truth { end, has_data: true, ..truth });
            }
            Step::Ack { more, window } if now.is_alive => {
                self.hosts[host].acked += u64::from(more);
                let truth = Truth { ack: now.acked + u64::from(more), ..truth };
                self.send(host, "A", seq(now.sent), window.into(), truth);
            }
            Step::Fin if now.is_alive => {
                self.hosts[host].fin = true;
                self.send(host, "FA", seq(now.sent), 5, Truth { fin: true, ..truth });
            }
            Step::Reset if now.is_alive => {
                let is_gone = matches!(now.state, None | Some(SlotState::Open | SlotState::Free));
                self.send(host, "RA", seq(now.sent), 0, Truth { rst: true, ..truth });
                if is_gone {
                    (self.hosts[host].is_alive, self.hosts[host].state) = (false, None);
                }
            }
            Step::Stranger => {
                let id = self.truths.last_key_value().map_or(0, |(id, _)| id + 1);
                self.truths.insert(id, Truth { host: 0, birth: 0, ..truth });
                self.scene.segment(Segment::made(connection(77), "R", 1 << 31, 0, 0, 0));
                assert!(matches!(self.scene.verdicts.last(), Some((last, Verdict::Drop, _)) if *last == id));
                self.judge();
            }
            Step::Raise { received, sent } => {
                if let (Some(claim), Some(_)) = (now.claim, now.state) {
                    // Never more than there is.
                    let received = (now.marks.0 + u64::from(received)).min(now.acked).max(now.marks.0);
                    let sent = (now.marks.1 + u64::from(sent)).min(now.sent).max(now.marks.1);
                    self.hosts[host].marks = (received, sent);
                    self.scene.marks().set_watermarks(claim, received, sent);
                }
            }
            Step::State(state) => {
                if let (Some(claim), Some(_)) = (now.claim, now.state) {
                    let state =
                        [SlotState::Open, SlotState::Gated, SlotState::Closed][usize::from(state) - 1];
                    self.scene.marks().set_state(claim, state);
                    self.hosts[host].state = Some(state);
                }
            }
            Step::Lease(lease) => self.scene.lease = lease,
            Step::Release => {
                self.scene.release();
                self.judge();
            }
            Step::Restart => self.restart(),
            Step::Anew { iss, irs } => {
                if now.state != Some(SlotState::Closed) {
                    self.anew(host, iss, irs);
                }
            }
            Step::Claim if now.is_alive && now.state.is_none() => {
                let marks = (now.acked, now.sent);
                if let Some(claim) = now.claim {
                    self.scene.marks().free(claim);
                }
                let claim = self.scene.claim(host as u32, host as u16 + 1, SlotState::Gated, marks);
                let kept = &mut self.hosts[host];
                (kept.claim, kept.state, kept.marks) = (Some(claim), Some(SlotState::Gated), marks);
            }
            Step::Free => {
                if let Some(claim) = now.claim {
                    self.scene.marks().free(claim);
                    (self.hosts[host].claim, self.hosts[host].state) = (None, None);
                }
            }
            Step::Data { .. } | Step::Ack { .. } | Step::Fin | Step::Reset | Step::Claim => {}
        }
    }

    fn restart(&mut self) {
        let memory = &mut self.memory;
        self.scene.flows.take_changed(|number, record| kept::write(memory, number, record.as_ref()));
        // The kernel drops what waits.
        let mut verdicts = Vec::new();
        self.scene.flows.drop_held(&mut verdicts);
        self.scene.note(verdicts);
        self.judge();
        self.scene.flows = Flows::new(0, ROOM, key());
        self.scene.flows.restore(kept::read(&self.memory));
    }

    /// In the end all is replicated: what is not stuck by intention leaves.
    fn finish(&mut self) {
        self.scene.lease = true;
        for host in 0..self.hosts.len() {
            let now = &mut self.hosts[host];
            now.marks = (now.acked, now.sent);
            if let Some(claim) = now.claim {
                self.scene.marks().set_watermarks(claim, now.marks.0, now.marks.1);
            }
        }
        self.scene.release();
        self.judge();
        for id in self.scene.waiting() {
            let truth = self.truths[&id];
            assert!(self.hosts[truth.host].fin, "nothing waits but a FIN, and what is behind it");
        }
        for host in 0..self.hosts.len() {
            let now = &mut self.hosts[host];
            match (now.claim, now.state) {
                (Some(claim), Some(_)) => {
                    self.scene.marks().set_state(claim, SlotState::Open);
                    now.state = Some(SlotState::Open);
                }
                // That of a connection before. After a reset nobody knows that any more, and another gate may have bound it.
                (Some(claim), None) => assert!(self.scene.marks().free(claim)),
                (None, _) => {}
            }
        }
        self.scene.release();
        self.judge();
        assert_eq!(self.scene.flows.held(), 0);
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(400))]

    #[test]
    fn nothing_leaves_that_is_not_replicated_and_nothing_is_stuck(
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut run = Run::new();
        for (host, step) in &steps {
            run.step((*host).into(), step);
        }
        run.finish();
    }
}
