//! OPEN (RFC 4271 sections 4.2 and 6.2) with its capabilities (RFC 5492) and long parameters (RFC 9072).

use holdfast_types::{AS_TRANS, Asn, RouterId};

use crate::{
    Capability, MAX_LEN, MessageType, Notification,
    message::{begin, finish},
};

const VERSION: u8 = 4;
const PARAMETER_CAPABILITIES: u8 = 2;
/// As first parameter type: lengths are of two octets (RFC 9072 section 2).
const PARAMETER_EXTENDED: u8 = 255;
/// Octets before the capabilities in the longest form: header, fixed fields, extended lengths.
const MAX_CAPABILITIES: usize = MAX_LEN - 19 - 10 - 3 - 3;

/// An OPEN message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// The number of the four-octet AS capability if there is one, else of the fixed field.
    pub asn: Asn,
    /// Seconds: 0, or 3 and more.
    pub hold_time: u16,
    /// BGP Identifier.
    pub router_id: RouterId,
    /// In the order sent. What an RFC says of repeated ones is left to whoever negotiates, but for Role.
    pub capabilities: Vec<Capability>,
}

impl Open {
    /// Reads a body.
    ///
    /// # Errors
    /// The NOTIFICATION of RFC 4271 section 6.2 that answers it. Whether the AS number is the configured one
    /// and the hold time long enough is the session's to say.
    pub fn parse(body: &[u8]) -> Result<Self, Notification> {
        let Some((fixed, parameters)) = body.split_first_chunk::<10>() else {
            return Err(Notification::bad_body_length(body));
        };
        let &[version, as_high, as_low, hold_high, hold_low, id @ .., parameters_len] = fixed;
        if version != VERSION {
            return Err(Notification::unsupported_version_number());
        }
        let capabilities = parse_parameters(parameters_len, parameters)?;
        let my_as = u16::from_be_bytes([as_high, as_low]);
        let asn = effective_asn(my_as, &capabilities).ok_or_else(Notification::bad_peer_as)?;
        let hold_time = u16::from_be_bytes([hold_high, hold_low]);
        if matches!(hold_time, 1 | 2) {
            return Err(Notification::unacceptable_hold_time());
        }
        let router_id = RouterId::new(u32::from_be_bytes(id)).ok_or_else(Notification::bad_bgp_identifier)?;
        check_roles(&capabilities)?;
        Ok(Self { asn, hold_time, router_id, capabilities })
    }

    /// The whole message. Capabilities that do not fit its 4096 octets are left out, last ones first.
    pub fn encode(&self) -> Vec<u8> {
        let capabilities = self.encode_capabilities();
        let mut out = Vec::with_capacity(64 + capabilities.len());
        let start = begin(&mut out, MessageType::Open);
        out.push(VERSION);
        out.extend_from_slice(&self.asn.two_octets().to_be_bytes());
        out.extend_from_slice(&self.hold_time.to_be_bytes());
        out.extend_from_slice(&self.router_id.bits().to_be_bytes());
        let len = capabilities.len();
        if len == 0 {
            out.push(0);
        } else if len + 2 <= 255 {
            out.extend_from_slice(&[len as u8 + 2, PARAMETER_CAPABILITIES, len as u8]);
        } else {
            out.extend_from_slice(&[255, PARAMETER_EXTENDED]);
            out.extend_from_slice(&(len as u16 + 3).to_be_bytes());
            out.push(PARAMETER_CAPABILITIES);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        out.extend_from_slice(&capabilities);
        finish(&mut out, start);
        out
    }

    fn encode_capabilities(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for capability in &self.capabilities {
            let end = out.len();
            capability.push(&mut out);
            if out.len() > MAX_CAPABILITIES {
                out.truncate(end);
                break;
            }
        }
        out
    }
}

/// `None` for numbers that cannot be: AS 0 (RFC 7607) in either place, and a fixed field that is neither
/// AS_TRANS nor the capability's number (RFC 6793 section 4.1).
fn effective_asn(my_as: u16, capabilities: &[Capability]) -> Option<Asn> {
    let announced = capabilities.iter().find_map(|capability| match capability {
        Capability::FourOctetAs(asn) => Some(*asn),
        _ => None,
    });
    let fixed = Asn(u32::from(my_as));
    let asn = announced.unwrap_or(fixed);
    (fixed.0 != 0 && asn.0 != 0 && (fixed == asn || fixed == AS_TRANS)).then_some(asn)
}

/// RFC 9234 section 4.2: the role may be sent several times, but only the same.
fn check_roles(capabilities: &[Capability]) -> Result<(), Notification> {
    let role = |capability: &Capability| match capability {
        Capability::Role(role) => Some(*role),
        _ => None,
    };
    let mut roles = capabilities.iter().filter_map(role);
    let first = roles.next();
    if roles.all(|role| Some(role) == first) { Ok(()) } else { Err(Notification::role_mismatch()) }
}

/// Reads either form of the optional parameters and collects the capabilities of all of them.
fn parse_parameters(len: u8, field: &[u8]) -> Result<Vec<Capability>, Notification> {
    let (mut parameters, extended) = match *field {
        [PARAMETER_EXTENDED, high, low, ref rest @ ..] if len != 0 => {
            (exactly(rest, usize::from(u16::from_be_bytes([high, low])))?, true)
        }
        _ => (exactly(field, usize::from(len))?, false),
    };
    let mut capabilities = Vec::new();
    while let Some((&kind, rest)) = parameters.split_first() {
        let (value, rest) = take_value(rest, extended)?;
        if kind != PARAMETER_CAPABILITIES {
            return Err(Notification::unsupported_optional_parameter());
        }
        parse_capabilities(value, &mut capabilities)?;
        parameters = rest;
    }
    Ok(capabilities)
}

/// The parameters fill the rest of the message, no more and no less.
fn exactly(field: &[u8], len: usize) -> Result<&[u8], Notification> {
    if field.len() == len { Ok(field) } else { Err(Notification::malformed_open()) }
}

fn parse_capabilities(mut field: &[u8], out: &mut Vec<Capability>) -> Result<(), Notification> {
    while let Some((&code, rest)) = field.split_first() {
        let (value, rest) = take_value(rest, false)?;
        out.push(Capability::parse(code, value)?);
        field = rest;
    }
    Ok(())
}

/// A length of one octet, or of two, and as many octets; and what follows.
fn take_value(field: &[u8], wide: bool) -> Result<(&[u8], &[u8]), Notification> {
    let split = match *field {
        [high, low, ref rest @ ..] if wide => {
            rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))
        }
        [len, ref rest @ ..] if !wide => rest.split_at_checked(usize::from(len)),
        _ => None,
    };
    split.ok_or_else(Notification::malformed_open)
}
