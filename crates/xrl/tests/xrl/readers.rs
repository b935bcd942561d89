//! Callers from outside of the router that call much and read little.

use std::io::ErrorKind::WouldBlock;

use holdfast_xrl::traffic::{self, MOST_UNREAD};
use holdfast_xrl::{Channel, Client, Grant, Header, Key, Kind, MOST_CALLS, Node};
use prost::Message;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::tests::xrl::exercise::*;
use crate::tests::xrl::hostile::{CALL, OUTSIDE, RawPeer, frame, raw_peer_as};

/// Octets of an item: about what a page of routes has.
const ITEM: i32 = 200_000;

const MIB: usize = 1 << 20;

fn unread() -> usize {
    traffic::of_this_thread().unread.now as usize
}

/// Begins so many long streams, of items that are made before there is room for them or not.
fn begin_streams(peer: &mut dyn RawPeer, count: u32, flag: bool) {
    let body = Note { number: 1000, signed: ITEM, flag, ..Note::default() }.encode_to_vec();
    let call = |call| frame(Header { call, method: ExerciseClient::COUNT, ..CALL }, &body);
    peer.write_all(&(1..=count).flat_map(call).collect::<Vec<_>>()).expect("written");
}

/// An operator who begins so many streams and reads nothing.
async fn silent(node: &Node, family: Family, streams: u32, made_before: bool) -> Box<dyn RawPeer> {
    let mut peer = raw_peer_as(node, family, "operator");
    begin_streams(&mut *peer, streams, made_before);
    peer.set_nonblocking();
    settle().await;
    peer
}

/// Reads all that is there and what follows; whether the connection has ended, and the last octets.
async fn read_on(peer: &mut dyn RawPeer) -> (bool, String) {
    let (mut space, mut end) = (vec![0; 1 << 20], Vec::new());
    let mut pauses = 0;
    let has_ended = loop {
        match peer.read(&mut space) {
            Ok(0) => break true,
            Ok(len) => {
                (end, pauses) = (space[len.saturating_sub(200)..len].to_vec(), 0);
                tokio::task::yield_now().await;
            }
            Err(error) if error.kind() == WouldBlock && pauses < 3 => {
                pauses += 1;
                settle().await;
            }
            Err(error) => break error.kind() != WouldBlock,
        }
    };
    (has_ended, String::from_utf8_lossy(&end).into_owned())
}

/// Reads so much at most.
fn read_some(peer: &mut dyn RawPeer, most: usize) {
    match peer.read(&mut vec![0; most]) {
        Ok(len) => assert!(len > 0, "it was disconnected"),
        Err(error) => assert_eq!(error.kind(), WouldBlock, "{error}"),
    }
}

#[test]
fn an_operators_calls_wait_for_their_turn_and_a_programs_do_not() {
    for family in [Family::Unix, Family::Tcp] {
        run(async {
            let (node, exerciser) = node();
            let client = family.client(&node, "operator");
            let mut calls: Vec<_> = (0..200).map(|_| client.hang(note(1))).collect();
            settle().await;
            assert_eq!(exerciser.hanging.get(), MOST_CALLS as u64, "{family:?}");
            // Some that are carried out, and some that wait.
            calls.drain(..10);
            calls.drain(100..150);
            settle().await;
            assert_eq!(exerciser.hanging.get(), MOST_CALLS as u64, "{family:?}");
            let echo = client.echo(note(7));
            settle().await;
            assert_eq!(exerciser.calls.get(), 0, "{family:?}: it is not its turn");
            calls.drain(..100);
            settle().await;
            assert_eq!((exerciser.hanging.get(), calls.len()), (40, 40), "{family:?}");
            drop(calls);
            assert_eq!(echo.await.expect("its turn came").number, 7, "{family:?}");
            let program = family.client(&node, "protocol");
            let calls: Vec<_> = (0..200).map(|_| program.hang(note(1))).collect();
            settle().await;
            assert_eq!(exerciser.hanging.get(), 200, "{family:?}");
            drop((calls, program, client));
            settle().await;
            assert_eq!((exerciser.hanging.get(), unread()), (0, 0), "{family:?}");
        });
    }
}

#[test]
fn parts_of_a_request_count_as_unread_and_are_kept_only_for_who_may_call() {
    for family in OUTSIDE {
        run(async {
            let (node, _) = node();
            let mut peer = raw_peer_as(&node, family, "operator");
            peer.set_nonblocking();
            for (method, kept) in [(ExerciseClient::SECRET, 0), (ExerciseClient::ECHO, 3 * 100_000)] {
                let part = frame(Header { method, kind: Kind::Part, ..CALL }, &[0; 100_000]);
                for _ in 0..3 {
                    peer.write_all(&part).expect("written");
                    settle().await;
                }
                assert_eq!(unread(), kept, "{family:?}");
                let cancel = Header { method: 0, kind: Kind::Cancel, ..CALL };
                peer.write_all(&frame(cancel, b"")).expect("written");
                settle().await;
                assert_eq!((unread(), node.channels()), (0, 1), "{family:?}");
            }
        });
    }
}

#[test]
fn calls_that_wait_and_are_cancelled_leave_nothing() {
    run(async {
        let (node, exerciser) = node();
        let mut peer = raw_peer_as(&node, Family::Unix, "operator");
        let hang = |call| frame(Header { call, ..CALL }, b"");
        peer.write_all(&(1..=MOST_CALLS as u32).flat_map(hang).collect::<Vec<_>>()).expect("written");
        for _ in 0..20 {
            let calls = (100..600).flat_map(|call| {
                let cancel = Header { call, method: 0, kind: Kind::Cancel, fds: 0 };
                [hang(call), frame(cancel, b"")].concat()
            });
            peer.write_all(&calls.collect::<Vec<_>>()).expect("written");
            settle().await;
        }
        assert_eq!((exerciser.hanging.get(), node.channels()), (MOST_CALLS as u64, 1));
        assert!(unread() < 100 * 1024, "{}", unread());
    });
}

#[test]
fn who_does_not_read_answers_has_its_next_calls_wait() {
    for family in OUTSIDE {
        run(async {
            let (node, exerciser) = node();
            let client = raw_peer_as(&node, family, "operator");
            let mut peer = client;
            let body = Note { data: vec![0; 500_000], ..Note::default() }.encode_to_vec();
            let call = |call| frame(Header { call, method: ExerciseClient::ECHO, ..CALL }, &body);
            let mut calls = (1..=12).flat_map(call).collect::<Vec<_>>();
            peer.set_nonblocking();
            while !calls.is_empty() {
                match peer.write(&calls) {
                    Ok(len) => drop(calls.drain(..len)),
                    Err(error) => assert_eq!(error.kind(), WouldBlock, "{family:?}: {error}"),
                }
                settle().await;
            }
            // One MiB unread and what the kernel takes.
            assert!(exerciser.calls.get() < 12, "{family:?}: all were carried out");
            read_on(&mut *peer).await;
            assert_eq!(exerciser.calls.get(), 12, "{family:?}");
        });
    }
}

/// Ten times what operators do in practice: hundreds of streams on each of ten connections, and nothing is read.
#[test]
fn unread_streams_of_a_connection_wait_and_others_are_answered() {
    for family in OUTSIDE {
        run(async {
            let (node, _) = node();
            let mut silent_ones = Vec::new();
            for _ in 0..10 {
                silent_ones.push(silent(&node, family, 600, false).await);
                let other = family.client(&node, "operator");
                assert_eq!(other.echo(note(5)).await.expect("answered").number, 5, "{family:?}");
            }
            // One MiB for each, the item with which it is full, and the calls themselves.
            let most = 10 * (MIB + 2 * ITEM as usize + 600 * 1100);
            assert!(unread() <= most, "{family:?}: {} unread", unread());
            settle().await;
            assert_eq!((node.channels(), traffic::of_this_thread().disconnected), (10, 0), "{family:?}");
        });
        assert_eq!(unread(), 0, "{family:?}");
    }
}

#[test]
fn what_all_leave_unread_is_bounded_and_who_has_read_nothing_for_longest_goes() {
    for family in OUTSIDE {
        run(async {
            let (node, _) = node();
            let before = traffic::of_this_thread().disconnected;
            let gone = || (traffic::of_this_thread().disconnected - before) as usize;
            let mut slow = silent(&node, family, 64, true).await;
            let mut silent_ones = Vec::new();
            while gone() < 3 {
                assert!(silent_ones.len() < 200, "{family:?}: {} unread", unread());
                silent_ones.push(silent(&node, family, 64, true).await);
                read_some(&mut *slow, MIB);
                assert!(unread() <= MOST_UNREAD, "{family:?}: {} unread", unread());
            }
            // Somebody else is answered at once.
            let other = family.client(&node, "operator");
            assert_eq!(other.echo(note(5)).await.expect("answered").number, 5, "{family:?}");
            let high = traffic::of_this_thread().unread.high as usize;
            assert!((MOST_UNREAD - 4 * MIB..=MOST_UNREAD).contains(&high), "{family:?}: {high}");
            assert_eq!(node.channels(), 2 + silent_ones.len() - gone(), "{family:?}");
            // The first of those who have read nothing are gone, and each reads why when it reads.
            let (went, stay) = silent_ones.split_at_mut(gone());
            for peer in went {
                let (has_ended, words) = read_on(&mut **peer).await;
                assert!(has_ended, "{family:?}");
                assert!(words.contains("you have read nothing for longest"), "{family:?}: {words}");
            }
            stay.iter_mut().chain([&mut slow]).for_each(|peer| read_some(&mut **peer, 1 << 10));
        });
        assert_eq!(unread(), 0, "{family:?}");
    }
}

#[test]
fn channels_that_have_their_reason_to_write_have_sixteen_places() {
    run(async {
        let (node, _) = node();
        let mut silent_ones = Vec::new();
        while traffic::of_this_thread().disconnected < 20 {
            silent_ones.push(silent(&node, Family::Unix, 64, true).await);
        }
        let mut reasons = Vec::new();
        for peer in silent_ones.iter_mut().take(20) {
            let (has_ended, words) = read_on(&mut **peer).await;
            assert!(has_ended);
            reasons.push(words.contains("you have read nothing for longest"));
        }
        assert_eq!(reasons, [vec![false; 4], vec![true; 16]].concat(), "the oldest have made way");
    });
}

#[test]
fn processes_of_the_router_are_not_counted() {
    run(async {
        let (node, exerciser) = node();
        let client = Family::Unix.client(&node, "bgp");
        let calls: Vec<_> = (0..200).map(|_| client.hang(note(1))).collect();
        settle().await;
        assert_eq!((exerciser.hanging.get(), unread()), (200, 0));
        drop(calls);
    });
}

#[test]
fn readers_leave_room_for_processes_of_the_router() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("descriptors");
    run(async {
        let (node, _) = node();
        let admit = |role: &str| {
            let (near, far) = sockets();
            let key = Key::random().expect("a key");
            let (role, instance) = (role.to_owned(), String::new());
            let methods = vec![ExerciseClient::ECHO, ExerciseClient::HANG];
            let grant = Grant { key: key.clone(), role, instance, methods, classes: Vec::new() };
            node.admit(far, grant).map(|_| {
                let client = ExerciseClient::new(Channel::connect(near).expect("a channel"));
                client.channel().present(&key);
                client
            })
        };
        let busy = admit("operator").expect("admitted");
        let call = busy.hang(note(1));
        let mut readers: Vec<_> = (1..1024).map(|_| admit("operator").expect("admitted")).collect();
        settle().await;
        readers[0].echo(note(1)).await.expect("it is not the one that is idle for longest any more");
        readers.push(admit("operator").expect("admitted"));
        settle().await;
        let is_closed = |client: &&ExerciseClient| client.channel().is_closed();
        let idle = &readers[1..1023];
        assert_eq!((idle.iter().filter(is_closed).count(), readers.iter().filter(is_closed).count()), (1, 1));
        assert_eq!((node.channels(), is_closed(&&busy)), (1024, false));
        admit("rib").expect("there is room").echo(note(1)).await.expect("answered");
        drop(call);
    });
}

#[test]
fn answers_that_are_made_as_a_whole_count_until_they_are_sent() {
    run(async {
        let (node, _) = node();
        let client = Family::Unix.client(&node, "operator");
        let whole =
            |octets| client.count(Note { number: 100, signed: octets, list: vec![1], ..Note::default() });
        let mut stream = whole(ITEM);
        settle().await;
        let item = ITEM as usize;
        assert!((80 * item..101 * item).contains(&unread()), "{}", unread());
        for number in 0..100 {
            assert_eq!(stream.next().await.expect("open").expect("an item").number, number);
        }
        assert!(stream.next().await.expect("its end").is_none());
        settle().await;
        assert_eq!((unread(), node.channels()), (0, 1));
        // Whoever has more made than all may leave unread is the one to go.
        let streams: Vec<_> = (0..4).map(|_| whole(ITEM)).collect();
        let error = client.channel().closed().await;
        assert!(error.message().contains("you have read nothing for longest"), "{error}");
        drop(streams);
        assert_eq!(unread(), 0);
    });
}
