//! Calls, streams, windows, cancelling, descriptors.

use std::rc::Rc;
use std::time::Duration;

use holdfast_xrl::{
    Channel, Client, ErrorKind, Link, MAX_REQUEST, PeerIdentity, STREAM_WINDOW, WINDOW_BYTES, WINDOW_CALLS,
};

use crate::tests::xrl::exercise::*;

#[test]
fn ten_thousand_calls_are_under_way_at_once_and_each_gets_its_answer() {
    for family in FAMILIES {
        run(async {
            let (node, exerciser) = node();
            let client = family.client(&node, "tester");
            let calls: Vec<_> = (0..10_000).map(|number| client.echo(note(number))).collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.expect("an echo").number, number as u64);
            }
            assert_eq!(exerciser.calls.get(), 10_000);
        });
    }
}

#[test]
fn calls_that_take_long_do_not_keep_other_channels_waiting() {
    for family in FAMILIES {
        run(async {
            let (node, exerciser) = node();
            exerciser.takes.set(Duration::from_millis(2));
            let (busy, other) = (family.client(&node, "busy"), family.client(&node, "other"));
            (0..500).for_each(|number| busy.echo(note(number)).detach());
            let asked = other.echo(note(0));
            let counter = Rc::clone(&exerciser);
            // Among the tasks of the channels: what runs the tasks has its turn after many of theirs.
            let before = tokio::task::spawn_local(async move {
                asked.await.expect("an echo");
                counter.calls.get()
            });
            let before = before.await.expect("no panic");
            assert!(before < 50, "{before} calls of another channel came first over {family:?}");
            exerciser.takes.set(Duration::ZERO);
            busy.echo(note(0)).await.expect("what was left over is carried out, too");
            assert_eq!(exerciser.calls.get(), 502);
        });
    }
}

#[test]
fn both_sides_of_a_channel_may_call() {
    run(async {
        let (left, _) = node();
        let (right, _) = node();
        let (near, far) = Family::Unix.links();
        let to_right = ExerciseClient::new(left.attach_link(near, PeerIdentity::new("right")));
        let to_left = ExerciseClient::new(right.attach_link(far, PeerIdentity::new("left")));
        let (one, two) = tokio::join!(to_right.echo(note(1)), to_left.echo(note(2)));
        assert_eq!((one.expect("an echo").number, two.expect("an echo").number), (1, 2));
    });
}

#[test]
fn a_large_request_comes_through_whole() {
    for family in FAMILIES {
        run(async {
            let (node, _) = node();
            let client = family.client(&node, "tester");
            let data: Vec<u8> = (0..10_000_000u32).map(|n| (n % 251) as u8).collect();
            let request = Note { data: data.clone(), ..Note::default() };
            assert_eq!(client.echo(request).await.expect("an echo").data, data);
        });
    }
}

/// Longer than a frame may be.
fn long() -> Columns {
    Columns { lengths: vec![7; 40 << 20], ..Columns::default() }
}

#[test]
fn a_request_longer_than_a_frame_comes_through_in_parts_and_takes_no_more_memory() {
    for family in FAMILIES {
        run(async {
            let (node, _) = node();
            let client = family.client(&node, "tester");
            // The window lets the second one go when the first one has its answer.
            let (first, second, short) = (client.routes(long()), client.routes(long()), client.echo(note(3)));
            assert!(client.channel().unwritten() < 2 << 20, "{family:?}: {}", client.channel().unwritten());
            let rows = 40 << 20;
            assert_eq!(first.await.expect("an answer").number, rows, "{family:?}");
            assert_eq!(second.await.expect("an answer").number, rows, "{family:?}");
            assert_eq!(short.await.expect("an answer").number, 3, "{family:?}");
        });
    }
}

#[test]
fn a_long_request_that_is_dropped_on_its_way_leaves_the_channel_well() {
    for family in FAMILIES {
        run(async {
            let (node, _) = node();
            let client = family.client(&node, "tester");
            for turns in [0, 1, 3, 10] {
                let call = client.routes(long());
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                drop(call);
            }
            assert_eq!(client.routes(long()).await.expect("an answer").number, 40 << 20, "{family:?}");
        });
    }
}

#[test]
fn other_answers_come_between_the_parts_of_a_long_request() {
    run(async {
        let (left, exerciser) = node();
        let (right, _) = node();
        let (near, far) = Family::Local.links();
        let to_right = ExerciseClient::new(left.attach_link(near, PeerIdentity::new("right")));
        let to_left = ExerciseClient::new(right.attach_link(far, PeerIdentity::new("left")));
        let long = tokio::task::spawn_local(to_right.routes(long()));
        for number in 0..5 {
            to_left.echo(note(number)).await.expect("an echo");
        }
        assert!(!long.is_finished(), "the answers waited for the whole request");
        assert_eq!(exerciser.calls.get(), 5);
        assert_eq!(long.await.expect("no panic").expect("an answer").number, 40 << 20);
    });
}

#[test]
fn a_request_longer_than_all_parts_may_be_fails_alone() {
    run(async {
        let (node, _) = node();
        let client = Family::Local.client(&node, "tester");
        let columns = Columns { lengths: vec![0; MAX_REQUEST + 1], ..Columns::default() };
        let error = client.routes(columns).await.expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        client.echo(note(1)).await.expect("the channel is well");
    });
}

#[test]
fn a_peer_that_stops_reading_holds_callers_back_and_takes_no_memory() {
    run(async {
        let (near, far) = sockets();
        let client = ExerciseClient::new(Channel::connect(near).expect("a channel"));
        let sent = Rc::new(std::cell::Cell::new(0));
        let (sender, counter) = (client.clone(), Rc::clone(&sent));
        tokio::task::spawn_local(async move {
            while sender.channel().ready().await.is_ok() {
                sender.echo(Note { data: vec![0; 100_000], ..Note::default() }).detach();
                counter.set(counter.get() + 1);
            }
        });
        settle().await;
        let held_back = sent.get();
        assert!(held_back * 100_000 <= WINDOW_BYTES + 100_000, "{held_back} requests");
        assert!(client.channel().unwritten() <= WINDOW_BYTES + 100_000);
        settle().await;
        assert_eq!(sent.get(), held_back);
        drop(far);
        assert_eq!(client.channel().closed().await.kind(), ErrorKind::Disconnected);
    });
}

#[test]
fn calls_that_are_never_answered_fill_the_window_and_no_more() {
    run(async {
        let (node, exerciser) = node();
        let client = Family::Local.client(&node, "tester");
        let calls: Vec<_> = (0..WINDOW_CALLS + 500).map(|_| client.hang(note(0))).collect();
        settle().await;
        assert_eq!(exerciser.hanging.get(), WINDOW_CALLS as u64);
        drop(calls);
        settle().await;
        assert_eq!(exerciser.hanging.get(), 0);
        client.echo(note(1)).await.expect("the window is free again");
    });
}

#[test]
fn a_stream_goes_on_only_as_far_as_it_is_read() {
    for family in FAMILIES {
        run(async {
            let (node, exerciser) = node();
            let client = family.client(&node, "tester");
            let item = 1000;
            let mut stream = client.count(Note { number: 5000, data: vec![1; item], ..Note::default() });
            settle().await;
            let ahead = exerciser.counted.get() as usize;
            assert!(ahead > 10 && ahead * item <= STREAM_WINDOW + item, "{ahead} items without a reader");
            let mut expected = 0;
            while let Some(note) = stream.next().await.expect("a stream") {
                assert_eq!(note.number, expected);
                expected += 1;
            }
            assert_eq!(expected, 5000);
            assert!(stream.next().await.expect("the end stays").is_none());
        });
    }
}

#[test]
fn a_stream_that_is_dropped_ends_at_its_sender() {
    run(async {
        let (node, exerciser) = node();
        let client = Family::Unix.client(&node, "tester");
        let mut stream = client.count(Note { number: 1_000_000, data: vec![1; 1000], ..Note::default() });
        stream.next().await.expect("a stream").expect("an item");
        drop(stream);
        settle().await;
        let sent = exerciser.counted.get();
        settle().await;
        assert_eq!(exerciser.counted.get(), sent);
        client.echo(note(1)).await.expect("the channel is well");
    });
}

#[test]
fn a_call_that_is_dropped_is_dropped_at_its_receiver() {
    for family in FAMILIES {
        run(async {
            let (node, exerciser) = node();
            let client = family.client(&node, "tester");
            let call = client.hang(note(0));
            settle().await;
            assert_eq!(exerciser.hanging.get(), 1);
            drop(call);
            settle().await;
            assert_eq!(exerciser.hanging.get(), 0);
        });
    }
}

#[test]
fn patience_ends_a_call() {
    run(async {
        let (node, exerciser) = node();
        let client = Family::Local.client(&node, "tester");
        let error = client.hang(note(0)).within(Duration::from_millis(10)).await.expect_err("too late");
        assert_eq!(error.to_string(), "timeout: no answer within 10 ms");
        settle().await;
        assert_eq!(exerciser.hanging.get(), 0);
    });
}

#[test]
fn a_peer_that_goes_ends_all_calls_in_progress() {
    for family in FAMILIES {
        run(async {
            let (node, _) = node();
            let client = family.client(&node, "tester");
            let waiting: Vec<_> = (0..WINDOW_CALLS + 10).map(|_| client.hang(note(0))).collect();
            let mut stream = client.count(note(u64::MAX));
            settle().await;
            node.close();
            for call in waiting {
                assert_eq!(call.await.expect_err("no answer").kind(), ErrorKind::Disconnected);
            }
            while let Ok(Some(_)) = stream.next().await {}
            let error = client.echo(note(1)).await.expect_err("closed");
            assert_eq!(error.to_string(), "disconnected: closed by the other side");
        });
    }
}

#[test]
fn a_channel_closes_with_its_last_user() {
    run(async {
        let (node, _) = node();
        let client = Family::Unix.client(&node, "tester");
        let other = client.clone();
        drop(client);
        other.echo(note(1)).await.expect("still open");
        drop(other);
        settle().await;
        assert_eq!(node.channels(), 0);
    });
}

#[test]
fn a_handler_that_panics_fails_its_call_only() {
    run(async {
        let (node, _) = node();
        let client = Family::Unix.client(&node, "tester");
        for later in [false, true] {
            let error = client.panic(Note { flag: later, ..Note::default() }).await.expect_err("no answer");
            assert_eq!(error.kind(), ErrorKind::Internal);
        }
        client.echo(note(1)).await.expect("the channel is well");
    });
}

#[test]
fn descriptors_travel_with_their_message() {
    for family in [Family::Unix, Family::Local] {
        run(async {
            let (node, _) = node();
            let client = family.client(&node, "tester");
            let calls: Vec<_> = (0..100)
                .map(|n| {
                    let fds = vec![readable(&format!("{n}a ")), readable(&format!("{n}b"))];
                    client.read_all(Note { data: vec![0; 5000], ..Note::default() }, fds)
                })
                .collect();
            for (n, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.expect("a reply").text, format!("{n}a {n}b"));
            }
            let (_, fds) = client.open(note(3)).await.expect("descriptors");
            let again = client.read_all(Note::default(), fds).await.expect("a reply");
            assert_eq!(again.text, "file 0;file 1;file 2;");
        });
    }
}

#[test]
fn descriptors_nobody_wants_are_closed() {
    run(async {
        let (node, _) = node();
        let client = Family::Unix.client(&node, "tester");
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let request = note(1);
        let reply: Note =
            client.channel().call(ExerciseClient::ECHO, &request, vec![read]).await.expect("an echo");
        assert_eq!(reply.number, 1);
        settle().await;
        assert!(is_alone(&write), "the descriptor leaked");
    });
}

#[test]
fn descriptors_of_a_channel_that_closes_first_are_closed() {
    run(async {
        let (near, far) = Link::pair();
        let client = ExerciseClient::new(Channel::over(near));
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let call = client.read_all(Note::default(), vec![read]);
        drop(far);
        assert_eq!(call.await.expect_err("closed").kind(), ErrorKind::Disconnected);
        settle().await;
        assert!(is_alone(&write), "the descriptor leaked");
    });
}

#[test]
fn who_takes_a_socket_over_answers_what_was_asked_meanwhile() {
    run(async {
        let (first, exerciser) = node();
        let (near, far) = sockets();
        let served = first.attach(far, PeerIdentity::new("tester")).expect("attached");
        let client = ExerciseClient::new(Channel::connect(near).expect("a channel"));
        let hanging = client.hang(note(0));
        settle().await;
        let mut release = Box::pin(served.release());
        let early = tokio::time::timeout(Duration::from_millis(20), &mut release).await;
        early.expect_err("a call is in progress");
        drop(hanging);
        let socket = release.await.expect("nothing is under way");
        assert_eq!((first.channels(), client.channel().is_closed()), (0, false));
        let asked = client.echo(note(7));
        settle().await;
        let (second, _) = node();
        second.attach(socket, PeerIdentity::new("tester")).expect("attached");
        assert_eq!(asked.await.expect("an echo").number, 7);
        assert_eq!(exerciser.calls.get(), 0);
    });
}

#[test]
fn a_channel_whose_release_nobody_waits_for_any_more_goes_on() {
    run(async {
        let (node, exerciser) = node();
        let (near, far) = sockets();
        let served = node.attach(far, PeerIdentity::new("tester")).expect("attached");
        let client = ExerciseClient::new(Channel::connect(near).expect("a channel"));
        let hanging = client.hang(note(0));
        settle().await;
        let early = tokio::time::timeout(Duration::from_millis(20), served.release()).await;
        early.expect_err("a call is in progress");
        drop(hanging);
        client.echo(note(1)).await.expect("an echo");
        assert_eq!((exerciser.calls.get(), served.is_closed()), (1, false));
    });
}
