use holdfast_tls_wire::{BadHello, Peek, Reassembly, peek, peek_records};
use proptest::prelude::*;

use crate::tests::wire::{
    build::{OPENSSL, hello, hex, record},
    client_hello::any_hello,
};

fn look(octets: &[u8]) -> Result<bool, BadHello> {
    peek_records(octets, &mut Reassembly::default()).map(|peek| matches!(peek, Peek::Known(_)))
}

#[test]
fn one_record_is_read_without_a_copy() {
    let octets = hex(OPENSSL);
    let mut pieces = Reassembly::default();
    assert_eq!(peek_records(&octets, &mut pieces), peek(&octets[5..]));
    assert!(pieces.is_empty());
    for cut in 0..octets.len() {
        assert_eq!(peek_records(&octets[..cut], &mut pieces), Ok(Peek::Incomplete), "the first {cut} octets");
    }
}

#[test]
fn what_begins_otherwise_is_not_tls() {
    // An alert, BGP's marker, a handshake of another message, something of another version.
    for octets in [&record(21, &[2, 40])[..], &[0xff; 19], &record(22, &[2, 0, 0, 0]), &[22, 2, 0, 0, 1, 1]] {
        assert_eq!(peek_records(octets, &mut Reassembly::default()), Ok(Peek::Other));
    }
}

#[test]
fn nothing_may_come_between_its_records() {
    let octets = hello(&[]);
    let (first, second) = octets.split_at(20);
    let whole = [record(22, first), record(22, second)].concat();
    assert_eq!(look(&whole), Ok(true));
    // RFC 8446 section 5.1.
    assert_eq!(look(&[record(22, first), record(20, &[1])].concat()), Err(BadHello::Interrupted(20)));
    // After it anything may: RFC 8446 appendix D.4.
    assert_eq!(look(&[whole, record(20, &[1])].concat()), Ok(true));
}

#[test]
fn a_record_has_one_octet_at_least_and_two_to_the_fourteenth_at_most() {
    assert_eq!(look(&[22, 3, 1, 0, 0]), Err(BadHello::Record(0)));
    assert_eq!(look(&[22, 3, 1, 0x40, 0]), Ok(false));
    assert_eq!(look(&[22, 3, 1, 0x40, 1]), Err(BadHello::Record(0x4001)));
    let begun = record(22, &hello(&[])[..20]);
    assert_eq!(look(&[&begun[..], &[22, 3, 3, 0, 0]].concat()), Err(BadHello::Record(0)));
}

#[test]
fn more_than_is_kept_stays_incomplete() {
    // It says that it has 64 KiB.
    let endless = [record(22, &[1, 1, 0, 0]), record(22, &[0; 1 << 14]), record(22, &[0; 1 << 14])].concat();
    assert_eq!(look(&endless), Ok(false));
}

proptest! {
    #![proptest_config(holdfast_testing::cases(256))]

    #[test]
    fn records_of_any_size_show_the_same((octets, ..) in any_hello(), size in 1usize..700) {
        let records: Vec<u8> = octets.chunks(size).flat_map(|fragment| record(22, fragment)).collect();
        let mut pieces = Reassembly::default();
        prop_assert_eq!(peek_records(&records, &mut pieces), peek(&octets));
        prop_assert_eq!(peek_records(&records[..records.len() - 1], &mut pieces), Ok(Peek::Incomplete));
    }
}
