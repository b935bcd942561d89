//! Paths that go on.

use holdfast_types::Ski;
use thiserror::Error;

use crate::path::{MOST_BLOCKS, Path, SEGMENT_LEN, SIGNATURE_HEAD, Segment};

/// The signature of whoever adds a segment, in the block of its suite.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SignatureBlock<'a> {
    /// Algorithm Suite Identifier.
    pub suite: u8,
    /// The key.
    pub ski: Ski,
    /// The signature.
    pub signature: &'a [u8],
}

/// Why there is no such path.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum CannotExtend {
    /// A length does not fit where RFC 8205 has two octets for it.
    #[error("the path does not fit into a BGPsec_PATH")]
    TooLong,
    /// No block would be left: the route goes on unsigned, with an AS_PATH.
    #[error("there is no signature of a suite that the path has")]
    NoBlock,
    /// Two signatures of one suite: their blocks would be malformed.
    #[error("two signatures are of the algorithm suite {0}")]
    SameSuite(u8),
    /// More signatures than a path has blocks.
    #[error("{0} signatures, where a path has two Signature_Blocks")]
    TooManyBlocks(usize),
}

/// The attribute's value after a segment was added (RFC 8205 section 4.2). It has a block for each signature: one of `before`
/// whose suite is not among them is left out, and so is a signature whose suite `before` does not have.
///
/// # Errors
/// It would be too long, have no block, or blocks that nobody reads.
pub fn extend(
    before: Option<&Path<'_>>,
    segment: Segment,
    signatures: &[SignatureBlock<'_>],
) -> Result<Vec<u8>, CannotExtend> {
    if signatures.len() > MOST_BLOCKS {
        return Err(CannotExtend::TooManyBlocks(signatures.len()));
    }
    if let [first, second] = signatures
        && first.suite == second.suite
    {
        return Err(CannotExtend::SameSuite(first.suite));
    }
    let older = before.map_or(&[][..], Path::secure_path);
    let mut octets = Vec::new();
    write_counted(&mut octets, [&segment.octets()[..], older.as_flattened()])?;
    let secure_path = octets.len();
    for new in signatures {
        let older = match before {
            None => &[][..],
            Some(path) => match path.blocks().find(|block| block.suite == new.suite) {
                Some(block) => block.behind(0),
                None => continue,
            },
        };
        let length = u16::try_from(new.signature.len()).map_err(|_| CannotExtend::TooLong)?;
        let head = [&[new.suite][..], &new.ski.0, &length.to_be_bytes(), new.signature, older];
        write_counted(&mut octets, head)?;
    }
    if octets.len() == secure_path { Err(CannotExtend::NoBlock) } else { Ok(octets) }
}

/// The attribute's value without what members of a confederation have added since the path came in (section 4.3). `None`: all of
/// it was added inside, and the confederation itself is where the route comes from.
pub fn leave_confederation(path: &Path<'_>) -> Option<Vec<u8>> {
    let inside = path.segments().take_while(|segment| segment.is_confed()).count();
    let segments = &path.secure_path()[inside..];
    if segments.is_empty() {
        return None;
    }
    let mut octets = Vec::with_capacity(2 + segments.len() * (SEGMENT_LEN + SIGNATURE_HEAD));
    // What was read fits, and so does a part of it.
    write_counted(&mut octets, [segments.as_flattened()]).ok()?;
    for block in path.blocks() {
        write_counted(&mut octets, [&[block.suite][..], block.behind(inside)]).ok()?;
    }
    Some(octets)
}

/// Parts behind a length of two octets that counts itself.
fn write_counted<const N: usize>(octets: &mut Vec<u8>, parts: [&[u8]; N]) -> Result<(), CannotExtend> {
    let length = 2 + parts.iter().map(|part| part.len()).sum::<usize>();
    octets.extend(u16::try_from(length).map_err(|_| CannotExtend::TooLong)?.to_be_bytes());
    parts.into_iter().for_each(|part| octets.extend(part));
    Ok(())
}
