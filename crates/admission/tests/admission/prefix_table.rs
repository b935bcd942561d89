use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_admission::PrefixTable;
use holdfast_types::Prefix;
use proptest::prelude::*;

fn table(prefixes: &[&str]) -> PrefixTable {
    prefixes.iter().map(|prefix| prefix.parse::<Prefix>().expect("a prefix")).collect()
}

fn inside(table: &PrefixTable, address: &str) -> bool {
    table.contains(address.parse().expect("an address"))
}

#[test]
fn addresses_are_inside_from_the_first_to_the_last() {
    let table = table(&["192.0.2.0/25", "198.51.100.7/32", "2001:db8:1::/48"]);
    for address in ["192.0.2.0", "192.0.2.127", "198.51.100.7", "2001:db8:1::", "2001:db8:1:ffff::1"] {
        assert!(inside(&table, address), "{address}");
    }
    for address in
        ["192.0.1.255", "192.0.2.128", "198.51.100.6", "198.51.100.8", "2001:db8:2::", "::", "0.0.0.0"]
    {
        assert!(!inside(&table, address), "{address}");
    }
    // As on a socket for both families.
    assert!(inside(&table, "::ffff:192.0.2.1"));
    assert!(!inside(&table, "::ffff:192.0.3.1"));
}

#[test]
fn ranges_that_overlap_or_meet_become_one() {
    let table = table(&["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "11.0.0.0/8", "13.0.0.0/8"]);
    let range = |first: [u8; 4], last: [u8; 4]| (u32::from_be_bytes(first), u32::from_be_bytes(last));
    assert_eq!(
        table.ipv4(),
        [range([10, 0, 0, 0], [11, 255, 255, 255]), range([13, 0, 0, 0], [13, 255, 255, 255])]
    );
    assert!(table.ipv6().is_empty());
}

#[test]
fn hosts_are_known_as_such_also_within_another_prefix() {
    let table = table(&["2001:db8::1/128", "2001:db8::/32", "2001:db8::2/127", "192.0.2.1/32"]);
    let host: Ipv6Addr = "2001:db8::1".parse().expect("an address");
    assert_eq!(table.ipv6_hosts(), [host.to_bits()]);
    assert_eq!(table.ipv6().len(), 1);
}

#[test]
fn nothing_is_inside_of_nothing_and_everything_inside_of_everything() {
    let nothing = PrefixTable::default();
    let everything = table(&["0.0.0.0/0", "255.255.255.255/32", "::/0", "ffff::/16"]);
    for address in ["0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"] {
        assert!(!inside(&nothing, address));
        assert!(inside(&everything, address));
    }
    assert_eq!(everything.ipv4(), [(0, u32::MAX)]);
    assert_eq!(everything.ipv6(), [(0, u128::MAX)]);
}

/// Few bits, so that prefixes meet.
fn any_prefix() -> impl Strategy<Value = Prefix> {
    (any::<bool>(), 0u8..64, 0u8..=8).prop_map(|(ipv4, high, length)| {
        let address: IpAddr = if ipv4 {
            Ipv4Addr::new(high * 4, 0, 0, 0).into()
        } else {
            Ipv6Addr::new(u16::from(high) << 10, 0, 0, 0, 0, 0, 0, 0).into()
        };
        Prefix::new(address, length).expect("short enough")
    })
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn it_is_inside_if_any_of_the_prefixes_has_it(
        prefixes in proptest::collection::vec(any_prefix(), 0..12),
        ipv4 in any::<[u8; 4]>(),
        ipv6 in any::<[u8; 16]>(),
    ) {
        let table: PrefixTable = prefixes.iter().copied().collect();
        for address in [IpAddr::from(ipv4), IpAddr::from(ipv6)] {
            let expected = prefixes.iter().any(|prefix| prefix.contains_address(address));
            prop_assert_eq!(table.contains(address), expected);
        }
        prop_assert!(table.ipv4().windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        prop_assert!(table.ipv6().windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
    }
}
