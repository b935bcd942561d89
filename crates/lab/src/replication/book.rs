//! What a store has confirmed, as somebody between it and the router reads it: request by request, reply by reply.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
};

use holdfast_store::redis::{Replies, Reply, Script};

/// A direction of a session.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    /// From the peer.
    In,
    /// To the peer.
    Out,
}

/// From a moment on the store has a direction of a session up to here.
#[derive(Copy, Clone, Debug)]
pub struct Mark {
    /// Microseconds since 1970: before the reply that says so was passed on.
    pub at: u64,
    /// Number of the session in the log.
    pub session: u32,
    /// Which direction.
    pub way: Way,
    /// The offset behind the last octet.
    pub end: u64,
}

/// A copy of everything: the incarnation of the store, and the generation.
pub type Generation = (Vec<u8>, u64);

/// What a generation has of the default table.
#[derive(Clone, Default, Debug)]
struct Copy {
    /// Sessions that it names: of others the rest means nothing.
    named: BTreeSet<u32>,
    ends: BTreeMap<(u32, Way), u64>,
    peers: BTreeMap<u32, IpAddr>,
}

#[derive(Clone, Debug)]
enum Operation {
    Named(u32),
    Gone(u32),
    End(u32, Way, u64),
    Octets(u32, Way, u64, Vec<u8>),
    Peer(u32, IpAddr),
    Adopt,
    Other,
}

#[derive(Clone, Debug)]
struct Batch {
    generation: Generation,
    epoch: Vec<u8>,
    sequence: u64,
    operations: Vec<Operation>,
}

/// A request whose reply has not come.
#[derive(Clone, Debug)]
pub enum Request {
    /// What the store has.
    State,
    /// A claim of this generation.
    Claim(Generation),
    /// A batch.
    Batch {
        /// Incarnation and number of the generation.
        generation: Generation,
        /// Its place.
        sequence: u64,
    },
    /// Anything else.
    Other,
}

/// Everything that was seen.
#[derive(Default, Debug)]
pub struct Book {
    copies: BTreeMap<Generation, Copy>,
    counts: Option<Generation>,
    /// Batches that went to the store, and of which nobody knows whether they came there.
    open: VecDeque<Batch>,
    /// The sequence that the last claim was answered with.
    base: u64,
    marks: Vec<Mark>,
    /// How far the last mark of each is.
    furthest: BTreeMap<(u32, Way), u64>,
    peers: BTreeMap<u32, IpAddr>,
    octets: BTreeMap<(u32, Way), BTreeMap<u64, Vec<u8>>>,
    /// Batches that the router knows to be in the store.
    pub confirmed: u64,
    /// Those that were refused or failed.
    pub refused: Vec<String>,
    /// How often the store was claimed.
    pub claims: u64,
}

impl Book {
    /// A command on its way to the store, in words.
    pub fn asks(&mut self, words: &[Vec<u8>]) -> Request {
        let Some(command) = words.first() else { return Request::Other };
        match (command.as_slice(), words.get(1).map(Vec::as_slice)) {
            (b"HMGET", Some(key)) if key.ends_with(b":head") => Request::State,
            (b"EVALSHA", Some(digest)) if digest == Script::Claim.digest() => {
                let arguments = arguments(words);
                let generation = (arguments[0].clone(), number(&arguments[3]));
                Request::Claim(generation)
            }
            (b"EVALSHA", Some(digest)) if digest == Script::Batch.digest() => {
                let batch = batch(arguments(words));
                let request =
                    Request::Batch { generation: batch.generation.clone(), sequence: batch.sequence };
                self.open.push_back(batch);
                request
            }
            _ => Request::Other,
        }
    }

    /// The reply to a request, which is about to be passed on.
    pub fn hears(&mut self, request: &Request, octets: &[u8], at: u64) {
        let mut replies = Replies::new();
        let reply = replies.push(octets).and_then(|()| replies.take());
        let Ok(Some(reply)) = reply else { return };
        let elements = match reply {
            Reply::Array(elements) => elements,
            Reply::Error(failure) => {
                self.refused.push(format!("{request:?}: {failure}"));
                if let Request::Batch { generation, sequence } = request {
                    self.drop_open(generation, *sequence);
                }
                return;
            }
            _ => return,
        };
        let text = |at: usize| match elements.get(at) {
            Some(Reply::Bulk(text)) => text.clone(),
            _ => Vec::new(),
        };
        match request {
            Request::State => {
                // i, e, s, l, c, w, g
                let (incarnation, epoch, sequence) = (text(0), text(1), number(&text(2)));
                let writing = number(&text(5));
                let base = self.base;
                let arrived = |batch: &Batch| {
                    batch.generation == (incarnation.clone(), writing)
                        && batch.epoch == epoch
                        && batch.sequence > base
                        && batch.sequence <= sequence
                };
                let (arrived, open) = std::mem::take(&mut self.open).into_iter().partition(arrived);
                self.open = open;
                for batch in arrived {
                    self.apply(batch, at);
                }
            }
            Request::Claim(generation) => {
                self.claims += 1;
                if text(0) == b"ok" {
                    self.base = number(&text(1));
                    self.open.clear();
                    self.copies.insert(generation.clone(), Copy::default());
                    if self.counts.as_ref().is_some_and(|(incarnation, _)| *incarnation != generation.0) {
                        // It is another store.
                        self.counts = None;
                    }
                } else {
                    self.refused.push(format!("{request:?}: {}", text(0).escape_ascii()));
                }
            }
            Request::Batch { generation, sequence } => {
                if text(0) == b"ok" {
                    let found = self
                        .open
                        .iter()
                        .position(|batch| (&batch.generation, batch.sequence) == (generation, *sequence));
                    if let Some(batch) = found.and_then(|found| self.open.remove(found)) {
                        self.apply(batch, at);
                    }
                } else {
                    self.refused.push(format!("{request:?}: {}", text(0).escape_ascii()));
                    self.drop_open(generation, *sequence);
                }
            }
            Request::Other => {}
        }
    }

    fn drop_open(&mut self, generation: &Generation, sequence: u64) {
        let found =
            self.open.iter().rposition(|batch| (&batch.generation, batch.sequence) == (generation, sequence));
        found.and_then(|found| self.open.remove(found));
    }

    fn apply(&mut self, batch: Batch, at: u64) {
        self.confirmed += 1;
        let Batch { generation, operations, .. } = batch;
        let copy = self.copies.entry(generation.clone()).or_default();
        for operation in operations {
            match operation {
                Operation::Named(session) => drop(copy.named.insert(session)),
                Operation::Gone(session) => drop(copy.named.remove(&session)),
                Operation::End(session, way, end) => drop(copy.ends.insert((session, way), end)),
                Operation::Octets(session, way, from, octets) => {
                    copy.ends.insert((session, way), from + octets.len() as u64);
                    self.octets.entry((session, way)).or_default().insert(from, octets);
                }
                Operation::Peer(session, peer) => {
                    copy.peers.insert(session, peer);
                    self.peers.insert(session, peer);
                }
                Operation::Adopt => self.counts = Some(generation.clone()),
                Operation::Other => {}
            }
        }
        if self.counts.as_ref() == Some(&generation) {
            let ends = copy.ends.iter().filter(|((session, _), _)| copy.named.contains(session));
            let ends: Vec<_> = ends.map(|((session, way), end)| (*session, *way, *end)).collect();
            for (session, way, end) in ends {
                let furthest = self.furthest.entry((session, way)).or_default();
                if *furthest < end {
                    *furthest = end;
                    self.marks.push(Mark { at, session, way, end });
                }
            }
        }
    }

    /// How far the store has had directions of sessions, in generations that counted, as it came to be. Of each direction
    /// ends only grow.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The last session with a peer, by the number that it has in the log.
    pub fn session(&self, peer: IpAddr) -> Option<u32> {
        self.peers.iter().rev().find(|(_, found)| **found == peer).map(|(session, _)| *session)
    }

    /// The sessions that the generation that counts names.
    pub fn named(&self) -> BTreeSet<u32> {
        let copy = self.counts.as_ref().and_then(|generation| self.copies.get(generation));
        copy.map(|copy| copy.named.clone()).unwrap_or_default()
    }

    /// Octets that the store had of a direction of a session, by their offsets.
    pub fn octets(&self, session: u32, way: Way) -> impl Iterator<Item = (u64, &[u8])> {
        let all = self.octets.get(&(session, way)).into_iter().flatten();
        all.map(|(from, octets)| (*from, octets.as_slice()))
    }
}

/// What follows the keys.
fn arguments(words: &[Vec<u8>]) -> &[Vec<u8>] {
    let keys = usize::try_from(number(&words[2])).expect("few keys");
    &words[3 + keys..]
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn batch(arguments: &[Vec<u8>]) -> Batch {
    let generation = (arguments[0].clone(), number(&arguments[2]));
    let (epoch, sequence) = (arguments[1].clone(), number(&arguments[3]));
    let (mut operations, mut rest) = (Vec::new(), &arguments[7..]);
    while let Some(word) = rest.first() {
        let (operation, words) = match word.as_slice() {
            b"P" => (put(&rest[1], &rest[2]), 3),
            b"R" => (removed(&rest[1]), 2),
            b"A" => {
                let at = number(&rest[2]);
                let octets = |(session, way)| Operation::Octets(session, way, at, rest[3].clone());
                (stream(&rest[1]).map_or(Operation::Other, octets), 4)
            }
            b"B" => {
                let at = number(&rest[2]);
                let end = |(session, way)| Operation::End(session, way, at);
                (stream(&rest[1]).map_or(Operation::Other, end), 3)
            }
            b"T" => (Operation::Other, 3),
            b"O" => (Operation::Adopt, 1),
            b"D" => (Operation::Other, 2),
            other => panic!("operation {}", other.escape_ascii()),
        };
        operations.push(operation);
        rest = &rest[words..];
    }
    Batch { generation, epoch, sequence, operations }
}

/// `0/s/7`, and what follows.
fn session(name: &[u8]) -> Option<(u32, &str)> {
    let rest = std::str::from_utf8(name).ok()?.strip_prefix("0/s/")?;
    let (number, rest) = rest.split_once('/').unwrap_or((rest, ""));
    Some((number.parse().ok()?, rest))
}

fn stream(name: &[u8]) -> Option<(u32, Way)> {
    match session(name)? {
        (session, "in") => Some((session, Way::In)),
        (session, "out") => Some((session, Way::Out)),
        _ => None,
    }
}

fn put(name: &[u8], value: &[u8]) -> Operation {
    match session(name) {
        Some((session, "")) => Operation::Named(session),
        Some((session, "record")) => {
            address(value).map_or(Operation::Other, |peer| Operation::Peer(session, peer))
        }
        _ => Operation::Other,
    }
}

fn removed(name: &[u8]) -> Operation {
    match session(name) {
        Some((session, "")) => Operation::Gone(session),
        _ => Operation::Other,
    }
}

/// The first field of `bgp.v1.HeldSession`.
fn address(record: &[u8]) -> Option<IpAddr> {
    let [0x0a, length, rest @ ..] = record else { return None };
    let octets = rest.get(..usize::from(*length))?;
    <[u8; 4]>::try_from(octets)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
        .ok()
}
