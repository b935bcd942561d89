//! All posts of the router, with the marks that they share, and the loop of each.

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixDatagram as StdDatagram,
    rc::Rc,
    time::Duration,
};

use holdfast_gate::{Marks, Side};
use holdfast_sys::{clock, memory::SharedMemory};
use tokio::{io::Interest, net::UnixDatagram, sync::watch};
use tracing::error;

use crate::post::{Post, Turn};

/// How often is looked at what is held while nothing rings: the lease may have ended.
const TICK: Duration = Duration::from_millis(20);

/// What the replicator has given: the marks, and both bells.
#[derive(Debug)]
pub struct Attachment {
    marks: RefCell<SharedMemory>,
    replicator: OwnedFd,
    gate: OwnedFd,
}

impl Attachment {
    /// The memory of marks, the bell of the replicator and that of the gate: ends of pipes, or eventfds.
    ///
    /// # Errors
    /// The memory is none of marks, or a bell cannot be used without waiting.
    pub fn new(marks: OwnedFd, replicator: OwnedFd, gate: OwnedFd) -> io::Result<Self> {
        let mut marks = SharedMemory::from_descriptor(marks)?;
        Marks::open(marks.words()).map_err(io::Error::other)?;
        for bell in [&replicator, &gate] {
            rustix::io::ioctl_fionbio(bell, true)?;
        }
        Ok(Self { marks: RefCell::new(marks), replicator, gate })
    }

    /// Calls with the marks.
    pub fn with_marks<T>(&self, body: impl FnOnce(Option<&Marks<'_>>) -> T) -> T {
        let mut memory = self.marks.borrow_mut();
        let marks = Marks::open(memory.words()).ok();
        body(marks.as_ref())
    }

    /// Wakes the replicator if it sleeps.
    fn ring(&self) {
        let must = self.with_marks(|marks| marks.is_some_and(|marks| marks.must_ring(Side::Replicator)));
        if must {
            // A bell that nobody hears is full at some time.
            let _ = rustix::io::write(&self.replicator, &1_u64.to_ne_bytes());
        }
    }

    /// The number of the memory's file: other marks have another.
    fn file(&self) -> Option<u64> {
        rustix::fs::fstat(self.marks.borrow().descriptor()).ok().map(|stat| stat.st_ino)
    }
}

/// All posts, with what they share.
#[derive(Debug)]
pub struct Station {
    attachment: RefCell<Option<Rc<Attachment>>>,
    posts: RefCell<Vec<Rc<RefCell<Post>>>>,
    /// Changes when the bell of the gate has rung, and when there are other marks.
    rung: watch::Sender<u64>,
    held: Cell<u64>,
}

impl Default for Station {
    fn default() -> Self {
        Self {
            attachment: RefCell::default(),
            posts: RefCell::default(),
            rung: watch::Sender::new(0),
            held: Cell::new(0),
        }
    }
}

impl Station {
    /// The attachment, if there is one.
    pub fn attachment(&self) -> Option<Rc<Attachment>> {
        self.attachment.borrow().clone()
    }

    /// The marks and bells are these from now on.
    pub fn attach(&self, attachment: Rc<Attachment>) {
        let before = self.attachment.replace(Some(Rc::clone(&attachment)));
        if before.is_some_and(|before| before.file() != attachment.file()) {
            self.posts.borrow().iter().for_each(|post| post.borrow_mut().use_other_marks());
        }
        self.rung.send_modify(|rung| *rung += 1);
    }

    /// Hears the bell of this attachment for as long as it is the one in use.
    ///
    /// # Errors
    /// The descriptor cannot be waited for.
    pub async fn hear(&self, attachment: Rc<Attachment>) -> io::Result<()> {
        let bell = readiness(&attachment.gate)?;
        loop {
            bell.readable().await?;
            if !self.attachment.borrow().as_ref().is_some_and(|now| Rc::ptr_eq(now, &attachment)) {
                return Ok(());
            }
            let read = || Ok(rustix::io::read(&attachment.gate, &mut [0; 8])?);
            match bell.try_io(Interest::READABLE, read) {
                // The replicator is gone: the next one brings other bells.
                Ok(0) => return Ok(()),
                Ok(_) => self.rung.send_modify(|rung| *rung += 1),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The posts.
    pub fn posts(&self) -> Vec<Rc<RefCell<Post>>> {
        self.posts.borrow().clone()
    }

    /// Adds a post, which is to be served by [`Self::serve`].
    pub fn add(&self, post: Rc<RefCell<Post>>) {
        self.posts.borrow_mut().push(post);
    }

    /// The post of this VRF is served no more: its task is to be ended.
    pub fn remove(&self, vrf: u32) {
        self.posts.borrow_mut().retain(|post| post.borrow().settings().vrf != vrf);
    }

    /// Serves a post until its queue cannot be read any more.
    ///
    /// # Errors
    /// As it cannot.
    pub async fn serve(&self, post: Rc<RefCell<Post>>) -> io::Result<()> {
        let (queue, watch) = {
            let post = post.borrow();
            let (queue, watch) = post.sockets();
            (readiness(queue)?, readiness(watch)?)
        };
        let mut rung = self.rung.subscribe();
        loop {
            // Our tables first: what others have done decides what may be held.
            tokio::select! {
                biased;
                ready = watch.readable() => {
                    ready?;
                    let look = || {
                        post.borrow_mut().look_at_tables();
                        // All of it was read.
                        Err::<(), _>(io::ErrorKind::WouldBlock.into())
                    };
                    let _ = watch.try_io(Interest::READABLE, look);
                }
                ready = queue.readable() => {
                    ready?;
                    let turn = || match self.turn(&post)?.more {
                        true => Ok(()),
                        false => Err(io::ErrorKind::WouldBlock.into()),
                    };
                    match queue.try_io(Interest::READABLE, turn) {
                        // Others have their turns, too.
                        Ok(()) => tokio::task::yield_now().await,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
                outcome = rung.changed() => {
                    outcome.map_err(io::Error::other)?;
                    self.work(&post).await?;
                }
                () = tokio::time::sleep(TICK), if is_waiting(&post) => {
                    if !post.borrow().has_tables() {
                        post.borrow_mut().look_at_tables();
                    }
                    self.work(&post).await?;
                }
            }
        }
    }

    /// Does what there is to do now. Others have their turns between.
    async fn work(&self, post: &RefCell<Post>) -> io::Result<()> {
        while self.turn(post)?.more {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// One turn of a post.
    ///
    /// # Errors
    /// Its queue cannot be read any more.
    pub fn turn(&self, post: &RefCell<Post>) -> io::Result<Turn> {
        let attachment = self.attachment();
        let turn = match &attachment {
            None => post.borrow_mut().turn(None, clock::since_boot),
            Some(attachment) => attachment.with_marks(|marks| {
                // Before anything is looked at: what is written from now on rings, so nothing is missed by sleeping afterwards.
                if let Some(marks) = marks {
                    marks.begin_sleep(Side::Gate);
                }
                post.borrow_mut().turn(marks, clock::since_boot)
            }),
        };
        let turn = turn.inspect_err(|error| error!(event = "gate-queue-lost", "the queue: {error}"))?;
        if let Some(attachment) = &attachment {
            let held = self.posts.borrow().iter().map(|post| post.borrow().flows().held() as u64).sum();
            if self.held.replace(held) != held {
                attachment.with_marks(|marks| {
                    if let Some(marks) = marks {
                        marks.set_held(held);
                    }
                });
            }
            if turn.news {
                attachment.ring();
            }
        }
        Ok(turn)
    }
}

fn is_waiting(post: &RefCell<Post>) -> bool {
    let post = post.borrow();
    post.flows().held() > 0 || !post.has_tables()
}

/// Only waited on, and for that a descriptor is a socket: tokio has no safe way to wait for a foreign one.
fn readiness(descriptor: &impl AsFd) -> io::Result<UnixDatagram> {
    UnixDatagram::from_std(StdDatagram::from(descriptor.as_fd().try_clone_to_owned()?))
}
