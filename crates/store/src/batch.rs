//! What a writer changes in one step.

use crate::{MOST_NUMBER, MOST_OCTETS, MOST_OPERATIONS, Name};

/// One change. Names are those of the generation that is being written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// The object becomes this value, whatever it was.
    Put {
        /// Which object.
        name: Name,
        /// What it is from now on.
        value: Vec<u8>,
    },
    /// The object goes. There may be none.
    Remove {
        /// Which object.
        name: Name,
    },
    /// Octets of a stream. Refused unless they begin where the range ends; where there is none, one begins at `at`.
    Append {
        /// Which range.
        name: Name,
        /// The offset of the first octet.
        at: u64,
        /// At least one.
        octets: Vec<u8>,
    },
    /// Octets of the range before an offset may go. The store frees whole chunks, and not more than [`MOST_FREED`] a batch:
    /// the range may begin lower.
    ///
    /// [`MOST_FREED`]: crate::MOST_FREED
    Trim {
        /// Which range.
        name: Name,
        /// At most the end of the range.
        to: u64,
    },
    /// The object becomes an empty range at this offset, whatever it was.
    Begin {
        /// Which object.
        name: Name,
        /// The offset of the first octet to come.
        at: u64,
    },
    /// From now on the generation that is being written counts.
    Adopt,
    /// A generation goes with all its objects. It must neither count nor be the one that is being written; there may be
    /// none.
    Discard {
        /// Which one.
        generation: u64,
    },
}

/// What an operation is taken for besides its name and its octets.
const OVERHEAD: usize = 64;

impl Operation {
    /// Octets for the bound of a batch: what it takes on the way to a store at most.
    pub fn octets(&self) -> usize {
        let of_it = match self {
            Self::Put { value: octets, .. } | Self::Append { octets, .. } => octets.len(),
            Self::Remove { .. }
            | Self::Trim { .. }
            | Self::Begin { .. }
            | Self::Adopt
            | Self::Discard { .. } => 0,
        };
        OVERHEAD + self.name().map_or(0, |name| name.as_slice().len()) + of_it
    }

    /// Of the object that it changes; `None`: it changes none.
    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::Put { name, .. }
            | Self::Append { name, .. }
            | Self::Remove { name }
            | Self::Trim { name, .. }
            | Self::Begin { name, .. } => Some(name),
            Self::Adopt | Self::Discard { .. } => None,
        }
    }

    /// Whether a store can take it at all.
    fn check(&self) -> Option<()> {
        let is_right = match self {
            Self::Put { .. } | Self::Remove { .. } | Self::Adopt => true,
            Self::Append { at, octets, .. } => {
                let end = at.checked_add(octets.len() as u64);
                !octets.is_empty() && end.is_some_and(|end| end <= MOST_NUMBER)
            }
            Self::Trim { to: number, .. } | Self::Begin { at: number, .. } => *number <= MOST_NUMBER,
            Self::Discard { generation } => *generation <= MOST_NUMBER,
        };
        is_right.then_some(())
    }
}

/// Operations that are done all, in this order, or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The incarnation of the store that the writer takes this one for.
    pub incarnation: u64,
    /// The epoch that the writer has claimed.
    pub epoch: u64,
    /// The generation that the writer has claimed.
    pub generation: u64,
    /// One more than that of the batch before, or than the answer to the claim said.
    pub sequence: u64,
    operations: Vec<Operation>,
    octets: usize,
}

/// The batch is full: this operation belongs to the next one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the batch is full")]
pub struct NoRoom(pub Operation);

/// No store takes it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// This operation of the batch is without octets, or with a number above [`MOST_NUMBER`].
    #[error("operation {0} has no octets, or a number that is too high")]
    Operation(usize),
    /// The sequence or the generation is above [`MOST_NUMBER`].
    #[error("a sequence or a generation is too high")]
    Number,
}

impl Batch {
    /// A batch without operations.
    pub fn new(incarnation: u64, epoch: u64, generation: u64, sequence: u64) -> Self {
        Self { incarnation, epoch, generation, sequence, operations: Vec::new(), octets: 0 }
    }

    /// Adds an operation behind the others.
    ///
    /// # Errors
    /// [`NoRoom`] with the operation when there would be too many, or too many octets. One alone with at most
    /// `MOST_OCTETS - 128` octets fits.
    pub fn push(&mut self, operation: Operation) -> Result<(), NoRoom> {
        let octets = self.octets + operation.octets();
        if self.operations.len() == MOST_OPERATIONS || octets > MOST_OCTETS {
            return Err(NoRoom(operation));
        }
        self.octets = octets;
        self.operations.push(operation);
        Ok(())
    }

    /// Its operations.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Octets for the bound, [`MOST_OCTETS`].
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Whether a store can take it, whatever it holds.
    ///
    /// # Errors
    /// [`Malformed`]: no store can.
    pub fn check(&self) -> Result<(), Malformed> {
        if self.sequence > MOST_NUMBER || self.generation > MOST_NUMBER {
            return Err(Malformed::Number);
        }
        let bad = self.operations.iter().position(|operation| operation.check().is_none());
        bad.map_or(Ok(()), |operation| Err(Malformed::Operation(operation)))
    }
}
