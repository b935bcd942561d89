//! What signatures cover (RFC 8205 section 4.2, figure 8).
//!
//! ```text
//! Target AS | Signature Segment N-1 | Segment N | … | Signature Segment 1 | Segment 2 | Segment 1 | suite | AFI | SAFI | NLRI
//! ```
//!
//! The AS of Segment N is the Target AS of hop N-1: what hop N-1 has signed begins with the last four octets of Segment N, and
//! the rest of it is here as well. So one run of octets serves all hops of a block, a suffix each.

use holdfast_types::{Asn, Family, Prefix};

use crate::path::{Block, Path, SEGMENT_LEN, Segment, split_signature};

/// Octets of an AS number.
const AS_LEN: usize = 4;

/// The one route of a BGPsec UPDATE (section 4.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Nlri {
    /// Its family, as in MP_REACH_NLRI.
    pub family: Family,
    /// The prefix; what is signed has zeros behind its length.
    pub prefix: Prefix,
}

impl Nlri {
    /// A unicast route.
    pub fn unicast(prefix: Prefix) -> Self {
        let family = match prefix {
            Prefix::V4(_) => Family::IPV4_UNICAST,
            Prefix::V6(_) => Family::IPV6_UNICAST,
        };
        Self { family, prefix }
    }

    fn write(&self, suite: u8, octets: &mut Vec<u8>) {
        octets.push(suite);
        octets.extend(self.family.afi.0.to_be_bytes());
        octets.push(self.family.safi.0);
        octets.push(self.prefix.length());
        let address = match self.prefix.address() {
            std::net::IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            std::net::IpAddr::V6(address) => address.to_bits(),
        };
        let length = usize::from(self.prefix.length().div_ceil(8));
        octets.extend(&address.to_be_bytes()[..length]);
    }
}

/// What all signatures of a block cover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signed {
    octets: Vec<u8>,
    /// Where that of each hop begins, the most recent first.
    begins: Vec<u32>,
}

impl Signed {
    /// Of a path that has come to `target`, the AS that the receiver has announced in its OPEN.
    pub fn new(path: &Path<'_>, block: Block<'_>, target: Asn, nlri: &Nlri) -> Self {
        let mut signed = Self { octets: Vec::new(), begins: Vec::with_capacity(path.hops()) };
        signed.octets.extend(target.0.to_be_bytes());
        signed.begins.push(0);
        signed.go_on(path.secure_path(), block.behind(1));
        nlri.write(block.suite, &mut signed.octets);
        signed
    }

    /// What the signature of a hop covers, 0 is the most recent.
    ///
    /// # Panics
    /// There is no such hop.
    pub fn of(&self, hop: usize) -> &[u8] {
        &self.octets[self.begins[hop] as usize..]
    }

    /// Segments, and between them the signatures of those that are older than the first one.
    fn go_on(&mut self, segments: &[[u8; SEGMENT_LEN]], mut older: &[u8]) {
        for (number, segment) in segments.iter().enumerate() {
            let is_oldest = number + 1 == segments.len();
            if !is_oldest {
                let (signature, rest) = split_signature(older);
                self.octets.extend(signature);
                older = rest;
            }
            self.octets.extend(segment);
            if !is_oldest {
                self.begins.push((self.octets.len() - AS_LEN) as u32);
            }
        }
    }
}

/// What whoever adds `segment` to a path signs, with the suite of `block`, before it goes to `target`, the AS that the peer has
/// announced in its OPEN. Neither path nor block: the route is originated.
pub fn octets_to_sign(
    before: Option<(&Path<'_>, Block<'_>)>,
    suite: u8,
    segment: Segment,
    target: Asn,
    nlri: &Nlri,
) -> Vec<u8> {
    let mut signed = Signed { octets: target.0.to_be_bytes().to_vec(), begins: Vec::new() };
    let mut segments = vec![segment.octets()];
    let mut signatures: &[u8] = &[];
    if let Some((path, block)) = before {
        segments.extend(path.secure_path());
        signatures = block.behind(0);
    }
    signed.go_on(&segments, signatures);
    nlri.write(suite, &mut signed.octets);
    signed.octets
}
