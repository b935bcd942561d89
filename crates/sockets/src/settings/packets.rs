//! Which packets routing protocols may send and receive, on the interfaces that their sections name.

use holdfast_api::socket::v1 as api;
use holdfast_config::schema::ProcessSection;
use holdfast_types::octets;

/// The datagrams of these processes in a table.
pub(super) fn datagrams<'c>(
    processes: impl Iterator<Item = (&'static str, &'c ProcessSection)>,
    vrf: Option<&str>,
) -> Vec<api::Datagrams> {
    let granted = processes.flat_map(|(process, section)| {
        let datagrams = section.routing.into_iter().flat_map(|routing| routing.datagrams);
        datagrams.map(move |datagrams| api::Datagrams {
            class: process.to_owned(),
            port: datagrams.port.into(),
            group: octets(datagrams.group),
            hops: datagrams.hops.into(),
            interfaces: interfaces(section, vrf),
        })
    });
    granted.collect()
}

/// Their raw IP packets. Processes of ours have sockets for them; those of others are relayed.
pub(super) fn raw<'c>(
    processes: impl Iterator<Item = (&'static str, &'c ProcessSection)>,
    vrf: Option<&str>,
    is_ours: impl Fn(&str) -> bool,
) -> Vec<api::RawGrant> {
    let granted = processes.flat_map(|(process, section)| {
        let descriptors = is_ours(process);
        let raw = section.routing.into_iter().flat_map(|routing| routing.raw);
        raw.map(move |packets| api::RawGrant {
            class: process.to_owned(),
            afi: packets.afi.0.into(),
            protocol: packets.protocol.into(),
            groups: packets.groups.iter().copied().map(octets).collect(),
            hops: packets.hops.into(),
            interfaces: interfaces(section, vrf),
            descriptors,
        })
    });
    granted.collect()
}

/// The interfaces of a table that a section names.
fn interfaces(section: &ProcessSection, vrf: Option<&str>) -> Vec<String> {
    let there = section.interfaces.iter().filter(|(of, _)| of.as_deref() == vrf);
    there.map(|(_, interface)| interface.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use holdfast_config::{Datagrams, RawIp, Routing};
    use holdfast_types::Afi;

    use super::*;

    static GROUPS: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::new(224, 0, 0, 5))];
    static RAW: [RawIp; 1] = [RawIp { afi: Afi::IPV4, protocol: 89, groups: &GROUPS, hops: 1 }];
    static DATAGRAMS: [Datagrams; 1] = [Datagrams { port: 520, group: GROUPS[0], hops: 1 }];

    /// A protocol with eth1 in the default table, and eth2 in the VRF blue.
    fn section() -> ProcessSection {
        let interface = |vrf: Option<&str>, name: &str| (vrf.map(str::to_owned), name.to_owned());
        ProcessSection {
            values: serde_json::Map::new(),
            interfaces: [interface(None, "eth1"), interface(Some("blue"), "eth2")].into(),
            routing: Some(Routing { distance: 110, datagrams: &DATAGRAMS, raw: &RAW }),
        }
    }

    #[test]
    fn a_protocol_is_granted_its_packets_on_the_interfaces_of_the_table_that_it_names() {
        let section = section();
        for (vrf, interface) in [(None, "eth1"), (Some("blue"), "eth2")] {
            let processes = || [("ospf", &section)].into_iter();
            let granted = raw(processes(), vrf, |_| true);
            let [granted] = granted.as_slice() else { panic!("one grant: {granted:?}") };
            assert_eq!((granted.class.as_str(), granted.afi, granted.protocol), ("ospf", 1, 89));
            assert_eq!((&granted.groups, granted.hops), (&vec![vec![224, 0, 0, 5]], 1));
            assert_eq!(granted.interfaces, [interface]);
            assert_eq!(datagrams(processes(), vrf)[0].interfaces, [interface]);
        }
    }

    #[test]
    fn only_processes_of_ours_have_sockets() {
        let section = section();
        let granted = raw([("ospf", &section), ("igp", &section)].into_iter(), None, |name| name == "ospf");
        let descriptors = |class: &str| granted.iter().find(|grant| grant.class == class)?.descriptors.into();
        assert_eq!((descriptors("ospf"), descriptors("igp")), (Some(true), Some(false)));
    }
}
