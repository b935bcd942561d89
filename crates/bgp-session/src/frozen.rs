//! A session on its way to another process, and its form in octets.
//!
//! ```text
//!  1 version         2 flags               4 connection       4 next dialled one
//!  4 our AS          4 our BGP Identifier  2 hold time        8 nanoseconds in Established
//!  8 sessions so far 4 failures            80 messages sent, received, by type
//!  1 + 3n families   1 + 3n families with extended next hops
//!  1 + 3n families with ORFs of the peer's, 1 + 3n with ours  the body of the peer's OPEN
//! ```
//! Numbers are in network order. In version 1 there is one octet of flags and nothing of ORFs: both are as if off.

use std::time::Duration;

use holdfast_bgp_wire::{MAX_LEN, Open};
use holdfast_types::{Afi, Asn, Family, RouterId, Safi};

use crate::{ConnId, Counters, Messages, Negotiated, Role};

/// The form that [`Frozen::to_bytes`] writes.
const VERSION: u8 = 2;
/// An earlier one that is read.
const FIRST_VERSION: u8 = 1;

/// A session that was Established: [`Peer::freeze`](crate::Peer::freeze) takes it down,
/// [`Peer::thaw`](crate::Peer::thaw) goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    pub(crate) id: ConnId,
    pub(crate) next_dialled: ConnId,
    pub(crate) role: Role,
    /// Our OPEN went without capabilities.
    pub(crate) plain: bool,
    /// It said that we take part in graceful restart after a NOTIFICATION, too.
    pub(crate) offered_retention: bool,
    /// It offered to say where refreshes begin and end.
    pub(crate) offered_enhanced_refresh: bool,
    /// Who we said we are.
    pub(crate) local: (Asn, RouterId),
    pub(crate) agreed: Agreed,
    /// The body of the peer's OPEN.
    pub(crate) peer_open: Box<[u8]>,
    /// How long it was Established.
    pub(crate) up_for: Duration,
    /// How often the session came up.
    pub(crate) established: u64,
    pub(crate) failures: u32,
    pub(crate) counters: Counters,
}

/// What both OPENs came to, as far as it depends on ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Seconds.
    hold_time: u16,
    four_octet_as: bool,
    /// We may send extended messages, and the peer may.
    extended: [bool; 2],
    families: Vec<Family>,
    extended_next_hop: Vec<Family>,
    /// Prefixes have path identifiers on their way to us, and from us: in which families, the peer's OPEN says.
    identifiers: [bool; 2],
    /// The peer may send ORFs (RFC 5291), and we may.
    orf: [Vec<Family>; 2],
    /// BGPsec is received, and sent, in each family of [`Family::ALL`].
    bgpsec: [[bool; 2]; 2],
}

impl From<&Negotiated> for Agreed {
    fn from(negotiated: &Negotiated) -> Self {
        Self {
            // A hold time has two octets on the wire.
            hold_time: negotiated.hold_time.as_secs() as u16,
            four_octet_as: negotiated.four_octet_as,
            extended: [negotiated.max_sent, negotiated.max_received].map(|most| most > MAX_LEN),
            families: negotiated.families.clone(),
            extended_next_hop: negotiated.extended_next_hop.clone(),
            identifiers: [&negotiated.identifiers_received, &negotiated.identifiers_sent]
                .map(|families| !families.is_empty()),
            orf: [negotiated.orf_received.clone(), negotiated.orf_sent.clone()],
            bgpsec: [&negotiated.bgpsec_received, &negotiated.bgpsec_sent]
                .map(|families| Family::ALL.map(|family| families.contains(&family))),
        }
    }
}

/// A frozen session cannot go on.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThawError {
    /// With the configuration of now, both OPENs would come to something else than was agreed: what the session needs
    /// is a Cease NOTIFICATION (Other Configuration Change), and a new one.
    #[error("the configuration has changed what the session had agreed on")]
    Changed,
}

/// The octets are no frozen session.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Another version of the form.
    #[error("a frozen session of version {0}, this is version {VERSION}")]
    Version(u8),
    /// Not what [`Frozen::to_bytes`] writes.
    #[error("no frozen session")]
    Malformed,
}

const OUTGOING: u8 = 1;
const PLAIN: u8 = 2;
const FOUR_OCTET_AS: u8 = 4;
const EXTENDED_SENT: u8 = 8;
const EXTENDED_RECEIVED: u8 = 16;
const IDENTIFIERS_RECEIVED: u8 = 32;
const IDENTIFIERS_SENT: u8 = 64;
/// A process that did not know of it did not offer it.
const OFFERED_RETENTION: u8 = 128;
/// In the second octet.
const OFFERED_ENHANCED_REFRESH: u8 = 1;
/// There as well: BGPsec received, by family, and sent.
const BGPSEC: [[u8; 2]; 2] = [[2, 4], [8, 16]];

impl Frozen {
    /// It has been Established for so much longer: it was frozen a while ago.
    pub fn age(&mut self, by: Duration) {
        self.up_for = self.up_for.saturating_add(by);
    }

    /// What is known beside it of what its process has counted afterwards: so many messages of each type sent in all, if
    /// that is more, and these received.
    pub fn count(&mut self, sent: [u64; 5], received: &Messages) {
        let Counters { sent: Messages(counted), received: Messages(before) } = &mut self.counters;
        counted.iter_mut().zip(sent).for_each(|(counted, sent)| *counted = sent.max(*counted));
        before.iter_mut().zip(received.0).for_each(|(before, more)| *before = before.saturating_add(more));
    }

    /// Its form in octets, for [`Self::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let offered = if self.offered_enhanced_refresh { OFFERED_ENHANCED_REFRESH } else { 0 };
        let bgpsec = BGPSEC.as_flattened().iter().zip(self.agreed.bgpsec.as_flattened());
        let more = bgpsec.filter(|(_, is_on)| **is_on).fold(offered, |more, (flag, _)| more | flag);
        let mut out = vec![VERSION, self.flags(), more];
        out.extend(self.id.0.to_be_bytes());
        out.extend(self.next_dialled.0.to_be_bytes());
        out.extend(self.local.0.0.to_be_bytes());
        out.extend(self.local.1.bits().to_be_bytes());
        out.extend(self.agreed.hold_time.to_be_bytes());
        // It lasts for 584 years.
        out.extend((self.up_for.as_nanos() as u64).to_be_bytes());
        out.extend(self.established.to_be_bytes());
        out.extend(self.failures.to_be_bytes());
        for Messages(by_type) in [self.counters.sent, self.counters.received] {
            by_type.iter().for_each(|count| out.extend(count.to_be_bytes()));
        }
        push_families(&mut out, &self.agreed.families);
        push_families(&mut out, &self.agreed.extended_next_hop);
        self.agreed.orf.iter().for_each(|families| push_families(&mut out, families));
        out.extend_from_slice(&self.peer_open);
        out
    }

    fn flags(&self) -> u8 {
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        flag(self.role == Role::Outgoing, OUTGOING)
            | flag(self.plain, PLAIN)
            | flag(self.agreed.four_octet_as, FOUR_OCTET_AS)
            | flag(self.agreed.extended[0], EXTENDED_SENT)
            | flag(self.agreed.extended[1], EXTENDED_RECEIVED)
            | flag(self.agreed.identifiers[0], IDENTIFIERS_RECEIVED)
            | flag(self.agreed.identifiers[1], IDENTIFIERS_SENT)
            | flag(self.offered_retention, OFFERED_RETENTION)
    }

    /// Reads what [`Self::to_bytes`] has written.
    ///
    /// # Errors
    /// Another version, or no frozen session at all.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Unreadable> {
        match bytes.split_first() {
            Some((&version @ (FIRST_VERSION | VERSION), rest)) => {
                Self::read(version, &mut Reader(rest)).ok_or(Unreadable::Malformed)
            }
            Some((&other, _)) => Err(Unreadable::Version(other)),
            None => Err(Unreadable::Malformed),
        }
    }

    fn read(version: u8, from: &mut Reader<'_>) -> Option<Self> {
        let [flags] = from.take()?;
        let is_first = version == FIRST_VERSION;
        let [more] = if is_first { [0] } else { from.take()? };
        let has = |flag| flags & flag != 0;
        let (id, next_dialled) = (ConnId(from.u32()?), ConnId(from.u32()?));
        let local = (Asn(from.u32()?), RouterId::new(from.u32()?)?);
        let hold_time = u16::from_be_bytes(from.take()?);
        let (up_for, established, failures) = (Duration::from_nanos(from.u64()?), from.u64()?, from.u32()?);
        let counters = Counters { sent: from.messages()?, received: from.messages()? };
        let (families, extended_next_hop) = (from.families()?, from.families()?);
        let orf = if is_first { Default::default() } else { [from.families()?, from.families()?] };
        let peer_open: Box<[u8]> = from.0.into();
        let known = BGPSEC.as_flattened().iter().fold(OFFERED_ENHANCED_REFRESH, |known, flag| known | flag);
        let is_sound = more & !known == 0
            && id.is_dialled() == has(OUTGOING)
            && next_dialled.is_dialled()
            && Open::parse(&peer_open).is_ok();
        let agreed = Agreed {
            hold_time,
            four_octet_as: has(FOUR_OCTET_AS),
            extended: [has(EXTENDED_SENT), has(EXTENDED_RECEIVED)],
            families,
            extended_next_hop,
            identifiers: [has(IDENTIFIERS_RECEIVED), has(IDENTIFIERS_SENT)],
            orf,
            bgpsec: BGPSEC.map(|direction| direction.map(|flag| more & flag != 0)),
        };
        is_sound.then_some(Self {
            id,
            next_dialled,
            role: if has(OUTGOING) { Role::Outgoing } else { Role::Incoming },
            plain: has(PLAIN),
            offered_retention: has(OFFERED_RETENTION),
            offered_enhanced_refresh: more & OFFERED_ENHANCED_REFRESH != 0,
            local,
            agreed,
            peer_open,
            up_for,
            established,
            failures,
            counters,
        })
    }
}

/// A session has as many as are configured, which are two so far.
fn push_families(out: &mut Vec<u8>, families: &[Family]) {
    out.push(families.len() as u8);
    for Family { afi, safi } in families {
        out.extend(afi.0.to_be_bytes());
        out.push(safi.0);
    }
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (octets, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*octets)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn messages(&mut self) -> Option<Messages> {
        let mut by_type = [0; _];
        for count in &mut by_type {
            *count = self.u64()?;
        }
        Some(Messages(by_type))
    }

    fn families(&mut self) -> Option<Vec<Family>> {
        let [count] = self.take()?;
        let family = |_| {
            self.take().map(|[a, b, safi]| Family { afi: Afi(u16::from_be_bytes([a, b])), safi: Safi(safi) })
        };
        (0..count).map(family).collect()
    }
}
