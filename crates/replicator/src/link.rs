//! The connection to a store of the kind `redis`: requests out, answers in, in the same order.
//!
//! ```text
//!  main loop ── ask ──> octets ──> stream ──> server
//!            <── events ── answers <── replies <┘
//! ```
//! What is read is bounded by the codec, what is written by the writer, which has a bounded number of batches on their way.

use std::{cell::RefCell, collections::VecDeque, io, rc::Rc, time::Duration};

use holdfast_process::{Resolver, Stream, dial};
use holdfast_store::{
    Answer, Failure, Kind, Request,
    redis::{self, Keys, Replies, Script},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
    task::AbortHandle,
    time::timeout,
};

use crate::way::{Event, Way};

/// How long a connection may take to come about, over TLS with its handshake.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// Octets that are read at once.
const READ: usize = 64 << 10;
/// What is logged of a server's words at most.
const MOST_WORDS: usize = 200;

/// How to get to a store. It has a password, so nobody prints it.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Servers {
    /// Names for `transport.v1`, with what people call them; the preferred first.
    pub(crate) peers: Vec<(String, String)>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Replicas that are to have each batch.
    pub(crate) replicas: u32,
    /// How long these may take.
    pub(crate) patience: Duration,
}

impl Servers {
    /// Whether these are the same ones, in whatever order they are tried by now.
    pub(crate) fn are(&self, others: &Self) -> bool {
        let sorted = |servers: &Self| {
            let mut peers = servers.peers.clone();
            peers.sort();
            Self { peers, ..servers.clone() }
        };
        sorted(self) == sorted(others)
    }
}

/// What a reply is awaited to.
#[derive(Copy, Clone, Debug)]
enum Awaited {
    /// To AUTH, or SCRIPT LOAD.
    Nothing,
    Request(Kind),
    /// To a WAIT behind a batch.
    Replicas,
}

#[derive(Debug, Default)]
struct Shared {
    octets: RefCell<Vec<u8>>,
    awaited: RefCell<VecDeque<Awaited>>,
    events: RefCell<VecDeque<Event>>,
    /// There is something to write.
    wake: Notify,
}

/// A connection, from before it comes about to its end.
#[derive(Debug)]
pub(crate) struct Link {
    shared: Rc<Shared>,
    keys: Keys,
    replicas: u32,
    patience: Duration,
    task: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// Connects to the servers in their order. `notify` is told of each event.
    pub(crate) fn new(resolver: Resolver, servers: Servers, keys: Keys, notify: Rc<Notify>) -> Self {
        let shared = Rc::<Shared>::default();
        let (replicas, patience) = (servers.replicas, servers.patience);
        let of_task = Rc::clone(&shared);
        let task = holdfast_process::spawn_task(async move {
            let ended = live(&resolver, servers, &of_task, &notify).await;
            let why = ended.map_or_else(|error| error.to_string(), |()| "the store has closed it".into());
            of_task.events.borrow_mut().push_back(Event::Ended(why));
            notify.notify_one();
        });
        Self { shared, keys, replicas, patience, task: task.abort_handle() }
    }
}

impl Way for Link {
    /// What a store cannot take is refused here, as by a store.
    fn ask(&mut self, request: &Request) {
        let mut octets = self.shared.octets.borrow_mut();
        if let Err(malformed) = self.keys.encode(request, &mut octets) {
            let refused = Answer::Refused(malformed.into());
            self.shared.events.borrow_mut().push_back(Event::Answered(Ok(refused)));
            return;
        }
        let mut awaited = self.shared.awaited.borrow_mut();
        awaited.push_back(Awaited::Request(request.kind()));
        if self.replicas > 0 && request.kind() == Kind::Batch {
            let milliseconds = u32::try_from(self.patience.as_millis()).unwrap_or(u32::MAX).max(1);
            redis::wait(self.replicas, milliseconds, &mut octets);
            awaited.push_back(Awaited::Replicas);
        }
        drop(octets);
        self.shared.wake.notify_one();
    }

    fn event(&mut self) -> Option<Event> {
        self.shared.events.borrow_mut().pop_front()
    }

    fn work(&mut self) -> bool {
        false
    }
}

async fn live(resolver: &Resolver, servers: Servers, shared: &Shared, notify: &Notify) -> io::Result<()> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "no server is configured");
    for (peer, address) in &servers.peers {
        let dialled = timeout(DIAL_LIMIT, dial(resolver, peer.clone())).await;
        let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        match dialled.unwrap_or_else(|_| Err(timed_out())) {
            Ok((stream, _)) => {
                log_in(&servers, shared);
                shared.events.borrow_mut().push_back(Event::Connected(Some(address.clone())));
                notify.notify_one();
                return carry(stream, servers.replicas, shared, notify).await;
            }
            Err(error) => failed = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(failed)
}

/// What comes before any request.
fn log_in(servers: &Servers, shared: &Shared) {
    let (mut octets, mut awaited) = (shared.octets.borrow_mut(), shared.awaited.borrow_mut());
    if let Some(password) = &servers.password {
        redis::authenticate(servers.user.as_deref(), password, &mut octets);
        awaited.push_back(Awaited::Nothing);
    }
    for script in Script::ALL {
        script.load(&mut octets);
        awaited.push_back(Awaited::Nothing);
    }
}

/// Until one side has closed it. Reading does not wait for writing.
async fn carry(stream: impl Stream, replicas: u32, shared: &Shared, notify: &Notify) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let writing = async {
        loop {
            let octets = shared.octets.take();
            if octets.is_empty() {
                shared.wake.notified().await;
            } else {
                writer.write_all(&octets).await?;
            }
        }
    };
    let reading = async {
        let (mut room, mut replies, mut held) = (vec![0; READ], Replies::new(), None);
        loop {
            let count = reader.read(&mut room).await?;
            if count == 0 {
                return Ok(());
            }
            let broken = |failure: Failure| io::Error::new(io::ErrorKind::InvalidData, failure.to_string());
            replies.push(&room[..count]).map_err(broken)?;
            while let Some(reply) = replies.take().map_err(broken)? {
                let awaited = shared.awaited.borrow_mut().pop_front();
                let answer = match awaited {
                    None => return Err(broken(Failure::Unexpected)),
                    Some(Awaited::Nothing) => match reply {
                        redis::Reply::Error(failure) => Some(Err(failure)),
                        _ => None,
                    },
                    Some(Awaited::Request(Kind::Batch)) if replicas > 0 => {
                        held = Some(redis::answer(Kind::Batch, reply));
                        None
                    }
                    Some(Awaited::Request(kind)) => Some(redis::answer(kind, reply)),
                    Some(Awaited::Replicas) => match redis::confirmed(&reply) {
                        Ok(count) if count >= replicas.into() => held.take(),
                        Ok(_) => Some(Err(Failure::NoReplicas)),
                        Err(failure) => Some(Err(failure)),
                    },
                };
                if let Some(answer) = answer {
                    shared.events.borrow_mut().push_back(Event::Answered(answer));
                    notify.notify_one();
                }
            }
        }
    };
    tokio::select! {
        ended = writing => ended,
        ended = reading => ended,
    }
}

/// What a server says, short enough for a line.
pub(crate) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_WORDS)]
}
