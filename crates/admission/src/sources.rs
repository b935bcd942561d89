use std::time::Instant;

use crate::{Attempt, PrefixTable, Stage, Verdict};

/// Ignores who comes from elsewhere than it may. Who is not known gets no answer at all: the address may be forged, and
/// an answer would say that there is somebody.
#[derive(Clone, Debug)]
pub struct Sources {
    known: PrefixTable,
}

impl Sources {
    /// Addresses of configured peers and listen ranges, and the sets of the configuration. Nobody is let in by an empty one.
    pub fn new(known: PrefixTable) -> Self {
        Self { known }
    }
}

impl Stage for Sources {
    fn name(&self) -> &'static str {
        "sources"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, _: Instant) -> Verdict {
        if self.known.contains(attempt.remote().ip()) { Verdict::Next } else { Verdict::Ignore }
    }
}
