//! The router's private keys: how they come here, and who hears which of them are in use.

use std::{
    cell::RefCell,
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holdfast_api::pathsec::v1::{
    Configuration, KeyState, PrivateKey, SecretKey, Secrets, SignJob, Signers as Told,
};
use holdfast_path_validation::{Keys, P256Signer};
use holdfast_process::unseal;
use holdfast_types::Asn;
use holdfast_xrl::XrlError;
use prost::Message;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};
use tracing::{info, warn};

use crate::{
    pathsec::PathSec,
    signers::{Event, Given, MOST_KEYS, Signers},
    signing::{Job, Key},
};

/// The private keys, and what is said of them.
#[derive(Default)]
pub(crate) struct PrivateKeys {
    /// What came last. It is in use from the next configuration on.
    kept: RefCell<Vec<Given>>,
    signers: RefCell<Signers>,
    /// `None`: it is not known yet.
    in_use: watch::Sender<Option<Told>>,
    /// Something may be due at another time.
    changed: Notify,
}

impl PrivateKeys {
    /// Takes keys out of sealed memory.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be read; then nothing has changed.
    pub(crate) fn keep(&self, descriptors: Vec<OwnedFd>) -> Result<(), XrlError> {
        let invalid = |text: &str| XrlError::invalid_argument(text);
        let memory =
            descriptors.into_iter().next().ok_or_else(|| invalid("no descriptor came with the call"))?;
        let told = unseal(memory).and_then(|octets| Secrets::decode(&*octets).ok());
        let told = told.ok_or_else(|| invalid("the descriptor is no sealed memory with private keys"))?;
        if told.keys.len() > MOST_KEYS {
            return Err(invalid("there are more private keys than can be held"));
        }
        let given = |told: &SecretKey| {
            let signer = P256Signer::from_der(Asn(told.asn), &told.key);
            let signer = signer.map_err(|error| invalid(&format!("AS {}: {error}", told.asn)))?;
            Ok(Given { key: Arc::new(Key::new(signer)), sign_from: told.sign_from })
        };
        let keys = told.keys.iter().map(given).collect::<Result<_, XrlError>>()?;
        self.kept.replace(keys);
        Ok(())
    }

    /// The keys that were kept are in use now. `published` is what caches publish, as far as they were heard.
    pub(crate) fn configure(&self, told: &Configuration, published: &Keys) {
        let ases = told.ases.iter().copied().map(Asn).collect();
        let is_published = |key: &_| published.contains(key);
        let given = self.kept.borrow();
        self.signers.borrow_mut().configure(&given, ases, told.caches, is_published, Instant::now());
        self.decide();
        self.changed.notify_one();
    }

    /// Caches publish these from now on; `withdraws`: what they do not publish any more is gone, not only expired.
    pub(crate) fn heard(&self, published: &Keys, withdraws: bool) {
        self.signers.borrow_mut().heard(|key| published.contains(key), withdraws);
        self.decide();
        self.changed.notify_one();
    }

    fn decide(&self) {
        let events = self.signers.borrow_mut().decide(Instant::now(), wall());
        events.into_iter().for_each(say);
        let told = self.signers.borrow().in_use().map(|keys| Told { keys });
        self.in_use.send_if_modified(|before| {
            let is_other = *before != told;
            *before = told;
            is_other
        });
    }

    fn timeout(&self) -> Option<Duration> {
        self.signers.borrow().timeout(Instant::now(), wall())
    }

    /// What is in use, from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Told>> {
        self.in_use.subscribe()
    }

    /// The job with the key that it names.
    pub(crate) fn job(&self, job: SignJob) -> Job {
        let key = self.signers.borrow().key(Asn(job.asn), &job.ski, job.suite);
        Job { key, octets: job.octets }
    }

    /// All of them, as they are shown.
    pub(crate) fn shown(&self) -> Vec<PrivateKey> {
        self.signers.borrow().shown()
    }
}

/// Does what time brings about, for ever.
pub(crate) async fn follow(pathsec: Rc<PathSec>) {
    let keys = &pathsec.private_keys;
    loop {
        let due = async {
            match keys.timeout() {
                Some(timeout) => sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => keys.decide(),
            () = keys.changed.notified() => {}
        }
    }
}

/// The time of day, in seconds since 1970: `sign-from` is of the calendar.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn say(Event { asn, ski, state }: Event) {
    let asn = asn.0;
    match state {
        KeyState::InUse => info!(
            event = "private-key-in-use",
            asn,
            %ski,
            "AS {asn}: paths are signed with the private key {ski}"
        ),
        KeyState::Unpublished => warn!(
            event = "private-key-unpublished",
            asn,
            %ski,
            "AS {asn}: no cache publishes the private key {ski}: nobody could verify by it, and it signs nothing"
        ),
        KeyState::Withdrawn => warn!(
            event = "private-key-withdrawn",
            asn,
            %ski,
            "AS {asn}: caches have withdrawn the private key {ski}: it signs nothing any more"
        ),
        KeyState::Foreign => warn!(
            event = "private-key-foreign",
            asn,
            %ski,
            "AS {asn} is none of ours: the private key {ski} signs nothing"
        ),
        // Nobody has to hear of these.
        KeyState::Unspecified | KeyState::Superseded | KeyState::Waiting => {}
    }
}
