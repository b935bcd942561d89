//! UPDATE as sent: one set of attributes and many prefixes into as few messages as hold them.

use holdfast_types::{Family, IpPrefix, Ipv4Prefix};

use crate::{
    MessageType, NextHop,
    attribute::{Walk, code, flag},
    message::{begin, finish},
    nlri::Nlri,
};

/// Header and both length fields.
const FIXED: usize = 23;
const LONG_OPTIONAL: u8 = flag::OPTIONAL | flag::EXTENDED_LENGTH;

/// The attributes leave no room for a prefix: the routes cannot be announced to this peer (RFC 8654 section 4).
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{octets} octets of attributes do not fit a message of {max_len}")]
pub struct AttributesTooLong {
    /// Octets of attributes, those of MP_REACH_NLRI without prefixes included.
    pub octets: usize,
    /// The session's limit.
    pub max_len: usize,
}

impl AttributesTooLong {
    /// Octets that a single prefix may have beside these attributes: shorter ones than the longest of the family may fit.
    pub fn room(&self) -> usize {
        self.max_len.saturating_sub(FIXED + self.octets)
    }
}

/// Builds UPDATEs for sessions with one message limit. Everything is appended to one buffer; attribute bytes
/// come from [`crate::edit::rewrite`]. Prefixes may have path identifiers ([`crate::nlri::Identified`]). Each function returns how many messages it has appended.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct UpdateEncoder {
    max_len: usize,
}

impl UpdateEncoder {
    /// `max_len` is [`crate::MAX_LEN`] or [`crate::MAX_EXTENDED_LEN`]; other values are brought between them.
    pub fn new(max_len: usize) -> Self {
        Self { max_len: max_len.clamp(crate::MAX_LEN, crate::MAX_EXTENDED_LEN) }
    }

    /// Announces IPv4 prefixes in the NLRI field; `attributes` has the NEXT_HOP.
    ///
    /// # Errors
    /// The longest prefix of the family would not fit; nothing is appended.
    pub fn announce<N: Nlri<Prefix = Ipv4Prefix>>(
        &self,
        attributes: &[u8],
        prefixes: impl IntoIterator<Item = N>,
        out: &mut Vec<u8>,
    ) -> Result<usize, AttributesTooLong> {
        self.announce_short(N::MAX_OCTETS, attributes, prefixes, out)
    }

    /// The same of prefixes that have at most so many octets.
    ///
    /// # Errors
    /// One of so many octets would not fit; nothing is appended.
    pub fn announce_short<N: Nlri<Prefix = Ipv4Prefix>>(
        &self,
        longest: usize,
        attributes: &[u8],
        prefixes: impl IntoIterator<Item = N>,
        out: &mut Vec<u8>,
    ) -> Result<usize, AttributesTooLong> {
        self.check_room(attributes.len(), longest)?;
        let begin_message = |out: &mut Vec<u8>| {
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
            out.extend_from_slice(attributes);
        };
        Ok(self.fill(prefixes, 0, out, begin_message, |_, _| {}))
    }

    /// Announces prefixes of either family in MP_REACH_NLRI, which goes first (RFC 7606 section 5.1);
    /// `attributes` has no NEXT_HOP. For IPv4 prefixes with an IPv6 next hop the session must have
    /// negotiated RFC 8950.
    ///
    /// # Errors
    /// The longest prefix of the family would not fit; nothing is appended.
    pub fn announce_mp<N: Nlri>(
        &self,
        attributes: &[u8],
        next_hop: NextHop,
        prefixes: impl IntoIterator<Item = N>,
        out: &mut Vec<u8>,
    ) -> Result<usize, AttributesTooLong> {
        self.announce_mp_short(N::MAX_OCTETS, attributes, next_hop, prefixes, out)
    }

    /// The same of prefixes that have at most so many octets.
    ///
    /// # Errors
    /// One of so many octets would not fit; nothing is appended.
    pub fn announce_mp_short<N: Nlri>(
        &self,
        longest: usize,
        attributes: &[u8],
        next_hop: NextHop,
        prefixes: impl IntoIterator<Item = N>,
        out: &mut Vec<u8>,
    ) -> Result<usize, AttributesTooLong> {
        self.check_room(attributes.len() + mp_octets(next_hop), longest)?;
        Ok(self.fill_mp(attributes, next_hop, prefixes, out))
    }

    /// The same of one route, which fits if there is room for just this one: others cannot share its message, as those with
    /// signatures (RFC 8205 section 4.1).
    ///
    /// # Errors
    /// It does not fit; nothing is appended.
    pub fn announce_alone<N: Nlri>(
        &self,
        attributes: &[u8],
        next_hop: NextHop,
        route: N,
        out: &mut Vec<u8>,
    ) -> Result<usize, AttributesTooLong> {
        self.check_room(attributes.len() + mp_octets(next_hop), route.octets())?;
        Ok(self.fill_mp(attributes, next_hop, [route], out))
    }

    fn fill_mp<N: Nlri>(
        &self,
        attributes: &[u8],
        next_hop: NextHop,
        prefixes: impl IntoIterator<Item = N>,
        out: &mut Vec<u8>,
    ) -> usize {
        let begin_message = |out: &mut Vec<u8>| {
            push_mp_header(code::MP_REACH_NLRI, N::Prefix::UNICAST, out);
            out.push(next_hop.octets());
            next_hop.push(out);
            out.push(0);
        };
        let end_message = |out: &mut Vec<u8>, start: usize| {
            set_mp_length(start, out);
            out.extend_from_slice(attributes);
            set_attributes_length(start, out);
        };
        self.fill(prefixes, attributes.len(), out, begin_message, end_message)
    }

    /// Withdraws IPv4 prefixes in the Withdrawn Routes field.
    pub fn withdraw<N: Nlri<Prefix = Ipv4Prefix>>(
        &self,
        prefixes: impl IntoIterator<Item = N>,
        out: &mut Vec<u8>,
    ) -> usize {
        let end_message = |out: &mut Vec<u8>, start: usize| {
            let withdrawn = out.len() - start - 21;
            out[start + 19..start + 21].copy_from_slice(&(withdrawn as u16).to_be_bytes());
            out.extend_from_slice(&[0, 0]);
        };
        self.fill(prefixes, 2, out, |out| out.extend_from_slice(&[0, 0]), end_message)
    }

    /// Withdraws prefixes of either family in MP_UNREACH_NLRI.
    pub fn withdraw_mp<N: Nlri>(&self, prefixes: impl IntoIterator<Item = N>, out: &mut Vec<u8>) -> usize {
        let begin_message =
            |out: &mut Vec<u8>| push_mp_header(code::MP_UNREACH_NLRI, N::Prefix::UNICAST, out);
        let end_message = |out: &mut Vec<u8>, start: usize| {
            set_mp_length(start, out);
            set_attributes_length(start, out);
        };
        self.fill(prefixes, 0, out, begin_message, end_message)
    }

    fn check_room(&self, attributes: usize, prefix: usize) -> Result<(), AttributesTooLong> {
        if FIXED + attributes + prefix <= self.max_len {
            return Ok(());
        }
        Err(AttributesTooLong { octets: attributes, max_len: self.max_len })
    }

    /// Messages full of prefixes. `begin_message` writes what comes between header and prefixes, `end_message`
    /// what comes after them (`tail` octets) and is given where the message starts. A prefix fits every
    /// message: [`Self::check_room`], or a message with no attributes of others.
    fn fill<N: Nlri>(
        &self,
        prefixes: impl IntoIterator<Item = N>,
        tail: usize,
        out: &mut Vec<u8>,
        begin_message: impl Fn(&mut Vec<u8>),
        end_message: impl Fn(&mut Vec<u8>, usize),
    ) -> usize {
        let room = self.max_len - tail;
        let mut prefixes = prefixes.into_iter();
        let mut next = prefixes.next();
        let mut messages = 0;
        while let Some(first) = next {
            let start = begin(out, MessageType::Update);
            begin_message(out);
            first.push(out);
            next = prefixes.next();
            while let Some(prefix) = next {
                let end = out.len();
                prefix.push(out);
                if out.len() - start > room {
                    out.truncate(end);
                    break;
                }
                next = prefixes.next();
            }
            end_message(out, start);
            finish(out, start);
            messages += 1;
        }
        messages
    }
}

/// Those of MP_REACH_NLRI without prefixes: attribute header, family, length of the next hop, next hop, reserved octet.
fn mp_octets(next_hop: NextHop) -> usize {
    4 + 3 + 1 + usize::from(next_hop.octets()) + 1
}

/// Appends the End-of-RIB of a family (RFC 4724 section 2).
pub fn end_of_rib(family: Family, out: &mut Vec<u8>) {
    let start = begin(out, MessageType::Update);
    if family == Family::IPV4_UNICAST {
        out.extend_from_slice(&[0, 0, 0, 0]);
    } else {
        out.extend_from_slice(&[0, 0, 0, 6, flag::OPTIONAL, code::MP_UNREACH_NLRI, 3]);
        push_family(family, out);
    }
    finish(out, start);
}

/// Where the next hops stand in messages of [`UpdateEncoder::announce`] or [`UpdateEncoder::announce_mp`]: whoever
/// has another address on each link puts that in there instead of encoding once more.
pub fn next_hops(messages: &[u8]) -> impl Iterator<Item = usize> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let message = messages.get(start..).filter(|rest| rest.len() > FIXED)?;
        let length = usize::from(u16::from_be_bytes([message[16], message[17]]));
        let mut at = start + FIXED;
        let attribute = Walk(message.get(FIXED..length)?).map_while(Result::ok).find(|attribute| {
            let found = matches!(attribute.code, code::NEXT_HOP | code::MP_REACH_NLRI);
            at += if found { 0 } else { attribute.wire.len() };
            found
        })?;
        start += length;
        // In front of it in MP_REACH_NLRI: the family, and its length.
        let before = if attribute.code == code::NEXT_HOP { 0 } else { 4 };
        Some(at + attribute.wire.len() - attribute.value.len() + before)
    })
}

/// What stands before and behind the NEXT_HOP in attribute octets; everything stands before it if there is none.
pub fn around_next_hop(attributes: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    for attribute in Walk(attributes).map_while(Result::ok) {
        if attribute.code == code::NEXT_HOP {
            return (&attributes[..at], &attributes[at + attribute.wire.len()..]);
        }
        at += attribute.wire.len();
    }
    (attributes, &[])
}

fn push_family(family: Family, out: &mut Vec<u8>) {
    out.extend_from_slice(&family.afi.0.to_be_bytes());
    out.push(family.safi.0);
}

/// No withdrawn routes, attributes of a length yet unknown, and an MP attribute of a length yet unknown.
fn push_mp_header(code: u8, family: Family, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0, 0, 0, LONG_OPTIONAL, code, 0, 0]);
    push_family(family, out);
}

/// Of the MP attribute that ends with `out`.
fn set_mp_length(start: usize, out: &mut [u8]) {
    let value = start + FIXED + 4;
    let length = (out.len() - value) as u16;
    out[value - 2..value].copy_from_slice(&length.to_be_bytes());
}

fn set_attributes_length(start: usize, out: &mut [u8]) {
    let length = (out.len() - start - FIXED) as u16;
    out[start + FIXED - 2..start + FIXED].copy_from_slice(&length.to_be_bytes());
}
