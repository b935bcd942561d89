//! The sessions of a table, as a store has them.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_api::{bgp::v1::HeldSession, stored::v1 as stored};
use holdfast_nsr::SessionId;
use holdfast_store::Name;
use prost::Message;

use crate::{Names, Objects};

/// What a store holds cannot be gone on with.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damaged {
    /// An object is not there, or not as a whole.
    #[error("{0:?} is missing in the store")]
    Missing(Name),
    /// It says nothing of use, or contradicts another one.
    #[error("{0:?} makes no sense")]
    Senseless(Name),
    /// The store answers to something that was not asked.
    #[error("the store answers with something else")]
    Answer,
}

/// An entry of announcements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The number of the one before it; 0: there is none.
    pub previous: u64,
    /// Its octets.
    pub octets: Vec<u8>,
}

/// A session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// What its log called it.
    pub id: SessionId,
    /// Its record.
    pub record: Vec<u8>,
    /// The records of the snapshot that holds.
    pub snapshot: Vec<Vec<u8>>,
    /// Octets of the peer that are not in it, and the offset of the first.
    pub incoming: (u64, Vec<u8>),
    /// Octets to the peer that it may lack, and the offset of the first.
    pub outgoing: (u64, Vec<u8>),
    /// The number of the entry that it has passed; 0: none.
    pub passed: u64,
    /// As `nsr::Log::numbers`.
    pub numbers: [u64; 5],
    /// What its connection is made again with; `None`: it cannot be.
    pub socket: Option<stored::Socket>,
}

/// A table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its number in the store; 0 is the default one.
    pub number: u32,
    /// Its VRF; empty: the default table.
    pub vrf: String,
    /// As `nsr::Log::formats`: what reads the log has to know them.
    pub formats: u64,
    /// As `nsr::Log::key`.
    pub key: [u8; 16],
    /// Those that can be gone on with, in the order of their numbers.
    pub sessions: Vec<Session>,
    /// By number: those that a session has passed, and all before them.
    pub entries: BTreeMap<u64, Entry>,
    /// The other sessions, each with what it lacks.
    pub lost: Vec<(SessionId, Damaged)>,
}

impl Objects {
    /// The tables whose logs are there, and what is missing of the logs of others that have sessions. What belongs to none is
    /// left out, and whatever lacks something is no reason to lose what is beside it.
    pub fn tables(&self) -> (Vec<Table>, Vec<Damaged>) {
        let all = self.values.keys().chain(&self.missing);
        let with_sessions: BTreeSet<u32> = all.filter_map(Names::which).map(|(number, _)| number).collect();
        let (mut tables, mut damaged) = (Vec::new(), Vec::new());
        for number in self.logs().chain(with_sessions.iter().copied()).collect::<BTreeSet<_>>() {
            match self.table(number) {
                Ok(table) => tables.push(table),
                Err(missing) if with_sessions.contains(&number) => damaged.push(missing),
                Err(_) => {}
            }
        }
        (tables, damaged)
    }

    /// The same of what was read while another router wrote ([`Reading::live`](crate::Reading::live)): only what peers have said,
    /// and without the sessions whose parts do not fit each other yet.
    ///
    /// # Errors
    /// [`Damaged`] with what is missing of a log.
    pub fn received_tables(&self) -> Result<Vec<Table>, Damaged> {
        self.logs().map(|number| self.received_table(number)).collect()
    }

    /// How the router was configured, or was about to be; `None`: it has not said so, or not so that it can be read.
    pub fn configuration(&self) -> Option<stored::Configuration> {
        stored::Configuration::decode(self.values.get(&Names::configuration())?.as_slice()).ok()
    }

    fn logs(&self) -> impl Iterator<Item = u32> {
        let numbers: BTreeSet<u32> = self.values.keys().filter_map(Names::table_of).collect();
        numbers.into_iter().filter(|number| self.values.contains_key(&Names::new(*number).log()))
    }

    fn log(&self, number: u32) -> Result<(stored::Log, [u8; 16], BTreeSet<u32>), Damaged> {
        let names = Names::new(number);
        let mut log: stored::Log = self.message(names.log())?;
        let key = std::mem::take(&mut log.key).try_into().map_err(|_| Damaged::Senseless(names.log()))?;
        let all = self.values.keys().chain(&self.missing);
        let ids = all.filter_map(|name| names.session_of(name)).map(|id| id.0).collect();
        Ok((log, key, ids))
    }

    fn received_table(&self, number: u32) -> Result<Table, Damaged> {
        let (names, (log, key, ids)) = (Names::new(number), self.log(number)?);
        let sessions = ids.into_iter().filter_map(|id| self.received(&names, SessionId(id)).ok());
        let sessions =
            sessions.map(|(said, session)| Session { outgoing: (said.outgoing, Vec::new()), ..session });
        let (sessions, entries, lost) = (sessions.collect(), BTreeMap::new(), Vec::new());
        Ok(Table { number, vrf: log.vrf, formats: log.formats, key, sessions, entries, lost })
    }

    fn table(&self, number: u32) -> Result<Table, Damaged> {
        let (names, (log, key, ids)) = (Names::new(number), self.log(number)?);
        let (mut sessions, mut entries, mut lost) = (Vec::new(), BTreeMap::new(), Vec::new());
        for id in ids.into_iter().map(SessionId) {
            let session = self.session(&names, id);
            match session
                .and_then(|session| self.walk(&names, session.passed, &mut entries).map(|()| session))
            {
                Ok(session) => sessions.push(session),
                Err(damaged) => lost.push((id, damaged)),
            }
        }
        Ok(Table { number, vrf: log.vrf, formats: log.formats, key, sessions, entries, lost })
    }

    /// Adds the entries of a list up to one that is known, or none if one is missing, or the list has no end.
    fn walk(&self, names: &Names, mut at: u64, entries: &mut BTreeMap<u64, Entry>) -> Result<(), Damaged> {
        let mut new = BTreeMap::new();
        while at != 0 && !entries.contains_key(&at) {
            let name = names.entry(at);
            let stored::Entry { previous, octets } = self.message(name)?;
            if new.insert(at, Entry { previous, octets }).is_some() {
                return Err(Damaged::Senseless(name));
            }
            at = previous;
        }
        entries.append(&mut new);
        Ok(())
    }

    fn session(&self, names: &Names, id: SessionId) -> Result<Session, Damaged> {
        let (said, session) = self.received(names, id)?;
        let outgoing = self.outgoing(names.outgoing(id), &said)?;
        Ok(Session { outgoing, passed: said.passed, ..session })
    }

    /// A session that has told its peer nothing.
    fn received(&self, names: &Names, id: SessionId) -> Result<(stored::Session, Session), Damaged> {
        let name = names.session(id);
        let said: stored::Session = self.message(name)?;
        let record = self.value(names.record(id))?.clone();
        HeldSession::decode(&*record).map_err(|_| Damaged::Senseless(names.record(id)))?;
        let snapshot = match said.snapshot {
            0 => Vec::new(),
            number => {
                let (_, octets) = self.range(names.snapshot(id, number))?;
                records(octets).ok_or(Damaged::Senseless(names.snapshot(id, number)))?
            }
        };
        let (start, octets) = self.range(names.incoming(id))?;
        // The range may begin lower. One that ends lower has nothing that the snapshot lacks.
        let first = said.incoming.checked_sub(*start).ok_or(Damaged::Missing(names.incoming(id)))?;
        let incoming = usize::try_from(first).ok().and_then(|first| octets.get(first..)).unwrap_or_default();
        let numbers = std::array::from_fn(|at| said.numbers.get(at).copied().unwrap_or(0));
        let incoming = (said.incoming, incoming.to_vec());
        let socket = match self.values.contains_key(&names.socket(id)) {
            true => Some(self.message(names.socket(id))?),
            false => None,
        };
        let outgoing = (0, Vec::new());
        Ok((said, Session { id, record, snapshot, incoming, outgoing, passed: 0, numbers, socket }))
    }

    /// The range may begin lower, or higher: then the peer has acknowledged what is missing. What is behind the end means nothing.
    fn outgoing(&self, name: Name, said: &stored::Session) -> Result<(u64, Vec<u8>), Damaged> {
        let (start, octets) = self.range(name)?;
        let from = said.unacknowledged.max(*start);
        let missing = Damaged::Missing(name);
        if from > said.outgoing {
            return Ok((from, Vec::new()));
        }
        let place = |offset: u64| usize::try_from(offset.saturating_sub(*start)).map_err(|_| missing);
        let octets = octets.get(place(from)?..place(said.outgoing)?).ok_or(missing)?;
        Ok((from, octets.to_vec()))
    }

    fn value(&self, name: Name) -> Result<&Vec<u8>, Damaged> {
        self.values.get(&name).ok_or(Damaged::Missing(name))
    }

    fn range(&self, name: Name) -> Result<&(u64, Vec<u8>), Damaged> {
        self.ranges.get(&name).ok_or(Damaged::Missing(name))
    }

    fn message<T: Message + Default>(&self, name: Name) -> Result<T, Damaged> {
        T::decode(self.value(name)?.as_slice()).map_err(|_| Damaged::Senseless(name))
    }
}

/// Records that stand behind each other, each behind its length.
fn records(mut octets: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut records = Vec::new();
    while !octets.is_empty() {
        let (length, rest) = octets.split_first_chunk()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        records.push(record.to_vec());
        octets = rest;
    }
    Some(records)
}
