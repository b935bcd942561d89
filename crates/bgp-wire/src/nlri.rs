//! NLRI: lists of prefixes as length octet and as many octets as hold it (RFC 4271 section 4.3, RFC 4760 section 5),
//! each behind a path identifier where the session has agreed on that (RFC 7911 section 3).

use std::marker::PhantomData;

use holdfast_types::IpPrefix;

/// Why a list of prefixes cannot be read to its end (RFC 7606 section 5.3).
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NlriError {
    /// A prefix longer than an address.
    #[error("prefix length {0} is over the address length")]
    PrefixLength(u8),
    /// The list ends inside a prefix.
    #[error("the list ends inside a prefix")]
    Truncated,
}

/// The prefixes of a list. After an error the iterator ends: the rest cannot be located.
#[derive(Clone, Debug)]
pub struct PrefixIter<'a, P> {
    rest: &'a [u8],
    family: PhantomData<P>,
}

/// Reads a list. Bits after a prefix's length are ignored, as RFC 4271 section 4.3 says.
pub fn prefixes<P: IpPrefix>(bytes: &[u8]) -> PrefixIter<'_, P> {
    PrefixIter { rest: bytes, family: PhantomData }
}

/// How many prefixes a list has: reading it will not fail.
///
/// # Errors
/// What [`prefixes`] would stop at.
pub fn count<P: IpPrefix>(bytes: &[u8]) -> Result<usize, NlriError> {
    let mut rest = bytes;
    let mut count = 0;
    while let Some((&length, after)) = rest.split_first() {
        rest = after.get(octets::<P>(length)?..).ok_or(NlriError::Truncated)?;
        count += 1;
    }
    Ok(count)
}

/// Appends all prefixes of a list.
///
/// # Errors
/// As [`prefixes`]; those before are appended.
pub fn read<P: IpPrefix>(bytes: &[u8], into: &mut Vec<P>) -> Result<(), NlriError> {
    // Of one octet at the least each, but that is rare: three is what there will be room for at first.
    into.reserve(bytes.len() / 3);
    for prefix in prefixes::<P>(bytes) {
        into.push(prefix?);
    }
    Ok(())
}

/// A prefix and, in front of it, which of several paths to it is meant (RFC 7911 section 3).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identified<P> {
    /// The path identifier: any number, with no meaning but to its sender.
    pub identifier: u32,
    /// Where the path leads.
    pub prefix: P,
}

/// Octets of a path identifier.
const IDENTIFIER: usize = 4;

/// Reads a list of prefixes with path identifiers. After an error the iterator ends.
pub fn identified<P: IpPrefix>(bytes: &[u8]) -> impl Iterator<Item = Result<Identified<P>, NlriError>> {
    let mut list = prefixes::<P>(bytes);
    std::iter::from_fn(move || {
        if list.rest.is_empty() {
            return None;
        }
        let Some((identifier, rest)) = list.rest.split_first_chunk() else {
            list.rest = &[];
            return Some(Err(NlriError::Truncated));
        };
        list.rest = rest;
        let prefix = list.next().unwrap_or(Err(NlriError::Truncated));
        Some(prefix.map(|prefix| Identified { identifier: u32::from_be_bytes(*identifier), prefix }))
    })
}

/// How many prefixes a list has in which each is behind a path identifier.
///
/// # Errors
/// What [`identified`] would stop at.
pub fn count_identified<P: IpPrefix>(bytes: &[u8]) -> Result<usize, NlriError> {
    identified::<P>(bytes).try_fold(0, |count, prefix| prefix.map(|_| count + 1))
}

/// Appends all prefixes of such a list.
///
/// # Errors
/// As [`identified`]; those before are appended.
pub fn read_identified<P: IpPrefix>(bytes: &[u8], into: &mut Vec<Identified<P>>) -> Result<(), NlriError> {
    for prefix in identified::<P>(bytes) {
        into.push(prefix?);
    }
    Ok(())
}

/// Appends the prefixes of a list of either form, without their path identifiers.
///
/// # Errors
/// As [`prefixes`] or [`identified`]; those before are appended.
pub fn read_either<P: IpPrefix>(bytes: &[u8], identifiers: bool, into: &mut Vec<P>) -> Result<(), NlriError> {
    if !identifiers {
        return read(bytes, into);
    }
    for path in identified::<P>(bytes) {
        into.push(path?.prefix);
    }
    Ok(())
}

/// What stands in a list of a session: prefixes, or prefixes with path identifiers.
pub trait Nlri: Copy {
    /// The prefix.
    type Prefix: IpPrefix;
    /// The most octets that [`Self::push`] appends.
    const MAX_OCTETS: usize;

    /// The octets that [`Self::push`] appends.
    fn octets(self) -> usize;

    /// Appends it.
    fn push(self, out: &mut Vec<u8>);
}

impl<P: IpPrefix> Nlri for P {
    type Prefix = P;
    const MAX_OCTETS: usize = 1 + P::WIDTH as usize / 8;

    fn octets(self) -> usize {
        1 + usize::from(self.length().div_ceil(8))
    }

    #[inline]
    fn push(self, out: &mut Vec<u8>) {
        push_prefix(out, self);
    }
}

impl<P: IpPrefix> Nlri for Identified<P> {
    type Prefix = P;
    const MAX_OCTETS: usize = IDENTIFIER + P::MAX_OCTETS;

    fn octets(self) -> usize {
        IDENTIFIER + self.prefix.octets()
    }

    fn push(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.identifier.to_be_bytes());
        push_prefix(out, self.prefix);
    }
}

/// Appends one prefix.
pub fn push_prefix<P: IpPrefix>(out: &mut Vec<u8>, prefix: P) {
    let length = prefix.length();
    let end = out.len() + 1 + usize::from(length.div_ceil(8));
    // The whole address and then a cut: a copy of constant size beats one of variable size.
    if P::WIDTH == 32 {
        let [a, b, c, d] = ((prefix.bits() >> 96) as u32).to_be_bytes();
        out.extend_from_slice(&[length, a, b, c, d]);
    } else {
        out.push(length);
        out.extend_from_slice(&prefix.bits().to_be_bytes());
    }
    out.truncate(end);
}

/// Octets of the address part.
#[inline]
fn octets<P: IpPrefix>(length: u8) -> Result<usize, NlriError> {
    if length > P::WIDTH { Err(NlriError::PrefixLength(length)) } else { Ok(usize::from(length.div_ceil(8))) }
}

/// The first `octets` of `bytes`, left-aligned; what follows them may be garbage.
#[inline]
fn address<P: IpPrefix>(bytes: &[u8], octets: usize) -> Option<u128> {
    // Loads of constant size wherever the list goes on, which is nearly everywhere.
    if P::WIDTH == 32 {
        if let Some(chunk) = bytes.first_chunk::<4>() {
            return Some(u128::from(u32::from_be_bytes(*chunk)) << 96);
        }
    } else if let Some(chunk) = bytes.first_chunk::<16>() {
        return Some(u128::from_be_bytes(*chunk));
    }
    let mut address = [0; 16];
    address[..octets].copy_from_slice(bytes.get(..octets)?);
    Some(u128::from_be_bytes(address))
}

impl<P: IpPrefix> PrefixIter<'_, P> {
    #[inline]
    fn read(&mut self, length: u8, after: usize) -> Result<P, NlriError> {
        let octets = octets::<P>(length)?;
        let bytes = &self.rest[after..];
        let bits = address::<P>(bytes, octets).ok_or(NlriError::Truncated)?;
        self.rest = &bytes[octets..];
        Ok(P::from_bits(bits, length))
    }
}

impl<P: IpPrefix> Iterator for PrefixIter<'_, P> {
    type Item = Result<P, NlriError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let length = *self.rest.first()?;
        let prefix = self.read(length, 1);
        if prefix.is_err() {
            self.rest = &[];
        }
        Some(prefix)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest.len().div_ceil(P::MAX_OCTETS), Some(self.rest.len()))
    }
}
