//! The bodies of the fuzz targets `pathsec_request` and `pathsec_sign`, also run by tests over their corpora.

use std::sync::{Arc, atomic::AtomicU64};

use holdfast_api::pathsec::v1::{
    Reason, SignJob, SignRequest, State, ValidateReply, ValidateRequest, Verdict,
};
use holdfast_bgpsec_wire::Path;
use holdfast_path_validation::{
    Change, KeyTable, P256, P256Signer, Suite,
    fuzzing::{table, validator},
};
use holdfast_types::Asn;
use prost::Message;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};

use crate::{
    signers::{Given, Signers},
    signing::{self, Batch, Job, Key},
    workers::{Bench, MOST_HOPS, MOST_JOBS, MOST_PATH_OCTETS, hops, prefix},
};

/// The octets of a request of `Validate` are no request, one that is refused, or one that has a verdict for each job, which
/// its reader understands. Returns how many jobs had a verdict on their path.
pub fn request(octets: &[u8]) -> usize {
    let Ok(ValidateRequest { jobs }) = ValidateRequest::decode(octets) else { return 0 };
    let Ok(hops) = hops(&jobs) else {
        let longest = jobs.iter().map(|job| job.path.len()).max().unwrap_or(0);
        // Nobody has more hops than octets.
        let octets: usize = jobs.iter().map(|job| job.path.len()).sum();
        assert!(
            jobs.len() > MOST_JOBS || longest > MOST_PATH_OCTETS || octets > MOST_HOPS,
            "refused without a reason"
        );
        return 0;
    };
    assert!(hops.iter().sum::<usize>() <= MOST_HOPS && hops.len() == jobs.len());
    let (bench, keys) = (Bench::new(validator()), table().keys());
    let verdicts: Vec<_> = jobs.iter().map(|job| bench.verdict(job, &keys)).collect();
    let mut judged = 0;
    for (job, verdict) in jobs.iter().zip(&verdicts) {
        let path = Path::parse(&job.path).ok();
        let is_sound = path.is_some() && prefix(job).is_some();
        assert_eq!(verdict.state() == State::Malformed, !is_sound, "{job:?}");
        match verdict.state() {
            State::NotValid => {
                let path = path.expect("it was read");
                assert!((verdict.failing_hop as usize) < path.hops() && verdict.ski.len() == 20);
                assert_ne!(verdict.reason(), Reason::Unspecified);
                let segment = path.segments().nth(verdict.failing_hop as usize).expect("a hop");
                assert_eq!(verdict.asn, segment.asn.0);
            }
            State::Valid => assert!(verdict.verified >= path.expect("it was read").hops() as u64),
            State::Unsupported | State::Malformed => assert_eq!(verdict.verified, 0),
            State::Unspecified => panic!("a verdict that says nothing"),
        }
        let again = bench.verdict(job, &keys);
        assert_eq!(Verdict { verified: verdict.verified, ..again }, *verdict, "the same twice");
        judged += usize::from(is_sound);
    }
    let reply = ValidateReply { epoch: keys.epoch(), verdicts };
    assert_eq!(ValidateReply::decode(&reply.encode_to_vec()[..]).as_ref(), Ok(&reply));
    judged
}

/// The octets of a request of `Sign` are no request, one that is refused, or one of which each job for the key that there is
/// has a good signature, and any other none. A job without an SKI is for that key if its AS and suite are. Returns how many
/// signatures were made.
pub fn sign_request(octets: &[u8]) -> usize {
    let Ok(SignRequest { mut jobs }) = SignRequest::decode(octets) else { return 0 };
    if signing::check(&jobs).is_err() {
        let lengths: Vec<_> = jobs.iter().map(|job| job.octets.len()).collect();
        assert!(
            jobs.len() > signing::MOST_JOBS
                || lengths.iter().any(|octets| *octets > signing::MOST_JOB_OCTETS)
                || lengths.iter().sum::<usize>() > signing::MOST_OCTETS,
            "refused without a reason"
        );
        return 0;
    }
    let (mut signers, table) = (Signers::default(), KeyTable::new([1, 2]));
    let key = Arc::new(Key::new(P256Signer::generate(Asn(1)).expect("random numbers")));
    table.apply([Change::Announce(key.public.clone())]);
    let given = Given { key: Arc::clone(&key), sign_from: 0 };
    signers.configure(&[given], [Asn(1)].into(), false, |_| false, Instant::now());
    for job in jobs.iter_mut().filter(|job| job.ski.is_empty()) {
        job.ski = key.public.ski.0.to_vec();
    }
    let found = jobs
        .iter()
        .map(|job| Job { key: signers.key(Asn(job.asn), &job.ski, job.suite), octets: job.octets.clone() });
    let turn = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("there is one");
    let (signatures, mut answer) = oneshot::channel();
    Batch { jobs: found.collect(), turn, signatures }.sign(&AtomicU64::default());
    let signatures = answer.try_recv().expect("an answer").expect("the library signs");
    assert_eq!(signatures.len(), jobs.len());
    let is_ours = |job: &SignJob| (job.asn, job.suite, &*job.ski) == (1, 1, &key.public.ski.0[..]);
    let keys = table.keys();
    let stored = keys.of(Asn(1), key.public.ski).next().expect("it was announced");
    for (job, signature) in jobs.iter().zip(&signatures) {
        assert_eq!(is_ours(job), !signature.is_empty(), "{job:?}");
        let is_good = P256.verify(stored, &P256.digest(&job.octets), signature).is_ok();
        assert_eq!(is_good, is_ours(job));
    }
    signatures.iter().filter(|signature| !signature.is_empty()).count()
}
