//! Registration of interest: how an address is reached, for which range that holds, and word when it no longer does.
//!
//! The range of an answer is the largest subnet around the address in which every address has the same answer
//! (Handley et al. 2005, section 5.2.1): no more specific internal route lies inside it, nor a gateway on which the
//! answer rests. Ranges never overlap, so a client may keep them in a plain ordered map.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use holdfast_types::Prefix;

use crate::{
    nexthop::Resolution,
    origin::OriginId,
    resolve::{Evaluation, View},
    tables::Tables,
    tracker::TrackedId,
};

/// Most addresses of one client, with ranges that are no longer valid and of which it has not been told.
pub const MAX_REGISTRATIONS: usize = 65_536;

pub(crate) type WatchId = u32;

/// Who registers interest; the number is chosen by the caller.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u32);

/// How an address is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The range for which this answer holds.
    pub range: Prefix,
    /// The route; `None` when no internal route leads there.
    pub route: Option<Route>,
}

/// The internal route that covers a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Its prefix.
    pub prefix: Prefix,
    /// Where it comes from.
    pub origin: OriginId,
    /// Its metric.
    pub metric: u32,
    /// Its administrative distance.
    pub distance: u8,
    /// Where it leads; a member without a gateway: the addresses of the range are neighbours themselves.
    pub nexthops: Resolution,
}

impl Route {
    /// Whether the addresses of the range are neighbours.
    pub fn is_connected(&self) -> bool {
        self.nexthops.members().iter().any(|member| member.gateway.is_none())
    }
}

impl Answer {
    pub(crate) fn new(view: View<'_>, address: IpAddr, evaluation: &Evaluation) -> Self {
        let route = evaluation.found.as_ref().map(|found| {
            let path = view.store.path(found.path);
            let nexthops = found.resolution.clone();
            Route {
                prefix: found.prefix,
                origin: path.origin,
                metric: path.metric,
                distance: path.distance,
                nexthops,
            }
        });
        Self { range: range(view.tables, address, evaluation), route }
    }
}

fn range(tables: &Tables, address: IpAddr, evaluation: &Evaluation) -> Prefix {
    let host = Prefix::host(address);
    if evaluation.met_itself {
        return host;
    }
    let gateway_inside = |range: Prefix| {
        evaluation.visits.iter().any(|&(visited, _)| visited != address && range.contains_address(visited))
    };
    let deepest = tables.internal_rows(address).last().map_or(0, |(prefix, _)| prefix.length());
    let ranges = (deepest..host.length()).filter_map(|length| Prefix::new(address, length));
    ranges.into_iter().find(|&range| !tables.is_overlaid(range) && !gateway_inside(range)).unwrap_or(host)
}

/// A range in which somebody is interested.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) tracked: TrackedId,
    pub(crate) answer: Answer,
    /// Who asked about which address.
    asked: BTreeSet<(ClientId, IpAddr)>,
}

impl Watch {
    fn has_client(&self, client: ClientId) -> bool {
        let first = (client, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        self.asked.range(first..).next().is_some_and(|&(other, _)| other == client)
    }
}

/// Who is interested in what.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    watches: Vec<Option<Watch>>,
    free: Vec<WatchId>,
    /// Ranges whose clients have to be told.
    invalidated: BTreeSet<(ClientId, Prefix)>,
    /// Addresses of each client, and ranges of which it has to be told.
    counts: BTreeMap<ClientId, usize>,
}

impl Registry {
    pub(crate) fn get(&self, id: WatchId) -> Option<&Watch> {
        self.watches.get(id as usize)?.as_ref()
    }

    pub(crate) fn has_room(&self, client: ClientId) -> bool {
        self.counts.get(&client).is_none_or(|&count| count < MAX_REGISTRATIONS)
    }

    pub(crate) fn add_watch(&mut self, tracked: TrackedId, answer: Answer) -> WatchId {
        let watch = Some(Watch { tracked, answer, asked: BTreeSet::new() });
        match self.free.pop() {
            Some(id) => {
                self.watches[id as usize] = watch;
                id
            }
            None => {
                self.watches.push(watch);
                self.watches.len() as WatchId - 1
            }
        }
    }

    pub(crate) fn join(&mut self, id: WatchId, client: ClientId, address: IpAddr) {
        if let Some(Some(watch)) = self.watches.get_mut(id as usize)
            && watch.asked.insert((client, address))
        {
            *self.counts.entry(client).or_default() += 1;
        }
    }

    /// The client is no longer interested in these of the addresses about which it asked. Returns whether nobody is
    /// interested in the range any more.
    pub(crate) fn leave(&mut self, id: WatchId, client: ClientId, gone: impl Fn(IpAddr) -> bool) -> bool {
        let Some(Some(watch)) = self.watches.get_mut(id as usize) else { return false };
        let before = watch.asked.len();
        watch.asked.retain(|&(other, address)| other != client || !gone(address));
        let (less, nobody) = (before - watch.asked.len(), watch.asked.is_empty());
        self.count_less(client, less);
        nobody
    }

    /// The answer no longer holds: takes the watch out and remembers to tell its clients.
    pub(crate) fn invalidate(&mut self, id: WatchId) -> Option<Watch> {
        let watch = self.watches.get_mut(id as usize)?.take()?;
        self.free.push(id);
        for &(client, _) in &watch.asked {
            self.count_less(client, 1);
            if self.invalidated.insert((client, watch.answer.range)) {
                *self.counts.entry(client).or_default() += 1;
            }
        }
        Some(watch)
    }

    /// The next range of which the client has to be told.
    pub(crate) fn next_invalidated(&mut self, client: ClientId) -> Option<Prefix> {
        let first = Prefix::host(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let first = Prefix::new(first.address(), 0).unwrap_or(first);
        let next = self.invalidated.range((client, first)..).next().copied();
        let (_, range) = next.filter(|&(other, _)| other == client)?;
        self.invalidated.remove(&(client, range));
        self.count_less(client, 1);
        Some(range)
    }

    /// Watches in which the client is interested.
    pub(crate) fn watches_of(&self, client: ClientId) -> Vec<WatchId> {
        let has_client = |&id: &WatchId| self.get(id).is_some_and(|watch| watch.has_client(client));
        (0..self.watches.len() as WatchId).filter(has_client).collect()
    }

    /// Forgets what the client has not been told yet.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.invalidated.retain(|&(other, _)| other != client);
        self.counts.remove(&client);
    }

    fn count_less(&mut self, client: ClientId, less: usize) {
        if let Some(count) = self.counts.get_mut(&client) {
            *count = count.saturating_sub(less);
            if *count == 0 {
                self.counts.remove(&client);
            }
        }
    }
}
