//! Signed paths on their way to the process `pathsec`, and verdicts back.
//!
//! The pipeline says whose turn it is. Here is the window of batches that are under way, and nothing is queued. Whatever
//! happens to `pathsec`, routes keep what is known of them, and what was asked is asked again.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::pathsec::v1::{
    Empty, Job, KeyName, KeysChanged, PathSecClient, Reason, State, ValidateReply, ValidateRequest, Verdict,
};
use holdfast_bgp_pipeline::{
    Pipeline, SignatureCost, SignatureFault, SignatureFaultReason, SignatureJob, SignatureVerdict,
};
use holdfast_bgpsec_wire::Ski;
use holdfast_types::{Asn, Prefix};
use holdfast_xrl::XrlError;
use tokio::{
    task::JoinSet,
    time::{Instant as Deadline, sleep, sleep_until},
};
use tracing::warn;

use crate::bgp::Bgp;

/// Batches under way: enough to keep the threads of `pathsec` busy while one is on its way, and so few that a new path does
/// not wait for long behind them.
const WINDOW: usize = 4;
/// Paths of a batch.
const MOST_JOBS: usize = 64;
/// Hops of a batch, if its last path does not go beyond: 18 ms of one processor.
const MOST_HOPS: usize = 256;
/// A batch that is not answered for so long will not be: `pathsec` is asked anew.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause where there was nothing to verify.
const PAUSE: Duration = Duration::from_millis(1);
/// Pause between two lives of `pathsec`.
const RETRY: Duration = Duration::from_millis(200);

/// What a batch asks, and what has come of it.
struct Answered {
    numbers: Vec<u64>,
    reply: Result<ValidateReply, XrlError>,
}

/// Has the signatures of the speaker's routes verified, for as long as it lives.
pub(crate) async fn verify(bgp: Rc<Bgp>) {
    let (mut said, mut judged) = (String::new(), Vec::new());
    // Nobody is looked for before there is something to verify.
    bgp.signatures.notified().await;
    bgp.signatures.notify_one();
    loop {
        let error = life(&bgp, &mut judged, &mut said).await.to_string();
        bgp.with(|speaker, _| speaker.pipeline.signatures_lost());
        if said != error {
            warn!(event = "pathsec-lost", "signed paths wait to be verified: {error}");
            said = error;
        }
        sleep(RETRY).await;
    }
}

/// The life of one `pathsec`; what ended it. `judged` stands for the keys that routes were judged by. What was `said` of an
/// earlier end is over when this one tells of its keys.
async fn life(bgp: &Rc<Bgp>, judged: &mut Vec<u8>, said: &mut String) -> XrlError {
    let client: PathSecClient = match bgp.surroundings.resolver.wait_for("pathsec").await {
        Ok(client) => client,
        Err(error) => return error,
    };
    let mut stream = client.watch(Empty {});
    let mut keys = Keys { epoch: 0, known: false, judged };
    let mut batches = JoinSet::new();
    let mut patience = Deadline::now() + PATIENCE;
    loop {
        let mut was_empty = false;
        // Before anybody has said which keys there are, none is known to be missing.
        while keys.known && batches.len() < WINDOW {
            let jobs = bgp.settle("signed paths", |speaker, now| take(&mut speaker.pipeline, now));
            if jobs.is_empty() {
                was_empty = true;
                break;
            }
            if batches.is_empty() {
                patience = Deadline::now() + PATIENCE;
            }
            let (numbers, jobs) = jobs.into_iter().map(|job| (job.number, asked(job))).unzip();
            let reply = client.validate(ValidateRequest { jobs });
            batches.spawn_local(async move { Answered { numbers, reply: reply.await } });
        }
        tokio::select! {
            changed = stream.next() => match changed {
                Ok(Some(changed)) => {
                    said.clear();
                    if let Some(changed) = keys.heard(&changed) {
                        bgp.with(|speaker, _| changed.tell(&mut speaker.pipeline));
                    }
                }
                Ok(None) => return XrlError::unavailable("it has ended its stream of keys"),
                Err(error) => return error,
            },
            Some(answered) = batches.join_next() => {
                let Ok(Answered { numbers, reply }) = answered else { continue };
                patience = Deadline::now() + PATIENCE;
                let taken = reply.and_then(|reply| Ok((verdicts(&reply, numbers.len())?, reply.epoch)));
                let (verdicts, epoch) = match taken {
                    Ok(taken) => taken,
                    Err(error) => return error,
                };
                let is_current = epoch >= keys.epoch;
                bgp.settle("verdicts", |speaker, now| {
                    tell(&mut speaker.pipeline, &numbers, verdicts, is_current, now);
                });
            }
            () = bgp.signatures.notified(), if keys.known && batches.len() < WINDOW => {
                if was_empty {
                    // Whatever the pipeline says: others have their turns.
                    sleep(PAUSE).await;
                }
            }
            () = sleep_until(patience), if !batches.is_empty() => {
                return XrlError::unavailable("it does not answer");
            }
        }
    }
}

/// What `pathsec` says of routers' keys.
pub(crate) struct Keys<'a> {
    pub(crate) epoch: u64,
    /// What stands for the keys that it has told of.
    pub(crate) judged: &'a mut Vec<u8>,
    /// Caches have said which keys there are.
    pub(crate) known: bool,
}

/// Names for which keys have come and gone, or that nobody knows which.
pub(crate) struct ChangedNames {
    pub(crate) added: Vec<(Asn, Ski)>,
    pub(crate) removed: Vec<(Asn, Ski)>,
    pub(crate) all: bool,
    /// Those that have gone have expired.
    pub(crate) lapsed: bool,
}

impl ChangedNames {
    /// Has the pipeline look for routes that name them.
    pub(crate) fn tell(self, pipeline: &mut Pipeline) {
        let Self { added, removed, all, lapsed } = self;
        match lapsed {
            false => pipeline.keys_changed(added, removed, all),
            true => {
                pipeline.keys_lapsed(removed, all);
                pipeline.keys_changed(added, [], false);
            }
        }
    }
}

impl Keys<'_> {
    /// What routes are to be looked at again for.
    pub(crate) fn heard(&mut self, changed: &KeysChanged) -> Option<ChangedNames> {
        self.epoch = changed.epoch;
        if !changed.known {
            return None;
        }
        // What was removed before this life, nobody says.
        let is_first = !std::mem::replace(&mut self.known, true);
        let is_same = *self.judged == changed.sum;
        self.judged.clone_from(&changed.sum);
        if is_same {
            return None;
        }
        let names = |names: &[KeyName]| -> Vec<(Asn, Ski)> {
            names.iter().filter_map(|name| Some((Asn(name.asn), ski(&name.ski)?))).collect()
        };
        let (added, removed) = (names(&changed.added), names(&changed.removed));
        // What is heard first may be more than what has expired.
        let lapsed = changed.lapsed && !is_first;
        Some(ChangedNames { added, removed, all: changed.all || is_first, lapsed })
    }
}

/// The verdicts of an answer to so many jobs, and what each has cost.
pub(crate) fn verdicts(
    reply: &ValidateReply,
    jobs: usize,
) -> Result<Vec<(SignatureVerdict, SignatureCost)>, XrlError> {
    if reply.verdicts.len() != jobs {
        return Err(XrlError::internal("a verdict for each path was expected"));
    }
    let verdicts = reply.verdicts.iter().map(verdict_of).collect::<Option<Vec<_>>>();
    verdicts.ok_or_else(|| XrlError::internal("a verdict that says nothing"))
}

/// Has the pipeline know the verdicts on jobs with these numbers.
pub(crate) fn tell(
    pipeline: &mut Pipeline,
    numbers: &[u64],
    verdicts: Vec<(SignatureVerdict, SignatureCost)>,
    is_current: bool,
    now: Instant,
) {
    for (number, (verdict, cost)) in numbers.iter().zip(verdicts) {
        pipeline.verified(*number, verdict, cost, is_current, now);
    }
}

/// The next batch.
pub(crate) fn take(pipeline: &mut Pipeline, now: Instant) -> Vec<SignatureJob> {
    let (mut jobs, mut hops) = (Vec::new(), 0);
    while jobs.len() < MOST_JOBS
        && hops < MOST_HOPS
        && let Some(job) = pipeline.poll_signatures(now)
    {
        hops += job.hops;
        jobs.push(job);
    }
    jobs
}

pub(crate) fn asked(SignatureJob { path, prefix, target, .. }: SignatureJob) -> Job {
    let (afi, bits) = match prefix {
        Prefix::V4(prefix) => (1, prefix.address().octets().to_vec()),
        Prefix::V6(prefix) => (2, prefix.address().octets().to_vec()),
    };
    let length = prefix.length();
    let octets = bits[..usize::from(length.div_ceil(8))].to_vec();
    Job { path, afi, prefix: octets, prefix_length: length.into(), target_asn: target.0 }
}

/// The verdict, and what it has cost.
fn verdict_of(verdict: &Verdict) -> Option<(SignatureVerdict, SignatureCost)> {
    let said = match verdict.state() {
        State::Valid => SignatureVerdict::Valid,
        State::Unsupported => SignatureVerdict::Unsupported,
        // The pipeline hands out what can be read.
        State::Unspecified | State::Malformed => return None,
        State::NotValid => {
            let reason = match verdict.reason() {
                Reason::NoKey => SignatureFaultReason::NoKey,
                Reason::UnusableKey => SignatureFaultReason::UnusableKey,
                Reason::BadSignature | Reason::Unspecified => SignatureFaultReason::BadSignature,
            };
            SignatureVerdict::NotValid(SignatureFault {
                suite: u8::try_from(verdict.suite).unwrap_or_default(),
                hop: verdict.failing_hop,
                asn: Asn(verdict.asn),
                ski: ski(&verdict.ski).unwrap_or(Ski([0; 20])),
                reason,
            })
        }
    };
    let [verified, failed] =
        [verdict.verified, verdict.failed].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    Some((said, SignatureCost { verified, failed }))
}

fn ski(octets: &[u8]) -> Option<Ski> {
    octets.try_into().ok().map(Ski)
}
