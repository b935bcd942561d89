//! Why a store has not answered.

/// A store that cannot answer, or not with sense. Whether the request had an effect is not known after
/// [`Failure::Broken`], [`Failure::Unexpected`] and [`Failure::Gone`]; it had none after the others.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// `OOM`: `maxmemory` is reached. Batches that only free something pass.
    #[error("the store has reached its maxmemory")]
    OutOfMemory,
    /// `READONLY`: it is a replica.
    #[error("the store is a read-only replica")]
    ReadOnly,
    /// `MASTERDOWN`: it is a replica that has lost its master.
    #[error("the store is a replica without its master")]
    MasterDown,
    /// `LOADING`: it reads its files, after a restart.
    #[error("the store is loading its data")]
    Loading,
    /// `BUSY`: a script runs for too long.
    #[error("the store is busy with a script")]
    Busy,
    /// `NOAUTH`: it wants a password.
    #[error("the store wants a password")]
    NoAuth,
    /// `WRONGPASS`: the password or the user is wrong.
    #[error("the store knows no such user and password")]
    WrongPassword,
    /// `NOPERM`: the user may not do this.
    #[error("the user of the store may not do this")]
    NoPermission,
    /// `WRONGTYPE`, or a hash that no store of ours has written: other data is under our keys.
    #[error("other data is under the keys of this router")]
    OtherData,
    /// `NOSCRIPT`: the script has to be loaded, then the request sent again.
    #[error("the store does not know the script")]
    NoScript,
    /// `NOREPLICAS`: fewer replicas are there than `min-replicas-to-write` says.
    #[error("the store has too few replicas")]
    NoReplicas,
    /// `MISCONF`: it could not save its data, and takes no more.
    #[error("the store cannot save its data")]
    CannotSave,
    /// The file of a store cannot be read or written; why, in the words of the system.
    #[error("the file of the store cannot be used: {0}")]
    File(String),
    /// `MOVED`, `ASK`, `CLUSTERDOWN`, `TRYAGAIN`, `CROSSSLOT`: another node of a cluster has our keys, or none.
    #[error("another node of the cluster has our keys, or none")]
    Cluster,
    /// Another error that the store named, shortened.
    #[error("the store says: {0}")]
    Other(String),
    /// What came is no reply of the protocol, or is longer than any that we ask for. The connection is of no more use.
    #[error("what the store sends is no reply: {0}")]
    Broken(&'static str),
    /// A reply that does not belong to the request. The connection is of no more use.
    #[error("the store answers with something else")]
    Unexpected,
    /// The connection ended.
    #[error("the store is gone")]
    Gone,
}
