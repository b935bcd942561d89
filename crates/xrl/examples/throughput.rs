//! How fast calls go between two processes: routes in columnar batches, and small calls.
//!
//! `cargo run --release -p holdfast-xrl --example throughput`. Starts itself once more as the receiver, on a socket
//! pair. Routes: batches of 1000 rows, 16 calls under way, the receiver looks at every row.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_xrl::{Call, CallContext, Channel, Client, Node, PeerIdentity, ReplySink, XrlError};

#[allow(missing_docs, unreachable_pub, unused_qualifications, dead_code, clippy::all, clippy::use_self)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/exercise/mod.rs"));
}

use generated::exercise::v1::*;

const ROWS: usize = 1000;
const TIME: Duration = Duration::from_secs(3);

struct Receiver;

impl ExerciseServer for Receiver {
    async fn echo(&self, _: &CallContext, request: Note) -> Result<Note, XrlError> {
        Ok(request)
    }

    async fn routes(&self, _: &CallContext, request: Columns) -> Result<Note, XrlError> {
        let rows = request.addresses.chunks_exact(4).zip(&request.lengths).zip(&request.next_hops);
        let number = rows.map(|((a, len), hop)| u64::from(a[3]) + u64::from(*len) + u64::from(*hop)).sum();
        Ok(Note { number, ..Note::default() })
    }

    async fn count(&self, _: &CallContext, _: Note, _: ReplySink<Note>) -> Result<(), XrlError> {
        Ok(())
    }

    async fn read_all(&self, _: &CallContext, request: Note, _: Vec<OwnedFd>) -> Result<Note, XrlError> {
        Ok(request)
    }

    async fn open(&self, _: &CallContext, request: Note) -> Result<(Note, Vec<OwnedFd>), XrlError> {
        Ok((request, Vec::new()))
    }

    async fn hang(&self, _: &CallContext, request: Note) -> Result<Note, XrlError> {
        Ok(request)
    }

    async fn secret(&self, _: &CallContext, request: Note) -> Result<Note, XrlError> {
        Ok(request)
    }

    async fn near(&self, _: &CallContext, request: Note) -> Result<Note, XrlError> {
        Ok(request)
    }

    async fn panic(&self, _: &CallContext, request: Note) -> Result<Note, XrlError> {
        Ok(request)
    }
}

fn batch(first: u32) -> Columns {
    let rows = first..first + ROWS as u32;
    Columns {
        addresses: rows.clone().flat_map(|row| (row << 8).to_be_bytes()).collect(),
        lengths: vec![24; ROWS],
        next_hops: rows.map(|row| row % 100).collect(),
    }
}

/// Keeps so many calls under way; returns calls per second.
async fn rate(window: usize, begin: impl Fn(u32) -> Call<Note>) -> Result<f64, XrlError> {
    let (start, mut done) = (Instant::now(), 0u32);
    let mut under_way = VecDeque::new();
    while start.elapsed() < TIME {
        while under_way.len() < window {
            under_way.push_back(begin(done));
        }
        if let Some(call) = under_way.pop_front() {
            call.await?;
            done += 1;
        }
    }
    Ok(f64::from(done) / start.elapsed().as_secs_f64())
}

async fn measure(fd: OwnedFd) -> Result<(), Box<dyn std::error::Error>> {
    let client = ExerciseClient::new(Channel::connect(fd)?);
    let batches = rate(16, |done| client.routes(batch(done))).await?;
    println!(
        "{:>6.1} million routes/s in batches of {ROWS}, 16 calls under way",
        batches * ROWS as f64 / 1e6
    );
    for window in [1, 100, 1000] {
        let calls =
            rate(window, |number| client.echo(Note { number: number.into(), ..Note::default() })).await?;
        println!("{:>6.0} thousand small calls/s, {window} under way", calls / 1e3);
    }
    Ok(())
}

async fn receive(fd: OwnedFd) -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::new("exercise");
    node.serve(ExerciseDispatcher::new(Receiver));
    node.attach(fd, PeerIdentity::new("tester"))?.closed().await;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    if std::env::args().nth(1).as_deref() == Some("receive") {
        // The receiver's end is its standard input.
        return local.block_on(&runtime, receive(std::io::stdin().as_fd().try_clone_to_owned()?));
    }
    let (near, far) = UnixStream::pair()?;
    let mut receiver = Command::new(std::env::current_exe()?);
    let mut receiver = receiver.arg("receive").stdin(Stdio::from(OwnedFd::from(far))).spawn()?;
    local.block_on(&runtime, measure(near.into()))?;
    drop(local);
    receiver.wait()?;
    Ok(())
}
