//! `bfd.v1`: sessions for other processes.

use std::{collections::BTreeMap, net::IpAddr, rc::Rc};

use holdfast_api::bfd::v1::{BfdServer, FollowRequest, Neighbor as ApiNeighbor, SessionState, WatchRequest};
use holdfast_types::{address, octets};
use holdfast_xrl::{CallContext, Channel, ReplySink, XrlError};

use crate::{paths::Neighbor, table::Inner, tables::Tables, wanted::Follower};

/// Serves `bfd.v1`.
pub(crate) struct BfdService(pub(crate) Rc<Tables>);

/// Somebody's interest in a session, until it is dropped.
struct Interest {
    table: Rc<Inner>,
    neighbor: Neighbor,
    follower: Rc<Follower>,
    channel: Channel,
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.table.unfollow(&self.neighbor, &self.follower, self.channel.is_closed());
    }
}

fn named(vrf: &str) -> Option<String> {
    (!vrf.is_empty()).then(|| vrf.to_owned())
}

fn neighbor(request: &FollowRequest) -> Result<Neighbor, XrlError> {
    let wrong = |what: &str| XrlError::invalid_argument(what.to_owned());
    let remote = address(&request.remote).ok_or_else(|| wrong("the neighbour has no address"))?;
    let local = match request.local.as_slice() {
        [] => None,
        local => Some(address(local).ok_or_else(|| wrong("our address is none"))?),
    };
    if local.is_some_and(|local| local.is_ipv6() != remote.is_ipv6()) {
        return Err(wrong("the addresses are of two families"));
    }
    if remote.is_unspecified() || remote.is_multicast() {
        return Err(wrong("the neighbour's address is not that of a router"));
    }
    let is_link_local = matches!(remote, IpAddr::V6(remote) if remote.is_unicast_link_local());
    if is_link_local && request.interface.is_empty() {
        return Err(wrong("a link-local neighbour has an interface"));
    }
    Ok(Neighbor { remote, local, interface: request.interface.clone(), hops: request.hops().into() })
}

impl BfdServer for BfdService {
    async fn follow(
        &self,
        context: &CallContext,
        request: FollowRequest,
        mut replies: ReplySink<SessionState>,
    ) -> Result<(), XrlError> {
        let neighbor = neighbor(&request)?;
        let table = self.0.table(named(&request.vrf)).await?;
        let follower = table.follow(&neighbor, request.profile)?;
        let channel = context.channel().clone();
        let interest = Interest { table, neighbor, follower, channel };
        loop {
            let state = interest.follower.next().await;
            replies.send(state).await?;
        }
    }

    async fn watch(
        &self,
        _context: &CallContext,
        request: WatchRequest,
        mut replies: ReplySink<ApiNeighbor>,
    ) -> Result<(), XrlError> {
        let table = self.0.table(named(&request.vrf)).await?;
        let (mut changes, mut told, mut synced) = (table.changes(), BTreeMap::new(), false);
        loop {
            changes.mark_unchanged();
            for neighbor in news(&table, &mut told) {
                replies.send(neighbor).await?;
            }
            if !std::mem::replace(&mut synced, true) {
                replies.send(ApiNeighbor { synced, ..ApiNeighbor::default() }).await?;
            }
            if changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// What has changed since somebody was told so much.
fn news(table: &Inner, told: &mut BTreeMap<(IpAddr, u32), bool>) -> Vec<ApiNeighbor> {
    let now = table.sessions().neighbors();
    let say = |&(remote, interface): &(IpAddr, u32), failed, gone| ApiNeighbor {
        remote: octets(remote),
        interface,
        failed,
        gone,
        synced: false,
    };
    let gone = told.keys().filter(|key| !now.contains_key(key)).map(|key| say(key, false, true));
    let changed = now.iter().filter(|(key, failed)| told.get(key) != Some(failed));
    let news = gone.chain(changed.map(|(key, failed)| say(key, *failed, false))).collect();
    *told = now;
    news
}
