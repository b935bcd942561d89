//! The echo service that is measured: who it is comes from the environment, it ends by itself, and says what it has cost.

use std::{
    cell::{Cell, RefCell},
    io::{Read, Write},
    net::{SocketAddr, UdpSocket},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_admission::{
    Attempt, ByHello, Chain, Numbers, PeerState, Peers, Pressure, Retry, RetryPolicy, Sources, Stage, Verdict,
};
use holdfast_tls::{Identity, PeerTls, Seeds, Trust};
use holdfast_transport::{Connection, Expected, Failure, Gate, Listener, Permit, Protocol, noq, s2n};
use rustix::{
    net::sockopt,
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Builder,
    sync::{Notify, oneshot},
    task::{LocalSet, spawn_local},
};

use super::{
    bare_noq, bare_s2n,
    cases::{Backend, Mode, PEER},
};

/// Certificate of the server, its key, and SHA-256 of the client's: all in hexadecimal digits.
pub(super) const CERTIFICATE: &str = "HOLDFAST_BENCH_CERTIFICATE";
pub(super) const KEY: &str = "HOLDFAST_BENCH_KEY";
pub(super) const CLIENT: &str = "HOLDFAST_BENCH_CLIENT";
/// A protocol that nobody asks for.
pub(super) const OTHER_ALPN: &[u8] = b"other";
/// Longer than any run.
const IDLE: Duration = Duration::from_secs(60);
/// Octets of the socket's queue, if the kernel lets us.
const QUEUE: usize = 4 << 20;
/// Octets read at once.
pub(super) const ROOM: usize = 64 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What is done to it.
    #[arg(long)]
    pub(super) mode: Mode,
    /// Which library.
    #[arg(long)]
    backend: Backend,
    /// Without the transport API.
    #[arg(long)]
    bare: bool,
    /// Ends after so many attempts.
    #[arg(long, default_value_t = u64::MAX)]
    attempts: u64,
    /// Ends after so many connections.
    #[arg(long, default_value_t = u64::MAX)]
    completions: u64,
}

/// What it says in the end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Finished {
    pub(super) attempts: u64,
    pub(super) completions: u64,
    /// CPU time of the process from when it listened, in microseconds.
    pub(super) cpu_us: u64,
}

/// Counts, and knows when it is enough.
pub(super) struct Tally {
    attempts: Cell<u64>,
    completions: Cell<u64>,
    most: (u64, u64),
    enough: Notify,
}

impl Tally {
    pub(super) fn attempt(&self) {
        self.attempts.set(self.attempts.get() + 1);
        self.look();
    }

    pub(super) fn completion(&self) {
        self.completions.set(self.completions.get() + 1);
        self.look();
    }

    fn look(&self) {
        if self.attempts.get() >= self.most.0 || self.completions.get() >= self.most.1 {
            self.enough.notify_one();
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let expected = expected()?;
    let tally = Rc::new(Tally {
        attempts: Cell::new(0),
        completions: Cell::new(0),
        most: (arguments.attempts, arguments.completions),
        enough: Notify::new(),
    });
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let socket = socket()?;
        let address = socket.local_addr()?;
        // The first random number of a process costs as much as ten handshakes: neither service is to pay for it.
        let seeds = Seeds::random();
        match (arguments.backend, arguments.bare) {
            (Backend::Noq, true) => bare_noq::serve(socket, arguments.mode, &expected, tally.clone())?,
            (Backend::Noq, false) => {
                let endpoint = noq::Endpoint::new(socket, &seeds)?;
                let gate = Rc::new(Doorkeeper::new(arguments.mode, expected, tally.clone())?);
                spawn_local(serve(Box::new(endpoint.listen(gate)), endpoint, tally.clone()));
            }
            (Backend::S2n, true) => bare_s2n::serve(socket, arguments.mode, &expected, tally.clone())?,
            (Backend::S2n, false) => {
                let endpoint = s2n::Endpoint::new(socket, &seeds)?;
                let gate = Rc::new(Doorkeeper::new(arguments.mode, expected, tally.clone())?);
                spawn_local(serve(Box::new(endpoint.listen(gate)?), endpoint, tally.clone()));
            }
        }
        let told = end_of_input();
        let begin = cpu_us();
        println!("{address}");
        std::io::stdout().flush()?;
        tokio::select! {
            () = tally.enough.notified() => {}
            _ = told => {}
        }
        let finished = Finished {
            attempts: tally.attempts.get(),
            completions: tally.completions.get(),
            cpu_us: cpu_us() - begin,
        };
        println!("{}", serde_json::to_string(&finished)?);
        Ok(())
    })
}

/// Whom the server expects, with what it shows.
fn expected() -> Result<Expected> {
    let identity = Identity::new(&[from_environment(CERTIFICATE)?], &from_environment(KEY)?)?;
    let pin = from_environment(CLIENT)?.try_into().ok().context("SHA-256 has 32 octets")?;
    let trust = Trust { pins: vec![pin], ..Trust::default() };
    let tls = PeerTls::new(&identity, &trust, None)?;
    Ok(Expected { peer: "client".to_owned(), tls: Some(tls), idle: IDLE, ttl_security: false })
}

fn from_environment(name: &str) -> Result<Vec<u8>> {
    let digits = std::env::var(name).with_context(|| name.to_owned())?;
    let octet = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let octets: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(octet).collect();
    octets.with_context(|| format!("{name} has hexadecimal digits"))
}

fn socket() -> Result<UdpSocket> {
    let socket = UdpSocket::bind((PEER, 0))?;
    // More than the system allows takes a right that tests do not have.
    if sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, QUEUE)?;
    }
    Ok(socket)
}

/// Of this process, since it began.
fn cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// When whoever has started us wants an end.
fn end_of_input() -> oneshot::Receiver<()> {
    let (sender, told) = oneshot::channel();
    std::thread::spawn(move || {
        // Nothing comes but the end.
        let _ = std::io::stdin().read(&mut [0]);
        let _ = sender.send(());
    });
    told
}

/// Lets in by the stages that the process `transport` has, as many as the mode needs.
struct Doorkeeper {
    chain: RefCell<Chain>,
    expected: Expected,
    tally: Rc<Tally>,
}

impl Doorkeeper {
    fn new(mode: Mode, expected: Expected, tally: Rc<Tally>) -> Result<Self> {
        let known = [format!("{}/32", PEER).parse()?];
        let sources: Box<dyn Stage> = Box::new(Sources::new(known.into_iter().collect()));
        let pressure = Rc::new(Pressure::new(&Numbers::default()));
        let retry = || Box::new(Retry::new(RetryPolicy::Always, pressure.clone()));
        let nobody = || Box::new(Peers::new(|_: &dyn Attempt| PeerState::Nobody));
        let stages: Vec<Box<dyn Stage>> = match mode {
            Mode::Ignore | Mode::Open | Mode::Echo | Mode::Garbage | Mode::Spam | Mode::Transfer => {
                vec![sources]
            }
            Mode::Refuse => vec![sources, nobody()],
            Mode::Retry => vec![sources, retry()],
            Mode::RetryRefuse => vec![sources, retry(), nobody()],
            Mode::Alpn => vec![sources, Box::new(ByHello::new([OTHER_ALPN.to_vec()]))],
        };
        Ok(Self { chain: RefCell::new(Chain::new(stages)), expected, tally })
    }
}

impl Gate for Doorkeeper {
    fn judge(&self, _: Protocol, attempt: &mut dyn Attempt, now: Instant) -> Verdict {
        self.tally.attempt();
        self.chain.borrow_mut().judge(attempt, now)
    }

    fn expect(&self, _: Protocol, _: SocketAddr) -> Option<Expected> {
        Some(self.expected.clone())
    }

    fn begin(&self, _: Protocol) -> Box<dyn Permit> {
        Box::new(())
    }

    fn failed(&self, _: Protocol, _: SocketAddr, _: &Failure) {}
}

/// Keeps the endpoint as long as it listens.
async fn serve<E: 'static>(mut listener: Box<dyn Listener>, _endpoint: E, tally: Rc<Tally>) {
    while let Ok(connection) = listener.accept().await {
        spawn_local(echo(connection, tally.clone()));
    }
}

async fn echo(mut connection: Connection, tally: Rc<Tally>) {
    let mut room = vec![0; ROOM];
    while let Ok(length @ 1..) = connection.stream.read(&mut room).await {
        if connection.stream.write_all(&room[..length]).await.is_err() {
            break;
        }
    }
    tally.completion();
}
