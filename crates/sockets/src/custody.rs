//! Listening sockets that the keeper holds as well: they answer without a gap when whoever has opened them dies, and its
//! next life goes on with the same ones.
//!
//! ```text
//!  key   listener-ADDRESS[@VRF] or plain-ADDRESS[@VRF]
//!  note  the networks for which the socket may have keys of TCP-MD5, a line each
//! ```
//! The kernel does not say which keys a socket has. So the note is written before the kernel is told: it may name too many
//! networks, and never too few.

use std::{collections::BTreeSet, net::SocketAddr, os::fd::OwnedFd, rc::Rc};

use holdfast_api::keeper::v1::{Empty, GetRequest, KeeperClient, OnDeath, PutRequest};
use holdfast_types::Prefix;
use holdfast_xrl::{XrlError, scoped};

/// A listener is kept for so many milliseconds after a death: longer than the longest pause before a start. A build that does
/// not ask for it, and would find the address taken, gets it then.
const HOLD: u64 = 15_000;

/// Where, and whether it is a plain listener.
pub(crate) type Listening = (SocketAddr, bool);

/// The keeper, for the listeners of one table. Clones are the same.
#[derive(Clone)]
pub struct FdStore {
    keeper: KeeperClient,
    vrf: Option<Rc<str>>,
}

/// A listener that an earlier process has left.
pub(crate) struct Left {
    pub(crate) socket: OwnedFd,
    /// Networks for which it may have keys.
    pub(crate) keyed: BTreeSet<Prefix>,
}

impl FdStore {
    /// For the default table, or a VRF.
    pub fn new(keeper: KeeperClient, vrf: Option<Rc<str>>) -> Self {
        Self { keeper, vrf }
    }

    /// Gives up the listeners of VRFs that do not stay: the last copy that goes closes them.
    ///
    /// # Errors
    /// As the keeper says.
    pub async fn keep_vrfs(keeper: &KeeperClient, stays: impl Fn(&str) -> bool) -> Result<(), XrlError> {
        for kept in keeper.list(Empty {}).await?.kept {
            if place_of(&kept.key).is_some_and(|(_, vrf)| vrf.is_some_and(|vrf| !stays(vrf))) {
                keeper.drop(GetRequest { key: kept.key }).await?;
            }
        }
        Ok(())
    }

    /// Gives up the listeners of all tables: somebody else opens them from now on.
    ///
    /// # Errors
    /// As the keeper says.
    pub async fn keep_none(keeper: &KeeperClient) -> Result<(), XrlError> {
        for kept in keeper.list(Empty {}).await?.kept {
            if place_of(&kept.key).is_some() {
                keeper.drop(GetRequest { key: kept.key }).await?;
            }
        }
        Ok(())
    }

    /// Gives up all listeners of this table but these.
    pub(crate) async fn keep_only(&self, wanted: &BTreeSet<Listening>) -> Result<(), XrlError> {
        for kept in self.keeper.list(Empty {}).await?.kept {
            let of_ours = place_of(&kept.key).filter(|(_, vrf)| *vrf == self.vrf.as_deref());
            if of_ours.is_some_and(|(place, _)| !wanted.contains(&place)) {
                self.keeper.drop(GetRequest { key: kept.key }).await?;
            }
        }
        Ok(())
    }

    /// The listener that is kept for a place, if one is of which everything is known.
    pub(crate) async fn take(&self, place: Listening) -> Result<Option<Left>, XrlError> {
        let key = self.key(place);
        let kept = self.keeper.list(Empty {}).await?.kept;
        let Some(kept) = kept.into_iter().find(|kept| kept.key == key) else { return Ok(None) };
        let keyed = kept.note.map(|note| note.lines().map(str::parse).collect::<Result<_, _>>());
        let Some(Ok(keyed)) = keyed else {
            self.forget(place).await?;
            return Ok(None);
        };
        let (_, sockets) = self.keeper.get(GetRequest { key }).await?;
        Ok(sockets.into_iter().next().map(|socket| Left { socket, keyed }))
    }

    /// Has a listener kept, which may have keys for these networks from now on.
    pub(crate) async fn keep(
        &self,
        place: Listening,
        socket: OwnedFd,
        keyed: &BTreeSet<Prefix>,
    ) -> Result<(), XrlError> {
        let note = keyed.iter().map(|network| format!("{network}\n")).collect();
        let on_death = OnDeath::Keep.into();
        let request = PutRequest { key: self.key(place), on_death, hold_milliseconds: HOLD, note };
        self.keeper.put(request, vec![socket]).await?;
        Ok(())
    }

    /// Has a listener kept no more.
    pub(crate) async fn forget(&self, place: Listening) -> Result<(), XrlError> {
        self.keeper.drop(GetRequest { key: self.key(place) }).await?;
        Ok(())
    }

    fn key(&self, (address, plain): Listening) -> String {
        let kind = if plain { PLAIN } else { LISTENER };
        scoped(&format!("{kind}{address}"), self.vrf.as_deref())
    }
}

const LISTENER: &str = "listener-";
const PLAIN: &str = "plain-";

/// Which listener has this key, and of which VRF.
fn place_of(key: &str) -> Option<(Listening, Option<&str>)> {
    let (name, vrf) = key.split_once('@').map_or((key, None), |(name, vrf)| (name, Some(vrf)));
    let (address, plain) = match name.strip_prefix(LISTENER) {
        Some(address) => (address, false),
        None => (name.strip_prefix(PLAIN)?, true),
    };
    Some(((address.parse().ok()?, plain), vrf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_which_listener_it_is() {
        let address: SocketAddr = "[2001:db8::1]:179".parse().expect("an address");
        for (key, place) in [
            ("listener-[2001:db8::1]:179", Some(((address, false), None))),
            ("plain-[2001:db8::1]:179@blue", Some(((address, true), Some("blue")))),
            ("session-7", None),
            ("listener-nowhere", None),
            ("operators", None),
        ] {
            assert_eq!(place_of(key), place, "{key}");
        }
    }
}
