//! Peers that do not keep to the protocol, and callers that may not call.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use holdfast_xrl::{
    Channel, Client, ErrorKind, Grant, Header, Key, Kind, Link, Node, PeerIdentity, WINDOW_CALLS,
};
use prost::Message;

use crate::tests::xrl::exercise::*;

/// The families of peers that are not of this process.
pub(super) const OUTSIDE: [Family; 2] = [Family::Unix, Family::Tcp];

/// A peer of the node that writes what it likes.
pub(super) trait RawPeer: Read + Write {
    fn set_nonblocking(&self);
}

impl RawPeer for UnixStream {
    fn set_nonblocking(&self) {
        Self::set_nonblocking(self, true).expect("non-blocking");
    }
}

impl RawPeer for TcpStream {
    fn set_nonblocking(&self) {
        Self::set_nonblocking(self, true).expect("non-blocking");
    }
}

fn raw_peer(node: &Node, family: Family) -> Box<dyn RawPeer> {
    raw_peer_as(node, family, "tester")
}

/// The same, with this role.
pub(super) fn raw_peer_as(node: &Node, family: Family, role: &str) -> Box<dyn RawPeer> {
    let tester = PeerIdentity::new(role);
    match family {
        Family::Tcp => {
            let (near, far) = connected();
            node.attach_link(Link::tcp(far.into()).expect("a link"), tester);
            Box::new(near)
        }
        Family::Unix | Family::Local => {
            let (near, far) = sockets();
            node.attach(far, tester).expect("attached");
            Box::new(UnixStream::from(near))
        }
    }
}

pub(super) fn frame(header: Header, body: &[u8]) -> Vec<u8> {
    [&header.encode(body.len() as u32)[..], body].concat()
}

pub(super) const CALL: Header = Header { call: 1, method: ExerciseClient::HANG, kind: Kind::Call, fds: 0 };

/// Part of a request.
fn part(call: u32) -> Vec<u8> {
    frame(Header { call, kind: Kind::Part, ..CALL }, b"x")
}

/// What the node says before it closes.
async fn last_words(mut peer: Box<dyn RawPeer>) -> String {
    settle().await;
    let mut bytes = Vec::new();
    peer.set_nonblocking();
    match peer.read_to_end(&mut bytes) {
        // What it had not read of ours resets a TCP connection.
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("no end: {error}"),
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

#[test]
fn bytes_that_are_no_frame_close_the_channel_with_a_reason() {
    run(async {
        let (node, _) = node();
        let mut garbage = frame(CALL, b"");
        garbage[12] = 99;
        let mut too_long = frame(CALL, b"");
        too_long[0] = 0x7f;
        let cases = [
            (garbage, "unknown frame kind 99"),
            (too_long, "at most 16777216 are allowed"),
            (frame(Header { fds: 3, ..CALL }, b""), "a frame came without its descriptors"),
            (frame(Header { call: 0, ..CALL }, b""), "call id 0 is in use"),
            ([frame(CALL, b""), frame(CALL, b"")].concat(), "call id 1 is in use"),
            (frame(Header { kind: Kind::Credit, ..CALL }, b"x"), "a credit without a number"),
            (frame(Header { kind: Kind::Hello, ..CALL }, &[7; 16]), "unknown key"),
            ([part(1), part(2)].concat(), "parts of two requests at a time"),
        ];
        for family in OUTSIDE {
            for (bytes, expected) in &cases {
                let mut peer = raw_peer(&node, family);
                peer.write_all(bytes).expect("written");
                let words = last_words(peer).await;
                assert!(words.contains(expected), "{family:?}: {expected}: {words}");
            }
        }
        assert_eq!(node.channels(), 0);
    });
}

#[test]
fn the_peer_of_a_channel_that_is_closed_reads_why() {
    run(async {
        let (near, far) = sockets();
        let client = ExerciseClient::new(Channel::connect(near).expect("a channel"));
        let call = client.echo(note(1));
        let text = [&[8u8][..], b"what was that?"].concat();
        let goodbye = Header { call: 0, method: 0, kind: Kind::Error, fds: 0 };
        UnixStream::from(far).write_all(&frame(goodbye, &text)).expect("written");
        let error = call.await.expect_err("closed");
        assert_eq!(error.to_string(), "disconnected: closed by the other side: what was that?");
    });
}

#[test]
fn a_peer_that_exceeds_the_window_is_cut_off() {
    for family in OUTSIDE {
        run(async {
            let (node, exerciser) = node();
            let mut peer = raw_peer(&node, family);
            for call in 1..=WINDOW_CALLS as u32 + 1 {
                peer.write_all(&frame(Header { call, ..CALL }, b"")).expect("written");
                if call % 100 == 0 {
                    settle().await;
                }
            }
            let words = last_words(peer).await;
            assert!(words.contains("more calls in progress than the window allows"), "{family:?}: {words}");
            assert_eq!(exerciser.hanging.get(), 0);
        });
    }
}

#[test]
fn a_peer_that_calls_without_reading_the_replies_is_cut_off() {
    for family in OUTSIDE {
        run(async {
            let (node, exerciser) = node();
            let mut peer = raw_peer(&node, family);
            peer.set_nonblocking();
            let call = frame(Header { method: ExerciseClient::ECHO, ..CALL }, &long_note().encode_to_vec());
            let mut rest = &call[..];
            // A call id is free again when its answer has been given, so the window does not end this.
            let error = loop {
                match peer.write(rest) {
                    Ok(len) if len == rest.len() => rest = &call,
                    Ok(len) => rest = &rest[len..],
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        tokio::task::yield_now().await;
                    }
                    Err(error) => break error,
                }
            };
            let ends = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
            assert!(ends.contains(&error.kind()), "{family:?}: {error}");
            let replies = exerciser.calls.get() * 1_000_000;
            assert!((64_000_000..80_000_000).contains(&replies), "{family:?}: {replies} octets of replies");
        });
    }
}

/// A flood of calls that are cancelled at once is carried out and dropped; it leaves nothing.
#[test]
fn a_flood_of_cancelled_calls_leaves_nothing() {
    for family in OUTSIDE {
        run(async {
            let (node, exerciser) = node();
            let mut peer = raw_peer(&node, family);
            for batch in 0..20 {
                let calls = (1..=1000).map(|number| {
                    let call = batch * 1000 + number;
                    let cancel = Header { call, method: 0, kind: Kind::Cancel, fds: 0 };
                    [frame(Header { call, ..CALL }, b""), frame(cancel, b"")].concat()
                });
                peer.write_all(&calls.collect::<Vec<_>>().concat()).expect("written");
                settle().await;
            }
            assert_eq!((exerciser.hanging.get(), node.channels()), (0, 1), "{family:?}");
        });
    }
}

#[test]
fn a_flood_of_keys_ends_the_connection() {
    run(async {
        let (node, _) = node();
        let (client, key) = keyed(&node, "tester", &[ExerciseClient::ECHO]);
        for _ in 0..64 {
            client.channel().present(&key);
        }
        client.echo(note(1)).await.expect("not too many yet");
        client.channel().present(&key);
        let error = client.echo(note(1)).await.expect_err("too many");
        assert_eq!(error.to_string(), "disconnected: closed by the other side: too many keys");
        settle().await;
        assert_eq!(node.channels(), 0);
    });
}

#[test]
fn a_component_that_dies_meanwhile_ends_its_calls() {
    for family in FAMILIES {
        run(async {
            let (node, exerciser) = node();
            let client = family.client(&node, "tester");
            let (call, mut stream) = (client.hang(note(1)), client.count(note(u64::MAX)));
            stream.next().await.expect("no error").expect("a number");
            assert_eq!(exerciser.hanging.get(), 1);
            node.close();
            assert_eq!(call.await.expect_err("dead").kind(), ErrorKind::Disconnected, "{family:?}");
            while stream.next().await.is_ok_and(|item| item.is_some()) {}
            settle().await;
            assert_eq!((exerciser.hanging.get(), node.channels()), (0, 0), "{family:?}");
        });
    }
}

fn long_note() -> Note {
    Note { data: vec![0; 1_000_000], ..Note::default() }
}

#[test]
fn a_request_that_cannot_be_read_fails_alone() {
    run(async {
        let (node, _) = node();
        let client = Family::Unix.client(&node, "tester");
        let nonsense = vec![0xffu8; 9];
        let call = client.channel().call::<_, Note>(ExerciseClient::ECHO, &Raw(nonsense), vec![]);
        assert_eq!(call.await.expect_err("unreadable").kind(), ErrorKind::InvalidArgument);
        client.echo(note(1)).await.expect("the channel is well");
    });
}

/// Encodes as the bytes themselves.
#[derive(Debug, Default)]
struct Raw(Vec<u8>);

impl Message for Raw {
    fn encode_raw(&self, buf: &mut impl bytes::BufMut) {
        buf.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: prost::encoding::WireType,
        _: &mut impl bytes::Buf,
        _: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

#[test]
fn a_method_that_does_not_exist_is_not_found() {
    run(async {
        let (node, _) = node();
        let client = Family::Unix.client(&node, "tester");
        for method in [ExerciseClient::ECHO | 0xff00, 0x7000_0001, 0] {
            let error =
                client.channel().call::<_, Note>(method, &note(1), vec![]).await.expect_err("no method");
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    });
}

#[test]
fn the_far_side_of_a_client_channel_can_call_nothing() {
    run(async {
        let (near, far) = Family::Unix.links();
        let _client = Channel::over(near);
        let error = ExerciseClient::new(Channel::over(far)).echo(note(1)).await.expect_err("nothing there");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_known_peer_is_held_to_its_role() {
    run(async {
        let (node, _) = node();
        let error = Family::Unix.client(&node, "tester").secret(note(1)).await.expect_err("denied");
        assert_eq!(
            error.to_string(),
            "denied: role \"tester\" may not call exercise.v1/Secret (confidant may)"
        );
        let note = Family::Unix.client(&node, "confidant").secret(note(1)).await.expect("allowed");
        assert_eq!(note.text, "for confidant only");
    });
}

/// A connection for somebody with a key for these methods, which has not been presented yet.
fn keyed(node: &Node, role: &str, methods: &[u32]) -> (ExerciseClient, Key) {
    let key = Key::random().expect("a key");
    let (near, far) = sockets();
    let grant = Grant {
        key: key.clone(),
        role: role.to_owned(),
        instance: String::new(),
        methods: methods.to_vec(),
        classes: Vec::new(),
    };
    node.admit(far, grant).expect("admitted");
    (ExerciseClient::new(Channel::connect(near).expect("a channel")), key)
}

#[test]
fn a_key_opens_its_methods_and_no_other() {
    run(async {
        let (node, _) = node();
        let (client, key) = keyed(&node, "tester", &[ExerciseClient::ECHO]);
        let error = client.echo(note(1)).await.expect_err("no key yet");
        assert_eq!(error.to_string(), "denied: exercise.v1/Echo: no key was presented");
        client.channel().present(&key);
        client.echo(note(1)).await.expect("opened");
        let error = client.count(note(1)).next().await.expect_err("another method");
        assert_eq!(
            error.to_string(),
            "denied: the key given to role \"tester\" does not cover exercise.v1/Count"
        );
    });
}

#[test]
fn a_key_of_a_wrong_role_opens_nothing_even_if_it_was_minted() {
    run(async {
        let (node, _) = node();
        let (client, key) = keyed(&node, "tester", &[ExerciseClient::SECRET]);
        client.channel().present(&key);
        let error = client.secret(note(1)).await.expect_err("denied");
        assert!(error.message().starts_with("role \"tester\" may not call"), "{error}");
    });
}

#[test]
fn a_revoked_key_opens_nothing_any_more() {
    run(async {
        let (node, _) = node();
        let (client, key) = keyed(&node, "tester", &[ExerciseClient::ECHO]);
        client.channel().present(&key);
        client.echo(note(1)).await.expect("opened");
        node.revoke(&key);
        let error = client.echo(note(1)).await.expect_err("revoked");
        assert_eq!(error.kind(), ErrorKind::Disconnected);
    });
}

#[test]
fn a_connection_ends_with_its_last_key_and_so_does_what_was_begun_there() {
    run(async {
        let (node, _) = node();
        let (client, key) = keyed(&node, "tester", &[ExerciseClient::ECHO, ExerciseClient::COUNT]);
        let (_other, second) = keyed(&node, "tester", &[ExerciseClient::ECHO]);
        client.channel().present(&key);
        client.channel().present(&second);
        let mut stream = client.count(note(1_000_000));
        stream.next().await.expect("open").expect("an item");
        node.revoke(&key);
        client.echo(note(1)).await.expect("opened by the second key");
        client.count(note(1)).next().await.expect_err("the first is no key any more");
        node.revoke(&second);
        assert_eq!(client.channel().closed().await.kind(), ErrorKind::Disconnected);
        let end = loop {
            match stream.next().await {
                Ok(item) => drop(item.expect("no end is said")),
                Err(error) => break error,
            }
        };
        assert_eq!(end.kind(), ErrorKind::Disconnected);
        let (unused, unpresented) = keyed(&node, "tester", &[ExerciseClient::ECHO]);
        node.revoke(&unpresented);
        unused.channel().closed().await;
        assert_eq!(node.channels(), 0);
    });
}

#[test]
fn a_key_ends_with_the_connection_it_was_made_for() {
    run(async {
        let (node, _) = node();
        let (first, key) = keyed(&node, "tester", &[ExerciseClient::ECHO]);
        first.channel().present(&key);
        first.echo(note(1)).await.expect("opened");
        drop(first);
        settle().await;
        let (second, _) = keyed(&node, "tester", &[ExerciseClient::ECHO]);
        second.channel().present(&key);
        let error = second.echo(note(1)).await.expect_err("an old key");
        assert_eq!(error.to_string(), "disconnected: closed by the other side: unknown key");
    });
}

#[test]
fn a_method_is_called_only_over_the_families_of_its_interface() {
    run(async {
        let (node, _) = node();
        let error = Family::Unix.client(&node, "tester").near(note(1)).await.expect_err("over a socket");
        assert_eq!(error.to_string(), "denied: exercise.v1/Near may not be called over unix (local may)");
        Family::Local.client(&node, "tester").near(note(1)).await.expect("in one process");
    });
}
