//! NOTIFICATION (RFC 4271 sections 4.5 and 6): the errors of the protocol, as sent and as an operator reads them.

use std::fmt;

use holdfast_types::Family;

use crate::{
    Capability, HEADER_LEN, MAX_LEN, MessageType,
    message::{begin, finish},
};

mod text;

/// The longest Shutdown Communication, in octets (RFC 9003).
pub const MAX_TEXT: usize = 255;

/// Room for data in a message of [`MAX_LEN`]: RFC 8654 section 5 forbids a longer NOTIFICATION to a peer
/// that may not take it, and none of ours needs one.
const MAX_DATA: usize = MAX_LEN - HEADER_LEN - 2;

/// An error that ends the session: what is sent for it or was received.
///
/// ```
/// use holdfast_bgp_wire::{CeaseSubcode, Notification};
/// let error = Notification::cease_with_text(CeaseSubcode::AdministrativeShutdown, "back at 5");
/// assert_eq!(error.to_string(), r#"Cease/Administrative Shutdown: "back at 5""#);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Notification {
    /// Error code.
    pub code: u8,
    /// Error subcode; 0 where none applies.
    pub subcode: u8,
    /// What explains the error, as its code and subcode define.
    pub data: Vec<u8>,
}

impl std::error::Error for Notification {}

/// Why a session is ended without a protocol error (RFC 4486, RFC 8538, RFC 9384).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are the RFCs'")]
pub enum CeaseSubcode {
    MaximumNumberOfPrefixesReached = 1,
    AdministrativeShutdown,
    PeerDeconfigured,
    AdministrativeReset,
    ConnectionRejected,
    OtherConfigurationChange,
    ConnectionCollisionResolution,
    OutOfResources,
    HardReset,
    BfdDown,
}

/// The states in which an unexpected message has a subcode of its own (RFC 6608).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum FsmState {
    OpenSent = 1,
    OpenConfirm,
    Established,
}

/// Subcodes of an UPDATE Message Error (RFC 4271 section 6.3).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum UpdateSubcode {
    MalformedAttributeList = 1,
    UnrecognizedWellKnownAttribute,
    MissingWellKnownAttribute,
    AttributeFlagsError,
    AttributeLengthError,
    InvalidOriginAttribute,
    InvalidNextHopAttribute = 8,
    OptionalAttributeError,
    InvalidNetworkField,
    MalformedAsPath,
}

impl Notification {
    fn new(code: u8, subcode: u8, data: &[u8]) -> Self {
        Self { code, subcode, data: data[..data.len().min(MAX_DATA)].to_vec() }
    }

    /// The marker is not all ones.
    pub fn connection_not_synchronized() -> Self {
        Self::new(1, 1, &[])
    }

    /// The length of the header cannot be.
    pub fn bad_message_length(length: u16) -> Self {
        Self::new(1, 2, &length.to_be_bytes())
    }

    /// As [`Self::bad_message_length`], of the message that has this body.
    pub(crate) fn bad_body_length(body: &[u8]) -> Self {
        Self::bad_message_length(u16::try_from(HEADER_LEN + body.len()).unwrap_or(u16::MAX))
    }

    /// The type of the header is unknown.
    pub fn bad_message_type(kind: u8) -> Self {
        Self::new(1, 3, &[kind])
    }

    /// The OPEN cannot be read; no subcode says more.
    pub fn malformed_open() -> Self {
        Self::new(2, 0, &[])
    }

    /// The peer speaks another version; we speak 4 only.
    pub fn unsupported_version_number() -> Self {
        Self::new(2, 1, &4u16.to_be_bytes())
    }

    /// The AS number of the OPEN is not the configured one, or none that a peer may have.
    pub fn bad_peer_as() -> Self {
        Self::new(2, 2, &[])
    }

    /// The BGP Identifier is zero or, inside an AS, our own (RFC 6286).
    pub fn bad_bgp_identifier() -> Self {
        Self::new(2, 3, &[])
    }

    /// The OPEN has an optional parameter other than capabilities.
    pub fn unsupported_optional_parameter() -> Self {
        Self::new(2, 4, &[])
    }

    /// The hold time is 1 or 2 seconds, or below what we accept.
    pub fn unacceptable_hold_time() -> Self {
        Self::new(2, 6, &[])
    }

    /// The peer lacks capabilities that the session cannot do without (RFC 5492 section 5).
    pub fn unsupported_capability(missing: &[Capability]) -> Self {
        let mut data = Vec::new();
        missing.iter().for_each(|capability| capability.push(&mut data));
        Self::new(2, 7, &data)
    }

    /// The roles of both sides do not fit, or the peer named two (RFC 9234 section 4.2).
    pub fn role_mismatch() -> Self {
        Self::new(2, 11, &[])
    }

    /// An UPDATE that cannot be used at all. `data` is what the subcode asks for; for most of them the
    /// erroneous attribute.
    pub fn update(subcode: UpdateSubcode, data: &[u8]) -> Self {
        Self::new(3, subcode as u8, data)
    }

    /// Nothing was heard for the hold time.
    pub fn hold_timer_expired() -> Self {
        Self::new(4, 0, &[])
    }

    /// A message of a type that the state does not allow (RFC 6608).
    pub fn fsm_error(state: FsmState) -> Self {
        Self::new(5, state as u8, &[])
    }

    /// The session is ended on purpose.
    pub fn cease(subcode: CeaseSubcode) -> Self {
        Self::new(6, subcode as u8, &[])
    }

    /// As [`Self::cease`], with a Shutdown Communication (RFC 9003), which only
    /// [`CeaseSubcode::AdministrativeShutdown`] and [`CeaseSubcode::AdministrativeReset`] carry: for others
    /// and for an empty text it is left out. It is cut at a character's border to [`MAX_TEXT`] octets.
    pub fn cease_with_text(subcode: CeaseSubcode, text: &str) -> Self {
        let mut cease = Self::cease(subcode);
        if cease.carries_text() && !text.is_empty() {
            cease.data = text::encode(text);
        }
        cease
    }

    /// This error as one after which no routes are kept: inside of a Hard Reset (RFC 8538 section 3.1).
    pub fn hard_reset(&self) -> Self {
        let mut data = vec![self.code, self.subcode];
        data.extend_from_slice(&self.data);
        Self::new(6, CeaseSubcode::HardReset as u8, &data)
    }

    /// What a Hard Reset is about; `None` for anything else.
    pub fn inside_hard_reset(&self) -> Option<Self> {
        let inside = Self::parse(&self.data).filter(|_| self.is_hard_reset())?;
        // One inside of another is nonsense, and could go on.
        (!inside.is_hard_reset()).then_some(inside)
    }

    /// Whether no routes are to be kept after it although both sides keep them after others.
    pub fn is_hard_reset(&self) -> bool {
        self.code == 6 && self.subcode == CeaseSubcode::HardReset as u8
    }

    /// The peer has announced more prefixes of the family than `limit` (RFC 4486 section 4).
    pub fn maximum_prefixes(family: Family, limit: u32) -> Self {
        let mut data = family.afi.0.to_be_bytes().to_vec();
        data.push(family.safi.0);
        data.extend_from_slice(&limit.to_be_bytes());
        Self::new(6, CeaseSubcode::MaximumNumberOfPrefixesReached as u8, &data)
    }

    /// A ROUTE-REFRESH of subtype 1 or 2 whose body is not four octets (RFC 7313 section 5).
    pub(crate) fn route_refresh_length(body: &[u8]) -> Self {
        let mut message = Vec::with_capacity(HEADER_LEN + body.len());
        let start = begin(&mut message, MessageType::RouteRefresh);
        message.extend_from_slice(&body[..body.len().min(MAX_DATA)]);
        finish(&mut message, start);
        Self::new(7, 1, &message)
    }

    /// The peer has not taken our bytes for too long (RFC 9687).
    pub fn send_hold_timer_expired() -> Self {
        Self::new(8, 0, &[])
    }

    /// Reads a body; `None` if it is shorter than two octets, which [`crate::next_message`] excludes. A
    /// broken NOTIFICATION is never answered (RFC 4271 section 6.4), hence no error here.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (&[code, subcode], data) = body.split_first_chunk()?;
        Some(Self { code, subcode, data: data.to_vec() })
    }

    /// The whole message, at most [`MAX_LEN`] octets: longer data is cut.
    pub fn encode(&self) -> Vec<u8> {
        let data = &self.data[..self.data.len().min(MAX_DATA)];
        let mut out = Vec::with_capacity(HEADER_LEN + 2 + data.len());
        let start = begin(&mut out, MessageType::Notification);
        out.extend_from_slice(&[self.code, self.subcode]);
        out.extend_from_slice(data);
        finish(&mut out, start);
        out
    }

    /// The Shutdown Communication, if there is a valid one (RFC 9003).
    pub fn text(&self) -> Option<&str> {
        self.carries_text().then(|| text::decode(&self.data)).flatten()
    }

    fn carries_text(&self) -> bool {
        self.code == 6 && matches!(self.subcode, 2 | 4)
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::describe(self, f)
    }
}
