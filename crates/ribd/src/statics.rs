//! The configuration: static routes, distances, how long stale routes stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use holdfast_api::rib::v1::{Configuration, StaticBfd, StaticRoute};
use holdfast_rib::{InterfaceRef, Nexthop, NexthopSet, OriginConfig, OriginId, Rib, RibError, RouteAction};
use holdfast_types::Prefix;
use holdfast_xrl::XrlError;
use tracing::{info, warn};

use crate::{
    bfd::{Followed, MAX_FOLLOWED, Session},
    origins,
    readiness::Expected,
    router::Router,
    wire::{self, invalid},
};

/// Name of the origin of configured routes.
pub(crate) const STATIC: &str = "static";
/// Its distance unless configured otherwise, as on most routers.
const STATIC_DISTANCE: u8 = 1;
/// How long routes of a dead origin stay unless configured otherwise.
const STALE_SECONDS: u32 = 120;

/// The static routes of the configuration, and what BFD says of their next hops.
#[derive(Default)]
pub(crate) struct Statics {
    routes: Vec<Static>,
    /// Sessions that were up and have failed.
    failed: BTreeSet<Session>,
}

struct Static {
    prefix: Prefix,
    nexthops: NexthopSet,
    distance: Option<u8>,
    tag: u32,
    bfd: Option<StaticBfd>,
}

impl Statics {
    /// The sessions to next hops.
    pub(crate) fn followed(&self) -> BTreeSet<Followed> {
        self.routes.iter().flat_map(Static::followed).collect()
    }

    /// Other routes. Of next hops that are followed still, it is known whether they work.
    fn replace(&mut self, routes: Vec<Static>) {
        self.routes = routes;
        let followed: BTreeSet<Session> = self.followed().into_iter().map(|it| it.session).collect();
        self.failed.retain(|session| followed.contains(session));
    }

    /// The session has failed, or not any more; whether that is new.
    fn set_failed(&mut self, session: &Session, failed: bool) -> bool {
        if failed { self.failed.insert(session.clone()) } else { self.failed.remove(session) }
    }
}

impl Static {
    fn session(&self, member: &Nexthop) -> Option<Session> {
        let interface = match &member.interface {
            Some(InterfaceRef::Name(name)) => name.clone(),
            Some(InterfaceRef::Index(_)) | None => Box::default(),
        };
        let hops = i32::try_from(self.bfd.as_ref()?.hops).unwrap_or_default();
        Some(Session { remote: member.gateway?, interface, hops })
    }

    fn members(&self) -> &[Nexthop] {
        match &self.nexthops {
            NexthopSet::Forward(members) => members,
            NexthopSet::Blackhole | NexthopSet::Unreachable => &[],
        }
    }

    fn followed(&self) -> impl Iterator<Item = Followed> {
        let sessions = self.members().iter().filter_map(|member| self.session(member));
        let profile = self.bfd.as_ref().map_or("", |bfd| &bfd.profile);
        sessions.map(|session| Followed { session, profile: profile.into() })
    }

    /// The next hops without those that have failed; `None`: all have.
    fn working(&self, failed: &BTreeSet<Session>) -> Option<NexthopSet> {
        let NexthopSet::Forward(members) = &self.nexthops else { return Some(self.nexthops.clone()) };
        let works = |member: &&Nexthop| self.session(member).is_none_or(|session| !failed.contains(&session));
        let left: Vec<Nexthop> = members.iter().filter(works).cloned().collect();
        (!left.is_empty() || members.is_empty()).then_some(NexthopSet::Forward(left))
    }

    /// Brings the table up to date about it.
    fn put(&self, rib: &mut Rib, origin: OriginId, failed: &BTreeSet<Session>) -> Result<(), RibError> {
        let Some(nexthops) = self.working(failed) else {
            return rib.origin_routes(origin, [(RouteAction::Withdraw, [self.prefix])]);
        };
        let nexthops = rib.nexthops(origin, nexthops);
        let (distance, tag) = (self.distance, self.tag);
        let action = RouteAction::Announce { nexthops, metric: 0, distance, tag, source: 0 };
        let done = rib.origin_routes(origin, [(action, [self.prefix])]);
        rib.release_nexthops(nexthops);
        done
    }
}

/// Static routes, and the distance of each protocol.
type Wanted = (Vec<Static>, BTreeMap<String, u8>);

/// Reads a configuration.
fn read_all(configuration: &Configuration) -> Result<Wanted, XrlError> {
    let statics: Vec<_> = configuration.statics.iter().map(read).collect::<Result<_, _>>()?;
    let followed: BTreeSet<Followed> = statics.iter().flat_map(Static::followed).collect();
    if followed.len() > MAX_FOLLOWED {
        return Err(invalid(format!("static routes have {MAX_FOLLOWED} next hops with BFD at most")));
    }
    let distances = configuration.distances.iter().map(|(name, &value)| Ok((name.clone(), distance(value)?)));
    Ok((statics, distances.collect::<Result<_, XrlError>>()?))
}

/// Whether a configuration could take effect.
pub(crate) fn check(configuration: &Configuration) -> Result<(), XrlError> {
    read_all(configuration).map(drop)
}

/// Puts a configuration in place of the one before. All of it is checked first.
pub(crate) fn configure(router: &Router, configuration: &Configuration) -> Result<(), XrlError> {
    let (statics, distances) = read_all(configuration)?;
    router.distances.replace(distances);
    let seconds = match configuration.stale_seconds {
        0 => STALE_SECONDS,
        seconds => seconds,
    };
    let stale_time = Duration::from_secs(seconds.into());
    let origins = configuration.expected_origins.clone();
    origins::close_all_but(router, &origins);
    router.statics.borrow_mut().replace(statics);
    router.bfd.set(configuration.bfd);
    router.configured.notify_one();
    router.readiness.borrow_mut().configured(Expected { stale_time, origins });
    router.change(|rib| {
        rib.set_stale_time(stale_time);
        for (name, &distance) in router.distances.borrow().iter() {
            if let Some(origin) = rib.origin_named(name) {
                rib.set_distance(origin, distance);
            }
        }
        let distance = router.distances.borrow().get(STATIC).copied().unwrap_or(STATIC_DISTANCE);
        announce(rib, &router.statics.borrow(), distance).map_err(invalid)
    })
}

/// A new life of the static origin: what it does not repeat goes.
fn announce(rib: &mut Rib, statics: &Statics, distance: u8) -> Result<(), RibError> {
    let config = OriginConfig::internal(distance);
    let Ok(origin) = rib.add_origin(STATIC, config, Instant::now()) else {
        // It is of the same kind always, and the first to register after the connected one.
        return Ok(());
    };
    for route in &statics.routes {
        route.put(rib, origin, &statics.failed)?;
    }
    rib.origin_end_of_sync(origin)
}

/// BFD says of a next hop whether it has failed.
pub(crate) fn session_says(router: &Router, session: &Session, failed: bool) {
    let mut statics = router.statics.borrow_mut();
    if !statics.set_failed(session, failed) {
        return;
    }
    let Statics { routes, failed: all } = &*statics;
    let concerned = || routes.iter().filter(|route| route.followed().any(|it| it.session == *session));
    let done = router.change(|rib| {
        let Some(origin) = rib.origin_named(STATIC) else { return Ok(()) };
        concerned().try_for_each(|route| route.put(rib, origin, all))
    });
    let (next_hop, interface, routes) = (session.remote, &*session.interface, concerned().count());
    match (done, failed) {
        (Err(error), _) => warn!(event = "static-refused", %next_hop, "static routes: {error}"),
        (Ok(()), true) => {
            info!(event = "next-hop-failed", %next_hop, interface, routes, "BFD: a static next hop has failed");
        }
        (Ok(()), false) => {
            info!(event = "next-hop-works", %next_hop, interface, routes, "BFD: a static next hop works again");
        }
    }
}

fn read(route: &StaticRoute) -> Result<Static, XrlError> {
    let prefix: Prefix = route.prefix.parse().map_err(invalid)?;
    let nexthops = wire::nexthops(route.kind, &route.next_hops)?;
    let distance = (route.distance != 0).then(|| distance(route.distance)).transpose()?;
    Ok(Static { prefix, nexthops, distance, tag: route.tag, bfd: route.bfd.clone() })
}

fn distance(value: u32) -> Result<u8, XrlError> {
    u8::try_from(value).map_err(|_| invalid(format!("distance {value} is over 255")))
}
