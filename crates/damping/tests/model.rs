//! The stage against a naive model, and inside a pipeline.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_bgp_pipeline::{
    Batch, Cause, CheckStage, FamilySet, PathRules, PathState, PeerConfig, PeerIndex, PeerKind, Pipeline,
    Release, RouteChange, SendPaths, SessionFacts, SetNumber, SpeakerConfig, Stage,
};
use holdfast_bgp_wire::{HEADER_LEN, MAX_LEN, Origin, UpdateEncoder, edit::AttributesBuilder};
use holdfast_damping::{BadParameters, CHANGE, Damping, Parameters, WITHDRAWAL};
use holdfast_policy::Program;
use holdfast_types::{Asn, Family, HashKey, Ipv4Prefix, Prefix, RouterId};
use proptest::{collection::vec, prelude::*};

const PEERS: u16 = 3;
const PREFIXES: usize = 3;

fn short() -> Parameters {
    Parameters {
        half_life: Duration::from_secs(10),
        suppress: 2000,
        reuse: 750,
        max_suppress: Duration::from_secs(40),
    }
}

/// What a list of times stands for.
fn grain() -> Duration {
    short().max_suppress / 1024
}

fn prefix(n: usize) -> Prefix {
    format!("10.{n}.0.0/16").parse().expect("a prefix")
}

#[derive(Clone, Debug)]
enum Op {
    /// A peer's route is this one from now on.
    Route(u16, usize, Option<u64>),
    /// The same by another policy.
    Policy(u16, usize, Option<u64>),
    Wait(Duration),
    Damped(u16, bool),
    ClearPrefix(usize),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let route = || (0..PEERS, 0..PREFIXES, proptest::option::of(0..3u64));
    prop_oneof![
        12 => route().prop_map(|(peer, prefix, route)| Op::Route(peer, prefix, route)),
        1 => route().prop_map(|(peer, prefix, route)| Op::Policy(peer, prefix, route)),
        6 => (0..4000u64).prop_map(|wait| Op::Wait(Duration::from_millis(wait))),
        1 => (0..60_000u64).prop_map(|wait| Op::Wait(Duration::from_millis(wait))),
        1 => (0..PEERS, any::<bool>()).prop_map(|(peer, damped)| Op::Damped(peer, damped)),
        1 => (0..PREFIXES).prop_map(Op::ClearPrefix),
        1 => Just(Op::Clear),
    ]
}

/// A route as the model sees it: penalties with their times, nothing else is kept.
#[derive(Clone, Default, Debug)]
struct Model {
    route: Option<u64>,
    penalties: Vec<(Duration, u32)>,
    /// Held back, as far as the stage has said.
    held: bool,
}

impl Model {
    /// The figure of merit, worked out from the beginning.
    fn merit(&self, at: Duration) -> f64 {
        let parameters = short();
        let half = parameters.half_life.as_secs_f64();
        let ceiling = f64::from(parameters.reuse) * (parameters.max_suppress.as_secs_f64() / half).exp2();
        let (mut merit, mut time) = (0.0, Duration::ZERO);
        for (when, penalty) in &self.penalties {
            merit *= (-(*when - time).as_secs_f64() / half).exp2();
            merit = (merit + f64::from(*penalty)).min(ceiling);
            time = *when;
        }
        merit * (-(at.saturating_sub(time)).as_secs_f64() / half).exp2()
    }
}

/// Stage and model side by side.
struct World {
    stage: Damping,
    start: Instant,
    now: Duration,
    routes: BTreeMap<(u16, usize), Model>,
    damped: [bool; PEERS as usize],
}

impl World {
    fn new() -> Self {
        let start = Instant::now();
        let mut stage = Damping::new(short(), start);
        (0..PEERS).for_each(|peer| stage.set_peer(PeerIndex(peer), true));
        let damped = [true; PEERS as usize];
        Self { stage, start, now: Duration::ZERO, routes: BTreeMap::new(), damped }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Route(peer, at, route) => self.change(Cause::Update, peer, at, route),
            Op::Policy(peer, at, route) => self.change(Cause::Policy, peer, at, route),
            Op::Wait(time) => self.wait(time),
            Op::Damped(peer, damped) => {
                self.stage.set_peer(PeerIndex(peer), damped);
                if !damped {
                    self.forget(|(other, _)| other == peer);
                }
                self.damped[usize::from(peer)] = damped;
            }
            Op::ClearPrefix(at) => {
                self.stage.clear_prefix(prefix(at));
                self.forget(|(_, other)| other == at);
            }
            Op::Clear => {
                self.stage.clear();
                self.forget(|_| true);
            }
        }
        self.work();
        self.compare();
    }

    fn forget(&mut self, which: impl Fn((u16, usize)) -> bool) {
        for (key, model) in &mut self.routes {
            if which(*key) {
                model.penalties.clear();
            }
        }
    }

    fn change(&mut self, cause: Cause, peer: u16, at: usize, route: Option<u64>) {
        let model = self.routes.entry((peer, at)).or_default();
        let old = std::mem::replace(&mut model.route, route);
        if old.is_none() && route.is_none() {
            return;
        }
        let number = |route: Option<u64>| route.map(SetNumber);
        let mut change =
            RouteChange { prefix: prefix(at), old: number(old), new: number(route), suppress: false };
        let penalty = match (old, route) {
            _ if cause == Cause::Policy || !self.damped[usize::from(peer)] => 0,
            (Some(_), None) => WITHDRAWAL,
            (Some(old), Some(new)) if old != new => CHANGE,
            _ => 0,
        };
        if penalty > 0 {
            model.penalties.push((self.now, penalty));
        }
        self.stage.push(&mut Batch {
            now: self.start + self.now,
            cause,
            peer: PeerIndex(peer),
            family: Family::IPV4_UNICAST,
            path: 0,
            attributes: None,
            changes: std::slice::from_mut(&mut change),
        });
        let merit = model.merit(self.now);
        model.held = match model.held {
            false => change.suppress && merit >= f64::from(short().suppress) - 1e-3,
            true => change.suppress,
        };
        assert_eq!(change.suppress, model.held, "figure of merit {merit}");
        assert!(model.held || merit < f64::from(short().suppress) + 1e-3, "{merit} is not held back");
        assert!(!model.held || merit > f64::from(short().reuse) - 1e-3, "{merit} is held back");
    }

    /// As the driver does: the stage works whenever it wants to.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.stage.poll_timeout().map(|at| at - self.start)
            && next <= end
        {
            assert!(next > self.now, "work is done when it is done");
            self.now = next;
            self.work();
        }
        self.now = end;
    }

    fn work(&mut self) {
        let mut released = Vec::new();
        while self.stage.work(self.start + self.now, 2, &mut released) {}
        for Release { peer, prefix: released } in released {
            let at = (0..PREFIXES).find(|at| prefix(*at) == released).expect("a route that was damped");
            let model = self.routes.get_mut(&(peer.0, at)).expect("a route that was damped");
            assert!(std::mem::take(&mut model.held), "let go twice");
            assert!(model.merit(self.now) < f64::from(short().reuse) + 1e-3, "let go too early");
        }
    }

    fn compare(&mut self) {
        let now = self.start + self.now;
        for (&(peer, at), model) in &self.routes {
            let held = self.stage.holds(now, PeerIndex(peer), prefix(at));
            assert_eq!(held.is_some(), model.held, "{held:?}");
            let late = model.merit(self.now.saturating_sub(2 * grain()));
            assert!(!model.held || late > f64::from(short().reuse) - 1e-3, "not let go in time");
        }
        let (flaps, _) = self.stage.flaps(now, None, usize::MAX);
        for flap in &flaps {
            let at = (0..PREFIXES).find(|at| prefix(*at) == flap.prefix).expect("a known prefix");
            let merit = self.routes[&(flap.peer.0, at)].merit(self.now);
            assert!((merit - f64::from(flap.penalty)).abs() < 1.001, "{merit} is shown as {}", flap.penalty);
        }
        let noted = |(peer, at): &(u16, usize)| {
            flaps.iter().any(|flap| flap.peer.0 == *peer && flap.prefix == prefix(*at))
        };
        for (key, model) in &mut self.routes {
            let merit = model.merit(self.now);
            assert!(noted(key) || merit < f64::from(CHANGE) / 2.0 + 1e-3, "{merit} is forgotten");
            assert!(!noted(key) || merit > f64::from(CHANGE) / 2.0 - 5.0, "{merit} is not forgotten");
            if !noted(key) {
                model.penalties.clear();
            }
        }
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn routes_are_held_back_and_let_go_as_their_figures_of_merit_say(ops in vec(op(), 1..120)) {
        let mut world = World::new();
        ops.iter().for_each(|op| world.run(op));
        // In the end all is forgotten.
        world.wait(Duration::from_secs(3600));
        world.work();
        prop_assert!(world.stage.flaps(world.start + world.now, None, 1).0.is_empty());
        prop_assert_eq!(world.stage.poll_timeout(), None);
    }
}

#[test]
fn parameters_that_do_nothing_are_refused() {
    let default = Parameters::default();
    assert_eq!(default.check(), Ok(()));
    let check = |parameters: Parameters| parameters.check();
    assert_eq!(check(Parameters { reuse: 0, ..default }), Err(BadParameters::Zero));
    assert_eq!(check(Parameters { half_life: Duration::ZERO, ..default }), Err(BadParameters::Zero));
    assert_eq!(check(Parameters { reuse: 6000, ..default }), Err(BadParameters::ReuseNotBelowSuppress));
    let never = Err(BadParameters::NeverSuppresses { ceiling: 12_000 });
    assert_eq!(check(Parameters { suppress: 12_001, ..default }), never);
}

/// An UPDATE for a prefix: an announcement with this MED, or a withdrawal.
fn update(route: Ipv4Prefix, med: Option<u32>) -> Vec<u8> {
    let (encoder, mut out) = (UpdateEncoder::new(MAX_LEN), Vec::new());
    match med {
        None => _ = encoder.withdraw([route], &mut out),
        Some(_) => {
            let attributes = AttributesBuilder {
                as_path: vec![Asn(65001)],
                next_hop: Some([192, 0, 2, 1].into()),
                med,
                ..AttributesBuilder::new(Origin::Igp)
            };
            encoder.announce(&attributes.build(), [route], &mut out).expect("room");
        }
    }
    out.split_off(HEADER_LEN)
}

fn speaker(start: Instant, damping: &Rc<RefCell<Damping>>) -> (Pipeline, PeerIndex) {
    let id = |bits| RouterId::new(bits).expect("not zero");
    let mut pipeline = Pipeline::new(SpeakerConfig::new(Asn(65000), id(1), HashKey::new([42, 0])));
    pipeline.observe(Rc::new(RefCell::new(CheckStage::default())));
    pipeline.add_stage(Box::new(damping.clone()), start);
    let peer = pipeline.add_peer(PeerConfig {
        name: "peer".into(),
        address: [192, 0, 2, 1].into(),
        asn: Asn(65001),
        kind: PeerKind::Ebgp,
        import: Some(Program::accept_all()),
        export: Some(Program::accept_all()),
        paths: PathRules::default(),
        send_paths: SendPaths::All,
    });
    damping.borrow_mut().set_peer(peer, true);
    let facts = SessionFacts {
        families: vec![Family::IPV4_UNICAST],
        four_octet_as: true,
        max_message_len: MAX_LEN,
        enhanced_refresh: false,
        orf_received: Vec::new(),
        long_lived: false,
        extended_next_hop: false,
        bgpsec_received: None,
        bgpsec_sent: None,
        identifiers_received: FamilySet::NONE,
        identifiers_sent: FamilySet::NONE,
        router_id: id(2),
        peer_address: [192, 0, 2, 1].into(),
        next_hop_v4: Some([192, 0, 2, 2].into()),
        next_hop_v6: None,
        link_local: None,
        interface: 0,
        number: 0,
        first_identifier: 0,
    };
    pipeline.peer_up(peer, facts).expect("room");
    (pipeline, peer)
}

#[test]
fn in_the_pipeline_a_flapping_route_is_no_candidate_until_it_is_let_go() {
    let start = Instant::now();
    let damping = Rc::new(RefCell::new(Damping::new(Parameters::default(), start)));
    let (mut pipeline, peer) = speaker(start, &damping);
    let route = "203.0.113.0/24".parse::<Ipv4Prefix>().expect("a prefix");
    // Six withdrawals at once are 6,000: the least that is held back.
    for _ in 0..6 {
        pipeline.update(peer, &update(route, Some(1))).expect("taken");
        assert_eq!(pipeline.explain(route.into())[0].state, PathState::Best);
        pipeline.update(peer, &update(route, None)).expect("taken");
    }
    pipeline.update(peer, &update(route, Some(1))).expect("taken");
    // 6,000 decay to 750 in three half-lives of 15 minutes.
    let held = |text: &'static str| PathState::Suppressed(text.into());
    assert_eq!(pipeline.explain(route.into())[0].state, held("damped (reuse in 45 min)"));
    pipeline.set_now(start + Duration::from_secs(44 * 60));
    while pipeline.work(10) {}
    assert_eq!(pipeline.explain(route.into())[0].state, held("damped (reuse in 60 s)"));
    // At 45 minutes it is 750, which is not below 750: the next reuse list is 3.5 s later.
    while let Some(next) = pipeline.poll_timeout()
        && next <= start + Duration::from_secs(45 * 60 + 4)
    {
        pipeline.set_now(next);
        while pipeline.work(10) {}
    }
    assert_eq!(pipeline.explain(route.into())[0].state, PathState::Best);
}

#[test]
fn the_end_of_a_session_is_no_flap_and_what_was_before_is_not_forgotten() {
    let start = Instant::now();
    let damping = Rc::new(RefCell::new(Damping::new(Parameters::default(), start)));
    let (mut pipeline, peer) = speaker(start, &damping);
    let route = "203.0.113.0/24".parse::<Ipv4Prefix>().expect("a prefix");
    for med in 0..3 {
        pipeline.update(peer, &update(route, Some(med))).expect("taken");
    }
    let penalty =
        || damping.borrow().flaps(start, None, 10).0.iter().map(|flaps| flaps.penalty).collect::<Vec<_>>();
    assert_eq!(penalty(), [2 * CHANGE]);
    pipeline.peer_down(peer);
    assert_eq!(penalty(), [2 * CHANGE]);
    pipeline.remove_peer(peer);
    assert!(penalty().is_empty(), "the next peer of this number is another");
}
