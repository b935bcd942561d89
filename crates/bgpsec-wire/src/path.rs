//! The attribute (RFC 8205 section 3).
//!
//! ```text
//! Secure_Path:      length (2, counts itself) | segment: pCount (1) flags (1) AS (4) | …
//! Signature_Block:  length (2, counts itself) | suite (1) | signature: SKI (20) length (2) octets | …
//! ```
//!
//! One Secure_Path, then one or two Signature_Blocks, and nothing else. Segments and signatures have the same order, the most
//! recent first, and there is one signature in each block for each segment.

use holdfast_types::{Asn, Ski};
use thiserror::Error;

use crate::reader::Reader;

/// Confed_Segment, the only flag that is defined (section 3.1): whoever added the segment did so inside a confederation.
pub const CONFED_SEGMENT: u8 = 0x80;
/// Signature_Blocks of a path, at most (section 3.2).
pub const MOST_BLOCKS: usize = 2;
/// Octets of a segment of the Secure_Path.
pub(crate) const SEGMENT_LEN: usize = 6;
/// Suites that shall never be on the wire (RFC 8608 section 2.1).
const RESERVED_SUITES: [u8; 2] = [0, 255];
/// ASs that a segment of AS_PATH has room for.
const MOST_IN_AS_SEGMENT: usize = 255;
/// Types of segments of AS_PATH (RFC 4271 section 4.3, RFC 5065 section 3).
const AS_SEQUENCE: u8 = 2;
const AS_CONFED_SEQUENCE: u8 = 3;

/// What an AS has added to the Secure_Path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// How many times the AS counts; 0 for one that shall not be seen in the path.
    pub pcount: u8,
    /// [`CONFED_SEGMENT`]; the rest is sent as 0, and covered by signatures as it was received.
    pub flags: u8,
    /// The AS.
    pub asn: Asn,
}

impl Segment {
    /// Whether it was added inside a confederation.
    pub fn is_confed(self) -> bool {
        self.flags & CONFED_SEGMENT != 0
    }

    pub(crate) fn octets(self) -> [u8; SEGMENT_LEN] {
        let [a, b, c, d] = self.asn.0.to_be_bytes();
        [self.pcount, self.flags, a, b, c, d]
    }

    fn read(octets: &[u8; SEGMENT_LEN]) -> Self {
        let [pcount, flags, asn @ ..] = *octets;
        Self { pcount, flags, asn: Asn(u32::from_be_bytes(asn)) }
    }
}

/// A signature, and whose key it was made with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Signature<'a> {
    /// The key.
    pub ski: Ski,
    /// The signature in the form of its suite; suite 1 has DER (RFC 8608 section 3.1.2).
    pub octets: &'a [u8],
}

/// Signatures of one algorithm suite, one for each segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Block<'a> {
    /// Algorithm Suite Identifier; 1 is ECDSA with P-256 and SHA-256 (RFC 8608 section 2.1).
    pub suite: u8,
    octets: &'a [u8],
}

impl<'a> Block<'a> {
    /// The most recent first.
    pub fn signatures(self) -> impl Iterator<Item = Signature<'a>> {
        let mut reader = Reader(self.octets);
        std::iter::from_fn(move || signature(&mut reader))
    }

    /// Signatures as on the wire, without those of so many of the most recent segments.
    pub(crate) fn behind(self, segments: usize) -> &'a [u8] {
        (0..segments).fold(self.octets, |octets, _| split_signature(octets).1)
    }
}

/// SKI and length.
pub(crate) const SIGNATURE_HEAD: usize = 22;

fn signature<'a>(reader: &mut Reader<'a>) -> Option<Signature<'a>> {
    let ski = Ski(reader.array()?);
    let length = reader.u16()?;
    Some(Signature { ski, octets: reader.take(length.into())? })
}

/// The first signature with what is before it, and the rest.
pub(crate) fn split_signature(octets: &[u8]) -> (&[u8], &[u8]) {
    let mut reader = Reader(octets);
    let length = signature(&mut reader).map_or(0, |signature| SIGNATURE_HEAD + signature.octets.len());
    octets.split_at(length)
}

/// A BGPsec_PATH attribute, without type and length.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Path<'a> {
    segments: &'a [[u8; SEGMENT_LEN]],
    first: Block<'a>,
    second: Option<Block<'a>>,
}

impl<'a> Path<'a> {
    /// Reads the whole attribute, both blocks to the end, whatever their suites.
    ///
    /// # Errors
    /// What is malformed: the UPDATE is treated as a withdrawal (section 5.2, RFC 7606).
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(value);
        let secure_path = reader.counted().ok_or(Malformed::SecurePathLength)?;
        let (segments, []) = secure_path.as_chunks() else { return Err(Malformed::SecurePathLength) };
        if segments.is_empty() {
            return Err(Malformed::NoSegment);
        }
        if reader.0.is_empty() {
            return Err(Malformed::NoBlock);
        }
        let first = block(&mut reader, segments.len())?;
        let second = match reader.0 {
            [] => None,
            _ => Some(block(&mut reader, segments.len())?),
        };
        if !reader.0.is_empty() {
            return Err(Malformed::TooMuch(reader.0.len()));
        }
        match second {
            Some(second) if second.suite == first.suite => Err(Malformed::SameSuite(first.suite)),
            _ => Ok(Self { segments, first, second }),
        }
    }

    /// What ASs have added, the most recent first.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = Segment> + ExactSizeIterator + use<'a> {
        self.segments.iter().map(Segment::read)
    }

    /// How many segments there are; one at least.
    pub fn hops(&self) -> usize {
        self.segments.len()
    }

    /// What whoever sent it has added.
    pub fn newest(&self) -> Segment {
        Segment::read(&self.segments[0])
    }

    /// Signatures, of one suite or two, in the order of the attribute.
    pub fn blocks(&self) -> impl Iterator<Item = Block<'a>> + use<'a> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// The length of the path for the decision: the sum of pCounts outside confederations (sections 4.4 and 5.1,
    /// RFC 5065 section 5.3).
    pub fn length(&self) -> u32 {
        self.segments().filter(|segment| !segment.is_confed()).map(|segment| u32::from(segment.pcount)).sum()
    }

    /// The AS_PATH that it stands for (section 4.4), as on the wire between speakers with four-octet AS numbers.
    pub fn as_path(&self) -> Vec<u8> {
        // From the most recent on, as AS_PATH is written; runs of one type are cut from the oldest end on, as that grew.
        let mut octets = Vec::new();
        let mut ases: Vec<(u8, Asn)> = Vec::new();
        for segment in self.segments() {
            let kind = if segment.is_confed() { AS_CONFED_SEQUENCE } else { AS_SEQUENCE };
            ases.extend(std::iter::repeat_n((kind, segment.asn), segment.pcount.into()));
        }
        for run in ases.chunk_by(|one, other| one.0 == other.0) {
            let (newest, whole) = run.split_at(run.len() % MOST_IN_AS_SEGMENT);
            let cut = [newest].into_iter().chain(whole.chunks(MOST_IN_AS_SEGMENT));
            for ases in cut.filter(|ases| !ases.is_empty()) {
                octets.extend([run[0].0, ases.len() as u8]);
                octets.extend(ases.iter().flat_map(|(_, asn)| asn.0.to_be_bytes()));
            }
        }
        octets
    }

    pub(crate) fn secure_path(&self) -> &'a [[u8; SEGMENT_LEN]] {
        self.segments
    }
}

fn block<'a>(reader: &mut Reader<'a>, segments: usize) -> Result<Block<'a>, Malformed> {
    let mut inside = Reader(reader.counted().ok_or(Malformed::BlockLength)?);
    let [suite] = inside.array().ok_or(Malformed::BlockLength)?;
    if RESERVED_SUITES.contains(&suite) {
        return Err(Malformed::ReservedSuite(suite));
    }
    let octets = inside.0;
    let mut count = 0;
    while !inside.0.is_empty() {
        signature(&mut inside).ok_or(Malformed::SignatureLength)?;
        count += 1;
    }
    match count == segments {
        true => Ok(Block { suite, octets }),
        false => Err(Malformed::SignatureCount { segments, signatures: count }),
    }
}

/// Why the octets are no BGPsec_PATH.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum Malformed {
    /// The Secure_Path reaches beyond the attribute, or is no number of whole segments.
    #[error("the length of the Secure_Path is wrong")]
    SecurePathLength,
    /// There is nothing in the Secure_Path.
    #[error("the Secure_Path has no segment")]
    NoSegment,
    /// Nothing follows the Secure_Path.
    #[error("there is no Signature_Block")]
    NoBlock,
    /// A block reaches beyond the attribute, or has no room for its suite.
    #[error("the length of a Signature_Block is wrong")]
    BlockLength,
    /// A signature reaches beyond its block.
    #[error("the length of a signature reaches beyond its Signature_Block")]
    SignatureLength,
    /// Not one signature for each segment.
    #[error("{signatures} signatures in a Signature_Block, for {segments} segments")]
    SignatureCount {
        /// Of the Secure_Path.
        segments: usize,
        /// Of the block.
        signatures: usize,
    },
    /// A suite that nobody shall send.
    #[error("the algorithm suite {0} is reserved")]
    ReservedSuite(u8),
    /// Two blocks of one suite: RFC 8205 does not say what they mean.
    #[error("two Signature_Blocks have the algorithm suite {0}")]
    SameSuite(u8),
    /// More follows than two blocks.
    #[error("{0} octets follow the Signature_Blocks")]
    TooMuch(usize),
}
