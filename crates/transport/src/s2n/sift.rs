//! What comes to a socket, before the library reads it.

use std::{net::SocketAddr, sync::Arc};

use holdfast_tls_wire::VERSION_1;
use s2n_codec::DecoderBufferMut;
use s2n_quic::provider::{event::events::Subject, packet_interceptor::PacketInterceptor};
use s2n_quic_core::packet::interceptor::Datagram;

use super::keys::Keys;
use crate::stray::Strays;

/// Counts strays, and shows the library those of another version only that are to be answered.
pub(super) struct Sift {
    pub(super) keys: Keys,
    pub(super) strays: Arc<Strays>,
}

impl PacketInterceptor for Sift {
    fn intercept_rx_datagram<'a>(
        &mut self,
        _: &Subject,
        datagram: &Datagram<'_>,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        let octets = payload.into_less_safe_slice();
        let addresses = (SocketAddr::from(&datagram.remote_address), None);
        let is_ours = |id: &[u8]| self.keys.may_have_made(id);
        let is_shown = self.strays.pass(addresses, octets, Keys::ID, is_ours);
        let length = if is_shown && is_legible(octets) { octets.len() } else { 0 };
        DecoderBufferMut::new(&mut octets[..length])
    }
}

/// Makes of a packet of another version one that the library reads, and answers from the address that was asked: it looks
/// at the version only of what has the form of an Initial of version 1. `false`: its connection ids leave no room.
fn is_legible(octets: &mut [u8]) -> bool {
    /// First octet and version.
    const HEAD: usize = 5;
    let is_other = octets.first_chunk::<HEAD>().is_some_and(|[first, version @ ..]| {
        first & 0x80 != 0 && ![0, VERSION_1].contains(&u32::from_be_bytes(*version))
    });
    if !is_other {
        return true;
    }
    let length_at = |octets: &[u8], at: usize| octets.get(at).map(|length| at + 1 + usize::from(*length));
    let end = length_at(octets, HEAD).and_then(|source| length_at(octets, source));
    // No token, and all of the rest.
    let Some([token, length @ ..]) = end.and_then(|end| octets.get_mut(end..)) else { return false };
    let Some((prefix, rest)) = length.split_first_chunk_mut::<4>() else { return false };
    let Ok(rest) = u32::try_from(rest.len()) else { return false };
    *token = 0;
    // A number of four octets (RFC 9000 section 16).
    *prefix = (rest | 0x8000_0000).to_be_bytes();
    octets[0] = 0xc0;
    true
}

#[cfg(test)]
mod tests {
    use holdfast_tls_wire::{Packet, packet};

    use super::*;

    #[test]
    fn what_is_of_another_version_looks_like_an_initial_and_keeps_its_ids() {
        for (source, is_fine) in [(0, true), (20, true), (255, true)] {
            let mut datagram = vec![0xff, 0xba, 0xba, 0xba, 0xba, 3, 7, 8, 9, source];
            datagram.resize(1200, 0xee);
            assert_eq!(is_legible(&mut datagram), is_fine, "{source}");
            assert_eq!(datagram[1..10], [0xba, 0xba, 0xba, 0xba, 3, 7, 8, 9, source]);
            datagram[1..5].copy_from_slice(&VERSION_1.to_be_bytes());
            if source <= 20 {
                let Ok(Packet::Initial(initial)) = packet(&datagram) else { panic!("{source}") };
                assert_eq!(
                    (initial.destination, initial.source.len()),
                    (&[7, 8, 9][..], usize::from(source))
                );
                assert_eq!((initial.token, initial.end), (&[][..], 1200));
            }
        }
    }

    #[test]
    fn what_is_cut_is_not_legible_and_what_is_ours_stays() {
        let cut = [0xff, 0xba, 0xba, 0xba, 0xba, 3, 7, 8, 9, 20, 1, 2];
        for length in 5..cut.len() {
            assert!(!is_legible(&mut cut[..length].to_vec()), "{length}");
        }
        for ours in [&[0xd0, 0, 0, 0, 1, 3][..], &[0x80, 0, 0, 0, 0, 3], &[0x40, 9], &[]] {
            let mut octets = ours.to_vec();
            assert!(is_legible(&mut octets));
            assert_eq!(octets, ours);
        }
    }
}
