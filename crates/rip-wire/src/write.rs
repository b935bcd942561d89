//! To octets.

use crate::{Command, Entry, Protocol};

/// One datagram that is being filled.
#[derive(Clone, Debug)]
pub struct Writer<'a, P: Protocol> {
    octets: Vec<u8>,
    room: usize,
    next_hop: Option<P::Address>,
    ours: Option<&'a P::Credentials>,
    empty: bool,
}

impl<'a, P: Protocol> Writer<'a, P> {
    /// A message without entries. RIPv2 has room for 25, with authentication for 24 (RFC 2453 sections 3.6, 4.1); RIPng for
    /// what an IPv6 packet of `mtu` octets carries (RFC 2080 section 2.1), which is 61 at least: next hops count.
    pub fn new(command: Command, ours: Option<&'a P::Credentials>, mtu: u32) -> Self {
        Self { octets: P::begin(command, ours), room: P::room(ours, mtu), next_hop: None, ours, empty: true }
    }

    /// The Request for the whole routing table (RFC 2453 section 3.9.1, RFC 2080 section 2.4.1).
    pub fn whole_table(ours: Option<&'a P::Credentials>) -> Self {
        let mut writer = Self::new(Command::Request, ours, 0);
        writer.octets.extend(P::everything());
        Self { room: 0, empty: false, ..writer }
    }

    /// Puts an entry at the end; false if there is no room for it.
    pub fn push(&mut self, entry: &Entry<P>) -> bool {
        let put = P::put(entry, &mut self.next_hop, &mut self.room, &mut self.octets);
        self.empty &= !put;
        put
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// The datagram, signed if there are credentials. `sequence` is what RFC 4822 section 2.1 asks not to decrease; without
    /// a digest it is not used.
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        P::sign(&mut self.octets, self.ours, sequence);
        self.octets
    }
}
