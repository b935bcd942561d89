//! The interfaces as they are now, and what each listener has been told of them.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
};

use holdfast_api::fea::v1::{Address, Interface as ApiInterface, InterfaceEvent};
use holdfast_fib_linux::{Interface, InterfaceAddress};
use holdfast_sockets::Link;
use holdfast_types::octets;
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
    known: RefCell<BTreeMap<u32, Known>>,
    part: RefCell<Part>,
    births: Cell<u64>,
    overruns: Cell<u64>,
    /// 0 until the kernel has been asked.
    version: watch::Sender<u64>,
}

/// An interface, and which of all: its number may have been another one's.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Known {
    birth: u64,
    interface: Interface,
}

/// What a listener has been told.
pub(crate) struct Told {
    known: BTreeMap<u32, Known>,
    overruns: u64,
}

impl Interfaces {
    /// None are known yet.
    pub(crate) fn new(part: Part) -> Self {
        Self {
            known: RefCell::default(),
            part: RefCell::new(part),
            births: Cell::new(0),
            overruns: Cell::new(0),
            version: watch::Sender::new(0),
        }
    }

    /// What there is now.
    pub(crate) fn replace(&self, known: impl IntoIterator<Item = Interface>) {
        let known = known.into_iter().map(|interface| (interface.index, self.born(interface))).collect();
        self.known.replace(known);
        self.version.send_modify(|version| *version += 1);
    }

    fn born(&self, interface: Interface) -> Known {
        self.births.update(|births| births + 1);
        Known { birth: self.births.get(), interface }
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
        match self.known.borrow_mut().entry(interface.index) {
            Entry::Occupied(known) => known.into_mut().interface = interface,
            Entry::Vacant(place) => drop(place.insert(self.born(interface))),
        }
        self.version.send_modify(|version| *version += 1);
    }

    /// Notices were lost: a death with a birth after it may have been among them.
    pub(crate) fn overrun(&self) {
        self.overruns.update(|overruns| overruns + 1);
        self.version.send_modify(|version| *version += 1);
    }

    pub(crate) fn gone(&self, index: u32) {
        self.known.borrow_mut().remove(&index);
        self.version.send_modify(|version| *version += 1);
    }

    /// Whether the interface, as it is now, is one of those that are shown, or was one as it was known before.
    pub(crate) fn concern(&self, now: &Interface) -> bool {
        let (known, part) = (self.known.borrow(), self.part.borrow());
        let before = known.get(&now.index).map(|known| &known.interface);
        before.into_iter().chain([now]).any(|interface| part.has(interface, master(&known, interface)))
    }

    /// Those that are shown.
    pub(crate) fn shown(&self) -> BTreeMap<u32, Interface> {
        self.part().into_iter().map(|(index, known)| (index, known.interface)).collect()
    }

    fn part(&self) -> BTreeMap<u32, Known> {
        let (known, part) = (self.known.borrow(), self.part.borrow());
        let is_shown = |it: &Known| part.has(&it.interface, master(&known, &it.interface));
        let shown = known.iter().filter(|(_, it)| is_shown(it));
        shown.map(|(index, it)| (*index, it.clone())).collect()
    }

    /// The number of the interface with this name.
    pub(crate) fn index(&self, name: &str) -> Option<u32> {
        let known = self.known.borrow();
        known.values().map(|known| &known.interface).find(|known| known.name == name).map(|known| known.index)
    }

    /// Those with one of these names that can carry something, with their numbers. They need not be shown.
    pub(crate) fn usable(&self, names: &BTreeSet<String>) -> BTreeMap<String, u32> {
        if names.is_empty() {
            return BTreeMap::new();
        }
        let known = self.known.borrow();
        let known = known.values().map(|known| &known.interface);
        let usable = known.filter(|known| known.usable() && names.contains(&known.name));
        usable.map(|interface| (interface.name.clone(), interface.index)).collect()
    }

    /// The one of this name, if it is shown, as those see it who relay packets.
    pub(crate) fn link(&self, name: &str) -> Option<Link> {
        let (known, part) = (self.known.borrow(), self.part.borrow());
        let interface = known.values().map(|known| &known.interface).find(|known| known.name == name)?;
        let master = known.get(&interface.master).map(|master| master.interface.name.as_str());
        let addresses = || interface.addresses.iter().map(|own| own.address).collect();
        part.has(interface, master).then(|| Link { index: interface.index, addresses: addresses() })
    }

    /// Is told whenever there may be news.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// What a listener has not been told yet; it has been told afterwards.
    pub(crate) fn news(&self, told: &mut Told) -> Vec<InterfaceEvent> {
        let known = self.part();
        let is_gone = |index: &u32, it: &mut Known| known.get(index).is_none_or(|now| now.birth != it.birth);
        let gone = told.known.extract_if(.., is_gone);
        let mut news: Vec<_> =
            gone.map(|(gone, _)| InterfaceEvent { gone, ..InterfaceEvent::default() }).collect();
        if std::mem::replace(&mut told.overruns, self.overruns.get()) != self.overruns.get() {
            news.push(InterfaceEvent { overrun: true, ..InterfaceEvent::default() });
        }
        for (index, now) in known {
            if told.known.get(&index) != Some(&now) {
                let interface = Some(api(&now.interface));
                news.push(InterfaceEvent { interface, ..InterfaceEvent::default() });
                told.known.insert(index, now);
            }
        }
        news
    }

    /// Of a listener who is told everything at first.
    pub(crate) fn nothing_told(&self) -> Told {
        Told { known: BTreeMap::new(), overruns: self.overruns.get() }
    }
}

/// The name of the interface that another one is enslaved to.
fn master<'k>(known: &'k BTreeMap<u32, Known>, interface: &Interface) -> Option<&'k str> {
    known.get(&interface.master).map(|master| master.interface.name.as_str())
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
    let InterfaceAddress { address, length, peer } = *address;
    Address { address: octets(address), length: length.into(), peer: peer.map(octets).unwrap_or_default() }
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

    /// Events as (index, up), (index, gone), or (0, overrun).
    fn short(events: Vec<InterfaceEvent>) -> Vec<(u32, &'static str)> {
        let word = |event: InterfaceEvent| match event.interface {
            _ if event.overrun => (0, "overrun"),
            Some(interface) if interface.up => (interface.index, "up"),
            Some(interface) => (interface.index, "down"),
            None => (event.gone, "gone"),
        };
        events.into_iter().map(word).collect()
    }

    #[test]
    fn a_listener_is_told_everything_once_and_then_the_differences() {
        let interfaces = known([interface(1, true), interface(2, false)]);
        let mut told = interfaces.nothing_told();
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
        let (mut told_inside, mut told_outside) = (inside.nothing_told(), outside.nothing_told());
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
        let mut told = interfaces.nothing_told();
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
    fn an_interface_that_was_made_again_under_its_number_is_gone_first() {
        let interfaces = known([interface(1, true), interface(2, true)]);
        let mut told = interfaces.nothing_told();
        interfaces.news(&mut told);
        interfaces.gone(2);
        interfaces.changed(interface(2, true));
        assert_eq!(short(interfaces.news(&mut told)), [(2, "gone"), (2, "up")]);
        assert!(interfaces.news(&mut told).is_empty());
    }

    #[test]
    fn a_listener_is_told_of_an_overrun_once_and_not_of_those_before_it_came() {
        let interfaces = known([interface(1, true)]);
        let mut early = interfaces.nothing_told();
        interfaces.news(&mut early);
        interfaces.overrun();
        interfaces.overrun();
        interfaces.changed(interface(1, false));
        assert_eq!(short(interfaces.news(&mut early)), [(0, "overrun"), (1, "down")]);
        assert!(interfaces.news(&mut early).is_empty());
        assert_eq!(short(interfaces.news(&mut interfaces.nothing_told())), [(1, "down")]);
    }

    #[test]
    fn names_lead_to_numbers_as_they_are_now() {
        let interfaces = known([interface(1, true)]);
        interfaces.changed(Interface { name: "uplink".into(), ..interface(1, true) });
        assert_eq!((interfaces.index("eth1"), interfaces.index("uplink")), (None, Some(1)));
    }
}
