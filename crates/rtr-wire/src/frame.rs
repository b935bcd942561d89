//! Where one PDU ends and the next begins.

use crate::{Malformed, PduType, Version};

/// Octets of the header that all PDUs have (RFC 8210 section 5.1).
pub const HEADER: usize = 8;

/// Octets of the longest PDU that is read or written. Version 2 has this bound (8210bis section 5.1); no PDU of the
/// others that makes sense comes near it.
pub const LONGEST: usize = 65535;

/// A whole PDU of which only the header was looked at.
#[derive(Copy, Clone, Debug)]
pub struct Frame<'a>(&'a [u8]);

impl<'a> Frame<'a> {
    /// Cuts the first PDU off; with it comes what follows. `None`: it has not come as a whole.
    ///
    /// # Errors
    /// The header tells a length that its PDU cannot have, which is told before more of it is waited for. Nothing
    /// after it can be read any more.
    pub fn split(octets: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, Malformed> {
        let Some(&[version, kind, _, _, a, b, c, d]) = octets.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]);
        let whole = usize::try_from(length).ok().filter(|length| (HEADER..=LONGEST).contains(length));
        let whole = whole.ok_or(Malformed::Length(length))?;
        // Who speaks an unknown version, or sends an unknown type, may have other lengths.
        if let (Some(version), Some(kind)) = (Version::from_octet(version), PduType::from_octet(kind))
            && !kind.lengths(version).contains(&whole)
        {
            return Err(Malformed::LengthOfType { kind, length });
        }
        Ok(octets.split_at_checked(whole).map(|(frame, rest)| (Self(frame), rest)))
    }

    /// All of it: what an Error Report encloses.
    pub fn octets(self) -> &'a [u8] {
        self.0
    }

    /// As it says; it may be none that there is.
    pub fn version(self) -> u8 {
        self.0[0]
    }

    /// As it says; it may be none that there is.
    pub fn pdu_type(self) -> u8 {
        self.0[1]
    }

    /// Session ID, error code, flags or nothing.
    pub(crate) fn field(self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }

    /// What follows the header.
    pub(crate) fn body(self) -> &'a [u8] {
        &self.0[HEADER..]
    }
}
