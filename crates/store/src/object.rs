//! Objects of a generation.

use std::collections::{BTreeMap, VecDeque};

use crate::{MERGED, Name, PIECE};

/// What an object is, without what is in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Description {
    /// It is replaced whole.
    Value {
        /// How long it is.
        octets: u64,
    },
    /// It is a part of a stream.
    Range {
        /// The offset of its first octet.
        start: u64,
        /// The offset behind its last octet.
        end: u64,
    },
}

/// An object of a list.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub description: Description,
}

/// A part of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Page {
    /// The whole value.
    Value(Vec<u8>),
    /// Octets of a range. The next page begins behind them; at the end of the range there are none.
    Range {
        /// The offset of the first octet of the range.
        start: u64,
        /// The offset behind the last octet of the range.
        end: u64,
        /// Those from the offset that was asked for.
        octets: Vec<u8>,
        /// The offset at which the last chunk of them begins; without octets the one that was asked for. A chunk shorter than
        /// [`MERGED`] may grow, so whoever follows a range asks from here again.
        last: u64,
    },
}

/// An object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Object {
    Value(Vec<u8>),
    Range(Range),
}

/// Octets of a stream, in chunks: what was appended at once, small ones merged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) chunks: VecDeque<Vec<u8>>,
}

impl Range {
    pub(crate) fn at(offset: u64) -> Self {
        Self { start: offset, end: offset, chunks: VecDeque::new() }
    }

    /// The end was checked to be there.
    fn append(&mut self, octets: &[u8]) {
        self.end += octets.len() as u64;
        match self.chunks.back_mut() {
            Some(last) if last.len() + octets.len() <= MERGED => last.extend_from_slice(octets),
            _ => self.chunks.push_back(octets.to_vec()),
        }
    }

    /// Frees chunks that are wholly before an offset, as many as there is budget for.
    fn trim(&mut self, to: u64, budget: &mut u64) {
        while let Some(first) = self.chunks.front() {
            let end = self.start + first.len() as u64;
            if *budget == 0 || end > to {
                return;
            }
            *budget -= 1;
            self.start = end;
            self.chunks.pop_front();
        }
    }

    /// Chunks from an offset where one begins: those that fit, and the first in any case.
    fn page(&self, at: u64, most: usize) -> Option<Page> {
        let mut offset = self.start;
        let mut chunks = self.chunks.iter();
        while offset < at {
            offset += chunks.next()?.len() as u64;
        }
        let (mut octets, mut last) = (Vec::new(), at);
        for chunk in chunks {
            if !octets.is_empty() && octets.len() + chunk.len() > most {
                break;
            }
            last = at + octets.len() as u64;
            octets.extend_from_slice(chunk);
        }
        (offset == at).then_some(Page::Range { start: self.start, end: self.end, octets, last })
    }
}

impl Object {
    pub(crate) fn description(&self) -> Description {
        match self {
            Self::Value(value) => Description::Value { octets: value.len() as u64 },
            Self::Range(range) => Description::Range { start: range.start, end: range.end },
        }
    }

    pub(crate) fn page(&self, at: u64, most: usize) -> Option<Page> {
        match self {
            Self::Value(value) => Some(Page::Value(value.clone())),
            Self::Range(range) => range.page(at, most),
        }
    }

    fn octets(&self) -> u64 {
        match self {
            Self::Value(value) => value.len() as u64,
            Self::Range(range) => range.end - range.start + range.chunks.len() as u64 * PIECE,
        }
    }
}

/// The objects of a generation, by name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Generation {
    objects: BTreeMap<Name, Object>,
    /// What they count for.
    octets: u64,
}

impl Generation {
    pub(crate) fn octets(&self) -> u64 {
        self.octets
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Object> {
        self.objects.get(name)
    }

    pub(crate) fn objects(&self) -> &BTreeMap<Name, Object> {
        &self.objects
    }

    pub(crate) fn remove(&mut self, name: &Name) {
        if let Some(object) = self.objects.remove(name) {
            self.octets -= name.as_slice().len() as u64 + PIECE + object.octets();
        }
    }

    pub(crate) fn put(&mut self, name: Name, object: Object) {
        self.remove(&name);
        self.octets += name.as_slice().len() as u64 + PIECE + object.octets();
        self.objects.insert(name, object);
    }

    /// Does something to the range of this name, if there is one.
    fn change(&mut self, name: &Name, change: impl FnOnce(&mut Range)) {
        if let Some(object) = self.objects.get_mut(name) {
            self.octets -= object.octets();
            if let Object::Range(range) = object {
                change(range);
            }
            self.octets += object.octets();
        }
    }

    pub(crate) fn append(&mut self, name: Name, at: u64, octets: &[u8]) {
        if !self.objects.contains_key(&name) {
            self.put(name, Object::Range(Range::at(at)));
        }
        self.change(&name, |range| range.append(octets));
    }

    pub(crate) fn trim(&mut self, name: &Name, to: u64, budget: &mut u64) {
        self.change(name, |range| range.trim(to, budget));
    }

    /// Frees an object, or a chunk. Whether there was something.
    pub(crate) fn free_one(&mut self) -> bool {
        let Some(mut first) = self.objects.first_entry() else { return false };
        match first.get_mut() {
            Object::Range(range) if range.chunks.len() > 1 => drop(range.chunks.pop_front()),
            Object::Value(_) | Object::Range(_) => drop(first.remove()),
        }
        true
    }
}
