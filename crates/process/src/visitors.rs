//! Connections that anybody may make to a process. Who keeps the process waiting gives way to who comes.
//!
//! A visitor that has not sent its request, or does not read the answer, costs a place and nothing else. So places may be
//! many, and when they are all taken such a visitor is closed for the next one. Whoever has asked and waits for the process
//! keeps its place.

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::{AbortHandle, JoinSet, yield_now},
    time::sleep,
};
use tracing::warn;

/// Pause after a connection could not be accepted: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Visitors that may come until one that does not read its answer counts as one that has just come and says nothing: it
/// takes an answer longer to be read than a request to be there.
const GRACE: u64 = 1024;

/// A visitor, as whoever serves it says what it is doing. It keeps the process waiting until it has asked.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Since which visitor came it keeps the process waiting.
    since: Rc<Cell<Option<u64>>>,
    shared: Rc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How many have come.
    came: Cell<u64>,
    /// One may have begun to keep the process waiting.
    changed: Notify,
}

impl Visit {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.came.update(|came| came + 1);
        Self { since: Rc::new(Cell::new(Some(shared.came.get()))), shared: Rc::clone(shared) }
    }

    /// Its request is there: it waits for the process.
    pub fn has_asked(&self) {
        self.since.set(None);
    }

    /// Its answer is there: the process waits for it again.
    pub fn is_answered(&self) {
        self.since.set(Some(self.shared.came.get() + GRACE));
        self.shared.changed.notify_one();
    }
}

/// Has each visitor served who connects to this listener, at most `most` at a time. Their connections end with it.
pub async fn serve_visitors<F: Future<Output = ()> + 'static>(
    listener: TcpListener,
    most: usize,
    mut serve: impl FnMut(TcpStream, Visit) -> F,
) {
    let mut visitors = Visitors { most, ..Visitors::default() };
    loop {
        visitors.have_room().await;
        match listener.accept().await {
            Ok((stream, from)) => {
                visitors.admit(from, |visit| serve(stream, visit));
                // A request that has come with the connection is read before others may take the place.
                yield_now().await;
            }
            Err(error) => {
                warn!(event = "accept-failed", "accepting a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// All who are connected, the oldest first.
#[derive(Default)]
struct Visitors {
    most: usize,
    open: Vec<Visitor>,
    tasks: JoinSet<()>,
    shared: Rc<Shared>,
}

struct Visitor {
    /// Whom it counts for.
    source: IpAddr,
    visit: Visit,
    task: AbortHandle,
}

impl Visitors {
    /// Waits until somebody may come.
    async fn have_room(&mut self) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.open.retain(|visitor| !visitor.task.is_finished());
            if self.open.len() < self.most || self.gives_way().is_some() {
                return;
            }
            tokio::select! {
                _ = self.tasks.join_next() => {}
                () = self.shared.changed.notified() => {}
            }
        }
    }

    fn admit<F: Future<Output = ()> + 'static>(&mut self, from: SocketAddr, serve: impl FnOnce(Visit) -> F) {
        if self.open.len() >= self.most
            && let Some(at) = self.gives_way()
        {
            self.open.remove(at).task.abort();
        }
        let visit = Visit::new(&self.shared);
        let task = self.tasks.spawn_local(serve(visit.clone()));
        self.open.push(Visitor { source: source(from.ip()), visit, task });
    }

    fn gives_way(&self) -> Option<usize> {
        gives_way(self.open.iter().map(|visitor| (visitor.source, visitor.visit.since.get())))
    }
}

/// Who gives way of these: the one that keeps the process waiting for longest, of the source that has most of those. So
/// who is alone at its address does not lose its place to many at another.
fn gives_way(visitors: impl Iterator<Item = (IpAddr, Option<u64>)>) -> Option<usize> {
    let mut sources: HashMap<IpAddr, (usize, Reverse<(u64, usize)>)> = HashMap::new();
    for (at, (source, since)) in visitors.enumerate() {
        let Some(since) = since else { continue };
        let (count, longest) = sources.entry(source).or_insert((0, Reverse((since, at))));
        *count += 1;
        *longest = Reverse((since, at)).max(*longest);
    }
    sources.into_values().max().map(|(_, Reverse((_, at)))| at)
}

/// Whom a connection counts for: whoever has an address of IPv6 has all of its /64.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
        task::LocalSet,
        time::timeout,
    };

    use super::*;

    /// Far longer than any of this takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Answers each line with itself, when `goes_on` says so.
    async fn echo(stream: TcpStream, visit: Visit, goes_on: Rc<Notify>) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        if !matches!(stream.read_line(&mut line).await, Ok(1..)) {
            return;
        }
        visit.has_asked();
        if line.starts_with("wait") {
            goes_on.notified().await;
        }
        visit.is_answered();
        let _ = stream.write_all(line.as_bytes()).await;
        // Whoever has its answer goes, or is made to.
        let _ = stream.read_line(&mut line).await;
    }

    async fn ask(address: SocketAddr, line: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(line.as_bytes()).await.expect("asked");
        stream
    }

    async fn answer(stream: TcpStream) -> String {
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line).await;
        line
    }

    /// Runs a story beside a server with so many places.
    fn beside<F: Future<Output = ()>>(most: usize, story: impl FnOnce(SocketAddr, Rc<Notify>) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let goes_on = Rc::new(Notify::new());
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
            let story = story(listener.local_addr().expect("bound"), Rc::clone(&goes_on));
            let server =
                serve_visitors(listener, most, |stream, visit| echo(stream, visit, Rc::clone(&goes_on)));
            tokio::select! {
                () = pin!(server) => unreachable!("it serves for ever"),
                told = timeout(PATIENCE, story) => told.expect("in time"),
            }
        });
    }

    #[test]
    fn who_asks_is_answered_beside_a_thousand_who_say_nothing() {
        holdfast_sys::process::raise_open_files().expect("descriptors");
        beside(8, async |address, _| {
            let mut silent = Vec::new();
            for number in 0..10_000 {
                silent.push(TcpStream::connect(address).await.expect("connected"));
                if silent.len() > 1000 {
                    silent.remove(0);
                }
                if number % 1000 == 999 {
                    assert_eq!(answer(ask(address, "hello\n").await).await, "hello\n");
                }
            }
        });
    }

    #[test]
    fn who_waits_for_the_process_keeps_its_place_and_who_does_not_read_gives_way() {
        beside(2, async |address, goes_on| {
            let (first, second) = (ask(address, "wait 1\n").await, ask(address, "wait 2\n").await);
            let third = ask(address, "third\n").await;
            let mut third = pin!(answer(third));
            let early = timeout(Duration::from_millis(50), &mut third).await;
            assert!(early.is_err(), "there was no place");
            // The first one is answered and does not go.
            goes_on.notify_one();
            assert_eq!(third.await, "third\n");
            goes_on.notify_one();
            assert_eq!((answer(first).await, answer(second).await), ("wait 1\n".into(), "wait 2\n".into()));
        });
    }

    #[test]
    fn who_is_reading_its_answer_does_not_give_way_to_a_crowd() {
        let shared = Rc::default();
        let (reader, silent) = (Visit::new(&shared), Visit::new(&shared));
        reader.has_asked();
        assert_eq!((reader.since.get(), silent.since.get()), (None, Some(2)));
        reader.is_answered();
        let here = source("127.0.0.1".parse().expect("an address"));
        let of = |visits: [&Visit; 2]| gives_way(visits.map(|visit| (here, visit.since.get())).into_iter());
        assert_eq!(of([&reader, &silent]), Some(1));
        let crowd: Vec<_> = (0..GRACE + 1).map(|_| Visit::new(&shared)).collect();
        assert_eq!(of([&reader, &crowd[GRACE as usize - 2]]), Some(1));
        assert_eq!(of([&reader, &crowd[GRACE as usize]]), Some(0), "it does not read");
    }

    #[test]
    fn the_oldest_of_the_source_with_most_gives_way() {
        let address = |text: &str| source(text.parse().expect("an address"));
        let (one, two) = (address("192.0.2.1"), address("2001:db8::1"));
        assert_eq!(two, address("2001:db8::ffff:1"), "whoever has one has all of the /64");
        assert_eq!(one, address("::ffff:192.0.2.1"));
        let table: [(&[_], _); 5] = [
            (&[], None),
            (&[(one, None), (two, None)], None),
            (&[(one, None), (two, Some(2)), (one, Some(3))], Some(1)),
            (&[(one, Some(1)), (two, Some(9)), (two, None), (two, Some(4))], Some(3)),
            (&[(two, Some(1)), (one, Some(2)), (one, Some(3)), (two, None)], Some(1)),
        ];
        for (visitors, expected) in table {
            assert_eq!(gives_way(visitors.iter().copied()), expected, "{visitors:?}");
        }
    }
}
