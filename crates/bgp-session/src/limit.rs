//! How many prefixes a peer may have us keep, or be told of, and what follows when there are more (RFC 4271 section 6.7,
//! RFC 4486 section 4).

use std::{fmt, time::Duration};

use holdfast_types::Family;

use crate::StopReason;

/// What is counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Prefixes that the peer announces.
    Received,
    /// Of those, prefixes that import policy takes.
    Accepted,
    /// Prefixes that the peer is told of.
    Announced,
}

impl Counted {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Received, Self::Accepted, Self::Announced];
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Received => "received",
            Self::Accepted => "accepted",
            Self::Announced => "announced",
        })
    }
}

/// The limits of one family.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PrefixLimit {
    /// Of which family.
    pub family: Family,
    /// How many there may be, in the order of [`Counted::ALL`]; `None`: any number.
    pub most: [Option<u32>; 3],
    /// Percent of a limit from which on it is [`Level::Near`].
    pub warn_percent: u8,
    /// What happens above a limit.
    pub action: LimitAction,
}

/// What happens above a limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LimitAction {
    /// The operator is told.
    Warn,
    /// The session ends until `Start`.
    Idle,
    /// The session ends for so long.
    Restart(Duration),
}

/// How near a count is to its limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Far enough.
    Fine,
    /// At the warning.
    Near,
    /// Above it.
    Over,
}

/// A count that has come to another level than any before in this session.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Of which family.
    pub family: Family,
    /// What was counted.
    pub counted: Counted,
    /// How many there are.
    pub count: u64,
    /// How many there may be.
    pub limit: u32,
    /// The level; never [`Level::Fine`].
    pub level: Level,
}

impl PrefixLimit {
    /// Where a count stands.
    pub fn level(&self, counted: Counted, count: u64) -> Level {
        match self.most[counted as usize].map(u64::from) {
            Some(most) if count > most => Level::Over,
            Some(most) if count * 100 >= most * u64::from(self.warn_percent) => Level::Near,
            Some(_) | None => Level::Fine,
        }
    }

    /// Why the session has to end above a limit; `None` if it stays.
    pub fn stop(&self, crossing: &Crossing) -> Option<StopReason> {
        let restart = match self.action {
            LimitAction::Warn => return None,
            LimitAction::Idle => None,
            LimitAction::Restart(after) => Some(after),
        };
        let Crossing { family, counted, limit, level, .. } = *crossing;
        (level == Level::Over).then_some(StopReason::MaxPrefixes { family, counted, limit, restart })
    }
}

/// The highest level that each count had in a session: the operator is told of each once.
#[derive(Clone, Debug, Default)]
pub struct LimitWatch(Vec<(Family, Counted, Level)>);

impl LimitWatch {
    /// A count of this family is there; what is new about it.
    pub fn see(&mut self, limit: &PrefixLimit, counted: Counted, count: u64) -> Option<Crossing> {
        let level = limit.level(counted, count);
        if level == Level::Fine {
            return None;
        }
        let most = limit.most[counted as usize]?;
        let crossing = Crossing { family: limit.family, counted, count, limit: most, level };
        let known = self.0.iter_mut().find(|entry| (entry.0, entry.1) == (limit.family, counted));
        match known {
            Some((_, _, highest)) if *highest >= level => return None,
            Some((_, _, highest)) => *highest = level,
            None => self.0.push((limit.family, counted, level)),
        }
        Some(crossing)
    }

    /// The session has ended, or the limits are others: everything may be told again.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(action: LimitAction) -> PrefixLimit {
        PrefixLimit {
            family: Family::IPV4_UNICAST,
            most: [Some(10), None, Some(1)],
            warn_percent: 75,
            action,
        }
    }

    #[test]
    fn each_level_is_told_once() {
        let (limit, mut watch) = (limit(LimitAction::Idle), LimitWatch::default());
        let mut see = |count| watch.see(&limit, Counted::Received, count).map(|crossing| crossing.level);
        assert_eq!([7, 8, 9, 7, 8, 10].map(&mut see), [None, Some(Level::Near), None, None, None, None]);
        assert_eq!([11, 12, 9, 11].map(&mut see), [Some(Level::Over), None, None, None]);
        assert_eq!(watch.see(&limit, Counted::Accepted, 1000), None, "there is no such limit");
        watch.forget();
        assert!(watch.see(&limit, Counted::Received, 8).is_some());
    }

    #[test]
    fn what_follows_is_what_was_configured() {
        let family = Family::IPV4_UNICAST;
        let over = Crossing { family, counted: Counted::Announced, count: 2, limit: 1, level: Level::Over };
        let stops = |restart| StopReason::MaxPrefixes { family, counted: over.counted, limit: 1, restart };
        let pause = Duration::from_secs(60);
        assert_eq!(limit(LimitAction::Warn).stop(&over), None);
        assert_eq!(limit(LimitAction::Idle).stop(&over), Some(stops(None)));
        assert_eq!(limit(LimitAction::Restart(pause)).stop(&over), Some(stops(Some(pause))));
        assert_eq!(limit(LimitAction::Idle).stop(&Crossing { level: Level::Near, ..over }), None);
        assert_eq!(stops(None).to_string(), "more than 1 prefixes of ipv4-unicast announced");
    }
}
