//! Why signatures are not good.

use std::fmt;

use holdfast_bgpsec_wire::Ski;
use holdfast_types::Asn;

/// Why the signatures of a path are not valid: the first block, and there the newest hop.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Algorithm suite of the block.
    pub suite: u8,
    /// The segment; 0 is the newest.
    pub hop: u32,
    /// Its AS.
    pub asn: Asn,
    /// What its signature calls the key.
    pub ski: Ski,
    /// What is wrong.
    pub reason: FaultReason,
}

/// What is wrong with a signature.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FaultReason {
    /// The AS has no key of that name.
    NoKey,
    /// It has one, of which the suite can make nothing.
    UnusableKey,
    /// It was not made with the key, or over other octets.
    BadSignature,
}

impl fmt::Display for FaultReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "this AS has no such key",
            Self::UnusableKey => "the key is none of this suite",
            Self::BadSignature => "the signature is bad",
        })
    }
}
