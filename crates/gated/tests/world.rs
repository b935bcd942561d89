//! Two network namespaces with a link: one has the gate, the other the peers. The tests are the replicator.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, OwnedFd},
    process::Command,
    rc::Rc,
    sync::atomic::{AtomicU32, Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use holdfast_gate::{Claim, Connection, Gating, Marks, Side, SlotState, kept};
use holdfast_gated::{Attachment, Post, Settings, Sockets, Station, try_out};
use holdfast_sys::{clock, memory::SharedMemory, tcp};
use holdfast_types::HashKey;
use rustix::{
    event::EventfdFlags,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

pub(crate) const PORT: u16 = 1790;
pub(crate) const QUEUE: u16 = 4711;
/// Long enough for what comes, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// Long enough for what does not come to have come.
pub(crate) const MOMENT: Duration = Duration::from_millis(300);

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "this test needs root: {program} {arguments:?}: {said}");
}

/// A network namespace, which goes with this.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    fn new(role: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let namespace = Self(format!("hfg{}-{number}-{role}", std::process::id()));
        run("ip", &["netns", "add", &namespace.0]);
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    pub(crate) fn ip(&self, arguments: &[&str]) {
        run("ip", &[&["-n", &self.0], arguments].concat());
    }

    pub(crate) fn exec(&self, arguments: &[&str]) {
        run("ip", &[&["netns", "exec", &self.0], arguments].concat());
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let file = File::open(format!("/run/netns/{}", self.0)).expect("a namespace");
        thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root");
            body()
        })
    }

    pub(crate) fn inside<T: Send + 'static>(&self, body: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(body).join().expect("no panic")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

/// A gate that runs.
pub(crate) struct Running {
    stop: Option<tokio::sync::oneshot::Sender<bool>>,
    thread: Option<JoinHandle<Report>>,
}

/// What a gate has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) counts: holdfast_gate::Counts,
    pub(crate) tally: holdfast_gated::Tally,
    pub(crate) cpu: Duration,
}

impl Running {
    /// Its end: with an orderly one our tables go.
    pub(crate) fn end(mut self, is_orderly: bool) -> Report {
        let _ = self.stop.take().expect("it ends once").send(is_orderly);
        self.thread.take().expect("it ends once").join().expect("no panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) struct World {
    pub(crate) router: Namespace,
    pub(crate) peers: Namespace,
    memory: SharedMemory,
    kept: OwnedFd,
    bells: [OwnedFd; 2],
}

impl World {
    pub(crate) fn new(slots: usize) -> Self {
        let (router, peers) = (Namespace::new("router"), Namespace::new("peers"));
        let veth = [
            "link", "add", "eth0", "netns", &router.0, "type", "veth", "peer", "name", "eth0", "netns",
            &peers.0,
        ];
        run("ip", &veth);
        for (namespace, host) in [(&router, 1), (&peers, 2)] {
            namespace.ip(&["address", "add", &format!("10.0.0.{host}/24"), "dev", "eth0"]);
            namespace.ip(&["address", "add", &format!("fd00::{host}/64"), "dev", "eth0", "nodad"]);
            namespace.ip(&["link", "set", "eth0", "up"]);
        }
        for (namespace, host) in [(&router, 1), (&peers, 2)] {
            let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host);
            holdfast_testing::addresses::until_delivered(&["-n", &namespace.0], &[address]);
        }
        let mut memory = SharedMemory::create("marks", Marks::octets(slots)).expect("memory");
        Marks::create(memory.words()).expect("room").set_lease(u64::MAX);
        let kept = SharedMemory::create("flows", kept::KEPT).expect("memory");
        let kept = kept.descriptor().try_clone_to_owned().expect("a copy");
        let bells = [0, 1].map(|_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC).expect("a bell"));
        Self { router, peers, memory, kept, bells }
    }

    /// What a gate is given: the marks, the bell of the replicator, and its own.
    pub(crate) fn attached(&self) -> [OwnedFd; 3] {
        let [replicator, gate] = self.bells.each_ref().map(|bell| bell.try_clone().expect("a copy"));
        [self.memory.descriptor().try_clone_to_owned().expect("a copy"), replicator, gate]
    }

    /// A gate at the port, which goes on where one before stood.
    pub(crate) fn gate(&self) -> Running {
        let [marks, replicator, gate] = self.attached();
        let kept = SharedMemory::from_descriptor(self.kept.try_clone().expect("a copy")).expect("memory");
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = self.router.spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let settings = Settings { queue: QUEUE, ports: vec![PORT], vrf: 0 };
                let sockets = Sockets::open().expect("netlink");
                let post =
                    Post::open(settings, sockets, kept, HashKey::new([3, 4])).expect("this kernel has all");
                let post = Rc::new(std::cell::RefCell::new(post));
                let station = Rc::new(Station::default());
                let attachment = Rc::new(Attachment::new(marks, replicator, gate).expect("marks"));
                station.attach(Rc::clone(&attachment));
                station.add(Rc::clone(&post));
                try_out(&station, &post).await.expect("packets come");
                ready.send(()).expect("somebody waits");
                let is_orderly = tokio::select! {
                    is_orderly = stopped => is_orderly.unwrap_or(true),
                    end = station.serve(Rc::clone(&post)) => panic!("the queue: {end:?}"),
                    end = station.hear(attachment) => panic!("the bell: {end:?}"),
                };
                if is_orderly {
                    post.borrow_mut().open_up();
                }
                let (counts, tally) = post.borrow().counted();
                let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                let cpu = Duration::new(cpu.tv_sec.cast_unsigned(), cpu.tv_nsec as u32);
                Report { counts, tally, cpu }
            })
        });
        is_ready.recv_timeout(LIMIT).expect("the gate stands");
        Running { stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn marks(&mut self) -> Marks<'_> {
        Marks::open(self.memory.words()).expect("marks")
    }

    /// Changes the marks, and wakes the gate if it sleeps.
    pub(crate) fn change<T>(&mut self, body: impl FnOnce(&Marks<'_>) -> T) -> T {
        let marks = self.marks();
        let outcome = body(&marks);
        if marks.must_ring(Side::Gate) {
            rustix::io::write(&self.bells[1], &1_u64.to_ne_bytes()).expect("a bell");
        }
        outcome
    }

    pub(crate) fn listen(&self, address: &str) -> TcpListener {
        let address: SocketAddr = format!("{address}:{PORT}").parse().expect("an address");
        self.router.inside(move || TcpListener::bind(address).expect("free"))
    }

    /// A session that a peer has dialed: our end, and the peer's.
    pub(crate) fn session(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let address = listener.local_addr().expect("bound");
        let theirs =
            self.peers.inside(move || TcpStream::connect_timeout(&address, LIMIT).expect("a session"));
        (listener.accept().expect("a session").0, theirs)
    }

    /// The session is gated from now on, with these watermarks.
    pub(crate) fn claim(&mut self, slot: u32, ours: &TcpStream, marks: (u64, u64)) -> Claim {
        let connection = connection(ours);
        let claim =
            self.change(|all| all.claim(slot, &connection, SlotState::Gated, marks)).expect("a free slot");
        self.wait("the gate knows it", |marks| marks.gating(claim) == Gating::Able);
        claim
    }

    pub(crate) fn wait(&mut self, what: &str, mut until: impl FnMut(&Marks<'_>) -> bool) {
        let began = Instant::now();
        while !until(&self.marks()) {
            assert!(began.elapsed() < LIMIT, "{what}");
            thread::sleep(Duration::from_micros(200));
        }
    }

    pub(crate) fn end_lease(&mut self) {
        self.change(|marks| marks.set_lease(1));
    }

    pub(crate) fn renew_lease(&mut self) {
        let until = clock::since_boot() + LIMIT;
        self.change(|marks| marks.set_lease(until.as_nanos() as u64));
    }
}

pub(crate) fn connection(ours: &TcpStream) -> Connection {
    Connection::new(ours.local_addr().expect("bound"), ours.peer_addr().expect("connected"), 0)
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Octets that the other end has not acknowledged.
pub(crate) fn unacknowledged(socket: &TcpStream) -> u32 {
    tcp::unacknowledged(socket).expect("a socket")
}

pub(crate) fn unread(socket: &TcpStream) -> u32 {
    tcp::unread(socket).expect("a socket")
}

pub(crate) fn write(mut socket: &TcpStream, octets: usize) {
    socket.write_all(&vec![7; octets]).expect("room");
}

/// Reads so much.
pub(crate) fn read(mut socket: &TcpStream, octets: usize) {
    socket.set_read_timeout(Some(LIMIT)).expect("a socket");
    socket.read_exact(&mut vec![0; octets]).expect("octets");
}

/// Whether the other end has ended the session; nothing came before.
pub(crate) fn has_ended(mut socket: &TcpStream, within: Duration) -> bool {
    socket.set_read_timeout(Some(within)).expect("a socket");
    match socket.read(&mut [0]) {
        Ok(octets) => {
            assert_eq!(octets, 0);
            true
        }
        Err(error) => {
            let is_none = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            assert!(is_none, "{error}");
            false
        }
    }
}
