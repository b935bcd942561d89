//! Profiling points (XORP, section 8.2): when a route passes which place, for as long as somebody wants to know.
//!
//! A process names the places that its routes pass ([`Profile::point`]) and says when a batch passes one
//! ([`Point::pass`]). While a point is off that costs one branch for the batch. While it is on, each route is a record in a
//! ring of fixed size that the process's points share. `profile.v1` switches points and reads the ring; joining the
//! records of several processes is the reader's work.

mod ring;
mod service;

use std::{
    cell::{Cell, RefCell},
    iter::repeat_n,
    net::IpAddr,
    rc::Rc,
    time::{SystemTime, UNIX_EPOCH},
};

use holdfast_api::routes::v1::RouteBatch;
use holdfast_types::Prefix;

use ring::{Record, Ring};
pub(crate) use service::ProfileService;

/// A place on the way of a route.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// Where on the way: 1 is where routes enter.
    pub number: u32,
    /// What the operator calls it.
    pub name: &'static str,
    /// What it means.
    pub title: &'static str,
}

/// The octets of an UPDATE have been read.
pub const BGP_IN: Place = Place { number: 1, name: "bgp-in", title: "Entering BGP" };
/// The decision has been made, and the change waits for its turn.
pub const BGP_QUEUED: Place =
    Place { number: 2, name: "bgp-queued", title: "Queued for transmission to the RIB" };
/// The batch is handed to the channel.
pub const BGP_SENT: Place = Place { number: 3, name: "bgp-sent", title: "Sent to the RIB" };
/// The batch has been read.
pub const RIB_IN: Place = Place { number: 4, name: "rib-in", title: "Arriving at the RIB" };
/// The route won, its next hop is resolved, and the change waits for its turn.
pub const RIB_QUEUED: Place =
    Place { number: 5, name: "rib-queued", title: "Queued for transmission to the FEA" };
/// The batch is handed to the channel.
pub const RIB_SENT: Place = Place { number: 6, name: "rib-sent", title: "Sent to the FEA" };
/// The batch has been read.
pub const FEA_IN: Place = Place { number: 7, name: "fea-in", title: "Arriving at the FEA" };
/// The kernel has acknowledged the batch.
pub const KERNEL: Place = Place { number: 8, name: "kernel", title: "Entering the kernel" };

/// The points of a process, and what they have recorded. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Profile(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    points: RefCell<Vec<Point>>,
    ring: Rc<RefCell<Ring>>,
}

impl Profile {
    /// The point at a place; from now on it can be switched on.
    pub fn point(&self, place: &'static Place) -> Point {
        let mut points = self.0.points.borrow_mut();
        if let Some(point) = points.iter().find(|point| point.place == place) {
            return point.clone();
        }
        let point = Point { place, on: Rc::default(), ring: Rc::clone(&self.0.ring) };
        points.push(point.clone());
        point
    }
}

/// A place where it can be noted which routes pass when. Clones are the same.
#[derive(Clone, Debug)]
pub struct Point {
    place: &'static Place,
    on: Rc<Cell<bool>>,
    ring: Rc<RefCell<Ring>>,
}

impl Point {
    /// The time, if anybody wants to know it.
    #[inline]
    pub fn now(&self) -> Option<SystemTime> {
        self.on.get().then(SystemTime::now)
    }

    /// These routes pass now: their prefixes, and whether they come (or are replaced) rather than go.
    #[inline]
    pub fn pass<R: IntoIterator<Item = (Prefix, bool)>>(&self, routes: impl FnOnce() -> R) {
        self.passed(self.now(), routes);
    }

    /// These routes passed at a time that [`now`](Self::now) gave.
    #[inline]
    pub fn passed<R>(&self, at: Option<SystemTime>, routes: impl FnOnce() -> R)
    where
        R: IntoIterator<Item = (Prefix, bool)>,
    {
        if let Some(at) = at {
            self.record(at, routes());
        }
    }

    fn record(&self, at: SystemTime, routes: impl IntoIterator<Item = (Prefix, bool)>) {
        let time = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let mut ring = self.ring.borrow_mut();
        for (prefix, comes) in routes {
            ring.push(Record { time, prefix, point: self.place.number, comes });
        }
    }
}

/// The routes of a batch, and whether they come rather than go. Rows that make no sense are left out: they are refused
/// elsewhere.
pub fn routes_of(batch: &RouteBatch) -> impl Iterator<Item = (Prefix, bool)> {
    let width = if batch.afi == 1 { 4 } else { 16 };
    let runs = batch.runs.iter().zip(&batch.next_hops);
    let comes = runs.flat_map(|(&rows, &handle)| repeat_n(handle != 0, rows as usize));
    let rows = batch.addresses.chunks_exact(width).zip(&batch.lengths).zip(comes);
    rows.filter_map(|((octets, &length), comes)| Some((Prefix::new(address(octets)?, length)?, comes)))
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("prefix")
    }

    #[test]
    fn a_point_that_is_off_does_not_even_look_at_the_routes() {
        let profile = Profile::default();
        let point = profile.point(&RIB_IN);
        point.pass(|| -> [(Prefix, bool); 0] { panic!("nobody asked") });
        assert_eq!(point.now(), None);
        assert!(profile.0.ring.borrow().is_empty());
    }

    #[test]
    fn routes_are_recorded_with_the_time_of_their_batch() {
        let profile = Profile::default();
        let point = profile.point(&RIB_IN);
        profile.point(&RIB_IN).on.set(true);
        profile.0.ring.borrow_mut().resize(8);
        let at = UNIX_EPOCH + std::time::Duration::from_nanos(7);
        point.passed(Some(at), || [(prefix("10.0.0.0/8"), true), (prefix("::/0"), false)]);
        let (records, _) = profile.0.ring.borrow().read(0, 8);
        let seen: Vec<_> = records.iter().map(|r| (r.time, r.point, r.prefix.to_string(), r.comes)).collect();
        assert_eq!(seen, [(7, 4, "10.0.0.0/8".to_owned(), true), (7, 4, "::/0".to_owned(), false)]);
    }

    #[test]
    fn the_routes_of_a_batch_are_its_sensible_rows() {
        let batch = RouteBatch {
            afi: 1,
            addresses: vec![10, 0, 0, 0, 11, 0, 0, 0, 12, 0, 0, 0],
            lengths: vec![8, 33, 24],
            runs: vec![2, u32::MAX],
            next_hops: vec![7, 0],
            ..RouteBatch::default()
        };
        let routes: Vec<_> = routes_of(&batch).collect();
        assert_eq!(routes, [(prefix("10.0.0.0/8"), true), (prefix("12.0.0.0/24"), false)]);
        assert_eq!(routes_of(&RouteBatch { afi: 9, ..batch }).count(), 0);
    }
}
