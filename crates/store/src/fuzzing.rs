//! Bodies of the fuzz targets, and requests at random; also used by tests.

use std::collections::BTreeMap;

use crate::{
    Answer, Batch, Claim, Contents, Cursor, Description, Failure, Kind, Name, Operation, Page, Request,
    State,
    file::{End, Recovery, Rewrite},
    redis::{Replies, Reply, answer},
};

/// Replies of a server: they come out the same however they are cut, and each means something or is a failure, whatever
/// was asked. Returns how many came, and whether the last octets were broken.
///
/// # Panics
/// A promise is broken.
pub fn replies(octets: &[u8]) -> (usize, bool) {
    let at_once = read(octets.chunks(1 << 20));
    assert_eq!(read(octets.chunks(1)), at_once);
    let (replies, failure) = at_once;
    for reply in &replies {
        for kind in [Kind::State, Kind::Claim, Kind::Batch, Kind::List, Kind::Page, Kind::Values] {
            let _ = answer(kind, reply.clone());
        }
    }
    (replies.len(), failure.is_some())
}

/// All replies of octets that come in these pieces, and what was broken behind them.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Reply>, Option<Failure>) {
    let mut reader = Replies::new();
    let mut replies = Vec::new();
    for piece in pieces {
        let mut next = || {
            reader.push(piece)?;
            while let Some(reply) = reader.take()? {
                replies.push(reply);
            }
            Ok::<_, Failure>(())
        };
        if let Err(failure) = next() {
            assert_eq!(reader.take(), Err(failure.clone()), "it stays broken");
            return (replies, Some(failure));
        }
    }
    (replies, None)
}

/// A file of a store. The first octet says whether the checksums of its records are made right before. It is refused, or
/// recovered the same however it is read; written anew it is the same again. Returns how it ends, if it is a store.
///
/// # Panics
/// A promise is broken.
pub fn file(octets: &[u8]) -> Option<End> {
    let (how, file) = octets.split_first()?;
    let mut file = file.to_vec();
    if how % 2 == 1 {
        crate::file::make_right(&mut file);
    }
    let recover = |piece: usize| {
        let mut recovery = Recovery::new();
        let _ = file.chunks(piece).all(|piece| recovery.push(piece));
        recovery.finish(u64::MAX)
    };
    let (at_once, in_pieces) = (recover(usize::MAX), recover(1 + usize::from(how >> 1)));
    let recovered = match (at_once, in_pieces) {
        (Ok(at_once), Ok(in_pieces)) => {
            assert_eq!((at_once.whole, at_once.end), (in_pieces.whole, in_pieces.end));
            assert_eq!(at_once.contents, in_pieces.contents);
            at_once
        }
        (Err(at_once), Err(in_pieces)) => {
            assert_eq!(at_once, in_pieces);
            return None;
        }
        (at_once, in_pieces) => panic!("{at_once:?}, {in_pieces:?}"),
    };
    assert!(recovered.whole <= file.len() as u64);
    assert_eq!(recovered.end == End::Whole, recovered.whole == file.len() as u64);
    let anew = rewritten(&recovered.contents);
    let mut recovery = Recovery::new();
    recovery.push(&anew);
    let again = recovery.finish(u64::MAX).expect("what was written can be read");
    assert_eq!((again.end, again.whole), (End::Whole, anew.len() as u64));
    assert_eq!(again.contents, recovered.contents);
    assert_eq!(again.contents.octets(), recovered.contents.octets());
    Some(recovered.end)
}

/// A file with these contents.
pub fn rewritten(contents: &Contents) -> Vec<u8> {
    let mut file = Vec::new();
    let mut rewrite = Rewrite::new();
    while rewrite.next(contents, &mut file) {}
    file
}

/// Names of the objects in [`Requests`]: some that a store could take for something of its own.
pub const NAMES: [&[u8]; 7] = [b"a", b"s/3/in", b"s/3/out", b"\0\r\n$", b"va", b"c0:a", &[0xff; 64]];

/// All names.
///
/// # Panics
/// Never: they are names.
pub fn names() -> [Name; 7] {
    NAMES.map(|name| Name::new(name).expect("a name"))
}

/// Requests at random that mostly fit what is there.
#[derive(Debug)]
pub struct Requests(u64);

impl Requests {
    /// The same requests for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below a bound (SplitMix64).
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn one_of(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    /// The next one.
    pub fn next(&mut self, contents: &Contents) -> Request {
        let Some(state) = contents.state() else {
            let incarnation = self.below(1 << 60);
            let is_empty = !self.one_of(4);
            return Request::Claim(Claim { incarnation, is_empty, epoch: 5, generation: 1 });
        };
        match self.below(17) {
            16 => Request::Values { generation: self.generation(&state), names: names().to_vec() },
            0 => self.claim(&state),
            1 => Request::State,
            2 => Request::List { generation: self.generation(&state), from: Cursor::default() },
            3 => {
                let (generation, name) = (self.generation(&state), self.name());
                let Some(Page::Range { start, end, .. }) = Self::object(contents, generation, &name) else {
                    return Request::Page { generation, name, at: 0 };
                };
                let at = if self.one_of(2) {
                    start
                } else {
                    start.saturating_sub(1) + self.below(end - start + 3)
                };
                Request::Page { generation, name, at }
            }
            _ => self.batch(&state, contents),
        }
    }

    fn object(contents: &Contents, generation: u64, name: &Name) -> Option<Page> {
        let listed = contents.list(generation, &Cursor::default());
        let object = listed.objects.iter().find(|object| object.name == *name)?;
        Some(match object.description {
            Description::Value { .. } => Page::Value(Vec::new()),
            Description::Range { start, end } => Page::Range { start, end, octets: Vec::new(), last: start },
        })
    }

    fn name(&mut self) -> Name {
        names()[self.below(7) as usize]
    }

    fn generation(&mut self, state: &State) -> u64 {
        match self.below(4) {
            0 => self.below(state.last + 2),
            1 => state.counts.unwrap_or(0),
            _ => state.writing,
        }
    }

    fn claim(&mut self, state: &State) -> Request {
        let wrong = self.one_of(8);
        let epoch = (state.epoch + self.below(3)).saturating_sub(u64::from(self.one_of(4)));
        let generation = if self.one_of(2) { state.last + 1 } else { self.generation(state) };
        let is_empty = self.one_of(16);
        Request::Claim(Claim {
            incarnation: state.incarnation ^ u64::from(wrong),
            is_empty,
            epoch,
            generation,
        })
    }

    fn batch(&mut self, state: &State, contents: &Contents) -> Request {
        let mut wrong = || u64::from(self.one_of(32));
        let (incarnation, generation) = (state.incarnation ^ wrong(), state.writing + wrong());
        let epoch = (state.epoch + wrong()).saturating_sub(wrong());
        let sequence = (state.sequence + 1 + wrong()).saturating_sub(wrong());
        let mut batch = Batch::new(incarnation, epoch, generation, sequence);
        // Where ranges end by the operations so far.
        let mut ends = BTreeMap::new();
        for name in names() {
            if let Some(Page::Range { end, .. }) = Self::object(contents, state.writing, &name) {
                ends.insert(name, end);
            }
        }
        let hostile = self.one_of(6);
        for _ in 0..self.below(10) {
            let operation = self.operation(state, &mut ends, hostile);
            if batch.push(operation).is_err() {
                break;
            }
        }
        Request::Batch(batch)
    }

    fn operation(&mut self, state: &State, ends: &mut BTreeMap<Name, u64>, hostile: bool) -> Operation {
        let name = self.name();
        let is_wrong = hostile && self.one_of(4);
        match self.below(16) {
            0 => {
                ends.remove(&name);
                Operation::Put { name, value: self.octets() }
            }
            1 => {
                ends.remove(&name);
                Operation::Remove { name }
            }
            2 => {
                let at = self.below(1 << 52);
                ends.insert(name, at);
                Operation::Begin { name, at }
            }
            3 if self.one_of(3) => Operation::Adopt,
            4 if hostile => Operation::Discard { generation: self.generation(state) },
            5 => {
                let counts = state.counts.unwrap_or(0);
                let unused = |generation: &u64| *generation != state.writing && *generation != counts;
                let generation = state.generations.iter().copied().find(unused).unwrap_or(0);
                Operation::Discard { generation }
            }
            6..9 => match ends.get(&name) {
                Some(end) => {
                    Operation::Trim { name, to: end.saturating_sub(self.below(12_000)) + u64::from(is_wrong) }
                }
                None if hostile => Operation::Trim { name, to: 0 },
                None => Operation::Remove { name },
            },
            _ => {
                let octets = match self.octets() {
                    octets if octets.is_empty() => vec![7],
                    octets => octets,
                };
                let at = ends.get(&name).copied().unwrap_or_else(|| self.below(1000)) + u64::from(is_wrong);
                ends.insert(name, at + octets.len() as u64);
                // It may be a value: then this is refused.
                Operation::Append { name, at, octets }
            }
        }
    }

    fn octets(&mut self) -> Vec<u8> {
        let length = match self.below(12) {
            0 => self.below(2),
            1 => 4090 + self.below(12),
            2 => self.below(70_000),
            3..6 => self.below(3000),
            _ => self.below(40),
        };
        let first = self.below(256) as u8;
        (0..length).map(|i| first.wrapping_add(i as u8)).collect()
    }
}

/// Does a request, and says whether it had an effect.
pub fn had_effect(contents: &mut Contents, request: &Request) -> (Answer, bool) {
    let answer = contents.answer(request);
    let had_effect = matches!(answer, Answer::Claimed(_) | Answer::Applied(_));
    (answer, had_effect)
}
