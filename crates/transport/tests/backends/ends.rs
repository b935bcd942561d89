//! How connections end, and what both sides know of it.

use std::time::Duration;

use holdfast_transport::{Closed, Connection, Protocol};
use tokio::{
    io::{AsyncWriteExt, split},
    join,
    task::spawn_local,
    time::{sleep, timeout},
};

use crate::tests::backends::{
    backend::Backend,
    for_every_backend,
    people::{Pair, greet, rest, say},
};

for_every_backend! {
    an_end_says_why_where_it_can,
    whoever_waits_for_the_end_is_told,
    a_connection_that_was_dropped_has_ended_for_the_other,
    what_was_said_before_the_end_arrives,
    nothing_is_taken_after_the_end,
    whoever_cannot_go_on_writing_is_told_of_the_end,
    connections_outlive_their_listener,
    whoever_is_there_answers,
}

async fn an_end_says_why_where_it_can(backend: &dyn Backend) {
    let Pair { dialed, mut accepted, .. } = Pair::new(backend).await;
    dialed.control.close(7, "the peer was taken away");
    assert_eq!(dialed.control.closed().await, Closed::Here);
    rest(&mut accepted).await;
    let why = match (backend.abilities().says_why, backend.protocol()) {
        // Its library has no place for the text.
        (true, Protocol::QuicS2n) => Closed::Peer(7, String::new()),
        (true, _) => Closed::Peer(7, "the peer was taken away".to_owned()),
        (false, _) => Closed::Peer(0, String::new()),
    };
    assert_eq!(accepted.control.closed().await, why);
    // What comes later does not change it.
    accepted.control.close(8, "me too");
    assert_eq!(accepted.control.closed().await, why);
}

async fn whoever_waits_for_the_end_is_told(backend: &dyn Backend) {
    let Pair { dialed, accepted, .. } = Pair::new(backend).await;
    let Connection { control, stream, .. } = dialed;
    let ((), first, second) = join!(
        async {
            tokio::task::yield_now().await;
            control.close(0, "");
        },
        control.closed(),
        control.closed(),
    );
    assert_eq!((first, second), (Closed::Here, Closed::Here));
    drop((stream, accepted));
}

async fn a_connection_that_was_dropped_has_ended_for_the_other(backend: &dyn Backend) {
    let Pair { dialed, mut accepted, .. } = Pair::new(backend).await;
    drop(dialed);
    let (octets, _) = rest(&mut accepted).await;
    assert_eq!(octets, b"");
    assert_ne!(accepted.control.closed().await, Closed::Here);
}

async fn what_was_said_before_the_end_arrives(backend: &dyn Backend) {
    let Pair { mut dialed, mut accepted, .. } = Pair::new(backend).await;
    let words = vec![7; 300_000];
    let ending = async {
        say(&mut dialed, &words).await;
        dialed.stream.shutdown().await.expect("all of it is there");
        dialed.control.close(0, "");
    };
    let ((), (heard, _)) = join!(ending, rest(&mut accepted));
    assert!(heard == words, "{} octets of {}", heard.len(), words.len());
}

async fn nothing_is_taken_after_the_end(backend: &dyn Backend) {
    let Pair { mut dialed, accepted, .. } = Pair::new(backend).await;
    dialed.control.close(0, "");
    let written = async {
        dialed.stream.write_all(b"one more thing").await?;
        dialed.stream.flush().await
    };
    written.await.expect_err("it has ended");
    let (octets, _) = rest(&mut dialed).await;
    assert_eq!(octets, b"");
    drop(accepted);
}

async fn whoever_is_there_answers(backend: &dyn Backend) {
    let Pair { mut dialed, mut accepted, .. } = Pair::new(backend).await;
    assert!(dialed.control.answers().await && accepted.control.answers().await);
    greet(&mut dialed, &mut accepted).await;
    dialed.control.close(0, "");
    rest(&mut accepted).await;
    assert!(!dialed.control.answers().await, "it has ended here");
    assert!(!accepted.control.answers().await, "it was ended there");
}

async fn connections_outlive_their_listener(backend: &dyn Backend) {
    let Pair { mut dialed, mut accepted, door } = Pair::new(backend).await;
    door.close().await;
    greet(&mut dialed, &mut accepted).await;
}

async fn whoever_cannot_go_on_writing_is_told_of_the_end(backend: &dyn Backend) {
    for ends_here in [true, false] {
        let Pair { dialed, accepted, .. } = Pair::new(backend).await;
        let (_from, mut to) = split(dialed.stream);
        // A task of its own: nothing else wakes it.
        let writer = spawn_local(async move {
            let chunk = vec![3; 64 * 1024];
            while to.write_all(&chunk).await.is_ok() && to.flush().await.is_ok() {}
        });
        // Five seconds pass at once when it can write no more.
        tokio::time::pause();
        sleep(Duration::from_secs(5)).await;
        assert!(!writer.is_finished(), "it waits");
        match ends_here {
            true => dialed.control.close(0, ""),
            // With all of it unread.
            false => drop(accepted),
        }
        timeout(Duration::from_secs(5), writer).await.expect("it is told").expect("no panic");
        tokio::time::resume();
    }
}
