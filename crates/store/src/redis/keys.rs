//! Which keys, and which commands.

use super::{command::Command, scripts::Script};
use crate::{
    Batch, Claim, JUMP, LISTED, MERGED, MOST_FREED, MOST_GENERATIONS, MOST_NUMBER, MOST_PAGE, Malformed,
    Operation, PIECE, Request,
};

/// Octets of a router's name at most.
pub const LONGEST_ROUTER: usize = 128;

/// The keys of one router.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: Vec<u8>,
}

/// No name for keys.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a router's name in the store has 1 to {LONGEST_ROUTER} octets, and no braces")]
pub struct BadRouter;

/// Words before the operations of a batch, without the keys.
const BEFORE_OPERATIONS: usize = 3 + 7;

impl Keys {
    /// Those of this router: the name must be that of no other in the same store.
    ///
    /// # Errors
    /// [`BadRouter`] when the name is empty, too long, or has braces.
    pub fn new(router: &str) -> Result<Self, BadRouter> {
        let is_good = (1..=LONGEST_ROUTER).contains(&router.len()) && !router.contains(['{', '}']);
        if !is_good {
            return Err(BadRouter);
        }
        Ok(Self { prefix: format!("holdfast:{{{router}}}:").into_bytes() })
    }

    /// Writes the command of a request behind what is in `out`.
    ///
    /// # Errors
    /// [`Malformed`]: no store takes the request; nothing is written.
    pub fn encode(&self, request: &Request, out: &mut Vec<u8>) -> Result<(), Malformed> {
        match request {
            Request::State => self.state(out),
            Request::Claim(claim) => self.claim(claim, out)?,
            Request::Batch(batch) => self.batch(batch, out)?,
            Request::List { generation, from } => {
                let cursor = if from.0.is_empty() { b"0" } else { from.0.as_slice() };
                let mut command = Command::new(out, 5);
                command.word(b"HSCAN");
                self.index(*generation, &mut command);
                command.word(cursor).word(b"COUNT").number(LISTED as u64);
            }
            Request::Page { generation, name, at } => {
                let mut command = Command::new(out, 8);
                command.word(b"EVALSHA").word(&Script::Page.digest()).word(b"2");
                self.index(*generation, &mut command);
                self.data(*generation, &mut command);
                command.word(name.as_slice()).number(*at).number(MOST_PAGE as u64);
            }
            Request::Values { generation, names } => {
                // Without a script: Lua reads all that goes through it, octet by octet.
                let mut command = Command::new(out, 3 + names.len());
                command.word(b"HMGET");
                self.data(*generation, &mut command);
                command.word(b"");
                for name in names {
                    command.word_of(&[b"v", name.as_slice()]);
                }
            }
        }
        Ok(())
    }

    fn head(&self, command: &mut Command) {
        command.word_of(&[&self.prefix, b"head"]);
    }

    fn index(&self, generation: u64, command: &mut Command) {
        command.word_of(&[&self.prefix, generation.to_string().as_bytes(), b":index"]);
    }

    fn data(&self, generation: u64, command: &mut Command) {
        command.word_of(&[&self.prefix, generation.to_string().as_bytes(), b":data"]);
    }

    fn state(&self, out: &mut Vec<u8>) {
        let mut command = Command::new(out, 9);
        command.word(b"HMGET");
        self.head(&mut command);
        for field in [b"i", b"e", b"s", b"l", b"c", b"w", b"g"] {
            command.word(field);
        }
    }

    fn claim(&self, claim: &Claim, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if claim.generation > MOST_NUMBER {
            return Err(Malformed::Number);
        }
        let mut command = Command::new(out, 3 + 3 + 6);
        command.word(b"EVALSHA").word(&Script::Claim.digest()).word(b"3");
        self.head(&mut command);
        self.index(claim.generation, &mut command);
        self.data(claim.generation, &mut command);
        command.hexadecimal(claim.incarnation).number(claim.is_empty.into()).padded(claim.epoch);
        command.number(claim.generation).number(JUMP).number(MOST_GENERATIONS as u64);
        Ok(())
    }

    fn batch(&self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Malformed> {
        batch.check()?;
        let words = |operation: &Operation| match operation {
            Operation::Adopt => 1,
            Operation::Remove { .. } | Operation::Discard { .. } => 2,
            Operation::Put { .. } | Operation::Trim { .. } | Operation::Begin { .. } => 3,
            Operation::Append { .. } => 4,
        };
        let discarded = || {
            batch.operations().iter().filter_map(|operation| match operation {
                Operation::Discard { generation } => Some(*generation),
                _ => None,
            })
        };
        let keys = 3 + 2 * discarded().count();
        let count: usize = batch.operations().iter().map(words).sum();
        out.reserve(batch.octets());
        let mut command = Command::new(out, BEFORE_OPERATIONS + keys + count);
        command.word(b"EVALSHA").word(&Script::Batch.digest()).number(keys as u64);
        self.head(&mut command);
        self.index(batch.generation, &mut command);
        self.data(batch.generation, &mut command);
        for generation in discarded() {
            self.index(generation, &mut command);
            self.data(generation, &mut command);
        }
        command
            .hexadecimal(batch.incarnation)
            .padded(batch.epoch)
            .number(batch.generation)
            .number(batch.sequence);
        command.number(MERGED as u64).number(MOST_FREED).number(PIECE);
        for operation in batch.operations() {
            match operation {
                Operation::Put { name, value } => command.word(b"P").word(name.as_slice()).word(value),
                Operation::Remove { name } => command.word(b"R").word(name.as_slice()),
                Operation::Append { name, at, octets } => {
                    command.word(b"A").word(name.as_slice()).number(*at).word(octets)
                }
                Operation::Trim { name, to } => command.word(b"T").word(name.as_slice()).number(*to),
                Operation::Begin { name, at } => command.word(b"B").word(name.as_slice()).number(*at),
                Operation::Adopt => command.word(b"O"),
                Operation::Discard { generation } => command.word(b"D").number(*generation),
            };
        }
        Ok(())
    }
}
