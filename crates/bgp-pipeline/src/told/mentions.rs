//! Routes as the journal mentions them, put into address order in slices.
//!
//! The journal has them in the order of time, the tables are walked in address order. To bring both together, mentions are
//! dealt out by the octets of their prefixes, the highest first, until few enough are together to be sorted at once. What
//! a walk has not reached yet is left as it is. What is said of one prefix stays in the order of time.

use std::rc::Rc;

use holdfast_types::IpPrefix;

/// Mentions that are sorted at once: some 0.2 ms.
const MOST_SORTED: usize = 4096;
/// Mentions that are dealt out in one slice.
const DEALT: usize = 16 << 10;
/// Values of an octet.
const VALUES: usize = 256;

/// A prefix, and what is said of it, as a number.
#[derive(Copy, Clone, Debug)]
pub(super) struct Mention<P> {
    pub(super) prefix: P,
    pub(super) item: u32,
}

/// Mentions of prefixes. A copy shares what has not been sorted.
#[derive(Clone, Debug)]
pub(super) struct Mentions<P> {
    /// Those of the first prefixes, in address order, of which `next` is the first not taken out.
    front: Vec<Mention<P>>,
    next: usize,
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
        Self { front: Vec::new(), next: 0, parts: Vec::new(), dealing: None }
    }

    /// Adds one; nothing has been taken out yet.
    #[inline]
    pub(super) fn push(&mut self, mention: Mention<P>) {
        if self.parts.is_empty() {
            self.parts = Part::all(1);
        }
        let place = VALUES - 1 - octet(mention.prefix, 0);
        Rc::make_mut(&mut self.parts[place].mentions).push(mention);
    }

    /// One slice of putting into order what comes next; whether that is done.
    pub(super) fn prepare(&mut self) -> bool {
        if self.next < self.front.len() {
            return true;
        }
        (self.front, self.next) = (std::mem::take(&mut self.front), 0);
        self.front.clear();
        if let Some(deal) = &mut self.dealing {
            if deal.work() {
                self.parts.extend(self.dealing.take().into_iter().flat_map(|deal| deal.to));
            }
            return false;
        }
        // Several parts at once, if they are small.
        while let Some(part) = self.parts.pop_if(|part| {
            part.is_sortable()
                && self.front.len() + part.mentions.len() <= MOST_SORTED.max(part.mentions.len())
        }) {
            part.append_sorted(&mut self.front);
        }
        if !self.front.is_empty() {
            return true;
        }
        self.front = Vec::new();
        self.dealing = self.parts.pop().map(Deal::new);
        self.dealing.is_none()
    }

    /// Up to which prefix all that is mentioned has been put into order; `None`: all of it has been.
    pub(super) fn limit(&self) -> Option<P> {
        let last = self.front.last().map(|last| last.prefix);
        last.filter(|_| !self.parts.is_empty() || self.dealing.is_some())
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.front.len() && self.parts.is_empty() && self.dealing.is_none()
    }

    /// The first prefix of those that have been put into order.
    #[inline]
    pub(super) fn first(&self) -> Option<P> {
        self.front.get(self.next).map(|first| first.prefix)
    }

    /// The next ones of those that have been put into order.
    #[inline]
    pub(super) fn next(&self, most: usize) -> &[Mention<P>] {
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
    pub(super) fn take(&mut self) -> &[Mention<P>] {
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

    fn append_sorted(self, front: &mut Vec<Mention<P>>) {
        let start = front.len();
        front.extend_from_slice(&self.mentions);
        front[start..].sort_by_key(|mention| mention.prefix);
    }
}

impl<P: IpPrefix> Deal<P> {
    fn new(from: Part<P>) -> Self {
        let to = Part::all(from.octets + 1);
        Self { from, done: 0, to }
    }

    /// One slice; whether it was the last.
    fn work(&mut self) -> bool {
        let rest = &self.from.mentions[self.done..];
        let some = &rest[..rest.len().min(DEALT)];
        for mention in some {
            let place = VALUES - 1 - octet(mention.prefix, self.from.octets);
            Rc::make_mut(&mut self.to[place].mentions).push(*mention);
        }
        self.done += some.len();
        if self.done < self.from.mentions.len() {
            return false;
        }
        self.to.retain(|part| !part.mentions.is_empty());
        true
    }
}

/// An octet of the address, counted from the highest; behind the last one the length.
#[inline]
fn octet<P: IpPrefix>(prefix: P, number: u8) -> usize {
    match number < P::WIDTH / 8 {
        true => (prefix.bits() >> (120 - 8 * u32::from(number))) as usize & (VALUES - 1),
        false => usize::from(prefix.length()),
    }
}
