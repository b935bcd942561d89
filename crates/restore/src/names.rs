//! What the objects of a store are called.

use holdfast_nsr::SessionId;
use holdfast_store::Name;

/// Names of one table's objects.
///
/// ```text
/// 0/log         what is the same for all sessions       0/s/7         session 7
/// 0/s/7/in      octets of the peer                      0/s/7/out     octets to the peer
/// 0/s/7/record  its record                              0/s/7/snap/3  its third snapshot
/// 0/s/7/socket  what its connection is made again with
/// 0/e/41        entry 41
/// configuration what all tables are configured by       configuration/serial   its serial
/// ```
#[derive(Clone, Debug)]
pub struct Names(u32);

impl Names {
    /// Those of the table with this number; 0 is the default one.
    pub fn new(table: u32) -> Self {
        Self(table)
    }

    /// The log: a `stored.v1/Log`.
    pub fn log(&self) -> Name {
        self.name("log")
    }

    /// A session: a `stored.v1/Session`.
    pub fn session(&self, id: SessionId) -> Name {
        self.name(&format!("s/{}", id.0))
    }

    /// The record of a session, as its log has it.
    pub fn record(&self, id: SessionId) -> Name {
        self.name(&format!("s/{}/record", id.0))
    }

    /// What its connection is made again with: a `stored.v1/Socket`.
    pub fn socket(&self, id: SessionId) -> Name {
        self.name(&format!("s/{}/socket", id.0))
    }

    /// The range of a peer's octets.
    pub fn incoming(&self, id: SessionId) -> Name {
        self.name(&format!("s/{}/in", id.0))
    }

    /// The range of octets to a peer.
    pub fn outgoing(&self, id: SessionId) -> Name {
        self.name(&format!("s/{}/out", id.0))
    }

    /// The range of a snapshot's records, each behind its length (32 bits, little endian).
    pub fn snapshot(&self, id: SessionId, number: u32) -> Name {
        self.name(&format!("s/{}/snap/{number}", id.0))
    }

    /// An entry: a `stored.v1/Entry`.
    pub fn entry(&self, number: u64) -> Name {
        self.name(&format!("e/{number}"))
    }

    /// The configuration that the router runs, or is about to: a `stored.v1/Configuration`. Of no table.
    pub fn configuration() -> Name {
        Name::new(b"configuration").expect("it is short")
    }

    /// The serial of that, 64 bits, little endian: it is read more often.
    pub fn configuration_serial() -> Name {
        Name::new(b"configuration/serial").expect("it is short")
    }

    fn name(&self, name: &str) -> Name {
        Name::new(format!("{}/{name}", self.0).as_bytes()).expect("numbers and words are short")
    }

    /// The table of an object, if the name is one of these.
    pub(crate) fn table_of(name: &Name) -> Option<u32> {
        let text = str::from_utf8(name.as_slice()).ok()?;
        text.split_once('/')?.0.parse().ok()
    }

    /// The table and the session whose `stored.v1/Session` has this name.
    pub(crate) fn which(name: &Name) -> Option<(u32, SessionId)> {
        let table = Self::table_of(name)?;
        Some((table, Self::new(table).session_of(name)?))
    }

    /// Whether an object is about what peers have said: not about what they were told.
    pub(crate) fn is_received(name: &Name) -> bool {
        let text = str::from_utf8(name.as_slice()).unwrap_or_default();
        let part = text.split_once('/').map_or("", |(_, part)| part);
        Self::table_of(name).is_some() && !part.starts_with("e/") && !part.ends_with("/out")
    }

    /// The session whose `stored.v1/Session` has this name.
    pub(crate) fn session_of(&self, name: &Name) -> Option<SessionId> {
        let text = str::from_utf8(name.as_slice()).ok()?;
        let id = text.strip_prefix(&format!("{}/s/", self.0))?.parse().ok()?;
        Some(SessionId(id))
    }
}
