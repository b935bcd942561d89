//! What the keeper holds for a table of this process: the state of its sessions, and its sockets, so that a neighbour's
//! packets find a socket while no process is there.

use std::{os::fd::OwnedFd, rc::Rc};

use holdfast_api::keeper::v1::KeeperClient;
use holdfast_process::kept;
use holdfast_xrl::{XrlError, scoped};

const MEMORY: &str = "sessions";

/// The keeper, for one table. Clones are the same.
#[derive(Clone)]
pub(crate) struct Custody {
    keeper: KeeperClient,
    vrf: Option<Rc<str>>,
}

impl Custody {
    pub(crate) fn new(keeper: KeeperClient, vrf: Option<Rc<str>>) -> Self {
        Self { keeper, vrf }
    }

    /// The tables of which the process before has left sessions.
    pub(crate) async fn tables(keeper: &KeeperClient) -> Result<Vec<Option<String>>, XrlError> {
        let keys = kept::keys(keeper).await?;
        let table = |key: &str| match key.split_once('@') {
            None => (key == MEMORY).then_some(None),
            Some((name, vrf)) => (name == MEMORY).then(|| Some(vrf.to_owned())),
        };
        Ok(keys.iter().filter_map(|key| table(key)).collect())
    }

    pub(crate) async fn memory(&self) -> Result<Option<OwnedFd>, XrlError> {
        self.find(MEMORY).await
    }

    pub(crate) async fn put_memory(&self, memory: OwnedFd) -> Result<(), XrlError> {
        self.put(MEMORY, memory).await
    }

    /// A descriptor that the process before has left under this name.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<OwnedFd>, XrlError> {
        kept::find(&self.keeper, &self.key(name)).await
    }

    /// Keeps a descriptor whatever becomes of this process.
    pub(crate) async fn put(&self, name: &str, descriptor: OwnedFd) -> Result<(), XrlError> {
        kept::put(&self.keeper, self.key(name), descriptor, None).await
    }

    fn key(&self, name: &str) -> String {
        scoped(name, self.vrf.as_deref())
    }
}
