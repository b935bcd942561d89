//! How calls end.

use std::{
    ffi::{CStr, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

use holdfast_bgpsec_wire::{CannotExtend, Malformed, Refused};
use holdfast_path_validation::{BadPrivateKey, CannotSign, NoRandomness};

/// How a call has ended. A number means the same in all versions; there may be more of them.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum hf_bgpsec_code {
    /// As it should.
    HF_BGPSEC_OK = 0,

    /// A pointer is null that must not be.
    HF_BGPSEC_NULL = 1,
    /// A length is longer than anything of its kind.
    HF_BGPSEC_LENGTH = 2,
    /// There is no room for what comes out; its length, at most, was written.
    HF_BGPSEC_ROOM = 3,
    /// The AFI is neither 1 (IPv4) nor 2 (IPv6).
    HF_BGPSEC_AFI = 4,
    /// The octets are not one prefix of the AFI.
    HF_BGPSEC_NLRI = 5,
    /// More changes wait for a commit than there may be.
    HF_BGPSEC_PENDING = 6,
    /// The octets are no private key of P-256.
    HF_BGPSEC_PRIVATE_KEY = 7,
    /// The system has no randomness.
    HF_BGPSEC_RANDOMNESS = 8,
    /// A fault of the library: please report it. It was written to standard error.
    HF_BGPSEC_FAULT = 9,
    /// There is no such segment or Signature_Block.
    HF_BGPSEC_NO_SUCH = 10,
    /// The library does not have the key: a callback signs with it.
    HF_BGPSEC_KEY_ELSEWHERE = 11,

    /// Malformed: the length of the Secure_Path is wrong.
    HF_BGPSEC_SECURE_PATH_LENGTH = 20,
    /// Malformed: the Secure_Path has no segment.
    HF_BGPSEC_NO_SEGMENT = 21,
    /// Malformed: there is no Signature_Block.
    HF_BGPSEC_NO_BLOCK = 22,
    /// Malformed: the length of a Signature_Block is wrong.
    HF_BGPSEC_BLOCK_LENGTH = 23,
    /// Malformed: the length of a signature reaches beyond its Signature_Block.
    HF_BGPSEC_SIGNATURE_LENGTH = 24,
    /// Malformed: a Signature_Block has not one signature for each segment.
    HF_BGPSEC_SIGNATURE_COUNT = 25,
    /// Malformed: the algorithm suite is 0 or 255.
    HF_BGPSEC_RESERVED_SUITE = 26,
    /// Malformed: two Signature_Blocks have the same algorithm suite.
    HF_BGPSEC_SAME_SUITE = 27,
    /// Malformed: something follows the Signature_Blocks.
    HF_BGPSEC_TOO_MUCH = 28,

    /// Refused: the most recent segment is not of the peer's AS.
    HF_BGPSEC_NOT_THE_PEER = 40,
    /// Refused: there is an AS_PATH beside BGPsec_PATH.
    HF_BGPSEC_AS_PATH = 41,
    /// Refused: a segment is of a confederation, and the peer is in none of ours.
    HF_BGPSEC_CONFED_SEGMENT = 42,
    /// Refused: the peer is in our confederation, and its segment does not say so.
    HF_BGPSEC_NO_CONFED_SEGMENT = 43,
    /// Refused: the peer leaves itself out of the path (pCount 0), which it may not.
    HF_BGPSEC_PCOUNT_ZERO = 44,
    /// Refused: our AS is in the path.
    HF_BGPSEC_LOOP = 45,
    /// Refused: a route is outside MP_REACH_NLRI.
    HF_BGPSEC_OUTSIDE_MP_REACH = 46,
    /// Refused: there is not exactly one route.
    HF_BGPSEC_ROUTES = 47,
    /// Refused: there are more segments than are looked at.
    HF_BGPSEC_TOO_MANY_HOPS = 48,
    /// Refused: the sum of pCounts is larger than what is looked at.
    HF_BGPSEC_PCOUNTS = 49,

    /// The path does not fit into a BGPsec_PATH any more.
    HF_BGPSEC_TOO_LONG = 60,
    /// The path has no Signature_Block of the signer's suite: it goes on unsigned, with an AS_PATH.
    HF_BGPSEC_UNSIGNED = 61,
    /// Whoever has the key does not sign: the library, or a callback.
    HF_BGPSEC_CANNOT_SIGN = 62,
    /// All of the path was added inside the confederation, where the route comes from.
    HF_BGPSEC_INSIDE = 63,
    /// The signers are of several ASs.
    HF_BGPSEC_OTHER_AS = 64,
}

use hf_bgpsec_code::*;

/// What a code means, as text that is never freed; of a number that is none, that it is none.
#[unsafe(no_mangle)]
pub extern "C" fn hf_bgpsec_strerror(code: c_int) -> *const c_char {
    text(code).as_ptr()
}

/// The version of the library that runs, as text that is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn hf_bgpsec_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

fn text(code: c_int) -> &'static CStr {
    let Some((_, text)) = TEXTS.iter().find(|(known, _)| *known as c_int == code) else {
        return c"no code of this library";
    };
    text
}

/// All codes.
const TEXTS: [(hf_bgpsec_code, &CStr); 36] = [
    (HF_BGPSEC_OK, c"fine"),
    (HF_BGPSEC_NULL, c"a pointer is null that must not be"),
    (HF_BGPSEC_LENGTH, c"a length is longer than anything of its kind"),
    (HF_BGPSEC_ROOM, c"there is no room for what comes out"),
    (HF_BGPSEC_AFI, c"the AFI is neither 1 (IPv4) nor 2 (IPv6)"),
    (HF_BGPSEC_NLRI, c"the NLRI is not one prefix of the AFI"),
    (HF_BGPSEC_PENDING, c"more changes wait for a commit than there may be"),
    (HF_BGPSEC_PRIVATE_KEY, c"no private key of P-256: neither PKCS#8 nor an ECPrivateKey in DER"),
    (HF_BGPSEC_RANDOMNESS, c"the system has no randomness"),
    (HF_BGPSEC_FAULT, c"a fault of the library"),
    (HF_BGPSEC_NO_SUCH, c"there is no such segment or Signature_Block"),
    (HF_BGPSEC_KEY_ELSEWHERE, c"the library does not have the key: a callback signs with it"),
    (HF_BGPSEC_SECURE_PATH_LENGTH, c"malformed: the length of the Secure_Path is wrong"),
    (HF_BGPSEC_NO_SEGMENT, c"malformed: the Secure_Path has no segment"),
    (HF_BGPSEC_NO_BLOCK, c"malformed: there is no Signature_Block"),
    (HF_BGPSEC_BLOCK_LENGTH, c"malformed: the length of a Signature_Block is wrong"),
    (HF_BGPSEC_SIGNATURE_LENGTH, c"malformed: the length of a signature reaches beyond its Signature_Block"),
    (HF_BGPSEC_SIGNATURE_COUNT, c"malformed: a Signature_Block has not one signature for each segment"),
    (HF_BGPSEC_RESERVED_SUITE, c"malformed: the algorithm suite is reserved"),
    (HF_BGPSEC_SAME_SUITE, c"malformed: two Signature_Blocks have the same algorithm suite"),
    (HF_BGPSEC_TOO_MUCH, c"malformed: something follows the Signature_Blocks"),
    (HF_BGPSEC_NOT_THE_PEER, c"the most recent segment is not of the peer's AS"),
    (HF_BGPSEC_AS_PATH, c"there is an AS_PATH beside BGPsec_PATH"),
    (HF_BGPSEC_CONFED_SEGMENT, c"a segment is of a confederation, and the peer is in none of ours"),
    (HF_BGPSEC_NO_CONFED_SEGMENT, c"the peer is in our confederation, and its segment does not say so"),
    (HF_BGPSEC_PCOUNT_ZERO, c"the peer leaves itself out of the path (pCount 0), which it may not"),
    (HF_BGPSEC_LOOP, c"our AS is in the path"),
    (HF_BGPSEC_OUTSIDE_MP_REACH, c"a route is outside MP_REACH_NLRI"),
    (HF_BGPSEC_ROUTES, c"there is not exactly one route"),
    (HF_BGPSEC_TOO_MANY_HOPS, c"there are more segments than are looked at"),
    (HF_BGPSEC_PCOUNTS, c"the sum of pCounts is larger than what is looked at"),
    (HF_BGPSEC_TOO_LONG, c"the path does not fit into a BGPsec_PATH"),
    (HF_BGPSEC_UNSIGNED, c"the path has no Signature_Block of the signer's suite"),
    (HF_BGPSEC_CANNOT_SIGN, c"whoever has the key does not sign"),
    (HF_BGPSEC_INSIDE, c"all of the path was added inside the confederation"),
    (HF_BGPSEC_OTHER_AS, c"the signers are of several ASs"),
];

impl From<Malformed> for hf_bgpsec_code {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::SecurePathLength => HF_BGPSEC_SECURE_PATH_LENGTH,
            Malformed::NoSegment => HF_BGPSEC_NO_SEGMENT,
            Malformed::NoBlock => HF_BGPSEC_NO_BLOCK,
            Malformed::BlockLength => HF_BGPSEC_BLOCK_LENGTH,
            Malformed::SignatureLength => HF_BGPSEC_SIGNATURE_LENGTH,
            Malformed::SignatureCount { .. } => HF_BGPSEC_SIGNATURE_COUNT,
            Malformed::ReservedSuite(_) => HF_BGPSEC_RESERVED_SUITE,
            Malformed::SameSuite(_) => HF_BGPSEC_SAME_SUITE,
            Malformed::TooMuch(_) => HF_BGPSEC_TOO_MUCH,
        }
    }
}

impl From<Refused> for hf_bgpsec_code {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotThePeer { .. } => HF_BGPSEC_NOT_THE_PEER,
            Refused::AsPath => HF_BGPSEC_AS_PATH,
            Refused::ConfedSegment => HF_BGPSEC_CONFED_SEGMENT,
            Refused::NoConfedSegment => HF_BGPSEC_NO_CONFED_SEGMENT,
            Refused::PcountZero => HF_BGPSEC_PCOUNT_ZERO,
            Refused::Loop(_) => HF_BGPSEC_LOOP,
            Refused::OutsideMpReach => HF_BGPSEC_OUTSIDE_MP_REACH,
            Refused::Routes(_) => HF_BGPSEC_ROUTES,
            Refused::TooManyHops { .. } => HF_BGPSEC_TOO_MANY_HOPS,
            Refused::TooLong { .. } => HF_BGPSEC_PCOUNTS,
        }
    }
}

impl From<CannotSign> for hf_bgpsec_code {
    fn from(error: CannotSign) -> Self {
        match error {
            CannotSign::OtherAs { .. } => HF_BGPSEC_OTHER_AS,
            CannotSign::Library | CannotSign::Device => HF_BGPSEC_CANNOT_SIGN,
            CannotSign::Path(CannotExtend::TooLong) => HF_BGPSEC_TOO_LONG,
            CannotSign::Path(CannotExtend::NoBlock) => HF_BGPSEC_UNSIGNED,
            CannotSign::Path(CannotExtend::SameSuite(_)) => HF_BGPSEC_SAME_SUITE,
            CannotSign::Path(CannotExtend::TooManyBlocks(_)) => HF_BGPSEC_LENGTH,
        }
    }
}

impl From<BadPrivateKey> for hf_bgpsec_code {
    fn from(_: BadPrivateKey) -> Self {
        HF_BGPSEC_PRIVATE_KEY
    }
}

impl From<NoRandomness> for hf_bgpsec_code {
    fn from(_: NoRandomness) -> Self {
        HF_BGPSEC_RANDOMNESS
    }
}

/// The body of a call: a panic ends here. What it had in its hands is behind locks that a panic does not leave half-changed, or
/// was only read.
pub(crate) fn call(body: impl FnOnce() -> Result<(), hf_bgpsec_code>) -> hf_bgpsec_code {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => HF_BGPSEC_OK,
        Ok(Err(code)) => code,
        Err(_) => HF_BGPSEC_FAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_leave_the_library() {
        assert_eq!(call(|| panic!("of a test")), HF_BGPSEC_FAULT);
        assert_eq!(call(|| Err(HF_BGPSEC_NLRI)), HF_BGPSEC_NLRI);
        assert_eq!(call(|| Ok(())), HF_BGPSEC_OK);
    }

    #[test]
    fn each_code_has_a_text_of_its_own() {
        let texts: std::collections::BTreeSet<_> =
            TEXTS.iter().map(|(code, _)| text(*code as c_int)).collect();
        assert_eq!(texts.len(), TEXTS.len());
        assert_eq!(text(-1), text(1000));
    }
}
