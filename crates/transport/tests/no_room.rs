//! No descriptor is left for a connection. The limit is that of the process: nothing else is tested here.

mod open;

use std::{net::TcpListener, os::fd::AsRawFd, rc::Rc, time::Duration};

use holdfast_transport::{Listener, tcp};
use open::Open;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{net::TcpStream, runtime::Builder, time::timeout};

fn run(story: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ended = runtime.block_on(async { timeout(Duration::from_secs(60), story).await });
    ended.expect("the story hangs");
}

#[test]
fn connections_wait_while_there_is_no_room_for_their_descriptors() {
    run(async {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let to = socket.local_addr().expect("an address");
        let mut listener = tcp::TcpListener::new(socket.into(), Rc::new(Open)).expect("a listener");
        let waiting = TcpStream::connect(to).await.expect("the kernel takes it");
        let before = getrlimit(Resource::Nofile);
        // The next descriptor would be over it.
        let next = rustix::io::dup(&waiting).expect("a number").as_raw_fd();
        setrlimit(Resource::Nofile, Rlimit { current: Some(next as u64), ..before }).expect("lowered");
        tokio::time::pause();
        // It is tried again and again, and nothing else stops.
        let early = timeout(Duration::from_secs(2), listener.accept()).await;
        setrlimit(Resource::Nofile, before).expect("as it was");
        assert!(early.is_err(), "there was no room");
        tokio::time::resume();
        let accepted = listener.accept().await.expect("it has waited");
        assert_eq!(accepted.identity.remote, waiting.local_addr().expect("an address"));
    });
}
