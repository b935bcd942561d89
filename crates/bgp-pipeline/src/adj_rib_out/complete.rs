//! The path of a route with our segments, if their signatures are there.

use std::hash::Hasher;

use holdfast_bgp_wire::MAX_EXTENDED_LEN;
use holdfast_bgpsec_wire::{
    CannotExtend, Nlri, Path as SecurePath, SignatureBlock, Ski, extend, octets_to_sign,
};
use holdfast_types::Prefix;
use smallvec::SmallVec;

use crate::{
    onward::{OwnSegment, Plan},
    signing::{SignatureName, SigningJob, SigningTable, Waiter},
};

/// What the signatures of one route came to.
pub(super) enum Completed {
    /// The value of BGPsec_PATH.
    Whole(Vec<u8>),
    /// Some are missing; whether there is a job for each.
    Missing {
        is_asked: bool,
    },
    TooLong,
}

/// Octets of a path that a segment of ours can come in front of. What is signed has 26 more at most, and is not to be longer
/// than a message: nobody signs that.
const MOST_OLDER: usize = MAX_EXTENDED_LEN - 26;

/// The path with our segments, if all of their signatures are there. The first that are missing are asked for, if there may be
/// one job more: what follows covers them.
pub(super) fn complete(
    signing: &mut SigningTable,
    plan: &Plan,
    (signed, mark): (Option<&[u8]>, u64),
    (prefix, waiter, may_ask): (Prefix, Option<Waiter>, bool),
) -> Completed {
    let identifier = waiter.map_or(0, |waiter| waiter.identifier);
    let shape = plan.shape(signing.hasher(), identifier);
    let target = plan.segments.last().map(|own| own.target).unwrap_or_default();
    let mut value = plan.older(signed).map(<[u8]>::to_vec);
    for (place, own) in plan.segments.iter().enumerate() {
        if value.as_ref().is_some_and(|older| older.len() > MOST_OLDER) {
            return Completed::TooLong;
        }
        let Ok(path) = value.as_deref().map(SecurePath::parse).transpose() else {
            return Completed::TooLong;
        };
        let name = |suite: u8| SignatureName { prefix, target, slot: slot(shape, place, suite) };
        let keys = || plan.suites.iter().copied().zip(own.keys.iter().copied());
        let block = |(suite, ski): (u8, Ski)| {
            let signature = signing.signature(&name(suite), mark)?;
            Some(SignatureBlock { suite, ski, signature })
        };
        let blocks: SmallVec<[SignatureBlock<'_>; 2]> = keys().filter_map(block).collect();
        let is_missing = |(suite, _): &(u8, Ski)| blocks.iter().all(|block| block.suite != *suite);
        let missing: SmallVec<[_; 2]> = keys().filter(is_missing).collect();
        if missing.is_empty() {
            value = match extend(path.as_ref(), own.segment, &blocks) {
                Ok(value) => Some(value),
                Err(
                    CannotExtend::TooLong
                    | CannotExtend::NoBlock
                    | CannotExtend::SameSuite(_)
                    | CannotExtend::TooManyBlocks(_),
                ) => return Completed::TooLong,
            };
            continue;
        }
        drop(blocks);
        let Some(waiter) = waiter.filter(|_| may_ask) else {
            return Completed::Missing { is_asked: false };
        };
        let ask = |(suite, ski)| {
            let job = || job(path.as_ref(), own, (suite, ski), prefix);
            signing.jobs.ask((name(suite), mark), waiter, job)
        };
        let is_asked = missing.into_iter().map(ask).fold(true, |all, is_asked| all & is_asked);
        return Completed::Missing { is_asked };
    }
    value.map_or(Completed::TooLong, Completed::Whole)
}

/// What is to be signed of a segment of ours in front of a path.
fn job(
    path: Option<&SecurePath<'_>>,
    own: &OwnSegment,
    (suite, ski): (u8, Ski),
    prefix: Prefix,
) -> SigningJob {
    let block = |path| SecurePath::blocks(path).find(|block| block.suite == suite);
    let before = path.and_then(|path| Some((path, block(path)?)));
    let octets = octets_to_sign(before, suite, own.segment, own.target, &Nlri::unicast(prefix));
    SigningJob { number: 0, asn: own.segment.asn, ski, suite, octets }
}

/// What a signature is called beside its prefix and target.
fn slot(shape: u64, place: usize, suite: u8) -> u32 {
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(shape, place as u64);
    hasher.write_u8(suite);
    hasher.finish() as u32
}
