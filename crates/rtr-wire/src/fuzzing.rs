//! Bodies of the fuzz targets, also run by tests over mutated seeds.

use crate::{Frame, Malformed, Pdu, Version};

/// Reads all PDUs; what can be read is written again and read back as the same. Returns how many there were.
pub fn pdus(mut octets: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some((frame, rest))) = Frame::split(octets) {
        octets = rest;
        let Some(version) = Version::from_octet(frame.version()) else { continue };
        let Ok(pdu) = frame.pdu(version) else { continue };
        let mut again = Vec::new();
        pdu.write(version, &mut again).expect("what was read can be written");
        let read = read_one(&again, version).expect("what was written can be read");
        // Text that is no UTF-8 grows when it is made readable, and is cut.
        assert!(read == pdu || matches!(pdu, Pdu::ErrorReport(_)), "{pdu:?} {read:?}");
        count += 1;
    }
    count
}

fn read_one(octets: &[u8], version: Version) -> Result<Pdu, Malformed> {
    let (frame, rest) = Frame::split(octets)?.expect("whole");
    assert!(rest.is_empty());
    frame.pdu(version)
}
