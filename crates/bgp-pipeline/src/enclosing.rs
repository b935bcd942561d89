//! Values by prefix, found by whatever lies inside: a few configured prefixes, asked about many routes.

use std::collections::BTreeMap;

use holdfast_types::IpPrefix;

/// A question costs one look-up for each length that the prefixes have.
#[derive(Clone, Debug)]
pub(crate) struct Enclosing<P, T> {
    values: BTreeMap<P, T>,
    /// Those of the prefixes, each once, shortest first.
    lengths: Vec<u8>,
}

impl<P, T> Default for Enclosing<P, T> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), lengths: Vec::new() }
    }
}

impl<P: IpPrefix, T> FromIterator<(P, T)> for Enclosing<P, T> {
    fn from_iter<I: IntoIterator<Item = (P, T)>>(values: I) -> Self {
        let values: BTreeMap<P, T> = values.into_iter().collect();
        let mut lengths: Vec<u8> = values.keys().map(|prefix| prefix.length()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        Self { values, lengths }
    }
}

impl<P: IpPrefix, T> Enclosing<P, T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn get_mut(&mut self, prefix: P) -> Option<&mut T> {
        self.values.get_mut(&prefix)
    }

    /// In address order, shorter first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (P, &T)> {
        self.values.iter().map(|(prefix, value)| (*prefix, value))
    }

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (P, &mut T)> {
        self.values.iter_mut().map(|(prefix, value)| (*prefix, value))
    }

    /// Takes all out.
    pub(crate) fn take(&mut self) -> BTreeMap<P, T> {
        self.lengths.clear();
        std::mem::take(&mut self.values)
    }

    /// Those around a prefix, not its own, shortest first.
    pub(crate) fn around(&self, prefix: P) -> impl Iterator<Item = (P, &T)> {
        self.enclosing(prefix).filter_map(|around| Some((around, self.values.get(&around)?)))
    }

    /// Shows the same, to be changed.
    pub(crate) fn for_each_around(&mut self, prefix: P, mut show: impl FnMut(P, &mut T)) {
        let Self { values, lengths } = self;
        for length in lengths.iter().filter(|length| **length < prefix.length()) {
            let around = P::from_bits(prefix.bits(), *length);
            values.get_mut(&around).into_iter().for_each(|value| show(around, value));
        }
    }

    fn enclosing(&self, prefix: P) -> impl Iterator<Item = P> {
        let shorter = self.lengths.iter().filter(move |length| **length < prefix.length());
        shorter.map(move |length| P::from_bits(prefix.bits(), *length))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Ipv4Prefix, Prefix};

    use super::*;

    fn v4(text: &str) -> Ipv4Prefix {
        text.parse::<Prefix>().ok().and_then(Ipv4Prefix::from_prefix).expect("an IPv4 prefix")
    }

    #[test]
    fn what_is_around_a_prefix_is_shorter_and_has_its_bits() {
        let all = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/8"];
        let mut enclosing: Enclosing<_, u32> = all.iter().map(|text| (v4(text), 0)).collect();
        let around = |enclosing: &Enclosing<_, u32>, text| {
            enclosing.around(v4(text)).map(|(prefix, _)| prefix.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(around(&enclosing, "10.1.2.0/24"), all[..3]);
        assert_eq!(around(&enclosing, "10.1.0.0/16"), all[..2], "not itself");
        assert_eq!(around(&enclosing, "10.0.0.0/15"), all[..2]);
        assert!(around(&enclosing, "0.0.0.0/0").is_empty());
        enclosing.for_each_around(v4("11.2.0.0/16"), |_, count| *count += 1);
        assert_eq!(enclosing.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 0, 0, 1]);
    }
}
