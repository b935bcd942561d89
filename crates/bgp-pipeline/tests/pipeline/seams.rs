//! The contract between stages, and that breaking it is noticed wherever it is broken.

use std::{
    cell::RefCell,
    net::Ipv4Addr,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use holdfast_bgp_pipeline::{
    CheckStage, NextHopMode, Observer, OriginateAttributes, PeerIndex, Pipeline, RouteEvent, Seam, StreamKey,
};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_types::Asn;

use crate::tests::pipeline::speaker::{Sink, announcement, ebgp, facts, prefix, settle, speaker, withdrawal};

/// What a broken stage does to one change that it hands on.
#[derive(Copy, Clone, Debug)]
enum Breakage {
    Lost,
    Twice,
}

/// A check that sees the changes at one seam as if the stage before it had broken one of them.
#[derive(Debug)]
struct Broken {
    check: CheckStage,
    seam: Seam,
    breakage: Breakage,
    /// Which change at that seam.
    nth: usize,
    passed: usize,
}

impl Observer for Broken {
    fn pass(&mut self, passage: &RouteEvent) {
        self.passed += usize::from(passage.seam == self.seam);
        match self.breakage {
            Breakage::Lost if passage.seam == self.seam && self.passed == self.nth => {}
            Breakage::Twice if passage.seam == self.seam && self.passed == self.nth => {
                self.check.pass(passage);
                self.check.pass(passage);
            }
            Breakage::Lost | Breakage::Twice => self.check.pass(passage),
        }
    }

    fn fork(&mut self, from: StreamKey, to: StreamKey) {
        self.check.fork(from, to);
    }

    fn join(&mut self, lane: StreamKey, into: StreamKey) {
        self.check.join(lane, into);
    }

    fn end(&mut self, lane: StreamKey) {
        self.check.end(lane);
    }
}

/// A route that comes, changes, gives way to a better one and goes: every seam sees it added, replaced and deleted.
fn story(observer: Rc<RefCell<dyn Observer>>) {
    let mut pipeline = Pipeline::new(speaker(NextHopMode::AlwaysReachable));
    pipeline.observe(observer);
    pipeline.rib_resync();
    let peers: Vec<PeerIndex> = [1, 2].map(|n| pipeline.add_peer(ebgp(n))).to_vec();
    for (peer, n) in peers.iter().zip([1, 2]) {
        pipeline.peer_up(*peer, facts(n)).expect("room");
    }
    let mut sinks = [(peers[1], Sink::default()), (peers[0], Sink::default())];
    let to = prefix("203.0.113.0/24");
    let mut send = |pipeline: &mut Pipeline, body: &[u8]| {
        pipeline.update(peers[0], body).expect("taken");
        settle(pipeline, &mut sinks);
        while pipeline.pull_rib(10).is_some() {}
    };
    for med in 1..=3 {
        let attributes = AttributesBuilder {
            as_path: vec![Asn(65101)],
            next_hop: Some(Ipv4Addr::new(192, 0, 2, 1)),
            med: Some(med),
            ..AttributesBuilder::new(Origin::Igp)
        };
        send(&mut pipeline, &announcement(&attributes.build(), &[to]));
    }
    send(&mut pipeline, &withdrawal(to));
    pipeline.originate(prefix("198.51.100.0/24"), &OriginateAttributes::default());
    send(&mut pipeline, &withdrawal(to));
}

#[test]
fn the_contract_holds_at_every_seam_and_nothing_is_left_behind() {
    let check = Rc::new(RefCell::new(CheckStage::default()));
    story(check.clone());
    let held = Seam::ALL.map(|seam| check.borrow().held(seam));
    assert_eq!(held, [1, 1, 1, 1, 1, 1, 0, 0], "our own route, which the RIB is not told of");
}

#[test]
fn a_stage_that_loses_or_repeats_a_change_is_caught_at_its_seam() {
    for seam in Seam::ALL {
        // The addition, a replacement, the deletion.
        for (breakage, nth) in
            [(Breakage::Lost, 1), (Breakage::Lost, 2), (Breakage::Twice, 2), (Breakage::Twice, 4)]
        {
            let broken = Broken { check: CheckStage::default(), seam, breakage, nth, passed: 0 };
            let broken: Rc<RefCell<dyn Observer>> = Rc::new(RefCell::new(broken));
            let outcome = catch_unwind(AssertUnwindSafe(|| story(broken)));
            let text = outcome.expect_err(&format!("{seam:?}, {breakage:?} {nth}: not noticed"));
            let text = text.downcast_ref::<String>().expect("a message");
            assert!(
                text.contains("contract between stages") && text.contains(&format!("{seam:?}")),
                "{text}"
            );
        }
    }
}

/// A router with routes, one of which has been withdrawn from it behind its own back.
#[test]
fn a_violation_in_a_running_router_is_found_once_and_ends_nothing() {
    let mut pipeline = Pipeline::new(speaker(NextHopMode::AlwaysReachable));
    let peers: Vec<PeerIndex> = [1, 2].map(|n| pipeline.add_peer(ebgp(n))).to_vec();
    for (peer, n) in peers.iter().zip([1, 2]) {
        pipeline.peer_up(*peer, facts(n)).expect("room");
    }
    let mut sinks = [(peers[1], Sink::default())];
    let announce = |pipeline: &mut Pipeline, med: u32, last: u8| {
        let attributes = AttributesBuilder {
            as_path: vec![Asn(65101)],
            next_hop: Some(Ipv4Addr::new(192, 0, 2, 1)),
            med: Some(med),
            ..AttributesBuilder::new(Origin::Igp)
        };
        let to = prefix(&format!("203.0.113.{last}/32"));
        pipeline.update(peers[0], &announcement(&attributes.build(), &[to])).expect("taken");
    };
    (0..50).for_each(|last| announce(&mut pipeline, 1, last));
    settle(&mut pipeline, &mut sinks);

    pipeline.check_consistency(true);
    assert!(pipeline.work(10) && !pipeline.is_consistency_checked(), "in slices");
    settle(&mut pipeline, &mut sinks);
    assert!(pipeline.is_consistency_checked());
    (0..50).for_each(|last| announce(&mut pipeline, 2, last));
    settle(&mut pipeline, &mut sinks);
    assert_eq!((pipeline.poll_violation(), pipeline.violations()), (None, 0));

    pipeline.lose_a_change(prefix("203.0.113.7/32"));
    (0..50).for_each(|last| announce(&mut pipeline, 3, last));
    (0..50).for_each(|last| announce(&mut pipeline, 4, last));
    settle(&mut pipeline, &mut sinks);
    let violation = pipeline.poll_violation().expect("one");
    let RouteEvent { seam, prefix: to, .. } = violation.event;
    assert_eq!((seam, to, pipeline.violations()), (Seam::DecisionToFanout, prefix("203.0.113.7/32"), 1));
    assert_eq!(sinks[0].1.routes.len(), 50, "nothing else is wrong");

    pipeline.check_consistency(false);
    settle(&mut pipeline, &mut sinks);
    announce(&mut pipeline, 5, 7);
    assert_eq!((pipeline.poll_violation(), pipeline.violations()), (None, 1), "it is over, and counted");
}
