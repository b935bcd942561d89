//! The configuration: static routes, distances, how long stale routes stay.

use std::time::{Duration, Instant};

use holdfast_api::rib::v1::{Configuration, StaticRoute};
use holdfast_rib::{NexthopSet, OriginConfig, Rib, RibError, RouteAction};
use holdfast_types::Prefix;
use holdfast_xrl::XrlError;

use crate::{
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

struct Static {
    prefix: Prefix,
    nexthops: NexthopSet,
    distance: Option<u8>,
    tag: u32,
}

/// Puts a configuration in place of the one before. All of it is checked first.
pub(crate) fn configure(router: &Router, configuration: &Configuration) -> Result<(), XrlError> {
    let statics: Vec<_> = configuration.statics.iter().map(read).collect::<Result<_, _>>()?;
    let distances = configuration.distances.iter().map(|(name, &value)| Ok((name.clone(), distance(value)?)));
    *router.distances.borrow_mut() = distances.collect::<Result<_, XrlError>>()?;
    let seconds = match configuration.stale_seconds {
        0 => STALE_SECONDS,
        seconds => seconds,
    };
    let stale_time = Duration::from_secs(seconds.into());
    let origins = configuration.expected_origins.clone();
    origins::close_all_but(router, &origins);
    router.readiness.borrow_mut().configured(Expected { stale_time, origins });
    router.change(|rib| {
        rib.set_stale_time(stale_time);
        for (name, &distance) in router.distances.borrow().iter() {
            if let Some(origin) = rib.origin_named(name) {
                rib.set_distance(origin, distance);
            }
        }
        let distance = router.distances.borrow().get(STATIC).copied().unwrap_or(STATIC_DISTANCE);
        announce(rib, &statics, distance).map_err(invalid)
    })
}

/// A new life of the static origin: what it does not repeat goes.
fn announce(rib: &mut Rib, statics: &[Static], distance: u8) -> Result<(), RibError> {
    let config = OriginConfig::internal(distance);
    let Ok(origin) = rib.add_origin(STATIC, config, Instant::now()) else {
        // It is of the same kind always, and the first to register after the connected one.
        return Ok(());
    };
    for route in statics {
        let nexthops = rib.nexthops(origin, route.nexthops.clone());
        let (distance, tag) = (route.distance, route.tag);
        let action = RouteAction::Announce { nexthops, metric: 0, distance, tag, source: 0 };
        let done = rib.origin_routes(origin, [(action, [route.prefix])]);
        rib.release_nexthops(nexthops);
        done?;
    }
    rib.origin_end_of_sync(origin)
}

fn read(route: &StaticRoute) -> Result<Static, XrlError> {
    let prefix: Prefix = route.prefix.parse().map_err(invalid)?;
    let nexthops = wire::nexthops(route.kind, &route.next_hops)?;
    let distance = (route.distance != 0).then(|| distance(route.distance)).transpose()?;
    Ok(Static { prefix, nexthops, distance, tag: route.tag })
}

fn distance(value: u32) -> Result<u8, XrlError> {
    u8::try_from(value).map_err(|_| invalid(format!("distance {value} is over 255")))
}
