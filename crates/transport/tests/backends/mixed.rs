//! TCP and TLS come to one port: who may use which is told apart, and what TLS says first is looked at before any state.

use std::{
    cell::RefCell,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
    thread,
};

use holdfast_admission::{Hello, Verdict};
use holdfast_transport::{Connection, Expected, Failure, HANDSHAKE_TIME, Protocol};
use tokio::io::AsyncReadExt;

use crate::tests::backends::{
    backend::{Backend, Tls},
    door::{Door, TestGate, alpn_of},
    people::{Router, greet, hear, routers},
    run,
};

/// What was read of a ClientHello.
type Seen = Rc<RefCell<Vec<Option<Vec<u8>>>>>;

/// A door for a peer that may use these; its gate waits for the first flight, and refuses whoever offers something else.
fn open(over: &[Protocol], r1: &Router, r2: &Router) -> (Door, Seen) {
    let gate = TestGate::expecting(r2.expects(r1));
    gate.over.replace(over.to_vec());
    let seen = Seen::default();
    let saw = seen.clone();
    gate.judge_by(move |attempt| {
        if attempt.awaits_hello() {
            assert_eq!(attempt.hello(), Hello::Unsupported);
            return Verdict::Wait("looks");
        }
        let names = alpn_of(attempt);
        saw.borrow_mut().push(names.clone());
        match names {
            Some(names) if names != b"\x05botls" => Verdict::Refuse("it speaks something else"),
            Some(_) | None => Verdict::Accept,
        }
    });
    (Door::open_for(&Tls, gate, HANDSHAKE_TIME), seen)
}

fn connect(door: &Door) -> TcpStream {
    let stream = TcpStream::connect(door.local).expect("connect");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    stream
}

/// What somebody sends first who dials over TLS.
async fn client_hello(from: &Router, to: &Router) -> Vec<u8> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let at: SocketAddr = listener.local_addr().expect("an address");
    let read = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut record = vec![0; 5];
        stream.read_exact(&mut record).expect("a record");
        record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        stream.read_exact(&mut record[5..]).expect("all of it");
        record
    });
    Tls.dial(at, &from.expects(to)).await.expect_err("nobody answers");
    read.join().expect("no panic")
}

/// How it ends for whoever has come.
fn ends(mut stream: TcpStream) -> Result<usize, ErrorKind> {
    stream.set_nonblocking(false).expect("it blocks");
    stream.read(&mut [0; 256]).map_err(|error| error.kind())
}

#[test]
fn over_one_port_each_comes_as_it_may() {
    run(async {
        let (r1, r2) = routers();
        let (mut door, seen) = open(&[Protocol::Tls, Protocol::Tcp], &r1, &r2);
        let mut dialed = Tls.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
        let mut accepted = door.next().await;
        assert_eq!(accepted.identity.protocol, Protocol::Tls);
        greet(&mut dialed, &mut accepted).await;
        // Who speaks BGP is known by its first octet, and nothing of it is lost.
        let mut speaks = connect(&door);
        speaks.write_all(&[0xff]).expect("write");
        let mut accepted: Connection = door.next().await;
        assert_eq!((accepted.identity.protocol, &*accepted.identity.proof), (Protocol::Tcp, ""));
        hear(&mut accepted, &[0xff]).await;
        // Who waits for our OPEN is not kept waiting for ever. The time passes at once when nobody has anything to do.
        tokio::time::pause();
        let waits = connect(&door);
        assert_eq!(door.next().await.identity.remote, waits.local_addr().expect("an address"));
        assert_eq!(*seen.borrow(), [Some(b"\x05botls".to_vec()), None, None]);
        assert_eq!(door.gate.resumed.borrow().len(), 3);
        assert_eq!(door.gate.under_way().get(), 0);
    });
}

#[test]
fn who_may_use_one_only_is_held_to_it() {
    run(async {
        let (r1, r2) = routers();
        // Nobody waits for anything of who may use TCP only, and TLS is nothing but octets then.
        let (mut door, seen) = open(&[Protocol::Tcp], &r1, &r2);
        let silent = connect(&door);
        assert_eq!(door.next().await.identity.remote, silent.local_addr().expect("an address"));
        let hello = client_hello(&r1, &r2).await;
        let mut speaks = connect(&door);
        speaks.write_all(&hello).expect("write");
        let mut accepted = door.next().await;
        assert_eq!(accepted.identity.protocol, Protocol::Tcp);
        hear(&mut accepted, &hello).await;
        assert_eq!((&*seen.borrow(), door.gate.resumed.borrow().len()), (&vec![None, None], 0));

        let (door, _) = open(&[Protocol::Tls], &r1, &r2);
        let mut speaks = connect(&door);
        speaks.write_all(&[0xff; 19]).expect("write");
        let Failure::Refused(why) = &door.gate.failures(1).await[0] else { panic!("it speaks no TLS") };
        assert!(why.contains("does it speak plain TCP?"), "{why}");
        let _silent = connect(&door);
        tokio::time::pause();
        assert_eq!(door.gate.failures(2).await[1], Failure::TimedOut);
        assert!(door.is_quiet());
    });
}

#[test]
fn another_protocol_is_refused_before_any_state() {
    run(async {
        let (r1, r2) = routers();
        let (door, seen) = open(&[Protocol::Tls], &r1, &r2);
        let mut hello = client_hello(&r1, &r2).await;
        let at = hello.windows(5).position(|octets| octets == b"botls").expect("ALPN");
        hello[at..at + 5].copy_from_slice(b"h2c-1");
        let mut stream = connect(&door);
        stream.write_all(&hello).expect("write");
        door.gate.until(|gate| gate.under_way().get() == 0 && gate.resumed.borrow().len() == 1).await;
        assert_eq!(ends(stream), Err(ErrorKind::ConnectionReset), "not even an alert");
        assert_eq!(*seen.borrow(), [Some(b"\x05h2c-1".to_vec())]);
        assert!(door.is_quiet() && door.gate.failures(0).await.is_empty());
    });
}

#[test]
fn a_client_hello_is_waited_for_in_whatever_pieces_it_comes() {
    run(async {
        let (r1, r2) = routers();
        let (door, seen) = open(&[Protocol::Tls], &r1, &r2);
        let hello = client_hello(&r1, &r2).await;
        for (count, size) in [1, 3, hello.len() / 2 + 1].into_iter().enumerate() {
            let mut stream = connect(&door);
            for piece in hello.chunks(size) {
                assert_eq!(seen.borrow().len(), count, "it is not judged before it is here");
                stream.write_all(piece).expect("write");
                tokio::task::yield_now().await;
            }
            door.gate.until(|gate| gate.resumed.borrow().len() == count + 1).await;
            assert_eq!(seen.borrow().last().expect("one"), &Some(b"\x05botls".to_vec()));
            // It gets an answer: TLS has begun.
            assert!(matches!(ends(stream), Ok(1..)));
        }
    });
}

#[test]
fn who_does_not_go_on_is_judged_by_what_is_here_and_ends_in_time() {
    run(async {
        let (r1, r2) = routers();
        let (mut door, seen) = open(&[Protocol::Tls, Protocol::Tcp], &r1, &r2);
        let hello = client_hello(&r1, &r2).await;
        let mut slow = connect(&door);
        slow.write_all(&hello[..hello.len() - 1]).expect("write");
        door.gate.until(|gate| gate.under_way().get() == 1).await;
        tokio::time::pause();
        // Not seen: no reason to refuse. TLS has the rest of the time.
        assert_eq!(door.gate.failures(1).await, [Failure::TimedOut]);
        assert_eq!(*seen.borrow(), [None]);
        tokio::time::resume();
        let mut dialed = Tls.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
        greet(&mut dialed, &mut door.next().await).await;
    });
}

#[test]
fn silent_connections_are_as_many_as_the_gate_lets_and_go_in_time() {
    const LET: usize = 100;
    run(async {
        let (r1, r2) = routers();
        let (mut door, _) = open(&[Protocol::Tls], &r1, &r2);
        door.gate.judge_by(|attempt| match attempt.load().handshakes {
            LET.. => Verdict::Refuse("there are enough"),
            // It is not one of the others itself.
            _ if attempt.awaits_hello() => Verdict::Wait("looks"),
            _ => Verdict::Accept,
        });
        let mut silent = Vec::new();
        for count in 1..=2 * LET {
            silent.push(connect(&door));
            door.gate.until(|gate| gate.judged() == count).await;
        }
        assert_eq!((door.gate.under_way().get(), door.gate.most_under_way.get()), (LET, LET));
        tokio::time::pause();
        assert_eq!(door.gate.failures(LET).await, vec![Failure::TimedOut; LET]);
        tokio::time::resume();
        let refused = silent.into_iter().filter_map(|stream| ends(stream).err()).count();
        assert!(refused >= LET, "{refused} were reset");
        let mut dialed = Tls.dial(door.local, &r1.expects(&r2)).await.expect("it is let in");
        greet(&mut dialed, &mut door.next().await).await;
        assert_eq!(door.gate.most_under_way.get(), LET);
    });
}

#[test]
fn what_has_passed_a_router_is_not_heard_where_gtsm_is_on() {
    run(async {
        let (r1, r2) = routers();
        let (mut door, _) = open(&[Protocol::Tcp], &r1, &r2);
        let hold =
            door.gate.expected.borrow().clone().map(|expected| Expected { ttl_security: true, ..expected });
        door.gate.expected.replace(hold);
        let mut far = connect(&door);
        let mut from_far = door.next().await;
        far.write_all(b"far").expect("write");
        let mut near = connect(&door);
        let mut from_near = door.next().await;
        near.set_ttl(255).expect("IP_TTL");
        near.write_all(b"near").expect("write");
        hear(&mut from_near, b"near").await;
        // What was sent before that would be here by now.
        let mut heard = [0; 3];
        let reading = pin!(from_far.stream.read(&mut heard));
        assert!(poll_once(reading).is_pending(), "it has passed a router");
    });
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
