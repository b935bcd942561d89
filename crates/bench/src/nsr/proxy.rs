//! Makes a store slower: what it says comes later by a time that is always the same.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use holdfast_lab::netns::Namespace;

/// Where it listens, on the loopback of the host.
pub(super) const PORT: u16 = 6380;
/// Octets that are read at once.
const READ: usize = 64 << 10;
/// What the store has said and has not been passed on, in such pieces: then it waits.
const WAITING: usize = 1024;

/// It takes no more connections when this is dropped. Those that it has end with their ends.
#[derive(Debug)]
pub(super) struct Proxy {
    listener: TcpListener,
}

impl Proxy {
    /// Listens in a host, for a server that listens at a path.
    pub(super) fn start(host: &Namespace, socket: &Path, delay: Duration) -> Result<Self> {
        let listener = host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)))??;
        let (accepting, socket) = (listener.try_clone()?, socket.to_owned());
        thread::spawn(move || {
            while let Ok((stream, _)) = accepting.accept() {
                // One that cannot be carried is ended; the router tries again.
                let _ = carry(stream, &socket, delay);
            }
        });
        Ok(Self { listener })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Wakes who accepts.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn carry(router: TcpStream, socket: &Path, delay: Duration) -> io::Result<()> {
    router.set_nodelay(true)?;
    let server = UnixStream::connect(socket)?;
    let (mut asking, mut asked) = (router.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut asking, &mut asked);
        let _ = asked.shutdown(Shutdown::Both);
    });
    let (said, heard) = mpsc::sync_channel::<(Instant, Vec<u8>)>(WAITING);
    let mut saying = server;
    thread::spawn(move || {
        let mut room = vec![0; READ];
        while let Ok(count @ 1..) = saying.read(&mut room) {
            if said.send((Instant::now() + delay, room[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    let mut answering = router;
    thread::spawn(move || {
        for (due, octets) in heard {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if answering.write_all(&octets).is_err() {
                break;
            }
        }
        let _ = answering.shutdown(Shutdown::Both);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_says_comes_later_and_in_order() {
        let path = std::env::temp_dir().join(format!("holdfast-bench-{}-proxy", std::process::id()));
        let server = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut router = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
        let delay = Duration::from_millis(50);
        carry(listener.accept().expect("accepted").0, &path, delay).expect("carried");
        let (mut store, _) = server.accept().expect("the proxy");
        std::fs::remove_file(&path).expect("removed");
        let start = Instant::now();
        router.write_all(b"ask").expect("asked");
        let mut asked = [0; 3];
        store.read_exact(&mut asked).expect("asked");
        store.write_all(b"one").expect("said");
        store.write_all(b"two").expect("said");
        let mut said = [0; 6];
        router.read_exact(&mut said).expect("heard");
        assert_eq!((&asked, &said), (b"ask", b"onetwo"));
        assert!(start.elapsed() >= delay, "{:?}", start.elapsed());
    }
}
