//! Anything at all.

use std::net::{Ipv4Addr, Ipv6Addr};

use holdfast_rip_wire::{
    Algorithm, Command, Credentials, Entry, Key, Message, Metric, Protocol, Ripng, Ripv2, Writer, fuzzing,
};
use holdfast_types::IpPrefix;
use proptest::prelude::*;

fn entry<P: Protocol>(hop: impl Strategy<Value = Option<P::Address>>) -> impl Strategy<Value = Entry<P>> {
    let prefix =
        (any::<u128>(), 0..=P::Prefix::WIDTH).prop_map(|(bits, length)| IpPrefix::from_bits(bits, length));
    let prefix = prefix.prop_filter("a destination", |prefix| P::is_destination(*prefix));
    (prefix, any::<u16>(), 1..=16_u32, hop).prop_map(|(prefix, tag, metric, next_hop)| Entry {
        prefix,
        tag,
        metric: Metric::new(metric).expect("1 to 16"),
        next_hop,
    })
}

fn v4() -> impl Strategy<Value = Entry<Ripv2>> {
    entry(proptest::option::of((1..=u32::MAX).prop_map(Ipv4Addr::from_bits)))
}

fn v6() -> impl Strategy<Value = Entry<Ripng>> {
    entry(proptest::option::of((0..3_u128).prop_map(|host| Ipv6Addr::from_bits(0xfe80 << 112 | host))))
}

fn same_again<P: Protocol>(entries: &[Entry<P>], ours: Option<&P::Credentials>) {
    let mut writer = Writer::new(Command::Response, ours, 1500);
    assert!(entries.iter().all(|entry| writer.push(entry)));
    let octets = writer.finish(9);
    let message = Message::<P>::read(&octets).expect("what was written can be read");
    assert!(message.authenticate(ours).is_ok());
    assert!(message.entries().eq(entries.iter().copied().map(Ok)));
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn what_is_written_is_read(v4 in proptest::collection::vec(v4(), 0..=24), v6 in proptest::collection::vec(v6(), 0..=36)) {
        let key = Key::new(1, Algorithm::HmacSha256, b"secret").expect("a key");
        same_again(&v4, None);
        same_again(&v4, Some(&Credentials::keys(vec![key]).expect("keys")));
        same_again(&v6, None);
    }

    #[test]
    fn nothing_that_comes_breaks_a_promise(
        head in (0..4_u8, 0..4_u8),
        body in proptest::collection::vec(any::<u8>(), 0..600),
        signed in any::<bool>(),
    ) {
        let mut octets = vec![head.0, head.1, 0, 0];
        if signed {
            octets.extend([0xff, 0xff, 0, 3]);
        }
        octets.extend(body);
        fuzzing::messages(&octets);
        octets.truncate(4 + (octets.len() - 4) / 20 * 20);
        fuzzing::messages(&octets);
    }

    #[test]
    fn a_changed_message_breaks_no_promise(
        routes in proptest::collection::vec(v4(), 1..=24),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let ours = Credentials::keys(vec![Key::new(1, Algorithm::KeyedMd5, b"k").expect("a key")]).expect("keys");
        let mut writer = Writer::<Ripv2>::new(Command::Response, Some(&ours), 0);
        prop_assert!(routes.iter().all(|entry| writer.push(entry)));
        let right = writer.finish(1);
        let mut octets = right.clone();
        for (at, value) in changes {
            let at = at.index(octets.len());
            octets[at] = value;
        }
        fuzzing::messages(&octets);
        if let Ok(message) = Message::<Ripv2>::read(&octets) {
            prop_assert_eq!(message.authenticate(Some(&ours)).is_ok(), octets == right);
        }
    }
}
