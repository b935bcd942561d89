//! BGPsec path validation (RFC 8205 section 5.2) and signing (section 4.2), over octets: no sockets, no clock, nothing of BGP
//! beyond the attribute. [`holdfast_bgpsec_wire`] reads and builds that, and has the checks that come before any signature.
//!
//! - [`KeyTable`]: routers' public keys by AS and subject key identifier. Whoever validates holds a [`Keys`], a table as it was
//!   at one time; a change makes another one beside it and disturbs nobody.
//! - [`Validator`]: the verdict on a path, with [`Suite`]s that can be plugged in and, if wanted, a memory of signatures that
//!   were found good.
//! - [`sign`]: adds an AS to a path, with a [`Signer`] for each suite.
//!
//! ```
//! use holdfast_bgpsec_wire::{Nlri, Path, Segment};
//! use holdfast_path_validation::{Change, KeyTable, P256Signer, Validator, Verdict, random_seed, sign};
//! use holdfast_types::Asn;
//!
//! let signer = P256Signer::generate(Asn(64496))?;
//! let nlri = Nlri::unicast("192.0.2.0/24".parse()?);
//! let segment = Segment { pcount: 1, flags: 0, asn: Asn(64496) };
//! let octets = sign(None, segment, Asn(65536), &nlri, &[&signer])?;
//!
//! let table = KeyTable::new(random_seed()?);
//! table.apply([Change::Announce(signer.router_key())]);
//! let verdict = Validator::default().validate(&Path::parse(&octets)?, Asn(65536), &nlri, &table.keys());
//! assert_eq!(verdict, Verdict::Valid);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
#[doc(hidden)]
pub mod fuzzing;
mod keys;
mod p256;
mod records;
mod sign;
mod suite;
mod validate;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_path_validation;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use cache::VerifiedSignatures;
pub use holdfast_types::RouterKey;
pub use keys::{Applied, Change, KeyTable, Keys, MOST_OF_A_NAME, StoredKey};
pub use p256::{BadPrivateKey, NoRandomness, P256, P256Signer, SUITE_P256, has_own_name, random_seed};
pub use sign::{CannotSign, Signer, sign};
pub use suite::{BadSignature, Digest, Suite};
pub use validate::{Failure, Reason, Validator, Verdict, Work};

/// The examples of the manual.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/manual/bgpsec.md")]
struct Manual;
