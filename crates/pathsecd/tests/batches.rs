//! How much may be asked for, and what becomes of it.

use holdfast_api::pathsec::v1::{Empty, Job, PathSecClient, State, ValidateRequest};
use holdfast_path_validation::{Change, P256Signer, Validator};
use holdfast_xrl::ErrorKind;
use tokio::task::yield_now;

use super::common::{
    Gate, SUITE, Scene, job, run, signed, signers, state, status, their_key, unsigned, validate,
};
use crate::{
    queue::{MOST_UNDER_WAY, MOST_WAITING},
    workers::{MOST_HOPS, MOST_JOBS, MOST_PATH_OCTETS},
};

#[test]
fn a_batch_has_its_bounds() {
    run(async {
        let scene = Scene::new(2, Validator::default());
        let bgp = scene.caller("bgp");
        let of = |hops| job(unsigned(hops, 1, 8));
        let refused = async |jobs: &[Job]| {
            validate(&bgp, jobs).await.expect_err("too much").kind() == ErrorKind::InvalidArgument
        };
        let hops = MOST_HOPS / MOST_JOBS;
        let mut jobs = vec![of(hops); MOST_JOBS];
        let reply = validate(&bgp, &jobs).await.expect("as much as there may be");
        assert!(reply.verdicts.len() == MOST_JOBS && reply.verdicts[0].state() == State::NotValid);
        jobs[0] = of(hops + 1);
        assert!(refused(&jobs).await, "a hop more");
        assert!(refused(&vec![of(1); MOST_JOBS + 1]).await, "a job more");
        let longest = vec![0; MOST_PATH_OCTETS];
        let reply = validate(&bgp, &[job(longest.clone())]).await.expect("no path, and not too long");
        assert_eq!(reply.verdicts, [state(State::Malformed)]);
        assert!(refused(&[job([longest, vec![0]].concat())]).await, "an octet more");
        assert_eq!(status(&bgp).await.jobs_under_way, 0);
    });
}

/// A process whose one thread stands at a gate, with the key that all paths name.
async fn gated() -> (Gate, Scene, PathSecClient) {
    let gate = Gate::default();
    let scene = Scene::new(1, Validator::default().with_suite(gate.clone()));
    scene.announce([their_key()]).await;
    let bgp = scene.caller("bgp");
    (gate, scene, bgp)
}

fn request(jobs: usize) -> ValidateRequest {
    ValidateRequest { jobs: vec![job(unsigned(1, SUITE, 8)); jobs] }
}

#[test]
fn a_batch_is_judged_by_the_keys_of_when_it_began() {
    run(async {
        let (gate, scene, bgp) = gated().await;
        let under_way = bgp.validate(request(2));
        while gate.begun() == 0 {
            yield_now().await;
        }
        scene.change([Change::Withdraw(their_key())]).await;
        gate.open();
        let reply = under_way.await.expect("judged");
        assert_eq!((reply.epoch, reply.verdicts[1].state()), (1, State::Valid));
        let reply = bgp.validate(request(1)).await.expect("judged");
        assert_eq!((reply.epoch, reply.verdicts[0].state()), (2, State::NotValid));
    });
}

#[test]
fn batches_beyond_those_that_may_wait_are_refused() {
    run(async {
        let (gate, _scene, bgp) = gated().await;
        let batches: Vec<_> = (0..MOST_UNDER_WAY + MOST_WAITING).map(|_| bgp.validate(request(2))).collect();
        assert_eq!(status(&bgp).await.jobs_under_way as usize, 2 * batches.len());
        let refused = bgp.validate(request(1)).await.expect_err("one more");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert_eq!(bgp.status(Empty {}).await.expect("it answers all the same").failed, 0);
        gate.open();
        for batch in batches {
            assert_eq!(batch.await.expect("judged").verdicts.len(), 2);
        }
        assert_eq!(status(&bgp).await.jobs_under_way, 0);
        bgp.validate(request(1)).await.expect("there is room again");
    });
}

#[test]
fn what_nobody_waits_for_is_not_begun() {
    run(async {
        let (gate, scene, bgp) = gated().await;
        let first = bgp.validate(request(1));
        let others: Vec<_> =
            (0..MOST_UNDER_WAY + MOST_WAITING - 1).map(|_| bgp.validate(request(MOST_JOBS))).collect();
        while gate.begun() == 0 {
            yield_now().await;
        }
        drop(others);
        while status(&bgp).await.jobs_under_way > 1 {
            yield_now().await;
        }
        // What was under way has its turn until a thread has thrown it away.
        let next = bgp.validate(request(3));
        // So does a caller whose channel closes.
        let gone = scene.caller("bgp");
        let call = gone.validate(request(MOST_JOBS));
        drop((gone, call));
        gate.open();
        assert_eq!(first.await.expect("judged").verdicts, next.await.expect("judged").verdicts[..1]);
        assert_eq!(gate.begun(), 4);
    });
}

#[test]
fn all_threads_have_a_part_of_one_batch() {
    run(async {
        const THREADS: usize = 3;
        let gate = Gate::default();
        let scene = Scene::new(THREADS, Validator::default().with_suite(gate.clone()));
        scene.announce([their_key()]).await;
        let bgp = scene.caller("bgp");
        let batch = bgp.validate(request(MOST_JOBS));
        while gate.begun() < THREADS {
            yield_now().await;
        }
        gate.open();
        assert_eq!(batch.await.expect("judged").verdicts.len(), MOST_JOBS);
        // Real ones as well, in the order of the jobs.
        let routers = signers(64_496..64_500);
        scene.announce(routers.iter().map(P256Signer::router_key)).await;
        let jobs: Vec<_> = (0..MOST_JOBS).map(|job| signed(&routers[..=job % 4])).map(job).collect();
        let reply = validate(&bgp, &jobs).await.expect("judged");
        let verified: Vec<_> = reply.verdicts.iter().map(|verdict| verdict.verified as usize).collect();
        assert_eq!(verified, (0..MOST_JOBS).map(|job| job % 4 + 1).collect::<Vec<_>>());
    });
}
