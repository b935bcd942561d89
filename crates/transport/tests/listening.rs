//! A listening socket of TCP that is shut down.

use std::{net::TcpListener, rc::Rc, time::Duration};

use super::open::Open;
use holdfast_transport::{Listener, tcp};
use rustix::net::{Shutdown, shutdown};
use tokio::{runtime::Builder, task::LocalSet, time::timeout};

fn run(story: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let ended = LocalSet::new().block_on(&runtime, async { timeout(Duration::from_secs(60), story).await });
    ended.expect("the story hangs");
}

#[test]
fn a_socket_that_listens_no_more_ends_its_listener() {
    run(async {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let ours = socket.try_clone().expect("another descriptor").into();
        let mut listener = tcp::TcpListener::new(ours, Rc::new(Open)).expect("a listener");
        // As whoever has opened it does when the place that it is in has gone.
        shutdown(&socket, Shutdown::Both).expect("shut down");
        let failure = listener.accept().await.expect_err("it has ended");
        assert_eq!(failure.to_string(), "nobody listens at this socket any more");
    });
}
