//! The service that the tests call, and the ways to reach it.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use holdfast_xrl::{CallContext, Channel, Client, Link, Node, PeerIdentity, ReplySink, XrlError};

#[allow(missing_docs, unreachable_pub, unused_qualifications, dead_code, clippy::all, clippy::use_self)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/exercise/mod.rs"));
}

pub(crate) use generated::exercise::v1::*;

/// Does as asked, and keeps count.
#[derive(Default)]
pub(crate) struct Exerciser {
    pub(crate) calls: Cell<u64>,
    /// Calls of `Hang` that have begun and were not dropped.
    pub(crate) hanging: Rc<Cell<u64>>,
    /// Items of `Count` that have been sent.
    pub(crate) counted: Cell<u64>,
    /// How long `Echo` keeps everybody else waiting.
    pub(crate) takes: Cell<Duration>,
}

struct Hanging(Rc<Cell<u64>>);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl ExerciseServer for Exerciser {
    async fn echo(&self, _: &CallContext, request: Note) -> Result<Note, XrlError> {
        self.calls.set(self.calls.get() + 1);
        std::thread::sleep(self.takes.get());
        Ok(request)
    }

    async fn count(
        &self,
        _: &CallContext,
        request: Note,
        mut replies: ReplySink<Note>,
    ) -> Result<(), XrlError> {
        // With the data that was sent, or so many octets.
        let data = if request.signed > 0 { vec![7; request.signed as usize] } else { request.data };
        let item = |number| Note { number, data: data.clone(), ..Note::default() };
        if !request.list.is_empty() {
            return replies.send_all((0..request.number).map(item).collect()).await;
        }
        for number in 0..request.number {
            // As who walks over a table does; or as who has made all before.
            if !request.flag {
                replies.ready().await?;
            }
            replies.send(item(number)).await?;
            self.counted.set(number + 1);
        }
        Ok(())
    }

    async fn read_all(&self, _: &CallContext, _: Note, fds: Vec<OwnedFd>) -> Result<Note, XrlError> {
        let mut text = String::new();
        for fd in fds {
            File::from(fd).read_to_string(&mut text).map_err(|e| XrlError::internal(e.to_string()))?;
        }
        Ok(Note { text, ..Note::default() })
    }

    async fn open(&self, _: &CallContext, request: Note) -> Result<(Note, Vec<OwnedFd>), XrlError> {
        let fds = (0..request.number).map(|number| readable(&format!("file {number};"))).collect();
        Ok((request, fds))
    }

    async fn hang(&self, _: &CallContext, _: Note) -> Result<Note, XrlError> {
        self.hanging.set(self.hanging.get() + 1);
        let _hanging = Hanging(Rc::clone(&self.hanging));
        std::future::pending().await
    }

    async fn secret(&self, cx: &CallContext, _: Note) -> Result<Note, XrlError> {
        Ok(Note { text: format!("for {} only", cx.peer().role), ..Note::default() })
    }

    async fn routes(&self, _: &CallContext, request: Columns) -> Result<Note, XrlError> {
        Ok(Note { number: request.lengths.len() as u64, ..Note::default() })
    }

    async fn near(&self, _: &CallContext, request: Note) -> Result<Note, XrlError> {
        Ok(request)
    }

    async fn panic(&self, _: &CallContext, request: Note) -> Result<Note, XrlError> {
        if request.flag {
            tokio::task::yield_now().await;
        }
        panic!("as asked");
    }
}

/// A descriptor from which this text can be read.
pub(crate) fn readable(text: &str) -> OwnedFd {
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    File::from(write).write_all(text.as_bytes()).expect("room in the pipe");
    read
}

pub(crate) fn note(number: u64) -> Note {
    Note { number, ..Note::default() }
}

/// A node that serves an exerciser.
pub(crate) fn node() -> (Node, Rc<Exerciser>) {
    let (node, exerciser) = (Node::named("exercise", "exercise-1"), Rc::<Exerciser>::default());
    node.serve(ExerciseDispatcher(Rc::clone(&exerciser)));
    (node, exerciser)
}

/// How a test reaches the exerciser.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Family {
    Unix,
    Local,
    Tcp,
}

pub(crate) const FAMILIES: [Family; 3] = [Family::Unix, Family::Local, Family::Tcp];

impl Family {
    pub(crate) fn links(self) -> (Link, Link) {
        match self {
            Self::Unix => {
                let (near, far) = sockets();
                (Link::unix(near).expect("a link"), Link::unix(far).expect("a link"))
            }
            Self::Local => Link::pair(),
            Self::Tcp => {
                let (near, far) = connected();
                (Link::tcp(near.into()).expect("a link"), Link::tcp(far.into()).expect("a link"))
            }
        }
    }

    /// A client whose calls the node takes as coming from this role.
    pub(crate) fn client(self, node: &Node, role: &str) -> ExerciseClient {
        let (near, far) = self.links();
        node.attach_link(far, PeerIdentity::new(role));
        ExerciseClient::new(Channel::over(near))
    }
}

/// The two ends of a TCP connection.
pub(crate) fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    (near, listener.accept().expect("accepted").0)
}

pub(crate) fn sockets() -> (OwnedFd, OwnedFd) {
    let (near, far) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
    (near.into(), far.into())
}

/// Runs a story on the one thread that channels live on.
pub(crate) fn run(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(20), story).await.expect("in time");
    });
}

/// Lets everybody else do what they can do now.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Whether both ends of a pipe are held by nobody else.
pub(crate) fn is_alone(write: &impl AsFd) -> bool {
    let mut polled = [rustix::event::PollFd::new(write, rustix::event::PollFlags::empty())];
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&timeout)).expect("polls");
    polled[0].revents().contains(rustix::event::PollFlags::ERR)
}
