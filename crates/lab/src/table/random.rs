//! Numbers from a seed: the same on every machine and in every release.

/// Splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// All that follows comes from the seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Below `bound`, which is not zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        (self.bits() % u64::from(bound)) as u32
    }

    /// True in so many of 10,000 cases.
    pub fn chance(&mut self, in_10_000: u32) -> bool {
        self.below(10_000) < in_10_000
    }

    /// One of the values, each as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> T {
        let mut left = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for &(weight, value) in choices {
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => return value,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }
}
