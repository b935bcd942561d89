//! A connection: what comes is read into a queue, KEEPALIVEs are sent beside everything else.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use holdfast_bgp_wire::{KEEPALIVE, MAX_EXTENDED_LEN, next_message};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, mpsc},
    task::JoinHandle,
};

use crate::received::Received;

/// What may wait to be looked at. Behind it nothing is read, so the peer has to wait.
const QUEUE: usize = 64;
/// Octets that are read at once.
const READ: usize = 1 << 16;

/// A connection that stands, or stood.
#[derive(Debug)]
pub(crate) struct Connection {
    incoming: mpsc::Receiver<Received>,
    writer: Arc<Mutex<OwnedWriteHalf>>,
    reader: JoinHandle<()>,
    keepalives: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let address = stream.local_addr()?;
        let (read, write) = stream.into_split();
        let (sender, incoming) = mpsc::channel(QUEUE);
        let reader = tokio::spawn(read_all(read, sender));
        Ok(Self { incoming, writer: Arc::new(Mutex::new(write)), reader, keepalives: None, address })
    }

    /// Ours.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn send(&self, octets: &[u8]) -> io::Result<()> {
        self.writer.lock().await.write_all(octets).await
    }

    /// What comes next. After the end only the end comes.
    pub(crate) async fn next(&mut self) -> Received {
        self.incoming.recv().await.unwrap_or(Received::End(None))
    }

    /// From now on a KEEPALIVE each `every`, or none.
    pub(crate) fn keep_alive(&mut self, every: Option<Duration>) {
        if let Some(task) = self.keepalives.take() {
            task.abort();
        }
        let writer = Arc::clone(&self.writer);
        self.keepalives = every.map(|every| {
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(every).await;
                    if writer.lock().await.write_all(&KEEPALIVE).await.is_err() {
                        return;
                    }
                }
            })
        });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        if let Some(task) = &self.keepalives {
            task.abort();
        }
    }
}

/// Messages as they become whole; once there is something that is none, whatever comes, as it comes.
async fn read_all(mut from: OwnedReadHalf, to: mpsc::Sender<Received>) {
    let (mut waiting, mut broken) = (Vec::new(), None);
    let mut buffer = vec![0; READ];
    let end = loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) => break None,
            Ok(length) => length,
            Err(error) => break Some(error.to_string()),
        };
        waiting.extend_from_slice(&buffer[..length]);
        let mut at = 0;
        while broken.is_none() {
            match next_message(&waiting[at..], MAX_EXTENDED_LEN) {
                Ok(Some(message)) => {
                    let octets = message.wire.to_vec();
                    at += octets.len();
                    if to.send(Received::Message(octets)).await.is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(why) => broken = Some(why),
            }
        }
        waiting.drain(..at);
        if let Some(why) = &broken
            && to.send(Received::Broken(std::mem::take(&mut waiting), why.clone())).await.is_err()
        {
            return;
        }
    };
    // Who does not listen any more does not want to know.
    let _ = to.send(Received::End(end)).await;
}
