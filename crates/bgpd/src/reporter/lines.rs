//! How many lines about peers the log has room for: a peer can have as many events as it likes.

use std::time::Instant;

use holdfast_process::log::Limits;

/// What a line is about. Each has a count of its own: with events of one kind a peer does not hide those of another.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum About {
    /// Connections that were tried, refused, or have failed before there was a session.
    Connections,
    /// A session, and why it has ended.
    Sessions,
    /// What of its UPDATEs was dropped.
    Drops,
    /// Refreshes and filters that make no sense, of which it can send any number in one session.
    Refreshes,
    /// What stages of somebody else's answer, and where the pipeline contradicts itself.
    Stages,
}

/// How many lines are written about whom.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    connections: Limits,
    sessions: Limits,
    drops: Limits,
    refreshes: Limits,
    stages: Limits,
}

impl Lines {
    /// Whether a line may be written about the peers or the range of this name.
    pub(super) fn may(&mut self, about: About, name: &str, now: Instant) -> bool {
        let limits = match about {
            About::Connections => &mut self.connections,
            About::Sessions => &mut self.sessions,
            About::Drops => &mut self.drops,
            About::Refreshes => &mut self.refreshes,
            About::Stages => &mut self.stages,
        };
        limits.may_write(name, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_many_lines_of_one_kind_a_peer_hides_none_of_another() {
        let (mut lines, now) = (Lines::default(), Instant::now());
        for about in [About::Connections, About::Refreshes, About::Drops] {
            let written = (0..1000).filter(|_| lines.may(about, "guest", now)).count();
            assert!(written < 100, "{about:?}: {written}");
        }
        assert!(lines.may(About::Sessions, "guest", now));
    }
}
