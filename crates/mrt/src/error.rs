//! What can be wrong with a dump.

/// A dump that cannot be read, and where.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {offset} of the dump: {fault}")]
pub struct Error {
    /// Bytes before the fault, from the start of the dump.
    pub offset: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// A field or record goes beyond its end.
    #[error("{missing} more bytes expected")]
    Truncated {
        /// How many bytes the field lacks.
        missing: usize,
    },
    /// A prefix longer than an address.
    #[error("prefix length {0} is over the address length")]
    PrefixLength(u8),
    /// An address family for which addresses have no known size.
    #[error("addresses of family {0} are unknown")]
    Family(u16),
    /// A record goes on after what it should contain.
    #[error("{0} bytes left over")]
    Excess(usize),
}
