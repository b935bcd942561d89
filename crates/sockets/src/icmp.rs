//! The messages by which routers on a link find each other (RFC 4861 sections 4.1 and 4.2).

use std::net::Ipv6Addr;

/// Types of ICMPv6 messages.
pub(crate) const SOLICITATION: u8 = 133;
pub(crate) const ADVERTISEMENT: u8 = 134;

/// Whom advertisements are for.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Whom solicitations are for.
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// Of packets that no router has passed on.
pub(crate) const HOP_LIMIT: u8 = 255;

/// What is said.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// Who is a router there?
    Solicitation,
    /// I am one.
    Advertisement,
}

/// Why a message is not taken (RFC 4861 sections 6.1.1 and 6.1.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Message {
    /// Reads a message whose checksum the kernel has found right. What an advertisement says beside that its sender is
    /// a router is not looked at, but it has to be well-formed.
    pub(crate) fn parse(octets: &[u8], source: Ipv6Addr, hop_limit: u8) -> Result<Self, Malformed> {
        if hop_limit != HOP_LIMIT {
            return Err(Malformed("the hop limit is not 255: it comes from another link"));
        }
        let (message, options) = match octets {
            [SOLICITATION, 0, ..] => (Self::Solicitation, octets.get(8..)),
            [ADVERTISEMENT, 0, ..] => (Self::Advertisement, octets.get(16..)),
            [SOLICITATION | ADVERTISEMENT, _, ..] => return Err(Malformed("the code is not 0")),
            _ => return Err(Malformed("it is of another type")),
        };
        if message == Self::Advertisement && !source.is_unicast_link_local() {
            return Err(Malformed("an advertisement from an address that is not link-local"));
        }
        check_options(options.ok_or(Malformed("it is too short"))?)?;
        Ok(message)
    }

    /// In octets, without the checksum, which is the kernel's to put in. As an advertisement we are no default router and
    /// say nothing else either: it is for routers, and hosts on the link are to go on as before.
    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            Self::Solicitation => {
                let mut octets = vec![0; 8];
                octets[0] = SOLICITATION;
                octets
            }
            Self::Advertisement => {
                let mut octets = vec![0; 16];
                octets[0] = ADVERTISEMENT;
                octets
            }
        }
    }

    /// Whom it is for.
    pub(crate) fn destination(self) -> Ipv6Addr {
        match self {
            Self::Solicitation => ALL_ROUTERS,
            Self::Advertisement => ALL_NODES,
        }
    }
}

/// Each has a type and its length in units of 8 octets, which is never 0 (section 4.6).
fn check_options(mut rest: &[u8]) -> Result<(), Malformed> {
    while let [_, length, ..] = rest {
        if *length == 0 {
            return Err(Malformed("an option of length 0"));
        }
        rest =
            rest.get(8 * usize::from(*length)..).ok_or(Malformed("an option is longer than the message"))?;
    }
    if rest.is_empty() { Ok(()) } else { Err(Malformed("half an option")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    /// As FRR sends it: with a source link-layer address and an interval.
    fn advertisement() -> Vec<u8> {
        let mut octets = Message::Advertisement.encode();
        octets.extend([1, 1, 2, 0, 0, 0, 0, 1]);
        octets.extend([7, 1, 0, 0, 0, 0, 0x27, 0x10]);
        octets
    }

    #[test]
    fn what_is_written_is_read() {
        for message in [Message::Solicitation, Message::Advertisement] {
            assert_eq!(Message::parse(&message.encode(), ROUTER, 255), Ok(message));
        }
        assert_eq!(Message::parse(&advertisement(), ROUTER, 255), Ok(Message::Advertisement));
        let unspecified = Message::parse(&Message::Solicitation.encode(), Ipv6Addr::UNSPECIFIED, 255);
        assert_eq!(unspecified, Ok(Message::Solicitation), "from who has no address yet");
    }

    #[test]
    fn what_is_not_as_it_has_to_be_is_refused() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut octets = advertisement();
            change(&mut octets);
            Message::parse(&octets, ROUTER, 255)
        };
        let cases = [
            (Message::parse(&advertisement(), ROUTER, 254), "hop limit"),
            (Message::parse(&advertisement(), Ipv6Addr::LOCALHOST, 255), "not link-local"),
            (with(&|octets| octets[0] = 135), "another type"),
            (with(&|octets| octets[1] = 1), "code"),
            (with(&|octets| octets.truncate(15)), "too short"),
            (with(&|octets| octets.truncate(0)), "another type"),
            (with(&|octets| octets[17] = 0), "length 0"),
            (with(&|octets| octets[25] = 2), "longer than the message"),
            (with(&|octets| octets.push(1)), "half an option"),
            (Message::parse(&[SOLICITATION, 0, 0, 0], ROUTER, 255), "too short"),
        ];
        for (result, expected) in cases {
            let error = result.expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn no_octets_are_too_strange_to_be_read() {
        // All ways to damage one octet, and all lengths.
        let good = advertisement();
        for at in 0..good.len() {
            for value in 0..=u8::MAX {
                let mut octets = good.clone();
                octets[at] = value;
                let whole = Message::parse(&octets, ROUTER, 255);
                assert!(whole.is_ok() || at < 2 || at == 17 || at == 25, "octet {at} is {value}: {whole:?}");
                for length in 0..octets.len() {
                    let _ = Message::parse(&octets[..length], ROUTER, 255);
                }
            }
        }
    }
}
