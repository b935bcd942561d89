//! A model of what outlives the process besides the log: sockets, and the peers behind them.

use std::collections::{BTreeMap, VecDeque};

use crate::tests::crash::memory::Random;

pub(crate) type Prefix = u8;
/// Never 0: that withdraws.
pub(crate) type Value = u32;
pub(crate) type Change = (Prefix, Value);
/// Number, change, and octets.
pub(crate) type Message = (u32, Option<Change>, usize);
pub(crate) type Table = BTreeMap<Prefix, Value>;

/// Prefixes there are.
pub(crate) const PREFIXES: usize = 16;
/// Octets of a message before its changes: length, and the number of the message or of changes.
pub(crate) const HEADER: usize = 6;
const CHANGE: usize = 5;

/// A message: length (two octets), number (four), then a change (prefix, value) or none, then padding.
pub(crate) fn message(number: u32, change: Option<Change>, padding: usize) -> Vec<u8> {
    let mut octets = vec![0; 2];
    octets.extend(number.to_be_bytes());
    if let Some((prefix, value)) = change {
        octets.push(prefix);
        octets.extend(value.to_be_bytes());
        octets.resize(octets.len() + padding, 0xee);
    }
    let length = octets.len() as u16;
    octets[..2].copy_from_slice(&length.to_be_bytes());
    octets
}

/// The number and the change of a message, and its length; `None` when it is not complete.
pub(crate) fn parse(octets: &[u8]) -> Option<Message> {
    let length = usize::from(u16::from_be_bytes(*octets.first_chunk()?));
    let message = octets.get(..length)?;
    let number = u32::from_be_bytes(message[2..HEADER].try_into().expect("four octets"));
    let change = (length > HEADER).then(|| {
        let value = &message[HEADER + 1..HEADER + CHANGE];
        (message[HEADER], Value::from_be_bytes(value.try_into().expect("four octets")))
    });
    assert!(length >= HEADER && message[HEADER..].iter().skip(CHANGE).all(|octet| *octet == 0xee), "torn");
    Some((number, change, length))
}

pub(crate) fn apply(table: &mut Table, (prefix, value): Change) {
    match value {
        0 => table.remove(&prefix),
        _ => table.insert(prefix, value),
    };
}

/// One connection: the socket on our side, and the peer.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Octets received that nobody has read, and the offset up to which octets were read.
    queue: VecDeque<u8>,
    pub(crate) consumed: u64,
    /// Offset up to which octets were written.
    pub(crate) written: u64,
    /// The log has said that it has this session, and nobody has begun to close it.
    pub(crate) is_protected: bool,
    pub(crate) peer: Peer,
}

#[derive(Clone, Debug)]
pub(crate) struct Peer {
    next_value: Value,
    /// Messages by the offset at which they begin.
    pub(crate) sent: BTreeMap<u64, Message>,
    end: u64,
    /// What came in and is no whole message yet.
    partial: Vec<u8>,
    /// What we have told the peer.
    pub(crate) told: Table,
}

impl Connection {
    pub(crate) fn new(incoming: u64, outgoing: u64, values: Value) -> Self {
        let (sent, partial, told) = (BTreeMap::new(), Vec::new(), Table::new());
        let peer = Peer { next_value: values, sent, end: incoming, partial, told };
        Self { queue: VecDeque::new(), consumed: incoming, written: outgoing, is_protected: false, peer }
    }

    /// The peer sends a message.
    pub(crate) fn send(&mut self, random: &mut Random) {
        let peer = &mut self.peer;
        let change = (random.below(3) > 0).then(|| {
            peer.next_value += 1;
            let value = if random.below(4) == 0 { 0 } else { peer.next_value };
            (random.below(PREFIXES) as Prefix, value)
        });
        let padding = [0, 3, random.below(60), random.below(700), random.below(9000)][random.below(5)];
        let number = peer.sent.len() as u32;
        let octets = message(number, change, padding);
        peer.sent.insert(peer.end, (number, change, octets.len()));
        peer.end += octets.len() as u64;
        self.queue.extend(octets);
    }

    /// recv(): the octets are handed over and count as read.
    pub(crate) fn read(&mut self, room: [&mut [u8]; 2], most: usize) -> usize {
        let octets = room.into_iter().flatten().take(most).zip(&mut self.queue);
        let count = octets.map(|(place, octet)| *place = *octet).count();
        self.queue.drain(..count);
        self.consumed += count as u64;
        count
    }

    /// send(): the octets are taken and will arrive.
    pub(crate) fn write(&mut self, octets: &[u8]) {
        self.written += octets.len() as u64;
        self.peer.receive(octets);
    }

    pub(crate) fn has_unread(&self) -> bool {
        !self.queue.is_empty()
    }
}

impl Peer {
    /// Everything said must be news: what is told twice is doubled, and what is not there cannot be withdrawn.
    pub(crate) fn receive(&mut self, octets: &[u8]) {
        self.partial.extend(octets);
        let mut at = 0;
        while let Some((_, change, length)) = parse(&self.partial[at..]) {
            at += length;
            if let Some((prefix, value)) = change {
                assert_ne!(self.told.get(&prefix).copied().unwrap_or(0), value, "told twice");
                apply(&mut self.told, (prefix, value));
            }
        }
        self.partial.drain(..at);
    }

    pub(crate) fn is_between_messages(&self) -> bool {
        self.partial.is_empty()
    }

    /// What the peer has announced with the messages that are complete at this offset.
    pub(crate) fn announced(&self, offset: u64) -> Table {
        let mut table = Table::new();
        for (start, (_, change, length)) in &self.sent {
            if let Some(change) = change.filter(|_| start + *length as u64 <= offset) {
                apply(&mut table, change);
            }
        }
        table
    }
}
