//! What the process has, and its numbers.

use holdfast_api::pathsec::v1::PathSecStatus;

use crate::{keys::RouterKeys, private_keys::PrivateKeys, workers::Workers};

/// What the process has.
pub(crate) struct PathSec {
    pub(crate) keys: RouterKeys,
    pub(crate) private_keys: PrivateKeys,
    pub(crate) workers: Workers,
}

impl PathSec {
    /// What it holds and has done.
    pub(crate) fn status(&self) -> PathSecStatus {
        let (keys, work) = (self.keys.now(), self.workers.done());
        PathSecStatus {
            router_keys: keys.len() as u64,
            verified: work.verified,
            remembered: work.remembered,
            failed: work.failed,
            jobs_under_way: self.workers.jobs_under_way() as u64,
            memory_octets: (keys.memory() + self.workers.memory()) as u64,
            epoch: keys.epoch(),
            known: self.keys.is_known(),
            private_keys: self.private_keys.shown(),
            signed: self.workers.signed(),
            refused_keys: self.keys.refusals(),
        }
    }
}
