//! What a server implements and is given. Generated code stands between this and the server traits.

use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use prost::Message;

use crate::channel::Shared;
use crate::{Channel, Family, PeerIdentity, XrlError};

/// What is known of a service at build time.
#[derive(Debug)]
pub struct ServiceInfo {
    /// Full protobuf name ("bgp.v1.Bgp").
    pub name: &'static str,
    /// Number: the upper 16 bits of its methods' numbers.
    pub id: u16,
    /// Class under which it is found besides its process's own; may be empty.
    pub class: &'static str,
    /// Its methods.
    pub methods: &'static [MethodInfo],
    /// An encoded `FileDescriptorSet` that describes it completely.
    pub descriptor_set: &'static [u8],
}

impl ServiceInfo {
    /// The method with this number.
    pub fn method(&self, id: u32) -> Option<&'static MethodInfo> {
        self.methods.iter().find(|method| method.id == id)
    }

    /// Interface and version as in the text form: the package ("bgp.v1").
    pub fn interface(&self) -> &'static str {
        self.name.rsplit_once('.').map_or("", |(package, _)| package)
    }
}

/// What is known of a method at build time.
#[derive(Debug)]
pub struct MethodInfo {
    /// Number on the wire.
    pub id: u32,
    /// Name as in the interface file ("ShowSummary").
    pub name: &'static str,
    /// Roles that may call it; "*" for any.
    pub roles: &'static [&'static str],
    /// Interface version that introduced it.
    pub since: u32,
    /// It answers with a stream.
    pub streaming: bool,
    /// Names of the families over which it may be called.
    pub families: &'static [&'static str],
}

impl MethodInfo {
    /// Whether a caller with this role may call it.
    pub fn allows(&self, role: &str) -> bool {
        self.roles.iter().any(|allowed| *allowed == "*" || *allowed == role)
    }

    /// Whether it may be called over this family.
    pub fn travels(&self, family: Family) -> bool {
        self.families.contains(&family.name())
    }
}

/// A service that a node can serve; implemented by generated dispatchers.
pub trait Service {
    /// What it is.
    fn info(&self) -> &'static ServiceInfo;

    /// Begins to carry out a call. What comes back runs until the call has its answer.
    fn dispatch(&self, call: IncomingCall<'_>) -> Handler;
}

/// A client stub; implemented by generated clients.
pub trait Client: Clone {
    /// The service it calls.
    const SERVICE: &'static ServiceInfo;

    /// Calls over this channel.
    fn new(channel: Channel) -> Self;

    /// The channel.
    fn channel(&self) -> &Channel;
}

/// A client of a service that takes a part of the configuration; implemented by generated clients of those that have the
/// method `Configure`.
pub trait Configure: Client {
    /// The part.
    type Configuration: Message;

    /// Number of the method.
    const METHOD: u32;
}

/// A call being carried out. Dropped when the caller cancels or the channel closes.
pub type Handler = Pin<Box<dyn Future<Output = ()>>>;

/// Who calls, and over what.
#[derive(Debug)]
pub struct CallContext {
    method: u32,
    peer: Rc<PeerIdentity>,
    channel: Channel,
}

impl CallContext {
    pub(crate) fn new(method: u32, peer: Rc<PeerIdentity>, channel: Channel) -> Self {
        Self { method, peer, channel }
    }

    /// Number of the method.
    pub fn method(&self) -> u32 {
        self.method
    }

    /// The caller: as it was attached, or as the key it presented says.
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }

    /// The channel that the call came over.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }
}

/// The body of a call that has arrived.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    /// Where it was read into.
    Borrowed(&'a [u8]),
    /// In memory of its own: fields of octets are not copied.
    Whole(Bytes),
}

impl<'a> From<&'a [u8]> for Body<'a> {
    fn from(body: &'a [u8]) -> Self {
        Self::Borrowed(body)
    }
}

impl Body<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Borrowed(body) => body.len(),
            Self::Whole(body) => body.len(),
        }
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Borrowed(body) => Bytes::copy_from_slice(body),
            Self::Whole(body) => body,
        }
    }

    fn decode<Q: Message + Default>(self) -> Result<Q, prost::DecodeError> {
        match self {
            Self::Borrowed(body) => Q::decode(body),
            Self::Whole(body) => Q::decode(body),
        }
    }
}

/// A call that has arrived and is allowed. Generated code calls exactly one of the methods below.
#[derive(Debug)]
pub struct IncomingCall<'a> {
    context: CallContext,
    body: Body<'a>,
    fds: Vec<OwnedFd>,
    responder: Responder,
}

impl<'a> IncomingCall<'a> {
    pub(crate) fn new(context: CallContext, body: Body<'a>, fds: Vec<OwnedFd>, responder: Responder) -> Self {
        Self { context, body, fds, responder }
    }

    /// Number of the method.
    pub fn method(&self) -> u32 {
        self.context.method
    }

    /// Carries it out with one answer.
    pub fn unary<Q, P, F, R>(self, serve: F) -> Handler
    where
        Q: Message + Default,
        P: Message + 'static,
        F: FnOnce(CallContext, Q, Vec<OwnedFd>) -> R,
        R: Future<Output = Result<(P, Vec<OwnedFd>), XrlError>> + 'static,
    {
        let request = match self.body.decode() {
            Ok(request) => request,
            Err(error) => return malformed(self.responder, &error),
        };
        let (served, responder) = (serve(self.context, request, self.fds), self.responder);
        Box::pin(async move {
            match served.await {
                Ok((reply, fds)) => responder.reply(&reply, fds),
                Err(error) => responder.fail(&error),
            }
        })
    }

    /// Carries it out with a stream of answers.
    pub fn streaming<Q, P, F, R>(self, serve: F) -> Handler
    where
        Q: Message + Default,
        P: Message + 'static,
        F: FnOnce(CallContext, Q, Vec<OwnedFd>, ReplySink<P>) -> R,
        R: Future<Output = Result<(), XrlError>> + 'static,
    {
        let request = match self.body.decode() {
            Ok(request) => request,
            Err(error) => return malformed(self.responder, &error),
        };
        let responder = self.responder;
        let sink =
            ReplySink { shared: Rc::clone(&responder.shared), call: responder.call, items: PhantomData };
        let served = serve(self.context, request, self.fds, sink);
        Box::pin(async move {
            match served.await {
                Ok(()) => responder.reply(&(), Vec::new()),
                Err(error) => responder.fail(&error),
            }
        })
    }

    /// Refuses it: there is no such method.
    pub fn unknown(self) -> Handler {
        let text = format!("no method {:#x} here", self.method());
        self.responder.fail(&XrlError::not_found(text));
        Box::pin(std::future::ready(()))
    }
}

/// Refuses a call whose request is none.
fn malformed(responder: Responder, error: &prost::DecodeError) -> Handler {
    responder.fail(&XrlError::invalid_argument(format!("cannot read the request: {error}")));
    Box::pin(std::future::ready(()))
}

/// The obligation to answer a call. If it is dropped unmet (a handler that panicked), the caller is told.
#[derive(Debug)]
pub(crate) struct Responder {
    shared: Rc<Shared>,
    call: u32,
}

impl Responder {
    pub(crate) fn new(shared: Rc<Shared>, call: u32) -> Self {
        Self { shared, call }
    }

    fn reply<P: Message>(self, reply: &P, fds: Vec<OwnedFd>) {
        self.shared.reply(self.call, reply, fds);
    }

    pub(crate) fn fail(self, error: &XrlError) {
        self.shared.fail(self.call, error);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // Without effect after an answer.
        self.shared.fail(self.call, &XrlError::internal("the receiver gave up without an answer"));
    }
}

/// Where a streaming method sends its messages.
#[derive(Debug)]
pub struct ReplySink<P> {
    shared: Rc<Shared>,
    call: u32,
    items: PhantomData<fn(P)>,
}

impl<P: Message> ReplySink<P> {
    /// Waits until the caller has given credit for a message. Who makes it only then makes it of what there is then, and
    /// loses nothing by being interrupted before.
    ///
    /// # Errors
    /// When the caller has cancelled or gone; return it.
    pub async fn ready(&mut self) -> Result<(), XrlError> {
        std::future::poll_fn(|cx| self.shared.poll_credit(self.call, cx)).await
    }

    /// Sends a message, as soon as the caller has given credit for it.
    ///
    /// # Errors
    /// When the caller has cancelled or gone, or the message is too large; return it.
    pub async fn send(&mut self, item: P) -> Result<(), XrlError> {
        self.send_with_fds(item, Vec::new()).await
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_with_fds(&mut self, item: P, fds: Vec<OwnedFd>) -> Result<(), XrlError> {
        let held = self.shared.hold(|| item.encoded_len());
        self.ready().await?;
        drop(held);
        self.shared.item(self.call, &item, fds)
    }

    /// Sends messages that are made already, each as soon as the caller has given credit for it. What waits counts as unread
    /// meanwhile: who makes them of a large table makes them one by one instead, each after [`ready`](Self::ready).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_all(&mut self, items: Vec<P>) -> Result<(), XrlError> {
        let mut held = self.shared.hold(|| items.iter().map(Message::encoded_len).sum());
        for item in items {
            self.ready().await?;
            held.iter_mut().for_each(|held| held.release(item.encoded_len()));
            self.shared.item(self.call, &item, Vec::new())?;
        }
        Ok(())
    }
}
