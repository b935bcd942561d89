//! What each peer has told the router is compared with what the others were told: each once.

use std::collections::HashMap;

use holdfast_types::Prefix;
use serde::Serialize;

use super::judge::{Tally, Told};

/// Findings that are kept in words.
const FINDINGS: usize = 10;

/// What became of each announcement and withdrawal on its way to one peer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Audit {
    /// Prefixes that were compared.
    pub prefixes: u64,
    /// Announcements and withdrawals that did not come.
    pub lost: u64,
    /// Those that came more often than they were sent.
    pub doubled: u64,
    /// Withdrawals that came before their announcement.
    pub reordered: u64,
    /// Announcements that nobody has sent so.
    pub corrupted: u64,
    /// In words; the first few.
    #[serde(skip)]
    pub findings: Vec<String>,
}

impl Audit {
    /// Compares what a peer was told with what the others have sent of the families in question. Nothing may be under way.
    pub fn of(told: &Tally, sent: &[&Tally], is_wanted: impl Fn(&Prefix) -> bool) -> Self {
        let mut audit = Self::default();
        let mut expected: HashMap<Prefix, Told> = HashMap::new();
        for tally in sent {
            expected.extend(tally.prefixes.iter().filter(|(prefix, _)| is_wanted(prefix)));
        }
        for (prefix, sent) in &expected {
            audit.compare(*prefix, *sent, told.prefixes.get(prefix).copied().unwrap_or_default());
        }
        for prefix in told.prefixes.keys().filter(|prefix| !expected.contains_key(*prefix)) {
            audit.corrupted += 1;
            audit.find(format!("{prefix} was told, and nobody has sent it"));
        }
        audit
    }

    fn compare(&mut self, prefix: Prefix, sent: Told, told: Told) {
        self.prefixes += 1;
        let before = self.faults();
        for (sent, told) in [(sent.announced, told.announced), (sent.withdrawn, told.withdrawn)] {
            self.lost += u64::from(sent.saturating_sub(told));
            self.doubled += u64::from(told.saturating_sub(sent));
        }
        self.reordered += u64::from(told.early);
        self.corrupted += u64::from(told.announced > 0 && told.content != sent.content);
        if self.faults() > before {
            self.find(format!("{prefix}: sent {sent:?}, told {told:?}"));
        }
    }

    fn faults(&self) -> u64 {
        self.lost + self.doubled + self.reordered + self.corrupted
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(told: Told) -> Tally {
        let prefixes = HashMap::from([(Prefix::host([119, 0, 0, 1].into()), told)]);
        Tally { prefixes, ..Tally::default() }
    }

    fn found(told: Option<Told>) -> [u64; 4] {
        let sent = tally(Told { announced: 1, withdrawn: 1, early: 0, content: 5 });
        let told = told.map_or(Tally::default(), tally);
        let audit = Audit::of(&told, &[&sent], |_| true);
        assert_eq!(audit.findings.is_empty(), audit.faults() == 0);
        [audit.lost, audit.doubled, audit.reordered, audit.corrupted]
    }

    #[test]
    fn each_fault_is_counted_as_what_it_is() {
        let right = Told { announced: 1, withdrawn: 1, early: 0, content: 5 };
        assert_eq!(found(Some(right)), [0; 4]);
        assert_eq!(found(None), [2, 0, 0, 0]);
        assert_eq!(found(Some(Told { withdrawn: 0, ..right })), [1, 0, 0, 0]);
        assert_eq!(found(Some(Told { announced: 2, ..right })), [0, 1, 0, 0]);
        assert_eq!(found(Some(Told { early: 1, ..right })), [0, 0, 1, 0]);
        assert_eq!(found(Some(Told { content: 6, ..right })), [0, 0, 0, 1]);
    }

    #[test]
    fn what_nobody_has_sent_is_corrupted_and_other_families_are_not_looked_at() {
        let some = tally(Told { announced: 1, ..Told::default() });
        assert_eq!(Audit::of(&some, &[], |_| true).corrupted, 1);
        assert_eq!(Audit::of(&Tally::default(), &[&some], |_| false), Audit::default());
    }
}
