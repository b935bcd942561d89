//! A walk over one table, and why it is made.

use holdfast_types::IpPrefix;

use crate::{
    adj_rib_out::{Recipients, is_signable},
    core::Core,
    path::Path,
};

/// Why the table is walked for a stream, and so what its members have of prefixes that the walk has not
/// reached yet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum WalkKind {
    /// New members: they have nothing, and get End-of-RIB after it.
    Dump,
    /// A refresh (RFC 2918): they have everything.
    Refresh,
    /// Another export policy: they have what the previous one let pass.
    Policy,
    /// They want other prefixes, and nothing else is different: they have what the previous filter let pass.
    Filter,
    /// Paths to them are signed with other keys, and nothing else is different: they have what was told before.
    Keys,
    /// They were too far behind: nobody knows.
    Lost,
    /// Their sessions go on after another process: what that one has told them is known, see [`Cursor::told`].
    Resume,
}

impl WalkKind {
    /// Whether such a walk may change what is told of a path that is there as before.
    pub(crate) fn concerns<P: IpPrefix>(
        self,
        recipients: &Recipients<'_>,
        core: &mut Core,
        (prefix, path): (P, Path),
    ) -> bool {
        match self {
            Self::Filter => !recipients.agree_on(prefix),
            Self::Keys => {
                let set = if path.is_some() { core.effective(prefix.into(), path.set) } else { None };
                set.is_some_and(|set| is_signable(core, &recipients.current.export, path, set))
            }
            Self::Dump | Self::Refresh | Self::Policy | Self::Lost | Self::Resume => true,
        }
    }
}

/// A walk over one table, in address order.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Walk<P> {
    pub(crate) kind: WalkKind,
    /// The last prefix done.
    pub(crate) after: Option<P>,
    /// How many are done.
    pub(crate) done: u64,
    /// For [`WalkKind::Lost`]: still at the prefixes that were withdrawn meanwhile.
    pub(super) withdrawing: bool,
}

impl<P: IpPrefix> Walk<P> {
    pub(crate) fn new(kind: WalkKind) -> Self {
        Self { kind, after: None, done: 0, withdrawing: kind == WalkKind::Lost }
    }

    /// The last prefix done.
    pub(crate) fn after(&self) -> Option<P> {
        self.after
    }

    /// Everything up to this prefix is done.
    pub(crate) fn advance(&mut self, prefix: P) {
        self.after = Some(prefix);
    }

    /// Whether the walk has passed the prefix.
    pub(crate) fn has_done(&self, prefix: P) -> bool {
        !self.withdrawing && self.after.is_some_and(|after| prefix <= after)
    }
}
