//! A connection that waits for its reader, but not for ever.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep_until},
};

/// Who takes nothing for so long is cut off.
const STALL: Duration = Duration::from_secs(20);
/// All that a reader may have us wait, and a second more for each [`LEAST_PACE`] that it has taken.
const GRACE: Duration = Duration::from_secs(30);
/// Octets a second.
const LEAST_PACE: u64 = 64 << 10;

/// How long the reader has had us wait, for how much.
#[derive(Debug, Default)]
struct Pace {
    octets: u64,
    waited: Duration,
    /// It takes nothing since.
    since: Option<Instant>,
}

impl Pace {
    /// It takes nothing at present; when that has lasted too long.
    fn stands(&mut self, now: Instant) -> Instant {
        let since = *self.since.get_or_insert(now);
        let allowed = GRACE + Duration::from_secs(self.octets / LEAST_PACE);
        since + STALL.min(allowed.saturating_sub(self.waited))
    }

    fn goes_on(&mut self, octets: usize, now: Instant) {
        self.octets += octets as u64;
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_duration_since(since);
        }
    }
}

/// The connection.
pub(crate) struct Patient<S> {
    stream: S,
    pace: Pace,
    alarm: Pin<Box<Sleep>>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S) -> Self {
        let alarm = Box::pin(sleep_until(tokio::time::Instant::now()));
        Self { stream, pace: Pace::default(), alarm }
    }

    fn watch(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let now = Instant::now();
        match polled {
            Poll::Ready(Ok(octets)) => self.pace.goes_on(octets, now),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let end = self.pace.stands(now);
                self.alarm.as_mut().reset(end.into());
                ready!(self.alarm.as_mut().poll(cx));
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader is too slow")));
            }
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, octets);
        self.watch(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_nothing_and_who_takes_too_little_is_cut_off() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        assert_eq!(pace.stands(at(0)), at(20));
        assert_eq!(pace.stands(at(19)), at(20), "nothing taken meanwhile");
        // An octet now and then helps only once.
        pace.goes_on(1, at(19));
        assert_eq!(pace.stands(at(19)), at(30));
        // Who has taken much may pause again, but no longer than anybody.
        pace.goes_on(64 * LEAST_PACE as usize, at(29));
        assert_eq!(pace.stands(at(100)), at(120));
    }

    #[test]
    fn waiting_for_bgp_is_not_the_readers_fault() {
        let start = Instant::now();
        let mut pace = Pace::default();
        for minute in 0..9 {
            pace.goes_on(1, start + Duration::from_secs(60 * minute));
        }
        let now = start + Duration::from_secs(600);
        assert_eq!(pace.stands(now), now + STALL);
    }
}
