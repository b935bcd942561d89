//! Bodies of the fuzz targets, also run by tests.

use crate::{Algorithm, Authentication, Key, Received};

/// The secret of the packets in the corpus.
const SECRET: &[u8] = b"secret";

/// Reads a packet. What can be read is written again, and read back as the same; a digest that is right is made again.
/// Returns whether it could be read, and whether its digest was right.
///
/// # Panics
/// A promise is broken.
pub fn packets(octets: &[u8]) -> (bool, bool) {
    let Ok(read) = Received::read(octets) else { return (false, false) };
    let plain = read.packet.write(None);
    assert_eq!(Received::read(plain.as_slice()).map(|again| again.packet), Ok(read.packet));
    let Some(Authentication::Digest { algorithm, key, sequence }) = read.authentication else {
        assert!(!read.is_signed_with(&secret(0, Algorithm::KeyedSha1)), "there is no digest");
        return (true, false);
    };
    let key = secret(key, algorithm);
    let signed = read.packet.write(Some((&key, sequence)));
    let again = Received::read(signed.as_slice()).expect("what was written can be read");
    assert_eq!((again.packet, again.authentication), (read.packet, read.authentication));
    assert!(again.is_signed_with(&key));
    (true, read.is_signed_with(&key))
}

fn secret(id: u8, algorithm: Algorithm) -> Key {
    Key::new(id, algorithm, SECRET).expect("it is short")
}
