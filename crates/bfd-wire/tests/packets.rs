//! Packets as they are on the wire.

use holdfast_bfd_wire::{
    Algorithm, Authentication, BadKey, Diagnostic, Flags, Key, Malformed, Packet, Received, State,
};
use proptest::prelude::*;

/// The packet of RFC 5880 figure 1, by hand: Up, Poll and Final, C, everything different from everything else.
fn by_hand() -> (Packet, [u8; 24]) {
    let packet = Packet {
        diagnostic: Diagnostic::NEIGHBOR_SIGNALED_DOWN,
        state: State::Up,
        flags: Flags { poll: true, is_final: false, control_plane_independent: true, demand: true },
        detect_multiplier: 5,
        my_discriminator: 0x0102_0304,
        your_discriminator: 0x0506_0708,
        desired_min_tx: 50_000,
        required_min_rx: 300_000,
        required_min_echo_rx: 1,
    };
    let octets = [0x23, 0xea, 5, 24, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0xc3, 0x50, 0, 4, 0x93, 0xe0, 0, 0, 0, 1];
    (packet, octets)
}

#[test]
fn a_packet_is_written_and_read_as_the_rfc_draws_it() {
    let (packet, octets) = by_hand();
    assert_eq!(packet.write(None).as_slice(), octets);
    let read = Received::read(&octets).expect("well-formed");
    assert_eq!((read.packet, read.authentication), (packet, None));
    // Octets behind the length are not part of the packet.
    let longer = [&octets[..], &[0xff; 9]].concat();
    assert_eq!(Received::read(&longer).map(|read| read.packet), Ok(packet));
}

#[test]
fn each_field_that_is_wrong_discards_the_packet_with_its_reason() {
    let (_, right) = by_hand();
    let with = |at: usize, octet: u8| {
        let mut octets = right;
        octets[at] = octet;
        octets
    };
    let reason = |octets: &[u8]| Received::read(octets).err();
    assert_eq!(reason(&right), None);
    for version in [0, 2, 7] {
        assert_eq!(reason(&with(0, version << 5)), Some(Malformed::Version(version)));
    }
    for length in [0, 23, 25, 255] {
        assert_eq!(reason(&with(3, length)), Some(Malformed::Length { length, octets: 24 }));
    }
    // With the A bit 26 are the least, whatever the section says.
    assert_eq!(reason(&with(1, 0xee)), Some(Malformed::Length { length: 24, octets: 24 }));
    assert_eq!(reason(&with(2, 0)), Some(Malformed::DetectMultiplier));
    assert_eq!(reason(&with(1, 0xeb)), Some(Malformed::Multipoint));
    let mut anonymous = right;
    anonymous[4..8].fill(0);
    assert_eq!(reason(&anonymous), Some(Malformed::MyDiscriminator));
    let mut lost = right;
    lost[8..12].fill(0);
    assert_eq!(reason(&lost), Some(Malformed::YourDiscriminator(State::Up)));
    lost[1] = 0x80;
    assert_eq!(reason(&lost), Some(Malformed::YourDiscriminator(State::Init)));
    for down in [0x00, 0x40] {
        lost[1] = down;
        assert_eq!(reason(&lost), None);
    }
    for octets in 0..24 {
        assert!(matches!(reason(&right[..octets]), Some(Malformed::Length { .. })), "{octets}");
    }
}

fn key(id: u8, algorithm: Algorithm) -> Key {
    Key::new(id, algorithm, b"secret").expect("a key")
}

const ALL: [Algorithm; 4] = [
    Algorithm::KeyedMd5,
    Algorithm::MeticulousKeyedMd5,
    Algorithm::KeyedSha1,
    Algorithm::MeticulousKeyedSha1,
];

#[test]
fn a_digest_is_that_of_the_packet_with_the_secret_in_its_place() {
    // Made with the digests of another library, of the packet with the padded secret as its last octets.
    let (packet, _) = by_hand();
    let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    let signed = packet.write(Some((&key(9, Algorithm::MeticulousKeyedSha1), 0x0a0b_0c0d)));
    let (section, digest) = signed.as_slice()[24..].split_at(8);
    assert_eq!((signed.as_slice()[3], section), (52, &[5, 28, 9, 0, 0x0a, 0x0b, 0x0c, 0x0d][..]));
    assert_eq!(hex(digest), "66adf14349ca8d373fbcc4a34cbe38173d0e6f66");
    let signed = packet.write(Some((&key(9, Algorithm::KeyedMd5), 1)));
    let (section, digest) = signed.as_slice()[24..].split_at(8);
    assert_eq!((signed.as_slice()[3], section), (48, &[2, 24, 9, 0, 0, 0, 0, 1][..]));
    assert_eq!(hex(digest), "29cf083265087f67dde58999c4c07ef7");
}

#[test]
fn the_reserved_octet_is_signed_and_not_looked_at() {
    let (packet, _) = by_hand();
    let key = key(9, Algorithm::KeyedSha1);
    let mut octets = packet.write(Some((&key, 7))).as_slice().to_vec();
    octets[27] = 0xff;
    assert!(!Received::read(&octets).expect("well-formed").is_signed_with(&key));
    octets[32..].fill(0);
    octets[32..38].copy_from_slice(b"secret");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, &octets);
    octets[32..].copy_from_slice(digest.as_ref());
    let read = Received::read(&octets).expect("well-formed");
    let digest = Authentication::Digest { algorithm: Algorithm::KeyedSha1, key: 9, sequence: 7 };
    assert!(read.is_signed_with(&key) && read.authentication == Some(digest));
}

#[test]
fn a_section_of_another_length_or_type_is_foreign() {
    let (packet, _) = by_hand();
    for algorithm in ALL {
        let signed = packet.write(Some((&key(1, algorithm), 7)));
        let with = |at: usize, octet: u8| {
            let mut octets = signed.as_slice().to_vec();
            octets[at] = octet;
            Received::read(&octets).expect("well-formed").authentication
        };
        let digest = Authentication::Digest { algorithm, key: 1, sequence: 7 };
        assert_eq!(with(0, signed.as_slice()[0]), Some(digest));
        for (at, octet) in [(24, 0), (24, 1), (24, 6), (25, 2), (25, 29), (3, 27), (3, 47)] {
            assert_eq!(with(at, octet), Some(Authentication::Foreign), "{algorithm:?} {at} {octet}");
        }
    }
}

#[test]
fn a_secret_is_as_long_as_a_digest_at_most() {
    for algorithm in ALL {
        let most = algorithm.length();
        assert!(Key::new(0, algorithm, &vec![1; most]).is_ok());
        assert_eq!(Key::new(0, algorithm, &vec![1; most + 1]).err(), Some(BadKey::TooLong(most + 1, most)));
        assert_eq!(Key::new(0, algorithm, &[]).err(), Some(BadKey::Empty));
    }
    assert!(!format!("{:?}", key(1, Algorithm::KeyedSha1)).contains("115"), "no secret is shown");
}

prop_compose! {
    fn packets()(
        bits in any::<[bool; 4]>(), diagnostic in 0_u8..32, state in 0_u8..4, detect_multiplier in 1_u8..,
        my_discriminator in 1_u32.., your_discriminator in 1_u32.., times in any::<[u32; 3]>(),
    ) -> Packet {
        let [poll, is_final, control_plane_independent, demand] = bits;
        let [desired_min_tx, required_min_rx, required_min_echo_rx] = times;
        Packet {
            diagnostic: Diagnostic::from_bits(diagnostic), state: State::from_bits(state),
            flags: Flags { poll, is_final, control_plane_independent, demand },
            detect_multiplier, my_discriminator, your_discriminator,
            desired_min_tx, required_min_rx, required_min_echo_rx,
        }
    }
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn what_is_written_is_read(packet in packets(), sequence: u32, which in 0_usize..5) {
        let key = ALL.get(which).map(|&algorithm| key(3, algorithm));
        let octets = packet.write(key.as_ref().map(|key| (key, sequence)));
        let read = Received::read(octets.as_slice()).expect("well-formed");
        prop_assert_eq!(read.packet, packet);
        if let Some(key) = &key {
            let algorithm = key.algorithm();
            prop_assert_eq!(read.authentication, Some(Authentication::Digest { algorithm, key: 3, sequence }));
            prop_assert!(read.is_signed_with(key));
            let other = Key::new(3, algorithm, b"secreT").expect("a key");
            let renamed = Key::new(4, algorithm, b"secret").expect("a key");
            prop_assert!(!read.is_signed_with(&other) && !read.is_signed_with(&renamed));
        }
    }

    #[test]
    fn a_bit_that_is_changed_breaks_the_digest(packet in packets(), sequence: u32, which in 0_usize..4, bit: usize) {
        let key = key(3, ALL[which]);
        let mut octets = packet.write(Some((&key, sequence))).as_slice().to_vec();
        let bit = bit % (octets.len() * 8);
        octets[bit / 8] ^= 1 << (bit % 8);
        // The reserved octet of the section is signed like all others.
        prop_assert!(!Received::read(&octets).is_ok_and(|read| read.is_signed_with(&key)));
    }

    #[test]
    fn no_octets_do_harm(octets in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(read) = Received::read(&octets) {
            read.is_signed_with(&key(octets[0], Algorithm::KeyedSha1));
        }
    }
}
