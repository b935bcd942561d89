//! The authentication of a RIPv2 message (RFC 2453 section 4.1, RFC 4822 section 2.1).

use crate::{Credentials, ENTRY, HEADER, Malformed, Unauthentic};

/// Address family of the authentication entry and of the trailer.
pub(crate) const FAMILY: [u8; 2] = [0xff, 0xff];
/// Authentication Type of a password.
pub(crate) const PASSWORD: u16 = 2;
/// Authentication Type of a digest.
pub(crate) const DIGEST: u16 = 3;
/// What stands before the digest at the end.
pub(crate) const TRAILER: [u8; 4] = [0xff, 0xff, 0, 1];

/// What a message says of who has sent it; nothing of it is proven before [`crate::Message::authenticate`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Authentication<'a> {
    /// Nothing. RIPng has nothing else (RFC 2080 section 4: IPsec).
    None,
    /// A password, padded with zeros.
    Password(&'a [u8; 16]),
    /// A digest.
    Signed(Signed<'a>),
    /// Of a type that is not known here.
    Unknown(u16),
}

/// A message with a digest (RFC 4822 section 2.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Signed<'a> {
    /// The Key Identifier.
    pub key: u8,
    /// The Sequence Number, which does not decrease from one message of a router to the next.
    pub sequence: u32,
    /// What the digest is made of.
    message: &'a [u8],
    digest: &'a [u8],
}

/// That a message was signed with a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// The Key Identifier.
    pub key: u8,
    /// The Sequence Number.
    pub sequence: u32,
}

impl<'a> Authentication<'a> {
    /// Takes the authentication off a message whose entries begin with `first`; what is left are route entries.
    pub(crate) fn read(octets: &'a [u8], first: &'a [u8; ENTRY]) -> Result<(Self, &'a [u8]), Malformed> {
        let &[_, _, high, low, ..] = first;
        let body = &octets[HEADER + ENTRY..];
        match u16::from_be_bytes([high, low]) {
            PASSWORD => {
                let password = first.last_chunk().ok_or(Malformed::Trailer)?;
                Ok((Self::Password(password), body))
            }
            DIGEST => Signed::read(octets, first).map(|(signed, body)| (Self::Signed(signed), body)),
            other => Ok((Self::Unknown(other), body)),
        }
    }

    /// RFC 2453 section 5.2. Gives a proof of a message with a digest.
    pub(crate) fn check(self, ours: Option<&Credentials>) -> Result<Option<Proof>, Unauthentic> {
        match (ours, self) {
            (None, Self::None) => Ok(None),
            (None, _) => Err(Unauthentic::Unexpected),
            (Some(_), Self::None) => Err(Unauthentic::Missing),
            (Some(_), Self::Unknown(kind)) => Err(Unauthentic::Type(kind)),
            (Some(Credentials::Password(ours)), Self::Password(theirs)) => {
                if ours.is(theirs) {
                    Ok(None)
                } else {
                    Err(Unauthentic::Password)
                }
            }
            (Some(Credentials::Keys(_)), Self::Password(_)) => Err(Unauthentic::Type(PASSWORD)),
            (Some(Credentials::Password(_)), Self::Signed(_)) => Err(Unauthentic::Type(DIGEST)),
            (Some(Credentials::Keys(keys)), Self::Signed(signed)) => {
                let key = keys.accepted(signed.key).ok_or(Unauthentic::Key(signed.key))?;
                if key.verifies(signed.message, signed.digest) {
                    Ok(Some(Proof { key: signed.key, sequence: signed.sequence }))
                } else {
                    Err(Unauthentic::Digest(signed.key))
                }
            }
        }
    }
}

impl<'a> Signed<'a> {
    fn read(octets: &'a [u8], first: &[u8; ENTRY]) -> Result<(Self, &'a [u8]), Malformed> {
        let &[_, _, _, _, high, low, key, length, a, b, c, d, ..] = first;
        let end = usize::from(u16::from_be_bytes([high, low]));
        let (packet, trailer) = octets.split_at_checked(end).ok_or(Malformed::Trailer)?;
        let body = packet.get(HEADER + ENTRY..).ok_or(Malformed::Trailer)?;
        let digest = trailer.strip_prefix(&TRAILER).ok_or(Malformed::Trailer)?;
        // Old routers count the four octets before an MD5 digest as well.
        let counted = [digest.len(), trailer.len()];
        let length = usize::from(length);
        if length != counted[0] && (length, counted[0]) != (counted[1], 16) {
            return Err(Malformed::Trailer);
        }
        let message = &octets[..end + TRAILER.len()];
        Ok((Self { key, sequence: u32::from_be_bytes([a, b, c, d]), message, digest }, body))
    }
}
