//! A set of peers: asking, adding and removing cost the same however many there are.

use crate::PeerIndex;

const BITS: usize = u64::BITS as usize;

/// A bit for each peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerSet {
    words: Vec<u64>,
    len: usize,
}

impl PeerSet {
    /// Whether the peer is in it.
    pub(crate) fn contains(&self, peer: PeerIndex) -> bool {
        let (word, bit) = place(peer);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(crate) fn insert(&mut self, peer: PeerIndex) {
        let (word, bit) = place(peer);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    pub(crate) fn remove(&mut self, peer: PeerIndex) {
        let (word, bit) = place(peer);
        if let Some(word) = self.words.get_mut(word) {
            self.len -= usize::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// In ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PeerIndex> {
        self.words.iter().enumerate().flat_map(|(number, &word)| Bits { number, word })
    }
}

impl FromIterator<PeerIndex> for PeerSet {
    fn from_iter<T: IntoIterator<Item = PeerIndex>>(peers: T) -> Self {
        let mut set = Self::default();
        peers.into_iter().for_each(|peer| set.insert(peer));
        set
    }
}

fn place(peer: PeerIndex) -> (usize, u64) {
    (peer.index() / BITS, 1 << (peer.index() % BITS))
}

/// The peers of one word.
struct Bits {
    number: usize,
    word: u64,
}

impl Iterator for Bits {
    type Item = PeerIndex;

    fn next(&mut self) -> Option<PeerIndex> {
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word.wrapping_sub(1);
        (bit < BITS).then(|| PeerIndex((self.number * BITS + bit) as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_put_in_is_in_it_once_until_taken_out() {
        let peers = [700, 3, 64, 63, 3, 65_535].map(PeerIndex);
        let mut set: PeerSet = peers.into_iter().collect();
        set.remove(PeerIndex(64));
        set.remove(PeerIndex(64));
        set.remove(PeerIndex(9000));
        let found: Vec<_> = set.iter().collect();
        assert_eq!(found, [3, 63, 700, 65_535].map(PeerIndex));
        assert_eq!(set.len(), 4);
        assert!(set.contains(PeerIndex(700)) && !set.contains(PeerIndex(64)));
    }
}
