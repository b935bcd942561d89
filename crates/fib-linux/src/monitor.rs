//! Which interfaces there are, and every change.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use holdfast_sys::netlink;

use crate::{
    interface::{ADDRESS_HEADER, Interface, LINK_HEADER, Notice, parse},
    message::{kind, messages},
    request::Requests,
    socket::{Socket, socket},
};

/// `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`.
const GROUPS: [u32; 3] = [1, 5, 9];

/// Room for notices that nobody has read yet. When it is full, everything is read anew.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Follows the interfaces and addresses of a network namespace.
pub struct Monitor {
    socket: Socket,
    requests: Requests,
    interfaces: BTreeMap<u32, Interface>,
    buffer: Vec<u8>,
}

/// A change that was noticed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MonitorEvent {
    /// The interface as it is now.
    Changed(Interface),
    /// The interface that was.
    Gone(Interface),
    /// The kernel had more to say than there was room for. What changed meanwhile follows, but a change
    /// and its reversal may have been missed.
    Overrun,
}

impl Monitor {
    /// Subscribes to changes in the network namespace of the calling thread, then reads what there is.
    ///
    /// # Errors
    /// When no netlink socket can be had.
    pub fn open() -> io::Result<Self> {
        Self::over([socket()?, socket()?])
    }

    /// Over sockets that nobody has used, both of one namespace, which is the one that is followed.
    ///
    /// # Errors
    /// When the kernel does not answer on them.
    pub fn over([notices, requests]: [OwnedFd; 2]) -> io::Result<Self> {
        let socket = Socket::new(notices, RECEIVE_BUFFER)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        for group in GROUPS {
            netlink::join_group(&socket, group)?;
        }
        let mut requests = Requests::over(requests)?;
        let interfaces = read_all(&mut requests)?;
        Ok(Self { socket, requests, interfaces, buffer: vec![0; 64 << 10] })
    }

    /// The interfaces as they are known, by index.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.values()
    }

    /// Reads one datagram of notices and adds what they change to `events`; whether there may be more.
    /// To be called when the descriptor is readable; never waits.
    ///
    /// # Errors
    /// Those of the socket, except that it has nothing.
    pub fn read(&mut self, events: &mut Vec<MonitorEvent>) -> io::Result<bool> {
        use rustix::io::Errno;
        match self.socket.receive(&mut self.buffer) {
            Ok(datagram) => {
                for notice in messages(datagram).filter_map(parse) {
                    events.extend(take(&mut self.interfaces, notice));
                }
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::NOBUFS) => {
                self.read_anew(events)?;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn read_anew(&mut self, events: &mut Vec<MonitorEvent>) -> io::Result<()> {
        events.push(MonitorEvent::Overrun);
        let now = read_all(&mut self.requests)?;
        let before = std::mem::replace(&mut self.interfaces, now);
        let gone = before.iter().filter(|(index, _)| !self.interfaces.contains_key(index));
        events.extend(gone.map(|(_, interface)| MonitorEvent::Gone(interface.clone())));
        let changed =
            self.interfaces.values().filter(|interface| before.get(&interface.index) != Some(interface));
        events.extend(changed.cloned().map(MonitorEvent::Changed));
        Ok(())
    }
}

impl AsFd for Monitor {
    /// Readable when [`Monitor::read`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn read_all(requests: &mut Requests) -> io::Result<BTreeMap<u32, Interface>> {
    let mut notices = requests.dump_all(kind::GET_LINK, &[0; LINK_HEADER], parse)?;
    notices.extend(requests.dump_all(kind::GET_ADDRESS, &[0; ADDRESS_HEADER], parse)?);
    let mut interfaces = BTreeMap::new();
    for notice in notices {
        take(&mut interfaces, notice);
    }
    Ok(interfaces)
}

/// Applies a notice: the event, if it changes anything.
fn take(interfaces: &mut BTreeMap<u32, Interface>, notice: Notice) -> Option<MonitorEvent> {
    match notice {
        Notice::Link(link) => {
            let known = interfaces.entry(link.index).or_default();
            let addresses = std::mem::take(&mut known.addresses);
            let name = if link.name.is_empty() { std::mem::take(&mut known.name) } else { link.name };
            let link = Interface { addresses, name, ..link };
            // Compared without the addresses, which neither side has changed.
            let changed = Interface { addresses: Vec::new(), ..link.clone() } != *known;
            known.clone_from(&link);
            changed.then_some(MonitorEvent::Changed(link))
        }
        Notice::LinkGone(index) => interfaces.remove(&index).map(MonitorEvent::Gone),
        Notice::Address(index, address) => {
            // The kernel names an interface before its addresses; after its end none.
            let known = interfaces.get_mut(&index)?;
            let place = known.addresses.binary_search(&address).err()?;
            known.addresses.insert(place, address);
            Some(MonitorEvent::Changed(known.clone()))
        }
        Notice::AddressGone(index, address) => {
            let known = interfaces.get_mut(&index)?;
            let place = known.addresses.binary_search(&address).ok()?;
            known.addresses.remove(place);
            Some(MonitorEvent::Changed(known.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::InterfaceAddress;

    fn link(running: bool, name: &str) -> Notice {
        Notice::Link(Interface { index: 3, name: name.into(), up: true, running, ..Interface::default() })
    }

    fn address(last: u8) -> InterfaceAddress {
        InterfaceAddress::new([10, 0, 0, last].into(), 24)
    }

    #[test]
    fn a_notice_that_says_nothing_new_is_no_event() {
        let mut interfaces = BTreeMap::new();
        assert!(take(&mut interfaces, link(true, "eth0")).is_some());
        assert_eq!(take(&mut interfaces, link(true, "eth0")), None);
        assert!(take(&mut interfaces, Notice::Address(3, address(1))).is_some());
        assert_eq!(take(&mut interfaces, Notice::Address(3, address(1))), None);
        assert_eq!(take(&mut interfaces, link(true, "eth0")), None);
        assert_eq!(take(&mut interfaces, Notice::AddressGone(3, address(2))), None);
    }

    #[test]
    fn a_link_that_changes_keeps_its_addresses_and_its_name() {
        let mut interfaces = BTreeMap::new();
        take(&mut interfaces, link(true, "eth0"));
        take(&mut interfaces, Notice::Address(3, address(1)));
        let Some(MonitorEvent::Changed(now)) = take(&mut interfaces, link(false, "")) else {
            panic!("no event")
        };
        assert_eq!((now.name.as_str(), now.running, now.addresses), ("eth0", false, vec![address(1)]));
    }

    #[test]
    fn addresses_of_an_interface_that_is_gone_are_ignored() {
        let mut interfaces = BTreeMap::new();
        take(&mut interfaces, link(true, "eth0"));
        assert!(matches!(take(&mut interfaces, Notice::LinkGone(3)), Some(MonitorEvent::Gone(_))));
        assert_eq!(take(&mut interfaces, Notice::AddressGone(3, address(1))), None);
        assert_eq!(take(&mut interfaces, Notice::LinkGone(3)), None);
    }
}
