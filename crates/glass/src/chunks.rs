//! A body that is sent while it is written.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

/// Octets of a chunk, more or less.
const CHUNK: usize = 16 << 10;
/// Chunks that wait for the socket.
const AHEAD: usize = 4;

/// What the reader is sent; an error ends the connection, so that it knows that the answer is not whole.
#[derive(Debug)]
pub(crate) struct Chunks(mpsc::Receiver<Result<Bytes, Broken>>);

/// The answer could not be written to its end.
#[derive(Debug)]
pub(crate) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the answer ends early")
    }
}

impl std::error::Error for Broken {}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.0.poll_recv(cx).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

impl Chunks {
    /// What needs no more than one.
    pub(crate) fn whole(text: String) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        // There is room for it.
        let _ = sender.try_send(Ok(text.into()));
        Self(receiver)
    }
}

/// Where an answer is written.
#[derive(Debug)]
pub(crate) struct Writer {
    chunks: mpsc::Sender<Result<Bytes, Broken>>,
    buffer: Vec<u8>,
}

/// A body, and where it is written.
pub(crate) fn pair() -> (Writer, Chunks) {
    let (sender, receiver) = mpsc::channel(AHEAD);
    (Writer { chunks: sender, buffer: Vec::new() }, Chunks(receiver))
}

impl io::Write for Writer {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Writer {
    /// Waits for the reader if there is a chunk; `None` if it is gone.
    pub(crate) async fn pace(&mut self) -> Option<()> {
        if self.buffer.len() < CHUNK { Some(()) } else { self.push().await }
    }

    /// The answer is whole.
    pub(crate) async fn finish(mut self) {
        let _ = self.push().await;
    }

    /// It is not, and never will be.
    pub(crate) async fn abandon(self) {
        let _ = self.chunks.send(Err(Broken)).await;
    }

    async fn push(&mut self) -> Option<()> {
        let chunk = std::mem::take(&mut self.buffer).into();
        self.chunks.send(Ok(chunk)).await.ok()
    }
}
