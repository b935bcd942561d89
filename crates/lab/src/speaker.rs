//! A plain BGP speaker: feeder, sink, or both.
//!
//! It announces [`Table`]s as fast as the peer takes them and keeps what the peer announces. It is no router: there
//! is no decision, no policy, and of the state machine only what a willing peer needs. One thread, one session.
//!
//! ```no_run
//! # use holdfast_lab::{speaker::{Speaker, SpeakerConfig}, table::Synthetic};
//! # use std::{sync::Arc, time::Duration};
//! # fn main() -> anyhow::Result<()> {
//! let minute = Duration::from_secs(60);
//! let table = Arc::new(Synthetic::ipv4(1, 100_000).build());
//! let feeder = Speaker::spawn(SpeakerConfig {
//!     tables: vec![table],
//!     ..SpeakerConfig::connect("10.0.1.2".parse()?, "10.0.1.1".parse()?, 65001)
//! })?;
//! let sink = Speaker::spawn(SpeakerConfig::connect("10.0.2.2".parse()?, "10.0.2.1".parse()?, 65002))?;
//! sink.wait_routes(100_000, minute)?;
//! feeder.flap();
//! sink.wait_routes(0, minute)?;
//! # Ok(())
//! # }
//! ```

mod outgoing;
mod received;
mod session;
mod socket;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_bgp_wire::RouteRefresh;
use holdfast_types::{Asn, Family, Prefix, RouterId};

use crate::table::Table;
use received::Shared;
pub use received::{Received, Status};

/// Who opens the connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// The speaker, from its own address; it tries again every 100 ms.
    Connect(SocketAddr),
    /// The peer, to this port.
    Listen(u16),
}

/// What a speaker is.
#[derive(Clone, Debug)]
pub struct SpeakerConfig {
    /// Own address.
    pub local: IpAddr,
    /// Who opens the connection.
    pub side: Side,
    /// Own AS number.
    pub asn: Asn,
    /// BGP identifier.
    pub router_id: RouterId,
    /// Seconds; a third of what both sides agree on passes between KEEPALIVEs. Its end is not watched.
    pub hold_time: u16,
    /// Families of the session.
    pub families: Vec<Family>,
    /// Next hop of IPv4 routes; an IPv6 address needs a peer with RFC 8950.
    pub next_hop_v4: IpAddr,
    /// Next hop of IPv6 routes.
    pub next_hop_v6: Ipv6Addr,
    /// Offer four-octet AS numbers (RFC 6793). Without, paths are sent in two octets.
    pub four_octet_as: bool,
    /// Offer messages of up to 65,535 octets (RFC 8654).
    pub extended_messages: bool,
    /// Offer to send signed paths (RFC 8205), which [`Speaker::send_raw`] does.
    pub signs: bool,
    /// Offer to take signed paths. Nothing is verified.
    pub takes_signed: bool,
    /// Keep the octets of each UPDATE, for [`Speaker::updates`].
    pub records: bool,
    /// Announced when a session comes up, then End-of-RIB for every family.
    pub tables: Vec<Arc<Table>>,
    /// Come back after the end of a session.
    pub reconnect: bool,
    /// Octets a second to read at most: a slow peer. With `receive_buffer`, or the kernel hides it.
    pub read_rate: Option<usize>,
    /// Size of the socket's receive buffer, in octets.
    pub receive_buffer: Option<usize>,
}

impl SpeakerConfig {
    /// Connects to port 179 of `remote`, for the families of both addresses' kind and IPv4, with own addresses as
    /// next hops.
    pub fn connect(local: IpAddr, remote: IpAddr, asn: u32) -> Self {
        Self::new(local, Side::Connect(SocketAddr::new(remote, 179)), asn)
    }

    /// Waits at port 179.
    pub fn listen(local: IpAddr, asn: u32) -> Self {
        Self::new(local, Side::Listen(179), asn)
    }

    fn new(local: IpAddr, side: Side, asn: u32) -> Self {
        let (v4, v6) = match local {
            IpAddr::V4(v4) => (v4, v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => (Ipv4Addr::from_bits(0x0a00_0000 | asn & 0xff_ffff), v6),
        };
        let families = match local {
            IpAddr::V4(_) => vec![Family::IPV4_UNICAST],
            IpAddr::V6(_) => vec![Family::IPV6_UNICAST],
        };
        let id = RouterId::new(v4.to_bits()).or(RouterId::new(1));
        Self {
            local,
            side,
            asn: Asn(asn),
            router_id: id.expect("one is not zero"),
            hold_time: 90,
            families,
            next_hop_v4: v4.into(),
            next_hop_v6: v6,
            four_octet_as: true,
            extended_messages: false,
            signs: false,
            takes_signed: false,
            records: false,
            tables: Vec::new(),
            reconnect: true,
            read_rate: None,
            receive_buffer: None,
        }
    }
}

/// What the handle tells the thread.
#[derive(Debug)]
enum Command {
    Announce(Arc<Table>),
    Withdraw(Arc<Table>),
    Replace {
        old: Arc<Table>,
        new: Arc<Table>,
    },
    EndOfRib,
    Refresh(RouteRefresh),
    ReadRate(Option<usize>),
    /// Close the connection without a word.
    Flap,
    /// Send these octets as they are.
    Raw(Vec<u8>),
    /// Cease and end.
    Stop,
}

/// A running speaker. It ends when this is dropped.
#[derive(Debug)]
pub struct Speaker {
    commands: Sender<Command>,
    waker: socket::Waker,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Speaker {
    /// Starts a speaker on a thread of its own, in the network namespace of the caller.
    ///
    /// # Errors
    /// Its port is taken, or its address is not there, when it should listen.
    pub fn spawn(config: SpeakerConfig) -> Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let (waker, woken) = socket::waker()?;
        let listener = match config.side {
            Side::Listen(port) => {
                Some(socket::listen(SocketAddr::new(config.local, port), config.receive_buffer)?)
            }
            Side::Connect(_) => None,
        };
        let shared = Arc::new(Shared::default());
        let peer = session::Peer::new(config, inbox, woken, listener, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("speaker".into()).spawn(|| peer.run())?;
        Ok(Self { commands, waker, shared, thread: Some(thread) })
    }

    fn tell(&self, command: Command) {
        self.shared.lock().told += 1;
        // A speaker that ended by itself has no use for commands.
        let _ = self.commands.send(command);
        self.waker.wake();
    }

    /// Announces a table now, and again whenever a session comes up.
    pub fn announce(&self, table: Arc<Table>) {
        self.tell(Command::Announce(table));
    }

    /// Withdraws all destinations of a table; if it was announced as a whole, it is so no more.
    pub fn withdraw(&self, table: Arc<Table>) {
        self.tell(Command::Withdraw(table));
    }

    /// Has the second table take the place of the first, which was announced as a whole: only what differs is sent.
    pub fn replace(&self, old: Arc<Table>, new: Arc<Table>) {
        self.tell(Command::Replace { old, new });
    }

    /// Sends End-of-RIB for every family, after what was announced before.
    pub fn end_of_rib(&self) {
        self.tell(Command::EndOfRib);
    }

    /// Asks the peer to send all of a family again.
    pub fn refresh(&self, family: Family) {
        self.tell(Command::Refresh(RouteRefresh { family, subtype: 0 }));
    }

    /// Reads at most so many octets a second from now on.
    pub fn set_read_rate(&self, rate: Option<usize>) {
        self.tell(Command::ReadRate(rate));
    }

    /// Drops the connection. It comes back by itself if the configuration says so.
    pub fn flap(&self) {
        let before = self.status().sessions;
        self.tell(Command::Flap);
        // The caller must not mistake the old session for the new one.
        let _ = self.shared.wait("the end of the session", Duration::from_secs(5), |state| {
            (!state.status.established || state.status.sessions > before).then_some(())
        });
    }

    /// Sends octets as they are, whole messages or not.
    pub fn send_raw(&self, octets: Vec<u8>) {
        self.tell(Command::Raw(octets));
    }

    /// What is known of the session now.
    pub fn status(&self) -> Status {
        self.shared.lock().status()
    }

    /// The UPDATEs of this session, each from its marker on, End-of-RIB among them; none unless the configuration says so.
    pub fn updates(&self) -> Vec<Vec<u8>> {
        self.shared.lock().updates.clone()
    }

    /// All routes that the peer has announced and not withdrawn.
    pub fn routes(&self) -> BTreeMap<Prefix, Arc<Received>> {
        self.shared.lock().routes()
    }

    /// One of them.
    pub fn route(&self, prefix: Prefix) -> Option<Arc<Received>> {
        self.shared.lock().route(prefix)
    }

    /// Waits for a session.
    ///
    /// # Errors
    /// There was none in time.
    pub fn wait_established(&self, limit: Duration) -> Result<()> {
        self.shared.wait("a session", limit, |state| state.status.established.then_some(()))
    }

    /// Waits until the session is gone.
    ///
    /// # Errors
    /// It stayed.
    pub fn wait_down(&self, limit: Duration) -> Result<()> {
        self.shared.wait("the end of the session", limit, |state| (!state.status.established).then_some(()))
    }

    /// Waits until there are exactly so many routes; returns when that was.
    ///
    /// # Errors
    /// The number was another at the end; the error says which.
    pub fn wait_routes(&self, count: usize, limit: Duration) -> Result<Instant> {
        let reached = self.shared.wait("routes", limit, |state| (state.len() == count).then(Instant::now));
        reached.with_context(|| format!("{} routes instead of {count}", self.status().routes))
    }

    /// Waits for the End-of-RIB of a family.
    ///
    /// # Errors
    /// It did not come.
    pub fn wait_end_of_rib(&self, family: Family, limit: Duration) -> Result<()> {
        self.shared.wait("End-of-RIB", limit, |state| state.status.end_of_rib.contains(&family).then_some(()))
    }

    /// Waits until all that was to be announced is with the kernel.
    ///
    /// # Errors
    /// The peer did not take it in time.
    pub fn wait_sent(&self, limit: Duration) -> Result<()> {
        self.shared.wait("end of sending", limit, |state| state.all_sent().then_some(()))
    }

    /// Waits until no UPDATE has come for `quiet`; none at all counts as quiet too.
    ///
    /// # Errors
    /// They came all the time.
    pub fn wait_quiet(&self, quiet: Duration, limit: Duration) -> Result<()> {
        self.shared.wait("quiet", limit, |state| {
            state.status.last_update.is_none_or(|last| last.elapsed() >= quiet).then_some(())
        })
    }

    /// Ends the session with Cease and the thread with it.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; here is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.end();
    }
}
