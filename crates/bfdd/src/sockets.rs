//! The sockets of a table: one for each port and family, and one for each family that sends.

use std::{cell::RefCell, collections::BTreeMap, net::IpAddr, rc::Rc};

use holdfast_bfd::{Hops, Path};
use holdfast_process::Boot;
use holdfast_routing::{Port, Way};
use holdfast_sys::filter::{Instruction, set_filter};
use holdfast_xrl::XrlError;
use tokio::task::AbortHandle;

use crate::custody::Custody;

/// What a socket is for.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Purpose {
    /// Packets of neighbours come here.
    Receive(Hops),
    /// Ours leave from here, all from one port (RFC 5881 section 4).
    Send,
}

/// A socket: what it is for, and whether it is for IPv6.
pub(crate) type Name = (Purpose, bool);

/// The keeper's name of a socket.
pub(crate) fn word((purpose, is_ipv6): Name) -> String {
    let purpose = match purpose {
        Purpose::Receive(Hops::Single) => "single",
        Purpose::Receive(Hops::Multiple) => "multiple",
        Purpose::Send => "send",
    };
    format!("{purpose}-{}", if is_ipv6 { "ipv6" } else { "ipv4" })
}

struct Slot {
    /// As long as there is one.
    socket: Option<Rc<Port>>,
    task: AbortHandle,
}

/// The sockets that sessions have needed so far.
#[derive(Default)]
pub(crate) struct Sockets(RefCell<BTreeMap<Name, Slot>>);

impl Drop for Sockets {
    fn drop(&mut self) {
        self.0.get_mut().values().for_each(|slot| slot.task.abort());
    }
}

/// Those that a path needs.
pub(crate) fn needed(path: Path) -> [Name; 2] {
    [Purpose::Receive(path.hops), Purpose::Send].map(|purpose| (purpose, path.remote.is_ipv6()))
}

/// A socket that the process before has left, or a new one, which the keeper gets, too.
///
/// # Errors
/// What the opener says.
pub(crate) async fn open(boot: &Boot, custody: &Custody, name: Name) -> Result<Port, XrlError> {
    let failed = |error: std::io::Error| XrlError::internal(format!("the socket: {error}"));
    let port = take_or_open(boot, custody, name).await?;
    if name.0 == Purpose::Receive(Hops::Single) {
        set_filter(port.fd(), &from_one_hop(name.1)).map_err(failed)?;
    }
    Ok(port)
}

/// Takes what a neighbour on a link has sent (RFC 5881 section 5). The kernel drops and counts the rest: packets from
/// elsewhere do not wake this process, however many come.
fn from_one_hop(is_ipv6: bool) -> [Instruction; 4] {
    let ttl = if is_ipv6 { Instruction::LoadOctet(7) } else { Instruction::LoadOctet(8) };
    [ttl, Instruction::Equal { value: 255, yes: 0, no: 1 }, Instruction::Take, Instruction::Drop]
}

async fn take_or_open(boot: &Boot, custody: &Custody, name: Name) -> Result<Port, XrlError> {
    let failed = |error: std::io::Error| XrlError::internal(format!("the socket: {error}"));
    if let Some(left) = custody.find(&word(name)).await?
        && let Ok(port) = Port::from_fd(left).await
    {
        return Ok(port);
    }
    let number = match name.0 {
        Purpose::Receive(hops) => hops.port(),
        Purpose::Send => 0,
    };
    let port = Port::open(boot, number, name.1).await?;
    let copy = port.fd().try_clone_to_owned().map_err(failed)?;
    custody.put(&word(name), copy).await?;
    Ok(port)
}

impl Sockets {
    /// Whether there is one, or it is being opened.
    pub(crate) fn has(&self, name: Name) -> bool {
        self.0.borrow().contains_key(&name)
    }

    /// From now on this task opens it.
    pub(crate) fn begin(&self, name: Name, task: AbortHandle) {
        self.0.borrow_mut().insert(name, Slot { socket: None, task });
    }

    /// It is there, or not any more.
    pub(crate) fn set(&self, name: Name, socket: Option<Rc<Port>>) {
        if let Some(slot) = self.0.borrow_mut().get_mut(&name) {
            slot.socket = socket;
        }
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// There is no socket yet, or those of the socket.
    pub(crate) fn send(&self, octets: &[u8], path: Path) -> std::io::Result<()> {
        let name = (Purpose::Send, path.remote.is_ipv6());
        let slots = self.0.borrow();
        let socket = slots.get(&name).and_then(|slot| slot.socket.as_ref());
        let socket = socket.ok_or(std::io::ErrorKind::NotConnected)?;
        socket.send(octets, way(path))
    }

    /// What the kernel has dropped at each socket that receives.
    pub(crate) fn dropped(&self) -> u64 {
        let slots = self.0.borrow();
        let sockets = slots.values().filter_map(|slot| slot.socket.as_ref());
        sockets.map(|socket| u64::from(socket.drops().unwrap_or(0))).sum()
    }
}

fn way(path: Path) -> Way {
    let unspecified = match path.remote {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    Way {
        interface: path.interface.unwrap_or(0),
        source: path.local.unwrap_or(unspecified),
        destination: path.remote,
        port: path.hops.port(),
    }
}
