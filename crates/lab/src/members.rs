//! The members of an exchange: hundreds of speakers on one link, in one thread.
//!
//! Each member has an address and an AS of its own, announces prefixes of its own, and is told those of all others by a route
//! server. The judge of what it is told is here: a route has its origin's path and next hop, and a large community of the
//! export policy towards this member: our AS, the policy's version, the member's number. [`crate::speaker`] keeps attributes
//! and is one thread a session; here a route is one octet, its version, so that 200 million of them fit.

mod session;

use std::{
    net::{Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use holdfast_types::{Asn, IpPrefix, Ipv4Prefix};
use rustix::event::{EventfdFlags, eventfd};

use crate::netns::Namespace;
use session::Hub;

/// Prefixes beside those of the members, which the first one announces when it is told to.
pub const PROBES: usize = 64;
/// Their first member's, which is a global address no test has.
const FIRST_PREFIX: u32 = 0x1000_0000;
/// The first one's. The addresses of all are in 10.1.0.0/16.
const FIRST_ADDRESS: u32 = 0x0a01_0100;
/// The first one's AS.
const FIRST_AS: u32 = 100_000;
/// What is remembered of wrong messages.
const WRONG: usize = 5;

/// What the members are.
#[derive(Clone, Debug)]
pub struct MembersConfig {
    /// Where they connect to: the route server.
    pub router: SocketAddr,
    /// Our AS, the first number of each community.
    pub router_as: u32,
    /// How many they are.
    pub members: usize,
    /// Prefixes of each.
    pub prefixes: usize,
    /// What each offers, in seconds. A third of it passes between the KEEPALIVEs of both sides.
    pub hold_time: u16,
}

impl MembersConfig {
    /// Routes that each member is told by all others, without probes.
    pub fn foreign(&self) -> u32 {
        ((self.members - 1) * self.prefixes) as u32
    }

    fn all(&self) -> usize {
        self.members * self.prefixes + PROBES
    }

    /// Whose prefix of this number is.
    fn owner(&self, prefix: usize) -> usize {
        let owner = prefix / self.prefixes;
        if owner < self.members { owner } else { 0 }
    }
}

/// A member's address.
pub fn address(member: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_ADDRESS + member as u32)
}

/// A member's AS.
pub fn asn(member: usize) -> Asn {
    Asn(FIRST_AS + member as u32)
}

fn prefix(number: usize) -> Ipv4Prefix {
    let network = Ipv4Addr::from_bits(FIRST_PREFIX + ((number as u32) << 8));
    Ipv4Prefix::new(network, 24).expect("a length of IPv4")
}

fn number(prefix: Ipv4Prefix) -> Option<usize> {
    let number = prefix.address().to_bits().checked_sub(FIRST_PREFIX)? >> 8;
    (prefix.length() == 24).then_some(number as usize)
}

/// What is known of a member, and what it has counted since the beginning.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its session is up.
    pub established: bool,
    /// Sessions so far.
    pub sessions: u32,
    /// Sessions that ended although neither it nor the drill ended them.
    pub lost: u32,
    /// Why the last one of these ended.
    pub why: Option<String>,
    /// Prefixes announced to it.
    pub announced: u64,
    /// Prefixes withdrawn from it.
    pub withdrawn: u64,
    /// How much later than a third of the hold time after the message before the router's latest message came at least. What
    /// the member itself was late with is not counted.
    pub latest: Duration,
    /// Versions by prefix; 0: not there.
    versions: Vec<u8>,
    /// Prefixes by version.
    held: Vec<u32>,
}

impl Member {
    fn new(prefixes: usize) -> Self {
        Self {
            established: false,
            sessions: 0,
            lost: 0,
            why: None,
            announced: 0,
            withdrawn: 0,
            latest: Duration::ZERO,
            versions: vec![0; prefixes],
            held: vec![0; 256],
        }
    }

    fn set(&mut self, prefix: usize, version: u8) {
        let before = std::mem::replace(&mut self.versions[prefix], version);
        self.held[usize::from(before)] -= u32::from(before != 0);
        self.held[usize::from(version)] += u32::from(version != 0);
    }

    fn forget(&mut self) {
        self.versions.fill(0);
        self.held.fill(0);
    }

    /// Whether it has exactly so many routes, each of them by this version of its policy.
    pub fn has(&self, routes: u32, version: u8) -> bool {
        self.established && self.held[usize::from(version)] == routes && self.routes() == routes
    }

    /// Routes that it has.
    pub fn routes(&self) -> u32 {
        self.held[1..].iter().sum()
    }
}

/// What the handle tells the thread.
#[derive(Copy, Clone, Debug)]
enum Command {
    /// The first member announces it, or withdraws it.
    Probe { number: usize, announced: bool },
    /// Closes the connection without a word, and connects again.
    Flap(usize),
    /// Ends.
    Stop,
}

#[derive(Debug)]
struct State {
    members: Vec<Member>,
    commands: Vec<Command>,
    /// Of messages that no member should have been sent.
    wrong: Vec<String>,
    /// The thread ended by itself, and why.
    failed: Option<String>,
}

#[derive(Debug)]
struct Shared {
    config: MembersConfig,
    state: Mutex<State>,
    changed: Condvar,
    woken: OwnedFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All members, connected until this is dropped.
#[derive(Debug)]
pub struct Members {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Members {
    /// They connect from this host, which has their addresses.
    ///
    /// # Errors
    /// There is no thread for them.
    pub fn start(host: &Namespace, config: MembersConfig) -> Result<Self> {
        let members = (0..config.members).map(|_| Member::new(config.all())).collect();
        let state = State { members, commands: Vec::new(), wrong: Vec::new(), failed: None };
        let woken = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { config, state: Mutex::new(state), changed: Condvar::new(), woken });
        let its = Arc::clone(&shared);
        let thread = host.spawn(move || {
            if let Err(error) = Hub::new(&its).and_then(Hub::run) {
                its.lock().failed = Some(format!("{error:#}"));
                its.changed.notify_all();
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    fn tell(&self, command: Command) {
        self.shared.lock().commands.push(command);
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.shared.woken, &1_u64.to_ne_bytes());
    }

    /// The first member announces one of [`PROBES`] more prefixes, or withdraws it.
    pub fn probe(&self, number: usize, announced: bool) {
        self.tell(Command::Probe { number, announced });
    }

    /// A member's connection ends without a word; it connects again at once.
    pub fn flap(&self, member: usize) {
        self.tell(Command::Flap(member));
    }

    /// What a closure says of all members.
    pub fn ask<T>(&self, what: impl FnOnce(&[Member]) -> T) -> T {
        what(&self.shared.lock().members)
    }

    /// Begins to look for the latest message again.
    pub fn forget_latest(&self) {
        self.shared.lock().members.iter_mut().for_each(|member| member.latest = Duration::ZERO);
    }

    /// What was wrong in messages so far, the first of it.
    pub fn wrong(&self) -> Vec<String> {
        self.shared.lock().wrong.clone()
    }

    /// Waits until all members are as wanted; how long it took.
    ///
    /// # Errors
    /// They do not become so, or no member lives.
    pub fn until(
        &self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(usize, &Member) -> bool,
    ) -> Result<Duration> {
        let start = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if let Some(failed) = &state.failed {
                bail!("the members' thread has ended: {failed}");
            }
            let mut others =
                state.members.iter().enumerate().filter(|(number, member)| !wanted(*number, member));
            let Some((number, member)) = others.next() else { return Ok(start.elapsed()) };
            if start.elapsed() >= limit {
                bail!(
                    "{what}: not within {} s at {} members, the first of them {number}: {} routes, established: {}, {:?}, by \
                     version {:?}",
                    limit.as_secs(),
                    1 + others.count(),
                    member.routes(),
                    member.established,
                    member.why,
                    member.held.iter().enumerate().filter(|(_, count)| **count > 0).collect::<Vec<_>>(),
                );
            }
            drop(others);
            let waited = self.shared.changed.wait_timeout(state, Duration::from_millis(20));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until each member, by number, has the routes of all others and so many probes, by its version.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub fn until_routes(&self, probes: u32, versions: &[u8], limit: Duration) -> Result<Duration> {
        let foreign = self.shared.config.foreign();
        // The first one has no probe: it announces them.
        let routes = |member: usize| if member == 0 { foreign } else { foreign + probes };
        self.until("all routes", limit, |number, member| member.has(routes(number), versions[number]))
            .context("at the members")
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_have_numbers_and_members_know_how_many_they_have_of_each_version() {
        for each in [0, 1, 200_000] {
            assert_eq!(number(prefix(each)), Some(each));
        }
        let mut member = Member::new(4);
        member.established = true;
        (0..3).for_each(|prefix| member.set(prefix, 1));
        assert!(member.has(3, 1) && !member.has(2, 1) && !member.has(3, 2));
        member.set(1, 2);
        assert!(!member.has(3, 1), "one is of another version");
        [0, 2].into_iter().for_each(|prefix| member.set(prefix, 2));
        assert!(member.has(3, 2));
        member.set(0, 0);
        assert!(member.has(2, 2));
        member.forget();
        assert_eq!(member.routes(), 0);
    }
}
