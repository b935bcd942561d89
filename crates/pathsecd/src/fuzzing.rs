//! The body of the fuzz target `pathsec_request`, also run by a test over its corpus.

use holdfast_api::pathsec::v1::{Reason, State, ValidateReply, ValidateRequest, Verdict};
use holdfast_bgpsec_wire::Path;
use holdfast_path_validation::fuzzing::{table, validator};
use prost::Message;

use crate::workers::{Bench, MOST_HOPS, MOST_JOBS, MOST_PATH_OCTETS, hops, prefix};

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
