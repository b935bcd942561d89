//! What is said of paths.

use holdfast_api::pathsec::v1::{Job, PathSecClient, Reason, State, Verdict};
use holdfast_path_validation::{P256Signer, RouterKey, Validator, VerifiedSignatures};
use holdfast_types::Asn;
use holdfast_xrl::{Client, ErrorKind};

use super::common::{SUITE, Scene, job, not_valid, run, signed, signers, state, status, unsigned, validate};

fn verified(count: u64, of: Verdict) -> Verdict {
    Verdict { verified: count, ..of }
}

#[test]
fn each_job_has_its_verdict_in_the_order_of_the_jobs() {
    run(async {
        let memory = VerifiedSignatures::new(1000, [3, 4]);
        let scene = Scene::new(1, Validator::default().with_memory(memory));
        let bgp = scene.caller("bgp");
        let known = signers([64_496, 64_497]);
        let strangers = signers([64_498]);
        let unusable = signers([64_499]);
        let none = RouterKey { spki: vec![0x30, 0], ..unusable[0].router_key() };
        scene.announce(known.iter().map(P256Signer::router_key).chain([none])).await;

        let good = job(signed(&known));
        let jobs = [
            good.clone(),
            Job { prefix: vec![192, 0, 3], ..good.clone() },
            Job { target_asn: 65_001, ..good.clone() },
            Job { afi: 2, ..good.clone() },
            job(signed(&strangers)),
            job(signed(&unusable)),
            job(unsigned(2, SUITE, 8)),
            job(vec![]),
            job(good.path[1..].to_vec()),
            Job { prefix_length: 33, ..good.clone() },
            good.clone(),
        ];
        let reply = validate(&bgp, &jobs).await.expect("judged");
        let newest_is_bad = Verdict { failed: 1, ..not_valid(0, &known[1], Reason::BadSignature, 1) };
        let expected = [
            verified(2, state(State::Valid)),
            newest_is_bad.clone(),
            newest_is_bad.clone(),
            newest_is_bad,
            not_valid(0, &strangers[0], Reason::NoKey, 0),
            not_valid(0, &unusable[0], Reason::UnusableKey, 0),
            state(State::Unsupported),
            state(State::Malformed),
            state(State::Malformed),
            state(State::Malformed),
            // Both signatures are remembered.
            state(State::Valid),
        ];
        assert_eq!((reply.epoch, &*reply.verdicts), (1, &expected[..]));
        let status = status(&scene.caller("operator")).await;
        assert_eq!((status.verified, status.remembered, status.failed), (5, 2, 3));
        assert_eq!((status.router_keys, status.epoch, status.known), (3, 1, true));
        assert!(status.memory_octets > 0, "two signatures, and a few keys");
    });
}

#[test]
fn the_key_is_of_the_as_of_the_hop() {
    run(async {
        let scene = Scene::new(1, Validator::default());
        let bgp = scene.caller("bgp");
        let routers = signers([64_496, 64_497]);
        let job = job(signed(&routers));
        let foreign = RouterKey { asn: Asn(64_999), ..routers[0].router_key() };
        scene.announce([foreign, routers[1].router_key()]).await;
        let reply = validate(&bgp, std::slice::from_ref(&job)).await.expect("judged");
        assert_eq!(reply.verdicts, [not_valid(1, &routers[0], Reason::NoKey, 0)]);
        scene.announce([routers[0].router_key()]).await;
        let reply = validate(&bgp, &[job]).await.expect("judged");
        assert_eq!((reply.epoch, reply.verdicts), (2, vec![verified(2, state(State::Valid))]));
    });
}

#[test]
fn only_bgp_asks_and_what_is_no_request_is_refused() {
    run(async {
        let scene = Scene::new(1, Validator::default());
        for role in ["operator", "rib", "rpki"] {
            let refused = validate(&scene.caller(role), &[]).await.expect_err("not allowed");
            assert_eq!(refused.kind(), ErrorKind::Denied);
        }
        let bgp = scene.caller("bgp");
        for octets in [&[0xff][..], &[0x0a, 5, 1], &[0x0a, 2, 0x10, 0xff]] {
            let call = bgp.channel().call_encoded::<()>(PathSecClient::VALIDATE, octets.to_vec());
            assert_eq!(call.await.expect_err("no request").kind(), ErrorKind::InvalidArgument, "{octets:?}");
        }
        assert_eq!(validate(&bgp, &[]).await.expect("nothing to do").verdicts, []);
    });
}
