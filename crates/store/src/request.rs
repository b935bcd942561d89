//! What a writer or a reader asks of a store, and what it answers.

use crate::{Batch, Described, Malformed, Name, Page};

/// How a writer begins.
///
/// Whoever claims has read the [`State`] before. Either there was none: then the claim gives the store its incarnation. Or
/// there was one: then the claim names it, and a store that has another by now refuses.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Of the store; a random number if it is empty.
    pub incarnation: u64,
    /// The writer has found the store empty.
    pub is_empty: bool,
    /// At least that of the store.
    pub epoch: u64,
    /// The generation to be written: a new one, higher than all before ([`State::last`]), or one that is there, which the
    /// writer goes on with.
    pub generation: u64,
}

/// A claim was granted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Claimed {
    /// The first batch has the next one.
    pub sequence: u64,
    /// The generation was not there before.
    pub is_new: bool,
    /// The generation that counts.
    pub counts: Option<u64>,
    /// What the generation to be written holds, as [`Applied::octets`] says.
    pub octets: u64,
}

/// A batch was applied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// That of the batch.
    pub sequence: u64,
    /// What the generation that is being written holds: octets of values and ranges, those of names, and [`PIECE`] for each
    /// object and each chunk.
    ///
    /// [`PIECE`]: crate::PIECE
    pub octets: u64,
}

/// What a store says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// What its first writer has called it.
    pub incarnation: u64,
    /// The highest that was claimed.
    pub epoch: u64,
    /// Of the last batch, or what the last claim was answered with.
    pub sequence: u64,
    /// The highest generation that there was.
    pub last: u64,
    /// The generation that counts.
    pub counts: Option<u64>,
    /// The generation that was claimed last.
    pub writing: u64,
    /// All that are there, as old as possible first.
    pub generations: Vec<u64>,
}

/// Where a list goes on. Only the store that has given it understands it. By default at the beginning.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Cursor(pub(crate) Vec<u8>);

/// A part of the list of a generation's objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Some objects, in no order. An object may be named twice, and one that comes or goes meanwhile may be left out.
    pub objects: Vec<Described>,
    /// Where the list goes on; `None` at its end.
    pub next: Option<Cursor>,
}

/// What is asked of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// What the store says of itself.
    State,
    /// A writer begins.
    Claim(Claim),
    /// A writer goes on.
    Batch(Batch),
    /// The objects of a generation. One that is not there has none.
    List {
        /// Which one.
        generation: u64,
        /// From where.
        from: Cursor,
    },
    /// A part of an object.
    Page {
        /// Of which generation.
        generation: u64,
        /// Of which object.
        name: Name,
        /// Of a range: from which offset, where a chunk begins. The start is one, and what follows a page.
        at: u64,
    },
    /// Values of a generation, many at once.
    Values {
        /// Of which generation.
        generation: u64,
        /// At most [`MOST_VALUES`], and of at most [`MOST_PAGE`] octets together, or one.
        ///
        /// [`MOST_VALUES`]: crate::MOST_VALUES
        /// [`MOST_PAGE`]: crate::MOST_PAGE
        names: Vec<Name>,
    },
}

/// Which request something is the answer to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// [`Request::State`].
    State,
    /// [`Request::Claim`].
    Claim,
    /// [`Request::Batch`].
    Batch,
    /// [`Request::List`].
    List,
    /// [`Request::Page`].
    Page,
    /// [`Request::Values`].
    Values,
}

impl Request {
    /// Which one it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::State => Kind::State,
            Self::Claim(_) => Kind::Claim,
            Self::Batch(_) => Kind::Batch,
            Self::List { .. } => Kind::List,
            Self::Page { .. } => Kind::Page,
            Self::Values { .. } => Kind::Values,
        }
    }
}

/// What a store answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To [`Request::State`]; `None`: the store is empty.
    State(Option<State>),
    /// To [`Request::Claim`].
    Claimed(Claimed),
    /// To [`Request::Batch`].
    Applied(Applied),
    /// To [`Request::List`].
    Listed(Listed),
    /// To [`Request::Page`].
    Page(Page),
    /// To [`Request::Values`]: in the order of the names; `None`: there is no such value.
    Values(Vec<Option<Vec<u8>>>),
    /// Nothing was done.
    Refused(Refused),
}

/// Why a request had no effect at all.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The store is not the one that the writer knows: everything has to be written anew.
    #[error("the store has lost what it held")]
    Lost {
        /// The incarnation that is there. The one that the writer named: a generation is there in part only, and is useless.
        there: Option<u64>,
    },
    /// Another writer has claimed the store, or this one never did.
    #[error("the store is at epoch {there}")]
    Epoch {
        /// The epoch of the store.
        there: u64,
    },
    /// The batch is not the next one. `there` is at least its sequence: it was applied before (or another writer of this
    /// epoch has claimed, and jumped). Lower than what was confirmed: the store has lost its last batches. Else a batch is
    /// missing before this one.
    #[error("the store is at batch {there}")]
    Sequence {
        /// The sequence of the last batch.
        there: u64,
    },
    /// A claim: the generation is neither there nor new. A batch: the generation is not the one that was claimed.
    #[error("the generation cannot be written; the store names {there}")]
    Generation {
        /// To a claim: the highest that there was. To a batch: the one that was claimed.
        there: u64,
    },
    /// A claim: a new generation would be one too many. Go on with one that is there, and discard others.
    #[error("there are too many generations")]
    Generations,
    /// The operation does not fit what is there.
    #[error("operation {operation} does not fit")]
    Unfit {
        /// Which one, counted from 0.
        operation: usize,
        /// Where the range ends, if it is one.
        end: Option<u64>,
    },
    /// The operation would discard a generation that counts or is being written.
    #[error("operation {operation} would discard a generation that is used")]
    Used {
        /// Which one, counted from 0.
        operation: usize,
    },
    /// The batch would free more chunks than [`MOST_FREED`]: ranges are trimmed first, in further batches.
    ///
    /// [`MOST_FREED`]: crate::MOST_FREED
    #[error("operation {operation} would free too much at once")]
    TooMuch {
        /// Which one was too much, counted from 0.
        operation: usize,
    },
    /// There is no room for what the batch adds.
    #[error("the store is full")]
    Full,
    /// There is no such object, or no chunk begins there.
    #[error("there is no such object, or no chunk begins there")]
    NotThere,
    /// No store takes it.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}
