//! Who is let in: by the gate before anything, and by what they prove.

use std::rc::Rc;

use holdfast_admission::{AddressProof, Verdict};
use holdfast_transport::{Expected, Failure, Protocol};
use tokio::io::AsyncReadExt;

use crate::tests::backends::{
    backend::Backend,
    door::{Door, TestGate, alpn_of},
    for_every_backend,
    people::{Pair, Router, greet, routers},
};

for_every_backend! {
    both_know_who_is_there,
    a_dialer_with_another_key_is_refused_and_both_know_why,
    a_listener_with_another_key_is_refused_and_both_know_why,
    whoever_is_refused_is_told,
    whoever_is_ignored_hears_nothing,
    an_address_is_proven_first_where_that_can_be_asked_for,
    nobody_is_expected_from_there,
    who_gives_up_is_told_from_who_fails,
    the_first_flight_is_looked_at_where_it_can_be,
    nobody_listens_there,
}

async fn both_know_who_is_there(backend: &dyn Backend) {
    let (r1, r2) = routers();
    let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    let dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    let accepted = door.next().await;
    assert_eq!((&*dialed.identity.peer, &*accepted.identity.peer), ("r2", "r1"));
    for (connection, other) in [(&dialed, &r2), (&accepted, &r1)] {
        let identity = &connection.identity;
        assert_eq!(identity.protocol, backend.protocol());
        if backend.abilities().proves {
            assert!(identity.proof.contains(&other.fingerprint()), "{}", identity.proof);
        } else {
            assert_eq!(identity.proof, "");
        }
    }
    assert_eq!(dialed.identity.remote, door.local);
    assert_eq!(accepted.identity.local, door.local);
    assert_eq!(accepted.identity.remote, dialed.identity.local);
}

/// Why there is no connection: not even one, or one that ends before the first octet.
async fn refusal(backend: &dyn Backend, door: &Door, expected: &Expected) -> Failure {
    let mut connection = match backend.dial(door.local, expected).await {
        Ok(connection) => connection,
        Err(failure) => return failure,
    };
    assert!(!backend.abilities().judged_when_dialed, "it was let in");
    match connection.stream.read(&mut [0]).await {
        Ok(0) => Failure::Refused("it ends".to_owned()),
        Ok(_) => panic!("somebody has let it in"),
        Err(error) => Failure::Refused(error.to_string()),
    }
}

async fn a_dialer_with_another_key_is_refused_and_both_know_why(backend: &dyn Backend) {
    if !backend.abilities().proves {
        return proves_nothing(backend).await;
    }
    let (r1, r2) = routers();
    steady(backend);
    let door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    let failure = refusal(backend, &door, &Router::new("r1").expects(&r2)).await;
    assert!(failure.to_string().contains("the peer refuses our certificate"), "there: {failure}");
    let Failure::Untrusted(text) = &door.gate.failures(1).await[0] else { panic!("it is not believed") };
    assert!(text.contains(&r1.fingerprint()), "here: {text}");
    assert!(door.is_quiet());
    door.gate.until(|gate| gate.under_way().get() == 0).await;
}

async fn a_listener_with_another_key_is_refused_and_both_know_why(backend: &dyn Backend) {
    if !backend.abilities().proves {
        return proves_nothing(backend).await;
    }
    let (r1, r2) = routers();
    steady(backend);
    let door = Door::open(backend, TestGate::expecting(Router::new("r2").expects(&r1)));
    let dialed = backend.dial(door.local, &r1.expects(&r2)).await;
    let Failure::Untrusted(text) = dialed.expect_err("it is not r2") else { panic!("it is not believed") };
    assert!(text.contains(&r2.fingerprint()), "there: {text}");
    let failure = &door.gate.failures(1).await[0];
    assert!(failure.to_string().contains("the peer refuses our certificate"), "here: {failure}");
    assert!(door.is_quiet());
}

/// s2n-quic does not send the close of a handshake that is older than three probe timeouts, which are a few milliseconds
/// here: a machine that is busy must not decide what the other end hears. Time stands still while there is something to do.
fn steady(backend: &dyn Backend) {
    if backend.protocol() == Protocol::QuicS2n {
        tokio::time::pause();
    }
}

/// Whoever comes is taken for the one who is expected from its address, whatever keys there are.
async fn proves_nothing(backend: &dyn Backend) {
    let (r1, r2) = routers();
    let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    let mut dialed = backend.dial(door.local, &Router::new("r3").expects(&r2)).await.expect("it is let in");
    let mut accepted = door.next().await;
    assert_eq!((&*accepted.identity.peer, &*accepted.identity.proof), ("r1", ""));
    greet(&mut dialed, &mut accepted).await;
}

async fn whoever_is_refused_is_told(backend: &dyn Backend) {
    let (r1, r2) = routers();
    let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    door.gate.say(Verdict::Refuse("enough of you"));
    let failure = refusal(backend, &door, &r1.expects(&r2)).await;
    assert!(matches!(failure, Failure::Refused(_)), "{failure:?}");
    if backend.protocol() == Protocol::Quic {
        assert!(failure.to_string().contains("CONNECTION_REFUSED"), "{failure}");
    }
    assert_eq!(door.gate.judged(), 1);
    assert_eq!(door.gate.most_under_way.get(), 0, "there is no state of it");
    // It may come again.
    door.gate.say(Verdict::Accept);
    let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    greet(&mut dialed, &mut door.next().await).await;
}

async fn whoever_is_ignored_hears_nothing(backend: &dyn Backend) {
    let (r1, r2) = routers();
    let door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    door.gate.say(Verdict::Ignore);
    if backend.abilities().ignores {
        // Ten seconds pass at once when nobody has anything to do.
        tokio::time::pause();
        let dialed = backend.dial(door.local, &r1.expects(&r2)).await;
        assert_eq!(dialed.expect_err("nobody answers"), Failure::TimedOut);
    } else {
        // TCP's handshake is over: it is too late for that.
        let failure = refusal(backend, &door, &r1.expects(&r2)).await;
        assert!(matches!(failure, Failure::Refused(_)), "{failure:?}");
    }
    assert!(door.gate.judged() >= 1);
    assert_eq!(door.gate.most_under_way.get(), 0, "there is no state of it");
    assert!(door.is_quiet());
}

async fn an_address_is_proven_first_where_that_can_be_asked_for(backend: &dyn Backend) {
    let (r1, r2) = routers();
    let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    door.gate.judge_by(|attempt| match attempt.proof() {
        AddressProof::None if attempt.can_retry() => Verdict::Retry,
        AddressProof::None => Verdict::Refuse("it can prove nothing"),
        AddressProof::Token | AddressProof::Handshake => Verdict::Accept,
    });
    let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    greet(&mut dialed, &mut door.next().await).await;
    let proofs = door.gate.proofs.borrow().clone();
    if backend.abilities().retries {
        assert_eq!(proofs[0], AddressProof::None);
        // s2n-quic does not ask a second time.
        assert!(proofs[1..].iter().all(|&proof| proof == AddressProof::Token), "{proofs:?}");
    } else {
        assert_eq!(proofs, [AddressProof::Handshake]);
    }
}

async fn nobody_is_expected_from_there(backend: &dyn Backend) {
    let (r1, r2) = routers();
    let door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    door.gate.expected.take();
    let failure = refusal(backend, &door, &r1.expects(&r2)).await;
    assert!(matches!(failure, Failure::Refused(_)), "{failure:?}");
    assert!(door.is_quiet());
}

/// Of two who dial each other, one gives up when it has a connection.
async fn who_gives_up_is_told_from_who_fails(backend: &dyn Backend) {
    let (r1, r2) = routers();
    let door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    if !backend.abilities().proves {
        // There is no handshake that could be given up.
        let to_r2 = r1.expects(&r2);
        let begun = door.gate.clone();
        tokio::select! {
            biased;
            () = begun.until(|gate| gate.most_under_way.get() > 0) => {}
            dialed = backend.dial(door.local, &to_r2) => drop(dialed.expect("it is let in")),
        }
        return assert!(door.gate.failures(0).await.is_empty());
    }
    let to_r2 = r1.expects(&r2);
    tokio::select! {
        biased;
        () = door.gate.until(|gate| gate.under_way().get() == 1) => {}
        dialed = backend.dial(door.local, &to_r2) => panic!("it is done before the other end has begun: {dialed:?}"),
    }
    door.gate.until(|gate| gate.under_way().get() == 0).await;
    let failures = door.gate.failures(1).await;
    // The end that s2n-quic sends of its first flight alone is shorter than others may take notice of (RFC 9000 section
    // 14.1): they wait in vain.
    let is_fine = |failure: &Failure| match failure {
        Failure::GivenUp(_) => true,
        Failure::TimedOut => backend.protocol() == Protocol::QuicS2n,
        _ => false,
    };
    assert!(failures.iter().all(is_fine), "{failures:?}");
    assert!(door.is_quiet());
}

async fn the_first_flight_is_looked_at_where_it_can_be(backend: &dyn Backend) {
    let (r1, r2) = routers();
    let mut door = Door::open(backend, TestGate::expecting(r2.expects(&r1)));
    let seen = Rc::new(std::cell::RefCell::new(None));
    let saw = seen.clone();
    door.gate.judge_by(move |attempt| {
        if attempt.awaits_hello() {
            return Verdict::Wait("looks");
        }
        saw.replace(alpn_of(attempt));
        Verdict::Accept
    });
    let mut dialed = backend.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
    greet(&mut dialed, &mut door.next().await).await;
    let names = seen.borrow().clone();
    match backend.protocol() {
        Protocol::Tls => assert_eq!(names.as_deref(), Some(&b"\x05botls"[..])),
        Protocol::Quic => assert_eq!(names.as_deref(), Some(&b"\x04qbgp"[..])),
        Protocol::Tcp | Protocol::QuicS2n | Protocol::Memory => assert_eq!(names, None),
    }
}

async fn nobody_listens_there(backend: &dyn Backend) {
    let Pair { dialed, accepted, door } = Pair::new(backend).await;
    let gone = door.local;
    drop((dialed, accepted));
    door.close().await;
    let (r1, r2) = routers();
    if backend.abilities().datagrams {
        tokio::time::pause();
    }
    let failure = backend.dial(gone, &r1.expects(&r2)).await.expect_err("nobody is there");
    if backend.abilities().datagrams {
        assert!(
            matches!(failure, Failure::TimedOut | Failure::Unreachable(_) | Failure::Refused(_)),
            "{failure:?}"
        );
    } else {
        assert!(matches!(failure, Failure::Unreachable(_)), "{failure:?}");
    }
}
