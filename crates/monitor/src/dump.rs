//! MRT: files of what sessions say, and of the table.

use std::{
    collections::HashMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use holdfast_api::{
    bgp::v1::{
        BgpClient, DumpedPrefix, WatchEvent, WatchRequest, Watched, WatchedPeer, WatchedState,
        watch_event::What,
    },
    monitor::v1::Dump,
};
use holdfast_bgp_wire::MessageType;
use holdfast_mrt::{Message, Peer, RibEntry, Session, Stamp, StateChange, write};
use holdfast_process::Resolver;
use holdfast_types::{Asn, Family};
use holdfast_xrl::{ReplyStream, XrlError};
use tokio::time::{sleep, sleep_until};
use tracing::{debug, warn};

use crate::{date, file::Output, routes, station::Own, unix_microseconds};

/// Pause before `bgp` is asked again.
const RETRY: Duration = Duration::from_millis(100);
/// Families that a table has.
const FAMILIES: usize = Family::ALL.len();
/// Octets that are handed to the thread at once, more or less.
const PIECE: usize = 256 << 10;
/// Records are handed over after so long, however few.
const FLUSH: Duration = Duration::from_secs(1);

fn seconds() -> u64 {
    unix_microseconds() / 1_000_000
}

/// Writes what is configured, for ever.
pub(crate) async fn run(resolver: Resolver, own: Own, dump: Dump, output: Output) {
    match dump.table {
        true => tables(&resolver, own, &dump, output).await,
        false => updates(&resolver, &dump, output).await,
    }
}

// Tables.

async fn tables(resolver: &Resolver, own: Own, dump: &Dump, mut output: Output) {
    let interval = u64::from(dump.interval_seconds.max(1));
    loop {
        // At whole multiples of the interval, as collectors do.
        let wait = interval - seconds() % interval;
        sleep(Duration::from_secs(wait)).await;
        let whole = table(resolver, own, dump, &mut output).await;
        if let Err(error) = &whole {
            debug!("a table is not whole: {error}");
        }
        // Its end waits for room as its pieces do.
        while !(if whole.is_ok() { output.end() } else { output.discard() }) {
            sleep(RETRY).await;
        }
    }
}

/// One table, as it is while it is walked.
async fn table(resolver: &Resolver, own: Own, dump: &Dump, output: &mut Output) -> Result<(), XrlError> {
    let bgp: BgpClient = resolver.client("bgp").await?;
    let at = seconds();
    let file = PathBuf::from(date::name(&dump.file, at));
    let mut table = Table::new(own, at as u32);
    let mut stream = bgp.watch(WatchRequest { dump_received: true, ..WatchRequest::default() });
    let mut ended = 0;
    while ended < FAMILIES
        && let Some(watched) = stream.next().await?
    {
        let begun = !watched.dumped.is_empty() || watched.ended_afi != 0;
        for event in watched.events {
            if let Some(What::Up(peer)) = event.what {
                table.peer(&peer);
            }
        }
        if begun {
            table.begin();
        }
        watched.dumped.iter().for_each(|prefix| table.prefix(prefix));
        ended += usize::from(watched.ended_afi != 0);
        let is_last = ended == FAMILIES;
        // A table with holes would say that routes are gone: what has no room waits.
        while (is_last || table.bytes.len() >= PIECE) && !table.bytes.is_empty() {
            let piece = std::mem::take(&mut table.bytes);
            if !output.write(file.clone(), piece.clone()) {
                table.bytes = piece;
                sleep(RETRY).await;
            }
        }
    }
    Ok(())
}

/// TABLE_DUMP_V2 in the making.
struct Table {
    own: Own,
    at: u32,
    peers: Vec<Peer>,
    /// Places of the peers, by the number that `bgp` gives them. The first is for our own routes.
    places: HashMap<u32, u16>,
    begun: bool,
    sequence: u32,
    bytes: Vec<u8>,
}

impl Table {
    fn new(own: Own, at: u32) -> Self {
        let ourselves = Peer { router_id: own.router_id, address: [0; 4].into(), asn: Asn(own.asn) };
        let (peers, places) = (vec![ourselves], HashMap::new());
        Self { own, at, peers, places, begun: false, sequence: 0, bytes: Vec::new() }
    }

    fn peer(&mut self, peer: &WatchedPeer) {
        let (Some(address), Ok(place)) = (routes::address(&peer.address), u16::try_from(self.peers.len()))
        else {
            return;
        };
        // One that comes up during the dump is in none of its entries.
        if !self.begun {
            self.peers.push(Peer { router_id: peer.router_id, address, asn: Asn(peer.asn) });
            self.places.insert(peer.number, place);
        }
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            // As many peers as can be numbered were taken.
            let _ = write::peer_index(self.at, self.own.router_id, b"", &self.peers, &mut self.bytes);
        }
    }

    fn prefix(&mut self, dumped: &DumpedPrefix) {
        let Some(prefix) = routes::prefix(dumped) else { return };
        let place = |number: Option<u32>| number.map_or(Some(0), |number| self.places.get(&number).copied());
        // RFC 8050 section 4: those that came under path identifiers have a record of their own.
        for identified in [false, true] {
            let paths = dumped.paths.iter().filter(|path| path.path_id.is_some() == identified);
            let paths = paths.filter_map(|path| {
                Some((place(path.number)?, path.path_id, routes::table_attributes(prefix, path)))
            });
            let paths: Vec<_> = paths.collect();
            let originated = self.at;
            let entries: Vec<_> = paths
                .iter()
                .map(|(peer, path_id, attributes)| RibEntry {
                    peer: *peer,
                    originated,
                    path_id: *path_id,
                    attributes,
                })
                .collect();
            if !entries.is_empty()
                && write::rib(self.at, self.sequence, prefix, &entries, &mut self.bytes).is_ok()
            {
                self.sequence += 1;
            }
        }
    }
}

// Messages.

async fn updates(resolver: &Resolver, dump: &Dump, output: Output) {
    let mut recorder = Recorder { journal: Journal::new(dump), output };
    loop {
        let Recorder { journal, output } = &mut recorder;
        match watch(resolver).await {
            Ok(mut stream) => journal.follow(&mut stream, output).await,
            Err(error) => debug!("bgp cannot be watched: {error}"),
        }
        journal.flush(output);
        sleep(RETRY).await;
    }
}

/// A journal and where it is written. Dropped, it hands over what there is.
struct Recorder<'a> {
    journal: Journal<'a>,
    output: Output,
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        self.journal.flush(&mut self.output);
    }
}

async fn watch(resolver: &Resolver) -> Result<ReplyStream<Watched>, XrlError> {
    let bgp: BgpClient = resolver.client("bgp").await?;
    Ok(bgp.watch(WatchRequest { received_all: true, ..WatchRequest::default() }))
}

/// A session, and how to read its messages.
struct Talk {
    session: Session,
    four_octet_as: bool,
    /// Address families in which prefixes have path identifiers.
    add_path: Vec<u32>,
}

/// Messages and changes of state, in files one after the other.
struct Journal<'a> {
    dump: &'a Dump,
    sessions: HashMap<u32, Talk>,
    file: PathBuf,
    /// Octets in it, or on their way.
    octets: u64,
    /// When it ends, in Unix time.
    until: u64,
    bytes: Vec<u8>,
}

impl<'a> Journal<'a> {
    fn new(dump: &'a Dump) -> Self {
        let (sessions, bytes) = (HashMap::new(), Vec::new());
        let mut journal = Self { dump, sessions, file: PathBuf::new(), octets: 0, until: 0, bytes };
        journal.next_file();
        journal
    }

    fn next_file(&mut self) {
        let (now, interval) = (seconds(), u64::from(self.dump.interval_seconds.max(1)));
        let mut file = PathBuf::from(date::name(&self.dump.file, now));
        if file == self.file {
            // Full before its second was over: the name must be another.
            let mut name = file.into_os_string();
            name.push(format!(".{}", unix_microseconds() % 1_000_000));
            file = name.into();
        }
        (self.file, self.octets, self.until) = (file, 0, now - now % interval + interval);
    }

    /// Until the stream ends.
    async fn follow(&mut self, stream: &mut ReplyStream<Watched>, output: &mut Output) {
        let mut flush = Instant::now() + FLUSH;
        loop {
            let item = tokio::select! {
                item = stream.next() => Some(item),
                () = sleep_until(flush.into()) => None,
            };
            match item {
                Some(Ok(Some(watched))) => self.take(watched),
                Some(Ok(None)) => return,
                Some(Err(error)) => return debug!("bgp is watched no more: {error}"),
                None => {}
            }
            if self.bytes.len() >= PIECE || flush <= Instant::now() {
                self.flush(output);
                flush = Instant::now() + FLUSH;
            }
        }
    }

    fn take(&mut self, watched: Watched) {
        if watched.lost > 0 {
            warn!(
                event = "mrt-lost",
                messages = watched.lost,
                "messages are not in the dump: there were too many"
            );
        }
        watched.events.into_iter().for_each(|event| self.event(event));
    }

    fn event(&mut self, WatchEvent { at_microseconds, what }: WatchEvent) {
        let microseconds = Some((at_microseconds % 1_000_000) as u32);
        let at = Stamp { seconds: (at_microseconds / 1_000_000) as u32, microseconds };
        match what {
            Some(What::Up(peer)) => {
                if let Some(session) = session(&peer.address, &peer.local_address, peer.asn, peer.local_asn) {
                    let (four_octet_as, add_path) = (peer.four_octet_as, peer.add_path_afis);
                    self.sessions.insert(peer.number, Talk { session, four_octet_as, add_path });
                }
            }
            Some(What::State(state)) => self.state(at, &state),
            Some(What::Received(message)) => {
                if let Some(talk) = self.sessions.get(&message.number) {
                    let bytes = &message.octets[..];
                    // RFC 8050 section 3: of messages, those in which there are identifiers.
                    let is_update = bytes.get(18) == Some(&(MessageType::Update as u8));
                    let add_path =
                        is_update && !talk.add_path.is_empty() && talk.add_path.contains(&routes::afi(bytes));
                    let &Talk { session, four_octet_as, .. } = talk;
                    let message = Message { session, four_octet_as, add_path, bytes };
                    write::message(at, &message, &mut self.bytes);
                }
            }
            Some(What::Down(_) | What::Sent(_) | What::Best(_)) | None => {}
        }
    }

    fn state(&mut self, at: Stamp, state: &WatchedState) {
        let ends = session(&state.address, &state.local_address, state.asn, state.local_asn);
        let Some(session) = ends else { return };
        // What comes before the session is up has no AS numbers in it.
        let unknown = Talk { session, four_octet_as: true, add_path: Vec::new() };
        self.sessions.entry(state.number).or_insert(unknown).session = session;
        let change = StateChange { session, old: state.old as u16, new: state.new as u16 };
        write::state_change(at, &change, &mut self.bytes);
    }

    /// Hands over what there is, and begins another file if it is time.
    fn flush(&mut self, output: &mut Output) {
        let full = self.dump.most_octets > 0 && self.octets >= self.dump.most_octets;
        if full || seconds() >= self.until {
            output.end();
            self.next_file();
        }
        if !self.bytes.is_empty() {
            let piece = std::mem::take(&mut self.bytes);
            self.octets += piece.len() as u64;
            output.write(self.file.clone(), piece);
        }
    }
}

fn session(peer: &[u8], local: &[u8], peer_as: u32, local_as: u32) -> Option<Session> {
    let (peer, local) = (routes::address(peer)?, routes::address(local)?);
    Some(Session { peer_as: Asn(peer_as), local_as: Asn(local_as), interface: 0, peer, local })
}

#[cfg(test)]
mod tests {
    use holdfast_api::bgp::v1::{DumpedPath, WatchedMessage};
    use holdfast_mrt::{Body, records};

    use super::*;

    fn peer(number: u32) -> WatchedPeer {
        WatchedPeer {
            number,
            address: vec![192, 0, 2, number as u8],
            local_address: vec![192, 0, 2, 100],
            asn: 65000 + number,
            local_asn: 65000,
            four_octet_as: true,
            ..WatchedPeer::default()
        }
    }

    #[test]
    fn a_table_names_its_peers_first_and_leaves_out_those_that_came_later() {
        let mut table = Table::new(Own { router_id: 1, asn: 65000 }, 9);
        table.peer(&peer(4));
        table.begin();
        table.peer(&peer(5));
        let path = |number| DumpedPath { number, ..DumpedPath::default() };
        let paths = vec![path(Some(4)), path(Some(5)), path(None)];
        table.prefix(&DumpedPrefix { address: vec![10, 0, 0, 0], length: 8, paths });
        table.prefix(&DumpedPrefix { address: vec![11, 0, 0, 0], length: 8, paths: vec![path(Some(5))] });
        let bodies: Vec<_> =
            records(&table.bytes).map(|it| it.expect("whole").body().expect("read")).collect();
        let Body::PeerIndex(index) = &bodies[0] else { panic!("no peers") };
        let asns: Vec<_> = index.peers().map(|peer| peer.expect("a peer").asn.0).collect();
        assert_eq!(asns, [65000, 65004]);
        let Body::Rib(rib) = &bodies[1] else { panic!("no routes") };
        assert_eq!(rib.entries().map(|entry| entry.expect("an entry").peer).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(bodies.len(), 2, "nobody who is known has the other");
    }

    #[test]
    fn paths_under_identifiers_have_a_record_of_their_own() {
        let mut table = Table::new(Own { router_id: 1, asn: 65000 }, 9);
        table.peer(&peer(4));
        table.peer(&peer(5));
        table.begin();
        let path = |number, path_id| DumpedPath { number: Some(number), path_id, ..DumpedPath::default() };
        let paths = vec![path(4, Some(1)), path(5, None), path(4, Some(2))];
        table.prefix(&DumpedPrefix { address: vec![10, 0, 0, 0], length: 8, paths });
        let bodies = records(&table.bytes).map(|it| it.expect("whole").body().expect("read"));
        let entries = |body| match body {
            Body::Rib(rib) => {
                rib.entries().map(|entry| entry.expect("an entry")).map(|it| (it.peer, it.path_id)).collect()
            }
            _ => Vec::new(),
        };
        let ribs: Vec<Vec<_>> = bodies.skip(1).map(entries).collect();
        assert_eq!(ribs, [vec![(2, None)], vec![(1, Some(1)), (1, Some(2))]]);
    }

    #[test]
    fn messages_with_path_identifiers_say_that_they_have_them() {
        let dump = Dump { file: "x".into(), interval_seconds: 60, ..Dump::default() };
        let mut journal = Journal::new(&dump);
        let event = |what| WatchEvent { at_microseconds: 5_000_007, what: Some(what) };
        journal.event(event(What::Up(WatchedPeer { add_path_afis: vec![1], ..peer(4) })));
        let end = |family| WatchedMessage { number: 4, octets: routes::end_of_rib(family) };
        journal.event(event(What::Received(end(Family::IPV4_UNICAST))));
        journal.event(event(What::Received(end(Family::IPV6_UNICAST))));
        let keepalive = WatchedMessage { number: 4, octets: [&[0xff; 16][..], &[0, 19, 4]].concat() };
        journal.event(event(What::Received(keepalive)));
        let said: Vec<_> = records(&journal.bytes)
            .map(|record| match record.expect("whole").body() {
                Ok(Body::Message(message)) => message.add_path,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(said, [true, false, false]);
    }

    #[test]
    fn what_a_session_says_is_written_between_its_states() {
        let dump = Dump { file: "x".into(), interval_seconds: 60, ..Dump::default() };
        let mut journal = Journal::new(&dump);
        let event = |what| WatchEvent { at_microseconds: 5_000_007, what: Some(what) };
        let message = WatchedMessage { number: 4, octets: [&[0xff; 16][..], &[0, 19, 4]].concat() };
        journal.event(event(What::Received(message.clone())));
        assert!(journal.bytes.is_empty(), "nobody knows whose it is");
        let state = WatchedState {
            number: 4,
            address: vec![192, 0, 2, 4],
            local_address: vec![192, 0, 2, 1],
            old: 5,
            new: 6,
            ..WatchedState::default()
        };
        journal.event(event(What::State(state)));
        journal.event(event(What::Up(peer(4))));
        journal.event(event(What::Received(message)));
        let records: Vec<_> = records(&journal.bytes).map(|record| record.expect("whole")).collect();
        assert!(
            matches!(records[0].body(), Ok(Body::StateChange(change)) if (change.old, change.new) == (5, 6))
        );
        assert!(matches!(records[1].body(), Ok(Body::Message(it)) if it.session.peer_as == Asn(65004)));
        assert_eq!((records[1].timestamp, records[1].microseconds), (5, 7));
    }
}
