//! Readers of the table: the forwarding engine and those to whom routes are redistributed.
//!
//! A reader is two cursors and nothing else. What it gets is the state of a prefix at the time it reads: a route, or
//! word that there is none (any more). So the same route may be told twice and a prefix withdrawn that the reader
//! never had; both must be harmless to it.

use holdfast_types::{Ipv4Prefix, Ipv6Prefix, Prefix};

use crate::{
    log::{Cursor, Walk},
    path::PathId,
    store::Store,
    tables::{Routed, Tables},
};

/// Rows looked at for each row asked for: bounds the work of readers that want few of many routes.
const LOOKS_PER_ROW: usize = 8;

/// The state of a prefix, as a reader gets it.
pub(crate) type Change = (Prefix, Option<PathId>);

#[derive(Debug)]
pub(crate) struct Reader {
    v4: Option<Cursor<Ipv4Prefix>>,
    v6: Option<Cursor<Ipv6Prefix>>,
    /// Origins whose routes it wants, as bits.
    pub(crate) origins: u32,
    /// Has begun and was told that it has everything.
    pub(crate) is_synced: bool,
    has_begun: bool,
}

/// How far a reader had come.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Progress {
    v4: Option<Cursor<Ipv4Prefix>>,
    v6: Option<Cursor<Ipv6Prefix>>,
}

impl Progress {
    /// Positions in the logs up to which it had read.
    pub(crate) fn positions(&self) -> (u64, u64) {
        let v4 = self.v4.as_ref().map_or(u64::MAX, |cursor| cursor.position);
        (v4, self.v6.as_ref().map_or(u64::MAX, |cursor| cursor.position))
    }

    /// Whether its walk had come to the prefix.
    pub(crate) fn has_walked(&self, prefix: Prefix) -> bool {
        match prefix {
            Prefix::V4(prefix) => self.v4.as_ref().is_some_and(|cursor| cursor.walk.has_passed(prefix)),
            Prefix::V6(prefix) => self.v6.as_ref().is_some_and(|cursor| cursor.walk.has_passed(prefix)),
        }
    }
}

/// What a reader gets at once.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Everything said before is void: a walk of the whole table begins.
    pub(crate) begins: bool,
    pub(crate) changes: Vec<Change>,
    /// The walk is over and every change so far has been read.
    pub(crate) is_complete: bool,
}

impl Reader {
    pub(crate) fn new(tables: &Tables, origins: u32, ipv4: bool, ipv6: bool) -> Self {
        Self {
            v4: ipv4.then(|| Cursor::start(&tables.v4.log)),
            v6: ipv6.then(|| Cursor::start(&tables.v6.log)),
            origins,
            is_synced: false,
            has_begun: false,
        }
    }

    fn restart(&mut self, tables: &Tables) {
        *self = Self::new(tables, self.origins, self.v4.is_some(), self.v6.is_some());
    }

    fn is_lost(&self, tables: &Tables) -> bool {
        self.v4.as_ref().is_some_and(|cursor| cursor.is_lost(&tables.v4.log))
            || self.v6.as_ref().is_some_and(|cursor| cursor.is_lost(&tables.v6.log))
    }

    /// Whether it has been told that everything said before is void.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Reads at most `max` changes. `None` when there is nothing to say.
    pub(crate) fn step(&mut self, tables: &Tables, store: &Store, max: usize) -> Option<Step> {
        if self.is_lost(tables) {
            self.restart(tables);
        }
        let mut step = Step { begins: !std::mem::replace(&mut self.has_begun, true), ..Step::default() };
        let mut looks = max.saturating_mul(LOOKS_PER_ROW);
        if let Some(cursor) = &mut self.v4 {
            read(cursor, tables, store, self.origins, max, &mut looks, &mut step.changes);
        }
        if let Some(cursor) = &mut self.v6 {
            read(cursor, tables, store, self.origins, max, &mut looks, &mut step.changes);
        }
        step.is_complete = self.is_complete(tables);
        let silent = step.is_complete && self.is_synced && step.changes.is_empty();
        (!silent).then_some(step)
    }

    fn is_complete(&self, tables: &Tables) -> bool {
        self.v4.as_ref().is_none_or(|cursor| is_at_end(cursor, tables))
            && self.v6.as_ref().is_none_or(|cursor| is_at_end(cursor, tables))
    }

    /// Changes in the log that it has not read.
    pub(crate) fn lag(&self, tables: &Tables) -> u64 {
        let v4 = self.v4.as_ref().map_or(0, |cursor| cursor.lag(&tables.v4.log));
        v4.max(self.v6.as_ref().map_or(0, |cursor| cursor.lag(&tables.v6.log)))
    }

    /// How far it has come.
    pub(crate) fn progress(&self) -> Progress {
        Progress { v4: self.v4, v6: self.v6 }
    }

    /// Positions in the logs up to which it has read.
    pub(crate) fn positions(&self) -> (u64, u64) {
        self.progress().positions()
    }
}

fn is_at_end<P: Routed>(cursor: &Cursor<P>, tables: &Tables) -> bool {
    cursor.walk == Walk::Done && cursor.lag(&P::tables(tables).log) == 0
}

/// First the log, so that it can be forgotten, then the walk.
fn read<P: Routed>(
    cursor: &mut Cursor<P>,
    tables: &Tables,
    store: &Store,
    origins: u32,
    max: usize,
    looks: &mut usize,
    changes: &mut Vec<Change>,
) {
    let family = P::tables(tables);
    let wanted = |path: &PathId| store.path(*path).origin.bit() & origins != 0;
    while changes.len() < max && *looks > 0 {
        let Some((prefix, origins_before)) = cursor.next_change(&family.log) else { break };
        *looks -= 1;
        let winner = family.row(prefix).winner(store).filter(wanted);
        if winner.is_some() || origins_before & origins != 0 {
            changes.push((prefix.into(), winner));
        }
    }
    let Walk::After(from) = cursor.walk else { return };
    let mut rows = family.rows(from);
    while changes.len() < max && *looks > 0 {
        *looks -= 1;
        let Some(row) = rows.next() else {
            cursor.walk = Walk::Done;
            return;
        };
        cursor.walk = Walk::After(Some(row.prefix));
        if let Some(winner) = row.winner(store).filter(wanted) {
            changes.push((row.prefix.into(), Some(winner)));
        }
    }
}
