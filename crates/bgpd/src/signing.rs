//! Octets that are to be signed on their way to the process `pathsec`, and signatures back.
//!
//! The pipeline says what is to be signed, and puts announcements off meanwhile. Here is the window of batches that are under
//! way, and nothing is queued. If `pathsec` dies, what was asked is asked again.

use std::{rc::Rc, time::Duration};

use holdfast_api::pathsec::v1::{self as api, Empty, PathSecClient, SignJob, SignReply, SignRequest};
use holdfast_bgp_pipeline::{Pipeline, Signer, SigningJob};
use holdfast_bgpsec_wire::Ski;
use holdfast_types::Asn;
use holdfast_xrl::XrlError;
use tokio::{
    task::JoinSet,
    time::{Instant as Deadline, sleep, sleep_until},
};
use tracing::{info, warn};

use crate::bgp::Bgp;

/// Batches under way: enough to keep a thread of `pathsec` busy while one is on its way.
const WINDOW: usize = 4;
/// Signatures of a batch: 1.3 ms of one processor.
const MOST_JOBS: usize = 64;
/// Octets of a batch, if its last job does not go beyond.
const MOST_OCTETS: usize = 64 << 10;
/// A batch that is not answered for so long will not be: `pathsec` is asked anew.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two lives of `pathsec`.
const RETRY: Duration = Duration::from_millis(200);

/// What a batch asks, and what has come of it.
struct Answered {
    numbers: Vec<u64>,
    reply: Result<SignReply, XrlError>,
}

/// Has the paths of the speaker's routes signed, for as long as it lives.
pub(crate) async fn sign(bgp: Rc<Bgp>) {
    let mut said = String::new();
    // Nobody is looked for before some peer takes signed paths.
    bgp.signing.notified().await;
    bgp.signing.notify_one();
    loop {
        let error = life(&bgp, &mut said).await.to_string();
        bgp.with(|speaker, _| speaker.pipeline.signing_lost());
        if said != error {
            warn!(event = "signer-lost", "paths wait to be signed: {error}");
            said = error;
        }
        sleep(RETRY).await;
    }
}

/// The life of one `pathsec`; what ended it. What was `said` of an earlier end is over when this one names its keys.
async fn life(bgp: &Rc<Bgp>, said: &mut String) -> XrlError {
    let client: PathSecClient = match bgp.surroundings.resolver.wait_for("pathsec").await {
        Ok(client) => client,
        Err(error) => return error,
    };
    let mut stream = client.watch_signers(Empty {});
    let (mut batches, mut is_known) = (JoinSet::new(), false);
    let mut patience = Deadline::now() + PATIENCE;
    loop {
        while is_known && batches.len() < WINDOW {
            let jobs = bgp.settle("paths to sign", |speaker, _| take(&mut speaker.pipeline));
            if jobs.is_empty() {
                break;
            }
            if batches.is_empty() {
                patience = Deadline::now() + PATIENCE;
            }
            let (numbers, jobs) = jobs.into_iter().map(|job| (job.number, asked(job))).unzip();
            let reply = client.sign(SignRequest { jobs });
            batches.spawn_local(async move { Answered { numbers, reply: reply.await } });
        }
        tokio::select! {
            changed = stream.next() => match changed {
                Ok(Some(changed)) => {
                    let Some(signers) = signers(&changed) else {
                        return XrlError::internal("a key that has no name");
                    };
                    info!(event = "signers", keys = signers.len(), "keys that paths are signed with: {}", signers.len());
                    bgp.with(|speaker, _| speaker.pipeline.set_signers(signers));
                    is_known = true;
                    said.clear();
                }
                Ok(None) => return XrlError::unavailable("it has ended its stream of signers"),
                Err(error) => return error,
            },
            Some(answered) = batches.join_next() => {
                let Ok(Answered { numbers, reply }) = answered else { continue };
                patience = Deadline::now() + PATIENCE;
                let signatures = match reply {
                    Ok(SignReply { signatures }) if signatures.len() == numbers.len() => signatures,
                    Ok(_) => return XrlError::internal("a signature for each job was expected"),
                    Err(error) => return error,
                };
                bgp.settle("signatures", |speaker, _| {
                    numbers.iter().zip(&signatures).for_each(|(number, octets)| {
                        speaker.pipeline.signed(*number, octets);
                    });
                });
            }
            () = bgp.signing.notified(), if is_known && batches.len() < WINDOW => {}
            () = sleep_until(patience), if !batches.is_empty() => {
                return XrlError::unavailable("it does not answer");
            }
        }
    }
}

/// The keys that `pathsec` names.
pub(crate) fn signers(said: &api::Signers) -> Option<Vec<Signer>> {
    let signer = |key: &api::Signer| {
        let ski = Ski(key.ski.as_slice().try_into().ok()?);
        Some(Signer { asn: Asn(key.asn), suite: u8::try_from(key.suite).ok()?, ski })
    };
    said.keys.iter().map(signer).collect()
}

/// The next batch.
pub(crate) fn take(pipeline: &mut Pipeline) -> Vec<SigningJob> {
    let (mut jobs, mut octets) = (Vec::new(), 0);
    while jobs.len() < MOST_JOBS
        && octets < MOST_OCTETS
        && let Some(job) = pipeline.poll_to_sign()
    {
        octets += job.octets.len();
        jobs.push(job);
    }
    jobs
}

pub(crate) fn asked(SigningJob { asn, ski, suite, octets, .. }: SigningJob) -> SignJob {
    SignJob { asn: asn.0, ski: ski.0.to_vec(), suite: suite.into(), octets }
}
