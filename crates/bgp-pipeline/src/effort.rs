//! How much work the pipeline has done.

/// Work of the pipeline since its start, in units that do not depend on the machine.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Routes that an import policy was asked about which looks at prefixes.
    pub imported: u64,
    /// Sets, or routes where the policy looks at prefixes, that the export policy of a group was asked about.
    pub exported: u64,
    /// Paths for which the pipeline decided whether a group is told of them.
    pub judged: u64,
    /// Prefixes whose paths were put in order for those who read each.
    pub ordered: u64,
}
