//! From a replication log to batches for the store: what the store lacks, in an order in which it may stop at any time.
//!
//! ```text
//! objects of a log, the name of each behind that of the table:
//!   log         what is the same for all sessions       s/7         session 7: which snapshot holds, …
//!   s/7/in      octets of the peer                      s/7/out     octets to the peer that it may not have acknowledged
//!   s/7/record  its record                              s/7/snap/3  its third snapshot
//!   s/7/socket  what its connection can be made again with
//!   e/41        entry 41, and the number of the one before it
//! ```
//!
//! A *pass* looks at all sessions once. It notes how far each has been told things, then copies what all peers have said, and
//! then what they have been told. So the store never knows that a peer was told something whose cause it does not have.
//!
//! A snapshot takes many batches. Until the last of them the store has the snapshot before, and every octet since.

mod entries;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::stored::v1 as stored;
use holdfast_nsr::{Changed, EntryNumber, Reader, SessionId, Shared, View};
use holdfast_restore::Names;
use holdfast_store::{Name, NoRoom, Operation};
use prost::Message;

use crate::draft::{Draft, Held, no_room};

/// Octets of a stream in one operation.
const PART: usize = 64 << 10;

/// How far the store has a session: offsets of its streams.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) id: SessionId,
    /// Behind the octets of the peer that the store has, or need not have.
    pub(crate) received: u64,
    /// The same of the octets to the peer.
    pub(crate) sent: u64,
}

/// What became of an attempt to fill a batch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Filled {
    /// There is more for another batch.
    Full,
    /// The pass is over: the store has what there was when it began.
    All,
}

/// What of a session is in the store, or on its way there.
#[derive(Debug)]
struct Copied {
    /// As it was written last; `None`: not yet.
    written: Option<stored::Session>,
    record: Option<Vec<u8>>,
    socket: Vec<u8>,
    received: u64,
    sent: u64,
    /// The ranges in the store: what the peer has said, what it was told, and the snapshot that holds there.
    incoming: Held,
    outgoing: Held,
    held_snapshot: Held,
    snapshot: Option<Copying>,
}

/// A snapshot that is being copied.
#[derive(Copy, Clone, Debug)]
struct Copying {
    number: u32,
    next_block: u32,
    octets: u64,
    held: Held,
}

impl Copied {
    fn snapshot_in_store(&self) -> u32 {
        self.written.as_ref().map_or(0, |written| written.snapshot)
    }
}

/// Where a pass is.
#[derive(Debug)]
struct Pass {
    views: Vec<View>,
    /// Of how many of them the incoming octets are done, and then the rest.
    received: usize,
    sent: usize,
    /// All lists are walked to their ends; these entries were met.
    met: Option<BTreeSet<EntryNumber>>,
    /// No session has changed under the hands, so all entries were met.
    is_whole: bool,
}

/// Copies one log.
#[derive(Debug)]
pub(crate) struct Copier<R> {
    reader: Reader<R>,
    names: Names,
    vrf: String,
    has_log: bool,
    sessions: BTreeMap<SessionId, Copied>,
    /// Entries in the store, with the ones before them.
    entries: BTreeMap<EntryNumber, u64>,
    /// Of the log, when all lists were walked last.
    walked: Option<u64>,
    pass: Option<Pass>,
    /// What is to be removed, the first last; of ranges how long they are.
    useless: Vec<(Name, Held)>,
    /// Sessions whose marks have moved with the batch that is being filled.
    moved: BTreeSet<SessionId>,
    /// Sessions that are not copied.
    without: BTreeSet<SessionId>,
    /// What is known of the sessions' sockets.
    sockets: BTreeMap<SessionId, Vec<u8>>,
}

/// What stops the filling of a batch.
enum Stop {
    NoRoom,
    Changed,
}

impl From<NoRoom> for Stop {
    fn from(_: NoRoom) -> Self {
        Self::NoRoom
    }
}

impl From<Changed> for Stop {
    fn from(_: Changed) -> Self {
        Self::Changed
    }
}

impl<R: Shared> Copier<R> {
    /// Copies the log of a VRF, or of the default table, under names that begin with the table's.
    pub(crate) fn new(reader: Reader<R>, table: u32, vrf: &str) -> Self {
        Self {
            reader,
            names: Names::new(table),
            vrf: vrf.to_owned(),
            has_log: false,
            sessions: BTreeMap::new(),
            entries: BTreeMap::new(),
            walked: None,
            pass: None,
            useless: Vec::new(),
            moved: BTreeSet::new(),
            without: BTreeSet::new(),
            sockets: BTreeMap::new(),
        }
    }

    /// The store has nothing: everything is copied anew.
    pub(crate) fn restart(&mut self) {
        self.sessions.clear();
        self.entries.clear();
        self.useless.clear();
        self.moved.clear();
        (self.walked, self.pass, self.has_log) = (None, None, false);
    }

    /// Sessions in the log now.
    pub(crate) fn in_log(&self) -> Vec<SessionId> {
        self.reader.sessions()
    }

    /// The record of a session, as it is now.
    ///
    /// # Errors
    /// [`Changed`]: it is not in the log, or was just replaced.
    pub(crate) fn record(&self, id: SessionId) -> Result<Vec<u8>, Changed> {
        self.reader.record(&self.reader.view(id)?)
    }

    /// These sessions are not copied.
    pub(crate) fn leave_out(&mut self, without: BTreeSet<SessionId>) {
        self.without = without;
    }

    /// What the socket of a session can be made again with, as far as that is known.
    pub(crate) fn set_socket(&mut self, id: SessionId, socket: Option<Vec<u8>>) {
        match socket {
            Some(socket) => drop(self.sockets.insert(id, socket)),
            None => drop(self.sockets.remove(&id)),
        }
    }

    /// Whether the store has the socket of a session when all batches have arrived.
    pub(crate) fn has_socket(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|copied| !copied.socket.is_empty())
    }

    /// How far the sessions are whose marks have moved since this was asked last.
    pub(crate) fn take_moved(&mut self) -> Vec<Mark> {
        let moved = std::mem::take(&mut self.moved);
        moved.into_iter().filter_map(|id| self.mark(id)).collect()
    }

    /// How far a session is in the store when all batches have arrived.
    pub(crate) fn mark(&self, id: SessionId) -> Option<Mark> {
        let copied = self.sessions.get(&id)?;
        // What is in the range behind the end that the session knows means nothing yet.
        let sent = copied.written.as_ref()?.outgoing;
        Some(Mark { id, received: copied.received, sent })
    }

    /// The offset up to which the octets of a peer have been read from its socket.
    #[cfg(test)]
    pub(crate) fn read_up_to(&self, id: SessionId) -> Option<u64> {
        self.reader.view(id).ok().map(|view| view.incoming.1)
    }

    /// Octets that still lie in the socket, from this offset of the stream on. Nobody has read them, so they stand in no log.
    /// False: there is more than the batch has room for.
    pub(crate) fn peeked(&mut self, batch: &mut Draft, id: SessionId, from: u64, octets: &[u8]) -> bool {
        let name = self.names.incoming(id);
        let Some(copied) = self.sessions.get_mut(&id).filter(|copied| copied.written.is_some()) else {
            return true;
        };
        let known = copied.received.checked_sub(from).and_then(|known| usize::try_from(known).ok());
        let new = known.and_then(|known| octets.get(known..)).unwrap_or(&[]);
        for part in new.chunks(PART) {
            let at = copied.received;
            if batch.push(Operation::Append { name, at, octets: part.to_vec() }).is_err() {
                return false;
            }
            copied.received += part.len() as u64;
            copied.incoming.grow(part.len() as u64);
            self.moved.insert(id);
        }
        true
    }

    /// Fills a batch with what the store lacks.
    pub(crate) fn fill(&mut self, batch: &mut Draft) -> Filled {
        match self.try_fill(batch) {
            Ok(()) => Filled::All,
            Err(NoRoom(_)) => Filled::Full,
        }
    }

    /// Whether all sessions of the log were written once, as far as they are copied.
    pub(crate) fn has_all(&self) -> bool {
        let is_written = |id| self.sessions.get(id).is_some_and(|copied| copied.written.is_some());
        self.reader.sessions().iter().all(|id| self.without.contains(id) || is_written(id))
    }

    fn try_fill(&mut self, batch: &mut Draft) -> Result<(), NoRoom> {
        if !self.has_log {
            let (formats, key) = (self.reader.formats(), self.reader.key().to_vec());
            let log = stored::Log { formats, key, vrf: self.vrf.clone() };
            batch.push(Operation::Put { name: self.names.log(), value: log.encode_to_vec() })?;
            self.has_log = true;
        }
        while let Some((name, held)) = self.useless.last_mut() {
            batch.clear(*name, held)?;
            batch.push(Operation::Remove { name: *name })?;
            self.useless.pop();
        }
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => self.begin_pass(batch)?,
        };
        let outcome = self.go_on(&mut pass, batch);
        if outcome.is_err() {
            self.pass = Some(pass);
        }
        outcome
    }

    fn begin_pass(&mut self, batch: &mut Draft) -> Result<Pass, NoRoom> {
        let mut present = self.reader.sessions();
        present.retain(|id| !self.without.contains(id));
        let gone: Vec<_> = self.sessions.keys().copied().filter(|id| !present.contains(id)).collect();
        for id in gone {
            self.forget(batch, id)?;
        }
        // What is rebased or collected from here on is for the next pass.
        let lists = self.reader.lists();
        let views: Vec<View> = present.iter().filter_map(|id| self.reader.view(*id).ok()).collect();
        let met = (self.walked != Some(lists)).then(BTreeSet::new);
        self.walked = Some(lists);
        let is_whole = views.len() == present.len();
        Ok(Pass { views, received: 0, sent: 0, met, is_whole })
    }

    /// The session has left the log.
    fn forget(&mut self, batch: &mut Draft, id: SessionId) -> Result<(), NoRoom> {
        let Some(copied) = self.sessions.get(&id) else { return Ok(()) };
        let names = &self.names;
        if copied.written.is_some() {
            // First of all: without it the rest means nothing.
            batch.push(Operation::Remove { name: names.session(id) })?;
        }
        self.useless.extend([
            (names.incoming(id), copied.incoming),
            (names.outgoing(id), copied.outgoing),
            (names.record(id), Held::default()),
            (names.socket(id), Held::default()),
        ]);
        let snapshot = copied.snapshot_in_store();
        self.useless.extend((snapshot != 0).then(|| (names.snapshot(id, snapshot), copied.held_snapshot)));
        let copying = copied.snapshot;
        self.useless.extend(copying.map(|copying| (names.snapshot(id, copying.number), copying.held)));
        self.sessions.remove(&id);
        self.moved.remove(&id);
        Ok(())
    }

    fn go_on(&mut self, pass: &mut Pass, batch: &mut Draft) -> Result<(), NoRoom> {
        for at in pass.received..pass.views.len() {
            let view = pass.views[at];
            // What has changed is looked at by the next pass.
            match self.copy_snapshot(batch, &view).and_then(|()| self.copy_received(batch, &view)) {
                Ok(()) | Err(Stop::Changed) => pass.received = at + 1,
                Err(Stop::NoRoom) => return Err(no_room()),
            }
        }
        for at in pass.sent..pass.views.len() {
            let view = pass.views[at];
            match self.copy_sent(batch, &view, pass.met.as_mut()) {
                Ok(()) => {}
                Err(Stop::Changed) => pass.is_whole = false,
                Err(Stop::NoRoom) => return Err(no_room()),
            }
            pass.sent = at + 1;
        }
        match pass.met.take() {
            Some(met) if pass.is_whole => self.keep_entries(&met),
            // Not all could be walked: once more.
            Some(_) => self.walked = None,
            None => {}
        }
        Ok(())
    }

    /// What is known of a session; of a new one nothing is in the store.
    fn copied(&mut self, view: &View, batch: &mut Draft) -> Result<&mut Copied, NoRoom> {
        use std::collections::btree_map::Entry;
        match self.sessions.entry(view.id) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let (received, sent) = (view.incoming.0, view.outgoing.0);
                let begin = |name, at| Operation::Begin { name, at };
                let names = &self.names;
                let begun = [begin(names.incoming(view.id), received), begin(names.outgoing(view.id), sent)];
                batch.push_all(begun)?;
                Ok(entry.insert(Copied {
                    written: None,
                    record: None,
                    socket: Vec::new(),
                    received,
                    sent,
                    incoming: Held::at(received),
                    outgoing: Held::at(sent),
                    held_snapshot: Held::default(),
                    snapshot: None,
                }))
            }
        }
    }

    /// Copies the snapshot that holds, if the store does not have it.
    fn copy_snapshot(&mut self, batch: &mut Draft, view: &View) -> Result<(), Stop> {
        let copied = self.copied(view, batch)?;
        let in_store = copied.snapshot_in_store();
        let other = copied.snapshot.take_if(|copying| copying.number != view.snapshot);
        let begun = copied.snapshot;
        self.useless.extend(other.map(|other| (self.names.snapshot(view.id, other.number), other.held)));
        if view.snapshot == 0 || view.snapshot == in_store {
            return Ok(());
        }
        let name = self.names.snapshot(view.id, view.snapshot);
        let mut copying = match begun {
            Some(copying) => copying,
            None => {
                batch.push(Operation::Begin { name, at: 0 })?;
                Copying { number: view.snapshot, next_block: 0, octets: 0, held: Held::at(0) }
            }
        };
        let outcome = self.copy_blocks(batch, view, &mut copying, name);
        self.copied(view, batch)?.snapshot = Some(copying);
        outcome
    }

    fn copy_blocks(
        &mut self,
        batch: &mut Draft,
        view: &View,
        copying: &mut Copying,
        name: Name,
    ) -> Result<(), Stop> {
        while copying.next_block < view.snapshot_blocks {
            let records = self.reader.snapshot_block(view, copying.next_block)?;
            if !records.is_empty() {
                let octets = records.to_vec();
                let length = octets.len() as u64;
                batch.push(Operation::Append { name, at: copying.octets, octets })?;
                copying.octets += length;
                copying.held.grow(length);
            }
            copying.next_block += 1;
        }
        Ok(())
    }

    /// Copies what the peer has said.
    fn copy_received(&mut self, batch: &mut Draft, view: &View) -> Result<(), Stop> {
        let name = self.names.incoming(view.id);
        let session = self.names.session(view.id);
        let copied = self.copied(view, batch)?;
        if copied.received < view.incoming.0 {
            if !copied.has_snapshot(view) {
                // What lies between is in a snapshot that the store does not have yet.
                return Err(Stop::Changed);
            }
            // What lies between is in the snapshot, or has no effect. Which snapshot holds, and from where on octets count, is
            // said before the octets until there go: they may take several batches.
            if let Some(written) = &copied.written
                && (written.snapshot, written.incoming) != (view.snapshot, view.incoming.0)
            {
                let mut value = written.clone();
                let before = copied.adopt_snapshot(view, &mut value);
                batch.push(Operation::Put { name: session, value: value.encode_to_vec() })?;
                self.adopted(view, value, before);
            }
            let copied = self.copied(view, batch)?;
            batch.clear(name, &mut copied.incoming)?;
            batch.push(Operation::Begin { name, at: view.incoming.0 })?;
            (copied.received, copied.incoming) = (view.incoming.0, Held::at(view.incoming.0));
            self.moved.insert(view.id);
        }
        let end = self.reader.received(view)?;
        loop {
            let at = self.copied(view, batch)?.received;
            if at >= end {
                return Ok(());
            }
            let mut octets = Vec::new();
            self.reader.incoming(view, at..end, PART, &mut octets)?;
            let length = octets.len() as u64;
            batch.push(Operation::Append { name, at, octets })?;
            let copied = self.copied(view, batch)?;
            copied.received = at + length;
            copied.incoming.grow(length);
            self.moved.insert(view.id);
        }
    }

    /// Copies what the peer has been told, with the entries that say so, and what else is known of the session.
    fn copy_sent(
        &mut self,
        batch: &mut Draft,
        view: &View,
        met: Option<&mut BTreeSet<EntryNumber>>,
    ) -> Result<(), Stop> {
        let passed = self.copy_entries(batch, view, met)?;
        let (name, record_name) = (self.names.outgoing(view.id), self.names.record(view.id));
        let copied = self.copied(view, batch)?;
        if copied.sent < view.outgoing.0 {
            // The peer has acknowledged what lies between.
            batch.clear(name, &mut copied.outgoing)?;
            batch.push(Operation::Begin { name, at: view.outgoing.0 })?;
            (copied.sent, copied.outgoing) = (view.outgoing.0, Held::at(view.outgoing.0));
        }
        loop {
            let at = self.copied(view, batch)?.sent;
            if at >= view.outgoing.1 {
                break;
            }
            let mut octets = Vec::new();
            self.reader.outgoing(view, at..view.outgoing.1, PART, &mut octets)?;
            let length = octets.len() as u64;
            batch.push(Operation::Append { name, at, octets })?;
            let copied = self.copied(view, batch)?;
            copied.sent = at + length;
            copied.outgoing.grow(length);
        }
        let record = self.reader.record(view)?;
        let copied = self.copied(view, batch)?;
        if copied.record.as_ref() != Some(&record) {
            batch.push(Operation::Put { name: record_name, value: record.clone() })?;
            copied.record = Some(record);
        }
        self.copy_socket(batch, view.id)?;
        self.write_session(batch, view, passed)
    }

    fn copy_socket(&mut self, batch: &mut Draft, id: SessionId) -> Result<(), NoRoom> {
        let (Some(socket), Some(copied)) = (self.sockets.get(&id), self.sessions.get_mut(&id)) else {
            return Ok(());
        };
        if copied.socket != *socket {
            batch.push(Operation::Put { name: self.names.socket(id), value: socket.clone() })?;
            copied.socket.clone_from(socket);
        }
        Ok(())
    }

    fn write_session(&mut self, batch: &mut Draft, view: &View, passed: u64) -> Result<(), Stop> {
        let names = &self.names;
        let (session, incoming) = (names.session(view.id), names.incoming(view.id));
        let outgoing = names.outgoing(view.id);
        let Some(copied) = self.sessions.get_mut(&view.id) else { return Err(Stop::Changed) };
        let mut value = copied.written.clone().unwrap_or_default();
        let has_snapshot = copied.has_snapshot(view) && copied.received >= view.incoming.0;
        if copied.written.is_none() && !has_snapshot {
            // It is not known to the store before it is whole.
            return Err(Stop::Changed);
        }
        let before = if has_snapshot { copied.adopt_snapshot(view, &mut value) } else { None };
        (value.unacknowledged, value.outgoing, value.passed) = (view.outgoing.0, view.outgoing.1, passed);
        value.numbers = view.numbers.to_vec();
        if copied.written.as_ref() == Some(&value) {
            return Ok(());
        }
        let put = Operation::Put { name: session, value: value.encode_to_vec() };
        let (keeps, needs) = (value.incoming, value.unacknowledged);
        let trims_incoming = Draft::is_trimmed(&copied.incoming, keeps);
        let trims_outgoing = Draft::is_trimmed(&copied.outgoing, needs);
        let trims = [(trims_incoming, incoming, keeps), (trims_outgoing, outgoing, needs)];
        let trims = trims.into_iter().filter(|(is_trimmed, ..)| *is_trimmed);
        let trims = trims.map(|(_, name, to)| Operation::Trim { name, to });
        batch.push_all([put].into_iter().chain(trims))?;
        if trims_incoming {
            batch.trimmed(&mut copied.incoming, keeps);
        }
        if trims_outgoing {
            batch.trimmed(&mut copied.outgoing, needs);
        }
        self.adopted(view, value, before);
        Ok(())
    }

    /// The session is written like this from now on; the snapshot before is useless.
    fn adopted(&mut self, view: &View, value: stored::Session, before: Option<u32>) {
        let Some(copied) = self.sessions.get_mut(&view.id) else { return };
        let held = copied.held_snapshot;
        if let Some(copying) = copied.snapshot.take_if(|copying| copying.number == value.snapshot) {
            copied.held_snapshot = copying.held;
        }
        copied.written = Some(value);
        self.useless.extend(before.map(|number| (self.names.snapshot(view.id, number), held)));
        self.moved.insert(view.id);
    }
}

impl Copied {
    /// Whether the snapshot that holds is in the store, or copied there as a whole.
    fn has_snapshot(&self, view: &View) -> bool {
        let copying = self.snapshot.filter(|copying| copying.number == view.snapshot);
        let is_copied = copying.is_some_and(|copying| copying.next_block == view.snapshot_blocks);
        view.snapshot == 0 || view.snapshot == self.snapshot_in_store() || is_copied
    }

    /// From now on this snapshot holds; the number of the one before, which is useless then.
    fn adopt_snapshot(&self, view: &View, value: &mut stored::Session) -> Option<u32> {
        let before = Some(value.snapshot).filter(|before| *before != 0 && *before != view.snapshot);
        (value.snapshot, value.incoming) = (view.snapshot, view.incoming.0);
        before
    }
}

#[cfg(test)]
mod tests;
