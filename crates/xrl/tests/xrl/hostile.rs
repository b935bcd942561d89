//! Peers that do not keep to the protocol, and callers that may not call.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use holdfast_xrl::{Channel, Client, ErrorKind, Grant, Header, Key, Kind, Node, PeerIdentity, WINDOW_CALLS};
use prost::Message;

use crate::exercise::*;

/// A node with a peer that writes what it likes.
fn raw_peer(node: &Node) -> UnixStream {
    let (near, far) = sockets();
    node.attach(far, PeerIdentity::new("tester")).expect("attached");
    UnixStream::from(near)
}

fn frame(header: Header, body: &[u8]) -> Vec<u8> {
    [&header.encode(body.len() as u32)[..], body].concat()
}

const CALL: Header = Header { call: 1, method: ExerciseClient::HANG, kind: Kind::Call, fds: 0 };

/// What the node says before it closes.
async fn last_words(mut peer: UnixStream) -> String {
    settle().await;
    let mut bytes = Vec::new();
    peer.set_nonblocking(true).expect("non-blocking");
    peer.read_to_end(&mut bytes).expect("the end of the stream");
    String::from_utf8_lossy(&bytes).into_owned()
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
        ];
        for (bytes, expected) in cases {
            let mut peer = raw_peer(&node);
            peer.write_all(&bytes).expect("written");
            let words = last_words(peer).await;
            assert!(words.contains(expected), "{expected}: {words}");
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
    run(async {
        let (node, exerciser) = node();
        let mut peer = raw_peer(&node);
        for call in 1..=WINDOW_CALLS as u32 + 1 {
            peer.write_all(&frame(Header { call, ..CALL }, b"")).expect("written");
            if call % 100 == 0 {
                settle().await;
            }
        }
        assert!(last_words(peer).await.contains("more calls in progress than the window allows"));
        assert_eq!(exerciser.hanging.get(), 0);
    });
}

#[test]
fn a_peer_that_calls_without_reading_the_replies_is_cut_off() {
    run(async {
        let (node, exerciser) = node();
        let mut peer = raw_peer(&node);
        peer.set_nonblocking(true).expect("non-blocking");
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
        assert!(matches!(error.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset));
        let replies = exerciser.calls.get() * 1_000_000;
        assert!((64_000_000..80_000_000).contains(&replies), "{replies} octets of replies");
    });
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
    let grant =
        Grant { key: key.clone(), role: role.to_owned(), instance: String::new(), methods: methods.to_vec() };
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
        assert_eq!(error.to_string(), "denied: exercise.v1/Echo: the key was revoked");
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
