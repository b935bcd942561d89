use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use holdfast_sys::tcp::set_ttl;
use proptest::prelude::*;

use super::*;

fn peer(network: &str, ttl_security: bool) -> FilteredPeer {
    FilteredPeer { network: network.parse().expect("a prefix"), ttl_security }
}

/// What a program makes of a packet, step by step as the kernel would.
fn takes(program: &[Instruction], source: IpAddr, ttl: u8) -> bool {
    let header = match source {
        IpAddr::V4(source) => [&[0_u8; 8][..], &[ttl, 17, 0, 0], &source.octets(), &[0; 4]].concat(),
        IpAddr::V6(source) => [&[0_u8; 7][..], &[ttl], &source.octets(), &[0; 16]].concat(),
    };
    takes_header(program, &header)
}

fn takes_header(program: &[Instruction], header: &[u8]) -> bool {
    let (mut next, mut loaded) = (0, 0_u32);
    loop {
        let instruction = program[next];
        next += 1;
        match instruction {
            Instruction::LoadWord(at) => {
                let word = header[at.into()..].first_chunk().expect("within the header");
                loaded = u32::from_be_bytes(*word);
            }
            Instruction::LoadOctet(at) => loaded = header[usize::from(at)].into(),
            Instruction::Equal { value, yes, no } => {
                next += usize::from(if loaded == value { yes } else { no });
            }
            Instruction::AtLeast { value, yes, no } => {
                next += usize::from(if loaded >= value { yes } else { no });
            }
            Instruction::Jump(far) => next += far as usize,
            Instruction::Take => return true,
            Instruction::Drop => return false,
            Instruction::Payload(_) | Instruction::Select(_) => panic!("a filter steers nothing"),
            Instruction::MessageHalf(_)
            | Instruction::MessageWord(_)
            | Instruction::Value(_)
            | Instruction::Index(_)
            | Instruction::FindAttribute
            | Instruction::ToIndex
            | Instruction::WordAtIndex(_)
            | Instruction::And(_) => panic!("no netlink socket has this filter"),
        }
    }
}

/// Who is expected at an address, by looking at one network after the other: whether it has to be a neighbour.
fn expected(peers: &[FilteredPeer], address: IpAddr) -> Option<bool> {
    let there = peers.iter().filter(|peer| peer.network.contains_address(address));
    there.map(|peer| (peer.network.length(), peer.ttl_security)).max().map(|(_, ttl_security)| ttl_security)
}

/// Addresses close together and far from each other, of few distinct words.
fn address(is_v6: bool) -> BoxedStrategy<IpAddr> {
    let octet = prop_oneof![Just(0_u8), Just(1), Just(10), Just(255), any::<u8>()];
    if is_v6 {
        let word = prop_oneof![Just(0_u32), Just(1), Just(u32::MAX), Just(0x2001_0db8), any::<u32>()];
        prop::array::uniform4(word)
            .prop_map(|[a, b, c, d]| {
                let bits = [a, b, c, d].into_iter().fold(0, |bits, word| bits << 32 | u128::from(word));
                Ipv6Addr::from_bits(bits).into()
            })
            .boxed()
    } else {
        prop::array::uniform4(octet).prop_map(IpAddr::from).boxed()
    }
}

fn network(is_v6: bool) -> impl Strategy<Value = Prefix> {
    let most = if is_v6 { 128 } else { 32 };
    (address(is_v6), prop_oneof![Just(most), 0..=most])
        .prop_map(|(address, length)| Prefix::new(address, length).expect("it fits"))
}

fn peers(is_v6: bool) -> impl Strategy<Value = Vec<FilteredPeer>> {
    let one = (network(is_v6), any::<bool>())
        .prop_map(|(network, ttl_security)| FilteredPeer { network, ttl_security });
    prop::collection::vec(one, 0..40)
}

/// A family, peers and networks of it, and where to look: anywhere, and at both ends of all networks and beside them.
fn scene() -> impl Strategy<Value = (IpVersion, Vec<FilteredPeer>, Vec<Prefix>, Vec<IpAddr>)> {
    any::<bool>().prop_flat_map(|is_v6| {
        let heard = prop::collection::vec(network(is_v6), 0..8);
        let anywhere = prop::collection::vec(address(is_v6), 20);
        (peers(is_v6), heard, anywhere).prop_map(move |(peers, heard, mut places)| {
            for network in peers.iter().map(|peer| peer.network).chain(heard.iter().copied()) {
                places.extend(ends(network));
            }
            (if is_v6 { IpVersion::V6 } else { IpVersion::V4 }, peers, heard, places)
        })
    })
}

fn ends(network: Prefix) -> Vec<IpAddr> {
    let length = u32::from(network.length());
    match network.address() {
        IpAddr::V4(first) => {
            let last = first.to_bits() | u32::MAX.checked_shr(length).unwrap_or(0);
            [first.to_bits().wrapping_sub(1), first.to_bits(), last, last.wrapping_add(1)]
                .map(|bits| Ipv4Addr::from_bits(bits).into())
                .into()
        }
        IpAddr::V6(first) => {
            let last = first.to_bits() | u128::MAX.checked_shr(length).unwrap_or(0);
            [first.to_bits().wrapping_sub(1), first.to_bits(), last, last.wrapping_add(1)]
                .map(|bits| Ipv6Addr::from_bits(bits).into())
                .into()
        }
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn a_program_does_what_the_networks_say((version, peers, heard, places) in scene()) {
        let listener = Filter::listener(version, peers.iter().copied(), heard.iter().copied());
        let datagrams = Filter::datagrams(version, peers.iter().copied());
        let [listening, receiving] =
            [&listener, &datagrams].map(|filter| filter.program(MOST_INSTRUCTIONS).expect("few networks"));
        for place in places {
            let expected = expected(&peers, place);
            let is_heard = heard.iter().any(|network| network.contains_address(place));
            prop_assert_eq!(takes(&listening, place, 255), expected.is_some() || is_heard, "{}", place);
            let from_afar = expected.map_or(is_heard, |ttl_security| !ttl_security);
            prop_assert_eq!(takes(&listening, place, 254), from_afar, "{}", place);
            prop_assert!(takes(&receiving, place, 255), "{}", place);
            prop_assert_eq!(takes(&receiving, place, 64), expected != Some(true), "{}", place);
        }
    }

    #[test]
    fn a_coarse_program_gives_up_only_what_it_may(
        (version, peers, heard, places) in scene(),
        most in 4_usize..60,
    ) {
        let listener = Filter::listener(version, peers.iter().copied(), heard.iter().copied());
        let listening = listener.program(most).expect("a listener may take everything");
        prop_assert!(listening.len() <= most);
        let receiving = Filter::datagrams(version, peers.iter().copied()).program(most);
        prop_assert!(receiving.as_ref().is_none_or(|program| program.len() <= most));
        for place in places {
            let expected = expected(&peers, place);
            let is_heard = heard.iter().any(|network| network.contains_address(place));
            if expected.is_some() || is_heard {
                prop_assert!(takes(&listening, place, 255), "{}", place);
            }
            if expected.map_or(is_heard, |ttl_security| !ttl_security) {
                prop_assert!(takes(&listening, place, 64), "{}", place);
            }
            let Some(receiving) = &receiving else { continue };
            prop_assert!(takes(receiving, place, 255), "{}", place);
            if let Some(ttl_security) = expected {
                prop_assert_eq!(takes(receiving, place, 64), !ttl_security, "{}", place);
            }
        }
    }
}

fn hosts_v4(count: u32) -> impl Iterator<Item = FilteredPeer> {
    // Every third address, so that none is beside another.
    let host = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + 3 * number).into();
    (0..count).map(move |number| FilteredPeer { network: Prefix::host(host(number)), ttl_security: false })
}

fn hosts_v6(count: u32) -> impl Iterator<Item = FilteredPeer> {
    // Each in a /64 of its own.
    let host = |number: u32| Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number) << 65 | 2).into();
    (0..count).map(move |number| FilteredPeer { network: Prefix::host(host(number)), ttl_security: false })
}

#[test]
fn what_has_one_verdict_everywhere_takes_one_instruction() {
    use Instruction as I;
    let program = |filter: &Filter| filter.program(MOST_INSTRUCTIONS).expect("short");
    let nobody = Filter::listener(IpVersion::V4, [], []);
    assert_eq!((program(&nobody), nobody.is_open()), (vec![I::Drop], false));
    let everybody = Filter::listener(IpVersion::V6, [peer("::/0", false)], []);
    assert_eq!((program(&everybody), everybody.is_open()), (vec![I::Take], true));
    let other_family = Filter::datagrams(IpVersion::V6, [peer("10.0.0.2/32", true)]);
    assert!(other_family.is_open());
    let neighbours = Filter::datagrams(IpVersion::V4, [peer("0.0.0.0/0", true)]);
    let ttl = [I::LoadOctet(8), I::Equal { value: 255, yes: 1, no: 0 }, I::Drop, I::Take];
    assert_eq!(program(&neighbours), ttl);
}

#[test]
fn a_few_hosts_are_tested_one_after_the_other() {
    use Instruction as I;
    let filter = Filter::listener(IpVersion::V4, hosts_v4(2), []);
    let expected = [
        I::LoadWord(12),
        I::Equal { value: 0x0a00_0000, yes: 2, no: 0 },
        I::Equal { value: 0x0a00_0003, yes: 1, no: 0 },
        I::Drop,
        I::Take,
    ];
    assert_eq!(filter.program(MOST_INSTRUCTIONS), Some(expected.into()));
}

#[test]
fn networks_side_by_side_are_one() {
    let halves = [peer("10.0.0.0/9", false), peer("10.128.0.0/9", false)];
    let whole = [peer("10.0.0.0/8", false)];
    let [halves, whole] =
        [&halves[..], &whole].map(|peers| Filter::listener(IpVersion::V4, peers.iter().copied(), []));
    assert_eq!(halves.regions.len(), whole.regions.len());
    assert_eq!(halves.program(MOST_INSTRUCTIONS), whole.program(MOST_INSTRUCTIONS));
}

#[test]
fn of_more_hosts_than_fit_all_are_heard_and_few_others() {
    for (version, peers) in
        [(IpVersion::V4, hosts_v4(10_000).collect::<Vec<_>>()), (IpVersion::V6, hosts_v6(10_000).collect())]
    {
        let filter = Filter::listener(version, peers.iter().copied(), []);
        let program = filter.program(MOST_INSTRUCTIONS).expect("always one");
        assert!(program.len() > MOST_INSTRUCTIONS * 9 / 10, "{}: there was room", program.len());
        assert!(peers.iter().all(|peer| takes(&program, peer.network.address(), 64)));
        let strangers: [IpAddr; 2] = match version {
            IpVersion::V4 => [[9, 255, 255, 255].into(), [10, 1, 0, 0].into()],
            IpVersion::V6 => ["2001:db7::1", "2001:db9::1"].map(|text| text.parse().expect("an address")),
        };
        assert!(!strangers.iter().any(|stranger| takes(&program, *stranger, 64)), "{version:?}");
    }
}

#[test]
fn so_many_hosts_have_a_program_that_knows_each() {
    for (version, peers) in
        [(IpVersion::V4, hosts_v4(3000).collect::<Vec<_>>()), (IpVersion::V6, hosts_v6(650).collect())]
    {
        let length = program::program(version, &Filter::listener(version, peers, []).regions).len();
        assert!(length <= MOST_INSTRUCTIONS, "{version:?}: {length}");
    }
}

#[test]
fn neighbours_and_others_in_turn_without_end_are_too_many_for_datagrams_only() {
    let peers: Vec<_> = (0..6000_u32)
        .map(|number| FilteredPeer {
            network: Prefix::host(Ipv4Addr::from_bits(number).into()),
            ttl_security: number % 2 == 0,
        })
        .collect();
    let datagrams = Filter::datagrams(IpVersion::V4, peers.iter().copied());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let error = datagrams.attach(&socket).expect_err("there is nothing to give up");
    assert_eq!(error.to_string(), "too many peers with and without `ttl-security` alternate");
    Filter::listener(IpVersion::V4, peers, []).attach(&socket).expect("what it lets through is judged again");
}

#[test]
fn by_destination_one_host_and_its_own_groups_are_taken() {
    let v4 = |last: u8| IpAddr::from([224, 0, 0, last]);
    let v6 = |last: u16| IpAddr::from([0xff02, 0, 0, 0, 0, 0, 0, last]);
    let host = [IpAddr::from([10, 0, 0, 2]), "fe80::2".parse().expect("an address")];
    let most = destinations::MOST_GROUPS as u8;
    for count in [0, 1, 2, most] {
        for (version, group, host) in [
            (IpVersion::V4, &v4 as &dyn Fn(u8) -> IpAddr, host[0]),
            (IpVersion::V6, &|last| v6(last.into()), host[1]),
        ] {
            let groups: Vec<_> = (1..=count).map(group).collect();
            let program = destinations::program(version, &groups);
            let to = |address: IpAddr| {
                let header = match address {
                    IpAddr::V4(address) => [&[0_u8; 16][..], &address.octets()].concat(),
                    IpAddr::V6(address) => [&[0_u8; 24][..], &address.octets()].concat(),
                };
                takes_header(&program, &header)
            };
            assert!(to(host) && groups.iter().all(|group| to(*group)), "{version:?} {count}");
            assert!(!to(group(0)) && !to(group(count + 1)), "{version:?} {count}");
        }
    }
    assert!(!destinations_take(&[255; 4]) && !destinations_take(&[240, 0, 0, 1]), "no one host");
}

/// Whether a socket without groups takes what was sent to this address of IPv4.
fn destinations_take(address: &[u8; 4]) -> bool {
    let header = [&[0_u8; 16][..], address].concat();
    takes_header(&destinations::program(IpVersion::V4, &[]), &header)
}

/// Sends datagrams to a socket, with the TTL, from each of these; who was heard.
fn heard(to: &UdpSocket, from: &[(IpAddr, u8)]) -> Vec<(IpAddr, u8)> {
    let address = to.local_addr().expect("an address");
    let last = |octet: u8| (address.ip(), octet);
    let mut heard = Vec::new();
    // One by one, so that none is lost for want of room; our own address ends each.
    for &(source, ttl) in from {
        let send = |from: IpAddr, ttl| {
            let socket = UdpSocket::bind((from, 0)).expect("bound");
            set_ttl(&socket, IpVersion::of(from), ttl).expect("a TTL");
            socket.send_to(&[ttl], address).expect("sent");
        };
        send(source, ttl);
        send(address.ip(), 255);
        loop {
            let mut octet = [0];
            let (_, sender) = to.recv_from(&mut octet).expect("the last one is heard");
            match (sender.ip(), octet[0]) {
                it if it == last(255) => break,
                it => heard.push(it),
            }
        }
    }
    heard
}

/// In a network namespace of its own, where all addresses are ours.
#[test]
fn the_kernel_runs_a_program_as_these_tests_do() {
    let story = || {
        holdfast_sys::process::enter_new_network().expect("this test needs root");
        for arguments in ["link set lo up", "-6 route add local 2001:db8::/32 dev lo"] {
            let status =
                std::process::Command::new("ip").args(arguments.split(' ')).status().expect("ip runs");
            assert!(status.success(), "{arguments}");
        }
        std::fs::write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1").expect("set");
        let own = [IpAddr::from([127, 255, 0, 1]), "2001:db8:ffff::1".parse().expect("an address")];
        for own in own {
            let version = IpVersion::of(own);
            let host = |number: u32, ttl_security| {
                let address: IpAddr = match version {
                    IpVersion::V4 => Ipv4Addr::from_bits(0x7f00_0000 + 5 * number).into(),
                    IpVersion::V6 => {
                        Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number) << 66 | 7).into()
                    }
                };
                FilteredPeer { network: Prefix::host(address), ttl_security }
            };
            let region = match version {
                IpVersion::V4 => peer("127.64.0.0/10", true),
                IpVersion::V6 => peer("2001:db8:8000::/40", true),
            };
            let ours = FilteredPeer { network: Prefix::host(own), ttl_security: false };
            for count in [1, 300, 5000] {
                let peers: Vec<_> =
                    (1..=count).map(|number| host(number, number % 7 == 0)).chain([region, ours]).collect();
                let middle = (count / 2).max(1);
                let beside = match host(middle, false).network.address() {
                    IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() + 1).into(),
                    IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() + 1).into(),
                };
                let inside = match region.network.address() {
                    IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() + 9).into(),
                    IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() + 9).into(),
                };
                let known = [1, 7, middle, count].map(|number| host(number, false).network.address());
                let sources: Vec<_> = known
                    .into_iter()
                    .chain([beside, inside])
                    .flat_map(|source| [(source, 255), (source, 64)])
                    .collect();
                for filter in [
                    Filter::listener(version, peers.iter().copied(), []),
                    Filter::datagrams(version, peers.iter().copied()),
                ] {
                    let Some(program) = filter.program(MOST_INSTRUCTIONS) else {
                        panic!("{count} networks of {version:?}")
                    };
                    let socket = UdpSocket::bind(SocketAddr::new(own, 0)).expect("bound");
                    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
                    filter.attach(&socket).expect("the kernel has room");
                    let expected: Vec<_> = sources
                        .iter()
                        .copied()
                        .filter(|(source, ttl)| takes(&program, *source, *ttl))
                        .collect();
                    assert_eq!(heard(&socket, &sources), expected, "{count} networks");
                    assert!(expected.len() < sources.len(), "something is dropped");
                }
            }
        }
    };
    std::thread::spawn(story).join().expect("no panic");
}
