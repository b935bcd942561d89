//! A gate that does as it is told, and notes what it has seen.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    time::Instant,
};

use holdfast_admission::{AddressProof, Attempt, Hello, Verdict};
use holdfast_transport::{Expected, Failure, Gate, Outcome, Permit, Protocol, Stray};

/// What was known of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) remote: SocketAddr,
    pub(crate) proof: AddressProof,
    pub(crate) can_retry: bool,
    pub(crate) hello: Said,
}

/// [`Hello`], kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Known(Vec<u8>, Option<String>),
    Incomplete,
    Unsupported,
}

/// The verdict on the so-manieth attempt, from 0 on.
type Judge = Box<dyn Fn(&Seen, usize) -> Verdict>;

pub(crate) struct TestGate {
    verdict: Judge,
    expected: Option<Expected>,
    pub(crate) seen: RefCell<Vec<Seen>>,
    pub(crate) failures: RefCell<Vec<Failure>>,
    pub(crate) begun: Cell<usize>,
    pub(crate) strays: RefCell<Vec<Stray>>,
    under_way: Rc<()>,
}

impl TestGate {
    /// The verdict on what was seen as the so-manieth attempt, from 0 on.
    pub(crate) fn new(
        expected: Option<Expected>,
        verdict: impl Fn(&Seen, usize) -> Verdict + 'static,
    ) -> Rc<Self> {
        Rc::new(Self {
            verdict: Box::new(verdict),
            expected,
            seen: RefCell::default(),
            failures: RefCell::default(),
            begun: Cell::new(0),
            strays: RefCell::default(),
            under_way: Rc::default(),
        })
    }

    /// Lets everybody in.
    pub(crate) fn open(expected: Expected) -> Rc<Self> {
        Self::new(Some(expected), |_, _| Verdict::Accept)
    }

    /// Wants a proof of the address first.
    pub(crate) fn wants_proof(expected: Expected) -> Rc<Self> {
        Self::new(Some(expected), |seen, _| match seen.proof {
            AddressProof::None => Verdict::Retry,
            _ => Verdict::Accept,
        })
    }

    pub(crate) fn under_way(&self) -> usize {
        Rc::strong_count(&self.under_way) - 1
    }

    pub(crate) fn proofs(&self) -> Vec<AddressProof> {
        self.seen.borrow().iter().map(|seen| seen.proof).collect()
    }
}

impl Gate for TestGate {
    fn judge(&self, protocol: Protocol, attempt: &mut dyn Attempt, _: Instant) -> Verdict {
        assert_eq!(protocol, Protocol::Quic);
        let hello = match attempt.hello() {
            Hello::Known { alpn, server_name } => Said::Known(alpn.to_vec(), server_name.map(str::to_owned)),
            Hello::Incomplete => Said::Incomplete,
            Hello::Unsupported => Said::Unsupported,
        };
        let (remote, proof, can_retry) = (attempt.remote(), attempt.proof(), attempt.can_retry());
        let seen = Seen { remote, proof, can_retry, hello };
        let mut all = self.seen.borrow_mut();
        let verdict = (self.verdict)(&seen, all.len());
        all.push(seen);
        verdict
    }

    fn expect(&self, _: Protocol, _: SocketAddr) -> Option<Expected> {
        self.expected.clone()
    }

    fn begin(&self, _: Protocol) -> Box<dyn Permit> {
        self.begun.set(self.begun.get() + 1);
        Box::new(UnderWay { _counted: self.under_way.clone() })
    }

    fn stray(&self, _: Protocol, stray: Stray) {
        self.strays.borrow_mut().push(stray);
    }

    fn failed(&self, _: Protocol, _: SocketAddr, failure: &Failure) {
        self.failures.borrow_mut().push(failure.clone());
    }
}

struct UnderWay {
    _counted: Rc<()>,
}

impl Permit for UnderWay {
    fn pass(&self) {}

    fn settle(self: Box<Self>, _: Outcome) {}
}
