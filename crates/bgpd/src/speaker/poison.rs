//! An UPDATE on which this process dies or hangs, for tests of that.

/// What does it: any UPDATE with a community, wherever that stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Poison {
    community: u32,
    looping: bool,
}

impl Poison {
    /// `HOLDFAST_TEST_POISON`: the community, or `loop:` and the community. Nothing else is said there by anybody.
    pub(super) fn from_environment() -> Option<Self> {
        Self::parse(&std::env::var("HOLDFAST_TEST_POISON").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let looping = text.strip_prefix("loop:");
        Some(Self { community: looping.unwrap_or(text).parse().ok()?, looping: looping.is_some() })
    }

    /// Takes effect if an UPDATE has it.
    pub(super) fn act(self, body: &[u8]) {
        if body.windows(4).any(|octets| octets == self.community.to_be_bytes()) {
            if !self.looping {
                std::process::abort();
            }
            loop {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_poison_does_nothing() {
        assert_eq!(Poison::parse("7"), Some(Poison { community: 7, looping: false }));
        assert_eq!(Poison::parse("loop:7"), Some(Poison { community: 7, looping: true }));
        assert_eq!((Poison::parse(""), Poison::parse("loop")), (None, None));
        Poison { community: 7, looping: true }.act(&[0, 0, 7, 0]);
    }
}
