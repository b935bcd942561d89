//! Messages and their entries.

use std::marker::PhantomData;

use crate::{Authentication, BadEntry, ENTRY, HEADER, Malformed, Metric, Proof, Protocol, Unauthentic};

/// What a message is for (RFC 2453 section 3.6, RFC 2080 section 2.1).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// Asks for all or a part of the routing table.
    Request,
    /// All or a part of the sender's routing table.
    Response,
}

impl Command {
    pub(crate) fn octet(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
        }
    }

    fn from_octet(octet: u8) -> Option<Self> {
        [Self::Request, Self::Response].into_iter().find(|command| command.octet() == octet)
    }
}

/// A route, as a message tells it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Entry<P: Protocol> {
    /// The destination.
    pub prefix: P::Prefix,
    /// The Route Tag, which a router keeps with the route (RFC 2453 section 4.2).
    pub tag: u16,
    /// The sender's distance to it.
    pub metric: Metric,
    /// The router that packets should be sent to; the sender if `None` (RFC 2453 section 4.4, RFC 2080 section 2.1.1).
    pub next_hop: Option<P::Address>,
}

/// Authentication taken off, entries counted off; nothing of them was read.
#[derive(Copy, Clone, Debug)]
pub struct Frame<'a> {
    pub(crate) authentication: Authentication<'a>,
    pub(crate) entries: &'a [[u8; ENTRY]],
}

impl<'a> Frame<'a> {
    pub(crate) fn new(octets: &'a [u8], authentication: Authentication<'a>) -> Result<Self, Malformed> {
        match octets.as_chunks() {
            (entries, []) => Ok(Self { authentication, entries }),
            (_, _) => Err(Malformed::Length(HEADER + octets.len())),
        }
    }
}

/// A datagram whose frame is right.
#[derive(Copy, Clone, Debug)]
pub struct Message<'a, P> {
    command: Command,
    frame: Frame<'a>,
    protocol: PhantomData<P>,
}

impl<'a, P: Protocol> Message<'a, P> {
    /// Checks header, length and the place of the authentication.
    ///
    /// # Errors
    /// A router discards the datagram.
    pub fn read(octets: &'a [u8]) -> Result<Self, Malformed> {
        let &[command, ..] = octets.first_chunk::<HEADER>().ok_or(Malformed::Length(octets.len()))?;
        let frame = P::frame(octets)?;
        let command = Command::from_octet(command).ok_or(Malformed::Command(command))?;
        Ok(Self { command, frame, protocol: PhantomData })
    }

    /// Request or Response.
    pub fn command(&self) -> Command {
        self.command
    }

    /// What it says of its sender.
    pub fn authentication(&self) -> Authentication<'a> {
        self.frame.authentication
    }

    /// Holds it to the credentials of the interface that it came over. Gives a proof of a
    /// message with a digest: it is for the caller to refuse a sequence number that decreases (RFC 4822 section 2.3.2).
    ///
    /// # Errors
    /// A router discards the message (RFC 2453 section 5.2).
    pub fn authenticate(&self, ours: Option<&P::Credentials>) -> Result<Option<Proof>, Unauthentic> {
        P::authenticate(&self.frame, ours)
    }

    /// Whether it is a Request for the whole routing table: one entry, of address family 0 or the prefix `::/0`, with a
    /// metric of 16 (RFC 2453 section 3.9.1, RFC 2080 section 2.4.1).
    pub fn asks_for_everything(&self) -> bool {
        matches!(self.frame.entries, [entry] if self.command == Command::Request && P::is_everything(entry))
    }

    /// The routes of a Response.
    pub fn entries(&self) -> Entries<'a, P> {
        Entries { rest: self.frame.entries.iter(), next_hop: None }
    }

    /// The destinations that a Request asks for. What else an entry says is ignored.
    pub fn queries(&self) -> Queries<'a, P> {
        Queries { rest: self.frame.entries.iter(), protocol: PhantomData }
    }
}

/// Routes of a message, and what is wrong with those that are ignored.
#[derive(Clone, Debug)]
pub struct Entries<'a, P: Protocol> {
    rest: std::slice::Iter<'a, [u8; ENTRY]>,
    /// Of RIPng: what the last entry with a next hop has said.
    next_hop: Option<P::Address>,
}

impl<P: Protocol> Iterator for Entries<'_, P> {
    type Item = Result<Entry<P>, BadEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let next_hop = &mut self.next_hop;
        self.rest.find_map(|entry| P::entry(entry, next_hop))
    }
}

/// Destinations of a Request, and what is wrong with those that are ignored.
#[derive(Clone, Debug)]
pub struct Queries<'a, P> {
    rest: std::slice::Iter<'a, [u8; ENTRY]>,
    protocol: PhantomData<P>,
}

impl<P: Protocol> Iterator for Queries<'_, P> {
    type Item = Result<P::Prefix, BadEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.rest.find_map(P::queried)
    }
}
