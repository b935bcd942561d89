//! The life of a process that has given its place up to one of another build.
//!
//! ```text
//!  manager ──Retire──> transport   listens no more, leaves the Finder ──Retire──> keeper ── it is replaced ──> transport
//!                          │                                                                                    │
//!  bgp ──Meter, Close──> transport-old   the connections that it carries, until the last has ended     all that is new
//! ```
//! For everybody but the keeper the process `transport` has died. What it carries is one end of a socket pair here and the
//! other at the protocol, and neither end knows of classes.

use std::rc::Rc;

use holdfast_api::{keeper::v1::Empty, transport::v1::TransportDispatcher};
use holdfast_process::{Boot, OLD_TRANSPORT};
use tracing::info;

use crate::{door::ConnectionBroker, metrics, service::DoorService, shared::Shared, vrfs::Vrfs};

/// Until nothing is carried any more.
///
/// # Errors
/// The keeper does not know that a process can retire. This one has left everybody by then, and has to end.
pub(crate) async fn live(
    boot: &Boot,
    shared: &Shared,
    door: &Rc<ConnectionBroker>,
    vrfs: &Vrfs,
) -> anyhow::Result<()> {
    let mut left = vec![leave(boot, door)];
    left.extend(vrfs.retire());
    shared.secrets.forget();
    // What it is called does not matter to what it does.
    let _ = holdfast_sys::process::set_name(OLD_TRANSPORT);
    boot.keeper.retire(Empty {}).await?;
    left.iter().for_each(Boot::join);
    let mut carried = shared.carried.subscribe();
    info!(event = "retired", connections = *carried.borrow(), "lives on for the connections that it carries");
    // The sender lives as long as `shared`: this cannot fail.
    let _ = carried.wait_for(|carried| *carried == 0).await;
    info!(event = "retirement-ended", "the last connection has ended");
    Ok(())
}

/// Has a door let nobody in any more; under which name it is found from now on.
pub(crate) fn leave(boot: &Boot, door: &Rc<ConnectionBroker>) -> Boot {
    door.retire();
    let old = boot.retire(OLD_TRANSPORT);
    metrics::register(&old.metrics, door);
    old.node.serve(TransportDispatcher::new(DoorService::of_vrf(Rc::clone(door))));
    old
}
