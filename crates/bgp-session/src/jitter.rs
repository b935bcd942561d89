//! Randomness for timers (RFC 4271 section 10), from a seed.

use std::time::Duration;

/// SplitMix64: small, and good enough to keep routers from acting in step.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `base` times a factor that is uniform between 0.75 and 1.
    pub(crate) fn apply(&mut self, base: Duration) -> Duration {
        let quarter = base / 4;
        base - quarter.mul_f64(self.unit())
    }

    /// Uniform in 0..1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_takes_away_at_most_a_quarter_and_differs_each_time() {
        let (mut jitter, base) = (Jitter::new(7), Duration::from_secs(40));
        let drawn: Vec<Duration> = (0..1000).map(|_| jitter.apply(base)).collect();
        assert!(drawn.iter().all(|d| (Duration::from_secs(30)..=base).contains(d)));
        let mean = drawn.iter().sum::<Duration>() / 1000;
        assert!((Duration::from_millis(34_700)..Duration::from_millis(35_300)).contains(&mean), "{mean:?}");
        assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
