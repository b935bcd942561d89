//! What the members of a route server cost, each with a view and an export policy of its own: counted, so that it is the same
//! on every machine.

use std::cell::Cell;

use holdfast_bgp_pipeline::{Effort, NextHopMode, PathRules, PeerConfig, PeerIndex, Pipeline, SessionFacts};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_policy::{Action, Condition, Outcome, Program, Term};
use holdfast_types::{Asn, Prefix};

use crate::tests::pipeline::{
    journal::Entries,
    policies::program,
    speaker::{Sink, address, announcement, ebgp, facts, prefix, settle, speaker},
};

/// Prefixes of each member; every second has attributes of its own.
const EACH: u8 = 8;

/// What this member may have is what no other tags for it. Each policy is another.
fn export(n: u8) -> Program {
    let tag = Condition::Community(vec![format!("65000:{n}").parse().expect("a pattern")]);
    let refuse = Term { name: "no".into(), from: vec![tag], then: vec![], outcome: Outcome::Reject };
    let rest = Term { name: "rest".into(), from: vec![], then: vec![], outcome: Outcome::Accept };
    program(vec![refuse, rest])
}

/// Takes what is registered for the member, and marks it.
fn import(n: u8) -> Program {
    let range = format!("10.{n}.0.0/16 le 24").parse().expect("a range");
    let mark = Action::AddCommunities(vec![format!("65001:{n}").parse().expect("a community")]);
    let from = vec![Condition::Prefix(vec![range])];
    program(vec![Term { name: "registered".into(), from, then: vec![mark], outcome: Outcome::Accept }])
}

fn member(n: u8) -> PeerConfig {
    let paths = PathRules {
        route_server_client: true,
        own_view: true,
        enforce_first_as: false,
        ..PathRules::default()
    };
    PeerConfig { import: Some(import(n)), export: Some(export(n)), paths, ..ebgp(n) }
}

fn link(n: u8) -> SessionFacts {
    SessionFacts { number: u32::from(n) + 1, ..facts(n) }
}

fn routes(n: u8) -> Vec<Prefix> {
    (0..EACH).map(|route| prefix(&format!("10.{n}.{route}.0/24"))).collect()
}

/// Members, and what they are told.
struct Exchange {
    pipeline: Pipeline,
    sinks: Vec<(PeerIndex, Sink)>,
    journal: Entries,
}

impl Exchange {
    /// Without routes.
    fn new(members: u8, comes_up: impl Fn(&mut Pipeline, PeerIndex, u8)) -> Self {
        Self::go_on(members, Entries::default(), comes_up)
    }

    fn go_on(members: u8, journal: Entries, comes_up: impl Fn(&mut Pipeline, PeerIndex, u8)) -> Self {
        let mut pipeline = Pipeline::new(speaker(NextHopMode::AlwaysReachable));
        pipeline.keep_journal(Box::new(journal.clone()));
        let mut sinks = Vec::new();
        for n in 0..members {
            let peer = pipeline.add_peer(member(n));
            comes_up(&mut pipeline, peer, n);
            sinks.push((peer, Sink::default()));
        }
        Self { pipeline, sinks, journal }
    }

    /// From this member on each announces its own.
    fn announce(&mut self, first: u8) {
        for (n, (peer, _)) in (0..).zip(&self.sinks).skip(first.into()) {
            for (at, route) in (0..).zip(routes(n)) {
                let attributes = AttributesBuilder {
                    as_path: vec![Asn(65100 + u32::from(n)), Asn(64000 + at / 2)],
                    next_hop: Some(address(n)),
                    ..AttributesBuilder::new(Origin::Igp)
                };
                self.pipeline.update(*peer, &announcement(&attributes.build(), &[route])).expect("taken");
            }
        }
    }

    fn settle(&mut self) {
        settle(&mut self.pipeline, &mut self.sinks);
    }

    /// Each has what all others have.
    fn assert_whole(&self) {
        let wanted = (self.sinks.len() - 1) * usize::from(EACH);
        for (_, sink) in &self.sinks {
            assert_eq!((sink.routes.len(), sink.idle_withdrawals), (wanted, 0));
        }
    }

    /// The next process has the same routes, and the sessions go on one after the other.
    fn take_over(&mut self) {
        let sinks = std::mem::take(&mut self.sinks);
        let places: Vec<_> = sinks.iter().map(|(peer, _)| self.pipeline.journal_place(*peer)).collect();
        *self = Self::go_on(sinks.len() as u8, self.journal.clone(), |pipeline, peer, n| {
            pipeline.peer_resumed(peer, link(n)).expect("room");
        });
        self.sinks = sinks;
        self.announce(0);
        for (place, n) in places.into_iter().zip(0..) {
            let peer = self.sinks[n as usize].0;
            self.pipeline.resume(&[peer], self.journal.told(place), place);
        }
    }
}

fn up(pipeline: &mut Pipeline, peer: PeerIndex, n: u8) {
    pipeline.peer_up(peer, link(n)).expect("room");
}

/// What was done, by hundredths for each route and each member that is told of it; of what is done for routes, for each.
fn share(before: Effort, after: Effort, members: u8) -> [u64; 4] {
    let routes = u64::from(members) * u64::from(EACH);
    let told = routes * u64::from(members);
    [
        100 * (after.judged - before.judged) / told,
        100 * (after.exported - before.exported) / told,
        100 * (after.imported - before.imported) / routes,
        100 * (after.ordered - before.ordered) / routes,
    ]
}

#[test]
fn what_a_member_costs_for_a_route_is_the_same_however_many_members_there_are() {
    for members in [16, 32, 64] {
        // All are there before the first route.
        let mut exchange = Exchange::new(members, up);
        exchange.announce(0);
        exchange.settle();
        exchange.assert_whole();
        let shares = share(Effort::default(), exchange.pipeline.effort(), members);
        let bounds = [300, 60, 300, 300];
        assert!(shares.iter().zip(bounds).all(|(share, bound)| *share <= bound), "{members}: {shares:?}");
        // Another process goes on with all of them.
        let messages: Vec<_> = exchange.sinks.iter().map(|(_, sink)| sink.messages).collect();
        exchange.take_over();
        let before = exchange.pipeline.effort();
        exchange.settle();
        exchange.assert_whole();
        assert_eq!(exchange.sinks.iter().map(|(_, sink)| sink.messages).collect::<Vec<_>>(), messages);
        let shares = share(before, exchange.pipeline.effort(), members);
        let bounds = [200, 60, 100, 110];
        assert!(shares.iter().zip(bounds).all(|(share, bound)| *share <= bound), "{members}: {shares:?}");
        // All get other policies.
        let before = exchange.pipeline.effort();
        for (n, (peer, _)) in (0..).zip(&exchange.sinks) {
            exchange.pipeline.configure_peer(*peer, member(n));
        }
        exchange.settle();
        exchange.assert_whole();
        let shares = share(before, exchange.pipeline.effort(), members);
        let bounds = [800, 250, 400, 400];
        assert!(shares.iter().zip(bounds).all(|(share, bound)| *share <= bound), "{members}: {shares:?}");
    }
}

#[test]
fn a_walk_ends_with_the_turn_and_goes_on_where_it_was() {
    let mut exchange = Exchange::new(40, |pipeline, peer, n| match n {
        0 => {}
        _ => up(pipeline, peer, n),
    });
    exchange.announce(1);
    exchange.settle();
    let (peer, sink) = &mut exchange.sinks[0];
    up(&mut exchange.pipeline, *peer, 0);
    let (mut turns, asked) = (0, Cell::new(0));
    while exchange.pipeline.pending(*peer) {
        let before = exchange.pipeline.effort().judged;
        let is_over = || {
            asked.set(asked.get() + 1);
            true
        };
        if let Some(messages) = exchange.pipeline.pull_until(*peer, &is_over) {
            sink.take(&messages);
        }
        let judged = exchange.pipeline.effort().judged - before;
        assert!(judged <= 600, "{judged} paths were judged although the turn was over");
        turns += 1;
    }
    assert!(asked.get() >= 2 && turns >= 2, "{turns} turns");
    assert_eq!((sink.routes.len(), sink.idle_withdrawals), (39 * usize::from(EACH), 0));
    assert_eq!(sink.end_of_rib.len(), 2);
}
