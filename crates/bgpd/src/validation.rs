//! What the RPKI says, from the process `rpki` to the pipelines of all tables: one stream, one copy.
//!
//! Pieces are put together, and an epoch takes effect as a whole. It holds for as long as `rpki` has allowed when it said
//! it, whether that is still there or not (RFC 8210 section 6); who comes in its place says everything, and only routes of
//! which that makes something else move.
//!
//! It outlives this process, too (`epoch`): the next one goes by it until it expires, and waits for nobody. Only where there
//! never was one are routes not found.

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
    rc::{Rc, Weak},
    time::Duration,
};

use holdfast_api::rpki::v1::{Piece, Records, RpkiClient, Vrps, WatchRequest};
use holdfast_origin_validation::{Affected, Authorizations, Delta};
use holdfast_process::{Resolver, hash_key, spawn_task};
use holdfast_types::{Asn, Aspa, Prefix, Vrp};
use holdfast_xrl::{ErrorKind, XrlError};
use rustix::time::{ClockId, clock_gettime};
use tokio::{
    sync::OnceCell,
    task::AbortHandle,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use crate::{
    bgp::Bgp,
    custody::FdStore,
    epoch::{self, Epochs, Full},
};

/// Pause between two attempts to ask.
const RETRY: Duration = Duration::from_millis(200);
/// The longest, where what is said is refused each time.
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// What was said holds for so much longer than allowed: word that it holds on comes in time if it was sent in time.
const GRACE: Duration = Duration::from_secs(5);
/// Records that one epoch may bring: ten times what the whole Internet has.
const MOST_RECORDS: usize = 8 << 20;

type Shared = Rc<RefCell<Authorizations>>;

/// What holds, and for whom.
#[derive(Default)]
pub(crate) struct Validation {
    running: RefCell<Option<Running>>,
    speakers: RefCell<Vec<Weak<Bgp>>>,
    /// What has been heard; stays while nobody validates.
    epoch: Cell<Option<u64>>,
    /// Who keeps it for the next process; nobody in tests.
    custody: Option<FdStore>,
    /// What is kept, if it is.
    epochs: RefCell<Option<Epochs>>,
    /// What the process before has left, until somebody validates.
    left: RefCell<Option<Left>>,
    recovered: OnceCell<()>,
}

/// What holds, and until when: for ever, if `None`.
type Left = (Authorizations, Option<Instant>);

struct Running {
    authorizations: Shared,
    task: AbortHandle,
}

impl Validation {
    pub(crate) fn new(custody: FdStore) -> Self {
        Self { custody: Some(custody), ..Self::default() }
    }

    /// Takes what the process before went by; before any route is there.
    pub(crate) async fn recover(&self) {
        let Some(custody) = &self.custody else { return };
        let recover = async {
            let left = match custody.rpki().await {
                Ok(Some(left)) => left,
                Ok(None) => return,
                Err(error) => return warn!(event = "rpki-not-kept", "what the RPKI said: {error}"),
            };
            match self.read(left).await {
                Ok(Some((epochs, epoch, left))) => {
                    let (vrps, aspas) = (left.0.vrps.len(), left.0.aspas.len());
                    info!(event = "rpki-kept", vrps, aspas, "what the RPKI said holds on: {vrps} VRPs");
                    self.epoch.set(Some(epoch));
                    self.left.replace(Some(left));
                    self.epochs.replace(Some(epochs));
                }
                // It has expired, or another version has written it.
                Ok(None) => custody.drop_rpki(),
                Err(error) => {
                    warn!(event = "rpki-not-kept", "what the RPKI said cannot be read: {error}");
                    custody.drop_rpki();
                }
            }
        };
        self.recovered.get_or_init(|| recover).await;
    }

    async fn read(&self, left: OwnedFd) -> Result<Option<(Epochs, u64, Left)>, XrlError> {
        let failed = |error: &dyn std::fmt::Display| XrlError::internal(error.to_string());
        let Some(mut epochs) = Epochs::recover(left).map_err(|error| failed(&error))? else {
            return Ok(None);
        };
        let (mut authorizations, mut epoch, mut at) = (Authorizations::new(hash_key()), None, 0);
        let mut gathering = Gathering::default();
        while let Some(piece) = epochs.piece(at) {
            let (piece, next) = piece.map_err(|error| failed(&error))?;
            gathering.take(&piece)?;
            at = next;
            if piece.last {
                match std::mem::take(&mut gathering).gathered {
                    Gathered::Full(fresh) => authorizations = *fresh,
                    Gathered::Delta(delta) => drop(authorizations.apply(&delta)),
                }
                epoch = Some(piece.epoch);
            }
            tokio::task::yield_now().await;
        }
        let (heard, seconds) = epochs.heard();
        let (age, now) = (monotonic_milliseconds().saturating_sub(heard), Instant::now());
        let holds = lifetime(seconds).map(|lifetime| lifetime.checked_sub(Duration::from_millis(age)));
        Ok(match (epoch, holds) {
            (Some(epoch), None) => Some((epochs, epoch, (authorizations, None))),
            (Some(epoch), Some(Some(rest))) => Some((epochs, epoch, (authorizations, Some(now + rest)))),
            (None, _) | (Some(_), Some(None)) => None,
        })
    }

    /// This speaker's routes are validated from now on, or not any more.
    pub(crate) fn set(self: &Rc<Self>, bgp: &Rc<Bgp>, on: bool) {
        let is_in = self.speakers.borrow().iter().any(|other| other.ptr_eq(&Rc::downgrade(bgp)));
        if on == is_in {
            return;
        }
        self.speakers
            .borrow_mut()
            .retain(|other| other.strong_count() > 0 && !other.ptr_eq(&Rc::downgrade(bgp)));
        if on {
            self.speakers.borrow_mut().push(Rc::downgrade(bgp));
            let shared = self.authorizations(&bgp.surroundings.resolver);
            bgp.with(|speaker, _| speaker.pipeline.set_authorizations(Some(shared)));
        } else {
            bgp.with(|speaker, _| speaker.pipeline.set_authorizations(None));
        }
        if self.speakers.borrow().is_empty()
            && let Some(running) = self.running.take()
        {
            running.task.abort();
            self.epoch.set(None);
            self.forget();
        }
    }

    /// What holds, and somebody who keeps it so.
    pub(crate) fn authorizations(self: &Rc<Self>, resolver: &Resolver) -> Shared {
        let mut running = self.running.borrow_mut();
        let running = running.get_or_insert_with(|| {
            let left = self.left.take();
            let (authorizations, expiry) = left.unwrap_or_else(|| (Authorizations::new(hash_key()), None));
            let task = spawn_task(follow(Rc::clone(self), resolver.clone(), expiry));
            Running { authorizations: Rc::new(RefCell::new(authorizations)), task: task.abort_handle() }
        });
        Rc::clone(&running.authorizations)
    }

    /// The number of the epoch that holds; `None` as long as nothing was heard.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.epoch.get()
    }

    /// VRPs and provider authorizations that hold.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let running = self.running.borrow();
        let counts = |running: &Running| {
            let all = running.authorizations.borrow();
            (all.vrps.len(), all.aspas.len())
        };
        running.as_ref().map_or((0, 0), counts)
    }

    /// What covers a prefix; `None` where nobody validates.
    pub(crate) fn covering(&self, prefix: Prefix) -> Option<Vec<Vrp>> {
        let running = self.running.borrow();
        running.as_ref().map(|running| running.authorizations.borrow().vrps.covering(prefix))
    }

    fn apply(&self, gathered: Gathered, epoch: u64) {
        let Some(shared) = self.running.borrow().as_ref().map(|running| Rc::clone(&running.authorizations))
        else {
            return;
        };
        let affected = match gathered {
            Gathered::Full(fresh) => {
                *shared.borrow_mut() = *fresh;
                None
            }
            Gathered::Delta(delta) => Some(shared.borrow_mut().apply(&delta)),
        };
        let is_first = self.epoch.replace(Some(epoch)).is_none();
        self.tell(affected.as_ref());
        if is_first && epoch > 0 {
            let (vrps, aspas) = self.counts();
            info!(event = "rpki-heard", vrps, aspas, "what the RPKI says is known: {vrps} VRPs");
        }
    }

    /// Has the pipelines look again at what is affected; `None`: at everything.
    fn tell(&self, affected: Option<&Affected>) {
        if affected.is_some_and(Affected::is_empty) {
            return;
        }
        let speakers: Vec<_> = self.speakers.borrow().iter().filter_map(Weak::upgrade).collect();
        for bgp in speakers {
            bgp.with(|speaker, _| match affected {
                Some(affected) => speaker.pipeline.authorizations_changed(affected),
                None => speaker.pipeline.revalidate(),
            });
        }
    }

    /// What was said does not hold any longer.
    fn expire(&self) {
        warn!(event = "rpki-expired", "what the RPKI said has expired: routes count as not found");
        self.apply(Gathered::Full(Box::new(Authorizations::new(hash_key()))), 0);
        self.epoch.set(None);
        self.forget();
    }

    /// Nothing is left for the next process.
    fn forget(&self) {
        if self.epochs.take().is_some() {
            self.custody.iter().for_each(FdStore::drop_rpki);
        }
    }

    /// Writes a piece for the next process, beside those of the epoch that it belongs to.
    async fn keep(&self, piece: &Piece, fresh: &mut Option<Epochs>) {
        let Some(custody) = &self.custody else { return };
        let heard = monotonic_milliseconds();
        if !piece.full {
            let kept = self.epochs.borrow_mut().as_mut().map_or(Ok(()), |epochs| epochs.push(piece, heard));
            if kept == Err(Full) {
                // What is kept there is not what holds.
                self.forget();
            }
            return;
        }
        if let Err(error) = write(fresh, piece, heard) {
            warn!(event = "rpki-not-kept", "what the RPKI says will not outlive this process: {error}");
            return self.forget();
        }
        if piece.last {
            self.put(custody, fresh.take()).await;
        }
    }

    async fn put(&self, custody: &FdStore, fresh: Option<Epochs>) {
        let Some(epochs) = fresh else { return };
        let put = async {
            let descriptor = epochs.descriptor().map_err(|error| error.to_string())?;
            custody.put_rpki(descriptor).await.map_err(|error| error.to_string())
        };
        match put.await {
            Ok(()) => drop(self.epochs.replace(Some(epochs))),
            Err(error) => {
                warn!(event = "rpki-not-kept", "what the RPKI says will not outlive this process: {error}");
                self.forget();
            }
        }
    }

    /// Writes what holds anew when the differences have become too long.
    async fn shorten(&self) {
        let (Some(custody), Some(epoch)) = (&self.custody, self.epoch.get()) else { return };
        let Some(heard) = self.epochs.borrow().as_ref().filter(|epochs| epochs.is_long()).map(Epochs::heard)
        else {
            return;
        };
        let shared = self.running.borrow().as_ref().map(|running| Rc::clone(&running.authorizations));
        let Some(pieces) = shared.map(|shared| epoch::pieces(&shared.borrow(), epoch, heard.1)) else {
            return;
        };
        let mut fresh = None;
        for piece in pieces {
            if write(&mut fresh, &piece, heard.0).is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        self.put(custody, fresh).await;
    }
}

/// Writes a piece of a full epoch into memory of its own.
fn write(fresh: &mut Option<Epochs>, piece: &Piece, heard: u64) -> Result<(), String> {
    let epochs = match fresh {
        Some(epochs) => epochs,
        None => fresh.insert(Epochs::create().map_err(|error| error.to_string())?),
    };
    epochs.push(piece, heard).map_err(|Full| {
        *fresh = None;
        "it is too much".to_owned()
    })
}

/// Of the clock of [`Instant`], by which another process can say how long ago something was.
fn monotonic_milliseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1000
        + u64::try_from(now.tv_nsec).unwrap_or_default() / 1_000_000
}

/// How long what was said holds; `None` is for ever, the most that can be said.
fn lifetime(seconds: u32) -> Option<Duration> {
    (seconds != u32::MAX).then(|| Duration::from_secs(seconds.into()) + GRACE)
}

/// Follows what the process `rpki` says, for ever.
async fn follow(validation: Rc<Validation>, resolver: Resolver, mut expiry: Option<Instant>) {
    let mut said = String::new();
    let mut pause = RETRY;
    loop {
        let error = watch(&validation, &resolver, &mut expiry).await;
        // What was refused is likely to be the same the next time.
        pause = if error.kind() == ErrorKind::InvalidArgument { LONGEST_RETRY.min(2 * pause) } else { RETRY };
        let error = error.to_string();
        if said != error {
            warn!(event = "rpki-lost", "rpki: {error}");
            said = error;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = expired(expiry) => {
                expiry = None;
                validation.expire();
            }
        }
    }
}

async fn expired(expiry: Option<Instant>) {
    match expiry {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The life of one `rpki`; what ended it. What holds, of this one or of the one before, does so until `expiry`.
async fn watch(validation: &Validation, resolver: &Resolver, expiry: &mut Option<Instant>) -> XrlError {
    let client: RpkiClient = match resolver.client("rpki").await {
        Ok(client) => client,
        Err(error) => return error,
    };
    let mut stream = client.watch(WatchRequest { vrps: true, aspas: true, router_keys: false });
    let (mut gathering, mut heard) = (Gathering::default(), false);
    let mut fresh = None;
    validation.epochs.borrow_mut().iter_mut().for_each(Epochs::forget_rest);
    loop {
        let next = tokio::select! {
            biased;
            next = stream.next() => next,
            () = expired(*expiry) => {
                *expiry = None;
                validation.expire();
                // What comes next is a difference to what is gone: all is asked for again.
                if heard {
                    return XrlError::unavailable("what it has said has expired");
                }
                continue;
            }
        };
        let piece = match next {
            Ok(Some(piece)) => piece,
            Ok(None) => return XrlError::unavailable("it has ended its stream"),
            Err(error) => return error,
        };
        let (epoch, last, seconds) = (piece.epoch, piece.last, piece.expire_seconds);
        if let Err(error) = gathering.take(&piece) {
            return error;
        }
        validation.keep(&piece, &mut fresh).await;
        if last {
            heard = true;
            *expiry = lifetime(seconds).map(|lifetime| Instant::now() + lifetime);
            validation.apply(std::mem::take(&mut gathering).gathered, epoch);
            validation.shorten().await;
        }
        // Sessions have their turn between two pieces.
        tokio::task::yield_now().await;
    }
}

/// An epoch that is not complete yet.
struct Gathering {
    gathered: Gathered,
    records: usize,
}

enum Gathered {
    /// Everything that holds.
    Full(Box<Authorizations>),
    /// What has changed.
    Delta(Delta),
}

impl Default for Gathering {
    fn default() -> Self {
        Self { gathered: Gathered::Delta(Delta::default()), records: 0 }
    }
}

impl Gathering {
    /// # Errors
    /// There is something in it that cannot be, or too much of it.
    fn take(&mut self, piece: &Piece) -> Result<(), XrlError> {
        if piece.full && matches!(self.gathered, Gathered::Delta(_)) {
            self.gathered = Gathered::Full(Box::new(Authorizations::new(hash_key())));
        }
        let empty = Records::default();
        let (announced, withdrawn) =
            (piece.announced.as_ref().unwrap_or(&empty), piece.withdrawn.as_ref().unwrap_or(&empty));
        let mut delta = Delta {
            announced: vrps(announced)?,
            withdrawn: vrps(withdrawn)?,
            aspas: announced.aspas.iter().map(aspa).collect(),
            without_aspa: withdrawn.aspas.iter().map(|aspa| Asn(aspa.customer)).collect(),
        };
        self.records += delta.announced.len() + delta.withdrawn.len() + delta.aspas.len();
        if self.records > MOST_RECORDS {
            return Err(XrlError::invalid_argument("there is more than can be validated by"));
        }
        match &mut self.gathered {
            Gathered::Full(fresh) => drop(fresh.apply(&delta)),
            Gathered::Delta(all) => {
                all.announced.append(&mut delta.announced);
                all.withdrawn.append(&mut delta.withdrawn);
                all.aspas.append(&mut delta.aspas);
                all.without_aspa.append(&mut delta.without_aspa);
            }
        }
        Ok(())
    }
}

fn vrps(records: &Records) -> Result<Vec<Vrp>, XrlError> {
    let mut vrps = Vec::new();
    for (columns, octets) in [(&records.ipv4, 4), (&records.ipv6, 16)] {
        columns.iter().try_for_each(|columns| read_vrps(columns, octets, &mut vrps))?;
    }
    Ok(vrps)
}

fn read_vrps(columns: &Vrps, octets: usize, vrps: &mut Vec<Vrp>) -> Result<(), XrlError> {
    let bad = || XrlError::invalid_argument("columns of VRPs make no sense");
    let rows = columns.asns.len();
    let lengths = [columns.addresses.len() / octets, columns.lengths.len(), columns.max_lengths.len()];
    if lengths != [rows; 3] || !columns.addresses.len().is_multiple_of(octets) {
        return Err(bad());
    }
    let rest = columns.lengths.iter().zip(&columns.max_lengths).zip(&columns.asns);
    for (address, ((length, max_length), asn)) in columns.addresses.chunks_exact(octets).zip(rest) {
        let address = holdfast_types::address(address).ok_or_else(bad)?;
        let prefix = Prefix::new(address, *length).ok_or_else(bad)?;
        vrps.push(Vrp::new(prefix, *max_length, Asn(*asn)).map_err(|_| bad())?);
    }
    Ok(())
}

fn aspa(aspa: &holdfast_api::rpki::v1::Aspa) -> Aspa {
    Aspa::new(Asn(aspa.customer), aspa.providers.iter().copied().map(Asn).collect())
}
