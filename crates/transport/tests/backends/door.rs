//! A gate that does as it is told and remembers, and a listener behind it that is always taken from.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_admission::{AddressProof, Attempt, Hello, Verdict};
use holdfast_transport::{
    Connection, Expected, Failure, Gate, HANDSHAKE_TIME, Outcome, Permit, Protocol, Stray,
};
use tokio::{
    sync::{Notify, mpsc},
    task::{JoinHandle, spawn_local},
};

use crate::tests::backends::backend::Backend;

type Judge = Box<dyn Fn(&mut dyn Attempt) -> Verdict>;

/// What a gate was asked and told.
pub(crate) struct TestGate {
    judge: RefCell<Judge>,
    /// Over what somebody is expected.
    pub(crate) over: RefCell<Vec<Protocol>>,
    /// Stages that had somebody wait, and are asked again.
    pub(crate) resumed: RefCell<Vec<&'static str>>,
    pub(crate) expected: RefCell<Option<Expected>>,
    /// What each attempt had to prove its address.
    pub(crate) proofs: RefCell<Vec<AddressProof>>,
    under_way: Rc<Cell<usize>>,
    pub(crate) most_under_way: Cell<usize>,
    failures: RefCell<Vec<Failure>>,
    /// What came that is no attempt, and whether who speaks another version of QUIC is told ours.
    pub(crate) strays: RefCell<Vec<Stray>>,
    pub(crate) tells_version: Cell<bool>,
    changed: Rc<Notify>,
}

impl TestGate {
    /// Lets everybody in, and takes them for this one.
    pub(crate) fn expecting(expected: Expected) -> Rc<Self> {
        Rc::new(Self {
            judge: RefCell::new(Box::new(|_| Verdict::Accept)),
            over: RefCell::default(),
            resumed: RefCell::default(),
            expected: RefCell::new(Some(expected)),
            proofs: RefCell::default(),
            under_way: Rc::default(),
            most_under_way: Cell::new(0),
            failures: RefCell::default(),
            strays: RefCell::default(),
            tells_version: Cell::new(false),
            changed: Rc::default(),
        })
    }

    /// Decides like this from now on.
    pub(crate) fn judge_by(&self, judge: impl Fn(&mut dyn Attempt) -> Verdict + 'static) {
        *self.judge.borrow_mut() = Box::new(judge);
    }

    /// Decides so from now on.
    pub(crate) fn say(&self, verdict: Verdict) {
        self.judge_by(move |_| verdict);
    }

    pub(crate) fn judged(&self) -> usize {
        self.proofs.borrow().len()
    }

    /// Handshakes that have begun and have not ended.
    pub(crate) fn under_way(&self) -> Rc<Cell<usize>> {
        self.under_way.clone()
    }

    /// Waits until this holds.
    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }

    /// Waits for so many handshakes to fail.
    pub(crate) async fn failures(&self, count: usize) -> Vec<Failure> {
        self.until(|gate| gate.failures.borrow().len() >= count).await;
        self.failures.borrow().clone()
    }
}

impl Gate for TestGate {
    fn judge(&self, _: Protocol, attempt: &mut dyn Attempt, _: Instant) -> Verdict {
        self.proofs.borrow_mut().push(attempt.proof());
        let verdict = (self.judge.borrow())(attempt);
        self.changed.notify_waiters();
        verdict
    }

    fn resume(
        &self,
        protocol: Protocol,
        stage: &'static str,
        attempt: &mut dyn Attempt,
        now: Instant,
    ) -> Verdict {
        self.resumed.borrow_mut().push(stage);
        self.judge(protocol, attempt, now)
    }

    fn expect(&self, protocol: Protocol, _: SocketAddr) -> Option<Expected> {
        self.expected.borrow().clone().filter(|_| self.over.borrow().contains(&protocol))
    }

    fn begin(&self, _: Protocol) -> Box<dyn Permit> {
        self.under_way.set(self.under_way.get() + 1);
        self.most_under_way.set(self.most_under_way.get().max(self.under_way.get()));
        self.changed.notify_waiters();
        Box::new(UnderWay(self.under_way.clone(), self.changed.clone()))
    }

    fn stray(&self, _: Protocol, stray: Stray) {
        self.strays.borrow_mut().push(stray);
        self.changed.notify_waiters();
    }

    fn tells_version(&self, _: Protocol, attempt: &mut dyn Attempt, _: Instant) -> bool {
        assert_eq!((attempt.proof(), attempt.can_retry()), (AddressProof::None, false));
        self.tells_version.get()
    }

    fn failed(&self, _: Protocol, _: SocketAddr, failure: &Failure) {
        self.failures.borrow_mut().push(failure.clone());
        self.changed.notify_waiters();
    }
}

struct UnderWay(Rc<Cell<usize>>, Rc<Notify>);

impl Permit for UnderWay {
    fn pass(&self) {}

    fn settle(self: Box<Self>, _: Outcome) {}
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
        self.1.notify_waiters();
    }
}

/// A listener whose connections are taken as they come.
pub(crate) struct Door {
    pub(crate) gate: Rc<TestGate>,
    pub(crate) local: SocketAddr,
    connections: mpsc::UnboundedReceiver<Connection>,
    task: JoinHandle<()>,
}

impl Door {
    pub(crate) fn open(backend: &dyn Backend, gate: Rc<TestGate>) -> Self {
        Self::open_for(backend, gate, HANDSHAKE_TIME)
    }

    /// With another time for handshakes.
    pub(crate) fn open_for(backend: &dyn Backend, gate: Rc<TestGate>, handshake: Duration) -> Self {
        if gate.over.borrow().is_empty() {
            gate.over.borrow_mut().push(backend.protocol());
        }
        let mut listener = backend.listen(gate.clone(), handshake);
        let local = listener.local();
        let (sender, connections) = mpsc::unbounded_channel();
        let task = spawn_local(async move {
            while let Ok(mut connection) = listener.accept().await {
                connection.permit.take().expect("it was let in").settle(Outcome::LetIn);
                if sender.send(connection).is_err() {
                    return;
                }
            }
        });
        Self { gate, local, connections, task }
    }

    /// The next one who was let in and has proven who it is.
    pub(crate) async fn next(&mut self) -> Connection {
        self.connections.recv().await.expect("the listener listens")
    }

    /// Listens no more.
    pub(crate) async fn close(mut self) {
        self.task.abort();
        // It was aborted: that is its end.
        let _ = (&mut self.task).await;
    }

    /// Nobody was let in.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connections.is_empty()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Protocols of a first flight that could be read.
pub(crate) fn alpn_of(attempt: &mut dyn Attempt) -> Option<Vec<u8>> {
    match attempt.hello() {
        Hello::Known { alpn, .. } => Some(alpn.to_vec()),
        Hello::Incomplete | Hello::Unsupported => None,
    }
}
