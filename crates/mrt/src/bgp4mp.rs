//! BGP4MP (RFC 6396 section 4.4): messages and state changes of sessions.

use std::net::IpAddr;

use holdfast_types::{Afi, Asn};

use crate::{Error, reader::Reader, record::at_end};

/// The two ends of a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// AS number of the peer.
    pub peer_as: Asn,
    /// AS number of the collector.
    pub local_as: Asn,
    /// Interface index of the session, or zero.
    pub interface: u16,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Address of the collector.
    pub local: IpAddr,
}

impl Session {
    fn read(body: &mut Reader<'_>, four_octet_as: bool) -> Result<Self, Error> {
        let asn = |body: &mut Reader<'_>| {
            if four_octet_as { body.u32().map(Asn) } else { body.u16().map(|number| Asn(number.into())) }
        };
        let (peer_as, local_as) = (asn(body)?, asn(body)?);
        let interface = body.u16()?;
        let afi = Afi(body.u16()?);
        let (peer, local) = (body.address(afi)?, body.address(afi)?);
        Ok(Self { peer_as, local_as, interface, peer, local })
    }
}

/// A BGP message as it was received or sent.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// Between whom.
    pub session: Session,
    /// Whether AS numbers inside have four octets.
    pub four_octet_as: bool,
    /// Whether NLRI inside have path identifiers.
    pub add_path: bool,
    /// The whole message from its marker on.
    pub bytes: &'a [u8],
}

impl<'a> Message<'a> {
    pub(crate) fn read(mut body: Reader<'a>, four_octet_as: bool, add_path: bool) -> Result<Self, Error> {
        let session = Session::read(&mut body, four_octet_as)?;
        Ok(Self { session, four_octet_as, add_path, bytes: body.rest })
    }
}

/// A session went from one state of the FSM to another. Numbers are those of RFC 6396: 1 Idle to 6 Established.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StateChange {
    /// Between whom.
    pub session: Session,
    /// State before.
    pub old: u16,
    /// State after.
    pub new: u16,
}

impl StateChange {
    pub(crate) fn read(mut body: Reader<'_>, four_octet_as: bool) -> Result<Self, Error> {
        let session = Session::read(&mut body, four_octet_as)?;
        let (old, new) = (body.u16()?, body.u16()?);
        at_end(body)?;
        Ok(Self { session, old, new })
    }
}
