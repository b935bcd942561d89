//! What a service manager is told, if it has started the router: sd_notify(3).
//!
//! Ready is who runs all processes, and each has taken its configuration. The watchdog is fed while the manager answers:
//! the keeper alone being alive is nothing that anybody would want to know. Where hung processes are left alone, it is fed
//! without asking: the manager may be in a debugger.

use std::{
    ffi::{OsStr, OsString},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tracing::debug;

/// Names the socket; a process of ours has nothing to say there.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// The service manager.
#[derive(Debug)]
pub(crate) struct Systemd {
    pub(crate) address: Option<SocketAddr>,
    /// How often it wants to hear of us.
    pub(crate) watchdog: Option<Duration>,
}

impl Systemd {
    /// As the environment says; nobody if it says nothing.
    pub(crate) fn from_environment() -> Self {
        let address = std::env::var_os(SOCKET).and_then(|name| address(&name));
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&usec| ours && usec > 0).map(Duration::from_micros);
        Self { address, watchdog }
    }

    pub(crate) fn say(&self, text: &str) {
        let Some(address) = &self.address else { return };
        let said = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(text.as_bytes(), address));
        if let Err(error) = said {
            debug!("telling the service manager {text:?}: {error}");
        }
    }

    pub(crate) fn ready(&self) {
        self.say("READY=1\nSTATUS=running");
    }

    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}{:06}", now.tv_sec, now.tv_nsec / 1000));
    }

    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=stopping");
    }
}

/// A path, or a name that begins with `@`.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(OsString::from(name)).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_paths_or_abstract_names() {
        assert!(address(OsStr::new("/run/x")).is_some_and(|a| a.as_pathname().is_some()));
        assert!(address(OsStr::new("@x")).is_some_and(|a| a.as_abstract_name() == Some(b"x")));
        assert!(address(OsStr::new("vsock:2:1")).is_none());
    }
}
