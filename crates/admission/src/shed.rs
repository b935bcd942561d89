use std::time::Instant;

use crate::{AddressProof, Attempt, Bucket, Rate, Stage, Verdict};

/// Ignores more than so many attempts while nothing proves their addresses, whoever sends them: under forged addresses
/// nobody can be told from anybody. What has priority (ALPN) cannot be known here: to look would cost more than is saved.
/// A client that is ignored sends its first flight again (RFC 9002 section 6.2: after a second, then two).
#[derive(Clone, Debug)]
pub struct Shed {
    rate: Rate,
    bucket: Bucket,
}

impl Shed {
    /// Lets through so many.
    pub fn new(rate: Rate) -> Self {
        Self { rate, bucket: Bucket::default() }
    }
}

impl Stage for Shed {
    fn name(&self) -> &'static str {
        "shed"
    }

    fn judge(&mut self, attempt: &mut dyn Attempt, now: Instant) -> Verdict {
        let unproven = attempt.proof() == AddressProof::None;
        if unproven && !self.bucket.take(self.rate, now) { Verdict::Ignore } else { Verdict::Next }
    }
}
