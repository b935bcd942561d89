//! How much work the pipeline has done.

/// What was done since the start, in units that do not depend on the machine.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Routes that an import policy was asked about which looks at prefixes.
    pub imported: u64,
    /// Sets, or routes where the policy looks at prefixes, that the export policy of a group was asked about.
    pub exported: u64,
    /// Paths of which was found out whether a group is told of them.
    pub judged: u64,
    /// Prefixes whose paths were put in order for those who read each.
    pub ordered: u64,
}
