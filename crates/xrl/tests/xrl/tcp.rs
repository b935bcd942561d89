//! The TCP family: who is let in, what travels, what is refused.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;

use holdfast_xrl::finder_api::v1::{FamiliesRequest, RegisterRequest, ResolveRequest};
use holdfast_xrl::{
    Client, Dialer, ErrorKind, Finder, Header, Kind, MOST_OF_CLIENT, MOST_UNPROVEN, Node, PeerIdentity,
    Resolver, Secret, TcpClient, XrlError, text,
};

use crate::tests::xrl::exercise::*;

fn secret(octet: u8) -> Secret {
    Secret::new([octet; 16]).expect("long enough")
}

fn client(name: &str, role: &str, octet: u8) -> TcpClient {
    TcpClient { name: name.to_owned(), role: role.to_owned(), secret: secret(octet) }
}

/// A router that alice (an operator) and toy (a protocol) may reach over TCP.
struct Router {
    finder: Finder,
    node: Node,
    exerciser: Rc<Exerciser>,
    address: SocketAddr,
}

impl Router {
    async fn start() -> Self {
        let finder = Finder::new();
        let (node, exerciser) = node();
        let (near, far) = sockets();
        finder.attach(far, PeerIdentity::new("exercise").pid(7)).expect("attached");
        node.join(near).await.expect("joined");
        finder.set_tcp_clients(vec![client("alice", "operator", 1), client("toy", "protocol", 2)]);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let listening = finder.clone();
        tokio::task::spawn_local(async move { listening.listen(listener).await });
        Self { finder, node, exerciser, address }
    }

    async fn dial(&self, name: &str, octet: u8) -> Result<Resolver, XrlError> {
        Resolver::dial(Dialer::new(&self.address.to_string(), name, secret(octet))).await
    }

    async fn alice(&self) -> Resolver {
        self.dial("alice", 1).await.expect("let in")
    }

    /// A connection that says nothing yet.
    fn raw(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("connected")
    }
}

/// What a router says before it closes.
async fn last_words(mut stream: TcpStream) -> String {
    let words = tokio::task::spawn_blocking(move || {
        let mut octets = Vec::new();
        // A reset is an end as well; what came before it counts.
        let _ = stream.read_to_end(&mut octets);
        String::from_utf8_lossy(&octets).into_owned()
    });
    words.await.expect("no panic")
}

#[test]
fn a_client_with_its_key_calls_as_its_role() {
    run(async {
        let router = Router::start().await;
        let alice = router.alice().await;
        let exercise: ExerciseClient = alice.client("exercise").await.expect("resolved");
        assert_eq!(exercise.echo(note(7)).await.expect("an echo").number, 7);
        let mut counted = exercise.count(note(3));
        let mut last = None;
        while let Some(item) = counted.next().await.expect("no error") {
            last = Some(item.number);
        }
        assert_eq!(last, Some(2));
        let error = exercise.secret(note(1)).await.expect_err("another role's");
        assert_eq!(error.kind(), ErrorKind::Denied);
    });
}

#[test]
fn a_wrong_key_or_name_is_refused_and_nothing_stays() {
    run(async {
        let router = Router::start().await;
        let before = router.finder.channels();
        for (name, octet) in [("alice", 2), ("alice", 9), ("toy", 1), ("bob", 1), ("", 1)] {
            let error = router.dial(name, octet).await.err().expect("refused");
            assert_eq!(error.to_string(), "denied: unknown client, or not its key");
        }
        assert_eq!(router.finder.channels(), before);
    });
}

#[test]
fn a_router_that_does_not_know_the_key_is_no_router() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address").to_string();
        let liar = tokio::task::spawn_blocking(move || {
            let mut stream = listener.into_std().expect("a socket").accept_blocking();
            let hello = |body: &[u8]| {
                let header = Header { call: 0, method: 0, kind: Kind::Hello, fds: 0 };
                [&header.encode(body.len() as u32)[..], body].concat()
            };
            stream.write_all(&hello(&[1; 32])).expect("written");
            stream.read_exact(&mut [0; 16 + 32 + 6 + 1 + 32]).expect("a hello");
            stream.write_all(&hello(&[2; 32])).expect("written");
        });
        let error = Resolver::dial(Dialer::new(&address, "alice", secret(1))).await.err().expect("a liar");
        assert!(error.to_string().contains("does not know the key: it is not the router"), "{error}");
        liar.await.expect("no panic");
    });
}

trait AcceptBlocking {
    fn accept_blocking(self) -> TcpStream;
}

impl AcceptBlocking for std::net::TcpListener {
    fn accept_blocking(self) -> TcpStream {
        self.set_nonblocking(false).expect("blocking");
        self.accept().expect("accepted").0
    }
}

#[test]
fn what_is_no_hello_is_refused_with_a_reason() {
    run(async {
        let router = Router::start().await;
        let header = |kind| Header { call: 0, method: 0, kind, fds: 0 };
        let frame = |header: Header, len: u32, body: &[u8]| [&header.encode(len)[..], body].concat();
        let cases = [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "unknown frame kind 46"),
            (frame(header(Kind::Call), 0, b""), "the first frame is no hello"),
            (frame(Header { call: 1, ..header(Kind::Hello) }, 0, b""), "the first frame is no hello"),
            (frame(header(Kind::Hello), 1 << 20, b""), "the hello is too long"),
            (frame(header(Kind::Hello), 0, b""), "a malformed hello"),
            (frame(header(Kind::Hello), 66, &[0xff; 66]), "a malformed hello"),
            (frame(header(Kind::Hello), 66, &[0; 66]), "unknown client, or not its key"),
        ];
        for (octets, expected) in cases {
            let mut stream = router.raw();
            stream.write_all(&octets).expect("written");
            let words = last_words(stream).await;
            assert!(words.contains(expected), "{expected}: {words}");
        }
    });
}

#[test]
fn descriptors_do_not_travel_over_tcp() {
    run(async {
        let router = Router::start().await;
        let alice = router.alice().await;
        let exercise: ExerciseClient = alice.client("exercise").await.expect("resolved");
        let error = exercise.read_all(note(1), vec![readable("x")]).await.expect_err("a descriptor");
        assert_eq!(error.to_string(), "invalid argument: descriptors do not travel over tcp");
        let error = exercise.open(note(1)).await.expect_err("descriptors");
        assert_eq!(
            error.to_string(),
            "denied: exercise.v1/Open may not be called over tcp (local, unix may)"
        );
        exercise.echo(note(1)).await.expect("the channel is well");
        let register =
            RegisterRequest { class: "toy".into(), instance: "toy-1".into(), ..Default::default() };
        let finder = router.dial("toy", 2).await.expect("let in").finder().expect("the Finder");
        let error = finder.register(register).await.expect_err("nobody could hand it a connection");
        assert_eq!(error.message(), "finder.v1/Register may not be called over tcp (local, unix may)");
    });
}

#[test]
fn a_key_for_one_method_opens_no_other() {
    run(async {
        let router = Router::start().await;
        let alice = router.alice().await;
        let only = alice.open("exercise", "exercise.v1.Exercise", &[ExerciseClient::ECHO], false).await;
        let exercise = ExerciseClient::new(only.expect("a channel"));
        exercise.echo(note(1)).await.expect("opened");
        let error = exercise.count(note(1)).next().await.expect_err("another method");
        assert_eq!(error.message(), "the key given to role \"operator\" does not cover exercise.v1/Count");
    });
}

/// The ticket for a connection, as the Finder has given it.
async fn ticket(resolver: &Resolver) -> Vec<u8> {
    let request = ResolveRequest {
        target: "exercise".into(),
        service: "exercise.v1.Exercise".into(),
        ..ResolveRequest::default()
    };
    let (reply, fds) = resolver.finder().expect("the Finder").resolve(request).await.expect("resolved");
    assert!(fds.is_empty());
    reply.key
}

#[test]
fn a_ticket_is_for_one_client_and_one_connection_and_dies_with_who_asked() {
    run(async {
        let router = Router::start().await;
        let (alice, toy) = (router.alice().await, router.dial("toy", 2).await.expect("let in"));
        let dialer = |name, octet| Dialer::new(&router.address.to_string(), name, secret(octet));
        let refused = "denied: a ticket that was not given to this client, was used, or is too old";

        let given = ticket(&alice).await;
        let error = dialer("toy", 2).channel(&given).await.expect_err("another client's");
        assert_eq!(error.to_string(), refused);
        let channel = dialer("alice", 1).channel(&given).await.expect("let in");
        let exercise = ExerciseClient::new(channel);
        exercise.echo(note(1)).await.expect("opened");
        let error = dialer("alice", 1).channel(&given).await.expect_err("used");
        assert_eq!(error.to_string(), refused);

        let given = ticket(&toy).await;
        toy.finder().expect("the Finder").channel().close();
        settle().await;
        assert_eq!(dialer("toy", 2).channel(&given).await.expect_err("stale").to_string(), refused);

        alice.finder().expect("the Finder").channel().close();
        settle().await;
        let error = exercise.echo(note(1)).await.expect_err("the caller has gone");
        assert_eq!(error.kind(), ErrorKind::Disconnected);
    });
}

#[test]
fn unused_tickets_are_bounded() {
    run(async {
        let router = Router::start().await;
        let alice = router.alice().await;
        for _ in 0..64 {
            ticket(&alice).await;
        }
        let request = ResolveRequest {
            target: "exercise".into(),
            service: "exercise.v1.Exercise".into(),
            ..ResolveRequest::default()
        };
        let error = alice.finder().expect("the Finder").resolve(request).await.expect_err("enough");
        assert_eq!(error.to_string(), "unavailable: the caller has 64 tickets that it did not use");
    });
}

#[test]
fn who_is_no_longer_a_client_is_cut_off() {
    run(async {
        let router = Router::start().await;
        let (alice, toy) = (router.alice().await, router.dial("toy", 2).await.expect("let in"));
        let exercise: ExerciseClient = alice.client("exercise").await.expect("resolved");
        router.finder.set_tcp_clients(vec![client("alice", "operator", 3), client("toy", "protocol", 2)]);
        settle().await;
        assert!(alice.finder().is_err(), "another key");
        assert_eq!(exercise.echo(note(1)).await.expect_err("revoked").kind(), ErrorKind::Disconnected);
        assert!(toy.finder().is_ok(), "the same as before");
        router.dial("alice", 3).await.expect("the new key");
    });
}

#[test]
fn a_flood_of_connections_that_say_nothing_is_bounded_and_ends() {
    run(async {
        let router = Router::start().await;
        let silent: Vec<_> = (0..MOST_UNPROVEN + 10).map(|_| router.raw()).collect();
        settle().await;
        // Who says something is answered, and the oldest have made way.
        router.alice().await;
        let mut silent = silent.into_iter();
        for _ in 0..11 {
            let words = last_words(silent.next().expect("one of them")).await;
            assert!(words.contains("too many connections that say nothing"), "{words}");
        }
        let words = last_words(silent.next().expect("another")).await;
        assert!(words.contains("no hello in time"), "{words}");
    });
}

#[test]
fn a_client_has_so_many_connections_and_no_more() {
    run(async {
        let router = Router::start().await;
        let oldest = router.alice().await;
        let mut others = Vec::new();
        for _ in 0..MOST_OF_CLIENT {
            others.push(router.alice().await);
        }
        settle().await;
        assert!(oldest.finder().is_err(), "the oldest was closed for the newest");
        assert!(others.iter().all(|other| other.finder().is_ok()));
    });
}

#[test]
fn a_dead_component_ends_its_calls_over_tcp() {
    run(async {
        let router = Router::start().await;
        let alice = router.alice().await;
        let exercise: ExerciseClient = alice.client("exercise").await.expect("resolved");
        let call = exercise.hang(note(1));
        settle().await;
        assert_eq!(router.exerciser.hanging.get(), 1);
        router.node.close();
        assert_eq!(call.await.expect_err("dead").kind(), ErrorKind::Disconnected);
        settle().await;
        let error = alice.client::<ExerciseClient>("exercise").await.expect_err("nobody there");
        assert_eq!(error.to_string(), "not found: no component \"exercise\" is running");
    });
}

#[test]
fn the_families_in_use_are_told_and_resolved_to() {
    run(async {
        let router = Router::start().await;
        let alice = router.alice().await;
        let families = alice.finder().expect("the Finder").families(FamiliesRequest {}).await.expect("told");
        let families: Vec<_> = families.families.into_iter().map(|f| (f.name, f.address)).collect();
        let address = router.address.to_string();
        assert_eq!(families, [("unix".to_owned(), String::new()), ("tcp".to_owned(), address.clone())]);
        let mut out = Vec::new();
        text::resolve(&alice, "exercise/exercise.v1", &mut out).await.expect("resolved");
        let out = String::from_utf8(out).expect("text");
        for (line, expected) in [
            ("unix://exercise-1/exercise.v1/Echo (0xea610001)".to_owned(), true),
            (format!("tcp://{address}/exercise-1/exercise.v1/Echo (0xea610001)"), true),
            ("unix://exercise-1/exercise.v1/Open (0xea610004)".to_owned(), true),
            (format!("tcp://{address}/exercise-1/exercise.v1/Open (0xea610004)"), false),
            ("signal://exercise-1/TERM (process 7)".to_owned(), true),
        ] {
            assert_eq!(out.lines().any(|known| known == line), expected, "{line} in {out}");
        }
    });
}
