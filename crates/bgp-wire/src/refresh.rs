//! ROUTE-REFRESH (RFC 2918, RFC 7313).

use holdfast_types::{Afi, Family, Safi};

use crate::{
    MessageType, Notification,
    message::{begin, finish},
};

/// A ROUTE-REFRESH message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RouteRefresh {
    /// What is to be sent again.
    pub family: Family,
    /// 0 asks for it; 1 and 2 enclose the answer (RFC 7313). A receiver ignores others.
    pub subtype: u8,
}

impl RouteRefresh {
    /// The subtype that asks for routes (RFC 2918), with or without ORF entries (RFC 5291).
    pub const REQUEST: u8 = 0;
    /// The subtype before a whole Adj-RIB-Out that is sent once more (RFC 7313 section 3.2).
    pub const BORR: u8 = 1;
    /// The subtype behind it.
    pub const EORR: u8 = 2;

    /// Asks for the routes of a family.
    pub fn request(family: Family) -> Self {
        Self { family, subtype: Self::REQUEST }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// It is not four octets long: RFC 7313 section 5 for its own subtypes, else RFC 4271 section 6.1.
    pub fn parse(body: &[u8]) -> Result<Self, Notification> {
        match *body {
            [afi_high, afi_low, subtype, safi] => {
                let afi = Afi(u16::from_be_bytes([afi_high, afi_low]));
                Ok(Self { family: Family { afi, safi: Safi(safi) }, subtype })
            }
            [_, _, Self::BORR | Self::EORR, ..] => Err(Notification::route_refresh_length(body)),
            _ => Err(Notification::bad_body_length(body)),
        }
    }

    /// The whole message.
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(23);
        let start = begin(&mut out, MessageType::RouteRefresh);
        out.extend_from_slice(&self.family.afi.0.to_be_bytes());
        out.extend_from_slice(&[self.subtype, self.family.safi.0]);
        finish(&mut out, start);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HEADER_LEN, MAX_LEN, next_message};

    #[test]
    fn a_request_survives_the_wire() {
        let request = RouteRefresh::request(Family::IPV6_UNICAST);
        let wire = request.encode();
        let message = next_message(&wire, MAX_LEN).expect("sound").expect("whole");
        assert_eq!(message.body, [0, 2, 0, 1]);
        assert_eq!(RouteRefresh::parse(message.body), Ok(request));
    }

    #[test]
    fn a_wrong_length_is_the_error_of_its_subtype() {
        let error = RouteRefresh::parse(&[0, 1, 2, 1, 0]).expect_err("a demarcation of five octets");
        assert_eq!((error.code, error.subcode, error.data.len()), (7, 1, HEADER_LEN + 5));
        let error = RouteRefresh::parse(&[0, 1, 0, 1, 0]).expect_err("a request of five octets");
        assert_eq!((error.code, error.subcode, error.data), (1, 2, vec![0, 24]));
    }
}
