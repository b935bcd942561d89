//! What is not let in.

use holdfast_rip::{
    AcceptAll, Datagram, Interface, Protocol, Rejected, Rip, Ripng, Ripv2, Settings, SplitHorizon,
};
use holdfast_rip_wire::{Algorithm, Command, Credentials, Key, Malformed, Password, Unauthentic, Writer};

use super::{
    networks::{Net, Plan, secs},
    one::{One, entry, response},
};

fn key(id: u8, secret: &str) -> Key {
    Key::new(id, Algorithm::HmacSha256, secret.as_bytes()).expect("a key")
}

fn keys(keys: Vec<Key>) -> Credentials {
    Credentials::keys(keys).expect("keys")
}

/// One destination, signed.
fn signed(number: u32, ours: &Credentials, sequence: u32) -> Vec<u8> {
    let mut writer = Writer::<Ripv2>::new(Command::Response, Some(ours), 0);
    assert!(writer.push(&entry(Ripv2::destination(number), 1)));
    writer.finish(sequence)
}

/// A router that expects credentials on wire 1.
fn one(ours: &Credentials) -> One {
    let mut one = One::new();
    let mut interface = Interface::new(Ripv2::addresses(1, 0));
    interface.authentication = Some(ours.clone());
    one.rip.set_interface(one.now, 1, interface);
    one.quiet();
    one
}

#[test]
fn responses_come_from_neighbours_only() {
    let mut one = One::<Ripv2>::new();
    let octets = response::<Ripv2>(&[entry(Ripv2::destination(1), 1)]);
    let good = one.datagram(1, 1, &octets);
    for (datagram, reason) in [
        (Datagram { interface: 9, ..good }, Rejected::Interface),
        (Datagram { source: Ripv2::source(1, 0), ..good }, Rejected::Ours),
        (Datagram { source: Ripv2::source(2, 0), ..good }, Rejected::Ours),
        (Datagram { source: Ripv2::source(2, 1), ..good }, Rejected::Source),
        (Datagram { port: 521, ..good }, Rejected::Port(521)),
        (Datagram { octets: &octets[..23], ..good }, Rejected::Malformed(Malformed::Length(23))),
    ] {
        assert_eq!(one.rip.receive(one.now, &datagram), Err(reason));
    }
    assert_eq!(one.rip.route(Ripv2::destination(1)), None);
    assert_eq!(one.rip.interfaces().next().map(|shown| shown.counters.bad_packets), Some(3));
    assert_eq!(one.rip.neighbours().count(), 0);
    assert_eq!(
        one.rip.receive(one.now, &Datagram { hop_limit: 1, ..good }),
        Ok(()),
        "RIPv2 has no such rule"
    );
}

#[test]
fn responses_of_ripng_are_link_local_and_were_not_forwarded() {
    let mut one = One::<Ripng>::new();
    let octets = response::<Ripng>(&[entry(Ripng::destination(1), 1)]);
    let good = one.datagram(1, 1, &octets);
    let global = "2001:db8:0:1::2".parse().expect("an address");
    for (datagram, verdict) in [
        (Datagram { hop_limit: 254, ..good }, Err(Rejected::HopLimit(254))),
        (Datagram { hop_limit: 64, multicast: false, ..good }, Ok(())),
        (Datagram { source: global, ..good }, Err(Rejected::Source)),
        (Datagram { port: 520, ..good }, Err(Rejected::Port(520))),
        (good, Ok(())),
    ] {
        assert_eq!(one.rip.receive(one.now, &datagram), verdict);
    }
}

#[test]
fn routers_with_the_same_secret_find_each_other() {
    let password = |text: &str| Credentials::Password(Password::new(text.as_bytes()).expect("a password"));
    for (left, right, works) in [
        (keys(vec![key(1, "a")]), keys(vec![key(1, "a")]), true),
        (keys(vec![key(1, "a")]), keys(vec![key(1, "b")]), false),
        (keys(vec![key(1, "a"), key(2, "b")]), keys(vec![key(2, "b"), key(1, "a")]), true),
        (keys(vec![key(1, "a")]), keys(vec![key(2, "a")]), false),
        (password("a"), password("a"), true),
        (password("a"), password("b"), false),
        (password("a"), keys(vec![key(1, "a")]), false),
    ] {
        let mut net = Net::<Ripv2>::new(2);
        for (router, ours) in [left, right].into_iter().enumerate() {
            net.attach(1, router, |interface| interface.authentication = Some(ours.clone()));
        }
        net.redistribute(0, Ripv2::destination(1), 1);
        net.run(400);
        assert_eq!(net.metric(1, Ripv2::destination(1)).is_some(), works);
        let failures =
            net.routers[1].interfaces().map(|shown| shown.counters.authentication_failures).sum::<u64>();
        assert_eq!(failures > 5, !works, "{failures}");
    }
}

#[test]
fn a_message_that_is_not_authentic_changes_nothing() {
    let ours = keys(vec![key(1, "a")]);
    let mut one = one(&ours);
    let unsigned = response::<Ripv2>(&[entry(Ripv2::destination(1), 1)]);
    let forged = signed(1, &keys(vec![key(1, "b")]), 5);
    for (octets, reason) in [(&unsigned, Unauthentic::Missing), (&forged, Unauthentic::Digest(1))] {
        let verdict = one.rip.receive(one.now, &one.datagram(1, 1, octets));
        assert_eq!(verdict, Err(Rejected::Unauthentic(reason)));
    }
    // Where no authentication is expected, none is accepted.
    let octets = signed(1, &ours, 5);
    let verdict = one.rip.receive(one.now, &one.datagram(2, 1, &octets));
    assert_eq!(verdict, Err(Rejected::Unauthentic(Unauthentic::Unexpected)));
    assert_eq!(one.rip.route(Ripv2::destination(1)), None);
    assert_eq!(one.rip.neighbours().count(), 0);
}

#[test]
fn what_was_sent_before_is_not_accepted_again() {
    let ours = keys(vec![key(1, "a"), key(2, "b")]);
    let mut one = one(&ours);
    let hear = |one: &mut One, router, sequence| {
        let octets = signed(1, &ours, sequence);
        one.rip.receive(one.now, &one.datagram(1, router, &octets))
    };
    assert_eq!(hear(&mut one, 1, 100), Ok(()));
    assert_eq!(hear(&mut one, 1, 100), Ok(()), "several messages of one second");
    assert_eq!(hear(&mut one, 1, 99), Err(Rejected::Sequence { key: 1, last: 100, received: 99 }));
    assert_eq!(hear(&mut one, 1, 0), Err(Rejected::Sequence { key: 1, last: 100, received: 0 }));
    assert_eq!(hear(&mut one, 2, 50), Ok(()), "another router");
    let other = signed(1, &keys(vec![key(2, "b")]), 7);
    assert_eq!(one.rip.receive(one.now, &one.datagram(1, 1, &other)), Ok(()), "another key");
    assert_eq!(one.rip.interfaces().next().map(|shown| shown.counters.authentication_failures), Some(2));
    // It was lost: it may have forgotten its number, and then begins with zero, or with one.
    one.wait(secs(181));
    assert_eq!(hear(&mut one, 1, 1), Ok(()));
    assert_eq!(hear(&mut one, 1, 0), Err(Rejected::Sequence { key: 1, last: 1, received: 0 }));
}

#[test]
fn sequence_numbers_of_ours_follow_the_clock() {
    let settings = Settings { first_sequence: 1_000_000, ..Settings::default() };
    let mut one = One::<Ripv2>::with(settings, AcceptAll);
    let mut interface = Interface::new(Ripv2::addresses(1, 0));
    interface.authentication = Some(keys(vec![key(1, "a")]));
    one.now += secs(77);
    one.rip.set_interface(one.now, 1, interface);
    let sent =
        std::iter::from_fn(|| one.rip.poll_transmit()).find(|sent| sent.interface == 1).expect("a request");
    assert_eq!(sent.octets[12..16], 1_000_077_u32.to_be_bytes());
}

#[test]
fn keys_roll_over_without_a_break() {
    let mut net = Net::<Ripv2>::new(2);
    let (old, new) = (key(1, "old"), key(2, "new"));
    let with = |net: &mut Net<Ripv2>, router, keys: &[&Key]| {
        let ours = Credentials::keys(keys.iter().map(|key| (*key).clone()).collect()).expect("keys");
        net.attach(1, router, |interface| interface.authentication = Some(ours.clone()));
    };
    let accepted = new.clone().using(false, true);
    net.redistribute(0, Ripv2::destination(1), 1);
    for (router, keys) in [
        (0, vec![&old]),
        (1, vec![&old]),
        (0, vec![&old, &accepted]),
        (1, vec![&old, &accepted]),
        (0, vec![&new, &old]),
        (1, vec![&new, &old]),
        (0, vec![&new]),
        (1, vec![&new]),
    ] {
        with(&mut net, router, &keys);
        net.run(60);
    }
    let failures =
        |router: usize| net.routers[router].interfaces().map(|it| it.counters.authentication_failures);
    // Only while one router knew no key at all.
    assert!([0, 1].into_iter().flat_map(failures).sum::<u64>() == 0);
    assert_eq!(net.metric(1, Ripv2::destination(1)), Some(2));
}

#[test]
fn neighbours_are_bounded_and_the_silent_make_room() {
    let mut one = One::<Ripv2>::with(Settings { max_neighbours: 3, ..Settings::default() }, AcceptAll);
    let octets = response::<Ripv2>(&[entry(Ripv2::destination(1), 1)]);
    for router in [1, 2, 3, 1, 4] {
        one.now += secs(1);
        one.rip.receive(one.now, &one.datagram(1, router, &octets)).expect("good");
    }
    let known: Vec<_> = one.rip.neighbours().map(|shown| shown.address).collect();
    assert_eq!(known, [1, 3, 4].map(|router| Ripv2::source(1, router)));
    assert_eq!(one.rip.neighbours().next().map(|shown| shown.neighbour.packets), Some(2));
}

#[test]
fn a_neighbour_whose_sequence_numbers_count_makes_no_room() {
    let ours = keys(vec![key(1, "a"), key(2, "b")]);
    let settings = Settings { max_neighbours: 3, ..Settings::default() };
    let mut one = One::<Ripv2>::with(settings, AcceptAll);
    let mut interface = Interface::new(Ripv2::addresses(1, 0));
    interface.authentication = Some(ours.clone());
    one.rip.set_interface(one.now, 1, interface);
    let hear = |one: &mut One, router, sequence| {
        let octets = signed(1, &ours, sequence);
        one.rip.receive(one.now, &one.datagram(1, router, &octets))
    };
    assert_eq!(hear(&mut one, 1, 100), Ok(()));
    // Somebody who has kept a message says it again under other addresses, which no digest covers.
    for router in 2..50 {
        one.now += secs(1);
        let verdict = hear(&mut one, router, 100);
        assert_eq!(verdict, if router < 4 { Ok(()) } else { Err(Rejected::Neighbours) });
    }
    assert_eq!(hear(&mut one, 1, 99), Err(Rejected::Sequence { key: 1, last: 100, received: 99 }));
    assert_eq!(hear(&mut one, 1, 101), Ok(()));
    // Who was silent for so long that its numbers do not count any more makes room.
    one.wait(secs(181));
    assert_eq!(hear(&mut one, 7, 1), Ok(()));
    assert_eq!(one.rip.neighbours().count(), 3);
    assert!(one.rip.neighbours().any(|shown| shown.address == Ripv2::source(1, 1)), "it was heard last");
}

#[test]
fn who_has_proven_nothing_makes_room_for_who_has() {
    let settings = Settings { max_neighbours: 3, ..Settings::default() };
    let mut one = One::<Ripv2>::with(settings, AcceptAll);
    let octets = response::<Ripv2>(&[entry(Ripv2::destination(1), 1)]);
    for router in 1..20 {
        one.rip.receive(one.now, &one.datagram(1, router, &octets)).expect("good");
    }
    let ours = keys(vec![key(1, "a")]);
    let mut interface = Interface::new(Ripv2::addresses(1, 0));
    interface.authentication = Some(ours.clone());
    one.rip.set_interface(one.now, 1, interface);
    for router in 21..24 {
        let octets = signed(1, &ours, 7);
        assert_eq!(one.rip.receive(one.now, &one.datagram(1, router, &octets)), Ok(()));
    }
    let known: Vec<_> = one.rip.neighbours().map(|shown| shown.address).collect();
    assert_eq!(known, [21, 22, 23].map(|router| Ripv2::source(1, router)));
}

#[test]
fn a_route_to_an_address_of_our_own_is_ignored() {
    let mut one = One::<Ripv2>::new();
    let here = [Ripv2::source(1, 0), Ripv2::source(2, 0)].map(Ripv2::host);
    let there = Ripv2::host(Ripv2::source(1, 9));
    let octets = response::<Ripv2>(&[entry(here[0], 1), entry(here[1], 1), entry(there, 1)]);
    one.rip.receive(one.now, &one.datagram(1, 1, &octets)).expect("good");
    assert_eq!(here.map(|prefix| one.rip.route(prefix)), [None, None]);
    assert!(one.rip.route(there).is_some(), "a host beside us");
    assert_eq!(one.rip.interfaces().next().map(|shown| shown.counters.bad_routes), Some(2));
}

#[test]
fn a_router_that_has_ended_hears_nothing() {
    let mut rip = Rip::<Ripv2>::new(Settings::default(), std::time::Instant::now());
    let now = std::time::Instant::now();
    let mut interface = Interface::new(Ripv2::addresses(1, 0));
    interface.split_horizon = SplitHorizon::Off;
    rip.set_interface(now, 1, interface);
    rip.withdraw_all(now);
    let sent: Vec<_> = std::iter::from_fn(|| rip.poll_transmit()).collect();
    assert_eq!(sent.len(), 1);
    let told = super::networks::entries::<Ripv2>(&sent[0].octets);
    assert_eq!((told[0].prefix, told[0].metric.get()), (Ripv2::network(1), 16));
    let (source, octets) = (Ripv2::source(1, 1), &sent[0].octets[..]);
    let datagram =
        Datagram { interface: 1, source, port: Ripv2::PORT, hop_limit: 255, multicast: true, octets };
    assert_eq!(rip.receive(now, &datagram), Err(Rejected::Leaving));
}
