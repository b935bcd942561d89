//! Routers' keys, as the process `rpki` tells them.
//!
//! Pieces are put together, and an epoch takes effect as a whole. It holds for as long as `rpki` has allowed when it said it,
//! whether that is still there or not (RFC 8210 section 6).

use std::{rc::Rc, sync::Arc, time::Duration};

use holdfast_api::rpki::v1::{self as api, Piece, RpkiClient, WatchRequest};
use holdfast_path_validation::{Change, RouterKey, has_own_name};
use holdfast_process::Resolver;
use holdfast_types::{Asn, Ski};
use holdfast_xrl::{ErrorKind, XrlError};
use tokio::time::{sleep, sleep_until};
use tracing::warn;

use crate::{
    keys::{AS_MANY_AS_MAY_BE, Gathered, RouterKeys, elsewhere},
    pathsec::PathSec,
};

/// Pause between two attempts to ask.
const RETRY: Duration = Duration::from_millis(200);
/// The longest, where what is said is refused each time.
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// Keys in the table, and keys that one epoch may withdraw: ten for each AS that there is.
const MOST_KEYS: usize = 1 << 20;

/// Follows what the process `rpki` says, for ever.
pub(crate) async fn follow(pathsec: Rc<PathSec>, resolver: Resolver) {
    let keys = &pathsec.keys;
    let (mut said, mut pause) = (String::new(), RETRY);
    // All processes begin at the same time: the first attempt may come too early.
    let mut is_first = true;
    loop {
        let Err(error) = watch(&pathsec, &resolver).await else { continue };
        // What was refused is likely to be the same the next time.
        pause = if error.kind() == ErrorKind::InvalidArgument { LONGEST_RETRY.min(2 * pause) } else { RETRY };
        let error = error.to_string();
        if said != error && !std::mem::take(&mut is_first) {
            warn!(event = "router-keys-lost", "rpki: {error}");
            said = error;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = due(keys) => {
                keys.elapsed().await;
            }
        }
    }
}

/// Waits until time has brought something about.
async fn due(keys: &RouterKeys) {
    match keys.timeout() {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The life of one `rpki`, until all is to be asked for again. What it has said holds on for its time.
///
/// # Errors
/// What ended it.
async fn watch(pathsec: &PathSec, resolver: &Resolver) -> Result<(), XrlError> {
    let keys = &pathsec.keys;
    let mut bound = keys.bound();
    let client: RpkiClient = resolver.client("rpki").await?;
    let mut stream = client.watch(WatchRequest { vrps: false, aspas: false, router_keys: true });
    let (mut gathering, mut heard) = (Gathering::default(), false);
    loop {
        let next = tokio::select! {
            biased;
            () = due(keys) => {
                // What comes next would be a difference to what has expired: all is asked for again.
                if keys.elapsed().await && heard {
                    return Err(XrlError::unavailable("what it has said has expired"));
                }
                continue;
            }
            // Keys that were refused are not known here.
            Ok(()) = bound.changed() => return Ok(()),
            next = stream.next() => next?,
        };
        let Some(piece) = next else { return Err(XrlError::unavailable("it has ended its stream")) };
        let (last, seconds, expired) = (piece.last, piece.expire_seconds, piece.expired);
        gathering.take(piece, keys).await?;
        if last {
            heard = true;
            keys.heard(std::mem::take(&mut gathering).gathered, seconds, expired).await;
            pathsec.private_keys.heard(&keys.now(), !expired);
        }
        // Batches have their turn between two pieces.
        tokio::task::yield_now().await;
    }
}

/// An epoch that is not complete yet.
struct Gathering {
    gathered: Gathered,
    announced: usize,
    withdrawn: usize,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { gathered: Gathered::Delta(Vec::new()), announced: 0, withdrawn: 0 }
    }
}

impl Gathering {
    /// # Errors
    /// There is something in it that cannot be, or too much of it.
    async fn take(&mut self, piece: Piece, keys: &RouterKeys) -> Result<(), XrlError> {
        if piece.full && matches!(self.gathered, Gathered::Delta(_)) {
            self.gathered = keys.none();
        }
        let [announced, withdrawn] =
            [piece.announced, piece.withdrawn].map(|records| records.unwrap_or_default().router_keys);
        self.announced += announced.len();
        self.withdrawn += withdrawn.len();
        let held = if piece.full { 0 } else { keys.now().len() };
        if held + self.announced > MOST_KEYS || self.withdrawn > MOST_KEYS {
            return Err(XrlError::invalid_argument("there are more keys than can be held"));
        }
        let of = |keys: Vec<api::RouterKey>| keys.into_iter().map(router_key).collect::<Result<Vec<_>, _>>();
        let (withdrawn, announced) = (of(withdrawn)?, of(announced)?);
        let (changes, others) = elsewhere(move || {
            // One that was refused is not there to be withdrawn.
            let withdrawn = withdrawn.into_iter().filter(has_own_name).map(Change::Withdraw);
            let (announced, others): (Vec<_>, Vec<_>) = announced.into_iter().partition(has_own_name);
            (withdrawn.chain(announced.into_iter().map(Change::Announce)).collect::<Vec<_>>(), others)
        })
        .await;
        keys.refused("its name is not the SHA-1 of its point", others.len(), others.first());
        match &mut self.gathered {
            Gathered::Full(fresh) => {
                let fresh = Arc::clone(fresh);
                let applied = elsewhere(move || fresh.apply(changes)).await;
                keys.refused(AS_MANY_AS_MAY_BE, applied.refused, None);
            }
            Gathered::Delta(all) => all.extend(changes),
        }
        Ok(())
    }
}

fn router_key(key: api::RouterKey) -> Result<RouterKey, XrlError> {
    let ski = <[u8; 20]>::try_from(key.ski);
    let ski = ski.map_err(|_| XrlError::invalid_argument("a key identifier has 20 octets"))?;
    Ok(RouterKey { asn: Asn(key.asn), ski: Ski(ski), spki: key.spki })
}
