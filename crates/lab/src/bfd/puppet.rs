//! An end of a session that does what a test wants: it falls silent, says AdminDown, or sends what nobody should.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::packet::{ADMIN_DOWN, Control, DOWN, FINAL, INIT, POLL, UP};
use crate::{netns::Namespace, wait};

/// The port of packets over one hop.
pub const SINGLE_HOP: u16 = 3784;
/// The port of packets over several.
pub const MULTIHOP: u16 = 4784;

/// A socket that sends to a router with this TTL, from a port that RFC 5881 section 4 wants.
///
/// # Errors
/// The address is not there, or no port is free.
pub fn sender(host: &Namespace, source: IpAddr, ttl: u32) -> Result<UdpSocket> {
    let bound = host.run(move || {
        let bind = |port| UdpSocket::bind(SocketAddr::new(source, port)).ok();
        (49_152..49_252).find_map(bind).ok_or(io::ErrorKind::AddrInUse)
    })?;
    let socket = bound.map_err(io::Error::from)?;
    socket.set_ttl(ttl)?;
    Ok(socket)
}

/// What the end is now.
#[derive(Clone, Debug)]
struct State {
    /// What is sent.
    says: Control,
    /// Nothing is.
    is_silent: bool,
    /// An operator holds it in the state that it says.
    is_held: bool,
    /// The last packet of the router.
    heard: Option<Control>,
    /// How many came.
    count: u64,
    /// When the last one came, and the longest time between two.
    last: Option<Instant>,
    gap: Duration,
    /// How often the router was Up no more, or silent for the detection time.
    downs: u64,
}

/// The end, until it is dropped.
#[derive(Debug)]
pub struct Puppet {
    state: Arc<Mutex<State>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// For packets out of turn.
    socket: UdpSocket,
    router: SocketAddr,
}

const PERIOD: Duration = Duration::from_millis(80);

impl Puppet {
    /// Begins a session over one hop.
    ///
    /// # Errors
    /// The port is taken.
    pub fn start(host: &Namespace, own: IpAddr, router: IpAddr, says: Control) -> Result<Self> {
        let ears = host.run(move || UdpSocket::bind(SocketAddr::new(own, SINGLE_HOP)))??;
        ears.set_read_timeout(Some(PERIOD / 4))?;
        let socket = sender(host, own, 255)?;
        let mouth = socket.try_clone()?;
        let state = State {
            says,
            is_silent: false,
            is_held: false,
            heard: None,
            count: 0,
            last: None,
            gap: Duration::ZERO,
            downs: 0,
        };
        let (state, is_over) = (Arc::new(Mutex::new(state)), Arc::<AtomicBool>::default());
        let router = SocketAddr::new(router, SINGLE_HOP);
        let (shared, over) = (Arc::clone(&state), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name("puppet".into()).spawn(move || {
            let mut last = Instant::now();
            while !over.load(Ordering::Relaxed) {
                let answers = hear(&ears, router.ip(), &shared);
                if answers.is_some() || last.elapsed() >= PERIOD {
                    last = Instant::now();
                    say(&mouth, router, &shared, answers.unwrap_or(0));
                }
            }
        })?;
        Ok(Self { state, is_over, thread: Some(thread), socket, router })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sends nothing more, or goes on.
    pub fn set_silent(&self, is_silent: bool) {
        self.lock().is_silent = is_silent;
    }

    /// Says this state from now on, whatever it hears.
    pub fn hold(&self, state: u8) {
        let mut now = self.lock();
        now.is_held = true;
        now.says.state = state;
    }

    /// Goes on from Down.
    pub fn release(&self) {
        let mut now = self.lock();
        now.is_held = false;
        now.says.state = DOWN;
    }

    /// Changes what it says.
    pub fn change(&self, change: impl FnOnce(&mut Control)) {
        change(&mut self.lock().says);
    }

    /// What it says now.
    pub fn says(&self) -> Control {
        self.lock().says.clone()
    }

    /// The last packet of the router, and how many came.
    pub fn heard(&self) -> (Option<Control>, u64) {
        let now = self.lock();
        (now.heard.clone(), now.count)
    }

    /// The longest time between two packets of the router since the last call.
    pub fn take_gap(&self) -> Duration {
        let mut now = self.lock();
        let lasts = now.last.map(|last| last.elapsed()).unwrap_or_default();
        std::mem::take(&mut now.gap).max(lasts)
    }

    /// How often a packet of the router said that it was Up no more, or came later than the detection time.
    pub fn downs(&self) -> u64 {
        self.lock().downs
    }

    /// Sends octets out of turn, to this port of the router.
    ///
    /// # Errors
    /// The kernel does not take them.
    pub fn send(&self, octets: &[u8], port: u16) -> io::Result<()> {
        self.socket.send_to(octets, (self.router.ip(), port)).map(drop)
    }

    /// Waits until both ends are Up.
    ///
    /// # Errors
    /// They are not in time.
    pub fn until_up(&self, limit: Duration) -> Result<()> {
        wait::until("a session of the puppet", limit, || {
            let now = self.lock().clone();
            let is_up = now.says.state == UP && now.heard.as_ref().is_some_and(|heard| heard.state == UP);
            if is_up { Ok(()) } else { Err(format!("{now:?}")) }
        })
    }

    /// Waits until the router says something as wanted.
    ///
    /// # Errors
    /// It does not in time.
    pub fn until_heard(&self, limit: Duration, wanted: impl Fn(&Control) -> bool) -> Result<Control> {
        wait::until("a packet of the router", limit, || {
            let heard = self.lock().heard.clone();
            heard.clone().filter(|heard| wanted(heard)).ok_or_else(|| format!("{heard:?}"))
        })
        .context("the puppet")
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a packet in: the bits that an answer at once has, if one is to be sent at once.
fn hear(ears: &UdpSocket, router: IpAddr, state: &Mutex<State>) -> Option<u8> {
    let mut octets = [0; 256];
    let (length, from) = ears.recv_from(&mut octets).ok()?;
    let heard = Control::read(&octets[..length]).filter(|_| from.ip() == router)?;
    let mut now = lock(state);
    now.count += 1;
    let gap = now.last.replace(Instant::now()).map(|last| last.elapsed()).unwrap_or_default();
    now.gap = now.gap.max(gap);
    let was_up = now.says.state == UP && now.heard.as_ref().is_some_and(|heard| heard.state == UP);
    let interval = u32::max(heard.intervals[0], now.says.intervals[1]);
    let detection = Duration::from_micros(interval.into()) * heard.multiplier.into();
    now.downs += u64::from(was_up && (heard.state != UP || gap > detection));
    now.says.yours = heard.mine;
    let next = match (now.says.state, heard.state) {
        (INIT | UP, ADMIN_DOWN) | (UP, DOWN) => DOWN,
        (DOWN, DOWN) => INIT,
        (DOWN, INIT) | (INIT, INIT | UP) => UP,
        (same, _) => same,
    };
    let has_changed = !now.is_held && std::mem::replace(&mut now.says.state, next) != next;
    let is_poll = heard.flags & POLL != 0;
    now.heard = Some(heard);
    match (is_poll, has_changed) {
        (true, _) => Some(FINAL),
        (false, true) => Some(0),
        (false, false) => None,
    }
}

fn say(mouth: &UdpSocket, router: SocketAddr, state: &Mutex<State>, flags: u8) {
    let now = lock(state).clone();
    if !now.is_silent {
        let mut packet = now.says;
        packet.flags |= flags;
        // A router that is not there yet refuses it.
        let _ = mouth.send_to(&packet.octets(), router);
    }
}
