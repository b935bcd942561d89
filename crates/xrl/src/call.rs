//! What a caller holds: calls and streams in progress.

use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prost::Message;

use crate::calls::Payload;
use crate::{Channel, XrlError};

/// A call whose types are not known here. Cancels the call when dropped.
#[derive(Debug)]
pub(crate) struct RawCall {
    channel: Channel,
    /// The call id while the call is in progress, or why it could not begin.
    state: Option<Result<u32, XrlError>>,
}

impl RawCall {
    pub(crate) fn new(channel: Channel, started: Result<u32, XrlError>) -> Self {
        Self { channel, state: Some(started) }
    }

    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Payload, XrlError>> {
        let end = match self.state.take() {
            Some(Ok(id)) => match self.channel.poll_end(id, cx) {
                Poll::Pending => {
                    self.state = Some(Ok(id));
                    return Poll::Pending;
                }
                Poll::Ready(end) => end,
            },
            Some(Err(error)) => Err(error),
            None => Err(XrlError::internal("the answer was taken before")),
        };
        Poll::Ready(end)
    }

    /// The next message of a stream; `None` at its end, and from then on.
    pub(crate) async fn next(&mut self) -> Result<Option<Payload>, XrlError> {
        let id = match &self.state {
            Some(Ok(id)) => *id,
            Some(Err(error)) => {
                let error = error.clone();
                self.state = None;
                return Err(error);
            }
            None => return Ok(None),
        };
        let item = std::future::poll_fn(|cx| self.channel.poll_item(id, cx)).await;
        if !matches!(item, Ok(Some(_))) {
            self.state = None;
        }
        item
    }

    fn detach(mut self) {
        if let Some(Ok(id)) = self.state.take() {
            self.channel.detach(id);
        }
    }
}

impl Drop for RawCall {
    fn drop(&mut self) {
        if let Some(Ok(id)) = self.state {
            self.channel.forget(id);
        }
    }
}

fn decode<P: Message + Default>(payload: &Payload) -> Result<P, XrlError> {
    P::decode(payload.body.as_ref())
        .map_err(|error| XrlError::internal(format!("cannot read the reply: {error}")))
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, XrlError>>) -> Result<T, XrlError> {
    let late = |_| Err(XrlError::timeout(format!("no answer within {} ms", limit.as_millis())));
    tokio::time::timeout(limit, call).await.unwrap_or_else(late)
}

/// A unary call in progress: await it for the reply, drop it to cancel.
#[derive(Debug)]
#[must_use = "a call that is dropped is cancelled; await or detach it"]
pub struct Call<P> {
    raw: RawCall,
    reply: PhantomData<fn() -> P>,
}

impl<P> Call<P> {
    pub(crate) fn new(raw: RawCall) -> Self {
        Self { raw, reply: PhantomData }
    }

    /// Lets the call be carried out without waiting for its reply, whatever that is.
    pub fn detach(self) {
        self.raw.detach();
    }
}

impl<P: Message + Default> Call<P> {
    /// Waits at most so long, then cancels the call.
    ///
    /// # Errors
    /// `Timeout`, or whatever the call failed with.
    pub async fn within(self, limit: Duration) -> Result<P, XrlError> {
        within(limit, self).await
    }
}

impl<P: Message + Default> Future for Call<P> {
    type Output = Result<P, XrlError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(self.raw.poll_end(cx)).and_then(|payload| decode(&payload)))
    }
}

/// A unary call whose reply comes with descriptors.
#[derive(Debug)]
#[must_use = "a call that is dropped is cancelled"]
pub struct CallWithFds<P> {
    raw: RawCall,
    reply: PhantomData<fn() -> P>,
}

impl<P> CallWithFds<P> {
    pub(crate) fn new(raw: RawCall) -> Self {
        Self { raw, reply: PhantomData }
    }
}

impl<P: Message + Default> CallWithFds<P> {
    /// Waits at most so long, then cancels the call.
    ///
    /// # Errors
    /// `Timeout`, or whatever the call failed with.
    pub async fn within(self, limit: Duration) -> Result<(P, Vec<OwnedFd>), XrlError> {
        within(limit, self).await
    }
}

impl<P: Message + Default> Future for CallWithFds<P> {
    type Output = Result<(P, Vec<OwnedFd>), XrlError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let payload = ready!(self.raw.poll_end(cx))?;
        Poll::Ready(decode(&payload).map(|reply| (reply, payload.fds)))
    }
}

/// A stream of replies. Reading it gives the sender credit; dropping it cancels the call.
#[derive(Debug)]
#[must_use = "a stream that is dropped is cancelled"]
pub struct ReplyStream<P> {
    raw: RawCall,
    reply: PhantomData<fn() -> P>,
}

impl<P: Message + Default> ReplyStream<P> {
    pub(crate) fn new(raw: RawCall) -> Self {
        Self { raw, reply: PhantomData }
    }

    /// The next message, `None` at the end. May be dropped while it waits; nothing is lost.
    ///
    /// # Errors
    /// What the stream ended with, once; `None` follows.
    pub async fn next(&mut self) -> Result<Option<P>, XrlError> {
        Ok(self.next_with_fds().await?.map(|(item, _)| item))
    }

    /// The next message with the descriptors that came with it.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn next_with_fds(&mut self) -> Result<Option<(P, Vec<OwnedFd>)>, XrlError> {
        let Some(payload) = self.raw.next().await? else { return Ok(None) };
        Ok(Some((decode(&payload)?, payload.fds)))
    }
}
