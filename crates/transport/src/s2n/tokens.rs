//! Tokens of Retry, under keys that survive a restart.
//!
//! One is `length of the connection id | connection id (20) | expiry (8) | nonce (16) | MAC (32)`; the MAC is over all of
//! that and whom it was given to: address, port and source connection id (RFC 9000 section 8.1.4).

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use hmac_sha256::HMAC;
use holdfast_admission::{AddressProof, Verdict};
use rustix::time::{ClockId, clock_gettime};
use s2n_quic::provider::address_token;
use s2n_quic_core::connection::{InitialId, LocalId};

use super::{
    door::Door,
    keys::{Key, Keys},
};
use crate::{
    attempt::canonical,
    spent::{Spent, TOKEN_LIFETIME},
};

const ID: usize = 20;
const EXPIRY: usize = 1 + ID;
const NONCE: usize = EXPIRY + 8;
const MAC: usize = NONCE + 16;
const LENGTH: usize = MAC + 32;

/// To whom a token was given.
#[derive(Copy, Clone)]
struct Holder<'a> {
    address: SocketAddr,
    connection_id: &'a [u8],
}

impl Holder<'_> {
    /// Of a token up to its MAC.
    fn mac(&self, key: &Key, token: &[u8]) -> HMAC {
        let address = match self.address.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut mac = HMAC::new(key);
        mac.update(address.octets());
        mac.update(self.address.port().to_be_bytes());
        mac.update([u8::try_from(self.connection_id.len()).unwrap_or(u8::MAX)]);
        mac.update(self.connection_id);
        mac.update(token);
        mac
    }

    /// Writes a token. `None`: the connection id is too long for one.
    fn sign(&self, key: &Key, original: &[u8], expiry: u64, nonce: [u8; 16]) -> Option<[u8; LENGTH]> {
        let mut token = [0; LENGTH];
        token[0] = u8::try_from(original.len()).ok().filter(|length| usize::from(*length) <= ID)?;
        token[1..=original.len()].copy_from_slice(original);
        token[EXPIRY..NONCE].copy_from_slice(&expiry.to_be_bytes());
        token[NONCE..MAC].copy_from_slice(&nonce);
        let mac = self.mac(key, &token[..MAC]).finalize();
        token[MAC..].copy_from_slice(&mac);
        Some(token)
    }

    /// Reads a token, if it is one of ours for this holder that has not expired.
    fn read<'t>(&self, keys: &[Key], token: &'t [u8], now: u64) -> Option<Read<'t>> {
        let token: &[u8; LENGTH] = token.try_into().ok()?;
        let mac: &[u8; 32] = token[MAC..].try_into().ok()?;
        let valid = keys.iter().any(|key| self.mac(key, &token[..MAC]).finalize_verify(mac));
        let expiry = u64::from_be_bytes(token[EXPIRY..NONCE].try_into().ok()?);
        let length = usize::from(token[0]);
        // After a restart of the machine the clock begins anew.
        let expired = now > expiry || expiry > now + TOKEN_LIFETIME.as_secs();
        (valid && !expired && length <= ID).then(|| Read { original: &token[1..=length], expiry, mac: *mac })
    }
}

/// A token that is valid.
struct Read<'a> {
    /// The Destination Connection ID of the first Initial.
    original: &'a [u8],
    /// In seconds of [`now`].
    expiry: u64,
    mac: [u8; 32],
}

/// Gives and takes the tokens of an endpoint. Whoever comes with one is judged again, now that its address is proven.
pub(super) struct Tokens {
    keys: Keys,
    door: Arc<Door>,
    spent: Spent<[u8; 32], u64>,
}

impl Tokens {
    pub(super) fn new(keys: Keys, door: Arc<Door>) -> Self {
        Self { keys, door, spent: Spent::default() }
    }
}

impl address_token::Provider for Tokens {
    type Format = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

impl address_token::Format for Tokens {
    const TOKEN_LEN: usize = LENGTH;

    /// There are none: dialers here keep no token.
    fn generate_new_token(
        &mut self,
        _: &mut address_token::Context<'_>,
        _: &LocalId,
        _: &mut [u8],
    ) -> Option<()> {
        None
    }

    fn generate_retry_token(
        &mut self,
        context: &mut address_token::Context<'_>,
        original: &InitialId,
        out: &mut [u8],
    ) -> Option<()> {
        let mut nonce = [0; 16];
        context.random.public_random_fill(&mut nonce);
        let holder = holder(context);
        let token = holder.sign(
            self.keys.tokens().first()?,
            original.as_bytes(),
            now() + TOKEN_LIFETIME.as_secs(),
            nonce,
        )?;
        (out.len() == LENGTH).then(|| out.copy_from_slice(&token))
    }

    fn validate_token(
        &mut self,
        context: &mut address_token::Context<'_>,
        token: &[u8],
    ) -> Option<InitialId> {
        let now = now();
        let holder = holder(context);
        let token = holder.read(&self.keys.tokens(), token, now)?;
        if self.spent.has(&token.mac, &now)
            || self.door.judge(holder.address, AddressProof::Token) != Verdict::Accept
        {
            return None;
        }
        let original = InitialId::try_from_bytes(token.original)?;
        self.spent.add(token.mac, token.expiry);
        Some(original)
    }
}

fn holder<'a>(context: &address_token::Context<'a>) -> Holder<'a> {
    Holder {
        address: canonical(SocketAddr::from(&context.remote_address)),
        connection_id: context.peer_connection_id,
    }
}

/// In seconds of the clock that only runs, which goes on when the process begins anew.
fn now() -> u64 {
    u64::try_from(clock_gettime(ClockId::Monotonic).tv_sec).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [Key; 2] = [[1; 32], [2; 32]];

    fn holder() -> Holder<'static> {
        Holder { address: "192.0.2.1:4242".parse().expect("an address"), connection_id: b"its own" }
    }

    fn token() -> [u8; LENGTH] {
        holder().sign(&KEYS[0], b"original", 100, [7; 16]).expect("it fits")
    }

    #[test]
    fn a_token_is_read_by_whom_it_was_given_to() {
        let token = token();
        let read = holder().read(&KEYS, &token, 100).expect("valid");
        assert_eq!(read.original, b"original");

        let port = Holder { address: "192.0.2.1:4243".parse().expect("an address"), ..holder() };
        let address = Holder { address: "192.0.2.2:4242".parse().expect("an address"), ..holder() };
        let id = Holder { connection_id: b"another", ..holder() };
        for other in [port, address, id] {
            assert!(other.read(&KEYS, &token, 100).is_none());
        }
    }

    #[test]
    fn a_token_expires_and_outlives_one_rotation() {
        let token = token();
        assert!(holder().read(&KEYS, &token, 101).is_none());
        assert!(holder().read(&KEYS, &token, 100 - TOKEN_LIFETIME.as_secs()).is_some());
        assert!(holder().read(&KEYS, &token, 99 - TOKEN_LIFETIME.as_secs()).is_none(), "of the time before");
        let rotated = [[3; 32], KEYS[0]];
        assert!(holder().read(&rotated, &token, 100).is_some());
        assert!(holder().read(&[[4; 32], [3; 32]], &token, 100).is_none());
    }

    #[test]
    fn a_token_that_was_touched_is_none() {
        for position in 0..LENGTH {
            let mut token = token();
            token[position] ^= 1;
            assert!(holder().read(&KEYS, &token, 100).is_none(), "octet {position}");
        }
        assert!(holder().read(&KEYS, &token()[..LENGTH - 1], 100).is_none());
        assert!(holder().read(&KEYS, &[], 100).is_none());
    }

    #[test]
    fn a_connection_id_that_is_too_long_has_no_token() {
        assert!(holder().sign(&KEYS[0], &[0; ID], 100, [7; 16]).is_some());
        assert!(holder().sign(&KEYS[0], &[0; ID + 1], 100, [7; 16]).is_none());
    }
}
