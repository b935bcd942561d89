//! Initials of a client that is none: under keys that everybody knows who knows the connection id (RFC 9001 section 5.2).

use anyhow::{Context, Result};
use rustls::{
    Side,
    crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
    quic::{Keys, Suite, Version},
};

/// Octets of a datagram with an Initial, at least (RFC 9000 section 14.1).
pub const INITIAL: usize = 1200;
/// Octets of a tag of AES-GCM.
const TAG: usize = 16;
/// Packet number of it.
const NUMBER: u32 = 1000;

/// An Initial as it is to be.
#[derive(Copy, Clone, Debug, Default)]
pub struct Initial<'a> {
    /// The connection id that its keys derive from.
    pub key: &'a [u8],
    /// The connection id that it is sent to.
    pub destination: &'a [u8],
    /// Its own, for the answer.
    pub source: &'a [u8],
    /// What came with a Retry.
    pub token: &'a [u8],
    /// What it says. PADDING follows.
    pub frames: &'a [u8],
}

impl Initial<'_> {
    /// As a datagram of [`INITIAL`] octets.
    ///
    /// # Errors
    /// There is more in it than fits.
    pub fn seal(&self) -> Result<Vec<u8>> {
        let Keys { local, .. } = suite()?.keys(self.key, Side::Client, Version::V1);
        let number = NUMBER.to_be_bytes();
        // Long header, Initial, four octets of packet number; version 1.
        let mut packet = vec![0xc3, 0, 0, 0, 1, self.destination.len() as u8];
        packet.extend(self.destination);
        packet.push(self.source.len() as u8);
        packet.extend(self.source);
        packet.extend(length(self.token.len()));
        packet.extend(self.token);
        let taken = packet.len() + 2 + number.len() + TAG;
        let payload = INITIAL.checked_sub(taken).filter(|room| self.frames.len() <= *room);
        let payload = payload.context("it does not fit into an Initial")?;
        packet.extend(length(number.len() + payload + TAG));
        let number_at = packet.len();
        packet.extend(number);
        let mut frames = self.frames.to_vec();
        frames.resize(payload, 0);
        let tag = local.packet.encrypt_in_place(NUMBER.into(), &packet, &mut frames)?;
        packet.extend(frames);
        packet.extend(tag.as_ref());
        let sample_at = number_at + number.len();
        let sample = packet[sample_at..sample_at + local.header.sample_len()].to_vec();
        let (first, rest) = packet.split_at_mut(1);
        let number = &mut rest[number_at - 1..number_at - 1 + number.len()];
        local.header.encrypt_in_place(&sample, &mut first[0], number)?;
        Ok(packet)
    }
}

/// A length below 2^14, in two octets (RFC 9000 section 16).
pub fn length(of: usize) -> [u8; 2] {
    (of as u16 | 0x4000).to_be_bytes()
}

/// What protects Initials.
fn suite() -> Result<Suite> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().context("a suite of TLS 1.3")?;
    suite.quic_suite().context("a suite of QUIC")
}

#[cfg(test)]
mod tests {
    use holdfast_tls_wire::Packet as Quic;

    use super::*;

    #[test]
    fn a_server_can_read_it() -> Result<()> {
        let initial = Initial {
            key: &[7; 8],
            destination: &[9; 20],
            source: &[3; 5],
            token: b"token",
            frames: &[0x1c],
        };
        let mut packet = initial.seal()?;
        assert_eq!(packet.len(), INITIAL);
        let Quic::Initial(read) = holdfast_tls_wire::packet(&packet)? else { panic!("no Initial") };
        let (number_at, end) = (read.number_at, read.end);
        assert_eq!((read.destination, read.source, read.token), (&[9; 20][..], &[3; 5][..], &b"token"[..]));
        assert_eq!(end, packet.len());
        let keys = suite()?.keys(initial.key, Side::Server, Version::V1);
        let sample = packet[number_at + 4..number_at + 20].to_vec();
        let (first, rest) = packet.split_at_mut(1);
        keys.remote.header.decrypt_in_place(
            &sample,
            &mut first[0],
            &mut rest[number_at - 1..number_at + 3],
        )?;
        let (header, payload) = packet.split_at_mut(number_at + 4);
        assert_eq!((header[0], &header[number_at..]), (0xc3, &NUMBER.to_be_bytes()[..]));
        let frames = keys.remote.packet.decrypt_in_place(NUMBER.into(), header, payload)?;
        assert_eq!(frames[..2], [0x1c, 0]);
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_said() {
        assert!(Initial { frames: &[0; INITIAL], ..Initial::default() }.seal().is_err());
    }
}
