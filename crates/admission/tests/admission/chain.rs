use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_admission::{
    AddressProof, Attempt, Chain, Counters, Decision, Numbers, PeerState, PrefixTable, Pressure, Rate,
    RetryPolicy, Stage, Verdict,
};
use holdfast_types::Prefix;
use proptest::prelude::*;

use crate::admission::attempt::{Says, Try};

/// Says what it is told, attempt by attempt.
struct Fixed(&'static str, Vec<Verdict>);

impl Stage for Fixed {
    fn name(&self) -> &'static str {
        self.0
    }

    fn judge(&mut self, _: &mut dyn Attempt, _: Instant) -> Verdict {
        self.1.pop().unwrap_or(Verdict::Next)
    }
}

fn chain(stages: impl IntoIterator<Item = Fixed>) -> Chain {
    Chain::new(stages.into_iter().map(|stage| Box::new(stage) as Box<dyn Stage>))
}

fn counters(chain: &Chain, stage: &str) -> Counters {
    chain.counters().find(|(name, _)| *name == stage).expect("a stage").1
}

#[test]
fn the_first_that_decides_does_and_the_end_lets_in() {
    let now = Instant::now();
    let mut two = chain([
        Fixed("first", vec![Verdict::Next, Verdict::Accept, Verdict::Ignore]),
        Fixed("second", vec![Verdict::Refuse("no")]),
    ]);
    let mut decide = || two.decide(&mut Try::quic("192.0.2.1"), now);
    assert_eq!(decide(), Decision { verdict: Verdict::Ignore, stage: Some("first") });
    assert_eq!(decide(), Decision { verdict: Verdict::Accept, stage: Some("first") });
    assert_eq!(decide(), Decision { verdict: Verdict::Refuse("no"), stage: Some("second") });
    assert_eq!(decide(), Decision { verdict: Verdict::Accept, stage: None });
    assert_eq!(
        counters(&two, "first"),
        Counters { seen: 4, passed: 2, ignored: 1, accepted: 1, ..Counters::default() }
    );
    assert_eq!(counters(&two, "second"), Counters { seen: 2, passed: 1, refused: 1, ..Counters::default() });
}

#[test]
fn who_would_pass_is_not_counted() {
    let now = Instant::now();
    let verdicts = [
        (Verdict::Next, true),
        (Verdict::Accept, true),
        (Verdict::Retry, true),
        (Verdict::Wait("first"), true),
        (Verdict::Ignore, false),
        (Verdict::Refuse("no"), false),
    ];
    let mut two = chain([
        Fixed("first", verdicts.iter().rev().map(|(verdict, _)| *verdict).collect()),
        Fixed("second", Vec::new()),
    ]);
    for (verdict, passes) in verdicts {
        assert_eq!(two.would_pass(&mut Try::tcp("192.0.2.1"), now), passes, "{verdict:?}");
    }
    for stage in ["first", "second"] {
        assert_eq!(counters(&two, stage), Counters::default());
    }
    // Who can be asked for a proof has not given one.
    let mut asks = chain([Fixed("asks", vec![Verdict::Retry])]);
    assert!(!asks.would_pass(&mut Try::quic("192.0.2.1"), now));
}

#[test]
fn a_retry_that_is_not_possible_is_no_opinion() {
    let now = Instant::now();
    let mut one = chain([Fixed("asks", vec![Verdict::Retry, Verdict::Retry])]);
    assert_eq!(one.judge(&mut Try::quic("192.0.2.1"), now), Verdict::Retry);
    assert_eq!(one.judge(&mut Try::tcp("192.0.2.1"), now), Verdict::Accept);
    assert_eq!(counters(&one, "asks"), Counters { seen: 2, retried: 1, passed: 1, ..Counters::default() });
}

#[test]
fn who_waits_for_its_first_flight_is_counted_once_by_each_stage() {
    let (mut all, now) = (whole(&Numbers::default()), Instant::now());
    let mut attempt = Try::tls("192.0.2.1");
    assert_eq!(all.judge(&mut attempt, now), Verdict::Wait("hello"));
    assert_eq!(attempt.looks, 0);
    let seen = |all: &Chain| all.counters().map(|(_, counters)| counters.seen).collect::<Vec<_>>();
    assert_eq!(seen(&all), [1, 1, 1, 1, 1, 0, 0]);
    let mut says = Try { awaits_hello: false, ..attempt.clone() }.says(Says::Asks(b"\x02h3", None));
    assert_eq!(all.resume("hello", &mut says, now).stage, Some("hello"));
    assert_eq!(seen(&all), [1, 1, 1, 1, 1, 1, 0]);
    // The next one says nothing, for which nobody is refused.
    all.judge(&mut attempt, now);
    attempt.awaits_hello = false;
    assert_eq!(all.resume("hello", &mut attempt, now), Decision { verdict: Verdict::Accept, stage: None });
    assert_eq!(seen(&all), [2, 2, 2, 2, 2, 2, 1]);
    assert_eq!(counters(&all, "hello"), Counters { seen: 2, refused: 1, passed: 1, ..Counters::default() });
}

#[test]
fn a_wait_for_what_does_not_come_is_no_opinion_and_one_of_a_stage_that_has_gone_asks_all() {
    let mut waits = chain([Fixed("waits", vec![Verdict::Wait("waits"); 2]), Fixed("last", vec![])]);
    let now = Instant::now();
    assert_eq!(waits.judge(&mut Try::tcp("192.0.2.1"), now), Verdict::Accept);
    assert_eq!(counters(&waits, "waits"), Counters { seen: 1, passed: 1, ..Counters::default() });
    let mut attempt = Try::tls("192.0.2.1");
    assert_eq!(waits.resume("gone", &mut attempt, now).verdict, Verdict::Wait("waits"));
    assert_eq!(counters(&waits, "last").seen, 1);
}

#[test]
fn a_chain_goes_on_counting_where_the_former_was() {
    let mut former = chain([Fixed("stays", vec![Verdict::Ignore]), Fixed("goes", vec![])]);
    former.judge(&mut Try::quic("192.0.2.1"), Instant::now());
    let mut next = chain([Fixed("new", vec![]), Fixed("stays", vec![])]);
    next.go_on_from(&former);
    next.judge(&mut Try::quic("192.0.2.1"), Instant::now());
    assert_eq!(counters(&next, "stays"), Counters { seen: 2, ignored: 1, passed: 1, ..Counters::default() });
    assert_eq!(counters(&next, "new"), Counters { seen: 1, passed: 1, ..Counters::default() });
}

fn whole(numbers: &Numbers) -> Chain {
    let known: PrefixTable = ["192.0.2.0/24".parse::<Prefix>().expect("a prefix")].into_iter().collect();
    let pressure = Rc::new(Pressure::new(numbers));
    let peers = |attempt: &dyn Attempt| match attempt.remote().to_string().as_str() {
        "192.0.2.8:50000" => PeerState::Guest,
        "192.0.2.9:50000" => PeerState::Disabled,
        _ => PeerState::Wanted,
    };
    Chain::new(numbers.stages(&pressure, known, [b"qbgp".to_vec(), b"boq".to_vec()], peers))
}

#[test]
fn all_stages_stand_from_the_cheapest_to_the_dearest() {
    let names: Vec<_> = whole(&Numbers::default()).counters().map(|(name, _)| name).collect();
    assert_eq!(names, ["sources", "shed", "retry", "by-address", "peers", "hello", "handshakes"]);
}

#[test]
fn each_kind_of_attempt_ends_where_it_should() {
    let numbers = Numbers {
        load_handshakes: 4,
        most_handshakes: 8,
        priority_alpn: vec![b"qbgp".to_vec()],
        ..Numbers::default()
    };
    let host = "192.0.2.1";
    let ends = |attempt: Try| {
        let decision = whole(&numbers).decide(&mut attempt.clone(), Instant::now());
        let verdict = match decision.verdict {
            Verdict::Ignore => "ignore",
            Verdict::Refuse(_) => "refuse",
            Verdict::Retry => "retry",
            Verdict::Accept => "accept",
            Verdict::Wait(stage) => {
                assert_eq!(decision.stage, Some(stage));
                "wait"
            }
            Verdict::Next => panic!("no verdict"),
        };
        (verdict, decision.stage.unwrap_or("end"))
    };
    let boq = Says::Asks(b"\x03boq", None);
    assert_eq!(ends(Try::quic("198.51.100.1")), ("ignore", "sources"));
    assert_eq!(ends(Try::quic(host)), ("accept", "end"));
    assert_eq!(ends(Try::quic(host).among(4)), ("retry", "retry"));
    assert_eq!(ends(Try::quic_again(host).among(4)), ("accept", "end"));
    assert_eq!(ends(Try::quic_again("192.0.2.9")), ("refuse", "peers"));
    assert_eq!(ends(Try::quic(host).says(Says::Asks(b"\x02h3", None))), ("refuse", "hello"));
    assert_eq!(ends(Try::quic(host).says(Says::Part)), ("accept", "end"));
    assert_eq!(ends(Try::quic_again(host).among(8)), ("accept", "hello"));
    assert_eq!(ends(Try::quic_again(host).says(boq.clone()).among(8)), ("accept", "end"));
    assert_eq!(ends(Try::quic_again("192.0.2.8").says(boq).among(8)), ("refuse", "handshakes"));
    assert_eq!(ends(Try::quic_again(host).among(10)), ("refuse", "handshakes"));
    assert_eq!(ends(Try::tcp(host)), ("accept", "end"));
    assert_eq!(ends(Try::tcp(host).among(8)), ("accept", "end"));
    assert_eq!(ends(Try::tcp(host).among(10)), ("refuse", "handshakes"));
    assert_eq!(ends(Try::tcp("192.0.2.8").among(7)), ("accept", "end"));
    assert_eq!(ends(Try::tcp("192.0.2.8").among(8)), ("refuse", "handshakes"));
    assert_eq!(ends(Try::tls(host)), ("wait", "hello"));
    assert_eq!(ends(Try::tls(host).among(9)), ("wait", "hello"));
    assert_eq!(ends(Try::tls(host).among(10)), ("refuse", "handshakes"));
    assert_eq!(ends(Try::tls("192.0.2.9")), ("refuse", "peers"));
}

fn any_verdict(stage: &'static str) -> impl Strategy<Value = Verdict> {
    prop_oneof![
        3 => Just(Verdict::Next),
        1 => Just(Verdict::Ignore),
        1 => Just(Verdict::Refuse("no")),
        1 => Just(Verdict::Retry),
        1 => Just(Verdict::Wait(stage)),
        1 => Just(Verdict::Accept),
    ]
}

fn any_try() -> impl Strategy<Value = Try> {
    let says = prop_oneof![
        Just(Says::Asks(b"\x04qbgp", None)),
        Just(Says::Asks(b"\x02h3", Some("r1"))),
        Just(Says::Asks(b"", None)),
        Just(Says::Part),
        Just(Says::Nothing),
    ];
    let proof =
        prop_oneof![Just(AddressProof::None), Just(AddressProof::Token), Just(AddressProof::Handshake)];
    (0u8..12, says, proof, any::<bool>(), any::<bool>(), 0usize..14).prop_map(
        |(host, says, proof, can_retry, awaits_hello, handshakes)| {
            // One in four is from elsewhere.
            let net = if host % 4 == 0 { "198.51.100" } else { "192.0.2" };
            let attempt = Try::quic(&format!("{net}.{host}")).says(says).among(handshakes);
            Try { proof, can_retry, awaits_hello, ..attempt }
        },
    )
}

fn sum(counters: Counters) -> u64 {
    counters.passed + counters.ignored + counters.refused + counters.retried + counters.accepted
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn counters_add_up(
        first in proptest::collection::vec(any_verdict("first"), 0..30),
        second in proptest::collection::vec(any_verdict("second"), 0..30),
        attempts in proptest::collection::vec(any_try(), 0..40),
    ) {
        let mut two = chain([Fixed("first", first), Fixed("second", second)]);
        for attempt in &attempts {
            let (mut attempt, now) = (attempt.clone(), Instant::now());
            let mut verdict = two.judge(&mut attempt, now);
            while let Verdict::Wait(stage) = verdict {
                prop_assert!(attempt.awaits_hello);
                attempt.awaits_hello = false;
                verdict = two.resume(stage, &mut attempt, now).verdict;
            }
            prop_assert_ne!(verdict, Verdict::Next);
        }
        let (first, second) = (counters(&two, "first"), counters(&two, "second"));
        prop_assert_eq!((first.seen, second.seen), (attempts.len() as u64, first.passed));
        prop_assert_eq!((sum(first), sum(second)), (first.seen, second.seen));
    }

    #[test]
    fn whatever_comes_is_decided_counted_and_never_refused_unseen(
        retry in prop_oneof![Just(RetryPolicy::UnderLoad), Just(RetryPolicy::Always), Just(RetryPolicy::Never)],
        attempts in proptest::collection::vec((any_try(), 0u64..300), 0..60),
    ) {
        let numbers = Numbers {
            retry,
            load_handshakes: 4,
            load_attempts: 10,
            unvalidated: Rate { per_second: 20, burst: 10 },
            by_address: Rate { per_second: 1, burst: 3 },
            most_handshakes: 8,
            priority_alpn: vec![b"qbgp".to_vec()],
            ..Numbers::default()
        };
        let (mut chain, mut at) = (whole(&numbers), Instant::now());
        for (attempt, step) in &attempts {
            at += Duration::from_millis(*step);
            let mut attempt = attempt.clone();
            let mut decision = chain.decide(&mut attempt, at);
            if let Verdict::Wait(stage) = decision.verdict {
                prop_assert_eq!((stage, attempt.looks), ("hello", 0));
                attempt.awaits_hello = false;
                decision = chain.resume(stage, &mut attempt, at);
            }
            prop_assert!(attempt.looks <= 1);
            prop_assert!(!matches!(decision.verdict, Verdict::Next | Verdict::Wait(_)));
            match decision.verdict {
                Verdict::Retry => prop_assert!(attempt.can_retry && attempt.proof == AddressProof::None),
                Verdict::Refuse(_) if decision.stage == Some("hello") => {
                    prop_assert!(matches!(attempt.says, Says::Asks(..)));
                }
                Verdict::Refuse(_) if decision.stage != Some("peers") => {
                    prop_assert_ne!(attempt.proof, AddressProof::None);
                }
                Verdict::Accept => prop_assert!(attempt.handshakes < 10),
                Verdict::Next | Verdict::Wait(_) | Verdict::Ignore | Verdict::Refuse(_) => {}
            }
        }
        let mut seen = attempts.len() as u64;
        for (_, counters) in chain.counters() {
            prop_assert_eq!((counters.seen, sum(counters)), (seen, seen));
            seen = counters.passed;
        }
    }
}
