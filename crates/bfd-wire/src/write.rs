//! Writing.

use crate::{BEFORE_DIGEST, Flags, Key, LONGEST, MANDATORY, Packet, VERSION};

/// The octets of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Octets {
    octets: [u8; LONGEST],
    length: u8,
}

impl Octets {
    /// All of them.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.length)]
    }
}

impl Packet {
    /// The octets of the packet, signed with a key and this sequence number, if there is a key.
    pub fn write(&self, authentication: Option<(&Key, u32)>) -> Octets {
        let section = authentication.map_or(0, |(key, _)| BEFORE_DIGEST + key.algorithm().length());
        // At most `LONGEST`.
        let length = (MANDATORY + section) as u8;
        let mut octets = [0; LONGEST];
        let has_authentication = u8::from(authentication.is_some()) << 2;
        let state = (self.state as u8) << 6;
        octets[0] = VERSION << 5 | self.diagnostic.bits();
        octets[1] = state | bits(self.flags) | has_authentication;
        octets[2] = self.detect_multiplier;
        octets[3] = length;
        let words = [
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx,
            self.required_min_rx,
            self.required_min_echo_rx,
        ];
        for (place, word) in octets[4..MANDATORY].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        if let Some((key, sequence)) = authentication {
            octets[MANDATORY] = key.algorithm() as u8;
            octets[MANDATORY + 1] = section as u8;
            octets[MANDATORY + 2] = key.id();
            octets[MANDATORY + 4..MANDATORY + BEFORE_DIGEST].copy_from_slice(&sequence.to_be_bytes());
            key.sign(&mut octets[..usize::from(length)]);
        }
        Octets { octets, length }
    }
}

fn bits(flags: Flags) -> u8 {
    let Flags { poll, is_final, control_plane_independent, demand } = flags;
    u8::from(poll) << 5
        | u8::from(is_final) << 4
        | u8::from(control_plane_independent) << 3
        | u8::from(demand) << 1
}
