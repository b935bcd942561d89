//! Routes as the journal mentions them, put into address order in slices.
//!
//! The journal has them in the order of time, the tables are walked in address order. To bring both together, mentions are
//! dealt out by the octets of their prefixes, the highest first, until few enough are together to be sorted at once. What
//! a walk has not reached yet is left as it is. What is said of one prefix stays in the order of time.
//!
//! Networks that follow each other and were mentioned together stay together until the walk is near: a table that was told
//! by sources with a block of addresses each takes little more than one mention for each source.

use std::{cmp::Reverse, rc::Rc};

use holdfast_types::IpPrefix;

use crate::journal::list::Run;

/// Mentions that are sorted at once, and prefixes that are put into order in one slice: some 0.2 ms.
const MOST_SORTED: usize = 4096;
/// Mentions that are dealt out in one slice.
const DEALT: usize = 16 << 10;
/// Values of an octet.
const VALUES: usize = 256;

/// Prefixes that follow each other, and what is said of them, as a number. Of two, what was said later has the higher one, or
/// the same where the same was said.
#[derive(Copy, Clone, Debug)]
pub(super) struct Mention<P> {
    pub(super) run: Run<P>,
    pub(super) item: u32,
}

/// A prefix, and what is said of it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Single<P> {
    pub(super) prefix: P,
    pub(super) item: u32,
}

/// Mentions of prefixes. A copy shares what has not been sorted.
#[derive(Clone, Debug)]
pub(super) struct Mentions<P> {
    /// Those of the first prefixes, in address order, of which `next` is the first not taken out.
    front: Vec<Single<P>>,
    next: usize,
    /// The next ones, by their first prefixes, and of one by what is said; the last first. They may overlap.
    sorted: Vec<Mention<P>>,
    /// The others, the last first.
    parts: Vec<Part<P>>,
    /// One that is too large to be sorted.
    dealing: Option<Deal<P>>,
}

/// Mentions of prefixes that agree in so many octets.
#[derive(Clone, Debug)]
struct Part<P> {
    octets: u8,
    mentions: Rc<Vec<Mention<P>>>,
}

/// A part that is being dealt out.
#[derive(Clone, Debug)]
struct Deal<P> {
    from: Part<P>,
    done: usize,
    /// By the next octet.
    to: Vec<Part<P>>,
}

impl<P: IpPrefix> Mentions<P> {
    pub(super) fn new() -> Self {
        Self { front: Vec::new(), next: 0, sorted: Vec::new(), parts: Vec::new(), dealing: None }
    }

    /// Adds one; nothing has been taken out yet.
    #[inline]
    pub(super) fn push(&mut self, mention: Mention<P>) {
        if self.parts.is_empty() {
            self.parts = Part::all(1);
        }
        deal(mention, 0, &mut self.parts);
    }

    /// One slice of putting into order what comes next; whether that is done.
    pub(super) fn prepare(&mut self) -> bool {
        if self.next < self.front.len() {
            return true;
        }
        self.next = 0;
        self.front.clear();
        if !self.sorted.is_empty() {
            self.bring_forward();
            return true;
        }
        if let Some(deal) = &mut self.dealing {
            if deal.work() {
                self.parts.extend(self.dealing.take().into_iter().flat_map(|deal| deal.to));
            }
            return false;
        }
        // Several parts at once, if they are small.
        while let Some(part) = self.parts.pop_if(|part| {
            part.is_sortable()
                && self.sorted.len() + part.mentions.len() <= MOST_SORTED.max(part.mentions.len())
        }) {
            self.sorted.extend_from_slice(&part.mentions);
        }
        if !self.sorted.is_empty() {
            self.sorted.sort_by_key(|mention| Reverse((mention.run.first, mention.item)));
            self.bring_forward();
            return true;
        }
        (self.front, self.sorted) = (Vec::new(), Vec::new());
        self.dealing = self.parts.pop().map(Deal::new);
        self.dealing.is_none()
    }

    /// Takes the first prefixes out of the runs in which they are: all that is said of a prefix at once.
    fn bring_forward(&mut self) {
        while let Some(mention) = self.sorted.pop() {
            let is_next = self.front.last().is_none_or(|last| last.prefix != mention.run.first);
            if is_next && self.front.len() >= MOST_SORTED {
                return self.sorted.push(mention);
            }
            let Mention { run, item } = mention;
            let behind = self.sorted.last().map(|behind| behind.run.first);
            let room = MOST_SORTED.saturating_sub(self.front.len()).max(1);
            let before = self.front.len();
            let ones = run.prefixes().take(room).enumerate();
            let ones =
                ones.take_while(|(at, prefix)| *at == 0 || behind.is_none_or(|behind| *prefix < behind));
            self.front.extend(ones.map(|(_, prefix)| Single { prefix, item }));
            let taken = self.front.len() - before;
            if let (_, Some(run)) = run.split(taken as u16) {
                let key = (run.first, item);
                let place = self.sorted.partition_point(|other| (other.run.first, other.item) > key);
                self.sorted.insert(place, Mention { run, item });
            }
        }
    }

    /// Up to which prefix all that is mentioned has been put into order; `None`: all of it has been.
    pub(super) fn limit(&self) -> Option<P> {
        let last = self.front.last().map(|last| last.prefix);
        last.filter(|_| self.has_more())
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.front.len() && !self.has_more()
    }

    /// Whether there are others than those that have been put into order.
    fn has_more(&self) -> bool {
        !self.sorted.is_empty() || !self.parts.is_empty() || self.dealing.is_some()
    }

    /// The first prefix of those that have been put into order.
    #[inline]
    pub(super) fn first(&self) -> Option<P> {
        self.front.get(self.next).map(|first| first.prefix)
    }

    /// The next ones of those that have been put into order.
    #[inline]
    pub(super) fn next(&self, most: usize) -> &[Single<P>] {
        &self.front[self.next..self.front.len().min(self.next + most)]
    }

    /// What is said of it, if it is one thing.
    #[inline]
    pub(super) fn sole(&self) -> Option<u32> {
        match &self.front[self.next..] {
            [first, second, ..] if first.prefix == second.prefix => None,
            [first, ..] => Some(first.item),
            [] => None,
        }
    }

    /// Takes that out.
    #[inline]
    pub(super) fn skip(&mut self) {
        self.next += 1;
    }

    /// Takes out all that is said of the first prefix, in the order of time.
    pub(super) fn take(&mut self) -> &[Single<P>] {
        let rest = &self.front[self.next..];
        let count = rest
            .first()
            .map_or(0, |first| rest.iter().take_while(|other| other.prefix == first.prefix).count());
        self.next += count;
        &self.front[self.next - count..self.next]
    }
}

impl<P: IpPrefix> Part<P> {
    /// One for each value of an octet, the last first.
    fn all(octets: u8) -> Vec<Self> {
        let mentions = Rc::default();
        (0..VALUES).map(|_| Self { octets, mentions: Rc::clone(&mentions) }).collect()
    }

    /// Whether there are few, or all are of one prefix.
    fn is_sortable(&self) -> bool {
        self.mentions.len() <= MOST_SORTED || self.octets > P::WIDTH / 8
    }
}

impl<P: IpPrefix> Deal<P> {
    fn new(from: Part<P>) -> Self {
        let to = Part::all(from.octets + 1);
        Self { from, done: 0, to }
    }

    /// One slice; whether it was the last.
    fn work(&mut self) -> bool {
        let mut dealt = 0;
        while let Some(mention) = self.from.mentions.get(self.done)
            && dealt < DEALT
        {
            dealt += deal(*mention, self.from.octets, &mut self.to);
            self.done += 1;
        }
        if self.done < self.from.mentions.len() {
            return false;
        }
        self.to.retain(|part| !part.mentions.is_empty());
        true
    }
}

/// Puts a mention into the parts, one for each value of an octet, the last first; in how many pieces.
#[inline]
fn deal<P: IpPrefix>(Mention { run, item }: Mention<P>, number: u8, to: &mut [Part<P>]) -> usize {
    let (mut left, mut pieces) = (Some(run), 0);
    while let Some(run) = left {
        let count = if run.count == 1 { 1 } else { alike(run.first, number) };
        let (piece, others) = run.split(count);
        let place = VALUES - 1 - octet(run.first, number);
        Rc::make_mut(&mut to[place].mentions).push(Mention { run: piece, item });
        (left, pieces) = (others, pieces + 1);
    }
    pieces
}

/// An octet of the address, counted from the highest; behind the last one the length.
#[inline]
fn octet<P: IpPrefix>(prefix: P, number: u8) -> usize {
    match number < P::WIDTH / 8 {
        true => (prefix.bits() >> (120 - 8 * u32::from(number))) as usize & (VALUES - 1),
        false => usize::from(prefix.length()),
    }
}

/// How many prefixes that follow each other agree in this octet, from one on.
fn alike<P: IpPrefix>(first: P, number: u8) -> u16 {
    let (length, end) = (u32::from(first.length()), 8 * (u32::from(number) + 1));
    if number >= P::WIDTH / 8 || length + 8 <= end {
        return u16::MAX;
    }
    match length.checked_sub(end) {
        None | Some(0) => 1,
        // So many bits tell those apart that agree.
        Some(bits) => {
            let before = first.bits() << end >> (128 - bits);
            u16::try_from((1_u128 << bits) - before).unwrap_or(u16::MAX)
        }
    }
}
