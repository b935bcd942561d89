//! Records: the common header (RFC 6396 section 2) and the way to what is inside.

use holdfast_types::{Afi, Family, Safi};

use crate::{
    Error, Fault, Message, PeerIndex, Rib, StateChange,
    reader::Reader,
    table::{IDENTIFIED, PLAIN},
};

const TABLE_DUMP_V2: u16 = 13;
const BGP4MP: u16 = 16;
const BGP4MP_ET: u16 = 17;

/// One record of a dump.
#[derive(Copy, Clone, Debug)]
pub struct Record<'a> {
    /// Where it starts in the dump.
    pub offset: usize,
    /// Seconds since 1970.
    pub timestamp: u32,
    /// Fraction of the second; zero where the type has none.
    pub microseconds: u32,
    /// MRT type.
    pub kind: u16,
    /// Subtype, with a meaning of its own for each type.
    pub subtype: u16,
    body: Reader<'a>,
}

/// What a record contains.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// The peers that RIB entries refer to by number.
    PeerIndex(PeerIndex<'a>),
    /// A prefix and the routes to it.
    Rib(Rib<'a>),
    /// A BGP message.
    Message(Message<'a>),
    /// A session changed its state.
    StateChange(StateChange),
    /// A type, subtype or family this crate does not read.
    Other,
}

/// The records of a dump. After an error it ends: the next record cannot be located.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    dump: Reader<'a>,
}

/// Reads a dump.
pub fn records(dump: &[u8]) -> Records<'_> {
    Records { dump: Reader::new(dump, 0) }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.dump.rest.is_empty() {
            return None;
        }
        let record = Record::read(&mut self.dump);
        if record.is_err() {
            self.dump.rest = &[];
        }
        Some(record)
    }
}

impl<'a> Record<'a> {
    fn read(dump: &mut Reader<'a>) -> Result<Self, Error> {
        let offset = dump.offset;
        let timestamp = dump.u32()?;
        let (kind, subtype) = (dump.u16()?, dump.u16()?);
        let length = dump.u32()?;
        let mut body = dump.part(length as usize)?;
        // RFC 6396 section 3: the fraction is counted as part of the message.
        let microseconds = if kind == BGP4MP_ET { body.u32()? } else { 0 };
        Ok(Self { offset, timestamp, microseconds, kind, subtype, body })
    }

    /// Reads the content.
    ///
    /// # Errors
    /// When the record is cut short or has something impossible in it. The records after it can still be read.
    pub fn body(&self) -> Result<Body<'a>, Error> {
        match self.kind {
            TABLE_DUMP_V2 => self.table_dump(),
            BGP4MP | BGP4MP_ET => self.bgp4mp(),
            _ => Ok(Body::Other),
        }
    }

    /// Subtypes of RFC 6396 section 4.3, and of RFC 8050 section 4 with a path identifier.
    fn table_dump(&self) -> Result<Body<'a>, Error> {
        let family = |afi, safi| Family { afi, safi };
        let multicast = Safi(2);
        let mut body = self.body;
        let (family, entry) = match self.subtype {
            1 => return PeerIndex::read(body).map(Body::PeerIndex),
            2 => (family(Afi::IPV4, Safi::UNICAST), PLAIN),
            3 => (family(Afi::IPV4, multicast), PLAIN),
            4 => (family(Afi::IPV6, Safi::UNICAST), PLAIN),
            5 => (family(Afi::IPV6, multicast), PLAIN),
            6 => return self.generic(),
            8 => (family(Afi::IPV4, Safi::UNICAST), IDENTIFIED),
            9 => (family(Afi::IPV4, multicast), IDENTIFIED),
            10 => (family(Afi::IPV6, Safi::UNICAST), IDENTIFIED),
            11 => (family(Afi::IPV6, multicast), IDENTIFIED),
            _ => return Ok(Body::Other),
        };
        let sequence = body.u32()?;
        Rib::read(sequence, family, entry, body).map(Body::Rib)
    }

    /// RIB_GENERIC (RFC 6396 section 4.3.3), for those families whose NLRI is a plain prefix.
    fn generic(&self) -> Result<Body<'a>, Error> {
        let mut body = self.body;
        let sequence = body.u32()?;
        let family = Family { afi: Afi(body.u16()?), safi: Safi(body.u8()?) };
        match family {
            Family { afi: Afi::IPV4 | Afi::IPV6, safi: Safi(1 | 2) } => {
                Rib::read(sequence, family, PLAIN, body).map(Body::Rib)
            }
            _ => Ok(Body::Other),
        }
    }

    /// Subtypes of RFC 6396 section 4.4, and of RFC 8050 section 3 for sessions with path identifiers.
    fn bgp4mp(&self) -> Result<Body<'a>, Error> {
        let four_octet_as = matches!(self.subtype, 4 | 5 | 7 | 9 | 11);
        let add_path = matches!(self.subtype, 8..=11);
        match self.subtype {
            0 | 5 => StateChange::read(self.body, four_octet_as).map(Body::StateChange),
            1 | 4 | 6..=11 => Message::read(self.body, four_octet_as, add_path).map(Body::Message),
            _ => Ok(Body::Other),
        }
    }
}

/// Nothing may follow.
pub(crate) fn at_end(reader: Reader<'_>) -> Result<(), Error> {
    match reader.rest.len() {
        0 => Ok(()),
        excess => Err(reader.error(Fault::Excess(excess))),
    }
}
