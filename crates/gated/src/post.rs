//! The queue of one network namespace: its sockets, our tables, and the connections that go through.

use std::{io, os::fd::OwnedFd, time::Duration};

use holdfast_gate::{
    Connection, Counts, Flows, Marks, Segment, Verdicts, kept,
    nfnetlink::{
        self, ListedSocket, MOST_PORTS, Messages, Received, Shape, TABLE, TABLE_CHANGES, TRIAL, Verdict,
    },
};
use holdfast_sys::{
    memory::SharedMemory,
    netlink::{Family, Socket, join_group},
};
use holdfast_types::HashKey;
use rustix::io::Errno;
use tracing::{debug, error, info, warn};

/// Packets that the kernel holds for us at most; beyond it drops.
pub const QUEUE_ROOM: u32 = 65_536;
/// Octets of packets that we have not read yet.
const RECEIVE_ROOM: usize = 8 << 20;
/// Octets of answers and changes that we have not read yet.
const ANSWER_ROOM: usize = 1 << 20;
/// Longest datagram: those of a list of sockets.
const DATAGRAM: usize = 64 << 10;
/// Packets that are read in a turn.
const PACKETS: usize = 256;
/// Connections that are looked at in a turn when watermarks have moved.
const FLOWS: usize = 512;
/// Octets of verdicts that are sent at once: below what a socket sends by default.
const SENT_AT_ONCE: usize = 64 << 10;
/// The fence is opened anew so long before it closes.
const AHEAD: Duration = Duration::from_millis(500);
/// It is opened for so long at most.
const LONGEST: Duration = Duration::from_secs(10);
/// Whoever needs longer to open it opens it again, so often at most.
const LATE: Duration = Duration::from_millis(20);
const OPENINGS: usize = 3;
/// For how long it is opened without a lease.
const MOMENT: Duration = Duration::from_secs(1);
/// Datagrams of a list of sockets, or of answers, that are read before it counts as endless.
const MOST_DATAGRAMS: usize = 4096;

/// Why the gate cannot stand in a namespace.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// A socket of netlink cannot be made.
    #[error("a netlink socket: {0}")]
    Socket(#[source] io::Error),
    /// The kernel has no packet queues, or another program has this one.
    #[error("packet queue {queue}: {}", queue_words(*.errno))]
    Queue {
        /// Its number.
        queue: u16,
        /// What the kernel says.
        errno: i32,
    },
    /// The kernel does not take our tables.
    #[error("the table of nf_tables: {}", table_words(*.errno))]
    Table {
        /// What the kernel says.
        errno: i32,
    },
    /// The list of sockets cannot be had.
    #[error("the list of sockets (sock_diag): {0}")]
    Sockets(#[source] io::Error),
    /// Packets do not come to the queue.
    #[error("a session with ourselves did not go through packet queue {queue}: {what}")]
    Trial {
        /// Its number.
        queue: u16,
        /// What went wrong.
        what: String,
    },
}

fn words(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

fn queue_words(errno: i32) -> String {
    match Errno::from_raw_os_error(errno) {
        Errno::BUSY | Errno::PERM => "another program reads it, or this one has no CAP_NET_ADMIN".to_owned(),
        Errno::INVAL | Errno::OPNOTSUPP => {
            format!("the kernel has none (CONFIG_NETFILTER_NETLINK_QUEUE): {}", words(errno))
        }
        _ => words(errno).to_string(),
    }
}

fn table_words(errno: i32) -> String {
    match Errno::from_raw_os_error(errno) {
        Errno::NOENT => {
            "the kernel has no target NFQUEUE (CONFIG_NETFILTER_XT_TARGET_NFQUEUE, CONFIG_NFT_COMPAT)"
                .to_owned()
        }
        _ => words(errno).to_string(),
    }
}

/// What a post is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Number of the packet queue.
    pub queue: u16,
    /// At which ports.
    pub ports: Vec<u16>,
    /// Number of the VRF in the marks; 0: the default table.
    pub vrf: u32,
}

/// The sockets of a post, all of one network namespace.
#[derive(Debug)]
pub struct Sockets {
    queue: Socket,
    /// Requests to nf_tables, with their answers.
    control: Socket,
    /// What others do there.
    watch: Socket,
    list: Socket,
}

impl Sockets {
    /// Those of the namespace that the calling thread is in.
    ///
    /// # Errors
    /// [`Missing::Socket`].
    pub fn open() -> Result<Self, Missing> {
        let open = |family, room| Socket::open(family, room).map_err(Missing::Socket);
        Self::watching(Self {
            queue: open(Family::Netfilter, RECEIVE_ROOM)?,
            control: open(Family::Netfilter, ANSWER_ROOM)?,
            watch: open(Family::Netfilter, ANSWER_ROOM)?,
            list: open(Family::SockDiag, ANSWER_ROOM)?,
        })
    }

    /// Three of netfilter and one of sock_diag, opened by somebody else in another namespace.
    ///
    /// # Errors
    /// [`Missing::Socket`].
    pub fn over([queue, control, watch, list]: [OwnedFd; 4]) -> Result<Self, Missing> {
        let over = |socket, room| Socket::over(socket, room).map_err(Missing::Socket);
        Self::watching(Self {
            queue: over(queue, RECEIVE_ROOM)?,
            control: over(control, ANSWER_ROOM)?,
            watch: over(watch, ANSWER_ROOM)?,
            list: over(list, ANSWER_ROOM)?,
        })
    }

    fn watching(self) -> Result<Self, Missing> {
        join_group(&self.watch, TABLE_CHANGES).map_err(Missing::Socket)?;
        Ok(self)
    }
}

/// What a post has counted besides its flows.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Packets that could not be read; dropped.
    pub unreadable: u64,
    /// Verdicts about packets that the kernel had dropped.
    pub lost: u64,
    /// How often the socket had no room.
    pub overruns: u64,
    /// How often somebody removed our tables.
    pub gaps: u64,
}

/// What a turn has left to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// There may be more packets, or connections to look at.
    pub more: bool,
    /// The replicator is to be told that something waits for it.
    pub news: bool,
}

/// The queue of one network namespace.
#[derive(Debug)]
pub struct Post {
    settings: Settings,
    sockets: Sockets,
    flows: Flows,
    kept: SharedMemory,
    buffer: Box<[u8]>,
    messages: Messages,
    verdicts: Verdicts,
    sequence: u32,
    /// Nothing comes in.
    is_closed: bool,
    /// Our tables are in place, as far as we know.
    has_tables: bool,
    /// Until when the fence lets segments pass, since the machine was started.
    fence_until: Duration,
    /// The marks are others than before.
    other_marks: bool,
    /// Where the look at connections goes on.
    from: usize,
    tally: Tally,
}

impl Post {
    /// Takes the queue, puts our tables in place, and learns which connections there are: from what the process before has
    /// kept, and else from the kernel. `kept` is a memory of [`kept::KEPT`] octets.
    ///
    /// # Errors
    /// What is missing in the kernel.
    pub fn open(
        settings: Settings,
        sockets: Sockets,
        kept: SharedMemory,
        key: HashKey,
    ) -> Result<Self, Missing> {
        let flows = Flows::new(settings.vrf, QUEUE_ROOM as usize, key);
        let mut post = Self {
            settings,
            sockets,
            flows,
            kept,
            buffer: vec![0; DATAGRAM].into(),
            messages: Messages::default(),
            verdicts: Verdicts::new(),
            sequence: 1,
            is_closed: false,
            has_tables: false,
            fence_until: Duration::ZERO,
            other_marks: false,
            from: 0,
            tally: Tally::default(),
        };
        let is_kept = kept::is_kept(post.kept.octets());
        let is_left_over = !is_kept && post.finds_tables()?;
        // A router that lives has the queue: then nothing of what is here is ours to touch, and the next attempt finds it as it is.
        post.bind()?;
        if is_kept {
            post.is_closed = kept::is_closed(post.kept.octets());
            post.flows.restore(kept::read(post.kept.octets()));
        } else {
            post.kept.octets_mut().fill(0);
            kept::begin(post.kept.octets_mut());
        }
        post.install()?;
        if is_left_over {
            // A router has died here: in order it would have removed the tables. Its sockets may still be dying. What they say waits
            // in the queue, and is of connections that nobody knows.
            post.destroy_sockets(|is_known| !is_known)?;
        } else {
            // Behind the tables: who begins from now on is seen in the queue.
            post.learn_sockets()?;
        }
        post.keep();
        Ok(post)
    }

    /// Whether anything comes in from now on. When it closes, all sockets at our ports are destroyed; when it was closed before,
    /// those that no connection of this router has: others have been made again since.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn set_closed(&mut self, is_closed: bool) -> Result<(), Missing> {
        let was_closed = self.is_closed;
        if was_closed != is_closed {
            // A process that dies in here leaves it closed: whoever closes it opens it, or closes it again.
            kept::set_closed(self.kept.octets_mut(), true);
            self.is_closed = is_closed;
            self.install()?;
            kept::set_closed(self.kept.octets_mut(), is_closed);
            self.drop_held();
        }
        // Whoever closes it has no session: also a connection that is known may be one that this router has lost.
        if is_closed { self.destroy_sockets(|is_known| !was_closed || !is_known) } else { Ok(()) }
    }

    /// Whether nothing comes in.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The connections.
    pub fn flows(&self) -> &Flows {
        &self.flows
    }

    /// What was counted.
    pub fn counted(&self) -> (Counts, Tally) {
        (self.flows.counts(), self.tally)
    }

    /// Whether our tables are in place.
    pub fn has_tables(&self) -> bool {
        self.has_tables
    }

    /// Readable when packets wait, and when somebody changes tables.
    pub fn sockets(&self) -> (&Socket, &Socket) {
        (&self.sockets.queue, &self.sockets.watch)
    }

    /// The marks are others from now on.
    pub fn use_other_marks(&mut self) {
        self.other_marks = true;
    }

    /// Stands at other ports.
    ///
    /// # Errors
    /// The kernel does not take our tables; those before are still there.
    pub fn set_ports(&mut self, ports: &[u16]) -> Result<(), Missing> {
        if self.settings.ports != ports {
            self.settings.ports = ports.to_vec();
            self.install()?;
            self.drop_held();
        }
        Ok(())
    }

    /// Removes our tables: everything leaves from now on. For an orderly end of the router.
    pub fn open_up(&mut self) {
        self.messages.clear();
        self.messages.remove_tables(TABLE, self.sequence);
        self.has_tables = false;
        if let Err(error) = self.ask() {
            warn!(event = "gate-table-left", "the table {TABLE} could not be removed: {error}");
        }
    }

    /// Reads packets, decides about them, and lets go what may. `now` is the time since the machine was
    /// started; the marks say until when the lease holds.
    ///
    /// # Errors
    /// The queue cannot be read any more.
    pub fn turn(&mut self, marks: Option<&Marks<'_>>, now: impl Fn() -> Duration) -> io::Result<Turn> {
        let anew = std::mem::take(&mut self.other_marks);
        self.flows.look_at_slots(marks, anew, &mut self.verdicts);
        let began = now();
        let lease = self.has_lease(marks, began);
        let milliseconds = u64::try_from(began.as_millis()).unwrap_or(u64::MAX);
        let Self { sockets, flows, buffer, verdicts, tally, from, .. } = self;
        let more_flows = flows.release(marks, lease, from, FLOWS, verdicts);
        let mut more = true;
        for _ in 0..PACKETS {
            let datagram = match sockets.queue.receive(buffer) {
                Ok(datagram) => datagram,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    more = false;
                    break;
                }
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    tally.overruns += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            nfnetlink::read(datagram, |received| match received {
                Received::Packet(packet) => match Segment::read(packet.octets, packet.length) {
                    Ok(segment) => flows.segment(packet.id, &segment, marks, lease, milliseconds, verdicts),
                    Err(_) => {
                        tally.unreadable += 1;
                        verdicts.push((packet.id, Verdict::Drop));
                    }
                },
                Received::Outcome { errno, .. } if errno != 0 => tally.lost += 1,
                Received::Outcome { .. }
                | Received::Done
                | Received::Removed { .. }
                | Received::Socket(..)
                | Received::Other => {}
            });
        }
        // Records go first: what leaves is known to the next process.
        self.keep();
        let leaves = self.verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Accept);
        let may_pass = !leaves || (0..OPENINGS).any(|_| self.open_fence(marks, &now));
        // The look at the lease is the last: whoever is stopped behind it finds the fence closed.
        // While nothing comes in, nothing is said: old sockets are destroyed, and new ones wait.
        if self.is_closed || !may_pass || lease && !self.has_lease(marks, now()) {
            // It ended meanwhile. Which of these are of gated connections is not known any more.
            self.verdicts.iter_mut().for_each(|(_, verdict)| *verdict = Verdict::Drop);
        }
        self.send_verdicts()?;
        let news = self.flows.tell_marks(marks);
        Ok(Turn { more: more || more_flows, news })
    }

    /// Has the fence let segments pass, unless it does for a while: as long as the lease holds, and without one, for sessions
    /// that are not gated, for a moment. Whether it does.
    ///
    /// Whoever is stopped in here opens it late, and for too long: then it is done once more.
    fn open_fence(&mut self, marks: Option<&Marks<'_>>, now: impl Fn() -> Duration) -> bool {
        let began = now();
        let lease = marks.map_or(Duration::ZERO, |marks| Duration::from_nanos(marks.lease()));
        let until = if lease > began { lease.min(began + LONGEST) } else { began + MOMENT };
        if self.fence_until > began + AHEAD || until <= self.fence_until {
            return self.fence_until > began;
        }
        let milliseconds = u64::try_from((until - began).as_millis()).unwrap_or(0).max(1);
        self.messages.clear();
        self.messages.open_fence(TABLE, milliseconds, self.sequence);
        let is_open = self.has_tables && matches!(self.ask(), Ok(0));
        if !is_open {
            // Somebody has removed our tables: they are put in place again when that is seen.
            self.has_tables = false;
            return false;
        }
        let is_late = now() - began > LATE;
        self.fence_until = if is_late { Duration::ZERO } else { began + Duration::from_millis(milliseconds) };
        !is_late
    }

    fn has_lease(&self, marks: Option<&Marks<'_>>, now: Duration) -> bool {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.has_tables && marks.is_some_and(|marks| marks.lease() > now)
    }

    fn keep(&mut self) {
        let octets = self.kept.octets_mut();
        self.flows.take_changed(|number, record| kept::write(octets, number, record.as_ref()));
    }

    fn send_verdicts(&mut self) -> io::Result<()> {
        self.messages.clear();
        for (packet, verdict) in self.verdicts.drain(..) {
            self.messages.verdict(self.settings.queue, packet, verdict);
        }
        self.messages.octets().chunks(SENT_AT_ONCE).try_for_each(|octets| self.sockets.queue.send(octets))
    }

    fn drop_held(&mut self) {
        self.flows.drop_held(&mut self.verdicts);
        // If this fails, so does the next turn.
        let _ = self.send_verdicts();
    }

    /// Looks at what others have done to tables, and puts ours back. True: they were gone, or are.
    pub fn look_at_tables(&mut self) -> bool {
        let (mut is_removed, mut has_dropped) = (!self.has_tables, false);
        let own = self.sockets.control.port();
        for _ in 0..MOST_DATAGRAMS {
            match self.sockets.watch.receive(&mut self.buffer) {
                Ok(datagram) => nfnetlink::read(datagram, |received| {
                    if let Received::Removed { ours, has_dropped: dropped, by } = received
                        && by != own
                    {
                        is_removed |= ours;
                        has_dropped |= dropped;
                    }
                }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Something was lost. Our tables are put in place whatever it was.
                Err(_) => is_removed = true,
            }
        }
        if is_removed {
            if std::mem::replace(&mut self.has_tables, false) {
                self.tally.gaps += 1;
                warn!(
                    event = "gate-table-removed",
                    "somebody has removed the table {TABLE}, and nothing was held"
                );
            }
            match self.install() {
                Ok(()) => info!(event = "gate-table-restored", "the table {TABLE} is in place again"),
                Err(error) => error!(event = "gate-table-refused", "{error}"),
            }
        }
        if is_removed || has_dropped {
            // The kernel drops what waits in queues whenever a chain goes, whosever it is.
            self.drop_held();
        }
        is_removed
    }

    fn bind(&mut self) -> Result<(), Missing> {
        let queue = self.settings.queue;
        self.messages.clear();
        self.sequence = self.sequence.wrapping_add(1);
        self.messages.bind_queue(queue, QUEUE_ROOM, self.sequence);
        let Self { sockets, messages, buffer, .. } = self;
        let errno = sockets.queue.send(messages.octets()).and_then(|()| outcome(&sockets.queue, buffer));
        match errno.map_err(Missing::Socket)? {
            0 => Ok(()),
            errno => Err(Missing::Queue { queue, errno }),
        }
    }

    fn install(&mut self) -> Result<(), Missing> {
        self.has_tables = false;
        self.messages.clear();
        let ports = &self.settings.ports[..self.settings.ports.len().min(MOST_PORTS)];
        let shape = Shape { is_closed: self.is_closed, has_fence: true };
        self.messages.install_tables(TABLE, ports, self.settings.queue, shape, self.sequence);
        self.fence_until = Duration::ZERO;
        match self.ask().map_err(Missing::Socket)? {
            0 => self.has_tables = true,
            errno => return Err(Missing::Table { errno }),
        }
        Ok(())
    }

    /// Puts a table in place for one port more, or removes it: for a trial.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn try_port(&mut self, port: Option<u16>) -> Result<(), Missing> {
        self.messages.clear();
        match port {
            Some(port) => {
                self.messages.install_tables(
                    TRIAL,
                    &[port],
                    self.settings.queue,
                    Shape::default(),
                    self.sequence,
                );
            }
            None => self.messages.remove_tables(TRIAL, self.sequence),
        }
        match self.ask().map_err(Missing::Socket)? {
            0 => Ok(()),
            errno => Err(Missing::Table { errno }),
        }
    }

    /// Sends what is in the messages to nf_tables; the first error of the answers, or 0.
    fn ask(&mut self) -> io::Result<i32> {
        self.sequence = self.sequence.wrapping_add(1);
        let Self { sockets, messages, buffer, .. } = self;
        sockets.control.send(messages.octets())?;
        outcome(&sockets.control, buffer)
    }

    /// Whether tables of our name are there.
    fn finds_tables(&mut self) -> Result<bool, Missing> {
        self.messages.clear();
        self.sequence = self.sequence.wrapping_add(1);
        self.messages.ask_for_table(TABLE, self.sequence);
        Ok(self.ask().map_err(Missing::Socket)? == 0)
    }

    fn learn_sockets(&mut self) -> Result<(), Missing> {
        for socket in self.list_sockets()? {
            self.flows.add_older(Connection::new(socket.local, socket.remote, self.settings.vrf));
        }
        Ok(())
    }

    /// Sockets of a router that is dead. What they say does not leave: their connections are unknown.
    fn destroy_sockets(&mut self, is_one: impl Fn(bool) -> bool) -> Result<(), Missing> {
        for socket in self.list_sockets()? {
            let connection = Connection::new(socket.local, socket.remote, self.settings.vrf);
            if !is_one(self.flows.knows(&connection)) {
                continue;
            }
            self.messages.clear();
            self.sequence = self.sequence.wrapping_add(1);
            self.messages.destroy_socket(&socket.id, self.sequence);
            let Self { sockets, messages, buffer, .. } = self;
            sockets.list.send(messages.octets()).map_err(Missing::Sockets)?;
            // It may have gone by itself.
            match outcome(&sockets.list, buffer).map_err(Missing::Sockets)? {
                0 => info!(event = "left-over-destroyed", "a socket of a dead router: {connection:?}"),
                errno => debug!("a socket of a dead router: {}", words(errno)),
            }
        }
        Ok(())
    }

    /// The sockets of our ports.
    fn list_sockets(&mut self) -> Result<Vec<ListedSocket>, Missing> {
        let mut found = Vec::new();
        for is_v6 in [false, true] {
            self.messages.clear();
            self.messages.ask_for_sockets(is_v6, self.sequence);
            let Self { sockets, messages, buffer, settings, .. } = self;
            let list = &sockets.list;
            list.send(messages.octets()).map_err(Missing::Sockets)?;
            let (mut is_done, mut errno) = (false, 0);
            for _ in 0..MOST_DATAGRAMS {
                let datagram = list.receive(buffer).map_err(Missing::Sockets)?;
                nfnetlink::read(datagram, |received| match received {
                    Received::Socket(socket) => {
                        let is_ours = |port| settings.ports.contains(&port);
                        if is_ours(socket.local.port()) || is_ours(socket.remote.port()) {
                            found.push(socket);
                        }
                    }
                    Received::Done => is_done = true,
                    Received::Outcome { errno: refused, .. } => (is_done, errno) = (true, refused),
                    Received::Packet(_) | Received::Removed { .. } | Received::Other => {}
                });
                if is_done {
                    break;
                }
            }
            // A kernel without IPv6 has no such sockets.
            if errno != 0 && !is_v6 {
                return Err(Missing::Sockets(words(errno)));
            }
        }
        Ok(found)
    }
}

/// The first error among the answers that are there, or 0. The kernel has answered when a request was sent.
fn outcome(socket: &Socket, buffer: &mut [u8]) -> io::Result<i32> {
    let mut first = None;
    for _ in 0..MOST_DATAGRAMS {
        match socket.receive(buffer) {
            Ok(datagram) => nfnetlink::read(datagram, |received| {
                if let Received::Outcome { errno, .. } = received
                    && first.is_none_or(|first| first == 0)
                {
                    first = Some(errno);
                }
            }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    first.ok_or_else(|| io::Error::other("the kernel did not answer"))
}
