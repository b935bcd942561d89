//! What happens to the paths of a prefix.

use crate::path::{Path, SourceId};

/// What happens to the paths of a prefix.
#[derive(Copy, Clone, Debug)]
pub(super) enum Edit {
    /// The source's path becomes this one, which bears the marks that it has beside no other
    /// ([`Core::lone`]). The set comes with a user that passes to the table.
    Put(Path),
    /// The source has none any more.
    Remove(SourceId),
    /// A stage holds the source's path back, or lets it go.
    Suppress(SourceId, bool),
    /// Something about the paths may have changed: the session died, import policy, a next hop.
    Visit,
}

impl Edit {
    /// Whether it says what is there already.
    #[inline]
    pub(super) fn repeats(self, path: Path) -> bool {
        match self {
            Self::Put(new) => new.source == path.source && path.is_repeated_by(new),
            Self::Remove(_) | Self::Suppress(..) | Self::Visit => false,
        }
    }

    /// Whose path it concerns; `None`: all.
    pub(super) fn source(self) -> Option<SourceId> {
        match self {
            Self::Put(path) => Some(path.source),
            Self::Remove(source) | Self::Suppress(source, _) => Some(source),
            Self::Visit => None,
        }
    }
}
