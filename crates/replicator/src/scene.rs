//! What unit tests of the engine and of tables have in common: a log, sockets, a store that does what a test says.

use std::{
    cell::RefCell,
    fs::File,
    net::{TcpListener, TcpStream},
    ops::Range,
    os::fd::OwnedFd,
    rc::Rc,
};

use holdfast_api::bgp::v1::HeldSession;
use holdfast_nsr::{Log, Memory, SessionId, Shared};
use holdfast_store::{Failure, Request, memory};
use holdfast_sys::memory::SharedMemory;
use prost::Message;

use crate::{
    remaking::Mapped,
    way::{Event, Open, Place, Way},
};

/// Memory of a log that shows its reader what was written before the last barrier, and nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Both {
    visible: Rc<RefCell<Vec<u8>>>,
    octets: Vec<u8>,
}

/// What its reader has of it.
#[derive(Clone, Debug)]
pub(crate) struct Reading(Rc<RefCell<Vec<u8>>>);

impl Both {
    pub(crate) fn new(octets: usize) -> (Self, Reading) {
        let visible = Rc::new(RefCell::new(vec![0; octets]));
        (Self { visible: Rc::clone(&visible), octets: vec![0; octets] }, Reading(visible))
    }
}

impl Memory for Both {
    fn octets(&self) -> &[u8] {
        &self.octets
    }

    fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.octets
    }

    fn release(&mut self, range: Range<usize>) {
        self.octets[range].fill(0xa5);
    }

    fn barrier(&mut self, _: std::sync::atomic::Ordering) {
        const PIECE: usize = 4096;
        let mut visible = self.visible.borrow_mut();
        for (visible, written) in visible.chunks_mut(PIECE).zip(self.octets.chunks(PIECE)) {
            if visible != written {
                visible.copy_from_slice(written);
            }
        }
    }
}

impl Shared for Reading {
    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn load(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0.borrow()[at..at + 8].try_into().expect("eight octets"))
    }

    fn copy(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0.borrow()[at..at + into.len()]);
    }
}

/// A log, and the descriptor of its memory.
pub(crate) fn log() -> (Log<Mapped>, OwnedFd) {
    let memory = SharedMemory::create("log", 6 << 20).expect("memory");
    let descriptor = memory.descriptor().try_clone_to_owned().expect("a copy");
    let log = Log::create_with_blocks(Mapped(memory), 8, [7; 16], 4096).expect("room");
    (log, descriptor)
}

/// A session of a log whose socket began to count at these offsets.
pub(crate) fn open(log: &mut Log<Mapped>, received: u64, sent: u64) -> SessionId {
    let held = HeldSession { received_origin: received, sent_origin: sent, ..HeldSession::default() };
    log.open(received, sent, &held.encode_to_vec()).expect("room")
}

/// The peer has said so many octets more.
pub(crate) fn receive(log: &mut Log<Mapped>, id: SessionId, count: usize) {
    let room: usize = log.room(id, count).expect("room").iter().map(|part| part.len()).sum();
    assert!(room >= count);
    log.received(id, count);
}

/// Our end of a connection that the peer has dialled, the peer's, and our port.
pub(crate) fn sockets() -> (TcpStream, TcpStream, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let peer = TcpStream::connect(address).expect("accepted");
    let (ours, _) = listener.accept().expect("dialled");
    (ours, peer, address.port())
}

/// A file whose name nobody else has any more.
pub(crate) fn file(name: &str) -> (File, File) {
    let path = std::env::temp_dir().join(format!("holdfast-{}-{name}", std::process::id()));
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let both = (open().expect("made"), open().expect("made"));
    std::fs::remove_file(path).expect("it was made");
    both
}

/// A store that does what it is told, when it is told.
pub(crate) struct Script {
    pub(crate) store: memory::Memory,
    /// How many requests it answers from now on; `None`: all.
    pub(crate) answers: Option<usize>,
    /// Nobody listens.
    pub(crate) is_down: bool,
    /// The servers that were tried, each time.
    pub(crate) tried: Vec<String>,
}

impl Script {
    pub(crate) fn new() -> Rc<RefCell<Self>> {
        let store = memory::Memory::new(1 << 30);
        Rc::new(RefCell::new(Self { store, answers: None, is_down: false, tried: Vec::new() }))
    }
}

/// Ways to such a store.
pub(crate) struct Scripted(pub(crate) Rc<RefCell<Script>>);

impl Open for Scripted {
    fn open(&mut self, place: &Place<'_>) -> Result<Box<dyn Way>, Failure> {
        let mut script = self.0.borrow_mut();
        script.store.cut();
        let first = place.servers.peers.first().map(|(_, address)| address.clone());
        script.tried.push(first.unwrap_or_default());
        Ok(Box::new(ScriptedWay { script: Rc::clone(&self.0), is_connected: false }))
    }

    /// It is elsewhere, and stays.
    fn forget(&mut self) {}
}

struct ScriptedWay {
    script: Rc<RefCell<Script>>,
    is_connected: bool,
}

impl Way for ScriptedWay {
    fn ask(&mut self, request: &Request) {
        self.script.borrow_mut().store.ask(request.clone()).expect("few are on their way");
    }

    fn event(&mut self) -> Option<Event> {
        let script = &mut *self.script.borrow_mut();
        if !std::mem::replace(&mut self.is_connected, true) {
            return Some(match script.is_down {
                true => Event::Ended("nobody listens".into()),
                false => Event::Connected(script.tried.last().cloned()),
            });
        }
        if script.answers != Some(0) && script.store.work() {
            script.answers = script.answers.map(|answers| answers - 1);
        }
        script.store.take().map(Event::Answered)
    }

    fn work(&mut self) -> bool {
        false
    }
}
