//! Adding an AS to a path (RFC 8205 section 4.2).

use holdfast_bgpsec_wire::{CannotExtend, Nlri, Path, Segment, SignatureBlock, Ski, extend, octets_to_sign};
use holdfast_types::Asn;
use thiserror::Error;

/// Who signs with one suite: a key in memory, or a device that has it.
pub trait Signer: Send + Sync {
    /// Algorithm Suite Identifier.
    fn suite(&self) -> u8;
    /// The AS of the router's certificate.
    fn asn(&self) -> Asn;
    /// What others call the key.
    fn ski(&self) -> Ski;
    /// Signs these octets, with the digest of the suite.
    ///
    /// # Errors
    /// It cannot.
    fn sign(&self, octets: &[u8]) -> Result<Vec<u8>, CannotSign>;
}

/// The attribute's value after `segment` was added and signed for `target`, the AS in the peer's OPEN: with a block for each
/// signer whose suite the path has, or, if there is no path yet, for each signer.
///
/// # Errors
/// A key of another AS than the segment's, a library or device that fails, a path that does not fit or would be unsigned.
pub fn sign(
    before: Option<&Path<'_>>,
    segment: Segment,
    target: Asn,
    nlri: &Nlri,
    signers: &[&dyn Signer],
) -> Result<Vec<u8>, CannotSign> {
    let mut signatures = Vec::with_capacity(signers.len());
    for signer in signers {
        if signer.asn() != segment.asn {
            return Err(CannotSign::OtherAs { key: signer.asn(), segment: segment.asn });
        }
        let block = before.map(|path| path.blocks().find(|block| block.suite == signer.suite()));
        let before = match (before, block) {
            (Some(path), Some(Some(block))) => Some((path, block)),
            (Some(_), _) => continue,
            (None, _) => None,
        };
        let octets = octets_to_sign(before, signer.suite(), segment, target, nlri);
        signatures.push((signer.suite(), signer.ski(), signer.sign(&octets)?));
    }
    let blocks: Vec<_> = signatures
        .iter()
        .map(|(suite, ski, signature)| SignatureBlock { suite: *suite, ski: *ski, signature })
        .collect();
    Ok(extend(before, segment, &blocks)?)
}

/// Why there is no signature.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum CannotSign {
    /// Others look the key up by the segment's AS, and would not find it.
    #[error("the key is of AS {key}, the segment of AS {segment}")]
    OtherAs {
        /// Of the key.
        key: Asn,
        /// Of the segment.
        segment: Asn,
    },
    /// The cryptographic library has no randomness.
    #[error("the cryptographic library cannot sign")]
    Library,
    /// A device says no.
    #[error("whoever has the key does not sign")]
    Device,
    /// See there.
    #[error(transparent)]
    Path(#[from] CannotExtend),
}
