//! Where signatures of ours are kept.

use std::fmt::Debug;

use holdfast_types::{Asn, Prefix};

/// Names a signature of ours: of each name one is kept.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct SignatureName {
    /// The route.
    pub prefix: Prefix,
    /// The AS in the OPENs of those that it is for.
    pub target: Asn,
    /// Stands for what our segments say, which of them it is, the algorithm suite, and the path identifier.
    pub slot: u32,
}

/// Keeps signatures of ours, also for whoever goes on after this process.
pub trait SignatureStore: Debug {
    /// The signature with this name, if it is of what `mark` stands for.
    fn get(&self, name: &SignatureName, mark: u64) -> Option<&[u8]>;

    /// Keeps a signature in the place of any of this name; `false`: there is no room, and it is lost. Where there is none, one
    /// goes whose prefix is not in use, as `is_used` says.
    fn keep(
        &mut self,
        name: SignatureName,
        mark: u64,
        signature: &[u8],
        is_used: &mut dyn FnMut(Prefix) -> bool,
    ) -> bool;

    /// Another bound on how many are kept.
    fn set_most(&mut self, most: usize);

    /// Notes which keys paths are signed with, for whoever goes on.
    fn note(&mut self, signers: &[u8]);

    /// What was noted last; nothing at first.
    fn noted(&self) -> &[u8];

    /// Key of the marks: the same for all processes that go on with what is kept, and unknown to peers.
    fn key(&self) -> [u64; 2];

    /// Signatures that are kept, and those that were not for want of room.
    fn counts(&self) -> (usize, u64);

    /// Octets of memory.
    fn memory(&self) -> usize;
}
