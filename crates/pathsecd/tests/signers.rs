//! Which key is in use, by what the configuration, caches and time say.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use holdfast_api::pathsec::v1::{
    KeyState::{self, *},
    PrivateKey,
};
use holdfast_path_validation::{P256Signer, RouterKey};
use holdfast_types::Asn;
use tokio::time::Instant;

use crate::{
    signers::{Given, PATIENCE, Signers},
    signing::Key,
};

const OURS: u32 = 64_496;
const SECOND: Duration = Duration::from_secs(1);

fn given(asn: u32, sign_from: u64) -> Given {
    let signer = P256Signer::generate(Asn(asn)).expect("random numbers");
    Given { key: Arc::new(Key::new(signer)), sign_from }
}

/// Signers and what is around them.
struct Stage {
    signers: Signers,
    given: Vec<Given>,
    published: BTreeSet<RouterKey>,
    now: Instant,
    wall: u64,
}

impl Stage {
    /// With a key of ours for each of these times.
    fn new(sign_from: &[u64]) -> Self {
        let given = sign_from.iter().map(|time| given(OURS, *time)).collect();
        let (signers, published) = Default::default();
        Self { signers, given, published, now: Instant::now(), wall: 1000 }
    }

    fn configure(&mut self, has_caches: bool) -> Vec<KeyState> {
        let ases = [Asn(OURS), Asn(OURS + 1)].into();
        let is_published = |key: &RouterKey| self.published.contains(key);
        self.signers.configure(&self.given, ases, has_caches, is_published, self.now);
        self.decide()
    }

    /// Caches publish these keys from now on, by their places.
    fn heard(&mut self, places: &[usize], withdraws: bool) -> Vec<KeyState> {
        self.published = places.iter().map(|place| self.given[*place].key.public.clone()).collect();
        self.signers.heard(|key| self.published.contains(key), withdraws);
        self.decide()
    }

    fn after(&mut self, time: Duration) -> Vec<KeyState> {
        self.now += time;
        self.wall += time.as_secs();
        self.decide()
    }

    /// What is to be heard.
    fn decide(&mut self) -> Vec<KeyState> {
        self.signers.decide(self.now, self.wall).into_iter().map(|event| event.state).collect()
    }

    fn states(&self) -> Vec<KeyState> {
        self.signers.shown().iter().map(PrivateKey::state).collect()
    }

    /// The places of the keys in use; `None`: that is not known.
    fn in_use(&self) -> Option<Vec<usize>> {
        let place = |ski: &[u8]| self.given.iter().position(|given| given.key.public.ski.0 == ski);
        let used = self.signers.in_use()?;
        Some(used.iter().map(|key| place(&key.ski).expect("one of them")).collect())
    }

    fn timeout(&self) -> Option<Duration> {
        self.signers.timeout(self.now, self.wall)
    }
}

#[test]
fn nothing_is_said_before_the_configuration() {
    assert!(Signers::default().in_use().is_none());
    let mut stage = Stage::new(&[]);
    assert!(stage.configure(true).is_empty(), "without keys nobody is waited for");
    assert_eq!((stage.in_use(), stage.timeout()), (Some(Vec::new()), None));
}

#[test]
fn without_caches_the_last_of_each_as_is_in_use() {
    let mut stage = Stage::new(&[0, 0]);
    stage.given.extend([given(OURS + 1, 0), given(7, 0)]);
    assert_eq!(stage.configure(false), [InUse, InUse, Foreign]);
    assert_eq!(stage.states(), [Superseded, InUse, InUse, Foreign]);
    assert_eq!((stage.in_use(), stage.timeout()), (Some(vec![1, 2]), None));
    assert_eq!(stage.configure(false), [], "nothing has changed");
    stage.given.swap(0, 1);
    assert_eq!(stage.configure(false), [InUse]);
    assert_eq!(stage.in_use(), Some(vec![1, 2]), "the order counts");
}

#[test]
fn the_next_key_is_in_use_when_a_cache_publishes_it() {
    let mut stage = Stage::new(&[0, 0]);
    assert_eq!(stage.configure(true), []);
    assert_eq!((stage.states(), stage.in_use()), (vec![Unspecified; 2], None), "nobody was heard");
    assert_eq!(stage.timeout(), Some(PATIENCE));
    assert_eq!(stage.heard(&[0], true), [InUse]);
    assert_eq!((stage.states(), stage.in_use()), (vec![InUse, Unpublished], Some(vec![0])));
    assert_eq!(stage.timeout(), Some(PATIENCE));
    assert_eq!(stage.after(PATIENCE - SECOND), [], "it may be on its way");
    assert_eq!(stage.after(SECOND), [Unpublished]);
    assert_eq!((stage.after(SECOND), stage.timeout()), (vec![], None), "once");
    assert_eq!(stage.heard(&[0, 1], true), [InUse]);
    assert_eq!((stage.states(), stage.in_use()), (vec![Superseded, InUse], Some(vec![1])));
}

#[test]
fn what_was_heard_before_the_configuration_counts() {
    let mut stage = Stage::new(&[0, 0]);
    stage.heard(&[0], true);
    assert_eq!(stage.in_use(), None, "there are no keys yet");
    assert_eq!(stage.configure(true), [InUse]);
    assert_eq!(stage.in_use(), Some(vec![0]));
}

#[test]
fn a_dead_cache_keeps_nobody_from_signing_and_counts_when_it_speaks() {
    let mut stage = Stage::new(&[0, 0]);
    stage.configure(true);
    assert_eq!(stage.after(PATIENCE - SECOND), []);
    assert_eq!(stage.in_use(), None);
    assert_eq!(stage.after(SECOND), [InUse]);
    assert_eq!((stage.in_use(), stage.timeout()), (Some(vec![1]), None));
    assert_eq!(stage.heard(&[], true), []);
    assert_eq!((stage.states(), stage.in_use()), (vec![Unpublished; 2], Some(Vec::new())));
    assert_eq!(stage.after(PATIENCE), [Unpublished, Unpublished]);
}

#[test]
fn what_expires_stays_in_use_and_what_is_withdrawn_does_not() {
    let mut stage = Stage::new(&[0, 0]);
    stage.configure(true);
    stage.heard(&[0, 1], true);
    assert_eq!(stage.heard(&[], false), [], "nobody confirms them");
    assert_eq!(stage.in_use(), Some(vec![1]));
    assert_eq!(stage.heard(&[0], true), [InUse, Withdrawn]);
    assert_eq!((stage.states(), stage.in_use()), (vec![InUse, Withdrawn], Some(vec![0])));
    assert_eq!(stage.heard(&[], true), [Withdrawn]);
    assert_eq!((stage.in_use(), stage.timeout()), (Some(Vec::new()), None), "there is no signer left");
    assert_eq!(stage.heard(&[1], false), [InUse], "it is back");
}

#[test]
fn a_key_waits_for_its_time_whatever_becomes_of_the_clock() {
    let mut stage = Stage::new(&[0, 1030]);
    assert_eq!(stage.configure(false), [InUse]);
    assert_eq!((stage.states(), stage.timeout()), (vec![InUse, Waiting], Some(30 * SECOND)));
    stage.given[1].sign_from = 5000;
    stage.configure(false);
    assert_eq!(stage.timeout(), Some(60 * SECOND), "the clock may be set meanwhile");
    stage.given[1].sign_from = 1030;
    stage.configure(false);
    assert_eq!(stage.after(29 * SECOND), []);
    assert_eq!(stage.after(SECOND), [InUse]);
    assert_eq!(stage.in_use(), Some(vec![1]));
    stage.wall = 0;
    assert_eq!((stage.decide(), stage.states()), (vec![], vec![Superseded, InUse]), "it has begun");
    stage.given[1].sign_from = 1031;
    stage.configure(false);
    assert_eq!(stage.states(), [InUse, Waiting], "another time");
}

#[test]
fn a_reload_keeps_what_is_known_of_a_key() {
    let mut stage = Stage::new(&[0, 0]);
    stage.configure(true);
    stage.heard(&[0, 1], true);
    stage.heard(&[0], true);
    let key = Arc::clone(&stage.given[1].key);
    // The manager gives the same keys anew.
    stage.given.push(given(OURS, 0));
    assert_eq!(stage.configure(true), []);
    assert_eq!(stage.states(), [InUse, Withdrawn, Unpublished]);
    assert_eq!(stage.after(PATIENCE), [Unpublished], "of the new one alone");
    let found = stage.signers.key(Asn(OURS), &key.public.ski.0, 1).expect("it is configured");
    assert!(Arc::ptr_eq(&found, &key), "its signatures are counted on");
    // Without caches all count; with caches again, they are awaited, and what was decided holds until then.
    assert_eq!(stage.configure(false), [InUse]);
    assert_eq!(stage.states(), [Superseded, Superseded, InUse]);
    assert_eq!(stage.configure(true), []);
    assert_eq!((stage.in_use(), stage.timeout()), (Some(vec![2]), Some(PATIENCE)));
    assert_eq!(stage.heard(&[0], true), [InUse, Withdrawn]);
    assert_eq!(stage.in_use(), Some(vec![0]));
}

#[test]
fn only_keys_of_ours_are_found_whether_they_are_in_use_or_not() {
    let mut stage = Stage::new(&[0, 0]);
    stage.given.push(given(7, 0));
    stage.configure(false);
    let keys: Vec<_> = stage.given.iter().map(|given| given.key.public.clone()).collect();
    let found = |key: &RouterKey, suite| stage.signers.key(key.asn, &key.ski.0, suite).is_some();
    assert_eq!(keys.iter().map(|key| found(key, 1)).collect::<Vec<_>>(), [true, true, false]);
    assert!(!found(&keys[0], 2));
    assert!(stage.signers.key(Asn(OURS + 1), &keys[0].ski.0, 1).is_none(), "of another AS");
    assert!(stage.signers.key(Asn(OURS), &keys[0].ski.0[..19], 1).is_none());
}
