//! What the keeper holds for one instance of this process: its replication log, the sockets of the sessions in it, and
//! whose routes are here, whom the operator keeps down, what we have signed.

use std::{collections::BTreeMap, os::fd::OwnedFd, rc::Rc, time::Duration};

use holdfast_api::keeper::v1::{GetManyRequest, KeeperClient};
use holdfast_nsr::SessionId;
use holdfast_process::kept;
use holdfast_xrl::{XrlError, scoped};

/// What the RPKI says, for all tables of the process.
const RPKI: &str = "rpki";
/// Descriptors asked for at a time.
const MANY: usize = 32;
const LOG: &str = "log";
const PEERS: &str = "peers";
const STOPPED: &str = "stopped";
/// In which stage the process is, for all tables of it.
const STAGES: &str = "stages";
/// What we have signed.
const SIGNATURES: &str = "signatures";
const SESSION: &str = "session-";

/// The keeper's names of an instance's descriptors: `log`, `peers` and `session-7` are of the default table, `log@blue`,
/// `peers@blue` and `session-7@blue` of a VRF.
#[derive(Clone, Debug, Default)]
struct Names(Option<Rc<str>>);

impl Names {
    fn log(&self) -> String {
        scoped(LOG, self.0.as_deref())
    }

    fn peers(&self) -> String {
        scoped(PEERS, self.0.as_deref())
    }

    fn stopped(&self) -> String {
        scoped(STOPPED, self.0.as_deref())
    }

    fn signatures(&self) -> String {
        scoped(SIGNATURES, self.0.as_deref())
    }

    fn session(&self, id: SessionId) -> String {
        scoped(&format!("{SESSION}{}", id.0), self.0.as_deref())
    }

    fn session_of(&self, key: &str) -> Option<SessionId> {
        let (name, vrf) = split(key);
        (vrf == self.0.as_deref()).then_some(())?;
        name.strip_prefix(SESSION)?.parse().ok().map(SessionId)
    }

    fn is_of_log(&self, key: &str) -> bool {
        key == self.log() || self.session_of(key).is_some()
    }

    fn is_one(&self, key: &str) -> bool {
        let whole = [self.peers(), self.stopped(), self.signatures()];
        whole.iter().any(|name| name == key) || self.is_of_log(key)
    }
}

/// A name without its VRF, and that.
fn split(key: &str) -> (&str, Option<&str>) {
    key.split_once('@').map_or((key, None), |(name, vrf)| (name, Some(vrf)))
}

/// The keeper, for one instance. Clones are the same.
#[derive(Clone)]
pub(crate) struct FdStore {
    keeper: KeeperClient,
    names: Names,
}

/// What an earlier process has left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) log: Option<OwnedFd>,
    pub(crate) sockets: BTreeMap<SessionId, OwnedFd>,
}

impl FdStore {
    /// For the default table, or a VRF.
    pub(crate) fn new(keeper: KeeperClient, vrf: Option<Rc<str>>) -> Self {
        Self { keeper, names: Names(vrf) }
    }

    /// Everything that an earlier process has left.
    pub(crate) async fn take(&self) -> Result<Left, XrlError> {
        let (mut left, keys) = (Left::default(), kept::keys(&self.keeper).await?);
        if keys.contains(&self.names.log()) {
            left.log = kept::get(&self.keeper, &self.names.log()).await?;
        }
        let sessions: Vec<(SessionId, String)> =
            keys.into_iter().filter_map(|key| Some((self.names.session_of(&key)?, key))).collect();
        for part in sessions.chunks(MANY) {
            let keys = part.iter().map(|(_, key)| key.clone()).collect();
            let (reply, descriptors) = self.keeper.get_many(GetManyRequest { keys }).await?;
            let found = part.iter().zip(reply.found).filter(|(_, found)| *found);
            left.sockets.extend(found.zip(descriptors).map(|(((id, _), _), socket)| (*id, socket)));
        }
        Ok(left)
    }

    /// Keeps the log whatever becomes of this process.
    pub(crate) async fn put_log(&self, log: OwnedFd) -> Result<(), XrlError> {
        self.put_for_good(self.names.log(), log).await
    }

    /// What an earlier process has left of whose routes it had.
    pub(crate) async fn peers(&self) -> Result<Option<OwnedFd>, XrlError> {
        self.find(self.names.peers()).await
    }

    /// Keeps whose routes are here whatever becomes of this process.
    pub(crate) async fn put_peers(&self, peers: OwnedFd) -> Result<(), XrlError> {
        self.put_for_good(self.names.peers(), peers).await
    }

    /// What an earlier process has left of whom the operator keeps down.
    pub(crate) async fn stopped(&self) -> Result<Option<OwnedFd>, XrlError> {
        self.find(self.names.stopped()).await
    }

    /// Keeps whom the operator keeps down whatever becomes of this process.
    pub(crate) async fn put_stopped(&self, stopped: OwnedFd) -> Result<(), XrlError> {
        self.put_for_good(self.names.stopped(), stopped).await
    }

    /// What an earlier process has left of its signatures.
    pub(crate) async fn signatures(&self) -> Result<Option<OwnedFd>, XrlError> {
        self.find(self.names.signatures()).await
    }

    /// Keeps our signatures whatever becomes of this process.
    pub(crate) async fn put_signatures(&self, signatures: OwnedFd) -> Result<(), XrlError> {
        self.put_for_good(self.names.signatures(), signatures).await
    }

    /// The keeper closes its copy of them.
    pub(crate) fn drop_signatures(&self) {
        kept::forget(&self.keeper, self.names.signatures());
    }

    /// What an earlier process has left of its stages.
    pub(crate) async fn stages(&self) -> Result<Option<OwnedFd>, XrlError> {
        self.find(STAGES.into()).await
    }

    /// Keeps what is known of the stages whatever becomes of this process.
    pub(crate) async fn put_stages(&self, record: OwnedFd) -> Result<(), XrlError> {
        self.put_for_good(STAGES.into(), record).await
    }

    /// What an earlier process has left of what the RPKI says.
    pub(crate) async fn rpki(&self) -> Result<Option<OwnedFd>, XrlError> {
        self.find(RPKI.into()).await
    }

    /// Keeps what the RPKI says whatever becomes of this process.
    pub(crate) async fn put_rpki(&self, epochs: OwnedFd) -> Result<(), XrlError> {
        self.put_for_good(RPKI.into(), epochs).await
    }

    /// The keeper closes its copy of that.
    pub(crate) fn drop_rpki(&self) {
        kept::forget(&self.keeper, RPKI.into());
    }

    async fn find(&self, key: String) -> Result<Option<OwnedFd>, XrlError> {
        kept::find(&self.keeper, &key).await
    }

    async fn put_for_good(&self, key: String, descriptor: OwnedFd) -> Result<(), XrlError> {
        kept::put(&self.keeper, key, descriptor, None).await
    }

    /// Keeps a socket for the next process, for so long after the death of this one.
    pub(crate) async fn put(&self, id: SessionId, socket: OwnedFd, hold: Duration) -> Result<(), XrlError> {
        kept::put(&self.keeper, self.names.session(id), socket, Some(hold)).await
    }

    /// The keeper closes its copy of a socket.
    pub(crate) fn drop(&self, id: SessionId) {
        kept::forget(&self.keeper, self.names.session(id));
    }

    /// Whether the process before has left a session here.
    pub(crate) async fn has_sessions(&self) -> Result<bool, XrlError> {
        Ok(kept::keys(&self.keeper).await?.iter().any(|key| self.names.session_of(key).is_some()))
    }

    /// No session is to outlive this process: what is kept of them is given back.
    pub(crate) async fn drop_sessions(&self) -> Result<(), XrlError> {
        drop_where(&self.keeper, |key| self.names.is_of_log(key)).await
    }

    /// Nothing is to outlive this process: what is kept is given back.
    pub(crate) async fn drop_all(&self) -> Result<(), XrlError> {
        drop_where(&self.keeper, |key| self.names.is_one(key)).await
    }
}

/// Gives back what earlier processes have left of VRFs that are no more.
pub(crate) async fn drop_of_others(keeper: &KeeperClient, vrfs: &[String]) -> Result<(), XrlError> {
    let is_gone = |vrf: &str| !vrfs.iter().any(|wanted| wanted == vrf);
    drop_where(keeper, |key| split(key).1.is_some_and(is_gone)).await
}

async fn drop_where(keeper: &KeeperClient, is_meant: impl Fn(&str) -> bool) -> Result<(), XrlError> {
    for key in kept::keys(keeper).await?.into_iter().filter(|key| is_meant(key)) {
        kept::forget(keeper, key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_knows_its_own_descriptors_and_no_others() {
        let vrf = |name: &str| Names(Some(name.into()));
        let all = [Names::default(), vrf("blue"), vrf("7"), vrf("session-7"), vrf("log"), vrf("signatures")];
        let of = |names: &Names| {
            let whole = [names.log(), names.peers(), names.stopped(), names.signatures()];
            whole.into_iter().chain([names.session(SessionId(7))]).collect::<Vec<_>>()
        };
        let keys: Vec<_> = all.iter().flat_map(of).collect();
        assert_eq!(keys[..5], ["log", "peers", "stopped", "signatures", "session-7"]);
        assert_eq!(
            keys[5..10],
            ["log@blue", "peers@blue", "stopped@blue", "signatures@blue", "session-7@blue"]
        );
        for (at, names) in all.iter().enumerate() {
            let own: Vec<_> = keys.iter().filter(|key| names.is_one(key)).collect();
            assert_eq!(own, keys[5 * at..][..5].iter().collect::<Vec<_>>());
            let sessions: Vec<_> = keys.iter().filter_map(|key| names.session_of(key)).collect();
            assert_eq!(sessions, [SessionId(7)]);
        }
        assert_eq!(Names::default().session_of("session-x"), None);
    }
}
