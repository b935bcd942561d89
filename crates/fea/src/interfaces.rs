//! The interfaces as they are now, and what each listener has been told of them.

use std::{cell::RefCell, collections::BTreeMap};

use holdfast_api::fea::v1::{Address, Interface as ApiInterface, InterfaceEvent};
use holdfast_fib_linux::{Interface, InterfaceAddress};
use tokio::sync::watch;

/// All interfaces. Listeners are not queued for: each compares with what it has said, so a slow one skips
/// states in between and costs no memory.
pub(crate) struct Interfaces {
    known: RefCell<BTreeMap<u32, Interface>>,
    version: watch::Sender<u64>,
}

impl Interfaces {
    pub(crate) fn new(known: impl IntoIterator<Item = Interface>) -> Self {
        let known = known.into_iter().map(|interface| (interface.index, interface)).collect();
        Self { known: RefCell::new(known), version: watch::Sender::new(0) }
    }

    pub(crate) fn changed(&self, interface: Interface) {
        self.known.borrow_mut().insert(interface.index, interface);
        self.version.send_modify(|version| *version += 1);
    }

    pub(crate) fn gone(&self, index: u32) {
        self.known.borrow_mut().remove(&index);
        self.version.send_modify(|version| *version += 1);
    }

    pub(crate) fn all(&self) -> Vec<Interface> {
        self.known.borrow().values().cloned().collect()
    }

    /// The number of the interface with this name.
    pub(crate) fn index(&self, name: &str) -> Option<u32> {
        self.known.borrow().values().find(|interface| interface.name == name).map(|interface| interface.index)
    }

    /// Is told whenever there may be news.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// What a listener has not been told yet; it has been told afterwards.
    pub(crate) fn news(&self, told: &mut BTreeMap<u32, Interface>) -> Vec<InterfaceEvent> {
        let known = self.known.borrow();
        let gone = told.extract_if(.., |index, _| !known.contains_key(index));
        let mut news: Vec<_> =
            gone.map(|(gone, _)| InterfaceEvent { gone, ..InterfaceEvent::default() }).collect();
        for (index, interface) in known.iter() {
            if told.get(index) != Some(interface) {
                news.push(InterfaceEvent { interface: Some(api(interface)), ..InterfaceEvent::default() });
                told.insert(*index, interface.clone());
            }
        }
        news
    }
}

/// As shown and sent to others.
pub(crate) fn api(interface: &Interface) -> ApiInterface {
    ApiInterface {
        index: interface.index,
        name: interface.name.clone(),
        up: interface.up,
        running: interface.running,
        mtu: interface.mtu,
        mac: interface.mac.clone(),
        addresses: interface.addresses.iter().map(api_address).collect(),
    }
}

fn api_address(address: &InterfaceAddress) -> Address {
    let octets = match address.address {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    };
    Address { address: octets, length: address.length.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, up: bool) -> Interface {
        Interface { index, name: format!("eth{index}"), up, ..Interface::default() }
    }

    /// Events as (index, up) or (index, gone).
    fn short(events: Vec<InterfaceEvent>) -> Vec<(u32, &'static str)> {
        let word = |event: InterfaceEvent| match event.interface {
            Some(interface) if interface.up => (interface.index, "up"),
            Some(interface) => (interface.index, "down"),
            None => (event.gone, "gone"),
        };
        events.into_iter().map(word).collect()
    }

    #[test]
    fn a_listener_is_told_everything_once_and_then_the_differences() {
        let interfaces = Interfaces::new([interface(1, true), interface(2, false)]);
        let mut told = BTreeMap::new();
        assert_eq!(short(interfaces.news(&mut told)), [(1, "up"), (2, "down")]);
        assert!(interfaces.news(&mut told).is_empty());
        interfaces.changed(interface(2, true));
        interfaces.gone(1);
        assert_eq!(short(interfaces.news(&mut told)), [(1, "gone"), (2, "up")]);
    }

    #[test]
    fn a_slow_listener_is_told_the_state_and_not_the_story() {
        let interfaces = Interfaces::new([interface(1, true)]);
        let mut told = BTreeMap::new();
        interfaces.news(&mut told);
        for _ in 0..1000 {
            interfaces.changed(interface(1, false));
            interfaces.changed(interface(1, true));
            interfaces.changed(interface(9, true));
            interfaces.gone(9);
        }
        assert!(interfaces.news(&mut told).is_empty());
    }

    #[test]
    fn names_lead_to_numbers_as_they_are_now() {
        let interfaces = Interfaces::new([interface(1, true)]);
        interfaces.changed(Interface { name: "uplink".into(), ..interface(1, true) });
        assert_eq!((interfaces.index("eth1"), interfaces.index("uplink")), (None, Some(1)));
    }
}
