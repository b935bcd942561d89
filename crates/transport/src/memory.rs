//! Connections in memory, for tests of whatever runs above: octets arrive late, later still when they were lost, and not
//! at all while the line is cut. The same seed loses the same ones.
//!
//! It has all verdicts. Nothing proves who is there, so it is let in by its address alone.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    rc::{Rc, Weak},
    time::Duration,
};

use holdfast_admission::{AddressProof, Attempt, Hello, Load, Verdict};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, sleep, timeout},
};

use crate::{
    Connection, Expected, Failure, Gate, HANDSHAKE_TIME, Identity, Listener, LocalFuture, Permit, Protocol,
};

mod line;

use line::{End, Line, ends};

/// Attempts that a listener has not looked at yet; further ones get no answer.
const BACKLOG: usize = 64;
/// A transmission is repeated so often at most: then it arrives.
const MOST_REPEATED: u32 = 6;
/// Until the first repetition, beside four times the way.
const REPEATED_AFTER: Duration = Duration::from_millis(10);

/// Where listeners and dialers find each other. Its clones are the same network. Time is tokio's, which a test can pause.
#[derive(Clone)]
pub struct Network(Rc<RefCell<Net>>);

struct Net {
    random: u64,
    delay: Duration,
    loss: f64,
    cut: Cut,
    listeners: BTreeMap<SocketAddr, mpsc::Sender<Knock>>,
    /// All that may still be read or written, to be woken when the line is cut or mended.
    lines: Vec<Weak<RefCell<Line>>>,
    mended: Rc<Notify>,
}

/// When the line was cut last.
#[derive(Copy, Clone, Debug)]
enum Cut {
    Never,
    Since(Instant),
    /// From then to then.
    Mended(Instant, Instant),
}

/// An attempt on its way to a listener.
struct Knock {
    from: SocketAddr,
    proof: AddressProof,
    /// Dropped when the attempt is ignored.
    answer: oneshot::Sender<Answer>,
}

enum Answer {
    Accepted(End),
    Refused(String),
    Retry,
}

impl Network {
    /// Without delay and loss; the seed decides what is lost once there is.
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(RefCell::new(Net {
            random: seed,
            delay: Duration::ZERO,
            loss: 0.0,
            cut: Cut::Never,
            listeners: BTreeMap::new(),
            lines: Vec::new(),
            mended: Rc::default(),
        })))
    }

    /// How long octets are on their way, from now on.
    pub fn set_delay(&self, one_way: Duration) {
        self.0.borrow_mut().delay = one_way;
    }

    /// How probable it is that what is sent is lost, from now on, 0 to 1. As streams are reliable, it is sent again and
    /// arrives later.
    pub fn set_loss(&self, probability: f64) {
        self.0.borrow_mut().loss = probability;
    }

    /// Nothing arrives from now on, and nobody is told.
    pub fn cut(&self) {
        let mut net = self.0.borrow_mut();
        if !matches!(net.cut, Cut::Since(_)) {
            net.cut = Cut::Since(Instant::now());
        }
        net.wake();
    }

    /// Mends the line; what was sent meanwhile arrives once more after the usual way.
    pub fn restore(&self) {
        let mut net = self.0.borrow_mut();
        if let Cut::Since(since) = net.cut {
            net.cut = Cut::Mended(since, Instant::now());
        }
        net.wake();
        net.mended.notify_waiters();
    }

    /// Listens at an address, in the place of whoever did.
    pub fn listener(&self, local: SocketAddr, gate: Rc<dyn Gate>) -> MemoryListener {
        let (sender, knocks) = mpsc::channel(BACKLOG);
        self.0.borrow_mut().listeners.insert(local, sender);
        MemoryListener { network: self.clone(), local, gate, knocks, connections: Rc::default() }
    }

    /// Dials.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] where nobody listens, [`Failure::Refused`] with the listener's reason,
    /// [`Failure::TimedOut`] after [`HANDSHAKE_TIME`] without an answer.
    pub async fn connect(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        expected: &Expected,
    ) -> Result<Connection, Failure> {
        let handshake = self.knock(from, to, expected);
        timeout(HANDSHAKE_TIME, handshake).await.unwrap_or(Err(Failure::TimedOut))
    }

    async fn knock(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        expected: &Expected,
    ) -> Result<Connection, Failure> {
        let mut proof = AddressProof::None;
        loop {
            self.crossing().await;
            let listener = self.0.borrow().listeners.get(&to).cloned();
            let listener = listener.ok_or_else(|| Failure::Unreachable(format!("nobody listens at {to}")))?;
            let (answer, answered) = oneshot::channel();
            let knock = Knock { from, proof, answer };
            let answer = match listener.try_send(knock) {
                Ok(()) => answered.await.ok(),
                Err(_) => None,
            };
            let Some(answer) = answer else { return std::future::pending().await };
            self.crossing().await;
            match answer {
                Answer::Accepted(end) => return Ok(connection(end, (from, to), expected, None)),
                Answer::Refused(reason) => return Err(Failure::Refused(reason)),
                Answer::Retry => proof = AddressProof::Token,
            }
        }
    }

    /// One way of a handshake.
    async fn crossing(&self) {
        loop {
            let mended = self.0.borrow().mended.clone();
            let mended = mended.notified();
            if !matches!(self.0.borrow().cut, Cut::Since(_)) {
                break;
            }
            mended.await;
        }
        let (delay, _) = self.0.borrow_mut().way();
        sleep(delay).await;
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

impl Net {
    /// How long the next octets are on their way, and how often they are lost.
    fn way(&mut self) -> (Duration, u32) {
        let (mut way, mut lost) = (self.delay, 0);
        let mut after = 4 * self.delay + REPEATED_AFTER;
        while lost < MOST_REPEATED && self.chance() < self.loss {
            way += after;
            after *= 2;
            lost += 1;
        }
        (way, lost)
    }

    /// SplitMix64, as a fraction.
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// When something arrives that would have without any cut; `None`: not before the line is mended.
    fn arrival(&self, at: Instant) -> Option<Instant> {
        match self.cut {
            Cut::Never => Some(at),
            Cut::Since(since) => (at <= since).then_some(at),
            Cut::Mended(since, _) if at <= since => Some(at),
            Cut::Mended(_, mended) => Some(at.max(mended + self.delay)),
        }
    }

    fn wake(&mut self) {
        self.lines.retain(|line| line.strong_count() > 0);
        for line in self.lines.iter().filter_map(Weak::upgrade) {
            let mut line = line.borrow_mut();
            line.wake();
            line.wake_writer();
        }
    }
}

fn connection(
    end: End,
    (local, remote): (SocketAddr, SocketAddr),
    expected: &Expected,
    counted: Option<Rc<()>>,
) -> Connection {
    let identity = Identity {
        peer: expected.peer.clone(),
        protocol: Protocol::Memory,
        remote,
        local,
        proof: String::new(),
    };
    let (stream, control) = end.into_parts(remote, expected.idle, counted);
    Connection { identity, stream, control, permit: None }
}

/// Takes connections in memory.
pub struct MemoryListener {
    network: Network,
    local: SocketAddr,
    gate: Rc<dyn Gate>,
    knocks: mpsc::Receiver<Knock>,
    connections: Rc<()>,
}

impl MemoryListener {
    fn answer(&self, knock: Knock) -> Option<Connection> {
        let mut attempt = MemoryAttempt {
            remote: knock.from,
            local: self.local,
            proof: knock.proof,
            load: Load { handshakes: 0, connections: Rc::strong_count(&self.connections) - 1 },
        };
        let verdict = self.gate.judge(Protocol::Memory, &mut attempt, std::time::Instant::now());
        let answer = match verdict {
            Verdict::Accept => {
                let permit = self.gate.begin(Protocol::Memory);
                permit.pass();
                match self.gate.expect(Protocol::Memory, knock.from) {
                    Some(expected) => return self.accepted(knock, &expected, permit),
                    None => Answer::Refused("nobody is expected from there".to_owned()),
                }
            }
            Verdict::Refuse(reason) => Answer::Refused(reason.to_owned()),
            Verdict::Retry if attempt.can_retry() => Answer::Retry,
            Verdict::Retry | Verdict::Ignore | Verdict::Wait(_) | Verdict::Next => return None,
        };
        // Nobody may be waiting any more.
        let _ = knock.answer.send(answer);
        None
    }

    fn accepted(&self, knock: Knock, expected: &Expected, permit: Box<dyn Permit>) -> Option<Connection> {
        let (ours, theirs) = ends(&self.network);
        if knock.answer.send(Answer::Accepted(theirs)).is_err() {
            self.gate.failed(Protocol::Memory, knock.from, &Failure::TimedOut);
            return None;
        }
        let counted = Some(self.connections.clone());
        let connection = connection(ours, (self.local, knock.from), expected, counted);
        Some(Connection { permit: Some(permit), ..connection })
    }
}

impl Listener for MemoryListener {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn accept(&mut self) -> LocalFuture<'_, Result<Connection, Failure>> {
        Box::pin(async move {
            loop {
                let knock = self.knocks.recv().await;
                let knock = knock.ok_or_else(|| {
                    Failure::Unreachable(format!("somebody else listens at {} now", self.local))
                })?;
                if let Some(connection) = self.answer(knock) {
                    return Ok(connection);
                }
            }
        })
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        // Not the one that has taken its place, whose receiver lives.
        self.knocks.close();
        let mut net = self.network.0.borrow_mut();
        if net.listeners.get(&self.local).is_some_and(mpsc::Sender::is_closed) {
            net.listeners.remove(&self.local);
        }
    }
}

struct MemoryAttempt {
    remote: SocketAddr,
    local: SocketAddr,
    proof: AddressProof,
    load: Load,
}

impl Attempt for MemoryAttempt {
    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn local(&self) -> Option<IpAddr> {
        Some(self.local.ip())
    }

    fn proof(&self) -> AddressProof {
        self.proof
    }

    fn can_retry(&self) -> bool {
        self.proof == AddressProof::None
    }

    fn hello(&mut self) -> Hello<'_> {
        Hello::Unsupported
    }

    fn load(&self) -> Load {
        self.load
    }
}
