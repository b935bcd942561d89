//! The kernel, where a table is.

use std::{
    os::{fd::OwnedFd, unix::net::UnixDatagram as StdDatagram},
    rc::Rc,
};

use holdfast_fib::{Fib, NoneFib, TableId};
use holdfast_fib_linux::{Interface, LinuxFib, Monitor, Ownership, socket};
use holdfast_sockets::Place;
use holdfast_xrl::XrlError;
use tokio::net::UnixDatagram;
use tracing::warn;

/// The backend of this name.
///
/// # Errors
/// `InvalidArgument` when there is none, `FailedPrecondition` when the namespace is not there or the device is bound to another
/// table, `Unavailable` when the kernel refuses.
pub(crate) async fn backend(place: &Place, name: &str, ours: Ownership) -> Result<Box<dyn Fib>, XrlError> {
    match name {
        "linux" => {
            if let Place::Device(device) = place {
                let monitor = monitor(place).await?;
                let found = monitor.interfaces().find(|interface| interface.name == *device);
                found.map_or(Ok(()), |found| fits(found, ours.table))?;
            }
            let fib = LinuxFib::over(sockets(place).await?, ours);
            Ok(Box::new(fib.map_err(refused)?))
        }
        "none" => Ok(Box::new(NoneFib::new())),
        other => Err(unknown(other)),
    }
}

/// Whether there is a backend of this name.
pub(crate) fn known(name: &str) -> Result<(), XrlError> {
    match name {
        "linux" | "none" => Ok(()),
        other => Err(unknown(other)),
    }
}

fn unknown(name: &str) -> XrlError {
    XrlError::invalid_argument(format!("`{name}` is no backend: expected linux or none"))
}

/// Whoever follows the interfaces.
///
/// # Errors
/// `FailedPrecondition` when the namespace is not there, `Unavailable` when the kernel refuses.
pub(crate) async fn monitor(place: &Place) -> Result<Monitor, XrlError> {
    Monitor::over(sockets(place).await?).map_err(refused)
}

/// Whether what comes in at the device is looked up in the table. Another program may see to that where the device is none
/// for VRFs.
fn fits(device: &Interface, table: TableId) -> Result<(), XrlError> {
    let (name, table) = (&device.name, table.0);
    match device.vrf_table {
        Some(bound) if bound == table => Ok(()),
        Some(bound) => {
            let text =
                format!("the device {name} is bound to table {bound}, not to {table} as is configured");
            Err(XrlError::failed_precondition(text))
        }
        None => {
            warn!(event = "no-vrf-device", interface = name, table, "no VRF device: does it use the table?");
            Ok(())
        }
    }
}

async fn sockets<const MANY: usize>(place: &Place) -> Result<[OwnedFd; MANY], XrlError> {
    let mut sockets = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        sockets.push(one(place).await?);
    }
    sockets.try_into().map_err(|_| XrlError::internal("another number of sockets"))
}

/// A socket for requests there.
///
/// # Errors
/// `FailedPrecondition` when the namespace is not there, `Unavailable` when the kernel refuses.
pub(crate) async fn one(place: &Place) -> Result<OwnedFd, XrlError> {
    match place.netlink().await? {
        Some(socket) => Ok(socket),
        None => socket().map_err(refused),
    }
}

/// To wait until the backend has something to read. tokio has no safe way to wait for a foreign socket: only waited on, a
/// socket is a socket.
pub(crate) fn watch(fib: &dyn Fib) -> std::io::Result<Option<Rc<UnixDatagram>>> {
    let Some(watched) = fib.watched() else { return Ok(None) };
    let socket = UnixDatagram::from_std(StdDatagram::from(watched.try_clone_to_owned()?))?;
    Ok(Some(Rc::new(socket)))
}

fn refused(error: std::io::Error) -> XrlError {
    XrlError::unavailable(format!("opening netlink: {error}"))
}

#[cfg(test)]
mod tests {
    use holdfast_xrl::ErrorKind;

    use super::*;

    #[test]
    fn a_device_is_bound_to_the_table_or_is_none_of_a_vrf() {
        let device = |vrf_table| Interface { name: "blue".into(), vrf_table, ..Interface::default() };
        assert_eq!(fits(&device(Some(100)), TableId(100)), Ok(()));
        assert_eq!(fits(&device(None), TableId(100)), Ok(()));
        let error = fits(&device(Some(101)), TableId(100)).expect_err("another table");
        assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
        assert!(error.message().contains("101, not to 100"), "{error}");
    }
}
