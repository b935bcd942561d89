//! One path attribute: flags, type code, value (RFC 4271 section 4.3), and the walk over a list of them.

/// Type codes, as numbered by IANA. These are the ones that this crate reads; all others are carried as
/// unknown, the deprecated ones (11 to 13, 19 to 21, 28, 30, 31, 129, 241 to 243) among them.
#[allow(missing_docs, reason = "the names are the RFCs'")]
pub mod code {
    pub const ORIGIN: u8 = 1;
    pub const AS_PATH: u8 = 2;
    pub const NEXT_HOP: u8 = 3;
    pub const MULTI_EXIT_DISC: u8 = 4;
    pub const LOCAL_PREF: u8 = 5;
    pub const ATOMIC_AGGREGATE: u8 = 6;
    pub const AGGREGATOR: u8 = 7;
    pub const COMMUNITIES: u8 = 8;
    pub const ORIGINATOR_ID: u8 = 9;
    pub const CLUSTER_LIST: u8 = 10;
    pub const MP_REACH_NLRI: u8 = 14;
    pub const MP_UNREACH_NLRI: u8 = 15;
    pub const EXTENDED_COMMUNITIES: u8 = 16;
    pub const AS4_PATH: u8 = 17;
    pub const AS4_AGGREGATOR: u8 = 18;
    pub const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    pub const LARGE_COMMUNITIES: u8 = 32;
    /// RFC 8205. Its value is for `holdfast_bgpsec_wire`.
    pub const BGPSEC_PATH: u8 = 33;
    pub const ONLY_TO_CUSTOMER: u8 = 35;
}

/// Bits of the flags octet; the lower four are unused and ignored.
pub mod flag {
    /// Not well-known.
    pub const OPTIONAL: u8 = 0x80;
    /// Passed on by those who do not know it.
    pub const TRANSITIVE: u8 = 0x40;
    /// Someone on the way did not know it.
    pub const PARTIAL: u8 = 0x20;
    /// The length takes two octets.
    pub const EXTENDED_LENGTH: u8 = 0x10;
}

use flag::{EXTENDED_LENGTH, OPTIONAL, TRANSITIVE};

/// One attribute in a list.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Attribute<'a> {
    /// Flags octet as on the wire.
    pub flags: u8,
    /// Type code.
    pub code: u8,
    /// Value.
    pub value: &'a [u8],
    /// Header and value.
    pub wire: &'a [u8],
}

/// A list of attributes ends inside one; the type code if that much is there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Truncated(pub(crate) Option<u8>);

/// Walks a list of attributes; ends after the first that is cut off.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a>(pub(crate) &'a [u8]);

impl<'a> Walk<'a> {
    #[inline]
    fn read(list: &'a [u8]) -> Option<(Attribute<'a>, &'a [u8])> {
        let (&[flags, code], rest) = list.split_first_chunk()?;
        let (len, header) = if flags & EXTENDED_LENGTH == 0 {
            (usize::from(*rest.first()?), 3)
        } else {
            (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), 4)
        };
        let (wire, rest) = list.split_at_checked(header + len)?;
        Some((Attribute { flags, code, value: &wire[header..], wire }, rest))
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Attribute<'a>, Truncated>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let list = std::mem::take(&mut self.0);
        let Some((attribute, rest)) = Self::read(list) else {
            return Some(Err(Truncated(list.get(1).copied())));
        };
        self.0 = rest;
        Some(Ok(attribute))
    }
}

/// Appends an attribute, with a two-octet length only where one is too short. Values are at most 65535 octets.
pub fn push(out: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    push_header(out, flags, code, value.len());
    out.extend_from_slice(value);
}

/// As [`push`], for a value of `len` octets that the caller appends.
pub(crate) fn push_header(out: &mut Vec<u8>, flags: u8, code: u8, len: usize) {
    match u8::try_from(len) {
        Ok(len) => out.extend_from_slice(&[flags & !EXTENDED_LENGTH, code, len]),
        Err(_) => {
            let [high, low] = (len as u16).to_be_bytes();
            out.extend_from_slice(&[flags | EXTENDED_LENGTH, code, high, low]);
        }
    }
}

/// The Optional and Transitive bits of an attribute that this crate knows; `None` for any other.
#[inline]
pub(crate) fn class(code: u8) -> Option<u8> {
    use code::*;
    Some(match code {
        ORIGIN | AS_PATH | NEXT_HOP | LOCAL_PREF | ATOMIC_AGGREGATE => TRANSITIVE,
        MULTI_EXIT_DISC | ORIGINATOR_ID | CLUSTER_LIST | MP_REACH_NLRI | MP_UNREACH_NLRI => OPTIONAL,
        AGGREGATOR
        | COMMUNITIES
        | EXTENDED_COMMUNITIES
        | AS4_PATH
        | AS4_AGGREGATOR
        | IPV6_EXTENDED_COMMUNITIES
        | LARGE_COMMUNITIES
        | ONLY_TO_CUSTOMER => OPTIONAL | TRANSITIVE,
        _ => return None,
    })
}

/// Whether IANA has assigned the type code, which this crate does not read, to an attribute that its RFC makes optional.
pub(crate) fn is_assigned_optional(code: u8) -> bool {
    // In this order: PMSI Tunnel, PE Distinguisher Labels (RFC 6514); Tunnel Encapsulation (RFC 9012); Traffic Engineering
    // (RFC 5543); AIGP (RFC 7311); BGP-LS (RFC 9552); BGPsec_PATH (RFC 8205); SFP (RFC 9015); BFD Discriminator (RFC 9026);
    // BGP Prefix-SID (RFC 8669); BIER (RFC 9793); ATTR_SET (RFC 6368).
    matches!(code, 22 | 27 | 23 | 24 | 26 | 29 | code::BGPSEC_PATH | 37 | 38 | 40 | 41 | 128)
}

/// The name of an attribute as RFCs and operators write it.
pub fn name(code: u8) -> Option<&'static str> {
    use code::*;
    Some(match code {
        ORIGIN => "ORIGIN",
        AS_PATH => "AS_PATH",
        NEXT_HOP => "NEXT_HOP",
        MULTI_EXIT_DISC => "MULTI_EXIT_DISC",
        LOCAL_PREF => "LOCAL_PREF",
        ATOMIC_AGGREGATE => "ATOMIC_AGGREGATE",
        AGGREGATOR => "AGGREGATOR",
        COMMUNITIES => "COMMUNITIES",
        ORIGINATOR_ID => "ORIGINATOR_ID",
        CLUSTER_LIST => "CLUSTER_LIST",
        MP_REACH_NLRI => "MP_REACH_NLRI",
        MP_UNREACH_NLRI => "MP_UNREACH_NLRI",
        EXTENDED_COMMUNITIES => "EXTENDED_COMMUNITIES",
        AS4_PATH => "AS4_PATH",
        AS4_AGGREGATOR => "AS4_AGGREGATOR",
        IPV6_EXTENDED_COMMUNITIES => "IPV6_EXTENDED_COMMUNITIES",
        LARGE_COMMUNITIES => "LARGE_COMMUNITIES",
        BGPSEC_PATH => "BGPsec_PATH",
        ONLY_TO_CUSTOMER => "ONLY_TO_CUSTOMER",
        _ => return None,
    })
}
