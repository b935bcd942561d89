//! Stands between the router and its store: reads everything, and makes trouble when told to.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Result;

use super::book::{Book, Request};
use crate::{drill::time::now, netns::Namespace};

/// Octets that are read at once.
const READ: usize = 64 << 10;

#[derive(Debug)]
struct Shared {
    /// Where the server listens.
    socket: PathBuf,
    book: Arc<Mutex<Book>>,
    delay_milliseconds: AtomicU64,
    /// Between two replies, which wait for each other.
    pause_milliseconds: AtomicU64,
    /// Nobody is let in.
    refuses: AtomicBool,
    /// Who connects is let in, and hears nothing.
    is_deaf: AtomicBool,
    unheard: Mutex<Vec<TcpStream>>,
    /// The next reply to a batch is cut in its middle, and the connection ends.
    cuts: AtomicBool,
}

/// The proxy. It ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    listener: Arc<TcpListener>,
    accepting: Option<JoinHandle<()>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Listens in a host, for a server that listens at a path.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn start(host: &Namespace, at: SocketAddr, socket: &Path) -> Result<Self> {
        Self::with_book(host, at, socket, Arc::default())
    }

    /// One more, for another server, that writes the same book.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn beside(&self, host: &Namespace, at: SocketAddr, socket: &Path) -> Result<Self> {
        Self::with_book(host, at, socket, Arc::clone(&self.shared.book))
    }

    fn with_book(host: &Namespace, at: SocketAddr, socket: &Path, book: Arc<Mutex<Book>>) -> Result<Self> {
        let shared = Arc::new(Shared {
            socket: socket.to_owned(),
            book,
            delay_milliseconds: AtomicU64::new(0),
            pause_milliseconds: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
            is_deaf: AtomicBool::new(false),
            unheard: Mutex::default(),
            cuts: AtomicBool::new(false),
        });
        let listener = Arc::new(host.run(move || TcpListener::bind(at))??);
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (theirs, accepted, kept) = (Arc::clone(&listener), Arc::clone(&shared), Arc::clone(&open));
        let accepting = thread::Builder::new().name("proxy".into()).spawn(move || {
            while let Ok((stream, _)) = theirs.accept() {
                if accepted.refuses.load(Ordering::SeqCst) {
                    continue;
                }
                if let Ok(copy) = stream.try_clone() {
                    lock(&kept).push(copy);
                }
                // One that cannot be carried is ended; the router tries again.
                if accepted.is_deaf.load(Ordering::SeqCst) {
                    lock(&accepted.unheard).push(stream);
                    continue;
                }
                let copy = stream.try_clone();
                if carry(stream, &accepted).is_err() {
                    let _ = copy.map(|copy| copy.shutdown(Shutdown::Both));
                }
            }
        })?;
        Ok(Self { shared, listener, accepting: Some(accepting), open })
    }

    /// What it has read.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.shared.book)
    }

    /// Replies come so much later from now on.
    pub fn delay(&self, delay: Duration) {
        let milliseconds = u64::try_from(delay.as_millis()).expect("not for ever");
        self.shared.delay_milliseconds.store(milliseconds, Ordering::SeqCst);
    }

    /// Replies come with so much time between them from now on.
    pub fn pause(&self, pause: Duration) {
        let milliseconds = u64::try_from(pause.as_millis()).expect("not for ever");
        self.shared.pause_milliseconds.store(milliseconds, Ordering::SeqCst);
    }

    /// Ends all connections and lets nobody in, until told otherwise.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::SeqCst);
        if refuses {
            for stream in lock(&self.open).drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Who connects from now on is answered, unlike those who have connected before.
    pub fn hear(&self) {
        self.shared.is_deaf.store(false, Ordering::SeqCst);
    }

    /// From now on connections are as to a host that has lost its power: they are there, and nothing comes back. Those that
    /// are open now end.
    pub fn deaf(&self) {
        self.shared.is_deaf.store(true, Ordering::SeqCst);
        for stream in lock(&self.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Cuts the connection in the middle of the next reply to a batch.
    pub fn cut(&self) {
        self.shared.cuts.store(true, Ordering::SeqCst);
    }

    /// Whether that has come about.
    pub fn has_cut(&self) -> bool {
        !self.shared.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Read);
        self.refuse(true);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// A reply on its way to the router.
struct Passing {
    due: Instant,
    octets: Vec<u8>,
    request: Request,
}

fn carry(router: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    router.set_nodelay(true)?;
    let server = UnixStream::connect(&shared.socket)?;
    // Requests in the order of their replies.
    let (asked, requests) = mpsc::channel();
    let (passing, passed) = mpsc::channel();
    let ends = |router: &TcpStream, server: &UnixStream| {
        let _ = (router.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    };
    let (from, to, of) = (router.try_clone()?, server.try_clone()?, Arc::clone(shared));
    thread::spawn(move || {
        let _ = ask(&from, &to, &of, |request| asked.send(request).is_ok());
        ends(&from, &to);
    });
    let (from, of, to) = (server.try_clone()?, Arc::clone(shared), router.try_clone()?);
    thread::spawn(move || {
        let _ = answer(&from, &of, &requests, |reply| passing.send(reply).is_ok());
        if of.delay_milliseconds.load(Ordering::SeqCst) == 0 {
            ends(&to, &from);
        }
    });
    let of = Arc::clone(shared);
    thread::spawn(move || {
        let _ = pass(&router, &of, &passed);
        ends(&router, &server);
    });
    Ok(())
}

fn ask(
    mut router: &TcpStream,
    mut server: &UnixStream,
    shared: &Shared,
    mut asked: impl FnMut(Request) -> bool,
) -> io::Result<()> {
    let (mut room, mut unread) = (vec![0; READ], Vec::new());
    loop {
        let count = router.read(&mut room)?;
        if count == 0 {
            return Ok(());
        }
        unread.extend_from_slice(&room[..count]);
        let mut read = 0;
        while let Some((words, length)) = command(&unread[read..]) {
            read += length;
            let request = lock(&shared.book).asks(&words);
            if !asked(request) {
                return Ok(());
            }
        }
        let whole: Vec<u8> = unread.drain(..read).collect();
        server.write_all(&whole)?;
    }
}

fn answer(
    mut server: &UnixStream,
    shared: &Shared,
    requests: &Receiver<Request>,
    mut passing: impl FnMut(Passing) -> bool,
) -> io::Result<()> {
    let (mut room, mut unread) = (vec![0; READ], Vec::new());
    loop {
        let count = server.read(&mut room)?;
        if count == 0 {
            return Ok(());
        }
        unread.extend_from_slice(&room[..count]);
        while let Some(length) = reply_length(&unread) {
            let octets: Vec<u8> = unread.drain(..length).collect();
            let Ok(request) = requests.recv() else { return Ok(()) };
            let delay = Duration::from_millis(shared.delay_milliseconds.load(Ordering::SeqCst));
            if !passing(Passing { due: Instant::now() + delay, octets, request }) {
                return Ok(());
            }
        }
    }
}

fn pass(mut router: &TcpStream, shared: &Shared, passed: &Receiver<Passing>) -> io::Result<()> {
    while let Ok(Passing { due, octets, request }) = passed.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        thread::sleep(Duration::from_millis(shared.pause_milliseconds.load(Ordering::SeqCst)));
        if matches!(request, Request::Batch { .. }) && shared.cuts.swap(false, Ordering::SeqCst) {
            return router.write_all(&octets[..octets.len() / 2]);
        }
        lock(&shared.book).hears(&request, &octets, now());
        router.write_all(&octets)?;
    }
    Ok(())
}

fn line(octets: &[u8]) -> Option<(&str, usize)> {
    let end = octets.windows(2).position(|two| two == b"\r\n")?;
    Some((std::str::from_utf8(octets.get(1..end)?).ok()?, end + 2))
}

/// The words of a whole command, and how long it is.
fn command(octets: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (count, mut at) = line(octets)?;
    let mut words = Vec::new();
    for _ in 0..count.parse::<usize>().ok()? {
        let (length, header) = line(octets.get(at..)?)?;
        let length: usize = length.parse().ok()?;
        words.push(octets.get(at + header..at + header + length)?.to_vec());
        at += header + length + 2;
    }
    (at <= octets.len()).then_some((words, at))
}

/// How long a whole reply is.
fn reply_length(octets: &[u8]) -> Option<usize> {
    let (text, header) = line(octets)?;
    match octets[0] {
        b'$' => match text.parse::<usize>() {
            Ok(length) => Some(header + length + 2).filter(|end| *end <= octets.len()),
            // -1: nothing.
            Err(_) => Some(header),
        },
        b'*' => {
            let mut at = header;
            for _ in 0..text.parse::<usize>().unwrap_or(0) {
                at += reply_length(octets.get(at..)?)?;
            }
            Some(at)
        }
        _ => Some(header),
    }
}
