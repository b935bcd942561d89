//! Messages as the documents draw them, and what is wrong with others.

use holdfast_rip_wire::{
    BadEntry, Command, ENTRY, Entry, HEADER, Malformed, Message, Metric, Protocol, Ripng, Ripv2, Writer,
};

use super::octets;

fn metric(value: u32) -> Metric {
    Metric::new(value).expect("1 to 16")
}

fn v4(prefix: &str, tag: u16, distance: u32, next_hop: Option<&str>) -> Entry<Ripv2> {
    let next_hop = next_hop.map(|address| address.parse().expect("an address"));
    Entry { prefix: prefix.parse().expect("a prefix"), tag, metric: metric(distance), next_hop }
}

fn v6(prefix: &str, tag: u16, distance: u32, next_hop: Option<&str>) -> Entry<Ripng> {
    let next_hop = next_hop.map(|address| address.parse().expect("an address"));
    Entry { prefix: prefix.parse().expect("a prefix"), tag, metric: metric(distance), next_hop }
}

fn written<P: Protocol>(command: Command, entries: &[Entry<P>]) -> Vec<u8> {
    let mut writer = Writer::new(command, None, 1500);
    assert!(entries.iter().all(|entry| writer.push(entry)));
    writer.finish(0)
}

fn entries<P: Protocol>(octets: &[u8]) -> Vec<Result<Entry<P>, BadEntry>> {
    Message::read(octets).expect("a message").entries().collect()
}

const ROUTES: &str = "02020000
    0002 0007 c0000200 ffffff00 00000000 00000001
    0002 0000 00000000 00000000 c6336401 0000000f
    0002 ffff c0000201 ffffffff 00000000 00000010";

const ROUTES_NG: &str = "02010000
    20010db8 00000000 00000000 00000000 0007 20 01
    fe800000 00000000 00000000 00000001 0000 00 ff
    00000000 00000000 00000000 00000000 0000 00 0f
    00000000 00000000 00000000 00000000 0000 00 ff
    20010db8 00000000 00000000 00000001 ffff 80 10";

#[test]
fn a_response_of_ripv2_is_as_it_is_drawn() {
    let routes = [
        v4("192.0.2.0/24", 7, 1, None),
        v4("0.0.0.0/0", 0, 15, Some("198.51.100.1")),
        v4("192.0.2.1/32", 0xffff, 16, None),
    ];
    assert_eq!(written(Command::Response, &routes), octets(ROUTES));
    assert_eq!(entries(&octets(ROUTES)), routes.map(Ok));
    let octets = octets(ROUTES);
    let message = Message::<Ripv2>::read(&octets).expect("a message");
    assert_eq!((message.command(), message.asks_for_everything()), (Command::Response, false));
}

#[test]
fn a_response_of_ripng_has_its_next_hops_before_its_routes() {
    let routes = [
        v6("2001:db8::/32", 7, 1, None),
        v6("::/0", 0, 15, Some("fe80::1")),
        v6("2001:db8::1/128", 0xffff, 16, None),
    ];
    assert_eq!(written(Command::Response, &routes), octets(ROUTES_NG));
    assert_eq!(entries(&octets(ROUTES_NG)), routes.map(Ok));
}

#[test]
fn a_next_hop_of_ripng_that_is_not_link_local_is_none() {
    let mut octets = octets(ROUTES_NG);
    octets[HEADER + ENTRY] = 0x20;
    assert_eq!(entries(&octets)[1], Ok(v6("::/0", 0, 15, None)));
}

#[test]
fn a_request_for_everything_has_one_entry_without_a_family() {
    let v4_octets = octets("01020000 0000 0000 00000000 00000000 00000000 00000010");
    let v6_octets = octets("01010000 00000000 00000000 00000000 00000000 0000 00 10");
    assert_eq!(Writer::<Ripv2>::whole_table(None).finish(0), v4_octets);
    assert_eq!(Writer::<Ripng>::whole_table(None).finish(0), v6_octets);
    assert!(Message::<Ripv2>::read(&v4_octets).expect("a message").asks_for_everything());
    assert!(Message::<Ripng>::read(&v6_octets).expect("a message").asks_for_everything());
    let twice = [&v4_octets[..], &v4_octets[HEADER..]].concat();
    assert!(!Message::<Ripv2>::read(&twice).expect("a message").asks_for_everything());
    let response = [&[2], &v4_octets[1..]].concat();
    assert!(!Message::<Ripv2>::read(&response).expect("a message").asks_for_everything());
}

#[test]
fn a_request_for_some_routes_may_have_any_metric() {
    let mut octets = octets(ROUTES);
    octets[0] = 1;
    octets[HEADER + ENTRY - 1] = 0;
    let message = Message::<Ripv2>::read(&octets).expect("a message");
    let asked: Vec<_> = message.queries().map(|query| query.expect("a prefix").to_string()).collect();
    assert_eq!(asked, ["192.0.2.0/24", "0.0.0.0/0", "192.0.2.1/32"]);
}

#[test]
fn versions_below_two_are_refused_and_those_above_are_read_as_two() {
    let mut octets = octets(ROUTES);
    for (version, fault) in [(0, true), (1, true), (2, false), (3, false), (255, false)] {
        octets[1] = version;
        let read = Message::<Ripv2>::read(&octets);
        assert_eq!(read.err(), fault.then_some(Malformed::Version(version)), "{version}");
    }
}

#[test]
fn ripng_has_one_version() {
    let mut octets = octets(ROUTES_NG);
    for version in [0, 2, 255] {
        octets[1] = version;
        assert_eq!(Message::<Ripng>::read(&octets).err(), Some(Malformed::Version(version)));
    }
}

#[test]
fn fields_that_must_be_zero_are_ignored() {
    let mut octets = octets(ROUTES);
    octets[2..4].fill(0xff);
    assert!(entries::<Ripv2>(&octets).iter().all(Result::is_ok));
    let mut octets = super::octets(ROUTES_NG);
    octets[2..4].fill(0xff);
    // Tag and length of a next hop.
    octets[HEADER + 2 * ENTRY - 4..HEADER + 2 * ENTRY - 1].fill(0xff);
    assert_eq!(entries(&octets)[1], Ok(v6("::/0", 0, 15, Some("fe80::1"))));
}

#[test]
fn frames_that_are_wrong_are_refused() {
    let right = octets(ROUTES);
    for length in
        (0..right.len()).filter(|length| *length < HEADER || !(length - HEADER).is_multiple_of(ENTRY))
    {
        assert_eq!(Message::<Ripv2>::read(&right[..length]).err(), Some(Malformed::Length(length)));
    }
    for command in [0, 3, 4, 9, 255] {
        let octets = [&[command], &right[1..]].concat();
        assert_eq!(Message::<Ripv2>::read(&octets).err(), Some(Malformed::Command(command)));
    }
    let most = [&right[..HEADER], &right[HEADER..HEADER + ENTRY].repeat(25)].concat();
    assert_eq!(entries::<Ripv2>(&most).len(), 25);
    let more = [&right[..HEADER], &right[HEADER..HEADER + ENTRY].repeat(26)].concat();
    assert_eq!(Message::<Ripv2>::read(&more).err(), Some(Malformed::Entries(26)));
    assert!(entries::<Ripv2>(&right[..HEADER]).is_empty());
}

#[test]
fn a_bad_entry_of_ripv2_does_not_spoil_the_next() {
    for (entry, fault) in [
        ("0001 0000 c0000200 ffffff00 00000000 00000001", BadEntry::AddressFamily(1)),
        ("ffff 0001 c0000200 ffffff00 00000000 00000001", BadEntry::AddressFamily(0xffff)),
        ("0002 0000 c0000200 ff00ff00 00000000 00000001", BadEntry::Mask(0xff00_ff00)),
        ("0002 0000 c0000200 00ffffff 00000000 00000001", BadEntry::Mask(0x00ff_ffff)),
        ("0002 0000 c0000200 00000000 00000000 00000001", BadEntry::NoMask),
        ("0002 0000 c0000200 ffffff00 00000000 00000000", BadEntry::Metric(0)),
        ("0002 0000 c0000200 ffffff00 00000000 00000011", BadEntry::Metric(17)),
        ("0002 0000 c0000200 ffffff00 00000000 01000001", BadEntry::Metric(0x0100_0001)),
        ("0002 0000 00000000 ff000000 00000000 00000001", BadEntry::Destination),
        ("0002 0000 7f000001 ffffffff 00000000 00000001", BadEntry::Destination),
        ("0002 0000 a9fe0000 ffff0000 00000000 00000001", BadEntry::Destination),
        ("0002 0000 a9fe0102 ffffffff 00000000 00000001", BadEntry::Destination),
        ("0002 0000 e0000000 f0000000 00000000 00000001", BadEntry::Destination),
        ("0002 0000 ffffffff ffffffff 00000000 00000001", BadEntry::Destination),
    ] {
        let good = &octets(ROUTES)[HEADER..HEADER + ENTRY];
        let octets = [&octets("02020000")[..], good, &octets(entry), good].concat();
        let read = entries::<Ripv2>(&octets);
        assert_eq!(read[1], Err(fault), "{entry}");
        assert!(read.len() == 3 && read[0] == read[2] && read[0].is_ok(), "{entry}");
    }
}

#[test]
fn a_bad_entry_of_ripng_does_not_spoil_the_next() {
    for (entry, fault) in [
        ("20010db8 00000000 00000000 00000000 0000 81 01", BadEntry::PrefixLength(129)),
        ("20010db8 00000000 00000000 00000000 0000 20 00", BadEntry::Metric(0)),
        ("20010db8 00000000 00000000 00000000 0000 20 11", BadEntry::Metric(17)),
        ("20010db8 00000000 00000000 00000000 0000 20 fe", BadEntry::Metric(254)),
        ("ff020000 00000000 00000000 00000009 0000 80 01", BadEntry::Destination),
        ("ff000000 00000000 00000000 00000000 0000 08 01", BadEntry::Destination),
        ("fe800000 00000000 00000000 00000000 0000 40 01", BadEntry::Destination),
        ("00000000 00000000 0000ffff 00000000 0000 60 01", BadEntry::Destination),
        ("00000000 00000000 0000ffff 0a000001 0000 80 01", BadEntry::Destination),
        ("00000000 00000000 00000000 00000001 0000 80 01", BadEntry::Destination),
    ] {
        let good = &octets(ROUTES_NG)[HEADER..HEADER + ENTRY];
        let octets = [&octets("02010000")[..], good, &octets(entry), good].concat();
        let read = entries::<Ripng>(&octets);
        assert_eq!(read[1], Err(fault), "{entry}");
        assert!(read.len() == 3 && read[0] == read[2] && read[0].is_ok(), "{entry}");
    }
}

#[test]
fn bits_after_the_length_are_cleared() {
    let v4_octets = octets("02020000 0002 0000 c00002ff ffffff00 00000000 00000001");
    assert_eq!(entries(&v4_octets), [Ok(v4("192.0.2.0/24", 0, 1, None))]);
    let v6_octets = octets("02010000 20010db8 00000000 00000000 000000ff 0000 20 01");
    assert_eq!(entries(&v6_octets), [Ok(v6("2001:db8::/32", 0, 1, None))]);
}

#[test]
fn a_message_of_ripv2_has_room_for_25_entries() {
    let mut writer = Writer::<Ripv2>::new(Command::Response, None, 9000);
    assert!(writer.is_empty());
    let entry = v4("192.0.2.0/24", 0, 1, None);
    assert_eq!((0..100).take_while(|_| writer.push(&entry)).count(), 25);
    assert!(!writer.is_empty());
    assert_eq!(writer.finish(0).len(), HEADER + 25 * ENTRY);
}

#[test]
fn a_message_of_ripng_fills_the_mtu() {
    let entry = v6("2001:db8::/32", 0, 1, None);
    for (mtu, most) in [(0, 61), (1280, 61), (1500, 72), (9000, 447), (u32::MAX, 3274)] {
        let mut writer = Writer::<Ripng>::new(Command::Response, None, mtu);
        assert_eq!((0..9999).take_while(|_| writer.push(&entry)).count(), most, "{mtu}");
    }
    let hops = ["fe80::1", "fe80::2"].map(|hop| v6("2001:db8::/32", 0, 1, Some(hop)));
    let mut writer = Writer::<Ripng>::new(Command::Response, None, 1280);
    assert_eq!((0..99).take_while(|at| writer.push(&hops[at % 2])).count(), 30, "each with its next hop");
}

#[test]
fn a_metric_stops_at_infinity() {
    assert_eq!([0, 17, 257].map(Metric::new), [None; 3]);
    assert_eq!(metric(1).plus(metric(1)), metric(2));
    assert_eq!(metric(15).plus(metric(1)), Metric::INFINITY);
    assert_eq!(Metric::INFINITY.plus(Metric::INFINITY), Metric::INFINITY);
    assert!(metric(15).is_reachable() && !Metric::INFINITY.is_reachable());
}
