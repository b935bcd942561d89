//! What the keeper holds for a table of this process: the state of its sessions, and its sockets, so that a neighbour's
//! packets find a socket while no process is there.

use std::{os::fd::OwnedFd, rc::Rc};

use holdfast_api::keeper::v1::{Empty, GetRequest, KeeperClient, OnDeath, PutRequest};
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
        let kept = keeper.list(Empty {}).await?.kept;
        let table = |key: &str| match key.split_once('@') {
            None => (key == MEMORY).then_some(None),
            Some((name, vrf)) => (name == MEMORY).then(|| Some(vrf.to_owned())),
        };
        Ok(kept.iter().filter_map(|kept| table(&kept.key)).collect())
    }

    pub(crate) async fn memory(&self) -> Result<Option<OwnedFd>, XrlError> {
        self.find(MEMORY).await
    }

    pub(crate) async fn put_memory(&self, memory: OwnedFd) -> Result<(), XrlError> {
        self.put(MEMORY, memory).await
    }

    /// A descriptor that the process before has left under this name.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<OwnedFd>, XrlError> {
        let key = self.key(name);
        if !self.keeper.list(Empty {}).await?.kept.iter().any(|kept| kept.key == key) {
            return Ok(None);
        }
        let (_, descriptors) = self.keeper.get(GetRequest { key }).await?;
        Ok(descriptors.into_iter().next())
    }

    /// Keeps a descriptor whatever becomes of this process.
    pub(crate) async fn put(&self, name: &str, descriptor: OwnedFd) -> Result<(), XrlError> {
        let on_death = OnDeath::Keep.into();
        let request = PutRequest { key: self.key(name), on_death, ..PutRequest::default() };
        self.keeper.put(request, vec![descriptor]).await.map(|_| ())
    }

    fn key(&self, name: &str) -> String {
        scoped(name, self.vrf.as_deref())
    }
}
