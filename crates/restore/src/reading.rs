//! Reading a generation of a store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdfast_nsr::SessionId;
use holdfast_store::{
    Answer, Cursor, Description, MERGED, MOST_PAGE, MOST_VALUES, Name, Page, Refused, Request,
};

use crate::{Damaged, Names};

/// Requests on their way at most: so a reader over a long way waits for few answers.
pub const MOST_ASKED: usize = 32;

/// All objects of a generation.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Objects {
    pub(crate) values: BTreeMap<Name, Vec<u8>>,
    /// Each with the offset of its first octet.
    pub(crate) ranges: BTreeMap<Name, (u64, Vec<u8>)>,
    /// Of each range, where whoever follows it asks next.
    goes_on: BTreeMap<Name, u64>,
    /// Objects that were listed, and could not be read as a whole.
    pub(crate) missing: BTreeSet<Name>,
}

/// Where whoever has read a range to its end asks for what follows: a chunk that is as long as chunks become grows no more.
pub(crate) fn goes_on(last: u64, end: u64) -> u64 {
    if last <= end && end - last < MERGED as u64 { last } else { end }
}

impl Objects {
    /// The sessions that were read, each with the number of its table.
    pub fn sessions(&self) -> impl Iterator<Item = (u32, SessionId)> {
        self.values.keys().filter_map(Names::which)
    }

    /// An object is not there, or not as a whole: whoever needs it misses it.
    fn miss(&mut self, name: Name) {
        self.ranges.remove(&name);
        self.goes_on.remove(&name);
        self.missing.insert(name);
    }

    /// Where a range is read on, and up to where it is known.
    pub(crate) fn reads_on(&self, name: &Name) -> Option<(u64, u64)> {
        let (start, octets) = self.ranges.get(name)?;
        Some((*self.goes_on.get(name)?, start + octets.len() as u64))
    }
}

/// What a request on its way is about.
#[derive(Debug)]
enum Asked {
    List,
    Range(Name),
    Values(Vec<Name>),
}

/// Reads them. The caller sends what [`Self::ask`] says, and gives the answers to [`Self::answered`] in the same order.
///
/// What it takes of memory is what the generation holds.
#[derive(Debug)]
pub struct Reading {
    generation: u64,
    /// Where the list goes on, while nobody has asked there.
    list: Option<Cursor>,
    /// A part of the list is on its way.
    is_listing: bool,
    /// Ranges that were listed, and the offset at which each is read on.
    ranges: VecDeque<(Name, u64)>,
    /// Values that were, and how many octets each has had.
    values: VecDeque<(Name, u64)>,
    seen: BTreeSet<Name>,
    asked: VecDeque<Asked>,
    objects: Objects,
    /// Somebody writes meanwhile: only what peers have said is read, and what goes is left out.
    is_live: bool,
}

impl Reading {
    /// Nothing is read yet of this generation.
    pub fn new(generation: u64) -> Self {
        Self {
            generation,
            list: Some(Cursor::default()),
            is_listing: false,
            ranges: VecDeque::new(),
            values: VecDeque::new(),
            seen: BTreeSet::new(),
            asked: VecDeque::new(),
            objects: Objects::default(),
            is_live: false,
        }
    }

    /// The same of a generation that another router writes meanwhile: only what peers have said, for
    /// [`Objects::received_tables`]. All values come before any range: what a session names is whole by then.
    pub fn live(generation: u64) -> Self {
        Self { is_live: true, ..Self::new(generation) }
    }

    /// What to ask next; `None`: an answer comes first, or all is read.
    pub fn ask(&mut self) -> Option<Request> {
        if self.asked.len() >= MOST_ASKED {
            return None;
        }
        let generation = self.generation;
        // One page of a range is asked for behind the other: they begin as early as they can.
        if !self.is_live
            && let Some(page) = self.next_page()
        {
            return Some(page);
        }
        if let Some(from) = self.list.take() {
            self.is_listing = true;
            self.asked.push_back(Asked::List);
            return Some(Request::List { generation, from });
        }
        let names = self.next_values();
        if !names.is_empty() {
            self.asked.push_back(Asked::Values(names.clone()));
            return Some(Request::Values { generation, names });
        }
        if self.is_listing { None } else { self.next_page() }
    }

    /// The next page of a range.
    fn next_page(&mut self) -> Option<Request> {
        let (name, at) = self.ranges.pop_front()?;
        self.asked.push_back(Asked::Range(name));
        Some(Request::Page { generation: self.generation, name, at })
    }

    /// As many values as are asked for at once.
    fn next_values(&mut self) -> Vec<Name> {
        let (mut names, mut octets) = (Vec::new(), 0_u64);
        while let Some((name, more)) = self.values.front() {
            octets = octets.saturating_add(*more);
            if names.len() == MOST_VALUES || !names.is_empty() && octets > MOST_PAGE as u64 {
                break;
            }
            names.push(*name);
            self.values.pop_front();
        }
        names
    }

    /// The store has answered the oldest request. What it does not have any more is missing to whoever needs it.
    ///
    /// # Errors
    /// [`Damaged::Answer`]: that is none to the request. Nothing can be made of the rest.
    pub fn answered(&mut self, answer: Answer) -> Result<(), Damaged> {
        match (self.asked.pop_front(), answer) {
            (Some(Asked::List), Answer::Listed(listed)) => {
                self.is_listing = false;
                self.list = listed.next;
                // The first page of a range begins where it does.
                let is_wanted = |name: &Name| !self.is_live || Names::is_received(name);
                let objects = listed.objects.into_iter().filter(|object| is_wanted(&object.name));
                let objects = objects.filter(|object| self.seen.insert(object.name));
                objects.for_each(|object| match object.description {
                    Description::Value { octets } => self.values.push_back((object.name, octets)),
                    Description::Range { start, .. } => self.ranges.push_back((object.name, start)),
                });
                Ok(())
            }
            (Some(Asked::Values(names)), Answer::Values(values)) if names.len() == values.len() => {
                for (name, value) in names.into_iter().zip(values) {
                    match value {
                        Some(value) => drop(self.objects.values.insert(name, value)),
                        None => self.objects.miss(name),
                    }
                }
                Ok(())
            }
            (Some(Asked::Range(name)), Answer::Page(Page::Range { start, end, octets, last })) => {
                let (first, all) = self.objects.ranges.entry(name).or_insert((start, Vec::new()));
                let is_empty = octets.is_empty();
                all.extend(octets);
                let at = *first + all.len() as u64;
                self.objects.goes_on.insert(name, goes_on(last, at));
                match at < end {
                    // A range that has no octets before its end has lost them.
                    true if is_empty => self.objects.miss(name),
                    true => self.ranges.push_back((name, at)),
                    false => {}
                }
                Ok(())
            }
            // It is a value by now.
            (Some(Asked::Range(name)), Answer::Page(Page::Value(_)) | Answer::Refused(Refused::NotThere)) => {
                self.objects.miss(name);
                Ok(())
            }
            (_, _) => Err(Damaged::Answer),
        }
    }

    /// Whether the oldest request is about one range: then whatever keeps it from being answered costs that alone.
    pub fn awaits_range(&self) -> bool {
        matches!(self.asked.front(), Some(Asked::Range(_)))
    }

    /// The objects, when all are read.
    pub fn finish(self) -> Option<Objects> {
        Box::new(self).finish_if_over().ok()
    }

    /// The objects, when all are read; otherwise what reads on.
    ///
    /// # Errors
    /// There is more to read.
    pub fn finish_if_over(self: Box<Self>) -> Result<Objects, Box<Self>> {
        let is_left = self.list.is_some() || self.is_listing;
        let is_over = !is_left && self.ranges.is_empty() && self.values.is_empty() && self.asked.is_empty();
        if is_over { Ok(self.objects) } else { Err(self) }
    }
}
