//! Lists of prefixes in entries: each prefix is written as its difference from the prefix before.
//!
//! ```text
//!   0 to 128   a prefix of this length: its octets follow, as in NLRI
//! 129 to 191   1 to 63 prefixes of the length of the one before, each the next network
//! 192 to 208   a prefix of that length, which shares its first 0 to 16 octets with the one before: the others follow
//! ```

use std::marker::PhantomData;

use holdfast_types::IpPrefix;

/// An entry of the journal that no version of `bgp` up to this one has written.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot be read: it was damaged, or written by a later version")]
pub struct Unreadable;

const NEXT: u8 = 128;
const MOST_NEXT: u8 = 63;
const SHARES: u8 = NEXT + MOST_NEXT + 1;
const MOST_SHARED: u8 = 16;

/// Prefixes of one length, each the next network of the one before.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Run<P> {
    pub(crate) first: P,
    pub(crate) count: u16,
}

impl<P: IpPrefix> Run<P> {
    pub(crate) fn one(prefix: P) -> Self {
        Self { first: prefix, count: 1 }
    }

    /// Each of them.
    #[inline]
    pub(crate) fn prefixes(self) -> impl Iterator<Item = P> {
        let ones = std::iter::successors(Some(self.first), |before| next(*before));
        ones.take(self.count.into())
    }

    /// The first prefixes of it, as many as this, and the others, if there are any.
    pub(crate) fn split(self, count: u16) -> (Self, Option<Self>) {
        let count = count.min(self.count);
        let others = (self.count > count).then(|| Self {
            first: after(self.first, count).unwrap_or(self.first),
            count: self.count - count,
        });
        (Self { count, ..self }, others)
    }
}

/// Between a prefix and the next network of its length, in the bits of addresses; `None`: there is one network.
fn step<P: IpPrefix>(prefix: P) -> Option<u128> {
    1_u128.checked_shl(128 - u32::from(prefix.length()))
}

/// The next network of the length of a prefix.
#[inline]
fn next<P: IpPrefix>(prefix: P) -> Option<P> {
    Some(P::from_bits(prefix.bits().checked_add(step(prefix)?)?, prefix.length()))
}

/// The network that is so many behind a prefix, of its length.
fn after<P: IpPrefix>(prefix: P, count: u16) -> Option<P> {
    let distance = step(prefix)?.checked_mul(count.into())?;
    Some(P::from_bits(prefix.bits().checked_add(distance)?, prefix.length()))
}

fn octets<P: IpPrefix>(prefix: P) -> usize {
    usize::from(prefix.length().div_ceil(8))
}

/// Appends a list.
pub(crate) fn push<P: IpPrefix>(prefixes: impl Iterator<Item = P>, out: &mut Vec<u8>) {
    let mut before: Option<P> = None;
    // Where the count of the last run stands, if the next prefix may go on with it.
    let mut run: Option<usize> = None;
    for prefix in prefixes {
        let like = before.replace(prefix).filter(|before| before.length() == prefix.length());
        if like.and_then(next) == Some(prefix) {
            match run.filter(|at| out[*at] < NEXT + MOST_NEXT) {
                Some(at) => out[at] += 1,
                None => {
                    run = Some(out.len());
                    out.push(NEXT + 1);
                }
            }
            continue;
        }
        run = None;
        let (all, end) = (prefix.bits().to_be_bytes(), octets(prefix));
        let shared = like.map(|like| ((like.bits() ^ prefix.bits()).leading_zeros() / 8) as usize);
        match shared {
            Some(shared) => {
                let shared = shared.min(end);
                out.push(SHARES + shared as u8);
                out.extend_from_slice(&all[shared..end]);
            }
            None => {
                out.push(prefix.length());
                out.extend_from_slice(&all[..end]);
            }
        }
    }
}

/// Reads a list; each time as many as follow each other.
pub(crate) fn runs<P: IpPrefix>(list: &[u8]) -> Runs<'_, P> {
    Runs { rest: list, before: None, family: PhantomData }
}

#[derive(Clone, Debug)]
pub(crate) struct Runs<'a, P> {
    rest: &'a [u8],
    /// The last prefix that was read.
    before: Option<P>,
    family: PhantomData<P>,
}

impl<P: IpPrefix> Runs<'_, P> {
    fn run(&mut self) -> Option<Run<P>> {
        let (&code, rest) = self.rest.split_first()?;
        self.rest = rest;
        let first = match code {
            ..=NEXT => self.prefix(0, code, 0)?,
            SHARES.. => {
                let before = self.before?;
                let shared = (code - SHARES).min(MOST_SHARED + 1);
                self.prefix(before.bits(), before.length(), shared)?
            }
            _ => {
                let count = u16::from(code - NEXT);
                let first = self.before.and_then(next)?;
                self.before = Some(after(first, count - 1)?);
                return self.followed(Run { first, count });
            }
        };
        self.before = Some(first);
        self.followed(Run::one(first))
    }

    /// The run with those that follow it at once.
    fn followed(&mut self, mut run: Run<P>) -> Option<Run<P>> {
        while let Some((&code @ 129..SHARES, rest)) = self.rest.split_first()
            && let Some(count) = run.count.checked_add(u16::from(code - NEXT))
        {
            self.rest = rest;
            self.before = Some(after(run.first, count - 1)?);
            run.count = count;
        }
        Some(run)
    }

    fn prefix(&mut self, bits: u128, length: u8, shared: u8) -> Option<P> {
        let (end, shared) = (usize::from(length.div_ceil(8)), usize::from(shared));
        if length > P::WIDTH || shared > end {
            return None;
        }
        let (own, rest) = self.rest.split_at_checked(end - shared)?;
        self.rest = rest;
        let mut all = bits.to_be_bytes();
        all[shared..end].copy_from_slice(own);
        Some(P::from_bits(u128::from_be_bytes(all), length))
    }
}

/// An error is the last.
impl<P: IpPrefix> Iterator for Runs<'_, P> {
    type Item = Result<Run<P>, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let run = self.run().ok_or(Unreadable);
        if run.is_err() {
            self.rest = &[];
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Ipv4Prefix, Ipv6Prefix};
    use proptest::prelude::*;

    use super::*;

    fn pushed<P: IpPrefix>(prefixes: &[P]) -> Vec<u8> {
        let mut list = Vec::new();
        push(prefixes.iter().copied(), &mut list);
        list
    }

    fn read<P: IpPrefix>(list: &[u8]) -> Result<Vec<P>, Unreadable> {
        let mut read = Vec::new();
        for run in runs::<P>(list) {
            read.extend(run?.prefixes());
        }
        Ok(read)
    }

    #[test]
    fn a_prefix_takes_what_differs_from_the_one_before() {
        let prefix = |text: &str| text.parse::<Ipv4Prefix>().expect("a prefix");
        let list = ["10.1.2.0/24", "10.1.3.0/24", "10.1.4.0/24", "10.1.9.0/24", "10.2.0.0/16", "0.0.0.0/0"];
        let prefixes = list.map(prefix);
        let expected = [24, 10, 1, 2, NEXT + 2, SHARES + 2, 9, 16, 10, 2, 0];
        assert_eq!(pushed(&prefixes), expected);
        assert_eq!(read(&expected), Ok(prefixes.to_vec()));
        let first = runs::<Ipv4Prefix>(&expected).next();
        assert_eq!(first, Some(Ok(Run { first: prefixes[0], count: 3 })));
    }

    #[test]
    fn networks_that_follow_each_other_take_one_octet_for_63() {
        let prefixes: Vec<_> =
            (0..200).map(|n| Ipv4Prefix::from_bits((0x1000_0000 + (n << 8)) << 96, 24)).collect();
        let list = pushed(&prefixes);
        assert_eq!(list, [24, 16, 0, 0, NEXT + 63, NEXT + 63, NEXT + 63, NEXT + 10]);
        assert_eq!(runs::<Ipv4Prefix>(&list).count(), 1);
        assert_eq!(read(&list), Ok(prefixes));
    }

    #[test]
    fn what_no_list_has_is_refused() {
        for list in [
            &[33_u8, 1, 2, 3, 4, 5][..],
            &[24, 1, 2],
            &[NEXT + 1],
            &[SHARES],
            &[24, 1, 2, 3, SHARES + 4],
            &[255],
        ] {
            assert_eq!(read::<Ipv4Prefix>(list), Err(Unreadable), "{list:?}");
        }
        // There is no next network behind the last.
        assert_eq!(read::<Ipv4Prefix>(&[8, 255, NEXT + 1]), Err(Unreadable));
        assert_eq!(read::<Ipv4Prefix>(&[0, NEXT + 1]), Err(Unreadable));
    }

    proptest! {
        #![proptest_config(holdfast_testing::cases(256))]

        #[test]
        fn a_list_is_read_as_it_was_written(
            prefixes in prop::collection::vec((any::<u32>(), 0..=32_u8, 0..5_u32), 0..100),
            wide in prop::collection::vec((any::<u128>(), 0..=128_u8), 0..30),
        ) {
            let many = prefixes.into_iter().flat_map(|(bits, length, more)| {
                let first = Ipv4Prefix::from_bits(u128::from(bits) << 96, length);
                std::iter::successors(Some(first), |before| next(*before)).take(1 + more as usize)
            });
            let many: Vec<_> = many.collect();
            prop_assert_eq!(read(&pushed(&many)), Ok(many));
            let wide: Vec<_> = wide.into_iter().map(|(bits, length)| Ipv6Prefix::from_bits(bits, length)).collect();
            prop_assert_eq!(read(&pushed(&wide)), Ok(wide));
        }

        #[test]
        fn any_octets_are_read_or_refused(list in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (read::<Ipv4Prefix>(&list), read::<Ipv6Prefix>(&list));
        }
    }
}
