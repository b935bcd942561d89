//! Two routers with keys of their own, a gate that does as it is told, and octets of a first flight.

use std::{
    cell::{Cell, RefCell},
    net::{SocketAddr, UdpSocket},
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_admission::{AddressProof, Attempt, Verdict};
use holdfast_tls::{
    Identity, PeerTls, Seeds, Trust,
    keys::{Algorithm, Authority, PrivateKey, Validity, request, self_signed},
};
use holdfast_transport::{
    Connection, Expected, Failure, Gate, Listener, Outcome, Permit, Protocol, Stray,
    s2n::{Dialer, Endpoint, S2nListener},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
    task::LocalSet,
    time::timeout,
};

/// A test that hangs fails.
const LONG: Duration = Duration::from_secs(60);

/// Runs all of a test on one thread, as `transport` does.
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_for(LONG, test);
}

/// [`run`], for a clock that is told to go on.
pub(crate) fn run_for(limit: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        timeout(limit, test).await.expect("it does not hang");
    });
}

/// Who has a key, and a certificate that it has signed itself.
pub(crate) struct Router {
    name: &'static str,
    identity: Identity,
}

impl Router {
    pub(crate) fn new(name: &'static str) -> Self {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        let certificate = self_signed(&key, &[name.to_owned()], Validity::days(1)).expect("a certificate");
        let identity = Identity::new(&[certificate], key.der()).expect("an identity");
        Self { name, identity }
    }

    /// Whose certificate an authority has signed.
    pub(crate) fn of(authority: &Authority, name: &'static str) -> Self {
        let key = PrivateKey::generate(Algorithm::P256).expect("a key");
        let request = request(&key, &[name.to_owned()]).expect("a request");
        let certificate = authority.sign(&request, Validity::days(1)).expect("a certificate");
        let identity = Identity::new(&[certificate], key.der()).expect("an identity");
        Self { name, identity }
    }

    /// The other one as it is seen here: with its key pinned.
    pub(crate) fn expects(&self, other: &Self) -> Expected {
        self.trusts(other, Trust { pins: vec![other.identity.fingerprint()], ..Trust::default() })
    }

    /// The same, and both show nothing but their keys (RFC 7250).
    pub(crate) fn expects_bare(&self, other: &Self) -> Expected {
        let pins = vec![other.identity.fingerprint()];
        let trust = Trust { pins, raw_public_key: true, present_raw_public_key: true, ..Trust::default() };
        self.trusts(other, trust)
    }

    /// What the other one has to show, and how.
    pub(crate) fn trusts(&self, other: &Self, trust: Trust) -> Expected {
        let tls = PeerTls::new(&self.identity, &trust, None).expect("a configuration");
        Expected {
            peer: other.name.to_owned(),
            tls: Some(tls),
            idle: Duration::from_secs(30),
            ttl_security: false,
        }
    }
}

/// Lets in who is expected, unless it is told something else; remembers all it was asked.
pub(crate) struct Told {
    protocol: Protocol,
    expected: RefCell<Option<Expected>>,
    /// For attempts in turn; when there is none left, they are accepted.
    pub(crate) verdicts: RefCell<Vec<Verdict>>,
    pub(crate) judged: RefCell<Vec<AddressProof>>,
    pub(crate) under_way: Rc<Cell<usize>>,
    failures: RefCell<Vec<Failure>>,
    pub(crate) strays: RefCell<Vec<Stray>>,
    changed: Notify,
}

impl Told {
    pub(crate) fn new(expected: Option<Expected>) -> Rc<Self> {
        Self::of(Protocol::QuicS2n, expected)
    }

    /// Of a listener of another protocol.
    pub(crate) fn of(protocol: Protocol, expected: Option<Expected>) -> Rc<Self> {
        Rc::new(Self {
            protocol,
            expected: RefCell::new(expected),
            verdicts: RefCell::default(),
            judged: RefCell::default(),
            under_way: Rc::default(),
            failures: RefCell::default(),
            strays: RefCell::default(),
            changed: Notify::new(),
        })
    }

    pub(crate) fn says(self: Rc<Self>, verdicts: &[Verdict]) -> Rc<Self> {
        self.verdicts.borrow_mut().extend(verdicts.iter().rev());
        self
    }

    /// Another peer has the address.
    pub(crate) fn expect_from_now_on(&self, expected: Expected) {
        *self.expected.borrow_mut() = Some(expected);
    }

    /// Waits for a handshake that fails.
    pub(crate) async fn failure(&self) -> Failure {
        self.until(|| self.failures.borrow_mut().pop()).await
    }

    /// Waits until so many attempts have been judged.
    pub(crate) async fn has_judged(&self, attempts: usize) {
        self.until(|| (self.judged.borrow().len() >= attempts).then_some(())).await;
    }

    /// Waits until so many handshakes are under way.
    pub(crate) async fn has_under_way(&self, handshakes: usize) {
        self.until(|| (self.under_way.get() == handshakes).then_some(())).await;
    }

    async fn until<T>(&self, mut known: impl FnMut() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(value) = known() {
                return value;
            }
            changed.await;
        }
    }
}

impl Gate for Told {
    fn judge(&self, protocol: Protocol, attempt: &mut dyn Attempt, _: Instant) -> Verdict {
        assert_eq!(protocol, self.protocol);
        self.judged.borrow_mut().push(attempt.proof());
        self.changed.notify_waiters();
        self.verdicts.borrow_mut().pop().unwrap_or(Verdict::Accept)
    }

    fn expect(&self, _: Protocol, _: SocketAddr) -> Option<Expected> {
        self.expected.borrow().clone()
    }

    fn begin(&self, _: Protocol) -> Box<dyn Permit> {
        self.under_way.set(self.under_way.get() + 1);
        self.changed.notify_waiters();
        Box::new(UnderWay(Rc::clone(&self.under_way)))
    }

    fn stray(&self, _: Protocol, stray: Stray) {
        self.strays.borrow_mut().push(stray);
    }

    fn failed(&self, _: Protocol, _: SocketAddr, failure: &Failure) {
        self.failures.borrow_mut().push(failure.clone());
        self.changed.notify_waiters();
    }
}

struct UnderWay(Rc<Cell<usize>>);

impl Permit for UnderWay {
    fn pass(&self) {}

    fn settle(self: Box<Self>, _: Outcome) {}
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

pub(crate) fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a socket")
}

/// Of as many generations, the current one first.
pub(crate) fn seeds(generations: &[u8]) -> Seeds {
    let seeds: Vec<_> = generations.iter().map(|octet| vec![*octet; 64]).collect();
    Seeds::new(&seeds).expect("seeds")
}

pub(crate) fn endpoint() -> Endpoint {
    Endpoint::new(socket(), &Seeds::random()).expect("an endpoint")
}

pub(crate) fn listener(gate: &Rc<Told>) -> S2nListener {
    let gate: Rc<dyn Gate> = Rc::clone(gate) as Rc<dyn Gate>;
    endpoint().listen(gate).expect("a listener")
}

pub(crate) fn dialer() -> Dialer {
    Dialer::new(socket()).expect("a dialer")
}

/// Both ends of a connection of `dialer` to `listener`.
pub(crate) async fn connect(
    dialer: &Dialer,
    listener: &mut S2nListener,
    to: &Expected,
) -> (Connection, Connection) {
    let remote = listener.local();
    let (dialed, accepted) = tokio::join!(dialer.connect(remote, to), listener.accept());
    let (dialed, mut accepted) = (dialed.expect("a connection"), accepted.expect("a connection"));
    drop(accepted.permit.take());
    (dialed, accepted)
}

/// Octets go both ways.
pub(crate) async fn echo(dialed: &mut Connection, accepted: &mut Connection) {
    let mut octets = [0; 6];
    dialed.stream.write_all(b"thither").await.expect("it writes");
    accepted.stream.read_exact(&mut octets).await.expect("it reads");
    assert_eq!(&octets, b"thithe");
    accepted.stream.write_all(b"hither").await.expect("it writes");
    dialed.stream.read_exact(&mut octets).await.expect("it reads");
    assert_eq!(&octets, b"hither");
    accepted.stream.read_exact(&mut octets[..1]).await.expect("it reads");
    assert_eq!(&octets[..1], b"r");
}

/// The first datagram of somebody who wants a connection, sent nowhere yet.
pub(crate) async fn first_datagram(to: &Expected) -> Vec<u8> {
    let catcher = socket();
    catcher.set_nonblocking(true).expect("non-blocking");
    let catcher = tokio::net::UdpSocket::from_std(catcher).expect("a socket");
    let remote = catcher.local_addr().expect("an address");
    let dialer = dialer();
    let mut datagram = vec![0; 2048];
    let length = tokio::select! {
        length = catcher.recv(&mut datagram) => length.expect("a datagram"),
        failed = dialer.connect(remote, to) => panic!("nobody answers: {failed:?}"),
    };
    datagram.truncate(length);
    datagram
}
