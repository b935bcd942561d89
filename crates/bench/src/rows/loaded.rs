//! A router that has many routes, and single routes besides.

use std::{
    net::Ipv4Addr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_lab::table::Table;
use holdfast_types::{Afi, Asn, Ipv4Prefix, Prefix};

use super::{Bench, HOLD, Kind, Tables};
use crate::{
    daemon::{ASN, Daemon},
    feed,
    hearing::Hearing,
    verify::Expected,
};

/// The peer that the many routes are from.
pub(super) const BIG: usize = 0;
/// The one that announces single routes, and who hears of them.
pub(super) const OTHER: usize = 1;
pub(super) const SINK: usize = 2;

impl Bench {
    /// Starts the router with so many peers and loads `routes` from the first; the last has heard them all, and
    /// forgotten them, and nothing moves any more. Also what it heard.
    pub(super) fn loaded(
        daemon: &Daemon,
        tables: &Tables,
        peers: usize,
        routes: usize,
    ) -> Result<(Self, Expected)> {
        let table = tables.get(Kind::Synthetic { ipv6: false, routes })?;
        let sink = peers - 1;
        let mut bench = Self::start(daemon, (peers, Afi::IPV4, HOLD), |_| {})?;
        // What the others hear is not looked at.
        bench.load.sessions[sink].hearing = Hearing::once();
        let expected = Expected::best(&[(&table, Self::asn(BIG))], Asn(ASN));
        let octets = feed::announce(&table, bench.peer(BIG), Self::asn(BIG))?;
        bench.load.sessions[BIG].send(Arc::from(octets));
        bench.settle(&expected, sink..peers)?;
        bench.load.rest(Duration::from_millis(500))?;
        bench.load.sessions[sink].forget();
        Ok((bench, expected))
    }
}

/// A route that nobody else has.
pub(super) struct Probe {
    from: usize,
    announcement: Vec<u8>,
    /// How a sink recognises it.
    nlri: Box<[u8]>,
}

impl Probe {
    /// From [`OTHER`].
    pub(super) fn new(bench: &Bench, number: u32) -> Result<Self> {
        Self::from(bench, OTHER, number)
    }

    /// The same from a peer of one's choice.
    pub(super) fn from(bench: &Bench, from: usize, number: u32) -> Result<Self> {
        let prefix = Ipv4Prefix::new(Ipv4Addr::from_bits(0xc612_0000 + number), 32);
        let table = Table::plain([Prefix::V4(prefix.context("too many probes")?)]);
        let announcement = feed::announce(&table, bench.peer(from), Bench::asn(from))?;
        let nlri = announcement[announcement.len() - 5..].into();
        Ok(Self { from, announcement, nlri })
    }

    /// Announces it; [`SINK`] notes when it hears of it. When it was sent.
    pub(super) fn send(self, bench: &mut Bench) -> Result<Instant> {
        bench.load.sessions[SINK].watch(self.nlri);
        bench.load.sessions[self.from].send_now(&self.announcement)
    }
}
