//! What a peer got from the router, against what the store had by then.

use std::{
    collections::BTreeMap,
    io::Read,
    net::{IpAddr, SocketAddr},
    process::{Child, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::book::{Book, Way};
use crate::{
    drill::capture::{Pcap, flag},
    netns::Namespace,
    wait,
};

/// KiB that tcpdump may hold before we read them.
const BUFFER: &str = "65536";
/// One of so many octets may be missing in the capture.
const MOST_UNSEEN: usize = 20;
/// Faults that are told.
const SHOWN: usize = 6;

/// A TCP segment, over IPv4 or IPv6, with or without a signature.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Microseconds since 1970.
    pub(crate) at: u64,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) payload: Vec<u8>,
}

impl Segment {
    /// Reads an Ethernet frame; `None` if it is not TCP, or not whole.
    pub(crate) fn parse(at: u64, frame: &[u8]) -> Option<Self> {
        let packet = frame.get(14..)?;
        let word =
            |octets: &[u8], at: usize| Some(u16::from_be_bytes(octets.get(at..at + 2)?.try_into().ok()?));
        let (source, destination, tcp): (IpAddr, IpAddr, _) = match packet.first()? >> 4 {
            4 if *packet.get(9)? == 6 => {
                let address = |at: usize| <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok();
                let (header, length) = (usize::from(packet[0] & 0xf) * 4, usize::from(word(packet, 2)?));
                (address(12)?.into(), address(16)?.into(), packet.get(header..length)?)
            }
            6 if *packet.get(6)? == 6 => {
                let address = |at: usize| <[u8; 16]>::try_from(packet.get(at..at + 16)?).ok();
                let length = usize::from(word(packet, 4)?);
                (address(8)?.into(), address(24)?.into(), packet.get(40..40 + length)?)
            }
            _ => return None,
        };
        let number = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
        Some(Self {
            at,
            from: SocketAddr::new(source, word(tcp, 0)?),
            to: SocketAddr::new(destination, word(tcp, 2)?),
            sequence: number(4)?,
            acknowledged: number(8)?,
            flags: *tcp.get(13)?,
            window: word(tcp, 14)?,
            payload: tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?.to_vec(),
        })
    }

    /// One that a test makes.
    #[cfg(test)]
    pub(crate) fn made(
        at: u64,
        from: SocketAddr,
        to: SocketAddr,
        sequence: u32,
        flags: u8,
        payload: &[u8],
    ) -> Self {
        Self { at, from, to, sequence, acknowledged: 0, flags, window: 1, payload: payload.to_vec() }
    }

    /// Whether all of these flags are set.
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// A capture of all BGP at a peer's interface.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Child,
    segments: Arc<Mutex<Vec<Segment>>>,
    reader: Option<JoinHandle<Result<()>>>,
}

impl Capture {
    /// Begins, and waits until it has begun.
    pub fn start(host: &Namespace, interface: &str) -> Result<Self> {
        let mut command = host.command("tcpdump");
        command.args(["-i", interface, "-s", "0", "-B", BUFFER, "-U", "--immediate-mode", "-w", "-"]);
        command.args(["tcp", "port", "179"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut tcpdump = command.spawn().context("starting tcpdump")?;
        let output = tcpdump.stdout.take().context("output of tcpdump")?;
        let segments = Arc::<Mutex<Vec<Segment>>>::default();
        let (theirs, (begun, beginning)) = (Arc::clone(&segments), mpsc::channel());
        let reader = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || read(output, &theirs, || begun.send(()).is_ok()))?;
        let capture = Self { tcpdump, segments, reader: Some(reader) };
        wait::until("tcpdump", Duration::from_secs(10), || {
            beginning.try_recv().map_err(|error| error.to_string())
        })?;
        Ok(capture)
    }

    fn segments(&self) -> MutexGuard<'_, Vec<Segment>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sessions with an address of the peer, the first one first.
    pub fn streams(&self, peer: IpAddr) -> Vec<Connection> {
        let segments = self.segments();
        let mut all: BTreeMap<(SocketAddr, SocketAddr), Vec<&Segment>> = BTreeMap::new();
        for segment in segments.iter() {
            if segment.from.ip() == peer {
                all.entry((segment.from, segment.to)).or_default().push(segment);
            } else if segment.to.ip() == peer {
                all.entry((segment.to, segment.from)).or_default().push(segment);
            }
        }
        let mut found: Vec<_> = all
            .into_iter()
            .filter_map(|(ends, segments)| Connection::new(ends, &segments))
            .filter(|connection| connection.sent.octets.len() > 60)
            .collect();
        found.sort_by_key(|connection| connection.begun);
        found
    }

    /// The only session with an address of the peer.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn stream(&self, peer: IpAddr) -> Result<Connection> {
        let mut found = self.streams(peer);
        ensure!(found.len() == 1, "{} connections with {peer}", found.len());
        found.pop().context("one")
    }
}

fn read(output: impl Read, segments: &Mutex<Vec<Segment>>, begun: impl FnOnce() -> bool) -> Result<()> {
    let mut pcap = Pcap::new(output)?;
    ensure!(begun(), "nobody waits for it");
    while let Some((at, frame)) = pcap.frame()? {
        if let Some(segment) = Segment::parse(at, &frame) {
            segments.lock().unwrap_or_else(PoisonError::into_inner).push(segment);
        }
    }
    Ok(())
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// A segment as the judge sees it: offsets count from the first octet behind SYN.
#[derive(Copy, Clone, Debug)]
struct Seen {
    at: u64,
    /// The peer's octets that it acknowledges.
    acknowledges: i64,
    /// Behind the last of the router's octets in it, where it has some.
    ends: Option<i64>,
    /// Nothing more may be sent.
    is_closed: bool,
}

/// A connection between a peer and the router.
#[derive(Debug)]
pub struct Connection {
    peer: SocketAddr,
    begun: u64,
    /// The router has opened it.
    pub is_dialled: bool,
    from_router: Vec<Seen>,
    /// When each octet behind the last of a segment of the peer was sent first.
    from_peer: Vec<(u64, i64)>,
    /// Octets of the peer, and of the router that came to the peer.
    sent: Stream,
    received: Stream,
    /// When the peer has ended it.
    ended_by_peer: Option<u64>,
    /// Segments that end it, from either side.
    pub fins: usize,
    /// Segments that tear it down, from either side.
    pub resets: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Segments that were judged.
    pub judged: usize,
    /// What they acknowledge at most.
    pub acknowledged: i64,
    /// As far as data came.
    pub brought: i64,
    /// Segments that said or brought what the store did not have.
    pub stale: usize,
    /// What is wrong: the first of it.
    pub faults: Vec<String>,
    /// And how much more there is.
    pub more: usize,
}

impl Verdict {
    fn fault(&mut self, fault: String) {
        if self.faults.len() < SHOWN { self.faults.push(fault) } else { self.more += 1 }
    }
}

impl Connection {
    fn new((peer, _): (SocketAddr, SocketAddr), segments: &[&Segment]) -> Option<Self> {
        let syn = |of_peer: bool| {
            segments.iter().find(|segment| segment.has(flag::SYN) && (segment.from == peer) == of_peer)
        };
        let (theirs, ours) = (syn(true)?, syn(false)?);
        let (first_in, first_out) = (theirs.sequence.wrapping_add(1), ours.sequence.wrapping_add(1));
        let offset = |number: u32, first: u32| i64::from(number.wrapping_sub(first) as i32);
        let mut connection = Self {
            peer,
            begun: theirs.at.min(ours.at),
            is_dialled: !ours.has(flag::ACK),
            from_router: Vec::new(),
            from_peer: Vec::new(),
            sent: Stream::default(),
            received: Stream::default(),
            ended_by_peer: None,
            fins: 0,
            resets: 0,
        };
        for segment in segments {
            connection.fins += usize::from(segment.has(flag::FIN));
            connection.resets += usize::from(segment.has(flag::RST));
            if segment.has(flag::SYN) {
                continue;
            }
            if segment.from == peer && (segment.has(flag::FIN) || segment.has(flag::RST)) {
                connection.ended_by_peer.get_or_insert(segment.at);
            }
            let length = segment.payload.len() as i64;
            if segment.from == peer {
                let begins = offset(segment.sequence, first_in);
                connection.sent.place(begins, &segment.payload);
                let last = connection.from_peer.last().map_or(0, |(_, end)| *end);
                if begins + length > last {
                    connection.from_peer.push((segment.at, begins + length));
                }
            } else {
                let begins = offset(segment.sequence, first_out);
                connection.received.place(begins, &segment.payload);
                connection.from_router.push(Seen {
                    at: segment.at,
                    acknowledges: offset(segment.acknowledged, first_in),
                    ends: (length > 0).then_some(begins + length),
                    is_closed: segment.window == 0,
                });
            }
        }
        Some(connection)
    }

    /// The highest acknowledgement that came until a moment.
    pub fn acknowledged(&self, until: u64) -> i64 {
        self.from_router
            .iter()
            .filter(|seen| seen.at <= until)
            .map(|seen| seen.acknowledges)
            .max()
            .unwrap_or(0)
    }

    /// When octets were acknowledged first after a moment that were not before it.
    pub fn acknowledged_after(&self, moment: u64) -> Option<u64> {
        let before = self.acknowledged(moment);
        let mut later = self.from_router.iter().filter(|seen| seen.at > moment);
        later.find(|seen| seen.acknowledges > before).map(|seen| seen.at)
    }

    /// For how many milliseconds the peer's octets that it sent in this time waited for their acknowledgement: each segment.
    pub fn waits(&self, (from, to): (u64, u64)) -> Vec<u64> {
        let sent = self.from_peer.iter().filter(|(at, _)| (from..to).contains(at));
        sent.filter_map(|(at, end)| {
            let seen = self.from_router.iter().find(|seen| seen.acknowledges >= *end)?;
            Some(seen.at.saturating_sub(*at) / 1000)
        })
        .collect()
    }

    /// When it began, in microseconds since 1970.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// When the peer has ended it, in order or not.
    pub fn ended_by_peer(&self) -> Option<u64> {
        self.ended_by_peer
    }

    /// Segments of the router in this time that close the window.
    pub fn closed_windows(&self, (from, to): (u64, u64)) -> usize {
        let seen = self.from_router.iter().filter(|seen| (from..to).contains(&seen.at));
        seen.filter(|seen| seen.is_closed).count()
    }

    /// How many octets the peer has sent, each counted once.
    pub fn sent(&self) -> usize {
        self.sent.octets.len()
    }

    /// Judges what came in these times of the peer's last session. `late`: as if each reply of the store had come so many
    /// microseconds later.
    ///
    /// # Errors
    /// The store has no session with the peer.
    pub fn judge(&self, book: &Book, times: &[(u64, u64)], late: u64) -> Result<Verdict> {
        let session =
            book.session(self.peer.ip()).with_context(|| format!("the store has no {}", self.peer))?;
        Ok(self.judge_as(session, book, times, late))
    }

    /// The same of the session that has this number in the log.
    pub fn judge_as(&self, session: u32, book: &Book, times: &[(u64, u64)], late: u64) -> Verdict {
        let dialled = i64::from(self.is_dialled);
        let mut verdict = Verdict::default();
        let mut marks: BTreeMap<Way, Vec<(u64, i64)>> = BTreeMap::new();
        for mark in book.marks().iter().filter(|mark| mark.session == session) {
            let origin = if mark.way == Way::Out { dialled } else { 0 };
            marks.entry(mark.way).or_default().push((mark.at + late, mark.end as i64 - origin));
        }
        // Ends only grow.
        let had = |way: Way, at: u64| {
            let all = marks.get(&way).map_or(&[][..], Vec::as_slice);
            let count = all.partition_point(|(since, _)| *since <= at);
            count.checked_sub(1).map_or(0, |last| all[last].1)
        };
        for seen in &self.from_router {
            if !times.iter().any(|(from, to)| (*from..*to).contains(&seen.at)) {
                continue;
            }
            verdict.judged += 1;
            verdict.acknowledged = verdict.acknowledged.max(seen.acknowledges);
            verdict.brought = verdict.brought.max(seen.ends.unwrap_or(0));
            // As clocks of logs have it.
            let at = format!("second {:09.6}", (seen.at % 60_000_000) as f64 / 1e6);
            let (has_in, has_out) = (had(Way::In, seen.at), had(Way::Out, seen.at));
            let brings = seen.ends.filter(|ends| *ends > has_out);
            verdict.stale += usize::from(seen.acknowledges > has_in || brings.is_some());
            if seen.acknowledges > has_in {
                verdict.fault(format!("{at}: acknowledges {}, the store has {has_in}", seen.acknowledges));
            }
            if let Some(ends) = brings {
                verdict.fault(format!("{at}: brings data up to {ends}, the store has {has_out}"));
            }
        }
        for (way, wire, origin) in [(Way::In, &self.sent, 0), (Way::Out, &self.received, dialled)] {
            let unseen = wire.seen.iter().filter(|is_seen| !**is_seen).count();
            if unseen > wire.seen.len() / MOST_UNSEEN {
                verdict.fault(format!("{way:?}: {unseen} octets are not in the capture"));
            }
            for (from, octets) in book.octets(session, way) {
                let differs = match usize::try_from(from as i64 - origin) {
                    Ok(begin) => wire.differs(begin, octets),
                    Err(_) => Some(0),
                };
                if let Some(differs) = differs {
                    verdict.fault(format!(
                        "{way:?} at {from}, {differs} octets on: the store has other octets than the wire"
                    ));
                }
            }
        }
        verdict
    }
}

/// Octets of one direction, and which of them the capture has: under load it loses some.
#[derive(Debug, Default)]
struct Stream {
    octets: Vec<u8>,
    seen: Vec<bool>,
}

impl Stream {
    fn place(&mut self, begins: i64, octets: &[u8]) {
        // A probe for an open window is one octet before.
        let Ok(begins) = usize::try_from(begins) else { return };
        let end = begins + octets.len();
        if self.octets.len() < end {
            self.octets.resize(end, 0);
            self.seen.resize(end, false);
        }
        self.octets[begins..end].copy_from_slice(octets);
        self.seen[begins..end].fill(true);
    }

    /// Where these octets are others than those that were seen.
    fn differs(&self, begin: usize, octets: &[u8]) -> Option<usize> {
        let there = self.octets.iter().zip(&self.seen).skip(begin).zip(octets);
        there.into_iter().position(|((there, is_seen), had)| *is_seen && there != had)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_capture_has_not_seen_is_not_compared() {
        let mut stream = Stream::default();
        stream.place(0, b"ab");
        stream.place(4, b"ef");
        stream.place(-1, b"x");
        assert_eq!(stream.differs(0, b"abcdefgh"), None);
        assert_eq!(stream.differs(1, b"bcdEf"), Some(3));
        assert_eq!(stream.seen.iter().filter(|is_seen| !**is_seen).count(), 2);
    }
}
