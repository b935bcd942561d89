//! From the kernel's notices to those who depend on them.

use std::{io, os::fd::AsFd, os::unix::net::UnixDatagram as StdDatagram};

use anyhow::Context;
use holdfast_fib_linux::{Monitor, MonitorEvent};
use tokio::{io::Interest, net::UnixDatagram};
use tracing::{info, warn};

use crate::engine::Engine;

/// Passes on what the kernel says of interfaces, for ever.
///
/// # Errors
/// When the kernel cannot be asked any more.
pub async fn follow(mut monitor: Monitor, engine: &Engine) -> anyhow::Result<()> {
    engine.interfaces.replace(monitor.interfaces().cloned());
    // Only waited on, and for that a socket is a socket: tokio has no safe way to wait for a foreign one.
    let readiness = UnixDatagram::from_std(StdDatagram::from(monitor.as_fd().try_clone_to_owned()?))?;
    let mut events = Vec::new();
    loop {
        readiness.readable().await?;
        let read = readiness.try_io(Interest::READABLE, || match monitor.read(&mut events)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        });
        match read {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                return Err(error).context("reading the kernel's notices");
            }
            _ => {}
        }
        for event in events.drain(..) {
            pass_on(engine, event);
        }
        // A burst of notices must not keep others waiting.
        tokio::task::yield_now().await;
    }
}

/// The forwarding plane first: its routes are to be right before the rib hears of it.
fn pass_on(engine: &Engine, event: MonitorEvent) {
    match event {
        MonitorEvent::Changed(interface) => {
            // One that can be used may have others tried again, which asks the kernel for all next hops: not for what
            // is no business of this table.
            if !interface.usable() || engine.interfaces.concern(&interface) {
                engine.interface_changed(interface.index, interface.usable());
            }
            engine.interfaces.changed(interface);
        }
        MonitorEvent::Gone(interface) => {
            info!(event = "interface-gone", interface = interface.name, "gone");
            engine.interface_changed(interface.index, false);
            engine.interfaces.gone(interface.index);
        }
        MonitorEvent::Overrun => {
            warn!(
                event = "interfaces-overrun",
                "the kernel's notices about interfaces overran: comparing everything"
            );
            engine.interfaces_unknown();
            engine.interfaces.overrun();
        }
    }
}
