//! Keys that nobody confirms any more. Before they expire there is an alarm; then they leave in slices, so that a cache that
//! is away does not take all valid routes at one stroke. Pure.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use holdfast_path_validation::RouterKey;
use tokio::time::Instant;

/// What was said holds for so much longer than allowed: word that it holds on comes in time if it was sent in time.
const GRACE: Duration = Duration::from_secs(5);
/// The alarm comes so long before, or when a quarter of the time is left.
const NOTICE: Duration = Duration::from_secs(600);
/// Keys that have expired leave in so many slices, one a second.
const SLICES: usize = 60;
/// Between two slices.
const PAUSE: Duration = Duration::from_secs(1);

/// What time has brought about.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// All keys expire after this time if nothing is heard.
    Soon(Duration),
    /// All keys have expired: they are to [`Lapse::leave`].
    Expired,
    /// These leave now; `last`: no others have to.
    Leave { keys: Vec<RouterKey>, last: bool },
}

/// When keys expire, and which ones have.
#[derive(Debug, Default)]
pub(crate) struct Lapse {
    alarm: Option<Instant>,
    expires: Option<Instant>,
    leaving: VecDeque<RouterKey>,
    slice: usize,
    next: Option<Instant>,
}

impl Lapse {
    /// What is known holds for so many seconds; `u32::MAX` is for ever, the most that can be said.
    pub(crate) fn holds_for(&mut self, seconds: u32, now: Instant) {
        let lifetime = (seconds != u32::MAX).then(|| Duration::from_secs(seconds.into()));
        self.alarm = lifetime.map(|lifetime| now + lifetime - NOTICE.min(lifetime / 4));
        self.expires = lifetime.map(|lifetime| now + lifetime + GRACE);
    }

    /// These have expired as well.
    pub(crate) fn leave(&mut self, keys: Vec<RouterKey>, now: Instant) {
        self.leaving.extend(keys);
        self.begin(now);
    }

    /// These have expired, and no others.
    pub(crate) fn leave_only(&mut self, keys: Vec<RouterKey>, now: Instant) {
        self.leaving = keys.into();
        self.begin(now);
    }

    /// Slices become no smaller, and come no later, because others expire meanwhile.
    fn begin(&mut self, now: Instant) {
        let slice = self.leaving.len().div_ceil(SLICES);
        self.slice = if self.next.is_some() { self.slice.max(slice) } else { slice };
        self.next = self.next.or(Some(now + PAUSE)).filter(|_| self.is_leaving());
    }

    /// Whether some have expired and have not left.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// These hold again.
    pub(crate) fn stay(&mut self, keys: &HashSet<RouterKey>) {
        self.leaving.retain(|key| !keys.contains(key));
        self.next = self.next.filter(|_| self.is_leaving());
    }

    /// When [`Self::poll`] has something.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.alarm, self.expires, self.next].into_iter().flatten().min()
    }

    /// What is to be done; until `None`.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Due> {
        if self.alarm.take_if(|at| *at <= now).is_some() {
            let left = self.expires.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
            return Some(Due::Soon(left.saturating_sub(GRACE)));
        }
        if self.expires.take_if(|at| *at <= now).is_some() {
            return Some(Due::Expired);
        }
        self.next.take_if(|at| *at <= now)?;
        let keys: Vec<_> = self.leaving.drain(..self.slice.min(self.leaving.len())).collect();
        let last = self.leaving.is_empty();
        self.next = (!last).then(|| now + PAUSE);
        Some(Due::Leave { keys, last })
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Asn, Ski};

    use super::*;

    fn keys(numbers: impl IntoIterator<Item = u32>) -> Vec<RouterKey> {
        let key = |asn| RouterKey { asn: Asn(asn), ski: Ski([0; 20]), spki: Vec::new() };
        numbers.into_iter().map(key).collect()
    }

    #[test]
    fn an_alarm_comes_first() {
        let (mut lapse, now) = (Lapse::default(), Instant::now());
        let seconds = |seconds| now + Duration::from_secs(seconds);
        lapse.holds_for(7200, now);
        assert_eq!((lapse.poll_timeout(), lapse.poll(seconds(6599))), (Some(seconds(6600)), None));
        assert_eq!(lapse.poll(seconds(6600)), Some(Due::Soon(NOTICE)));
        assert_eq!((lapse.poll_timeout(), lapse.poll(seconds(7204))), (Some(seconds(7205)), None));
        assert_eq!(lapse.poll(seconds(7205)), Some(Due::Expired));
        assert_eq!((lapse.poll_timeout(), lapse.poll(seconds(9999))), (None, None));
        lapse.holds_for(600, now);
        assert_eq!(lapse.poll_timeout(), Some(seconds(450)), "a quarter is left");
        lapse.holds_for(u32::MAX, now);
        assert_eq!(lapse.poll_timeout(), None);
    }

    #[test]
    fn keys_leave_in_slices() {
        let (mut lapse, start) = (Lapse::default(), Instant::now());
        lapse.leave(keys(0..1000), start);
        let (mut slices, mut now, mut all) = (0, start, Vec::new());
        while let Some(at) = lapse.poll_timeout() {
            now = at;
            let Some(Due::Leave { keys, last }) = lapse.poll(now) else { panic!("keys leave") };
            assert!(keys.len() <= 17 && last != lapse.is_leaving());
            slices += 1;
            all.extend(keys);
        }
        assert_eq!((slices, all), (59, keys(0..1000)));
        assert_eq!(now, start + Duration::from_secs(59));
    }

    #[test]
    fn what_holds_again_stays() {
        let (mut lapse, now) = (Lapse::default(), Instant::now());
        lapse.leave(keys(0..3), now);
        lapse.stay(&keys([1]).into_iter().collect());
        let due = lapse.poll(now + PAUSE);
        assert_eq!(due, Some(Due::Leave { keys: keys([0]), last: false }));
        lapse.stay(&keys([2]).into_iter().collect());
        assert_eq!((lapse.is_leaving(), lapse.poll_timeout()), (false, None));
        lapse.leave(keys(0..3), now);
        lapse.leave_only(Vec::new(), now);
        assert_eq!((lapse.is_leaving(), lapse.poll_timeout()), (false, None));
    }

    #[test]
    fn others_that_expire_meanwhile_put_nothing_off() {
        let (mut lapse, start) = (Lapse::default(), Instant::now());
        lapse.leave(keys(0..600), start);
        let (mut now, mut left) = (start, 0);
        for second in 1..=30 {
            now = start + Duration::from_secs(second);
            match second % 2 {
                0 => lapse.leave(keys([1000 + second as u32]), now),
                _ => lapse.leave_only(lapse.leaving.iter().cloned().collect(), now),
            }
            let Some(Due::Leave { keys, .. }) = lapse.poll(now) else { panic!("a second has passed") };
            left += keys.len();
        }
        assert!(left >= 300, "{left}");
        assert_eq!(lapse.poll_timeout(), Some(now + PAUSE));
    }
}
