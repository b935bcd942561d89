//! From octets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdfast_types::{Asn, Aspa, Prefix, RouterKey, Ski, Vrp};

use crate::{ErrorCode, ErrorReport, Frame, Malformed, Pdu, PduType, Record, Serial, Timing, Version};

/// Of the flags: it is announced.
pub(crate) const ANNOUNCE: u8 = 1;

impl Frame<'_> {
    /// Reads it in a version, which is the caller's to know: a session has one, whatever its PDUs say of themselves.
    ///
    /// # Errors
    /// It cannot be read; [`Malformed::code`] is for the other side.
    pub fn pdu(self, version: Version) -> Result<Pdu, Malformed> {
        let kind = PduType::from_octet(self.pdu_type()).ok_or(Malformed::Type(self.pdu_type()))?;
        if kind.since() > version {
            return Err(Malformed::TypeInVersion(kind, version));
        }
        let fault = Malformed::LengthOfType { kind, length: self.octets().len() as u32 };
        if !kind.lengths(version).contains(&self.octets().len()) {
            return Err(fault);
        }
        let session = self.field();
        let mut body = Reader(self.body());
        let pdu = match kind {
            PduType::SerialNotify => body.serial().map(|serial| Pdu::SerialNotify { session, serial }),
            PduType::SerialQuery => body.serial().map(|serial| Pdu::SerialQuery { session, serial }),
            PduType::ResetQuery => Some(Pdu::ResetQuery),
            PduType::CacheResponse => Some(Pdu::CacheResponse { session }),
            PduType::CacheReset => Some(Pdu::CacheReset),
            PduType::EndOfData => {
                body.serial().map(|serial| Pdu::EndOfData { session, serial, timing: body.timing() })
            }
            PduType::Ipv4Prefix => return prefix::<4>(body).unwrap_or(Err(fault)),
            PduType::Ipv6Prefix => return prefix::<16>(body).unwrap_or(Err(fault)),
            PduType::RouterKey => router_key(self.flags(), body),
            PduType::Aspa => return aspa(self.flags(), body).unwrap_or(Err(fault)),
            PduType::ErrorReport => return error_report(self.field(), body).ok_or(Malformed::ErrorReport),
        };
        pdu.ok_or(fault)
    }

    /// Where they are in the header.
    fn flags(self) -> u8 {
        self.octets()[2]
    }
}

fn said(flags: u8, record: Record) -> Pdu {
    if flags & ANNOUNCE == ANNOUNCE { Pdu::Announce(record) } else { Pdu::Withdraw(record) }
}

fn prefix<const N: usize>(mut body: Reader<'_>) -> Option<Result<Pdu, Malformed>>
where
    [u8; N]: Address,
{
    let [flags, length, max_length, _] = body.array()?;
    let address = body.array::<N>()?.address();
    let asn = body.asn()?;
    let Some(prefix) = Prefix::new(address, length) else {
        return Some(Err(Malformed::PrefixLength(length)));
    };
    let vrp = Vrp::new(prefix, max_length, asn).map_err(Malformed::from);
    Some(vrp.map(|vrp| said(flags, Record::Vrp(vrp))))
}

trait Address {
    fn address(self) -> IpAddr;
}

impl Address for [u8; 4] {
    fn address(self) -> IpAddr {
        Ipv4Addr::from_octets(self).into()
    }
}

impl Address for [u8; 16] {
    fn address(self) -> IpAddr {
        Ipv6Addr::from_octets(self).into()
    }
}

fn router_key(flags: u8, mut body: Reader<'_>) -> Option<Pdu> {
    let ski = Ski(body.array()?);
    let asn = body.asn()?;
    Some(said(flags, Record::RouterKey(RouterKey { asn, ski, spki: body.0.to_vec() })))
}

fn aspa(flags: u8, mut body: Reader<'_>) -> Option<Result<Pdu, Malformed>> {
    let customer = body.asn()?;
    let (providers, []) = body.0.as_chunks::<4>() else { return None };
    let announced = flags & ANNOUNCE == ANNOUNCE;
    let fault = match providers {
        [] if announced => Some(Malformed::NoProviders),
        [_, ..] if !announced => Some(Malformed::ProvidersWithdrawn),
        // Octets in the order of the network compare like the numbers.
        [first, _, ..] if *first == [0; 4] => Some(Malformed::ZeroAmongProviders),
        _ if !providers.is_sorted_by(|a, b| a < b) => Some(Malformed::ProvidersOutOfOrder),
        _ => None,
    };
    if let Some(fault) = fault {
        return Some(Err(fault));
    }
    let providers = providers.iter().map(|provider| Asn(u32::from_be_bytes(*provider))).collect();
    Some(Ok(said(flags, Record::Aspa(Aspa::new(customer, providers)))))
}

/// The text is made readable: who reads it are people.
fn error_report(code: u16, mut body: Reader<'_>) -> Option<Pdu> {
    let pdu = body.counted()?.to_vec();
    let text = String::from_utf8_lossy(body.counted()?).into_owned();
    body.0.is_empty().then(|| Pdu::ErrorReport(ErrorReport { code: ErrorCode::from_number(code), pdu, text }))
}

/// Octets, read from the front.
#[derive(Copy, Clone)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn asn(&mut self) -> Option<Asn> {
        self.u32().map(Asn)
    }

    fn serial(&mut self) -> Option<Serial> {
        self.u32().map(Serial)
    }

    fn timing(&mut self) -> Option<Timing> {
        Some(Timing { refresh: self.u32()?, retry: self.u32()?, expire: self.u32()? })
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}
