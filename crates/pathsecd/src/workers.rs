//! Threads that judge and sign. A batch of paths is cut into parts of about as many hops for each thread; whoever is free takes
//! the next part. A batch to be signed goes before, also where a thread is in the middle of a part.

use std::{
    cell::Cell,
    io,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use holdfast_api::pathsec::v1::{self as api, Job, SignReply, State, ValidateReply};
use holdfast_bgpsec_wire::{Nlri, Path};
use holdfast_path_validation::{Keys, Reason, Validator, Verdict, Work};
use holdfast_types::{Asn, Prefix};
use holdfast_xrl::XrlError;
use tokio::sync::oneshot;

use crate::{
    queue::{Counted, Queue, Task, Turn, Turns},
    signing,
};

/// Jobs of a batch.
pub(crate) const MOST_JOBS: usize = 64;
/// Hops of a batch: 0.3 s of one thread.
pub(crate) const MOST_HOPS: usize = 4096;
/// Octets of a path: the longest that an attribute can have.
pub(crate) const MOST_PATH_OCTETS: usize = 65_535;

/// What the threads have to do.
type Tasks = Queue<Part, signing::Batch>;

/// The threads, and the way to them.
pub(crate) struct Workers {
    threads: usize,
    queue: Arc<Tasks>,
    judging: Turns,
    signing: Turns,
    jobs: Cell<usize>,
    bench: Arc<Bench>,
}

/// What all threads have in common.
pub(crate) struct Bench {
    validator: Validator,
    verified: AtomicU64,
    remembered: AtomicU64,
    failed: AtomicU64,
    signed: AtomicU64,
}

/// What came in one request. It is judged by the keys as they were when its turn came.
struct Batch {
    jobs: Vec<Job>,
    keys: Arc<Keys>,
    /// Given back when the last thread is done with it, even if nobody waits for the verdicts any more.
    _turn: Turn,
}

/// What one thread does of a batch.
struct Part {
    batch: Arc<Batch>,
    jobs: Range<usize>,
    verdicts: oneshot::Sender<Vec<api::Verdict>>,
}

impl Workers {
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(threads: usize, validator: Validator) -> io::Result<Self> {
        let (queue, bench) = (Arc::new(Tasks::new()), Arc::new(Bench::new(validator)));
        for _ in 0..threads {
            let (queue, bench) = (Arc::clone(&queue), Arc::clone(&bench));
            thread::Builder::new().name("judge".into()).spawn(move || {
                // A process with a thread less would go on, and be slower for ever.
                if catch_unwind(AssertUnwindSafe(|| work(&queue, &bench))).is_err() {
                    std::process::abort();
                }
            })?;
        }
        let [judging, signing] = [Turns::new(), Turns::new()];
        Ok(Self { threads, queue, judging, signing, jobs: Cell::default(), bench })
    }

    /// Judges a batch by the keys as they are when its turn has come. Dropped, it drops what no thread has begun with.
    ///
    /// # Errors
    /// The batch is above its bounds, or too many wait already.
    pub(crate) async fn validate(
        &self,
        jobs: Vec<Job>,
        keys: impl FnOnce() -> Arc<Keys>,
    ) -> Result<ValidateReply, XrlError> {
        let hops = hops(&jobs)?;
        let _under_way = Counted::new(&self.jobs, jobs.len());
        let turn = self.judging.turn().await?;
        let batch = Arc::new(Batch { jobs, keys: keys(), _turn: turn });
        let (epoch, mut verdicts) = (batch.keys.epoch(), Vec::with_capacity(batch.jobs.len()));
        let mut answers = Vec::with_capacity(self.threads);
        for jobs in cut(&hops, self.threads) {
            let (verdicts, answer) = oneshot::channel();
            let part = Part { batch: Arc::clone(&batch), jobs, verdicts };
            // Each batch that has its turn has one part at most for each thread.
            self.queue.push(Task::Judge(part));
            answers.push(answer);
        }
        drop(batch);
        for answer in answers {
            verdicts.extend(answer.await.map_err(|_| ended())?);
        }
        Ok(ValidateReply { epoch, verdicts })
    }

    /// Signs a batch; of a job without a key there are no octets. Dropped, it drops what no thread has begun with.
    ///
    /// # Errors
    /// Too many wait already, or the library cannot sign.
    pub(crate) async fn sign(&self, jobs: Vec<signing::Job>) -> Result<SignReply, XrlError> {
        let turn = self.signing.turn().await?;
        let (signatures, answer) = oneshot::channel();
        self.queue.push(Task::Sign(signing::Batch { jobs, turn, signatures }));
        let signatures = answer.await.map_err(|_| ended())?;
        let signatures = signatures.map_err(|error| XrlError::internal(error.to_string()))?;
        Ok(SignReply { signatures })
    }

    /// What verdicts have cost since the start.
    pub(crate) fn done(&self) -> Work {
        self.bench.done()
    }

    /// Signatures that were made since the start.
    pub(crate) fn signed(&self) -> u64 {
        self.bench.signed.load(Ordering::Relaxed)
    }

    /// Jobs that were taken and are not answered.
    pub(crate) fn jobs_under_way(&self) -> usize {
        self.jobs.get()
    }

    /// Octets of the memory of good signatures.
    pub(crate) fn memory(&self) -> usize {
        self.bench.validator.memory()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn ended() -> XrlError {
    XrlError::internal("the threads have ended")
}

/// Hops of each job; a path that cannot be read counts as one.
pub(crate) fn hops(jobs: &[Job]) -> Result<Vec<usize>, XrlError> {
    let refused = |why: String| Err(XrlError::invalid_argument(why));
    if jobs.len() > MOST_JOBS {
        return refused(format!("{} jobs, at most {MOST_JOBS}", jobs.len()));
    }
    if let Some(job) = jobs.iter().find(|job| job.path.len() > MOST_PATH_OCTETS) {
        return refused(format!("a path of {} octets, at most {MOST_PATH_OCTETS}", job.path.len()));
    }
    let hops = jobs.iter().map(|job| Path::parse(&job.path).map_or(1, |path| path.hops()));
    let hops: Vec<_> = hops.collect();
    match hops.iter().sum::<usize>() {
        sum if sum > MOST_HOPS => refused(format!("{sum} hops, at most {MOST_HOPS}")),
        _ => Ok(hops),
    }
}

/// Jobs with so many hops each, in so many parts at most that are about as long.
fn cut(hops: &[usize], parts: usize) -> Vec<Range<usize>> {
    let enough = hops.iter().sum::<usize>().div_ceil(parts);
    let (mut ranges, mut begin, mut length) = (Vec::with_capacity(parts), 0, 0);
    for (at, hops) in hops.iter().enumerate() {
        length += hops;
        if length >= enough {
            ranges.push(begin..at + 1);
            (begin, length) = (at + 1, 0);
        }
    }
    if begin < hops.len() {
        ranges.push(begin..hops.len());
    }
    ranges
}

/// The life of a thread.
fn work(tasks: &Tasks, bench: &Bench) {
    while let Some(task) = tasks.next() {
        match task {
            Task::Judge(part) => bench.judge(part, tasks),
            Task::Sign(batch) => batch.sign(&bench.signed),
        }
    }
}

impl Bench {
    pub(crate) fn new(validator: Validator) -> Self {
        let [verified, remembered, failed, signed] = Default::default();
        Self { validator, verified, remembered, failed, signed }
    }

    fn done(&self) -> Work {
        let [verified, remembered, failed] =
            [&self.verified, &self.remembered, &self.failed].map(|count| count.load(Ordering::Relaxed));
        Work { verified, remembered, failed }
    }

    fn judge(&self, Part { batch, jobs, verdicts: answer }: Part, tasks: &Tasks) {
        let mut verdicts = Vec::with_capacity(jobs.len());
        for job in &batch.jobs[jobs] {
            while let Some(batch) = tasks.to_sign() {
                batch.sign(&self.signed);
            }
            if answer.is_closed() {
                return;
            }
            verdicts.push(self.verdict(job, &batch.keys));
        }
        // The turn is given back before the caller hears of it, who may ask for more at once.
        drop(batch);
        // Whoever has gone meanwhile misses nothing.
        let _ = answer.send(verdicts);
    }

    pub(crate) fn verdict(&self, job: &Job, keys: &Keys) -> api::Verdict {
        let (Ok(path), Some(prefix)) = (Path::parse(&job.path), prefix(job)) else {
            return api::Verdict { state: State::Malformed.into(), ..api::Verdict::default() };
        };
        let (verdict, work) = self.validator.judge(&path, Asn(job.target_asn), &Nlri::unicast(prefix), keys);
        for (count, more) in [
            (&self.verified, work.verified),
            (&self.remembered, work.remembered),
            (&self.failed, work.failed),
        ] {
            count.fetch_add(more, Ordering::Relaxed);
        }
        api::Verdict { verified: work.verified, failed: work.failed, ..told(verdict) }
    }
}

/// The prefix of a job, in as many octets as it has.
pub(crate) fn prefix(job: &Job) -> Option<Prefix> {
    fn padded<const N: usize>(octets: &[u8]) -> Option<[u8; N]> {
        let mut address = [0; N];
        address.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(address)
    }
    let length = u8::try_from(job.prefix_length).ok()?;
    if job.prefix.len() != usize::from(length.div_ceil(8)) {
        return None;
    }
    let address = match job.afi {
        1 => padded::<4>(&job.prefix)?.into(),
        2 => padded::<16>(&job.prefix)?.into(),
        _ => return None,
    };
    Prefix::new(address, length)
}

/// A verdict as it travels.
fn told(verdict: Verdict) -> api::Verdict {
    let failure = match verdict {
        Verdict::Valid => return api::Verdict { state: State::Valid.into(), ..api::Verdict::default() },
        Verdict::Unsupported => {
            return api::Verdict { state: State::Unsupported.into(), ..api::Verdict::default() };
        }
        Verdict::NotValid(failure) => failure,
    };
    let reason = match failure.reason {
        Reason::NoKey => api::Reason::NoKey,
        Reason::UnusableKey => api::Reason::UnusableKey,
        Reason::BadSignature => api::Reason::BadSignature,
    };
    api::Verdict {
        state: State::NotValid.into(),
        failing_hop: failure.hop as u32,
        asn: failure.asn.0,
        ski: failure.ski.0.to_vec(),
        suite: failure.suite.into(),
        reason: reason.into(),
        verified: 0,
        failed: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_about_as_long_and_no_more_than_threads() {
        assert!(cut(&[], 3).is_empty());
        assert_eq!(cut(&[4; 6], 3), [0..2, 2..4, 4..6]);
        assert_eq!(cut(&[1, 1, 1, 100, 1], 3), [0..4, 4..5]);
        for parts in 1..9 {
            for jobs in 1..=MOST_JOBS {
                let hops: Vec<_> = (0..jobs).map(|job| 1 + job * job % 7).collect();
                let ranges = cut(&hops, parts);
                assert!(ranges.len() <= parts && ranges.iter().all(|range| !range.is_empty()));
                assert!(ranges.iter().flat_map(Clone::clone).eq(0..jobs), "each once, in order");
                let most = hops.iter().sum::<usize>().div_ceil(parts) + 6;
                assert!(ranges.iter().all(|range| hops[range.clone()].iter().sum::<usize>() <= most));
            }
        }
    }

    #[test]
    fn a_prefix_has_the_octets_of_its_length() {
        let job = |afi, octets: &[u8], prefix_length| Job {
            afi,
            prefix: octets.to_vec(),
            prefix_length,
            ..Job::default()
        };
        for (job, expected) in [
            (job(1, &[192, 0, 2], 24), Some("192.0.2.0/24")),
            (job(1, &[192, 0, 2], 23), Some("192.0.2.0/23")),
            (job(1, &[], 0), Some("0.0.0.0/0")),
            (job(1, &[192, 0, 2, 1], 32), Some("192.0.2.1/32")),
            (job(2, &[0x20, 1, 0xd, 0xb8], 32), Some("2001:db8::/32")),
            (job(2, &[0; 16], 128), Some("::/128")),
            (job(1, &[192, 0, 3], 23), Some("192.0.2.0/23")),
            (job(1, &[192, 0, 2, 0], 24), None),
            (job(1, &[192, 0], 24), None),
            (job(1, &[192, 0, 2, 1, 0], 33), None),
            (job(2, &[0; 17], 129), None),
            (job(1, &[0; 33], 256 + 8), None),
            (job(0, &[10], 8), None),
            (job(3, &[10], 8), None),
        ] {
            assert_eq!(prefix(&job).map(|prefix| prefix.to_string()).as_deref(), expected, "{job:?}");
        }
    }
}
