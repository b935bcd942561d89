//! The interfaces as they are now, and what each listener has been told of them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use holdfast_api::fea::v1::{Address, Interface as ApiInterface, InterfaceEvent};
use holdfast_fib_linux::{Interface, InterfaceAddress};
use holdfast_sockets::Link;
use tokio::sync::watch;

/// Which interfaces are shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// All.
    All,
    /// Those that are neither one of these VRF devices nor enslaved to one.
    Outside(BTreeSet<String>),
    /// This VRF device and those that are enslaved to it.
    Inside(String),
}

impl Part {
    /// Whether it has an interface whose master, if it has one, is of this name.
    fn has(&self, interface: &Interface, master: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Outside(devices) => {
                !devices.contains(&interface.name) && master.is_none_or(|master| !devices.contains(master))
            }
            Self::Inside(device) => interface.name == *device || master == Some(device),
        }
    }
}

/// All interfaces. Listeners are not queued for: each compares with what it has said, so a slow one skips
/// states in between and costs no memory.
pub(crate) struct Interfaces {
    known: RefCell<BTreeMap<u32, Interface>>,
    part: RefCell<Part>,
    /// 0 until the kernel has been asked.
    version: watch::Sender<u64>,
}

impl Interfaces {
    /// None are known yet.
    pub(crate) fn new(part: Part) -> Self {
        Self { known: RefCell::default(), part: RefCell::new(part), version: watch::Sender::new(0) }
    }

    /// What there is now.
    pub(crate) fn replace(&self, known: impl IntoIterator<Item = Interface>) {
        let known = known.into_iter().map(|interface| (interface.index, interface)).collect();
        self.known.replace(known);
        self.version.send_modify(|version| *version += 1);
    }

    /// Shows this part from now on.
    pub(crate) fn show(&self, part: Part) {
        let before = self.part.replace(part);
        if before != *self.part.borrow() {
            self.version.send_if_modified(|version| {
                let are_known = *version > 0;
                *version += u64::from(are_known);
                are_known
            });
        }
    }

    /// Waits until the kernel has been asked.
    pub(crate) async fn are_known(&self) {
        // The sender lives as long as we do: this cannot fail.
        let _ = self.versions().wait_for(|version| *version > 0).await;
    }

    pub(crate) fn changed(&self, interface: Interface) {
        self.known.borrow_mut().insert(interface.index, interface);
        self.version.send_modify(|version| *version += 1);
    }

    pub(crate) fn gone(&self, index: u32) {
        self.known.borrow_mut().remove(&index);
        self.version.send_modify(|version| *version += 1);
    }

    /// Whether the interface, as it is now, is one of those that are shown, or was one as it was known before.
    pub(crate) fn concern(&self, now: &Interface) -> bool {
        let (known, part) = (self.known.borrow(), self.part.borrow());
        let master = |interface: &Interface| known.get(&interface.master).map(|master| master.name.as_str());
        let before = known.get(&now.index);
        before.into_iter().chain([now]).any(|interface| part.has(interface, master(interface)))
    }

    /// Those that are shown.
    pub(crate) fn shown(&self) -> BTreeMap<u32, Interface> {
        let (known, part) = (self.known.borrow(), self.part.borrow());
        let master = |interface: &Interface| known.get(&interface.master).map(|master| master.name.as_str());
        let shown = known.iter().filter(|(_, interface)| part.has(interface, master(interface)));
        shown.map(|(index, interface)| (*index, interface.clone())).collect()
    }

    /// The number of the interface with this name.
    pub(crate) fn index(&self, name: &str) -> Option<u32> {
        self.known.borrow().values().find(|interface| interface.name == name).map(|interface| interface.index)
    }

    /// Those with one of these names that can carry something, with their numbers. They need not be shown.
    pub(crate) fn usable(&self, names: &BTreeSet<String>) -> BTreeMap<String, u32> {
        if names.is_empty() {
            return BTreeMap::new();
        }
        let known = self.known.borrow();
        let usable = known.values().filter(|known| known.usable() && names.contains(&known.name));
        usable.map(|interface| (interface.name.clone(), interface.index)).collect()
    }

    /// The one of this name, if it is shown, as those see it who relay packets.
    pub(crate) fn link(&self, name: &str) -> Option<Link> {
        let (known, part) = (self.known.borrow(), self.part.borrow());
        let interface = known.values().find(|interface| interface.name == name)?;
        let master = known.get(&interface.master).map(|master| master.name.as_str());
        let addresses = || interface.addresses.iter().map(|own| own.address).collect();
        part.has(interface, master).then(|| Link { index: interface.index, addresses: addresses() })
    }

    /// Is told whenever there may be news.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// What a listener has not been told yet; it has been told afterwards.
    pub(crate) fn news(&self, told: &mut BTreeMap<u32, Interface>) -> Vec<InterfaceEvent> {
        let known = self.shown();
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

    fn known(interfaces: impl IntoIterator<Item = Interface>) -> Interfaces {
        let all = Interfaces::new(Part::All);
        all.replace(interfaces);
        all
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
        let interfaces = known([interface(1, true), interface(2, false)]);
        let mut told = BTreeMap::new();
        assert_eq!(short(interfaces.news(&mut told)), [(1, "up"), (2, "down")]);
        assert!(interfaces.news(&mut told).is_empty());
        interfaces.changed(interface(2, true));
        interfaces.gone(1);
        assert_eq!(short(interfaces.news(&mut told)), [(1, "gone"), (2, "up")]);
    }

    #[test]
    fn a_vrf_has_its_device_and_what_is_enslaved_to_it_and_the_rest_has_the_default_table() {
        let enslaved = |index, master| Interface { master, ..interface(index, true) };
        let device = |index| Interface { name: "blue".into(), ..interface(index, true) };
        let all = [interface(1, true), enslaved(2, 9), enslaved(3, 1), device(9)];
        let (inside, outside) = (known(all.clone()), known(all));
        inside.show(Part::Inside("blue".into()));
        outside.show(Part::Outside(["blue".into(), "green".into()].into()));
        let (mut told_inside, mut told_outside) = (BTreeMap::new(), BTreeMap::new());
        let relayed = |all: &Interfaces| ["eth1", "eth2", "blue"].map(|name| all.link(name).is_some());
        assert_eq!((relayed(&inside), relayed(&outside)), ([false, true, true], [true, false, false]));
        assert_eq!(short(inside.news(&mut told_inside)), [(2, "up"), (9, "up")]);
        assert_eq!(short(outside.news(&mut told_outside)), [(1, "up"), (3, "up")]);
        for interfaces in [&inside, &outside] {
            assert!(interfaces.concern(&interface(2, true)), "taken out");
            // Taken out; and the device is made anew under another number.
            interfaces.changed(interface(2, true));
            interfaces.gone(9);
            interfaces.changed(device(10));
            interfaces.changed(enslaved(3, 10));
        }
        assert_eq!(short(inside.news(&mut told_inside)), [(2, "gone"), (9, "gone"), (3, "up"), (10, "up")]);
        assert_eq!(short(outside.news(&mut told_outside)), [(3, "gone"), (2, "up")]);
        let concern = |now: Interface| (inside.concern(&now), outside.concern(&now));
        assert_eq!((concern(interface(2, false)), concern(enslaved(3, 10))), ((false, true), (true, false)));
        outside.show(Part::All);
        assert_eq!(short(outside.news(&mut told_outside)), [(3, "up"), (10, "up")]);
    }

    #[test]
    fn a_slow_listener_is_told_the_state_and_not_the_story() {
        let interfaces = known([interface(1, true)]);
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
        let interfaces = known([interface(1, true)]);
        interfaces.changed(Interface { name: "uplink".into(), ..interface(1, true) });
        assert_eq!((interfaces.index("eth1"), interfaces.index("uplink")), (None, Some(1)));
    }
}
