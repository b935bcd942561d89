//! A path whose only change is a new signature: it is passed on at a pace, and nothing else is.

use super::*;

const PACE: Duration = Duration::from_secs(5);
/// The table counts in ticks of a sixteenth of a second, and rounds up.
const TICK: Duration = Duration::from_millis(63);

/// A router with a peer that signs, at a pace.
struct Paced {
    pipeline: Pipeline,
    peer: PeerIndex,
    verifier: Verifier,
    now: Instant,
}

impl Paced {
    fn new(validation: BgpsecValidation) -> Self {
        let (mut pipeline, now) = (checked(always()), Instant::now());
        pipeline.set_bgpsec_pace(PACE);
        pipeline.set_now(now);
        let peer = up_secured(&mut pipeline, 1, validation);
        let mut paced = Self { pipeline, peer, verifier: Verifier::default(), now };
        paced.announce(7, 0);
        paced.answer();
        paced.pass(2 * PACE);
        assert_eq!((paced.version(), paced.pipeline.poll_timeout()), (Some(0), None));
        paced
    }

    /// Announces the path over this AS, signed with these keys.
    fn announce(&mut self, behind: u32, version: u8) {
        self.send(behind, true, version);
    }

    fn send(&mut self, behind: u32, is_good: bool, version: u8) {
        let path = path_by(&[Asn(behind), asn(1)], prefix(P), is_good, version);
        self.pipeline.update(self.peer, &update(&path, prefix(P))).expect("taken");
    }

    fn answer(&mut self) -> usize {
        self.verifier.answer(&mut self.pipeline, self.now)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.pipeline.set_now(self.now);
        settle(&mut self.pipeline, &mut []);
    }

    /// With which keys the path in the table is signed.
    fn version(&mut self) -> Option<u8> {
        let view = self.pipeline.explain(prefix(P)).into_iter().next()?;
        let path = view.attributes().iter().find(|attribute| attribute.code == 33)?.value.to_vec();
        let read = Path::parse(&path).expect("sound");
        let (segment, signature) =
            read.segments().zip(read.blocks().next()?.signatures()).next().expect("a hop");
        Some(signature.ski.0[19] ^ segment.asn.0 as u8)
    }
}

#[test]
fn of_new_signatures_the_last_one_passes_at_the_pace() {
    for validation in [BgpsecValidation::Log, BgpsecValidation::Prefer, BgpsecValidation::Require] {
        let mut router = Paced::new(validation);
        router.announce(7, 1);
        router.answer();
        assert_eq!(router.version(), Some(1), "the first one at once");
        for version in [2, 3] {
            router.pass(Duration::from_secs(1));
            router.announce(7, version);
            assert_eq!((router.answer(), router.version()), (1, Some(1)), "{validation:?}");
        }
        router.pass(PACE - Duration::from_secs(2) - TICK);
        assert_eq!(router.version(), Some(1));
        assert!(router.pipeline.poll_timeout().is_some_and(|at| at <= router.now + 2 * TICK));
        router.pass(2 * TICK);
        assert_eq!((router.version(), states(&mut router.pipeline, P)), (Some(3), vec![VALID]));
        assert_eq!((router.pipeline.poll_timeout(), router.answer()), (None, 0));
        // The one in use is back: nothing has changed.
        router.announce(7, 4);
        router.announce(7, 3);
        router.pass(2 * PACE);
        assert_eq!((router.version(), router.answer()), (Some(3), 0));
    }
}

#[test]
fn two_good_paths_in_turn_pass_no_faster_whoever_verifies() {
    for answers in [true, false] {
        let mut router = Paced::new(BgpsecValidation::Log);
        let (mut before, mut passed) = (router.version(), 0);
        for turn in 0..600 {
            router.announce(7, turn as u8 % 2);
            if answers {
                router.answer();
            }
            router.pass(Duration::from_millis(100));
            let now = router.version();
            passed += usize::from(now != before);
            before = now;
        }
        assert!((8..=13).contains(&passed), "{passed} in a minute, answered: {answers}");
    }
}

#[test]
fn a_withdrawal_a_verdict_and_another_attribute_do_not_wait() {
    for validation in [BgpsecValidation::Log, BgpsecValidation::Require] {
        let mut router = Paced::new(validation);
        let renewed = |router: &mut Paced| {
            router.announce(7, 1);
            router.answer();
            router.announce(7, 2);
            router.answer();
            assert_eq!(router.version(), Some(1));
        };
        renewed(&mut router);
        router.announce(8, 3);
        router.answer();
        assert_eq!(router.version(), Some(3), "another AS");
        router.pass(2 * PACE);
        assert_eq!(router.version(), Some(3), "nothing of the path before is left");
        router.announce(7, 0);
        router.answer();
        router.pass(2 * PACE);
        renewed(&mut router);
        router.send(7, false, 4);
        assert_eq!((router.version(), router.answer()), (Some(1), 1));
        assert_eq!(router.version(), Some(4));
        assert_eq!(states(&mut router.pipeline, P)[0].0, PathSecurity::NotValid);
        router.announce(7, 5);
        router.answer();
        assert_eq!((router.version(), states(&mut router.pipeline, P)), (Some(5), vec![VALID]));
        router.announce(7, 6);
        router.answer();
        router.pipeline.update(router.peer, &withdrawal(prefix(P))).expect("taken");
        assert_eq!(router.version(), None);
        router.pass(2 * PACE);
        assert_eq!((router.version(), router.pipeline.poll_timeout()), (None, None));
    }
}

#[test]
fn a_pace_of_nothing_lets_all_pass() {
    let mut router = Paced::new(BgpsecValidation::Log);
    router.pipeline.set_bgpsec_pace(Duration::ZERO);
    for version in 1..20 {
        router.announce(7, version);
        assert_eq!((router.answer(), router.version()), (1, Some(version)));
    }
}

#[test]
fn a_path_that_waits_is_verified_again_when_its_keys_change() {
    for names in [1, 2] {
        let mut router = Paced::new(BgpsecValidation::Require);
        for version in [1, 2] {
            router.announce(7, version);
            router.answer();
        }
        // A key of the path in use, or of the one that waits.
        router.verifier.missing.insert(Asn(7));
        router.pipeline.keys_changed([], [(Asn(7), ski_of(Asn(7), names))], false);
        router.pass(Duration::ZERO);
        assert_eq!(router.answer(), 1, "{names}");
        assert_eq!(router.version(), Some(2), "a verdict waits for nothing");
        assert_eq!(states(&mut router.pipeline, P), [(PathSecurity::NotValid, false)]);
    }
}

#[test]
fn a_valid_route_is_not_kept_for_longer_than_without_a_pace() {
    let mut router = Paced::new(BgpsecValidation::Require);
    for version in [1, 2] {
        router.announce(7, version);
        router.answer();
    }
    // It waits for its turn, and is replaced by one that nobody verifies.
    router.announce(7, 3);
    router.pass(HOLD);
    assert_eq!(router.version(), Some(3));
    assert_eq!(states(&mut router.pipeline, P), [(PathSecurity::Unverified, false)]);
}
