//! Signing, and who hears of the keys in use, as `bgp` and the manager see it.

use std::time::Duration;

use holdfast_api::{
    pathsec::v1::{
        Configuration, Empty, Job, KeyState, PathSecClient, PrivateKey as Shown, SecretKey, Secrets, SignJob,
        SignReply, SignRequest, Signer as Told, Signers, State, ValidateRequest,
    },
    rpki::v1::Piece,
};
use holdfast_bgpsec_wire::{Nlri, Path, Segment, SignatureBlock, extend, octets_to_sign};
use holdfast_path_validation::{P256Signer, RouterKey, Validator};
use holdfast_process::seal;
use holdfast_tls::keys::{Algorithm, PrivateKey, sec1};
use holdfast_types::Asn;
use holdfast_xrl::{ErrorKind, ReplyStream, XrlError};
use prost::Message;
use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};

use super::{
    common::{Gate, SUITE, Scene, TARGET, job, run, status, their_key, unsigned},
    keys::{Running, delta, follows, full},
};
use crate::{
    queue::{MOST_UNDER_WAY, MOST_WAITING},
    signers::MOST_KEYS,
    signing::{MOST_JOB_OCTETS, MOST_JOBS, MOST_OCTETS},
};

const OURS: u32 = 64_496;

/// A private key of the router, as it travels.
struct Private {
    secret: SecretKey,
    signer: P256Signer,
}

impl Private {
    fn new(asn: u32) -> Self {
        let key = PrivateKey::generate(Algorithm::P256).expect("random numbers");
        let secret = SecretKey { asn, key: key.der().to_vec(), sign_from: 0 };
        let signer = P256Signer::from_der(Asn(asn), key.der()).expect("of P-256");
        Self { secret, signer }
    }

    fn public(&self) -> RouterKey {
        self.signer.router_key()
    }

    fn told(&self) -> Told {
        let RouterKey { asn, ski, .. } = self.public();
        Told { asn: asn.0, ski: ski.0.to_vec(), suite: 1 }
    }

    fn job(&self, octets: Vec<u8>) -> SignJob {
        let Told { asn, ski, suite } = self.told();
        SignJob { asn, ski, suite, octets }
    }
}

async fn keep(scene: &Scene, keys: Vec<SecretKey>) -> Result<Empty, XrlError> {
    let memory = seal(&Secrets { keys }.encode_to_vec()).expect("memory");
    scene.caller("manager").keep(Empty {}, vec![memory]).await
}

async fn configure(scene: &Scene, keys: &[&Private], caches: bool) {
    keep(scene, keys.iter().map(|key| key.secret.clone()).collect()).await.expect("taken");
    let told = Configuration { ases: vec![OURS, OURS + 1], caches, keys_per_ski: 0 };
    scene.caller("manager").configure(told).await.expect("taken");
}

async fn sign(bgp: &PathSecClient, jobs: Vec<SignJob>) -> Result<Vec<Vec<u8>>, XrlError> {
    bgp.sign(SignRequest { jobs }).await.map(|SignReply { signatures }| signatures)
}

async fn next(stream: &mut ReplyStream<Signers>) -> Vec<Told> {
    stream.next().await.expect("alive").expect("not the end").keys
}

/// Nothing is said.
async fn is_silent(stream: &mut ReplyStream<Signers>, seconds: u64) -> bool {
    timeout(Duration::from_secs(seconds), stream.next()).await.is_err()
}

#[test]
fn signatures_are_good_for_whoever_has_the_public_key() {
    run(async {
        let scene = Scene::new(2, Validator::default());
        let bgp = scene.caller("bgp");
        let mut keys = [Private::new(OURS), Private::new(OURS + 1)];
        // One as SEC 1, the other as PKCS#8.
        let read = PrivateKey::read(&keys[0].secret.key).expect("a key");
        keys[0].secret.key = sec1(&read).expect("of P-256");
        configure(&scene, &[&keys[0], &keys[1]], false).await;

        let nlri = Nlri::unicast("192.0.2.0/24".parse().expect("a prefix"));
        let (mut path, mut jobs): (Option<Vec<u8>>, Vec<Job>) = Default::default();
        for (key, target) in keys.iter().zip([OURS + 1, TARGET]) {
            let segment = Segment { pcount: 1, flags: 0, asn: key.public().asn };
            let before = path.as_deref().map(|octets| Path::parse(octets).expect("what we built"));
            let block = before.as_ref().map(|path| path.blocks().next().expect("a block"));
            let octets = octets_to_sign(before.as_ref().zip(block), 1, segment, Asn(target), &nlri);
            let signatures =
                sign(&bgp, vec![key.job(octets.clone()), key.job(octets)]).await.expect("signed");
            let block = SignatureBlock { suite: 1, ski: key.public().ski, signature: &signatures[1] };
            path = Some(extend(before.as_ref(), segment, &[block]).expect("it fits"));
            jobs.push(job(path.clone().expect("signed")));
        }
        scene.announce(keys.iter().map(Private::public)).await;
        let reply = bgp.validate(ValidateRequest { jobs: jobs.split_off(1) }).await.expect("judged");
        assert_eq!((reply.verdicts[0].state(), reply.verdicts[0].verified), (State::Valid, 2));

        // A reload gives the same keys anew.
        configure(&scene, &[&keys[0], &keys[1]], false).await;
        let status = status(&bgp).await;
        let counts: Vec<_> =
            status.private_keys.iter().map(|key| (key.asn, key.state(), key.signed)).collect();
        assert_eq!(counts, [(OURS, KeyState::InUse, 2), (OURS + 1, KeyState::InUse, 2)]);
        assert_eq!(status.signed, 4);
    });
}

#[test]
fn a_batch_has_its_bounds_and_its_order() {
    run(async {
        let scene = Scene::new(2, Validator::default());
        let bgp = scene.caller("bgp");
        let [key, before, foreign] = [OURS, OURS, 7].map(Private::new);
        configure(&scene, &[&before, &key, &foreign], false).await;
        let refused = async |jobs: Vec<SignJob>| {
            sign(&bgp, jobs).await.expect_err("too much").kind() == ErrorKind::InvalidArgument
        };
        let of = |octets| key.job(vec![1; octets]);
        assert!(sign(&bgp, vec![of(1); MOST_JOBS]).await.is_ok());
        assert!(refused(vec![of(1); MOST_JOBS + 1]).await, "a job more");
        assert!(sign(&bgp, vec![of(MOST_JOB_OCTETS)]).await.is_ok());
        assert!(refused(vec![of(MOST_JOB_OCTETS + 1)]).await, "an octet more");
        let all = |last| [vec![of(MOST_OCTETS / 8); 7], vec![of(last)]].concat();
        assert!(sign(&bgp, all(MOST_OCTETS / 8)).await.is_ok());
        assert!(refused(all(MOST_OCTETS / 8 + 1)).await, "an octet more in all");
        assert_eq!(sign(&bgp, Vec::new()).await, Ok(Vec::new()));

        // One that is superseded still signs: `bgp` may be in the middle of a change.
        let jobs = vec![Private::new(OURS).job(vec![1]), before.job(vec![1]), foreign.job(vec![1]), of(1)];
        let signatures = sign(&bgp, jobs).await.expect("signed");
        assert_eq!(signatures.iter().map(Vec::is_empty).collect::<Vec<_>>(), [true, false, true, false]);
        configure(&scene, &[&key], false).await;
        assert_eq!(sign(&bgp, vec![before.job(vec![1])]).await, Ok(vec![Vec::new()]), "it is gone");
    });
}

#[test]
fn what_is_judged_does_not_delay_what_is_signed() {
    run(async {
        let gate = Gate::default();
        let scene = Scene::new(1, Validator::default().with_suite(gate.clone()));
        scene.announce([their_key()]).await;
        let bgp = scene.caller("bgp");
        let key = Private::new(OURS);
        configure(&scene, &[&key], false).await;
        let request = || ValidateRequest { jobs: vec![job(unsigned(1, SUITE, 8)); 2] };
        let flood: Vec<_> = (0..MOST_UNDER_WAY + MOST_WAITING).map(|_| bgp.validate(request())).collect();
        while gate.begun() == 0 {
            yield_now().await;
        }
        let all = 0..MOST_UNDER_WAY + MOST_WAITING;
        let batches: Vec<_> = all.map(|_| bgp.sign(SignRequest { jobs: vec![key.job(vec![1])] })).collect();
        assert_eq!(status(&bgp).await.signed, 0, "the one thread stands in the middle of a part");
        let refused = bgp.sign(SignRequest::default()).await.expect_err("one more");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        gate.open();
        for batch in batches {
            assert_eq!(batch.await.expect("signed").signatures.len(), 1);
        }
        for batch in flood {
            batch.await.expect("judged");
        }
        sign(&bgp, vec![key.job(vec![1])]).await.expect("there is room again");
    });
}

#[test]
fn a_thread_signs_between_two_jobs_that_it_judges() {
    run(async {
        let gate = Gate::default();
        let scene = Scene::new(1, Validator::default().with_suite(gate.clone()));
        scene.announce([their_key()]).await;
        let bgp = scene.caller("bgp");
        let key = Private::new(OURS);
        configure(&scene, &[&key], false).await;
        let judged = bgp.validate(ValidateRequest { jobs: vec![job(unsigned(1, SUITE, 8)); 2] });
        while gate.begun() == 0 {
            yield_now().await;
        }
        let signed = bgp.sign(SignRequest { jobs: vec![key.job(vec![1])] });
        status(&bgp).await;
        gate.pass(1);
        let signed = timeout(Duration::from_secs(60), signed).await.expect("the gate is shut");
        assert_eq!(signed.expect("signed").signatures.len(), 1);
        gate.open();
        judged.await.expect("judged");
    });
}

#[test]
fn what_nobody_waits_for_is_not_signed() {
    run(async {
        let gate = Gate::default();
        let scene = Scene::new(1, Validator::default().with_suite(gate.clone()));
        scene.announce([their_key()]).await;
        let bgp = scene.caller("bgp");
        let key = Private::new(OURS);
        configure(&scene, &[&key], false).await;
        let judged = bgp.validate(ValidateRequest { jobs: vec![job(unsigned(1, SUITE, 8))] });
        while gate.begun() == 0 {
            yield_now().await;
        }
        let gone = scene.caller("bgp");
        let call = gone.sign(SignRequest { jobs: vec![key.job(vec![1]); MOST_JOBS] });
        gone.status(Empty {}).await.expect("it was taken");
        drop((gone, call));
        status(&bgp).await;
        let last = bgp.sign(SignRequest { jobs: vec![key.job(vec![1])] });
        status(&bgp).await;
        gate.open();
        judged.await.expect("judged");
        last.await.expect("signed");
        assert_eq!(status(&bgp).await.signed, 1);
    });
}

#[test]
fn keys_that_cannot_be_read_change_nothing() {
    run(async {
        let scene = Scene::new(1, Validator::default());
        let (bgp, manager) = (scene.caller("bgp"), scene.caller("manager"));
        let key = Private::new(OURS);
        configure(&scene, &[&key], false).await;
        let refused = |result: Result<Empty, XrlError>| {
            let error = result.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            error.message().to_owned()
        };
        refused(manager.keep(Empty {}, Vec::new()).await);
        let open = std::fs::File::open("/dev/null").expect("a file");
        assert!(refused(manager.keep(Empty {}, vec![open.into()]).await).contains("sealed memory"));
        let other = PrivateKey::generate(Algorithm::Ed25519).expect("random numbers");
        let other = SecretKey { asn: 7, key: other.der().to_vec(), sign_from: 0 };
        let text = refused(keep(&scene, vec![key.secret.clone(), other]).await);
        assert!(text.starts_with("AS 7: no private key of P-256"), "{text}");
        assert!(keep(&scene, vec![key.secret.clone(); MOST_KEYS]).await.is_ok());
        refused(keep(&scene, vec![key.secret.clone(); MOST_KEYS + 1]).await);
        assert_eq!(status(&bgp).await.private_keys.len(), 1, "what was kept is not in use yet");
        assert_eq!(bgp.keep(Empty {}, Vec::new()).await.expect_err("no manager").kind(), ErrorKind::Denied);
    });
}

#[test]
fn whoever_watches_hears_of_the_keys_in_use() {
    run(async {
        let scene = Scene::new(1, Validator::default());
        let bgp = scene.caller("bgp");
        let mut watch = bgp.watch_signers(Empty {});
        status(&bgp).await;
        let [a, b] = [OURS, OURS].map(Private::new);
        configure(&scene, &[&a], false).await;
        assert_eq!(next(&mut watch).await, [a.told()]);
        configure(&scene, &[&a], false).await;
        configure(&scene, &[&a, &b], false).await;
        assert_eq!(next(&mut watch).await, [b.told()], "the same again is no change");
        configure(&scene, &[], false).await;
        assert_eq!(next(&mut watch).await, []);
        let mut late = scene.caller("bgp").watch_signers(Empty {});
        assert_eq!(next(&mut late).await, []);
    });
}

#[test]
fn a_watcher_that_is_behind_is_told_the_latest_only() {
    run(async {
        let scene = Scene::new(1, Validator::default());
        let bgp = scene.caller("bgp");
        let mut watch = bgp.watch_signers(Empty {});
        let key = Private::new(OURS);
        configure(&scene, &[&key], false).await;
        assert_eq!(next(&mut watch).await, [key.told()]);
        // Nobody has a turn meanwhile.
        let none = scene.pathsec.keys.now();
        for ases in [vec![], vec![OURS], vec![], vec![OURS], vec![]] {
            scene.pathsec.private_keys.configure(&Configuration { ases, ..Configuration::default() }, &none);
        }
        assert_eq!(next(&mut watch).await, []);
        configure(&scene, &[&key], false).await;
        assert_eq!(next(&mut watch).await, [key.told()]);
    });
}

#[test]
fn caches_decide_when_the_next_key_is_used() {
    follows(async |finder, scene| {
        let bgp = scene.caller("bgp");
        let [a, b] = [OURS, OURS].map(Private::new);
        let [public_a, public_b] = [a.public(), b.public()];
        let mut watch = bgp.watch_signers(Empty {});
        configure(&scene, &[&a, &b], true).await;
        assert!(is_silent(&mut watch, 10).await, "nobody was heard");
        let running = Running::new(&finder).await;
        running.says(full(1, std::slice::from_ref(&public_a))).await;
        assert_eq!(next(&mut watch).await, [a.told()]);
        running.says(delta(2, std::slice::from_ref(&public_b), &[])).await;
        assert_eq!(next(&mut watch).await, [b.told()]);
        // Nobody confirms them any more.
        let both = [public_a.clone(), public_b.clone()];
        let expired = |piece| Piece { expired: true, ..piece };
        running.says(expired(delta(3, &[], &both))).await;
        assert!(is_silent(&mut watch, 200).await);
        assert_eq!(status(&bgp).await.router_keys, 0, "they have left");
        running.says(expired(delta(4, &[], &[]))).await;
        assert!(is_silent(&mut watch, 10).await, "others have expired as well");
        running.says(delta(5, &both, &[])).await;
        running.says(delta(6, &[], std::slice::from_ref(&public_b))).await;
        assert_eq!(next(&mut watch).await, [a.told()], "withdrawn");
        drop(running);
        let again = Running::new(&finder).await;
        again.says(full(1, &[])).await;
        assert_eq!(next(&mut watch).await, []);
        let states = status(&bgp).await.private_keys.iter().map(Shown::state).collect::<Vec<_>>();
        assert_eq!(states, [KeyState::Withdrawn; 2]);
    });
}

#[test]
fn an_rpki_that_hangs_keeps_nobody_from_signing() {
    follows(async |finder, scene| {
        let bgp = scene.caller("bgp");
        let [a, b] = [OURS, OURS].map(Private::new);
        let mut watch = bgp.watch_signers(Empty {});
        let running = Running::new(&finder).await;
        configure(&scene, &[&a, &b], true).await;
        assert!(is_silent(&mut watch, 14).await);
        assert_eq!(next(&mut watch).await, [b.told()]);
        running.says(full(1, &[a.public()])).await;
        assert_eq!(next(&mut watch).await, [a.told()], "it speaks");
        sleep(Duration::from_secs(20)).await;
    });
}
