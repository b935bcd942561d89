//! The tables of one address family.

use std::iter::Peekable;

use holdfast_prefix_table::PrefixTable;
use holdfast_types::{HashKey, IpPrefix};

use crate::{
    log::{Entry, Log, Walk},
    path::PathId,
    register::WatchId,
    store::{Put, Store},
};

/// The tables of one family. Internal routes have their own: next hops are resolved through them only, and there
/// are few, so the questions about ranges are answered in a small table.
#[derive(Debug)]
pub(crate) struct Family<P> {
    pub(crate) internal: PrefixTable<P, u32>,
    pub(crate) external: PrefixTable<P, u32>,
    pub(crate) log: Log<P>,
    /// Whether anybody reads the log.
    pub(crate) is_followed: bool,
    /// Ranges in which somebody has registered interest.
    pub(crate) watches: PrefixTable<P, WatchId>,
}

/// A prefix with its rows.
pub(crate) struct Row<P> {
    pub(crate) prefix: P,
    pub(crate) internal: Option<u32>,
    pub(crate) external: Option<u32>,
}

impl<P> Row<P> {
    pub(crate) fn winner(&self, store: &Store) -> Option<PathId> {
        store.winner(&self.internal, &self.external)
    }

    pub(crate) fn origins(&self, store: &Store) -> u32 {
        store.origins_of(&self.internal) | store.origins_of(&self.external)
    }

    /// The paths of both rows, each row best first.
    pub(crate) fn paths<'a>(&'a self, store: &'a Store) -> impl Iterator<Item = PathId> + 'a {
        store.paths(&self.internal).iter().chain(store.paths(&self.external)).copied()
    }
}

impl<P: IpPrefix> Family<P> {
    pub(crate) fn new(key: HashKey, log_capacity: usize) -> Self {
        Self {
            internal: PrefixTable::new(key),
            external: PrefixTable::new(key),
            log: Log::new(log_capacity),
            is_followed: false,
            watches: PrefixTable::new(key),
        }
    }

    pub(crate) fn row(&self, prefix: P) -> Row<P> {
        Row { prefix, internal: self.internal.get(prefix), external: self.external.get(prefix) }
    }

    /// All prefixes after `after` in address order.
    pub(crate) fn rows(&self, after: Option<P>) -> impl Iterator<Item = Row<P>> + '_ {
        let from = after.unwrap_or_else(|| P::from_bits(0, 0));
        let inclusive = after.is_none();
        Merge {
            internal: self.internal.iter_from(from, inclusive).peekable(),
            external: self.external.iter_from(from, inclusive).peekable(),
        }
    }

    /// Notes a change for those who follow the table.
    pub(crate) fn log_change(&mut self, (prefix, origins_before): Entry<P>) {
        if self.is_followed {
            self.log.push(prefix, origins_before);
        }
    }

    /// Drops at most `budget` rows' worth of paths from one of the two tables; `drop` says what becomes of a row,
    /// if anything. Returns where to go on.
    pub(crate) fn sweep(
        &mut self,
        internal: bool,
        walk: Walk<P>,
        budget: usize,
        mut drop: impl FnMut(u32) -> Option<Put>,
        mut dropped: impl FnMut(P, &Put),
    ) -> Walk<P> {
        let Walk::After(from) = walk else { return Walk::Done };
        let table = if internal { &mut self.internal } else { &mut self.external };
        let next = table.retain(from, budget, |prefix, row| match drop(row) {
            Some(put) => {
                dropped(prefix, &put);
                put.row
            }
            None => Some(row),
        });
        next.map_or(Walk::Done, |next| Walk::After(Some(next)))
    }

    pub(crate) fn memory(&self) -> usize {
        self.internal.memory() + self.external.memory() + self.watches.memory() + self.log.memory()
    }
}

struct Merge<I: Iterator, E: Iterator> {
    internal: Peekable<I>,
    external: Peekable<E>,
}

impl<P, I, E> Iterator for Merge<I, E>
where
    P: IpPrefix,
    I: Iterator<Item = (P, u32)>,
    E: Iterator<Item = (P, u32)>,
{
    type Item = Row<P>;

    fn next(&mut self) -> Option<Row<P>> {
        let heads = self.internal.peek().into_iter().chain(self.external.peek());
        let prefix = heads.map(|&(prefix, _)| prefix).min()?;
        let internal = self.internal.next_if(|&(p, _)| p == prefix).map(|(_, row)| row);
        let external = self.external.next_if(|&(p, _)| p == prefix).map(|(_, row)| row);
        Some(Row { prefix, internal, external })
    }
}
