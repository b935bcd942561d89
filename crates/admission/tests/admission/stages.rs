use std::{
    cell::Cell,
    net::Ipv6Addr,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_admission::{
    AddressProof, ByAddress, ByHello, Handshakes, Hello, MOST_ADDRESSES, Numbers, PeerState, Peers,
    PrefixTable, Pressure, Rate, Retry, RetryPolicy, Shed, Sources, Stage, Verdict,
};
use holdfast_tls_wire::{BadHello, Peek};
use holdfast_types::Prefix;
use proptest::prelude::*;

use crate::admission::attempt::{Says, Try};

const HOST: &str = "192.0.2.1";

#[test]
fn who_comes_from_elsewhere_gets_no_answer() {
    let known: PrefixTable = ["192.0.2.0/24".parse::<Prefix>().expect("a prefix")].into_iter().collect();
    let mut sources = Sources::new(known);
    let now = Instant::now();
    assert_eq!(sources.judge(&mut Try::quic(HOST), now), Verdict::Next);
    assert_eq!(sources.judge(&mut Try::quic("198.51.100.1"), now), Verdict::Ignore);
    assert_eq!(sources.judge(&mut Try::tcp("198.51.100.1"), now), Verdict::Ignore);
}

#[test]
fn what_is_not_proven_is_shed_and_nothing_else() {
    let mut shed = Shed::new(Rate { per_second: 1, burst: 2 });
    let now = Instant::now();
    let next: Vec<_> = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
        .iter()
        .map(|from| shed.judge(&mut Try::quic(from), now))
        .collect();
    assert_eq!(next, [Verdict::Next, Verdict::Next, Verdict::Ignore]);
    assert_eq!(shed.judge(&mut Try::quic_again(HOST), now), Verdict::Next);
    assert_eq!(shed.judge(&mut Try::tcp(HOST), now), Verdict::Next);
    assert_eq!(shed.judge(&mut Try::quic(HOST), now + Duration::from_secs(1)), Verdict::Next);
}

fn retry(policy: RetryPolicy) -> Retry {
    let numbers = Numbers { load_handshakes: 3, load_attempts: 100, ..Numbers::default() };
    Retry::new(policy, Rc::new(Pressure::new(&numbers)))
}

#[test]
fn a_proof_is_asked_for_as_the_policy_says() {
    let now = Instant::now();
    let rows = [
        (RetryPolicy::Always, 0, Verdict::Retry),
        (RetryPolicy::UnderLoad, 2, Verdict::Next),
        (RetryPolicy::UnderLoad, 3, Verdict::Retry),
        (RetryPolicy::Never, 9, Verdict::Next),
    ];
    for (policy, handshakes, verdict) in rows {
        assert_eq!(retry(policy).judge(&mut Try::quic(HOST).among(handshakes), now), verdict, "{policy:?}");
    }
}

#[test]
fn who_has_proven_its_address_or_cannot_is_not_asked() {
    let now = Instant::now();
    let mut retry = retry(RetryPolicy::Always);
    for mut attempt in [Try::quic_again(HOST), Try::tcp(HOST), Try { can_retry: false, ..Try::quic(HOST) }] {
        assert_eq!(retry.judge(&mut attempt, now), Verdict::Next);
    }
}

#[test]
fn many_attempts_are_load_and_tokens_are_none() {
    let now = Instant::now();
    let mut retry = retry(RetryPolicy::UnderLoad);
    for _ in 0..99 {
        assert_eq!(retry.judge(&mut Try::quic(HOST), now), Verdict::Next);
        assert_eq!(retry.judge(&mut Try::quic_again(HOST), now), Verdict::Next);
    }
    assert_eq!(retry.judge(&mut Try::quic(HOST), now), Verdict::Retry);
    assert_eq!(retry.judge(&mut Try::quic(HOST), now + Duration::from_secs(2)), Verdict::Next);
}

#[test]
fn who_comes_over_and_over_is_asked_without_load() {
    let now = Instant::now();
    let mut stage = retry(RetryPolicy::UnderLoad).by_address(Rate { per_second: 1, burst: 2 }, &[]);
    let rows = [
        (Try::quic(HOST), Verdict::Next),
        (Try::quic(HOST), Verdict::Next),
        (Try::quic(HOST), Verdict::Retry),
        // Nobody can have another one asked for more than a proof.
        (Try::quic_again(HOST), Verdict::Next),
        (Try::quic("192.0.2.2"), Verdict::Next),
    ];
    for (mut attempt, verdict) in rows {
        assert_eq!(stage.judge(&mut attempt, now), verdict, "{attempt:?}");
    }
    assert_eq!(stage.judge(&mut Try::quic(HOST), now + Duration::from_secs(1)), Verdict::Next);
}

const TOO_MANY: Verdict = Verdict::Refuse("too many attempts from its address");

#[test]
fn each_address_has_a_bucket_once_it_is_proven() {
    let (now, peer) = (Instant::now(), "2001:db8::9".parse::<Ipv6Addr>().expect("an address"));
    let mut stage = ByAddress::new(Rate { per_second: 1, burst: 1 }, &[peer.to_bits()]);
    let rows = [
        (Try::tcp("192.0.2.1"), Verdict::Next),
        (Try::tcp("192.0.2.1"), TOO_MANY),
        (Try::tcp("::ffff:192.0.2.1"), TOO_MANY),
        (Try::quic_again("192.0.2.1"), TOO_MANY),
        // Somebody else may have sent it.
        (Try::quic("192.0.2.1"), Verdict::Next),
        (Try::tcp("192.0.2.2"), Verdict::Next),
        // A /64 is one.
        (Try::tcp("2001:db8::1"), Verdict::Next),
        (Try::tcp("2001:db8::2"), TOO_MANY),
        (Try::tcp("2001:db8:0:1::1"), Verdict::Next),
        // But for a peer in it.
        (Try::tcp("2001:db8::9"), Verdict::Next),
        (Try::tcp("2001:db8::9"), TOO_MANY),
        // Not on a link, where each neighbour is one.
        (Try { scope: 2, ..Try::tcp("fe80::1") }, Verdict::Next),
        (Try { scope: 2, ..Try::tcp("fe80::1") }, TOO_MANY),
        (Try { scope: 2, ..Try::tcp("fe80::2") }, Verdict::Next),
        (Try { scope: 3, ..Try::tcp("fe80::1") }, Verdict::Next),
    ];
    for (mut attempt, verdict) in rows {
        assert_eq!(stage.judge(&mut attempt, now), verdict, "{attempt:?}");
    }
    assert_eq!(stage.judge(&mut Try::tcp("192.0.2.1"), now + Duration::from_secs(1)), Verdict::Next);
}

#[test]
fn so_many_addresses_are_remembered_and_the_one_that_comes_is_among_them() {
    let now = Instant::now();
    let mut stage = ByAddress::new(Rate { per_second: 0, burst: 1 }, &[]);
    assert_eq!(stage.judge(&mut Try::tcp(HOST), now), Verdict::Next);
    for other in 0..10 * MOST_ADDRESSES as u32 {
        let from = format!("10.{}.{}.{}", other >> 16, (other >> 8) & 255, other & 255);
        assert_eq!(stage.judge(&mut Try::tcp(&from), now), Verdict::Next);
        assert!(stage.remembered() <= MOST_ADDRESSES);
        if other % 1000 == 0 {
            assert_eq!(stage.judge(&mut Try::tcp(HOST), now), TOO_MANY);
        }
    }
    // One that has not come for so long is new.
    assert_eq!(stage.judge(&mut Try::tcp("10.0.0.0"), now), Verdict::Next);
}

#[test]
fn who_is_no_peer_or_a_disabled_one_is_refused() {
    let state = Rc::new(Cell::new(PeerState::Wanted));
    let mut peers = Peers::new({
        let state = state.clone();
        move |_: &dyn holdfast_admission::Attempt| state.get()
    });
    let mut judge = |is| {
        state.set(is);
        peers.judge(&mut Try::tcp(HOST), Instant::now())
    };
    for is in [PeerState::Wanted, PeerState::Guest] {
        assert_eq!(judge(is), Verdict::Next, "{is:?}");
    }
    for is in [PeerState::Disabled, PeerState::OtherTransport, PeerState::Nobody] {
        assert!(matches!(judge(is), Verdict::Refuse(_)), "{is:?}");
    }
}

fn by_hello() -> ByHello {
    ByHello::new([b"qbgp".to_vec(), b"boq".to_vec()])
        .server_names(["R1.example.net".to_owned()])
        .priority([b"qbgp".to_vec()], 8)
}

fn hello(says: Says, handshakes: usize) -> (Verdict, usize) {
    let mut attempt = Try::quic(HOST).says(says).among(handshakes);
    (by_hello().judge(&mut attempt, Instant::now()), attempt.looks)
}

#[test]
fn who_asks_for_what_is_not_here_is_refused() {
    let refused = |says| matches!(hello(says, 0), (Verdict::Refuse(_), 1));
    assert!(refused(Says::Asks(b"\x02h3", None)));
    assert!(refused(Says::Asks(b"", None)));
    assert!(refused(Says::Asks(b"\x02h3\x05botls", None)));
    assert!(refused(Says::Asks(b"\x04qbgp", Some("r2.example.net"))));
    for says in [
        Says::Asks(b"\x02h3\x04qbgp", None),
        Says::Asks(b"\x03boq", Some("r1.EXAMPLE.net")),
        // A list that is cut off, up to there.
        Says::Asks(b"\x04qbgp\x09h", None),
    ] {
        assert_eq!(hello(says, 0), (Verdict::Next, 1));
    }
}

#[test]
fn what_has_priority_passes_by_the_most_handshakes_up_to_a_quarter_more() {
    let (first, second) = (Says::Asks(b"\x04qbgp", None), Says::Asks(b"\x03boq", None));
    assert_eq!(hello(first.clone(), 7), (Verdict::Next, 1));
    assert_eq!(hello(first.clone(), 8), (Verdict::Accept, 1));
    assert_eq!(hello(second, 8), (Verdict::Next, 1));
    assert_eq!(hello(first.clone(), 9), (Verdict::Accept, 1));
    // Where it makes no difference, nobody looks.
    assert_eq!(hello(first.clone(), 10), (Verdict::Next, 0));
    let mut none = ByHello::new([b"qbgp".to_vec()]).priority([], 8);
    let mut attempt = Try::quic(HOST).says(first).among(8);
    assert_eq!(none.judge(&mut attempt, Instant::now()), Verdict::Next);
    assert_eq!(attempt.looks, 0);
}

#[test]
fn the_most_handshakes_are_the_most() {
    let now = Instant::now();
    let mut stage = Handshakes::new(8, |_: &dyn holdfast_admission::Attempt| PeerState::Guest);
    assert_eq!(stage.judge(&mut Try::quic(HOST).among(7), now), Verdict::Next);
    assert_eq!(stage.judge(&mut Try::quic(HOST).among(8), now), Verdict::Ignore);
    assert_eq!(
        stage.judge(&mut Try::quic_again(HOST).among(8), now),
        Verdict::Refuse("too many handshakes are under way")
    );
    assert_eq!(
        stage.judge(&mut Try::tcp(HOST).among(9), now),
        Verdict::Refuse("too many handshakes are under way")
    );
}

#[test]
fn who_is_configured_by_address_has_room_where_those_of_ranges_have_none() {
    let now = Instant::now();
    let mut stage = Handshakes::new(8, |_: &dyn holdfast_admission::Attempt| PeerState::Wanted);
    for handshakes in [8, 9] {
        assert_eq!(stage.judge(&mut Try::tcp(HOST).among(handshakes), now), Verdict::Next);
        assert_eq!(stage.judge(&mut Try::quic_again(HOST).among(handshakes), now), Verdict::Next);
        // Anybody may say that.
        assert_eq!(stage.judge(&mut Try::quic(HOST).among(handshakes), now), Verdict::Ignore);
    }
    let refused = Verdict::Refuse("too many handshakes are under way");
    assert_eq!(stage.judge(&mut Try::tcp(HOST).among(10), now), refused);
}

#[test]
fn what_cannot_be_read_is_not_known() {
    let bad: Result<Peek<'_>, _> = Err(BadHello::NotAscii);
    assert_eq!(Hello::from(bad), Hello::Unsupported);
    assert_eq!(Hello::from(Ok::<_, BadHello>(Peek::Other)), Hello::Unsupported);
    assert_eq!(Hello::from(Ok::<_, BadHello>(Peek::Incomplete)), Hello::Incomplete);
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn who_could_not_look_refuses_nobody(
        part in any::<bool>(),
        handshakes in 0usize..20,
        protocols in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..5), 0..3),
        names in proptest::collection::vec("[a-z]{1,5}", 0..3),
        priority in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..5), 0..3),
    ) {
        let mut stage = ByHello::new(protocols).server_names(names).priority(priority, 8);
        let says = if part { Says::Part } else { Says::Nothing };
        let verdict = stage.judge(&mut Try::quic(HOST).says(says).among(handshakes), Instant::now());
        prop_assert_eq!(verdict, Verdict::Next);
    }

    #[test]
    fn no_address_gets_more_than_its_rate_whoever_else_comes(
        burst in 1u32..5,
        steps in proptest::collection::vec((0u8..4, 0u64..500), 1..200),
    ) {
        let rate = Rate { per_second: 2, burst };
        let (mut stage, start, mut at) = (ByAddress::new(rate, &[]), Instant::now(), 0);
        let mut passed = [0u64; 4];
        for (host, step) in steps {
            at += step;
            let mut attempt = Try { proof: AddressProof::Token, ..Try::quic(&format!("192.0.2.{host}")) };
            let verdict = stage.judge(&mut attempt, start + Duration::from_millis(at));
            passed[usize::from(host)] += u64::from(verdict == Verdict::Next);
        }
        for count in passed {
            prop_assert!(count * 1000 <= u64::from(burst) * 1000 + 2 * at);
        }
    }
}
