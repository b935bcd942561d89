//! What `bgp` has said, for those who ask next.

use std::{
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use holdfast_xrl::XrlError;
use tokio::sync::Mutex;

use crate::answer::within;

/// How long an answer serves for those who ask next.
pub(crate) const FRESH: Duration = Duration::from_secs(5);

/// One answer. However many want it at a time, it is asked for once.
pub(crate) struct Kept<T>(Mutex<Option<Said<T>>>);

/// What was said, and when.
pub(crate) struct Said<T> {
    since: Instant,
    pub(crate) at: SystemTime,
    pub(crate) value: Rc<T>,
}

impl<T> Clone for Said<T> {
    fn clone(&self) -> Self {
        Self { since: self.since, at: self.at, value: Rc::clone(&self.value) }
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Kept<T> {
    /// The answer as it was a moment ago, or as `ask` has it; and whether it is the former.
    pub(crate) async fn get(
        &self,
        now: Instant,
        ask: impl AsyncFnOnce() -> Result<T, XrlError>,
    ) -> Result<(Said<T>, bool), XrlError> {
        // Whoever waits for one who asks waits no longer than it would itself.
        let mut kept = within(async { Ok(self.0.lock().await) }).await?;
        let fresh = kept.as_ref().filter(|said| now.saturating_duration_since(said.since) < FRESH);
        if let Some(said) = fresh {
            return Ok((said.clone(), true));
        }
        let at = SystemTime::now();
        let said = Said { since: now, at, value: Rc::new(ask().await?) };
        *kept = Some(said.clone());
        Ok((said, false))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::task::{JoinSet, LocalSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn many_at_once_ask_once_and_again_when_it_is_old() {
        let (kept, asked) = (Rc::new(Kept::default()), Rc::new(Cell::new(0)));
        let get = |now| {
            let (kept, asked) = (Rc::clone(&kept), Rc::clone(&asked));
            async move {
                let ask = async || {
                    yield_now().await;
                    asked.set(asked.get() + 1);
                    Ok(asked.get())
                };
                kept.get(now, ask).await.map(|(said, from_cache)| (*said.value, from_cache))
            }
        };
        let now = Instant::now();
        let mut all = JoinSet::new();
        let local = LocalSet::new();
        (0..32).for_each(|_| drop(all.spawn_local_on(get(now), &local)));
        let answers = local.run_until(all.join_all()).await;
        assert_eq!(answers.iter().filter(|answer| **answer == Ok((1, true))).count(), 31);
        assert_eq!(get(now + FRESH - Duration::from_millis(1)).await, Ok((1, true)));
        assert_eq!(get(now + FRESH).await, Ok((2, false)));
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let kept = Kept::default();
        let now = Instant::now();
        let failed = kept.get(now, async || Err(XrlError::unavailable("not there"))).await;
        assert!(failed.is_err());
        assert_eq!(kept.get(now, async || Ok(7)).await.map(|(said, _)| *said.value), Ok(7));
    }
}
