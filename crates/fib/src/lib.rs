//! What a forwarding plane does for Holdfast.
//!
//! [`Fib`] is the seam between the process `fea` and whatever forwards packets: another forwarding plane is
//! another implementation. Two live here, without a kernel: [`NoneFib`] forwards nothing, [`MemoryFib`]
//! keeps the table for tests. The one for Linux is the crate `fib-linux`.
//!
//! No sockets, no clock. A backend is driven from one thread; whatever takes long is cut into slices by
//! [`Fib::work`].

mod memory;
mod none;
mod refused;
mod report;

pub use memory::MemoryFib;
pub use none::NoneFib;
pub use refused::{REFUSED_KEPT, Reason, Refused};
pub use report::{Counters, ERRORS_KEPT, Interference, Repairs, Report, RouteError};

use std::{fmt, net::IpAddr, os::fd::BorrowedFd, time::Instant};

use holdfast_types::Prefix;

/// Names a set of next hops. Chosen by whoever feeds the table; valid from [`Fib::define`] to
/// [`Fib::undefine`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub u32);

/// One way out.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NextHop {
    /// `None`: the destination is a neighbour on the interface. An IPv4 route may have an IPv6 gateway
    /// (RFC 8950), not the other way round.
    pub gateway: Option<IpAddr>,
    /// The kernel's index of the interface; never 0.
    pub interface: u32,
    /// Share of the traffic among the members of a set, 1 to 256; others are brought into that range.
    pub weight: u16,
}

/// What a handle stands for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum NextHops {
    /// Forward to the members, by their weights.
    Forward(Vec<NextHop>),
    /// Drop silently.
    Blackhole,
    /// Drop and answer with ICMP unreachable.
    Unreachable,
}

/// A routing table of the forwarding plane, by number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableId(pub u32);

impl TableId {
    /// The table that Linux uses when no rule says otherwise.
    pub const MAIN: Self = Self(254);
}

/// What becomes of a route.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RouteChange {
    /// The destination.
    pub prefix: Prefix,
    /// Where it leads from now on; `None` deletes the route.
    pub next_hops: Option<Handle>,
}

/// The backend could not do what was asked, for a reason that is no single route's. What the forwarding
/// plane holds is not known any more: sync again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FibError(pub String);

impl fmt::Display for FibError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FibError {}

/// One table of a forwarding plane.
///
/// ```text
///  define 1 ─ apply … ─ define 1 (all its routes follow) ─ apply … ─ undefine 1
///  sync_begin ─ define, apply … ─ sync_end ─ work until done: what was not named is gone
/// ```
///
/// A route that stays is never absent in between: neither when its next hops change nor in a sync.
pub trait Fib {
    /// As written in the configuration.
    fn name(&self) -> &'static str;

    /// Whether routes are of no use here, so that nobody need send any.
    fn discards(&self) -> bool {
        false
    }

    /// Defines a handle. Defined again, all routes that use it follow.
    ///
    /// Next hops that the forwarding plane refuses, as when an interface is down, are an entry in the
    /// [`Report`] and tried again when [`Fib::interface_changed`] gives hope.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn define(&mut self, handle: Handle, next_hops: &NextHops) -> Result<(), FibError>;

    /// Forgets a handle that no route uses any more.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn undefine(&mut self, handle: Handle) -> Result<(), FibError>;

    /// Applies changes in order. Routes refused one by one are in the [`Report`]. Finishes a dump begun by
    /// [`Fib::sync_begin`] first.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn apply(&mut self, changes: &[RouteChange]) -> Result<(), FibError>;

    /// What is defined and applied until [`Fib::sync_end`] is the whole truth. All handles are forgotten;
    /// routes of before stay as they are until the sync names them or ends. A sync that runs is begun anew.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn sync_begin(&mut self) -> Result<(), FibError>;

    /// Deletes the routes and next hops that the sync did not name.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn sync_end(&mut self) -> Result<(), FibError>;

    /// Goes on with a sync, repairs and a comparison for a slice of about `budget` routes; whether there is more to do.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn work(&mut self, budget: usize) -> Result<bool, FibError>;

    /// An interface came, went or changed. Usable: it is up and has a carrier.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn interface_changed(&mut self, index: u32, usable: bool) -> Result<(), FibError>;

    /// Nobody knows what has happened to interfaces: as if each had changed.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn interfaces_unknown(&mut self) -> Result<(), FibError>;

    /// Readable when another program may have changed something of ours: [`Fib::hear`] reads of it.
    fn watched(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Reads what other programs have done, never waits; whether there may be more. What follows from it is done by
    /// [`Fib::work`].
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn hear(&mut self, _now: Instant) -> Result<bool, FibError> {
        Ok(false)
    }

    /// When [`Fib::hear`] is to be called even if nothing is readable.
    fn next_due(&self) -> Option<Instant> {
        None
    }

    /// Whether [`Fib::work`] has something to do.
    fn has_work(&self) -> bool {
        false
    }

    /// Begins to compare the whole table with that of the forwarding plane, unless a sync or a comparison is under way.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn compare_begin(&mut self) -> Result<(), FibError> {
        Ok(())
    }

    /// Whether a comparison is under way.
    fn is_comparing(&self) -> bool {
        false
    }

    /// Whether a comparison is needed before the next one is due, once.
    fn take_is_doubtful(&mut self) -> bool {
        false
    }

    /// Why the forwarding plane may have lost routes that were applied, once; a sync brings them back.
    fn take_loss(&mut self) -> Option<String>;

    /// Deletes all routes and next hops of ours in the table, those of an earlier process too.
    ///
    /// # Errors
    /// When the backend as a whole fails.
    fn clear(&mut self) -> Result<(), FibError>;

    /// What was done and refused so far, and what is refused now.
    fn report(&self) -> &Report;
}
