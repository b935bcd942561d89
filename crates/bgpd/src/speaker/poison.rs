//! An UPDATE on which this process dies, hangs or is busy, for tests of that.

use std::time::Duration;

use holdfast_process::progress::Finished;

/// Work that is finished in so short a time is counted, where this process is to be busy.
const UNIT: Duration = Duration::from_millis(1);

/// What does it: any UPDATE with a community, wherever that stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Poison {
    community: u32,
    harm: Harm,
}

/// What it does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Harm {
    Abort,
    /// Nothing, for ever.
    Loop,
    /// Work, for ever.
    Work,
}

impl Poison {
    /// `HOLDFAST_TEST_POISON`: the community, or `loop:` or `work:` and the community. Nothing else is said there by anybody.
    pub(super) fn from_environment() -> Option<Self> {
        Self::parse(&std::env::var("HOLDFAST_TEST_POISON").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (harm, community) = match text.split_once(':') {
            None => (Harm::Abort, text),
            Some(("loop", community)) => (Harm::Loop, community),
            Some(("work", community)) => (Harm::Work, community),
            Some(_) => return None,
        };
        Some(Self { community: community.parse().ok()?, harm })
    }

    /// Takes effect if an UPDATE has it.
    pub(super) fn act(self, body: &[u8], finished: Finished) {
        if !body.windows(4).any(|octets| octets == self.community.to_be_bytes()) {
            return;
        }
        match self.harm {
            Harm::Abort => std::process::abort(),
            Harm::Loop => loop {
                std::hint::spin_loop();
            },
            Harm::Work => loop {
                std::thread::sleep(UNIT);
                finished.add(1);
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_poison_does_nothing() {
        for (text, harm) in [("7", Harm::Abort), ("loop:7", Harm::Loop), ("work:7", Harm::Work)] {
            assert_eq!(Poison::parse(text), Some(Poison { community: 7, harm }));
            Poison { community: 7, harm }.act(&[0, 0, 7, 0], Finished::default());
        }
        assert_eq!(["", "loop", "loop:", "idle:7"].map(Poison::parse), [None; 4]);
    }
}
