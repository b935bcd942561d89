//! What an operator reads of a NOTIFICATION, and the Shutdown Communication inside it.

use std::fmt;

use holdfast_types::{Afi, Family, Safi};

use super::{MAX_TEXT, Notification};

/// A length octet and as much of the text as it can count, cut between characters.
pub(super) fn encode(text: &str) -> Vec<u8> {
    let text = &text[..text.floor_char_boundary(MAX_TEXT)];
    let mut data = Vec::with_capacity(1 + text.len());
    data.push(text.len() as u8);
    data.extend_from_slice(text.as_bytes());
    data
}

/// `None` for an absent, empty, overlong or not UTF-8 text.
pub(super) fn decode(data: &[u8]) -> Option<&str> {
    let (&length, rest) = data.split_first()?;
    let text = rest.get(..usize::from(length))?;
    std::str::from_utf8(text).ok().filter(|text| !text.is_empty())
}

/// `Cease/Administrative Shutdown: "text"`.
pub(super) fn describe(error: &Notification, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match code_name(error.code) {
        Some(name) => f.write_str(name)?,
        None => write!(f, "error code {}", error.code)?,
    }
    match subcode_name(error.code, error.subcode) {
        Some(name) => write!(f, "/{name}")?,
        None if error.subcode == 0 => {}
        None => write!(f, "/subcode {}", error.subcode)?,
    }
    describe_data(error, f)
}

fn describe_data(error: &Notification, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(inside) = error.inside_hard_reset() {
        return write!(f, ": {inside}");
    }
    match (error.code, error.subcode, error.data.as_slice()) {
        (_, _, []) | (6, 2 | 4, [0]) => Ok(()),
        (1, 2, &[high, low]) => write!(f, ": {} octets", u16::from_be_bytes([high, low])),
        (1, 3, &[kind]) => write!(f, ": type {kind}"),
        (2, 1, &[high, low]) => write!(f, ": version {} is offered", u16::from_be_bytes([high, low])),
        (6, 1, &[a, b, safi, l0, l1, l2, l3]) => {
            let family = Family { afi: Afi(u16::from_be_bytes([a, b])), safi: Safi(safi) };
            write!(f, ": {family} limit {}", u32::from_be_bytes([l0, l1, l2, l3]))
        }
        (6, 2 | 4, data) => match decode(data) {
            // Quoted and escaped: the text comes from outside and goes to a terminal.
            Some(text) => write!(f, ": {text:?}"),
            None => hex(": malformed text, octets ", data, f),
        },
        (_, _, data) => hex(": data ", data, f),
    }
}

/// At most 32 octets: enough to find the place, short enough for a log line.
fn hex(lead: &str, data: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SHOWN: usize = 32;
    f.write_str(lead)?;
    data.iter().take(SHOWN).try_for_each(|octet| write!(f, "{octet:02x}"))?;
    if data.len() > SHOWN { write!(f, "... ({} octets)", data.len()) } else { Ok(()) }
}

fn code_name(code: u8) -> Option<&'static str> {
    Some(match code {
        1 => "Message Header Error",
        2 => "OPEN Message Error",
        3 => "UPDATE Message Error",
        4 => "Hold Timer Expired",
        5 => "Finite State Machine Error",
        6 => "Cease",
        7 => "ROUTE-REFRESH Message Error",
        8 => "Send Hold Timer Expired",
        _ => return None,
    })
}

/// As IANA lists them.
fn subcode_name(code: u8, subcode: u8) -> Option<&'static str> {
    Some(match (code, subcode) {
        (1, 1) => "Connection Not Synchronized",
        (1, 2) => "Bad Message Length",
        (1, 3) => "Bad Message Type",
        (2, 1) => "Unsupported Version Number",
        (2, 2) => "Bad Peer AS",
        (2, 3) => "Bad BGP Identifier",
        (2, 4) => "Unsupported Optional Parameter",
        (2, 6) => "Unacceptable Hold Time",
        (2, 7) => "Unsupported Capability",
        (2, 11) => "Role Mismatch",
        (3, 1) => "Malformed Attribute List",
        (3, 2) => "Unrecognized Well-known Attribute",
        (3, 3) => "Missing Well-known Attribute",
        (3, 4) => "Attribute Flags Error",
        (3, 5) => "Attribute Length Error",
        (3, 6) => "Invalid ORIGIN Attribute",
        (3, 8) => "Invalid NEXT_HOP Attribute",
        (3, 9) => "Optional Attribute Error",
        (3, 10) => "Invalid Network Field",
        (3, 11) => "Malformed AS_PATH",
        (5, 1) => "Unexpected Message in OpenSent",
        (5, 2) => "Unexpected Message in OpenConfirm",
        (5, 3) => "Unexpected Message in Established",
        (6, 1) => "Maximum Number of Prefixes Reached",
        (6, 2) => "Administrative Shutdown",
        (6, 3) => "Peer De-configured",
        (6, 4) => "Administrative Reset",
        (6, 5) => "Connection Rejected",
        (6, 6) => "Other Configuration Change",
        (6, 7) => "Connection Collision Resolution",
        (6, 8) => "Out of Resources",
        (6, 9) => "Hard Reset",
        (6, 10) => "BFD Down",
        (7, 1) => "Invalid Message Length",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capability, CeaseSubcode, FsmState, MAX_LEN, next_message, notification::UpdateSubcode};

    #[test]
    fn an_operator_reads_what_happened() {
        let family = Family::IPV4_UNICAST;
        let rows = [
            (Notification::hold_timer_expired(), "Hold Timer Expired"),
            (Notification::send_hold_timer_expired(), "Send Hold Timer Expired"),
            (Notification::bad_peer_as(), "OPEN Message Error/Bad Peer AS"),
            (Notification::bad_message_length(18), "Message Header Error/Bad Message Length: 18 octets"),
            (
                Notification::unsupported_capability(&[Capability::Multiprotocol(family)]),
                "OPEN Message Error/Unsupported Capability: data 010400010001",
            ),
            (
                Notification::fsm_error(FsmState::OpenConfirm),
                "Finite State Machine Error/Unexpected Message in OpenConfirm",
            ),
            (
                Notification::maximum_prefixes(family, 1000),
                "Cease/Maximum Number of Prefixes Reached: ipv4-unicast limit 1000",
            ),
            (
                Notification::update(UpdateSubcode::InvalidNetworkField, &[]),
                "UPDATE Message Error/Invalid Network Field",
            ),
            (Notification { code: 99, subcode: 3, data: vec![1] }, "error code 99/subcode 3: data 01"),
        ];
        for (error, text) in rows {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn shutdown_text_survives_the_wire_and_is_escaped_in_print() {
        let error = Notification::cease_with_text(CeaseSubcode::AdministrativeReset, "zurück\u{1b}[2J");
        let wire = error.encode();
        let message = next_message(&wire, MAX_LEN).expect("sound").expect("whole");
        let read = Notification::parse(message.body).expect("two octets");
        assert_eq!((read.text(), &read), (Some("zurück\u{1b}[2J"), &error));
        assert_eq!(read.to_string(), r#"Cease/Administrative Reset: "zurück\u{1b}[2J""#);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "é".repeat(200);
        let error = Notification::cease_with_text(CeaseSubcode::AdministrativeShutdown, &text);
        assert_eq!((error.data[0], error.data.len()), (254, 255));
        assert_eq!(error.text(), Some(&text[..254]));
    }

    #[test]
    fn only_the_two_administrative_subcodes_carry_a_text() {
        assert!(Notification::cease_with_text(CeaseSubcode::PeerDeconfigured, "bye").data.is_empty());
        assert!(Notification::cease_with_text(CeaseSubcode::AdministrativeShutdown, "").data.is_empty());
    }

    #[test]
    fn a_malformed_text_is_shown_as_octets() {
        for (data, shown) in [(vec![9, b'a'], "0961"), (vec![1, 0xff], "01ff"), (vec![200], "c8")] {
            let error = Notification { code: 6, subcode: 2, data };
            assert_eq!(error.text(), None);
            let expected = format!("Cease/Administrative Shutdown: malformed text, octets {shown}");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn overlong_data_is_cut_to_a_message_that_anyone_takes() {
        let error = Notification { code: 3, subcode: 5, data: vec![7; 70_000] };
        assert_eq!(error.encode().len(), MAX_LEN);
        assert!(error.to_string().ends_with("... (70000 octets)"));
    }
}
