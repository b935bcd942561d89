//! Admission at an endpoint of s2n-quic, and what belongs to the handshakes that were let in.

use std::{
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use holdfast_admission::{AddressProof, Attempt, Hello, Load, Verdict};
use s2n_quic::provider::endpoint_limits::{ConnectionAttempt, Limiter, Outcome};

use crate::{Expected, Failure, Gate, Permit, Protocol, attempt::canonical, kept::Kept};

/// Nothing that is locked here can be left half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The gate of an endpoint, as far as the library needs it.
pub(super) struct Door {
    gate: Kept<Rc<dyn Gate>>,
    handshakes: AtomicUsize,
    connections: AtomicUsize,
    /// Who was let in last. The library makes the state of an attempt at once after it was let in, or never.
    admitted: Mutex<Option<Admitted>>,
}

/// Who was let in.
struct Admitted {
    remote: SocketAddr,
    expected: Expected,
    /// Until there is a state that holds it.
    permit: Option<Kept<Box<dyn Permit>>>,
}

impl Door {
    pub(super) fn new(gate: Rc<dyn Gate>) -> Arc<Self> {
        let (handshakes, connections) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { gate: Kept::new(gate), handshakes, connections, admitted: Mutex::default() })
    }

    /// What becomes of an attempt: one of ignore, refuse, retry and accept.
    pub(super) fn judge(&self, remote: SocketAddr, proof: AddressProof) -> Verdict {
        let remote = canonical(remote);
        let judged = self.gate.with(|gate| {
            let mut attempt = Initial { remote, proof, load: self.load() };
            match gate.judge(Protocol::QuicS2n, &mut attempt, Instant::now()) {
                Verdict::Accept | Verdict::Wait(_) | Verdict::Next => {
                    let permit = gate.begin(Protocol::QuicS2n);
                    permit.pass();
                    match gate.expect(Protocol::QuicS2n, remote) {
                        Some(expected) if expected.tls.is_some() => {
                            let permit = Some(Kept::new(permit));
                            let earlier = lock(&self.admitted).replace(Admitted { remote, expected, permit });
                            // Nothing is locked while the gate counts that nothing has come of it.
                            drop(earlier);
                            Verdict::Accept
                        }
                        _ => Verdict::Refuse("nobody is expected from there"),
                    }
                }
                verdict => verdict,
            }
        });
        // On another thread than ours there is no gate: then nobody comes in.
        judged.unwrap_or(Verdict::Ignore)
    }

    /// Who is expected from where an attempt was just let in.
    pub(super) fn admitted(&self, remote: SocketAddr) -> Option<Expected> {
        let admitted = lock(&self.admitted);
        let admitted = admitted.as_ref()?;
        (admitted.remote == canonical(remote)).then(|| admitted.expected.clone())
    }

    /// A handshake has begun, with who was let in last.
    pub(super) fn begin(&self) -> Option<Kept<Box<dyn Permit>>> {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        lock(&self.admitted).as_mut()?.permit.take()
    }

    /// No handshake has begun.
    pub(super) fn never(&self) {
        let permit = lock(&self.admitted).as_mut().and_then(|admitted| admitted.permit.take());
        drop(permit);
    }

    /// A handshake has become a connection that was taken.
    pub(super) fn established(&self) {
        self.handshakes.fetch_sub(1, Ordering::Relaxed);
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A handshake, or the connection that it has become, is gone.
    pub(super) fn gone(&self, established: bool) {
        let counted = if established { &self.connections } else { &self.handshakes };
        counted.fetch_sub(1, Ordering::Relaxed);
    }

    /// A handshake has failed.
    pub(super) fn failed(&self, remote: SocketAddr, failure: &Failure) {
        self.gate.with(|gate| gate.failed(Protocol::QuicS2n, remote, failure));
    }

    fn load(&self) -> Load {
        Load {
            handshakes: self.handshakes.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}

/// All that the library says of an attempt: no octet of it.
struct Initial {
    remote: SocketAddr,
    proof: AddressProof,
    load: Load,
}

impl Attempt for Initial {
    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn local(&self) -> Option<IpAddr> {
        None
    }

    fn proof(&self) -> AddressProof {
        self.proof
    }

    fn can_retry(&self) -> bool {
        // RFC 9000 section 8.1.2: one Retry, no more.
        self.proof == AddressProof::None
    }

    fn hello(&mut self) -> Hello<'_> {
        Hello::Unsupported
    }

    fn load(&self) -> Load {
        self.load
    }
}

/// Asked for each Initial of a new connection that has no token.
pub(super) struct Unproven(pub(super) Arc<Door>);

impl Limiter for Unproven {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        match self.0.judge(SocketAddr::from(&attempt.remote_address), AddressProof::None) {
            Verdict::Accept => Outcome::allow(),
            Verdict::Retry => Outcome::retry(),
            Verdict::Refuse(_) => Outcome::close(),
            Verdict::Ignore | Verdict::Wait(_) | Verdict::Next => Outcome::drop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, thread};

    use super::*;

    /// Says what it is told to, and to whom.
    #[derive(Default)]
    struct Says {
        verdicts: RefCell<Vec<Verdict>>,
        asked: RefCell<Vec<(SocketAddr, AddressProof, bool)>>,
    }

    impl Gate for Says {
        fn judge(&self, _: Protocol, attempt: &mut dyn Attempt, _: Instant) -> Verdict {
            self.asked.borrow_mut().push((attempt.remote(), attempt.proof(), attempt.can_retry()));
            assert_eq!(attempt.hello(), Hello::Unsupported);
            self.verdicts.borrow_mut().pop().expect("one more verdict")
        }

        fn expect(&self, _: Protocol, _: SocketAddr) -> Option<Expected> {
            None
        }

        fn begin(&self, _: Protocol) -> Box<dyn Permit> {
            Box::new(())
        }

        fn failed(&self, _: Protocol, _: SocketAddr, _: &Failure) {}
    }

    fn remote() -> SocketAddr {
        "[::ffff:192.0.2.1]:4242".parse().expect("an address")
    }

    #[test]
    fn an_attempt_is_judged_by_its_own_address() {
        let gate = Rc::new(Says::default());
        gate.verdicts.borrow_mut().extend([Verdict::Ignore, Verdict::Retry]);
        let door = Door::new(gate.clone());
        assert_eq!(door.judge(remote(), AddressProof::None), Verdict::Retry);
        assert_eq!(door.judge(remote(), AddressProof::Token), Verdict::Ignore);
        let own = "192.0.2.1:4242".parse().expect("an address");
        let asked = [(own, AddressProof::None, true), (own, AddressProof::Token, false)];
        assert_eq!(*gate.asked.borrow(), asked);
    }

    #[test]
    fn who_is_not_expected_is_refused() {
        let gate = Rc::new(Says::default());
        gate.verdicts.borrow_mut().push(Verdict::Accept);
        let door = Door::new(gate);
        assert_eq!(
            door.judge(remote(), AddressProof::None),
            Verdict::Refuse("nobody is expected from there")
        );
        assert!(door.admitted(remote()).is_none());
    }

    #[test]
    fn nobody_comes_in_on_another_thread() {
        let gate = Rc::new(Says::default());
        let door = Door::new(gate.clone());
        let elsewhere = Arc::clone(&door);
        let judged = thread::spawn(move || elsewhere.judge(remote(), AddressProof::None)).join();
        assert_eq!(judged.expect("no panic"), Verdict::Ignore);
        assert!(gate.asked.borrow().is_empty());
    }

    #[test]
    fn the_gate_is_told_what_is_under_way() {
        let door = Door::new(Rc::new(Says::default()));
        let begun: Vec<_> = (0..3).map(|_| door.begin()).collect();
        assert!(begun.iter().all(Option::is_none), "nobody was let in");
        door.established();
        assert_eq!(door.load(), Load { handshakes: 2, connections: 1 });
        door.gone(true);
        door.gone(false);
        assert_eq!(door.load(), Load { handshakes: 1, connections: 0 });
    }
}
