//! Through two who carry, each between a connection and a local socket, octets and their end arrive as over one line.

use std::rc::Rc;

use holdfast_transport::{ByteCounters, Closed, carry};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    join,
    net::UnixStream,
    task::spawn_local,
};

use crate::tests::backends::{backend::Backend, for_every_backend, people::Pair};

for_every_backend! {
    what_is_said_before_the_end_is_carried,
    whoever_does_not_read_stops_whoever_writes_at_the_other_end,
}

/// A notification behind a table.
async fn what_is_said_before_the_end_is_carried(backend: &dyn Backend) {
    let Pair { dialed, accepted, .. } = Pair::new(backend).await;
    let (mut r1, inner) = UnixStream::pair().expect("a pair");
    let (mut r2, other) = UnixStream::pair().expect("a pair");
    let (sent, received) = (Rc::new(ByteCounters::default()), Rc::new(ByteCounters::default()));
    let carrying = spawn_local(carry(dialed, inner, sent.clone(), Rc::default()));
    let carried = spawn_local(carry(accepted, other, received.clone(), Rc::default()));
    let words: Vec<u8> = (0..1_000_003_u32).map(|number| (number % 251) as u8).collect();
    let ending = async {
        r1.write_all(&words).await.expect("it takes them");
        drop(r1);
    };
    let mut heard = Vec::new();
    let ((), read) = join!(ending, r2.read_to_end(&mut heard));
    read.expect("it ends in order");
    assert!(heard == words, "{} octets of {}", heard.len(), words.len());
    assert_eq!((sent.sent.get(), received.received.get()), (words.len() as u64, words.len() as u64));
    assert_eq!(carried.await.expect("no panic"), Closed::Peer(0, String::new()));
    // Whichever of both closes was first.
    let here = carrying.await.expect("no panic");
    assert!(matches!(&here, Closed::Here) || here == Closed::Peer(0, String::new()), "{here:?}");
}

async fn whoever_does_not_read_stops_whoever_writes_at_the_other_end(backend: &dyn Backend) {
    /// More than what kernels, windows and those who carry hold.
    const MOST: usize = 64 << 20;
    let Pair { dialed, accepted, .. } = Pair::new(backend).await;
    let (mut r1, inner) = UnixStream::pair().expect("a pair");
    let (r2, other) = UnixStream::pair().expect("a pair");
    let carrying = spawn_local(carry(dialed, inner, Rc::default(), Rc::default()));
    let carried = spawn_local(carry(accepted, other, Rc::default(), Rc::default()));
    let chunk = vec![3; 64 * 1024];
    let mut written = 0;
    tokio::time::pause();
    // Five seconds pass at once when nobody has anything to do.
    while let Ok(octets) = tokio::time::timeout(std::time::Duration::from_secs(5), r1.write(&chunk)).await {
        written += octets.expect("it is open");
        assert!(written < MOST, "it takes whatever comes");
    }
    // With all of it unread: that ends everything, in time.
    drop(r2);
    carried.await.expect("no panic");
    carrying.await.expect("no panic");
    r1.write_all(&chunk).await.expect_err("it has ended");
}
