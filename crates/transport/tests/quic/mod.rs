//! QUIC by noq: what is special to it. What holds for every transport is in `tests/backends`.

mod admission;
mod closing;
mod gate;
mod life;
mod peers;
pub(super) mod relay;
mod restart;

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use holdfast_tls::Seeds;
use holdfast_transport::{
    Connection, Expected, Failure, Listener, Stream,
    noq::{Endpoint, NoqListener},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    join, select,
    task::LocalSet,
    time::{sleep, timeout},
};

/// Runs a test on one thread. The time is for tests that hang.
fn run(test: impl Future<Output = ()>) {
    run_for(Duration::from_secs(60), test);
}

/// [`run`], for a clock that is told to go on.
fn run_for(limit: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let test = async { timeout(limit, test).await };
    LocalSet::new().block_on(&runtime, test).expect("it ends");
}

/// Seeds of as many generations, the current one first.
fn seeds(generations: &[u8]) -> Seeds {
    let seeds: Vec<Vec<u8>> = generations.iter().map(|&octet| vec![octet; 64]).collect();
    Seeds::new(&seeds).expect("seeds")
}

/// A socket at 127.0.0.1.
fn endpoint() -> Endpoint {
    endpoint_at("127.0.0.1:0")
}

fn endpoint_at(address: &str) -> Endpoint {
    let udp = UdpSocket::bind(address).expect("a socket");
    Endpoint::new(udp, &seeds(&[1])).expect("an endpoint")
}

/// Both ends of a connection.
async fn meet(
    client: &Endpoint,
    to: SocketAddr,
    expected: &Expected,
    listener: &mut NoqListener,
) -> (Connection, Connection) {
    let (dialed, accepted) = join!(client.connect(to, None, expected), listener.accept());
    let (dialed, mut accepted) = (dialed.expect("dialed"), accepted.expect("accepted"));
    drop(accepted.permit.take());
    (dialed, accepted)
}

/// Why there is no connection.
async fn fails(
    client: &Endpoint,
    to: SocketAddr,
    expected: &Expected,
    listener: &mut NoqListener,
) -> Failure {
    select! {
        dialed = client.connect(to, None, expected) => dialed.expect_err("no connection"),
        accepted = listener.accept() => panic!("accepted: {accepted:?}"),
    }
}

/// Lets the listener work until something has happened.
async fn until(listener: &mut NoqListener, happened: impl Fn() -> bool) {
    while !happened() {
        select! {
            accepted = listener.accept() => panic!("accepted: {accepted:?}"),
            () = sleep(Duration::from_millis(1)) => {}
        }
    }
}

/// Octets from one end to the other; the first ones of a connection go from whoever dialed.
async fn pass(octets: &[u8], from: &mut Box<dyn Stream>, to: &mut Box<dyn Stream>) {
    let mut received = vec![0; octets.len()];
    let (written, read) = join!(from.write_all(octets), to.read_exact(&mut received));
    written.expect("written");
    read.expect("read");
    assert_eq!(received, octets);
}

/// Back and forth.
async fn talk(dialed: &mut Connection, accepted: &mut Connection) {
    pass(b"from the dialer", &mut dialed.stream, &mut accepted.stream).await;
    pass(b"from the listener", &mut accepted.stream, &mut dialed.stream).await;
}
