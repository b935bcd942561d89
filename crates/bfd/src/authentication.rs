//! Which packets are believed, and which number the next one of ours has (RFC 5880 sections 6.7.3, 6.7.4).

use holdfast_bfd_wire::{Authentication, Key, Received};

use crate::Profile;

/// The sequence numbers of a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sequence {
    /// bfd.XmitAuthSeq: of the next packet.
    pub(crate) next: u32,
    /// bfd.RcvAuthSeq, while bfd.AuthSeqKnown.
    pub(crate) received: Option<u32>,
}

impl Sequence {
    /// The number for a packet. Also where the neighbour would take the same one twice, each has another: it costs nothing.
    pub(crate) fn take(&mut self) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        number
    }

    /// Whether a packet is believed. Its number is remembered then.
    pub(crate) fn accepts(&mut self, received: &Received<'_>, profile: &Profile) -> bool {
        let sequence = match received.authentication {
            None => return profile.keys.is_empty(),
            Some(Authentication::Foreign) => return false,
            Some(Authentication::Digest { sequence, .. }) => sequence,
        };
        let is_believed = |key: &Key| {
            self.is_in_window(sequence, key.algorithm().is_meticulous(), profile)
                && received.is_signed_with(key)
        };
        let accepted = profile.accepted_keys().any(is_believed);
        if accepted {
            self.received = Some(sequence);
        }
        accepted
    }

    /// From the last number, or from the next one, to 3 times Detect Mult behind it.
    fn is_in_window(&self, sequence: u32, is_meticulous: bool, profile: &Profile) -> bool {
        let window = 3 * u32::from(profile.detect_multiplier.max(1));
        self.received.is_none_or(|last| {
            let ahead = sequence.wrapping_sub(last);
            (u32::from(is_meticulous)..=window).contains(&ahead)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_go_in_a_circle() {
        let mut sequence = Sequence { next: u32::MAX, received: Some(u32::MAX - 1) };
        assert_eq!([sequence.take(), sequence.take()], [u32::MAX, 0]);
        let profile = Profile::default();
        let meticulous = |number| sequence.is_in_window(number, true, &profile);
        assert!(meticulous(u32::MAX) && meticulous(0) && meticulous(7), "so far are 3 times 3");
        assert!(!meticulous(8) && !meticulous(u32::MAX - 1) && !meticulous(u32::MAX - 2));
        let keyed = |number| sequence.is_in_window(number, false, &profile);
        assert!(keyed(u32::MAX - 1) && keyed(7) && !keyed(8) && !keyed(u32::MAX - 2));
    }
}
