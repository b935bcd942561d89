//! What the peers of one group have been told, read from the journal: where their next process goes on from.

mod mentions;
mod rewrite;
#[cfg(test)]
mod tests;

use std::{hint::black_box, rc::Rc};

use hashbrown::HashMap;
use holdfast_bgp_wire::nlri::{self, Identified};
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix};
use smallvec::SmallVec;

use self::mentions::{Mention, Mentions};
pub use self::rewrite::Rewrite;
use crate::journal::{
    format::{self, Announced, Item, OURS_AGAIN, PeerNumber, Prefixes, Scope, Unreadable},
    list::{self, Run},
};

/// What is known of a route, and who besides the source was not told.
pub(crate) type Known = (Announced, SmallVec<[PeerNumber; 2]>);

/// What is known of the routes of a prefix, by their identifiers.
pub(crate) type Routes = SmallVec<[(u32, Known); 1]>;

/// What an item of the journal says of the prefixes that it names.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Said {
    identifier: u32,
    change: Change,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Change {
    Announced(Announced),
    Withdrawn,
    /// From this peer alone: between two chunks, when the source of a route changes.
    WithdrawnFrom(PeerNumber),
}

/// One family's part of [`AdjRibOutSnapshot`]. A route is a prefix, with the path identifier under which it was announced:
/// 0 for none.
///
/// Whoever walks the table in address order takes out what was told of each prefix as it comes by.
#[derive(Clone, Debug)]
pub(crate) struct ToldFamily<P> {
    mentions: Mentions<P>,
    /// What mentions name.
    said: Rc<Vec<Said>>,
    /// Those of our own that are not there yet, of prefixes that the walk has met: they are withdrawn when it is known that
    /// they do not come.
    awaited: HashMap<Identified<P>, Known, HashKey>,
    /// That is known.
    awaits: bool,
    /// End-of-RIB was sent.
    pub(crate) end_of_rib: bool,
}

impl<P: IpPrefix> ToldFamily<P> {
    fn new(key: HashKey) -> Self {
        Self {
            mentions: Mentions::new(),
            said: Rc::default(),
            awaited: HashMap::with_hasher(key),
            awaits: true,
            end_of_rib: false,
        }
    }

    /// One slice of putting into order what a walk meets next; whether that is done.
    pub(crate) fn prepare(&mut self) -> bool {
        self.mentions.prepare()
    }

    /// Up to which prefix what was told has been put into order; `None`: all of it has been.
    pub(crate) fn limit(&self) -> Option<P> {
        self.mentions.limit()
    }

    /// Takes out what was told of prefixes before this one (`None`: of all that are in order), which are not there. Of
    /// our own routes those stay that are awaited.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        before: Option<P>,
        ours_are_awaited: bool,
        mut gone: impl FnMut(Identified<P>, &Known),
    ) {
        while let Some(prefix) = self.mentions.first()
            && before.is_none_or(|before| prefix < before)
        {
            let routes = self.take_first();
            self.leave(prefix, routes, ours_are_awaited, &mut gone);
        }
    }

    /// What remains of the routes of a prefix is gone, but for our own if those are awaited.
    pub(crate) fn leave(
        &mut self,
        prefix: P,
        routes: Routes,
        ours_are_awaited: bool,
        mut gone: impl FnMut(Identified<P>, &Known),
    ) {
        for (identifier, known) in routes {
            let route = Identified { identifier, prefix };
            match ours_are_awaited && known.0.source == OURS_AGAIN {
                true => drop(self.awaited.insert(route, known)),
                false => gone(route, &known),
            }
        }
    }

    /// What was told of a prefix, if that is one route, without an identifier, that nobody but its source was not told of.
    /// What was told of those before has been taken out.
    #[inline]
    pub(crate) fn sole(&self, prefix: P) -> Option<Announced> {
        match self.said[self.sole_item(prefix)? as usize] {
            Said { identifier: 0, change: Change::Announced(told) } => Some(told),
            Said { .. } => None,
        }
    }

    /// The place in `said` of the change that the journal has of a prefix, if there is exactly one. Prefixes of one place were
    /// announced with the same attributes, or withdrawn.
    #[inline]
    pub(crate) fn sole_item(&self, prefix: P) -> Option<u32> {
        let first = self.mentions.first().filter(|first| *first == prefix);
        first.and_then(|_| self.mentions.sole())
    }

    /// Takes out what [`Self::sole`] has shown.
    #[inline]
    pub(crate) fn skip(&mut self) {
        self.mentions.skip();
    }

    /// Touches what is said of so many mentions that come next.
    #[inline]
    pub(crate) fn touch(&self, mentions: usize) {
        for mention in self.mentions.next(mentions) {
            black_box(self.said[mention.item as usize].identifier);
        }
    }

    /// Takes out what was told of a prefix. What was told of those before has been taken out.
    pub(crate) fn take(&mut self, prefix: P) -> Routes {
        match self.mentions.first() == Some(prefix) {
            true => self.take_first(),
            false => Routes::new(),
        }
    }

    fn take_first(&mut self) -> Routes {
        let mut routes = Routes::new();
        for mention in self.mentions.take() {
            let Said { identifier, change } = self.said[mention.item as usize];
            let at = routes.iter().position(|(other, _)| *other == identifier);
            match (change, at) {
                (Change::Announced(told), Some(at)) => routes[at].1 = (told, SmallVec::new()),
                (Change::Announced(told), None) => routes.push((identifier, (told, SmallVec::new()))),
                (Change::Withdrawn, Some(at)) => drop(routes.swap_remove(at)),
                (Change::WithdrawnFrom(peer), Some(at)) => {
                    let (told, also_except) = &mut routes[at].1;
                    if told.source != peer {
                        also_except.push(peer);
                    }
                }
                (Change::Withdrawn | Change::WithdrawnFrom(_), None) => {}
            }
        }
        routes
    }

    /// Takes out a route of our own that was awaited.
    #[inline]
    pub(crate) fn take_awaited(&mut self, route: Identified<P>) -> Option<Known> {
        if self.awaited.is_empty() { None } else { self.awaited.remove(&route) }
    }

    /// Whether there is something that the walk has not met.
    pub(crate) fn is_left(&self) -> bool {
        !self.mentions.is_empty()
    }

    /// Whether there are routes of our own that do not come.
    pub(crate) fn has_missed(&self) -> bool {
        !self.awaits && !self.awaited.is_empty()
    }

    /// Takes some of them out.
    pub(crate) fn take_missed(&mut self, most: usize) -> Vec<(Identified<P>, Known)> {
        let some: Vec<_> = self.awaited.keys().take(most).copied().collect();
        let taken =
            some.into_iter().filter_map(|route| Some((route, self.awaited.remove(&route)?))).collect();
        if self.awaited.is_empty() {
            self.awaited.shrink_to_fit();
        }
        taken
    }

    /// Whether there are routes of our own that may still come.
    pub(crate) fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// They do not come.
    pub(crate) fn await_no_more(&mut self) {
        self.awaits = false;
    }

    /// Routes that were announced: whatever else was said of them meanwhile is looked at.
    fn count(&self) -> usize {
        let (mut told, mut count) = (self.clone(), 0);
        while told.is_left() {
            if told.prepare() {
                told.pass(None, false, |_, _| count += 1);
            }
        }
        count
    }

    /// Notes what is said of prefixes.
    fn note(
        &mut self,
        said: Said,
        runs: impl Iterator<Item = Result<Run<P>, Unreadable>>,
    ) -> Result<(), Unreadable> {
        if self.said.last() != Some(&said) {
            Rc::make_mut(&mut self.said).push(said);
        }
        let item = u32::try_from(self.said.len() - 1).map_err(|_| Unreadable)?;
        for run in runs {
            self.mentions.push(Mention { run: run?, item });
        }
        Ok(())
    }

    fn item(&mut self, whom: Scope, item: Item<'_>) -> Result<(), Unreadable> {
        let withdrawn = match whom {
            Scope::All => Change::Withdrawn,
            Scope::Only(peer) => Change::WithdrawnFrom(peer),
        };
        match item {
            Item::Withdrawn(prefixes) => self.read(Said { identifier: 0, change: withdrawn }, prefixes),
            Item::PathsWithdrawn(nlri) => {
                for path in nlri::identified::<P>(nlri) {
                    let Identified { identifier, prefix } = path.map_err(|_| Unreadable)?;
                    self.note(Said { identifier, change: withdrawn }, std::iter::once(Ok(Run::one(prefix))))?;
                }
                Ok(())
            }
            Item::Announced(..) if whom != Scope::All => Err(Unreadable),
            Item::Announced(told, identifier, prefixes) => {
                self.read(Said { identifier, change: Change::Announced(told) }, prefixes)
            }
            Item::EndOfRib => {
                self.end_of_rib = true;
                Ok(())
            }
        }
    }

    fn read(&mut self, said: Said, prefixes: Prefixes<'_>) -> Result<(), Unreadable> {
        match prefixes {
            Prefixes::List(list) => self.note(said, list::runs(list)),
            Prefixes::Nlri(nlri) => {
                let ones =
                    nlri::prefixes::<P>(nlri).map(|prefix| prefix.map(Run::one).map_err(|_| Unreadable));
                self.note(said, ones)
            }
        }
    }
}

/// What the members of a group have been told, up to one entry of the journal.
#[derive(Clone, Debug)]
pub struct AdjRibOutSnapshot {
    pub(crate) v4: ToldFamily<Ipv4Prefix>,
    pub(crate) v6: ToldFamily<Ipv6Prefix>,
}

impl AdjRibOutSnapshot {
    /// Nothing. `key` is that of its hashes: prefixes come from the network.
    pub fn new(key: HashKey) -> Self {
        Self { v4: ToldFamily::new(key), v6: ToldFamily::new(key) }
    }

    /// Takes in the next entry. They come oldest first.
    ///
    /// # Errors
    /// It is damaged; what was told is not known then.
    pub fn entry(&mut self, entry: &[u8]) -> Result<(), Unreadable> {
        let (whom, items) = format::read(entry)?;
        for item in items {
            match item? {
                (0, item) => self.v4.item(whom, item)?,
                (_, item) => self.v6.item(whom, item)?,
            }
        }
        Ok(())
    }

    /// Routes announced: of a prefix, as many as it has paths. It takes as long as all that was said of them is, and is not
    /// for who serves others.
    pub fn count(&self) -> usize {
        self.v4.count() + self.v6.count()
    }

    /// Writes it as few entries, which say the same as all those that were taken in.
    pub fn rewrite(self) -> Rewrite {
        Rewrite::new(self)
    }
}
