//! A channel: many calls at a time, in both directions, over one link.
//!
//! Calls only append to an outbox; one task per channel (the driver) reads, carries out what arrives, and writes the
//! outbox once per turn of the event loop, so that many small frames become one system call.
//!
//! What bounds the memory of a channel: the window of calls in progress ([`WINDOW_CALLS`], [`WINDOW_BYTES`]), kept by
//! the caller and enforced by the receiver; the credit of each stream ([`STREAM_WINDOW`]); the longest frame. A peer
//! that stops reading makes callers wait; one that goes on calling without reading the replies is cut off.
//!
//! [`WINDOW_CALLS`]: crate::WINDOW_CALLS
//! [`WINDOW_BYTES`]: crate::WINDOW_BYTES
//! [`STREAM_WINDOW`]: crate::STREAM_WINDOW

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use prost::Message;
use tokio::sync::{Notify, oneshot};
use tokio::task::spawn_local;

use crate::call::{Call, CallWithFds, RawCall, ReplyStream};
use crate::calls::{Calls, Payload, WINDOW_CALLS, cost};
use crate::component::v1 as component;
use crate::counts;
use crate::driver::{Driver, Ending};
use crate::frame::{Header, Kind, MAX_BODY, MAX_FDS};
use crate::link::{Family, Link};
use crate::outbox::Outbox;
use crate::parts::Incoming;
use crate::readers::{self, Postponed, Reader};
use crate::service::{Body, CallContext, IncomingCall, Responder, Service};
use crate::serving::Serving;
use crate::traffic;
use crate::{Key, PeerIdentity, XrlError};

/// One end of a connection between two components. Clones are the same channel; when the last is dropped it closes.
#[derive(Clone)]
pub struct Channel(Rc<Handle>);

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared().state.borrow();
        write!(f, "Channel({})", state.closed.as_ref().map_or("open".to_owned(), ToString::to_string))
    }
}

impl Channel {
    /// A channel to call over, on a connected Unix stream socket. The other side cannot call anything here; see
    /// `Node::attach` for channels on which it can. Must be called within a tokio `LocalSet`.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    pub fn connect(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self::over(Link::unix(fd)?))
    }

    /// As [`connect`](Self::connect), on any link.
    pub fn over(link: Link) -> Self {
        Self::serving(link, Rc::new(ServesNothing))
    }

    pub(crate) fn serving(link: Link, acceptor: Rc<dyn Acceptor>) -> Self {
        let state = State { reader: acceptor.reader(), ..State::default() };
        let shared = Rc::new_cyclic(|this| Shared {
            this: this.clone(),
            state: state.into(),
            handle: RefCell::default(),
            family: link.family(),
            inode: link.inode(),
            acceptor,
            changed: Notify::new(),
        });
        traffic::opened(&shared);
        spawn_local(Driver::new(Rc::clone(&shared), link));
        let handle = Rc::new(Handle(shared));
        *handle.0.handle.borrow_mut() = Rc::downgrade(&handle);
        Self(handle)
    }

    fn shared(&self) -> &Rc<Shared> {
        &self.0.0
    }

    /// Calls a method by number. The request goes out at once (in order with other calls of this channel), or as
    /// soon as the window allows; see [`ready`](Self::ready). Dropping the result cancels the call.
    pub fn call<Q: Message, P: Message + Default>(
        &self,
        method: u32,
        request: &Q,
        fds: Vec<OwnedFd>,
    ) -> Call<P> {
        Call::new(self.start(method, request, fds))
    }

    /// Calls a method with a request that is encoded already.
    pub fn call_encoded<P: Message + Default>(&self, method: u32, request: impl Into<Bytes>) -> Call<P> {
        let request = request.into();
        let begin =
            |state: &mut State| state.calls.start_encoded(method, request, Vec::new(), &mut state.outbox);
        Call::new(self.begin(begin))
    }

    /// Calls a method that returns descriptors.
    pub fn call_with_fds<Q: Message, P: Message + Default>(
        &self,
        method: u32,
        request: &Q,
        fds: Vec<OwnedFd>,
    ) -> CallWithFds<P> {
        CallWithFds::new(self.start(method, request, fds))
    }

    /// Calls a method that answers with a stream.
    pub fn open<Q: Message, P: Message + Default>(
        &self,
        method: u32,
        request: &Q,
        fds: Vec<OwnedFd>,
    ) -> ReplyStream<P> {
        ReplyStream::new(self.start(method, request, fds))
    }

    /// Calls a method without knowing its types.
    pub(crate) fn start<Q: Message>(&self, method: u32, request: &Q, fds: Vec<OwnedFd>) -> RawCall {
        let carried = self.shared().carries(&fds);
        self.begin(|state| carried.and_then(|()| state.calls.start(method, request, fds, &mut state.outbox)))
    }

    fn begin(&self, start: impl FnOnce(&mut State) -> Result<u32, XrlError>) -> RawCall {
        let state = &mut *self.shared().state.borrow_mut();
        let started = match &state.closed {
            Some(reason) => Err(reason.clone()),
            None => start(state),
        };
        state.wake_driver();
        RawCall::new(self.clone(), started)
    }

    /// Presents a key to the other side: what it opens may be called from now on.
    pub fn present(&self, key: &Key) {
        let header = Header { call: 0, method: 0, kind: Kind::Hello, fds: 0 };
        self.shared().push_bytes(header, key.as_bytes());
    }

    /// Waits until the window has room for another call. A loop that sends without awaiting each answer waits here.
    ///
    /// # Errors
    /// `Disconnected` when the channel closes.
    pub async fn ready(&self) -> Result<(), XrlError> {
        self.wait(|state| state.calls.is_ready()).await
    }

    /// Waits until everything sent so far has been handed to the link.
    ///
    /// # Errors
    /// `Disconnected` when the channel closes.
    pub async fn flush(&self) -> Result<(), XrlError> {
        self.wait(|state| state.outbox.len() == 0).await
    }

    /// Waits until the channel has closed, and says why.
    pub async fn closed(&self) -> XrlError {
        // The condition is never met, so this ends with the channel.
        self.wait(|_| false).await.err().unwrap_or_else(closed_here)
    }

    async fn wait(&self, condition: impl Fn(&State) -> bool) -> Result<(), XrlError> {
        loop {
            match &*self.shared().state.borrow() {
                State { closed: Some(reason), .. } => return Err(reason.clone()),
                state if condition(state) => return Ok(()),
                _ => {}
            }
            self.shared().changed.notified().await;
        }
    }

    /// Closes the channel now, on both sides. Frames not yet written are lost.
    pub fn close(&self) {
        self.shared().close(closed_here());
    }

    /// Gives back the socket, for somebody who goes on where this channel ends. Waits until nothing is under way in
    /// either direction, and closes the channel here; what the peer sends from then on waits in the socket.
    ///
    /// # Errors
    /// `Disconnected` when the channel closes before, also because it is not on a socket.
    pub async fn release(&self) -> Result<OwnedFd, XrlError> {
        let (give, given) = oneshot::channel();
        let driver = {
            let mut state = self.shared().state.borrow_mut();
            if let Some(reason) = &state.closed {
                return Err(reason.clone());
            }
            state.release = Some(give);
            state.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
        given.await.map_err(|_| XrlError::disconnected("closed before it could be released"))
    }

    /// Whether it has closed.
    pub fn is_closed(&self) -> bool {
        self.shared().state.borrow().closed.is_some()
    }

    /// What carries it.
    pub fn family(&self) -> Family {
        self.shared().family
    }

    /// Octets that wait to be written.
    pub fn unwritten(&self) -> usize {
        self.shared().state.borrow().outbox.len()
    }

    /// A number that no other channel of this process has while this one lives.
    pub fn id(&self) -> usize {
        Rc::as_ptr(&self.0).addr()
    }

    /// What is known of it, with who is at the other end.
    pub(crate) fn describe(&self, peer: &PeerIdentity) -> component::Channel {
        let state = self.shared().state.borrow();
        component::Channel {
            role: peer.role.clone(),
            instance: peer.instance.clone(),
            family: self.family().name().to_owned(),
            inode: self.shared().inode,
            serving: state.serving.len() as u32,
            calling: state.calls.len() as u32,
            unwritten: state.outbox.len() as u64,
        }
    }

    /// Since when a caller from outside has nothing to do here; those that have calls under way come later.
    pub(crate) fn idle_since(&self) -> Option<(bool, Instant)> {
        self.shared().state.borrow().idle_since()
    }

    pub(crate) fn poll_end(&self, id: u32, cx: &mut Context<'_>) -> Poll<Result<Payload, XrlError>> {
        self.shared().state.borrow_mut().calls.poll_end(id, cx)
    }

    pub(crate) fn poll_item(&self, id: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Payload>, XrlError>> {
        self.shared().with(|state| state.calls.poll_item(id, cx, &mut state.outbox))
    }

    pub(crate) fn forget(&self, id: u32) {
        self.shared().with(|state| state.calls.forget(id, &mut state.outbox));
        self.shared().changed.notify_waiters();
    }

    pub(crate) fn detach(&self, id: u32) {
        self.shared().with(|state| state.calls.detach(id));
    }
}

pub(crate) fn closed_here() -> XrlError {
    XrlError::disconnected("closed by this side")
}

/// Closes the channel when its last user has gone.
struct Handle(Rc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close(closed_here());
    }
}

/// Who decides what arrives on a channel.
pub(crate) trait Acceptor {
    /// The peer presents a key. An error closes the channel.
    fn hello(&self, key: &[u8]) -> Result<(), XrlError>;
    /// Who carries out a method, and as whose call.
    fn route(&self, method: u32) -> Result<(Rc<dyn Service>, Rc<PeerIdentity>), XrlError>;
    /// Who the peer is, in a few words.
    fn peer(&self) -> String;
    /// The same, if it is a caller from outside of the router.
    fn reader(&self) -> Option<Reader>;
    /// The channel has closed.
    fn closed(&self);
}

struct ServesNothing;

impl Acceptor for ServesNothing {
    fn hello(&self, _: &[u8]) -> Result<(), XrlError> {
        Err(XrlError::denied("no key opens anything here"))
    }

    fn route(&self, _: u32) -> Result<(Rc<dyn Service>, Rc<PeerIdentity>), XrlError> {
        Err(XrlError::not_found("nothing can be called on this side of the channel"))
    }

    fn peer(&self) -> String {
        String::new()
    }

    fn reader(&self) -> Option<Reader> {
        None
    }

    fn closed(&self) {}
}

/// Octets that a process of the router may leave unread on a channel and go on calling. Replies of calls within the window,
/// and requests within ours, are far from this unless replies are large and the peer does not read. For callers from outside
/// see [`MOST_UNREAD`](crate::MOST_UNREAD).
pub const MAX_UNREAD: usize = 64 << 20;

/// Items that wait for credit.
#[derive(Debug)]
pub(crate) struct Held {
    channel: Rc<Shared>,
    octets: usize,
}

impl Held {
    /// Some of them do not.
    pub(crate) fn release(&mut self, octets: usize) {
        self.octets -= octets;
        self.channel.with(|state| state.reader.iter_mut().for_each(|reader| reader.release(octets)));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release(self.octets);
    }
}

/// What handles, driver and calls being carried out share.
pub(crate) struct Shared {
    this: Weak<Self>,
    pub(crate) state: RefCell<State>,
    handle: RefCell<Weak<Handle>>,
    family: Family,
    inode: u64,
    acceptor: Rc<dyn Acceptor>,
    /// Window, outbox or closing: see `Channel::wait`.
    pub(crate) changed: Notify,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// What the two sides of a channel have to remember.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) outbox: Outbox,
    pub(crate) calls: Calls,
    pub(crate) serving: Serving,
    /// The beginning of a long request of the peer.
    pub(crate) incoming: Option<Incoming>,
    pub(crate) closed: Option<XrlError>,
    /// Wakes the driver.
    pub(crate) driver: Option<Waker>,
    /// The peer, if it is a caller from outside of the router.
    pub(crate) reader: Option<Reader>,
    /// What is written yet of a channel that has closed.
    pub(crate) last_words: Option<Outbox>,
    /// Who takes the socket once nothing is under way.
    pub(crate) release: Option<oneshot::Sender<OwnedFd>>,
}

impl State {
    /// Writes more of a long request, if there is room for more.
    pub(crate) fn feed(&mut self) {
        self.calls.feed(&mut self.outbox);
    }

    /// Everything that was begun ends.
    fn end(&mut self, reason: XrlError) {
        self.calls.close(&reason);
        self.serving.close();
        self.incoming = None;
        self.reader = None;
        self.outbox.clear();
        self.closed = Some(reason);
        self.release = None;
        self.wake_driver();
    }

    fn wake_driver(&mut self) {
        if self.outbox.len() == 0 && self.closed.is_none() {
            return;
        }
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}

impl Shared {
    /// Changes the state; the driver writes what comes of it.
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.borrow_mut();
        let result = change(&mut state);
        if state.closed.is_some() {
            state.outbox.clear();
        }
        state.charge();
        state.wake_driver();
        drop(state);
        readers::relieve();
        result
    }

    pub(crate) fn push_bytes(&self, header: Header, body: &[u8]) {
        self.with(|state| state.outbox.push_bytes(header, body, Vec::new()));
    }

    pub(crate) fn close(&self, reason: XrlError) {
        let mut state = self.state.borrow_mut();
        if state.closed.is_some() {
            return;
        }
        state.end(reason);
        drop(state);
        self.changed.notify_waiters();
        self.acceptor.closed();
    }

    /// Closes the channel of a reader that leaves too much unread. It is told why behind the frame that is under way, as soon
    /// as it reads again.
    pub(crate) fn cut_off(&self) {
        counts::add(|counts| &counts.disconnected, 1);
        let reason = readers::too_much_unread();
        tracing::warn!(event = "reader-disconnected", peer = self.acceptor.peer(), "{}", reason.message());
        let mut state = self.state.borrow_mut();
        state.last_words = readers::last_words(std::mem::take(&mut state.outbox), &reason);
        state.end(XrlError::disconnected(format!("closed by this side: {}", reason.message())));
        drop(state);
        readers::part(&self.this);
        self.changed.notify_waiters();
        // Whoever has sent too much may be in the middle of something.
        if let Some(this) = self.this.upgrade() {
            spawn_local(async move { this.acceptor.closed() });
        }
    }

    /// Another channel that has closed needs the place.
    pub(crate) fn say_no_more(&self) {
        let mut state = self.state.borrow_mut();
        state.last_words = None;
        state.wake_driver();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.borrow().closed.is_some()
    }

    /// Whether the family carries these descriptors.
    fn carries(&self, fds: &[OwnedFd]) -> Result<(), XrlError> {
        match self.family {
            Family::Tcp if !fds.is_empty() => {
                Err(XrlError::invalid_argument("descriptors do not travel over tcp"))
            }
            _ => Ok(()),
        }
    }

    /// Answers a call of the peer. Does nothing if it has been answered or cancelled.
    pub(crate) fn reply<P: Message>(&self, id: u32, reply: &P, fds: Vec<OwnedFd>) {
        if let Err(error) = self.carries(&fds) {
            return self.fail(id, &error);
        }
        if reply.encoded_len() > MAX_BODY || fds.len() > MAX_FDS {
            return self.fail(id, &XrlError::internal("the reply is too large"));
        }
        self.with(|state| {
            if state.serving.finish(id) {
                let header = Header { call: id, method: 0, kind: Kind::Reply, fds: 0 };
                state.outbox.push(header, reply, fds);
            }
        });
    }

    /// Answers a call of the peer with an error. Does nothing if it has been answered or cancelled.
    pub(crate) fn fail(&self, id: u32, error: &XrlError) {
        self.with(|state| {
            if state.serving.finish(id) {
                let header = Header { call: id, method: 0, kind: Kind::Error, fds: 0 };
                state.outbox.push_bytes(header, &error.encode(), Vec::new());
            }
        });
    }

    /// Items of so many octets wait for credit until what comes back is dropped.
    pub(crate) fn hold(&self, octets: impl FnOnce() -> usize) -> Option<Held> {
        let this = self.this.upgrade().filter(|_| self.state.borrow().reader.is_some())?;
        let octets = octets();
        self.with(|state| state.reader.iter_mut().for_each(|reader| reader.hold(octets)));
        Some(Held { channel: this, octets })
    }

    pub(crate) fn poll_credit(&self, id: u32, cx: &mut Context<'_>) -> Poll<Result<(), XrlError>> {
        let state = &mut *self.state.borrow_mut();
        state.serving.poll_credit(id, state.outbox.len(), cx)
    }

    /// Sends one message of a stream. The credit for it was awaited.
    pub(crate) fn item<P: Message>(&self, id: u32, item: &P, fds: Vec<OwnedFd>) -> Result<(), XrlError> {
        let len = item.encoded_len();
        if len > MAX_BODY || fds.len() > MAX_FDS {
            return Err(XrlError::internal("an item of the stream is too large"));
        }
        self.carries(&fds)?;
        self.with(|state| {
            if !state.serving.spend(id, cost(len)) {
                return Err(XrlError::cancelled("the caller has lost interest"));
            }
            state.outbox.push(Header { call: id, method: 0, kind: Kind::Item, fds: 0 }, item, fds);
            Ok(())
        })
    }

    /// A frame has arrived.
    ///
    /// # Errors
    /// When the channel must close; the text is for the peer.
    pub(crate) fn receive(&self, header: Header, body: &[u8], fds: Vec<OwnedFd>) -> Result<(), Ending> {
        let id = header.call;
        let payload = |fds| Payload { body: Bytes::copy_from_slice(body), fds };
        match header.kind {
            Kind::Hello => self.acceptor.hello(body)?,
            Kind::Part => self.join(header, body)?,
            Kind::Call => match self.joined(id) {
                None => self.serve(header, body.into(), fds)?,
                Some(beginning) => self.serve(header, Body::Whole(beginning.end(body)?), fds)?,
            },
            Kind::Error if id == 0 => return Err(Ending::Theirs(XrlError::decode(body))),
            Kind::Reply => self.end(id, Ok(payload(fds))),
            Kind::Error => self.end(id, Err(XrlError::decode(body))),
            Kind::Item => self.with(|state| state.calls.item(id, payload(fds)))?,
            Kind::Cancel => self.with(|state| {
                state.serving.cancel(id);
                state.incoming.take_if(|incoming| incoming.is_of(id));
                state.reader.iter_mut().for_each(|reader| reader.forget(id));
            }),
            Kind::Credit => {
                let octets = body.try_into().map_err(|_| XrlError::internal("a credit without a number"))?;
                self.with(|state| state.serving.credit(id, u32::from_be_bytes(octets)));
            }
        }
        Ok(())
    }

    fn end(&self, id: u32, end: Result<Payload, XrlError>) {
        self.with(|state| state.calls.end(id, end, &mut state.outbox));
        self.changed.notify_waiters();
    }

    /// A part of a request has arrived. Only a peer that may make the call has it kept.
    fn join(&self, header: Header, part: &[u8]) -> Result<(), XrlError> {
        if self.state.borrow().incoming.is_none() {
            let may_call = self.acceptor.route(header.method).is_ok();
            self.state.borrow_mut().incoming = Some(Incoming::new(header.call, may_call));
        }
        self.with(|state| {
            let Some(incoming) = &mut state.incoming else { return Ok(()) };
            if !incoming.is_of(header.call) {
                return Err(XrlError::internal("parts of two requests at a time"));
            }
            incoming.push(part)
        })
    }

    /// What has arrived before of the request of this call.
    fn joined(&self, call: u32) -> Option<Incoming> {
        self.state.borrow_mut().incoming.take_if(|incoming| incoming.is_of(call))
    }

    /// Carries out a call of the peer, or lets it wait for its turn.
    fn serve(&self, header: Header, body: Body<'_>, fds: Vec<OwnedFd>) -> Result<(), XrlError> {
        let waits = self.with(|state| {
            let is_too_much = state.reader.is_none() && state.outbox.len() > MAX_UNREAD;
            if is_too_much || state.outbox.frames_with_fds() > WINDOW_CALLS {
                counts::add(|counts| &counts.cut_off, 1);
                return Err(XrlError::internal("calls without reading the replies"));
            }
            state.serving.begin(header.call, cost(body.len()))?;
            Ok(state.waits())
        })?;
        if waits {
            let call = Postponed { header, body: body.into_bytes(), fds };
            self.with(|state| state.postpone(call));
        } else {
            self.carry_out(header, body, fds);
        }
        Ok(())
    }

    /// Carries out calls that have waited for their turn. Whether there was time for all whose turn it is.
    pub(crate) fn take_turns(&self, end: Instant) -> bool {
        loop {
            let call = self.state.borrow_mut().take_turn();
            let Some(Postponed { header, body, fds }) = call else { return true };
            self.carry_out(header, Body::Whole(body), fds);
            if Instant::now() >= end {
                return false;
            }
        }
    }

    /// Carries out a call of the peer: at once as far as it goes without waiting, the rest in a task of its own.
    fn carry_out(&self, header: Header, body: Body<'_>, fds: Vec<OwnedFd>) {
        let (Some(this), Some(handle)) = (self.this.upgrade(), self.handle.borrow().upgrade()) else {
            return;
        };
        counts::add(|counts| &counts.calls_served, 1);
        let responder = Responder::new(this, header.call);
        let (service, peer) = match self.acceptor.route(header.method) {
            Ok(route) => route,
            Err(error) => {
                counts::add(|counts| &counts.calls_refused, 1);
                return responder.fail(&error);
            }
        };
        let context = CallContext::new(header.method, peer, Channel(handle));
        let mut handler = service.dispatch(IncomingCall::new(context, body, fds, responder));
        // The first poll happens here, so that calls begin in the order of their arrival.
        let cx = &mut Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx)));
        if let Ok(Poll::Pending) = polled {
            let task = spawn_local(handler).abort_handle();
            self.state.borrow_mut().serving.continues(header.call, task);
        }
    }
}
