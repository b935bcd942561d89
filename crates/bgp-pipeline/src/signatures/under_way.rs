//! Jobs that are under way, by number. They are answered in about their order.

use std::collections::VecDeque;

use super::{queue::Priority, routes::RouteKey};
use crate::PeerIndex;

/// A job that is under way.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) key: RouteKey,
    pub(crate) peer: PeerIndex,
    /// Whose turn it took, and for so many hops.
    pub(crate) priority: Priority,
    pub(crate) hops: u32,
}

/// As many as the driver lets be under way. One that is never answered keeps the room of those behind it, until all are lost.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// The number of the first one.
    first: u64,
    jobs: VecDeque<Option<Asked>>,
}

impl UnderWay {
    /// The number of a new one.
    pub(crate) fn add(&mut self, asked: Asked) -> u64 {
        self.jobs.push_back(Some(asked));
        self.first + self.jobs.len() as u64 - 1
    }

    /// The one with this number, which is not under way any more.
    pub(crate) fn take(&mut self, number: u64) -> Option<Asked> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let taken = self.jobs.get_mut(place)?.take();
        while self.jobs.pop_front_if(|job| job.is_none()).is_some() {
            self.first += 1;
        }
        taken
    }

    /// All of them, which are not under way any more.
    pub(crate) fn take_all(&mut self) -> Vec<(u64, Asked)> {
        let first = self.first;
        self.first += self.jobs.len() as u64;
        let jobs = std::mem::take(&mut self.jobs).into_iter().zip(first..);
        jobs.filter_map(|(job, number)| Some((number, job?))).collect()
    }

    /// The peer is gone: what its signatures have cost is not charged to the next one with its number.
    pub(crate) fn forget(&mut self, peer: PeerIndex) {
        for job in &mut self.jobs {
            *job = job.filter(|asked| asked.peer != peer);
        }
        while self.jobs.pop_front_if(|job| job.is_none()).is_some() {
            self.first += 1;
        }
    }

    /// Octets of memory, without those of the allocator.
    pub(crate) fn memory(&self) -> usize {
        self.jobs.capacity() * size_of::<Option<Asked>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::SourceId;

    fn job(number: u16) -> Asked {
        let prefix = "10.0.0.0/8".parse().expect("a prefix");
        let key = RouteKey::new(SourceId(number), prefix);
        Asked { key, peer: PeerIndex(number), priority: Priority::First, hops: 1 }
    }

    #[test]
    fn each_is_taken_once_in_any_order() {
        let mut jobs = UnderWay::default();
        let numbers: Vec<_> = (0..5).map(|number| jobs.add(job(number))).collect();
        assert_eq!((jobs.take(numbers[2]), jobs.take(numbers[2])), (Some(job(2)), None));
        assert_eq!((jobs.take(numbers[0]), jobs.take(numbers[0])), (Some(job(0)), None));
        assert_eq!(jobs.take(numbers[4] + 1), None);
        assert_eq!(jobs.take(numbers[1]), Some(job(1)));
        assert_eq!(jobs.jobs.len(), 2, "those before are gone");
        assert_eq!(jobs.take_all(), [(numbers[3], job(3)), (numbers[4], job(4))]);
        assert_eq!(jobs.take(numbers[3]), None);
        assert_eq!(jobs.add(job(5)), numbers[4] + 1, "numbers are not used again");
    }
}
