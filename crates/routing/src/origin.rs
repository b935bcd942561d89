//! Routes of a protocol on their way to the RIB.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    net::IpAddr,
};

use holdfast_api::{
    rib::v1::{AddOriginRequest, EndOfSyncRequest, OriginRoutes, RibClient},
    routes::v1::{NextHop, NextHopKind, NextHopSet, RouteBatch},
};
use holdfast_process::Boot;
use holdfast_types::{Prefix, octets};
use holdfast_xrl::{Client, XrlError};
use tokio::sync::Notify;
use tracing::info;

use crate::{Retry, client};

/// Most routes of a message.
const BATCH: usize = 1024;

/// A route of a protocol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The neighbour it leads to; `None`: the network is on the link.
    pub gateway: Option<IpAddr>,
    /// The kernel's number of the interface.
    pub interface: u32,
    /// Lower is better; compared with routes of the same protocol only.
    pub metric: u32,
    /// Its tag; 0: none.
    pub tag: u32,
}

/// The way out that a handle stands for.
type Way = (Option<IpAddr>, u32);

/// The routes of a protocol in one table. What changes while the RIB is away, or slow, is told as it is in the end.
#[derive(Debug)]
pub struct Origin {
    name: &'static str,
    state: RefCell<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    routes: BTreeMap<Prefix, Route>,
    /// What the RIB has not been told.
    untold: BTreeSet<Prefix>,
    /// All that a life of the process begins with is here.
    is_complete: bool,
}

/// The handles of one connection to a RIB.
#[derive(Debug, Default)]
struct Handles {
    numbers: HashMap<Way, u32>,
    /// Of each prefix that has a route there, the handle.
    told: BTreeMap<Prefix, Way>,
    users: HashMap<Way, usize>,
    last: u32,
}

impl Origin {
    /// Without routes; `name` is that of the process.
    pub fn new(name: &'static str) -> Self {
        Self { name, state: RefCell::default(), changed: Notify::new() }
    }

    /// The protocol has a route, in place of the one before.
    pub fn announce(&self, prefix: Prefix, route: Route) {
        let mut state = self.state.borrow_mut();
        if state.routes.insert(prefix, route) != Some(route) {
            state.untold.insert(prefix);
            self.changed.notify_one();
        }
    }

    /// The protocol has no route any more.
    pub fn withdraw(&self, prefix: Prefix) {
        let mut state = self.state.borrow_mut();
        if state.routes.remove(&prefix).is_some() {
            state.untold.insert(prefix);
            self.changed.notify_one();
        }
    }

    /// The protocol has learned what there was to learn at its start: what an earlier life of the process left in the RIB, and
    /// this one did not announce, goes.
    pub fn complete(&self) {
        self.state.borrow_mut().is_complete = true;
        self.changed.notify_one();
    }

    /// Tells the RIB, and the next one when that has gone, for ever.
    pub async fn run(&self, boot: &Boot) -> Infallible {
        let mut retry = Retry::default();
        loop {
            let error = self.feed(boot).await;
            retry.after("routes to the rib", error).await;
        }
    }

    async fn feed(&self, boot: &Boot) -> XrlError {
        let client: RibClient = match client(boot, "rib").await {
            Ok(client) => client,
            Err(error) => return error,
        };
        // The configuration's distance counts.
        let request = AddOriginRequest { name: self.name.to_owned(), distance: 255, external: false };
        let origin = match client.add_origin(request).await {
            Ok(reply) => reply.origin,
            Err(error) => return error,
        };
        info!(event = "rib-registered", "registered at the rib");
        self.state.borrow_mut().tell_all();
        let (mut handles, mut is_said) = (Handles::default(), false);
        loop {
            let batches = handles.batches(&mut self.state.borrow_mut());
            let is_over = batches.is_empty();
            for batch in batches {
                let routes = OriginRoutes { origin, batch: Some(batch) };
                if let Err(error) = client.routes(routes).await {
                    return error;
                }
            }
            if !is_over {
                continue;
            }
            if self.state.borrow().is_complete && !std::mem::replace(&mut is_said, true) {
                if let Err(error) = client.end_of_sync(EndOfSyncRequest { origin }).await {
                    return error;
                }
                info!(event = "origin-synced", "the rib has all routes");
            }
            tokio::select! {
                () = self.changed.notified() => {}
                error = client.channel().closed() => return error,
            }
        }
    }
}

impl State {
    fn tell_all(&mut self) {
        self.untold = self.routes.keys().copied().collect();
    }

    /// Takes prefixes that have not been told, with the routes they have now: of one family, and as many as fit.
    fn take(&mut self) -> Vec<(Prefix, Option<Route>)> {
        let Some(first) = self.untold.first().copied() else { return Vec::new() };
        let of_family = self.untold.iter().filter(|prefix| prefix.afi() == first.afi());
        let taken: Vec<_> = of_family.take(BATCH).copied().collect();
        self.untold.retain(|prefix| taken.binary_search(prefix).is_err());
        taken.into_iter().map(|prefix| (prefix, self.routes.get(&prefix).copied())).collect()
    }
}

impl Handles {
    /// The next changes, a message for each run of routes with one tag.
    fn batches(&mut self, state: &mut State) -> Vec<RouteBatch> {
        let changes = state.take();
        let tag = |change: &(Prefix, Option<Route>)| change.1.map_or(0, |route| route.tag);
        changes.chunk_by(|a, b| tag(a) == tag(b)).map(|run| self.batch(run, tag(&run[0]))).collect()
    }

    fn batch(&mut self, changes: &[(Prefix, Option<Route>)], tag: u32) -> RouteBatch {
        let mut batch = RouteBatch { afi: 1, tag, ..RouteBatch::default() };
        let mut unused = BTreeSet::new();
        for &(prefix, route) in changes {
            let way = route.map(|route| (route.gateway, route.interface));
            let handle = way.map_or(0, |way| self.handle(way, &mut batch.define));
            if let Some(before) = self.become_of(prefix, way) {
                unused.insert(before);
            }
            batch.afi = prefix.afi().0.into();
            match prefix.address() {
                IpAddr::V4(address) => batch.addresses.extend(address.octets()),
                IpAddr::V6(address) => batch.addresses.extend(address.octets()),
            }
            batch.lengths.push(prefix.length());
            batch.runs.push(1);
            batch.next_hops.push(handle);
            batch.metrics.push(route.map_or(0, |route| route.metric));
        }
        let gone = unused.into_iter().filter(|way| !self.users.contains_key(way)).collect::<Vec<_>>();
        batch.undefine = gone.iter().filter_map(|way| self.numbers.remove(way)).collect();
        batch
    }

    fn handle(&mut self, way: Way, define: &mut Vec<NextHopSet>) -> u32 {
        *self.numbers.entry(way).or_insert_with(|| {
            self.last += 1;
            let gateway = way.0.map(octets).unwrap_or_default();
            let member = NextHop { gateway, interface_index: way.1, ..NextHop::default() };
            define.push(NextHopSet {
                handle: self.last,
                kind: NextHopKind::Forward.into(),
                members: vec![member],
                backups: Vec::new(),
            });
            self.last
        })
    }

    /// Notes the way of a prefix; the one before, if nothing goes that way any more.
    fn become_of(&mut self, prefix: Prefix, way: Option<Way>) -> Option<Way> {
        let before = match way {
            Some(way) => {
                *self.users.entry(way).or_default() += 1;
                self.told.insert(prefix, way)
            }
            None => self.told.remove(&prefix),
        };
        let before = before?;
        let users = self.users.get_mut(&before)?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        self.users.remove(&before);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(gateway: &str, metric: u32, tag: u32) -> Route {
        Route { gateway: Some(gateway.parse().expect("an address")), interface: 2, metric, tag }
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    fn batches(origin: &Origin, handles: &mut Handles) -> Vec<RouteBatch> {
        handles.batches(&mut origin.state.borrow_mut())
    }

    #[test]
    fn what_changes_before_it_is_told_is_told_once_and_as_it_is() {
        let (origin, mut handles) = (Origin::new("rip"), Handles::default());
        origin.announce(prefix("10.0.0.0/8"), route("192.0.2.1", 2, 0));
        origin.announce(prefix("10.0.0.0/8"), route("192.0.2.2", 3, 0));
        origin.announce(prefix("10.1.0.0/16"), route("192.0.2.1", 3, 0));
        origin.withdraw(prefix("10.1.0.0/16"));
        let told = batches(&origin, &mut handles);
        let [batch] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(
            (batch.lengths.as_slice(), batch.next_hops.as_slice()),
            ([8, 16].as_slice(), [1, 0].as_slice())
        );
        assert_eq!(batch.metrics, [3, 0]);
        assert!(batches(&origin, &mut handles).is_empty());
    }

    #[test]
    fn a_message_has_one_tag_and_one_family() {
        let (origin, mut handles) = (Origin::new("rip"), Handles::default());
        origin.announce(prefix("10.0.0.0/8"), route("192.0.2.1", 1, 7));
        origin.announce(prefix("11.0.0.0/8"), route("192.0.2.1", 1, 9));
        origin.announce(prefix("2001:db8::/32"), route("fe80::1", 1, 9));
        let tags = |batches: Vec<RouteBatch>| batches.iter().map(|b| (b.afi, b.tag)).collect::<Vec<_>>();
        assert_eq!(tags(batches(&origin, &mut handles)), [(1, 7), (1, 9)]);
        assert_eq!(tags(batches(&origin, &mut handles)), [(2, 9)]);
    }

    #[test]
    fn handles_that_nothing_uses_any_more_are_undefined() {
        let (origin, mut handles) = (Origin::new("rip"), Handles::default());
        for (prefix_of, gateway) in [("10.0.0.0/8", "192.0.2.1"), ("11.0.0.0/8", "192.0.2.1")] {
            origin.announce(prefix(prefix_of), route(gateway, 1, 0));
        }
        assert_eq!(batches(&origin, &mut handles)[0].define.len(), 1);
        origin.announce(prefix("10.0.0.0/8"), route("192.0.2.2", 1, 0));
        assert!(batches(&origin, &mut handles)[0].undefine.is_empty());
        origin.withdraw(prefix("11.0.0.0/8"));
        assert_eq!(batches(&origin, &mut handles)[0].undefine, [1]);
        origin.announce(prefix("11.0.0.0/8"), route("192.0.2.1", 1, 0));
        assert_eq!(batches(&origin, &mut handles)[0].define[0].handle, 3);
    }

    #[test]
    fn the_next_rib_is_told_everything() {
        let (origin, mut handles) = (Origin::new("rip"), Handles::default());
        origin.announce(prefix("10.0.0.0/8"), route("192.0.2.1", 1, 0));
        batches(&origin, &mut handles);
        origin.state.borrow_mut().tell_all();
        assert_eq!(batches(&origin, &mut Handles::default())[0].lengths, [8]);
    }
}
