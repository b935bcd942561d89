//! Reading, with the rules of RFC 5880 section 6.8.6 that need no session.

use aws_lc_rs::constant_time::verify_slices_are_equal;

use crate::{Algorithm, BEFORE_DIGEST, Diagnostic, Flags, Key, LONGEST, MANDATORY, Packet, State, VERSION};

/// Why a packet is discarded before its session is looked for.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Malformed {
    /// The version is not 1.
    #[error("version {0}")]
    Version(u8),
    /// The length is less than 24, or than 26 with authentication, or more than the datagram has.
    #[error("length {length} in a datagram of {octets} octets")]
    Length {
        /// As the packet says.
        length: u8,
        /// Of the datagram.
        octets: usize,
    },
    /// Detect Mult is 0.
    #[error("a detection multiplier of 0")]
    DetectMultiplier,
    /// The Multipoint bit is set.
    #[error("the multipoint bit")]
    Multipoint,
    /// My Discriminator is 0.
    #[error("no discriminator of the sender")]
    MyDiscriminator,
    /// Your Discriminator is 0, and the state is Init or Up.
    #[error("state {0} without our discriminator")]
    YourDiscriminator(State),
}

/// The authentication section of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Authentication {
    /// A digest, whose length is right for the algorithm.
    Digest {
        /// Which one.
        algorithm: Algorithm,
        /// Number of the key.
        key: u8,
        /// The sequence number.
        sequence: u32,
    },
    /// A type that is not supported, or a length that does not fit the type.
    Foreign,
}

/// A packet that is well-formed, in its octets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    /// What it says.
    pub packet: Packet,
    /// Its authentication, if it has the A bit. It is not checked yet.
    pub authentication: Option<Authentication>,
    /// As long as the packet says.
    octets: &'a [u8],
}

impl<'a> Received<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// Why the packet is discarded; the first reason in the order of RFC 5880 section 6.8.6.
    pub fn read(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let wrong = |length| Malformed::Length { length, octets: datagram.len() };
        let [first, second, detect_multiplier, length, words @ ..] = datagram else { return Err(wrong(0)) };
        if first >> 5 != VERSION {
            return Err(Malformed::Version(first >> 5));
        }
        let has_authentication = second & 0x04 != 0;
        let least = if has_authentication { MANDATORY + 2 } else { MANDATORY };
        let octets = datagram.get(..usize::from(*length)).filter(|octets| octets.len() >= least);
        let octets = octets.ok_or_else(|| wrong(*length))?;
        let mut words = words.chunks_exact(4).map(|word| word.iter().fold(0, |n, &o| n << 8 | u32::from(o)));
        let mut word = || words.next().unwrap_or_default();
        let packet = Packet {
            diagnostic: Diagnostic::from_bits(*first),
            state: State::from_bits(second >> 6),
            flags: flags(*second),
            detect_multiplier: *detect_multiplier,
            my_discriminator: word(),
            your_discriminator: word(),
            desired_min_tx: word(),
            required_min_rx: word(),
            required_min_echo_rx: word(),
        };
        check(&packet, second & 0x01 != 0)?;
        let authentication = has_authentication.then(|| authentication(&octets[MANDATORY..]));
        Ok(Self { packet, authentication, octets })
    }

    /// Whether the packet names this key, and its digest is right. How much of the digest is right cannot be told from the
    /// time that this takes.
    pub fn is_signed_with(&self, key: &Key) -> bool {
        let Some(Authentication::Digest { algorithm, key: id, .. }) = self.authentication else {
            return false;
        };
        let mut copy = [0; LONGEST];
        let Some(copy) = copy.get_mut(..self.octets.len()) else { return false };
        copy.copy_from_slice(self.octets);
        if (id, algorithm) != (key.id(), key.algorithm()) {
            return false;
        }
        key.sign(copy);
        verify_slices_are_equal(copy, self.octets).is_ok()
    }
}

fn flags(octet: u8) -> Flags {
    Flags {
        poll: octet & 0x20 != 0,
        is_final: octet & 0x10 != 0,
        control_plane_independent: octet & 0x08 != 0,
        demand: octet & 0x02 != 0,
    }
}

fn check(packet: &Packet, multipoint: bool) -> Result<(), Malformed> {
    if packet.detect_multiplier == 0 {
        return Err(Malformed::DetectMultiplier);
    }
    if multipoint {
        return Err(Malformed::Multipoint);
    }
    if packet.my_discriminator == 0 {
        return Err(Malformed::MyDiscriminator);
    }
    match packet.state {
        State::Init | State::Up if packet.your_discriminator == 0 => {
            Err(Malformed::YourDiscriminator(packet.state))
        }
        _ => Ok(()),
    }
}

/// The section, which has at least two octets. Its digest ends where the packet ends (RFC 5880 sections 4.3 and 4.4).
fn authentication(section: &[u8]) -> Authentication {
    let [number, length, key, _, a, b, c, d, ..] = *section else { return Authentication::Foreign };
    match Algorithm::from_type(number) {
        Some(algorithm)
            if section.len() == BEFORE_DIGEST + algorithm.length()
                && usize::from(length) == section.len() =>
        {
            Authentication::Digest { algorithm, key, sequence: u32::from_be_bytes([a, b, c, d]) }
        }
        _ => Authentication::Foreign,
    }
}
