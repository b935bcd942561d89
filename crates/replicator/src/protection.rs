//! What protects the sessions: a decision about what is known of the store.

use std::time::Duration;

use holdfast_gate::SlotState;

/// A store that has not confirmed for so long is said to be away.
pub(crate) const SILENCE: Duration = Duration::from_millis(250);

/// What protects the sessions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Protection {
    /// The store has not had everything yet.
    Beginning,
    /// Nothing leaves that the store does not have.
    Full,
    /// The store is away, and sessions wait for it.
    Waiting,
    /// It was away for too long: everything leaves.
    Degraded,
    /// It was away for too long: sessions end, and what they have still to say leaves.
    SteppingDown,
    /// They have ended: nothing leaves, and none begins.
    SteppedDown,
    /// Another router has the sessions: nothing leaves.
    Fenced,
}

/// What is known of the store.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Known {
    /// It has everything, as far as it was there a moment ago.
    pub(crate) is_whole: bool,
    /// A later router has claimed it.
    pub(crate) is_fenced: bool,
    /// For how long it has not confirmed what it was sent.
    pub(crate) silent: Duration,
    /// For how long sessions wait for it, and whether they end then.
    pub(crate) limit: Duration,
    pub(crate) steps_down: bool,
    /// No session is left of those that were to end, or they have had their time.
    pub(crate) have_ended: bool,
}

impl Protection {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Beginning => "beginning",
            Self::Full => "full",
            Self::Waiting => "waiting",
            Self::Degraded => "degraded",
            Self::SteppingDown => "stepping-down",
            Self::SteppedDown => "stepped-down",
            Self::Fenced => "fenced",
        }
    }

    /// What may leave of sessions that the store has.
    pub(crate) fn state(self) -> SlotState {
        match self {
            Self::Beginning | Self::Degraded | Self::SteppingDown => SlotState::Open,
            Self::Full | Self::Waiting => SlotState::Gated,
            Self::SteppedDown | Self::Fenced => SlotState::Closed,
        }
    }

    /// Whether the lease is renewed: without it no session begins.
    pub(crate) fn may_begin(self) -> bool {
        match self {
            Self::Beginning | Self::Full | Self::Waiting | Self::Degraded => true,
            Self::SteppingDown | Self::SteppedDown | Self::Fenced => false,
        }
    }

    /// What protects them now.
    pub(crate) fn after(self, known: Known) -> Self {
        match self {
            Self::Fenced => Self::Fenced,
            _ if known.is_fenced => Self::Fenced,
            _ if known.is_whole && known.silent < SILENCE => Self::Full,
            Self::SteppingDown if known.have_ended => Self::SteppedDown,
            Self::Degraded | Self::SteppingDown | Self::SteppedDown => self,
            Self::Beginning if known.silent < known.limit => self,
            Self::Full | Self::Waiting if known.silent < SILENCE => self,
            Self::Full | Self::Waiting if known.silent < known.limit => Self::Waiting,
            Self::Beginning | Self::Full | Self::Waiting if known.steps_down => Self::SteppingDown,
            Self::Beginning | Self::Full | Self::Waiting => Self::Degraded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Protection; 7] = [
        Protection::Beginning,
        Protection::Full,
        Protection::Waiting,
        Protection::Degraded,
        Protection::SteppingDown,
        Protection::SteppedDown,
        Protection::Fenced,
    ];

    fn known(silent: u64) -> Known {
        Known {
            is_whole: true,
            is_fenced: false,
            silent: Duration::from_millis(silent),
            limit: Duration::from_secs(10),
            steps_down: false,
            have_ended: false,
        }
    }

    #[test]
    fn a_store_that_has_everything_protects_but_whoever_is_fenced_stays_so() {
        for before in ALL {
            let is_fenced = before == Protection::Fenced;
            let after = before.after(known(0));
            assert_eq!(after, if is_fenced { Protection::Fenced } else { Protection::Full }, "{before:?}");
            assert_eq!(before.after(Known { is_fenced: true, ..known(0) }), Protection::Fenced);
        }
    }

    #[test]
    fn sessions_wait_for_a_store_until_the_limit_and_what_follows_then_stays() {
        for before in [Protection::Full, Protection::Waiting] {
            for (silent, degrades, steps_down) in [
                (249, before, before),
                (250, Protection::Waiting, Protection::Waiting),
                (9999, Protection::Waiting, Protection::Waiting),
                (10_000, Protection::Degraded, Protection::SteppingDown),
            ] {
                for is_whole in [false, true] {
                    if is_whole && silent < 250 {
                        continue;
                    }
                    let known = Known { is_whole, ..known(silent) };
                    assert_eq!(before.after(known), degrades, "{before:?} {silent}");
                    assert_eq!(before.after(Known { steps_down: true, ..known }), steps_down);
                }
            }
        }
        for (silent, after) in [(9999, Protection::Beginning), (10_000, Protection::Degraded)] {
            let known = Known { is_whole: false, ..known(silent) };
            assert_eq!(Protection::Beginning.after(known), after, "a store that was never there");
        }
        for given_up in [Protection::Degraded, Protection::SteppedDown] {
            let known = Known { is_whole: false, steps_down: true, ..known(1_000_000) };
            assert_eq!(given_up.after(known), given_up, "until the store has everything");
        }
        let away = Known { is_whole: false, ..known(1_000_000) };
        assert_eq!(Protection::SteppingDown.after(away), Protection::SteppingDown, "they say goodbye");
        let over = Known { have_ended: true, ..away };
        assert_eq!(Protection::SteppingDown.after(over), Protection::SteppedDown);
    }

    #[test]
    fn nothing_leaves_of_what_is_closed_and_everything_of_what_nobody_protects() {
        let states = ALL.map(Protection::state);
        let [open, gated, closed] = [SlotState::Open, SlotState::Gated, SlotState::Closed];
        assert_eq!(states, [open, gated, gated, open, open, closed, closed]);
        assert_eq!(ALL.map(Protection::may_begin), [true, true, true, true, false, false, false]);
    }
}
