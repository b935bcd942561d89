//! Following what the peers of another router say, and how it is configured, as its replicator writes it down, without a
//! word to the store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdfast_nsr::SessionId;
use holdfast_store::{Answer, Cursor, Name, Page, Refused, Request};

use crate::{Damaged, MOST_ASKED, Names, Objects, reading::goes_on};

/// A session of a table of the store.
pub type Followed = (u32, SessionId);

/// What has happened in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// The peer of a session has said this.
    Octets(Followed, Vec<u8>),
    /// A session is there no more.
    Ended(Followed),
    /// The router has, or is about to have, this configuration: a `stored.v1/Configuration`.
    Configuration(Vec<u8>),
    /// Another generation counts, there are sessions that nobody follows, or something was missed: all has to be read anew.
    Anew,
}

/// Octets of one peer.
#[derive(Debug)]
struct Stream {
    name: Name,
    /// Where it is asked for next: a chunk begins there.
    at: u64,
    /// Up to where they are known.
    known: u64,
    /// No chunk begins there any more.
    is_missing: bool,
}

/// What a request on its way is about.
#[derive(Copy, Clone, Debug)]
enum Asked {
    State,
    List,
    Octets(Followed),
    /// The serial of the configuration.
    Serial,
    Configuration,
}

/// Follows the sessions of one generation, in rounds. The caller sends what [`Self::ask`] says, and gives the answers to
/// [`Self::answered`] in the same order.
///
/// What it takes of memory are the answers on their way, each of a page of the store.
#[derive(Debug)]
pub struct Following {
    generation: u64,
    streams: BTreeMap<Followed, Stream>,
    /// What is left to ask in this round.
    round: VecDeque<Asked>,
    asked: VecDeque<Asked>,
    /// Where the list goes on.
    cursor: Cursor,
    /// Sessions of the list so far.
    listed: BTreeSet<Followed>,
    /// Sessions that the list had and nobody follows: those that cannot be followed are no news. `None`: of none.
    others: Option<BTreeSet<Followed>>,
    /// Of the configuration that was read last; 0: of none.
    serial: u64,
}

impl Following {
    /// Follows these sessions of what was read of a generation, from there on. All others that were read are no news.
    pub fn new(generation: u64, objects: &Objects, sessions: &BTreeSet<Followed>) -> Self {
        let stream = |&(table, id): &Followed| {
            let name = Names::new(table).incoming(id);
            let (at, known) = objects.reads_on(&name)?;
            Some(((table, id), Stream { name, at, known, is_missing: false }))
        };
        let streams: BTreeMap<Followed, Stream> = sessions.iter().filter_map(stream).collect();
        let others = objects.sessions().filter(|session| !streams.contains_key(session)).collect();
        Self { streams, others: Some(others), ..Self::of_configuration(generation) }
    }

    /// Follows the configuration of the router that writes this generation, and no session.
    pub fn of_configuration(generation: u64) -> Self {
        Self {
            generation,
            streams: BTreeMap::new(),
            round: VecDeque::new(),
            asked: VecDeque::new(),
            cursor: Cursor::default(),
            listed: BTreeSet::new(),
            others: None,
            serial: 0,
        }
    }

    /// Whether a round is over.
    pub fn is_idle(&self) -> bool {
        self.round.is_empty() && self.asked.is_empty()
    }

    /// Begins a round, of the sessions that can take more. `looks`: it looks as well whether there are others, and whether
    /// the generation still counts.
    pub fn begin(&mut self, can_take: impl Fn(Followed) -> bool, looks: bool) {
        let streams =
            self.streams.iter().filter(|(session, stream)| !stream.is_missing && can_take(**session));
        self.round.extend(streams.map(|(session, _)| Asked::Octets(*session)));
        if looks || self.streams.values().any(|stream| stream.is_missing) {
            self.listed.clear();
            self.cursor = Cursor::default();
            self.round.push_back(if self.others.is_some() { Asked::List } else { Asked::State });
        }
        self.round.push_back(Asked::Serial);
    }

    /// What to ask next; `None`: an answer comes first, or the round has asked all.
    pub fn ask(&mut self) -> Option<Request> {
        if self.asked.len() >= MOST_ASKED {
            return None;
        }
        let generation = self.generation;
        while let Some(asked) = self.round.pop_front() {
            let request = match asked {
                Asked::State => Request::State,
                Asked::List => Request::List { generation, from: self.cursor.clone() },
                Asked::Octets(session) => {
                    let Some(Stream { name, at, .. }) = self.streams.get(&session) else { continue };
                    Request::Page { generation, name: *name, at: *at }
                }
                Asked::Serial => Request::Page { generation, name: Names::configuration_serial(), at: 0 },
                Asked::Configuration => Request::Page { generation, name: Names::configuration(), at: 0 },
            };
            self.asked.push_back(asked);
            return Some(request);
        }
        None
    }

    /// The store has answered the oldest request.
    ///
    /// # Errors
    /// [`Damaged::Answer`]: it is none to that request.
    pub fn answered(&mut self, answer: Answer) -> Result<Vec<News>, Damaged> {
        match (self.asked.pop_front(), answer) {
            (Some(Asked::State), Answer::State(state)) => {
                let counts = state.and_then(|state| state.counts);
                Ok(if counts == Some(self.generation) { self.look() } else { vec![News::Anew] })
            }
            (Some(Asked::List), Answer::Listed(listed)) => {
                self.listed.extend(listed.objects.iter().filter_map(|object| Names::which(&object.name)));
                // A generation that is gone has an empty list: that is known behind it.
                self.round.push_front(if listed.next.is_some() { Asked::List } else { Asked::State });
                self.cursor = listed.next.unwrap_or_default();
                Ok(Vec::new())
            }
            (Some(Asked::Octets(session)), Answer::Page(Page::Range { start, octets, last, .. })) => {
                Ok(self.octets(session, start, &octets, last).into_iter().collect())
            }
            (Some(Asked::Octets(session)), Answer::Refused(Refused::NotThere)) => {
                self.missing(session);
                Ok(Vec::new())
            }
            (Some(Asked::Serial), Answer::Page(Page::Value(value))) => {
                let serial = value.try_into().map_or(0, u64::from_le_bytes);
                if serial != self.serial {
                    self.serial = serial;
                    self.round.push_front(Asked::Configuration);
                }
                Ok(Vec::new())
            }
            (Some(Asked::Configuration), Answer::Page(Page::Value(value))) => {
                Ok(vec![News::Configuration(value)])
            }
            // Of a generation that is gone, most likely.
            (Some(Asked::Serial), Answer::Refused(Refused::NotThere)) if self.others.is_none() => {
                Ok(vec![News::Anew])
            }
            // A router of an earlier build writes none.
            (Some(Asked::Serial | Asked::Configuration), Answer::Refused(Refused::NotThere)) => {
                self.serial = 0;
                Ok(Vec::new())
            }
            _ => Err(Damaged::Answer),
        }
    }

    /// The list is whole, and the generation counts.
    fn look(&mut self) -> Vec<News> {
        let Some(others) = &self.others else { return Vec::new() };
        let is_new = |session: &Followed| match self.streams.get(session) {
            Some(stream) => stream.is_missing,
            None => !others.contains(session),
        };
        if self.listed.iter().any(is_new) {
            return vec![News::Anew];
        }
        let gone: Vec<Followed> =
            self.streams.keys().filter(|one| !self.listed.contains(one)).copied().collect();
        let ended = |session| {
            self.streams.remove(&session);
            News::Ended(session)
        };
        gone.into_iter().map(ended).collect()
    }

    fn octets(&mut self, session: Followed, start: u64, octets: &[u8], last: u64) -> Option<News> {
        let stream = self.streams.get_mut(&session)?;
        let (at, end) = (stream.at, stream.at + octets.len() as u64);
        // Something is missing, or the store says what cannot be.
        if start > stream.known || last < at || last > end || end < stream.known {
            return Some(News::Anew);
        }
        stream.at = goes_on(last, end);
        let skipped = usize::try_from(stream.known - at).unwrap_or(usize::MAX);
        let new = octets.get(skipped..).filter(|new| !new.is_empty())?;
        stream.known = end;
        Some(News::Octets(session, new.to_vec()))
    }

    /// No chunk begins where it was asked for: it was trimmed, or the session has ended.
    fn missing(&mut self, session: Followed) {
        if let Some(stream) = self.streams.get_mut(&session) {
            // All that is known may have been trimmed, and something new be behind it.
            stream.is_missing = stream.at == stream.known;
            stream.at = stream.known;
        }
    }
}
