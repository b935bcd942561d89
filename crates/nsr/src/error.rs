//! What can go wrong.

/// The memory has no room for a log or for so many signatures, or blocks of that size cannot be.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory is too small")]
pub struct TooSmall;

/// There is no room in the log; nothing has changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log is full")]
pub struct Full;

/// What the kernel says does not fit what the log holds: they are not of one connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel is at offset {offset}, and the log allows {least} to {most}")]
pub struct Inconsistent {
    /// What the kernel says.
    pub offset: u64,
    /// What is certain to have been received, or sent.
    pub least: u64,
    /// What there was room for, or what was handed over.
    pub most: u64,
}

/// The memory holds no log or no signatures, or none that can be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It does not begin like a log.
    #[error("there is no log in the memory")]
    NoLog,
    /// It was written by another version of this crate.
    #[error("the log has format {0}, and only format {ours} can be read", ours = crate::log::FORMAT)]
    Format(u64),
    /// It does not begin like signatures.
    #[error("there are no signatures in the memory")]
    NoSignatures,
    /// They were written by another version of this crate.
    #[error("the signatures have format {0}, and only format {ours} can be read", ours = crate::signatures::FORMAT)]
    SignatureFormat(u64),
    /// It contradicts itself.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}
