//! Single routes beside everything else, and when others hear of them.

use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use holdfast_bgp_wire::nlri::Nlri as _;
use holdfast_lab::router::{Router, binary};

use super::{
    scene::{LIMIT, Scene, milliseconds},
    signing::{plain, prefix, withdraw},
};
use crate::daemon::peer_asn;

/// From what was heard of one to the next.
const PACE: Duration = Duration::from_millis(10);
/// From one question to the next.
const ASKING: Duration = Duration::from_millis(200);
/// The number of the first; those of tables are below.
pub(super) const FIRST: u32 = 1_000_000;
/// After so many plain routes a signed one is withdrawn.
const SIGNED_EVERY: usize = 8;

/// Who sends them, whose signed routes are withdrawn beside, who hears of all.
#[derive(Copy, Clone)]
pub(super) struct Sessions {
    pub(super) plain: usize,
    pub(super) signer: usize,
    pub(super) sink: usize,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    Announced,
    Withdrawn,
    SignedWithdrawn,
}

/// Plain routes that come and go, one after the other, and signed ones that go.
pub(super) struct Probes {
    sessions: Sessions,
    /// The next plain route.
    number: u32,
    /// The next signed one to go; those before have gone.
    gone: u32,
    next: Kind,
    due: Instant,
    waiting: Option<Instant>,
    /// Plain routes that were heard of since the beginning.
    pub(super) told: u64,
    /// Milliseconds until they were heard of.
    pub(super) announced: Vec<f64>,
    pub(super) withdrawn: Vec<f64>,
    pub(super) signed_withdrawn: Vec<f64>,
}

impl Probes {
    pub(super) fn new(sessions: Sessions) -> Self {
        let (next, due) = (Kind::Announced, Instant::now());
        let [announced, withdrawn, signed_withdrawn] = Default::default();
        let (number, gone, told, waiting) = (FIRST, 0, 0, None);
        Self { sessions, number, gone, next, due, waiting, told, announced, withdrawn, signed_withdrawn }
    }

    /// Forgets how long it took so far.
    pub(super) fn forget(&mut self) {
        for taken in [&mut self.announced, &mut self.withdrawn, &mut self.signed_withdrawn] {
            taken.clear();
        }
    }

    /// Whether all that was sent was heard of.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_none() && self.next == Kind::Announced
    }

    /// Looks at what has come, and sends the next one if it is time. Of the signed routes this many were heard of, in order.
    pub(super) fn step(&mut self, scene: &mut Scene, signed: u64) -> Result<()> {
        let Some(sent) = self.waiting else {
            return if Instant::now() < self.due { Ok(()) } else { self.send(scene) };
        };
        let Some(seen) = scene.load.sessions[self.sessions.sink].seen else {
            ensure!(sent.elapsed() < LIMIT, "a route is not heard of");
            return Ok(());
        };
        let taken = milliseconds(seen - sent);
        (self.waiting, self.due) = (None, Instant::now() + PACE);
        let may_go = scene.load.sessions[self.sessions.signer].is_idle() && signed > u64::from(self.gone);
        self.next = match self.next {
            Kind::Announced => {
                self.announced.push(taken);
                self.told += 1;
                Kind::Withdrawn
            }
            Kind::Withdrawn => {
                self.withdrawn.push(taken);
                let is_time = self.withdrawn.len().is_multiple_of(SIGNED_EVERY);
                if is_time && may_go { Kind::SignedWithdrawn } else { Kind::Announced }
            }
            Kind::SignedWithdrawn => {
                self.signed_withdrawn.push(taken);
                Kind::Announced
            }
        };
        Ok(())
    }

    fn send(&mut self, scene: &mut Scene) -> Result<()> {
        let Sessions { plain: from, signer, sink } = self.sessions;
        let (session, route, octets) = match self.next {
            Kind::Announced => {
                let octets = plain(&[peer_asn(from)], scene.address(from), prefix(self.number))?;
                (from, self.number, octets)
            }
            Kind::Withdrawn => {
                self.number += 1;
                (from, self.number - 1, withdraw(self.number - 1..self.number))
            }
            Kind::SignedWithdrawn => {
                self.gone += 1;
                (signer, self.gone - 1, withdraw(self.gone - 1..self.gone))
            }
        };
        let mut nlri = Vec::new();
        prefix(route).push(&mut nlri);
        scene.load.sessions[sink].watch(nlri.into());
        self.waiting = Some(scene.load.sessions[session].send_now(&octets)?);
        Ok(())
    }
}

/// Somebody who asks the router again and again, as an operator does.
pub(super) struct Operator {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<f64>>>,
}

impl Operator {
    pub(super) fn start(router: &Router) -> Result<Self> {
        let (directory, binary) = (router.directory().to_owned(), binary()?);
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let mut taken = Vec::new();
            while !end.load(Ordering::Relaxed) {
                let start = Instant::now();
                let mut command = Command::new(&binary);
                command.args(["show", "bgp", "summary"]).env("HOLDFAST_RUNTIME_DIR", &directory);
                let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
                ensure!(status.success(), "`show bgp summary` ends with {status}");
                taken.push(milliseconds(start.elapsed()));
                thread::sleep(ASKING);
            }
            Ok(taken)
        });
        Ok(Self { ends, thread })
    }

    /// How long each question took, in milliseconds.
    pub(super) fn end(self) -> Result<Vec<f64>> {
        self.ends.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(taken) => taken,
            Err(_) => bail!("who asks has panicked"),
        }
    }
}
