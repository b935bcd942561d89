//! A model of the process: it receives, keeps a table, announces the best of it to all others, and takes over from
//! itself when it has died.

use std::collections::BTreeMap;

use holdfast_nsr::{EntryId, Full, Log, SessionId, Unreadable};

use crate::tests::crash::{
    World,
    chunk::{Chunk, View, changes, told},
    kernel::{Connection, PREFIXES, Prefix, Table, apply, message, parse},
    memory::{Random, Shared},
};

/// Octets of a block: small, so that everything straddles them.
const BLOCK: usize = 4096;
const KEY: [u8; 16] = *b"a key of a model";
const FORMATS: u64 = 7;

pub(crate) struct Driver {
    log: Log<Shared>,
    sessions: BTreeMap<SessionId, Session>,
    /// What all were told who have passed every chunk.
    view: View,
    /// The last entry.
    head: EntryId,
    chunks: Vec<(EntryId, Chunk)>,
    folding: Option<Folding>,
}

struct Session {
    connection: u8,
    /// Offset behind the last message that was taken.
    parsed: u64,
    table: Table,
    told: Table,
    /// The next chunk to be passed.
    next: usize,
    walk: Option<Walk>,
    /// Whether anything has changed since the snapshot that holds.
    is_dirty: bool,
    version: u8,
}

/// A snapshot in the making.
struct Walk {
    covers: u64,
    next: usize,
    is_dirty: bool,
}

/// A base in the making.
struct Folding {
    last: EntryId,
    base: EntryId,
    left: Vec<SessionId>,
}

fn record(connection: u8, version: u8) -> Vec<u8> {
    let mut record = vec![version; 1 + usize::from(version) % 64];
    record[0] = connection;
    record
}

impl Session {
    fn new(connection: u8, parsed: u64) -> Self {
        let (table, told) = (Table::new(), Table::new());
        Self { connection, parsed, table, told, next: 0, walk: None, is_dirty: false, version: 0 }
    }

    fn take(&mut self, change: Option<(Prefix, u32)>) {
        if let Some(change) = change {
            apply(&mut self.table, change);
            self.is_dirty = true;
            self.walk.iter_mut().for_each(|walk| walk.is_dirty = true);
        }
    }
}

/// Takes the whole messages that were received. Their numbers must follow each other from where they were sent.
fn take_messages(log: &Log<Shared>, id: SessionId, session: &mut Session, connection: &Connection) {
    loop {
        let mut octets = log.read(id, session.parsed).to_vec();
        let (number, change, length) = loop {
            if let Some(message) = parse(&octets) {
                break message;
            }
            match log.read(id, session.parsed + octets.len() as u64) {
                [] => return,
                more => octets.extend(more),
            }
        };
        let sent = &connection.peer.sent[&session.parsed];
        assert_eq!(*sent, (number, change, length), "the messages come as they were sent");
        session.parsed += length as u64;
        session.take(change);
    }
}

impl Driver {
    /// A process begins: with the log of the one that died, if there was one.
    pub(crate) fn start(world: &mut World) -> Self {
        let log = match Log::recover(Shared::take(&world.keeper, &world.fuse)) {
            Ok(log) => log,
            Err(Unreadable::NoLog) => {
                world.keeper.replace(vec![0; world.memory]);
                let memory = Shared::take(&world.keeper, &world.fuse);
                Log::create_with_blocks(memory, FORMATS, KEY, BLOCK).expect("large enough")
            }
            Err(unreadable) => panic!("{unreadable}"),
        };
        assert_eq!((log.formats(), log.key()), (FORMATS, KEY));
        world.check_suspicions(&log);
        let (view, folding) = (View::new(), None);
        let sessions = BTreeMap::new();
        let mut driver = Self { log, sessions, view, head: EntryId::NONE, chunks: Vec::new(), folding };
        driver.thaw_sessions(world);
        driver.go_on(world);
        driver
    }

    fn thaw_sessions(&mut self, world: &mut World) {
        let ids: Vec<SessionId> = self.log.sessions().collect();
        for id in ids {
            let record = self.log.record(id);
            let connection = record[0];
            let version = record.get(1).copied().unwrap_or(0);
            assert!(record[1..].iter().all(|octet| *octet == version), "a record is whole");
            let socket = &world.connections[&connection];
            self.log.set_received(id, socket.consumed).expect("received");
            self.log.set_sent(id, socket.written).expect("sent");
            let mut session = Session::new(connection, self.log.incoming(id).start);
            session.version = version;
            for record in self.log.snapshot(id) {
                for route in record.chunks(5) {
                    let value = u32::from_be_bytes(route[1..].try_into().expect("four octets"));
                    session.table.insert(route[0], value);
                }
            }
            take_messages(&self.log, id, &mut session, socket);
            assert_eq!(session.table, socket.peer.announced(session.parsed), "the table is what it was");
            session.told = told(&self.log, self.log.passed(id), id);
            let mut peer = socket.peer.clone();
            self.log.unsent(id).for_each(|octets| peer.receive(octets));
            assert!(peer.is_between_messages(), "no message is cut");
            assert_eq!(session.told, peer.told, "what we know we told is what was told");
            self.sessions.insert(id, session);
        }
        let known: Vec<u8> = self.sessions.values().map(|session| session.connection).collect();
        world.connections.retain(|number, connection| {
            let is_known = known.contains(number);
            assert!(is_known || !connection.is_protected, "no session is lost");
            connection.is_protected = true;
            is_known
        });
    }

    /// All sessions stand behind one entry again, and are told what is different now.
    fn go_on(&mut self, world: &mut World) {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in &ids {
            let chunk = Chunk::of_table(*id, &self.sessions[id].told);
            match self.append(self.head, &chunk, &mut world.random) {
                Ok(entry) => self.head = entry,
                Err(Full) => self.close(world, *id),
            }
        }
        for id in self.sessions.keys() {
            self.log.set_passed(*id, self.head);
        }
        self.view = self.best();
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            let mut should = Table::new();
            Chunk::of_views(&View::new(), &self.view, PREFIXES).apply_to(&mut should, id);
            let chunk = Chunk::of_changes(id, &self.sessions[&id].told, &should);
            if self.announce(chunk, &mut world.random).is_err() {
                self.close(world, id);
            }
        }
    }

    fn best(&self) -> View {
        let mut best = View::new();
        for (id, session) in &self.sessions {
            for (prefix, value) in &session.table {
                let held = best.entry(*prefix).or_insert((*value, *id));
                *held = (*held).max((*value, *id));
            }
        }
        best
    }

    fn append(&mut self, previous: EntryId, chunk: &Chunk, random: &mut Random) -> Result<EntryId, Full> {
        let octets = chunk.encode([0, random.below(200), random.below(3000)][random.below(3)]);
        self.log.append(previous, &octets).or_else(|Full| {
            self.collect();
            self.log.append(previous, &octets)
        })
    }

    fn announce(&mut self, chunk: Chunk, random: &mut Random) -> Result<(), Full> {
        self.head = self.append(self.head, &chunk, random)?;
        self.chunks.push((self.head, chunk));
        Ok(())
    }

    /// One thing that a process does.
    pub(crate) fn act(&mut self, world: &mut World) {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        let id = (!ids.is_empty()).then(|| ids[world.random.below(ids.len())]);
        match (world.random.below(40), id) {
            (0..2, _) | (_, None) => self.open(world),
            (2, Some(id)) if world.random.below(3) == 0 => self.close(world, id),
            (3..5, Some(id)) => self.set_record(id),
            (5..7, Some(id)) => self.trim(id),
            (7..12, Some(id)) => (0..3).for_each(|_| self.walk(world, id)),
            (12..16, _) => self.fold(world),
            (16..18, _) => self.collect(),
            (18..24, Some(id)) => self.receive(world, id),
            (24..28, _) => drop(self.announce_changes(world)),
            (28..34, Some(id)) => drop(self.pass(world, id)),
            (_, Some(id)) => self.write(world, id),
        }
    }

    fn open(&mut self, world: &mut World) {
        if self.sessions.len() >= world.most_sessions {
            return;
        }
        let starts = [1000, (1 << 32) - 700, (1 << 32) - 5000, u64::from(u32::MAX) + 1, 1 << 61];
        let (incoming, outgoing) = (starts[world.random.below(5)], starts[world.random.below(5)]);
        let connection = world.connect(incoming, outgoing);
        let Ok(id) = self.log.open(incoming, outgoing, &record(connection, 0)) else {
            return world.disconnect(connection);
        };
        world.connections.get_mut(&connection).expect("connected").is_protected = true;
        let mut session = Session::new(connection, incoming);
        session.next = self.chunks.len();
        self.sessions.insert(id, session);
        let mut should = Table::new();
        Chunk::of_views(&View::new(), &self.view, PREFIXES).apply_to(&mut should, id);
        if self.announce(Chunk::of_table(id, &should), &mut world.random).is_err() {
            self.close(world, id);
        }
    }

    fn close(&mut self, world: &mut World, id: SessionId) {
        let session = self.sessions.remove(&id).expect("open");
        world.connections.get_mut(&session.connection).expect("connected").is_protected = false;
        self.log.close(id);
        world.disconnect(session.connection);
    }

    fn set_record(&mut self, id: SessionId) {
        let session = self.sessions.get_mut(&id).expect("open");
        session.version = session.version.wrapping_add(29);
        self.log.set_record(id, &record(session.connection, session.version)).expect("short");
    }

    fn receive(&mut self, world: &mut World, id: SessionId) {
        let session = self.sessions.get_mut(&id).expect("open");
        let connection = world.connections.get_mut(&session.connection).expect("connected");
        let (least, most) = (1 + world.random.below(BLOCK), 1 + world.random.below(2 * BLOCK));
        let Ok(room) = self.log.room(id, least) else { return };
        assert!(room.iter().map(|room| room.len()).sum::<usize>() >= least);
        let count = connection.read(room, most);
        world.fuse.step();
        self.log.received(id, count);
        let place = session.parsed;
        self.log.enter(id, place);
        world.inside = Some((id, place as u32));
        world.fuse.step();
        take_messages(&self.log, id, session, connection);
        world.fuse.step();
        world.inside = None;
        self.log.leave();
    }

    /// What is best now and was not when it was last said, or some of it. Whether there was any.
    fn announce_changes(&mut self, world: &mut World) -> Result<bool, Full> {
        let best = self.best();
        let chunk = Chunk::of_views(&self.view, &best, 1 + world.random.below(PREFIXES));
        if chunk.changes.is_empty() {
            return Ok(false);
        }
        let mut view = self.view.clone();
        for (prefix, value, origin) in &chunk.changes {
            match origin {
                Some(origin) => view.insert(*prefix, (*value, *origin)),
                None => view.remove(prefix),
            };
        }
        self.announce(chunk, &mut world.random)?;
        self.view = view;
        Ok(true)
    }

    /// The next chunk, for one session. Whether there was one.
    fn pass(&mut self, world: &mut World, id: SessionId) -> Result<bool, Full> {
        let session = self.sessions.get_mut(&id).expect("open");
        let Some((entry, chunk)) = self.chunks.get(session.next) else { return Ok(false) };
        let mut after = session.told.clone();
        chunk.apply_to(&mut after, id);
        let changes = changes(&session.told, &after);
        if changes.is_empty() {
            self.log.set_passed(id, *entry);
        } else {
            let padding = |random: &mut Random| [0, 40, random.below(1500)][random.below(3)];
            let messages = changes.iter().enumerate();
            let messages = messages.map(|(i, change)| {
                let padding = padding(&mut world.random);
                message(i as u32, Some(*change), padding)
            });
            self.log.push(id, &messages.flatten().collect::<Vec<u8>>(), Some(*entry))?;
        }
        session.told = after;
        session.next += 1;
        Ok(true)
    }

    fn write(&mut self, world: &mut World, id: SessionId) {
        let connection = world.connections.get_mut(&self.sessions[&id].connection).expect("connected");
        let most = 1 + world.random.below(6000);
        let octets: Vec<u8> = self.log.unsent(id).flatten().take(most).copied().collect();
        connection.write(&octets);
        world.fuse.step();
        self.log.sent(id, octets.len());
        let held = self.log.unacknowledged(id).start;
        let sent = self.log.outgoing(id).start;
        let arrived = held + (sent - held) * world.random.below(5) as u64 / 4;
        self.log.acknowledged(id, arrived);
    }

    /// Keepalives need not be kept.
    fn trim(&mut self, id: SessionId) {
        let session = &self.sessions[&id];
        if !session.is_dirty {
            self.log.trim(id, session.parsed);
        }
    }

    /// A slice of a snapshot.
    fn walk(&mut self, world: &mut World, id: SessionId) {
        let session = self.sessions.get_mut(&id).expect("open");
        let Some(walk) = &mut session.walk else {
            self.log.begin_snapshot(id);
            session.walk = Some(Walk { covers: session.parsed, next: 0, is_dirty: false });
            return;
        };
        if walk.next >= PREFIXES {
            self.log.commit_snapshot(id, walk.covers);
            session.is_dirty = walk.is_dirty;
            session.walk = None;
            return;
        }
        let end = walk.next + 1 + world.random.below(12);
        let routes = session.table.range(walk.next as u8..end as u8);
        let route = |(prefix, value): (&Prefix, &u32)| [[*prefix].as_slice(), &value.to_be_bytes()].concat();
        match self.log.snapshot_record(id, &routes.flat_map(route).collect::<Vec<u8>>()) {
            Ok(()) => walk.next = end,
            Err(Full) => {
                self.log.abort_snapshot(id);
                session.walk = None;
            }
        }
    }

    /// A slice of a fold.
    fn fold(&mut self, world: &mut World) {
        let Some(folding) = &mut self.folding else {
            let passed = self.sessions.values().map(|session| session.next).min().unwrap_or(0);
            if let Some((last, _)) = self.chunks[..passed].last() {
                let left = self.sessions.keys().copied().collect();
                self.folding = Some(Folding { last: *last, base: EntryId::NONE, left });
            }
            return;
        };
        let Folding { last, base, .. } = *folding;
        match folding.left.pop() {
            Some(id) => {
                let chunk = Chunk::of_table(id, &told(&self.log, last, id));
                match self.append(base, &chunk, &mut world.random) {
                    Ok(entry) => self.folding.iter_mut().for_each(|folding| folding.base = entry),
                    Err(Full) => self.folding = None,
                }
            }
            None => {
                self.log.rebase(last, base);
                self.folding = None;
                for (id, session) in &self.sessions {
                    assert_eq!(
                        told(&self.log, self.log.passed(*id), *id),
                        session.told,
                        "folded to the same"
                    );
                }
            }
        }
    }

    fn collect(&mut self) {
        self.log.collect([self.head].into_iter().chain(self.folding.iter().map(|folding| folding.base)));
    }

    /// Does all there is to do. Sessions for which there is no room to go on are given up.
    pub(crate) fn finish(&mut self, world: &mut World) {
        while !self.is_settled(world) {
            let before = world.progress(&self.log);
            for _ in 0..4 {
                let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
                for id in ids {
                    self.receive(world, id);
                    while self.announce_changes(world) == Ok(true) {}
                    while self.pass(world, id) == Ok(true) {}
                    self.write(world, id);
                    self.log.acknowledged(id, u64::MAX);
                }
            }
            if world.progress(&self.log) == before {
                self.make_room(world);
            }
            if world.progress(&self.log) == before {
                let last = self.sessions.keys().next_back().copied();
                last.into_iter().for_each(|id| self.close(world, id));
                world.given_up += 1;
            }
        }
        let view = self.best();
        for (id, session) in &self.sessions {
            let peer = &world.connections[&session.connection].peer;
            let mut should = Table::new();
            Chunk::of_views(&View::new(), &view, PREFIXES).apply_to(&mut should, *id);
            assert_eq!(session.table, peer.announced(u64::MAX), "nothing that came in is lost");
            assert_eq!(peer.told, should, "nothing that went out is lost");
        }
    }

    fn make_room(&mut self, world: &mut World) {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            (0..2 * PREFIXES + 4).for_each(|_| self.walk(world, id));
            self.receive(world, id);
            self.write(world, id);
            self.log.acknowledged(id, u64::MAX);
        }
        (0..20).for_each(|_| self.fold(world));
        self.collect();
    }

    fn is_settled(&self, world: &World) -> bool {
        let is_settled = |id: &SessionId, session: &Session| {
            !world.connections[&session.connection].has_unread()
                && session.next == self.chunks.len()
                && self.log.outgoing(*id).is_empty()
        };
        let view = self.sessions.is_empty() || self.view == self.best();
        view && self.sessions.iter().all(|(id, session)| is_settled(id, session))
    }

    /// Closes all: no block may be left.
    pub(crate) fn end(mut self, world: &mut World) {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        ids.into_iter().for_each(|id| self.close(world, id));
        self.log.collect([]);
        let usage = self.log.usage();
        assert_eq!((usage.free, usage.sessions, usage.entries), (usage.blocks, 0, 0), "no block is left");
    }
}
