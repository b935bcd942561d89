//! The table of routers' keys, and what those who watch are told of it.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::HashSet,
    panic::resume_unwind,
    sync::Arc,
};

use holdfast_api::pathsec::v1::{Configuration, KeyName, KeysChanged};
use holdfast_path_validation::{Change, KeyTable, Keys, MOST_OF_A_NAME, RouterKey};
use tokio::{sync::watch, task::spawn_blocking, time::Instant};
use tracing::{info, warn};

use crate::{
    lapse::{Due, Lapse},
    log::{Log, Next},
};

/// Why a key is not taken.
pub(crate) const AS_MANY_AS_MAY_BE: &str = "there are as many keys of its AS and name as may be";

/// The keys of all routers. Changes are made on another thread, one after the other.
pub(crate) struct RouterKeys {
    seed: [u64; 2],
    table: Arc<KeyTable>,
    known: Cell<bool>,
    /// Keys of an AS and SKI, at most.
    most_of_a_name: watch::Sender<usize>,
    /// Keys that were announced and not taken, since the start.
    refused: Cell<u64>,
    lapse: RefCell<Lapse>,
    log: RefCell<Log>,
    /// The number of the newest change in the log.
    number: watch::Sender<u64>,
}

/// Names for which keys have come, and names for which keys have gone.
type CameAndWent = (Vec<KeyName>, Vec<KeyName>);

/// What an epoch of `rpki` says.
#[derive(Clone, Debug)]
pub(crate) enum Gathered {
    /// All keys that there are.
    Full(Arc<KeyTable>),
    /// What has changed.
    Delta(Vec<Change>),
}

impl RouterKeys {
    /// Without keys. The seed is to be random.
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        Self {
            seed,
            table: Arc::new(KeyTable::new(seed)),
            known: Cell::default(),
            most_of_a_name: watch::Sender::new(MOST_OF_A_NAME),
            refused: Cell::default(),
            lapse: RefCell::default(),
            log: RefCell::default(),
            number: watch::Sender::default(),
        }
    }

    /// Has as many keys of an AS and SKI as the configuration says. Which of all that there are these are is found out by asking
    /// for all.
    pub(crate) fn configure(&self, told: &Configuration) {
        let most = if told.keys_per_ski == 0 { MOST_OF_A_NAME } else { told.keys_per_ski as usize };
        let is_other = |before: &mut usize| std::mem::replace(before, most) != most;
        if self.most_of_a_name.send_if_modified(is_other) {
            self.table.set_most_of_a_name(most);
        }
    }

    /// Hears of each change of the number of keys of an AS and SKI.
    pub(crate) fn bound(&self) -> watch::Receiver<usize> {
        self.most_of_a_name.subscribe()
    }

    /// The keys as they are now.
    pub(crate) fn now(&self) -> Arc<Keys> {
        self.table.keys()
    }

    /// Keys that were announced and not taken, since the start.
    pub(crate) fn refusals(&self) -> u64 {
        self.refused.get()
    }

    /// So many keys that were announced are not taken; one of them.
    pub(crate) fn refused(&self, why: &str, keys: usize, one: Option<&RouterKey>) {
        if keys == 0 {
            return;
        }
        self.refused.set(self.refused.get() + keys as u64);
        let one = one.map(|key| format!(", one of them AS {} {}", key.asn, key.ski)).unwrap_or_default();
        warn!(event = "router-keys-refused", keys, why, "{keys} routers' keys are not taken ({why}){one}");
    }

    /// Whether `rpki` was heard since the start. It stays so when the keys have expired.
    pub(crate) fn is_known(&self) -> bool {
        self.known.get()
    }

    /// No keys, to which those of a full epoch are added.
    pub(crate) fn none(&self) -> Gathered {
        let table = KeyTable::new(self.seed);
        table.set_most_of_a_name(*self.most_of_a_name.borrow());
        Gathered::Full(Arc::new(table))
    }

    /// An epoch takes effect, and holds for so many seconds. The keys that it has in common with the table stay as they are,
    /// even if it is said in full. Those that it withdraws leave in slices if they have `expired`, and those that it does not
    /// have while others leave: nobody says then which of them have.
    pub(crate) async fn heard(&self, gathered: Gathered, holds_for: u32, expired: bool) {
        let now = Instant::now();
        self.lapse.borrow_mut().holds_for(holds_for, now);
        let returned = gathered.announced(&self.lapse.borrow());
        let expired = expired || returned.is_none() && self.lapse.borrow().is_leaving();
        let (epoch, leaving) = match expired {
            false => (gathered, Vec::new()),
            true => {
                let before = self.now();
                elsewhere(move || gathered.without_withdrawals(&before)).await
            }
        };
        if !leaving.is_empty() {
            warn!(
                event = "router-keys-expired",
                keys = leaving.len(),
                "routers' keys have expired, and leave in slices"
            );
        }
        match returned {
            Some(keys) => {
                self.lapse.borrow_mut().stay(&keys);
                self.lapse.borrow_mut().leave(leaving, now);
            }
            None => self.lapse.borrow_mut().leave_only(leaving, now),
        }
        if self.apply(epoch, true, false).await {
            let keys = self.now().len();
            info!(event = "router-keys-heard", keys, "routers' keys are known: {keys}");
        }
    }

    /// When [`Self::elapsed`] has something to do.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.lapse.borrow().poll_timeout()
    }

    /// Does what time has brought about. Whether what `rpki` said does not hold any longer.
    pub(crate) async fn elapsed(&self) -> bool {
        let (now, mut has_expired) = (Instant::now(), false);
        loop {
            let due = self.lapse.borrow_mut().poll(now);
            match due {
                None => return has_expired,
                Some(Due::Soon(left)) if !self.now().is_empty() => warn!(
                    event = "router-keys-expire",
                    seconds = left.as_secs(),
                    "no cache has confirmed the routers' keys: they expire in {} s",
                    left.as_secs()
                ),
                Some(Due::Soon(_)) => {}
                Some(Due::Expired) => {
                    has_expired = true;
                    let keys = self.now();
                    let leaving = elsewhere(move || keys.iter().collect::<Vec<_>>()).await;
                    warn!(
                        event = "router-keys-expired",
                        keys = leaving.len(),
                        "what rpki said has expired: routers' keys leave in slices"
                    );
                    self.lapse.borrow_mut().leave_only(leaving, now);
                }
                Some(Due::Leave { keys, last }) => {
                    let gathered = Gathered::Delta(keys.into_iter().map(Change::Withdraw).collect());
                    self.apply(gathered, self.is_known(), true).await;
                    if last {
                        let keys = self.now().len();
                        info!(
                            event = "router-keys-left",
                            keys, "all expired keys have left, {keys} are there"
                        );
                    }
                }
            }
        }
    }

    /// Whether keys are known for the first time. `lapsed`: those that go have expired.
    async fn apply(&self, gathered: Gathered, known: bool, lapsed: bool) -> bool {
        let table = Arc::clone(&self.table);
        let (changed, refused) = elsewhere(move || gathered.apply(&table)).await;
        self.refused(AS_MANY_AS_MAY_BE, refused, None);
        let is_first = self.known.replace(known) != known;
        if is_first || changed.is_some() {
            let (added, removed) = changed.unwrap_or_default();
            let change = KeysChanged { added, removed, lapsed, ..self.state() };
            self.log.borrow_mut().push(change);
            self.number.send_replace(self.log.borrow().number());
        }
        is_first
    }

    fn state(&self) -> KeysChanged {
        let keys = self.now();
        let sum = keys.sum().to_be_bytes().to_vec();
        KeysChanged { epoch: keys.epoch(), known: self.is_known(), sum, ..KeysChanged::default() }
    }

    /// Numbers of the newest change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.number.subscribe()
    }

    /// What somebody is told who knows nothing, with the number of the newest change in it.
    pub(crate) fn all(&self) -> (u64, KeysChanged) {
        (self.log.borrow().number(), KeysChanged { all: true, ..self.state() })
    }

    /// What follows the change of this number.
    pub(crate) fn after(&self, number: u64) -> Next {
        self.log.borrow().after(number)
    }
}

impl Gathered {
    /// The keys that a difference announces, as far as it matters to those that leave; `None`: it says all.
    fn announced(&self, lapse: &Lapse) -> Option<HashSet<RouterKey>> {
        let Self::Delta(changes) = self else { return None };
        let announced = changes.iter().filter_map(|change| match change {
            Change::Announce(key) => Some(key.clone()),
            Change::Withdraw(_) => None,
        });
        Some(if lapse.is_leaving() { announced.collect() } else { HashSet::new() })
    }

    /// What it announces, and apart from that the keys that it withdraws.
    fn without_withdrawals(self, before: &Keys) -> (Self, Vec<RouterKey>) {
        match self {
            Self::Delta(changes) => {
                let is_announcement = |change: &Change| matches!(change, Change::Announce(_));
                let (announced, withdrawn): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_announcement);
                let of = |(Change::Announce(key) | Change::Withdraw(key)): Change| key;
                let staying: HashSet<_> = announced.iter().cloned().map(of).collect();
                let leaving = withdrawn.into_iter().map(of).filter(|key| !staying.contains(key));
                (Self::Delta(announced), leaving.collect())
            }
            Self::Full(fresh) => {
                let fresh = fresh.keys();
                let announced = fresh.iter().filter(|key| !before.contains(key)).map(Change::Announce);
                let leaving = before.iter().filter(|key| !fresh.contains(key));
                (Self::Delta(announced.collect()), leaving.collect())
            }
        }
    }

    /// Changes the table, and says for which names keys have come and gone (`None`: it is as it was), and how many were not taken.
    fn apply(self, table: &KeyTable) -> (Option<CameAndWent>, usize) {
        let before = table.keys();
        let applied = match self {
            Self::Delta(changes) => table.apply(changes),
            Self::Full(fresh) => {
                let fresh = fresh.keys();
                let is_gone = |key: &RouterKey| !fresh.contains(key);
                let is_new = |key: &RouterKey| !before.contains(key);
                let gone = before.iter().filter(is_gone).map(Change::Withdraw);
                table.apply(gone.chain(fresh.iter().filter(is_new).map(Change::Announce)))
            }
        };
        if applied.changed.is_empty() {
            return (None, applied.refused);
        }
        let after = table.keys();
        // A key that has gone and come in one epoch is neither.
        let names = |of: &Keys, lacking: &Keys| -> Vec<KeyName> {
            let is_lacking = |(asn, ski)| {
                let key = |spki: Cow<'_, [u8]>| RouterKey { asn, ski, spki: spki.into_owned() };
                of.of(asn, ski).any(|stored| !lacking.contains(&key(stored.spki())))
            };
            let names = applied.changed.iter().copied().filter(|name| is_lacking(*name));
            names.map(|(asn, ski)| KeyName { asn: asn.0, ski: ski.0.to_vec() }).collect()
        };
        (Some((names(&after, &before), names(&before, &after))), applied.refused)
    }
}

/// Does what takes its time on a thread of its own, beside the event loop. A panic there is one here.
pub(crate) async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        // It is cancelled only with the runtime, and then nobody waits here.
        Err(error) => resume_unwind(error.into_panic()),
    }
}
