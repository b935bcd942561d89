//! A gate that lets everybody in who need not prove anything, and takes them for anybody.

use std::{net::SocketAddr, time::Duration, time::Instant};

use holdfast_admission::{Attempt, Verdict};
use holdfast_transport::{Expected, Failure, Gate, Permit, Protocol};

pub(crate) struct Open;

/// With an idle time of a minute.
pub(crate) fn anybody() -> Expected {
    Expected { peer: "anybody".to_owned(), tls: None, idle: Duration::from_secs(60), ttl_security: false }
}

impl Gate for Open {
    fn judge(&self, _: Protocol, _: &mut dyn Attempt, _: Instant) -> Verdict {
        Verdict::Accept
    }

    fn expect(&self, protocol: Protocol, _: SocketAddr) -> Option<Expected> {
        matches!(protocol, Protocol::Tcp | Protocol::Memory).then(anybody)
    }

    fn begin(&self, _: Protocol) -> Box<dyn Permit> {
        Box::new(())
    }

    fn failed(&self, _: Protocol, _: SocketAddr, _: &Failure) {}
}
