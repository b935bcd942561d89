//! Which sessions another configuration ends, and which connections get other options.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use holdfast_api::bgp::v1::{BgpClient, Empty};
use holdfast_config::{
    Config,
    schema::{Peer, PeerAsn, Remote},
    session,
    whereabouts::{Whereabouts, peers},
};
use holdfast_process::Processes;
use holdfast_types::{Asn, RouterId};
use holdfast_xrl::{XrlError, scoped};

use super::limits::{self, Over};
use crate::{birth::is_replaced, manager::Manager};

/// How long `bgp` may take to say which sessions outlive it.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Peers and ranges that stay, whose sockets are made with another key or TTL from now on.
pub(super) fn with_other_sockets(old: &Config, new: &Config) -> Vec<String> {
    let before: HashMap<Whereabouts, &Peer> = peers(old).collect();
    let other = |(at, peer): &(Whereabouts, &Peer)| {
        before.get(at).is_some_and(|before| !has_same_sockets(before, peer))
    };
    peers(new).filter(other).map(|(_, peer)| peer.name.clone()).collect()
}

fn has_same_sockets(peer: &Peer, other: &Peer) -> bool {
    let options = |peer: &Peer| (peer.rules.ttl_security, peer.rules.multihop);
    peer.md5 == other.md5 && options(peer) == options(other)
}

/// Whose sessions end.
pub struct Ending<'a> {
    old: &'a Config,
    new: &'a Config,
    /// `bgp` is replaced, which leaves sessions behind that do not outlive it.
    falls: bool,
    /// Peers whose sessions are up and do not outlive `bgp`, as far as that has said it.
    unprotected: HashSet<String>,
    /// Sessions that have more than they may have then.
    pub(super) over: Vec<Over>,
}

impl<'a> Ending<'a> {
    /// As far as the configurations tell, and with these sessions, which `bgp` has said to end with it.
    pub fn new(
        processes: &Processes,
        old: &'a Config,
        new: &'a Config,
        unprotected: impl IntoIterator<Item = String>,
    ) -> Self {
        let falls = is_replaced(processes, "bgp", old, new);
        Self { old, new, falls, unprotected: unprotected.into_iter().collect(), over: Vec::new() }
    }

    /// The same with what `bgp` knows: what its peers have, and where it is replaced, which sessions outlive it.
    pub(super) async fn ask(manager: &Manager, old: &'a Config, new: &'a Config) -> Self {
        let mut ending = Self::new(&manager.processes, old, new, []);
        ending.over = limits::ask(manager, old, new).await;
        if ending.falls {
            for vrf in std::iter::once(None).chain(old.vrfs.iter().map(|vrf| Some(vrf.name.as_str()))) {
                // One that does not answer has no sessions, or is about to lose them.
                let said = tokio::time::timeout(ASK_LIMIT, unprotected(manager, vrf)).await;
                ending.unprotected.extend(said.ok().and_then(Result::ok).unwrap_or_default());
            }
        }
        ending
    }

    /// Peers and ranges whose sessions cannot stay: `bgp` is told the same text, and decides by it the same way.
    pub fn names(&self) -> Vec<String> {
        let wanted: HashMap<Whereabouts, &Peer> = peers(self.new).collect();
        let stays = |at: &Whereabouts, peer: &Peer| {
            let is_same = |wanted: &Peer| {
                session(wanted) == session(peer) && sender(wanted, self.new) == sender(peer, self.old)
            };
            wanted.get(at).is_some_and(|wanted| !wanted.rules.disabled && is_same(wanted))
        };
        let ends = |(at, peer): &(Whereabouts, &Peer)| {
            let is_over =
                || self.over.iter().any(|over| over.configured == peer.name && over.vrf == peer.vrf);
            !peer.rules.disabled && (!stays(at, peer) || self.falls && self.is_mortal(peer) || is_over())
        };
        peers(self.old).filter(ends).map(|(_, peer)| peer.name.clone()).collect()
    }

    fn is_mortal(&self, peer: &Peer) -> bool {
        let is_its = |name: &String| match &peer.remote {
            Remote::Range(_) => name.strip_prefix(&peer.name).is_some_and(|member| member.starts_with(':')),
            Remote::Address(_) | Remote::OnLink(..) | Remote::LinkLocal(..) | Remote::Interface(_) => {
                *name == peer.name
            }
        };
        !peer.nonstop || self.unprotected.iter().any(is_its)
    }
}

/// The peers of a table whose sessions are up and end with `bgp`.
async fn unprotected(manager: &Manager, vrf: Option<&str>) -> Result<Vec<String>, XrlError> {
    let bgp: BgpClient = manager.resolver.client(&scoped("bgp", vrf)).await?;
    let known = bgp.show_nsr(Empty {}).await?.sessions.into_iter();
    let mortal = known.filter(|session| session.established && !session.protected);
    Ok(mortal.map(|session| session.peer).collect())
}

/// Who we are in the OPEN to a peer: our AS number there, and our BGP identifier. `bgp` finds the same.
fn sender(peer: &Peer, config: &Config) -> (Asn, RouterId) {
    let (own, confederation) =
        (config.router.asn, config.bgp.as_ref().and_then(|bgp| bgp.confederation.as_ref()));
    let is_inside = |asn: &Asn| {
        *asn == own || confederation.is_some_and(|confederation| confederation.members.contains(asn))
    };
    let asn = match (&peer.asn, peer.paths.local_asn) {
        (PeerAsn::One(asn), _) if is_inside(asn) => own,
        (_, Some(local)) => local,
        (_, None) => confederation.map_or(own, |confederation| confederation.id),
    };
    (asn, config.router.id)
}
