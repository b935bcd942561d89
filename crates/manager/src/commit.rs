//! Commits: a text becomes the configuration and the file, is kept as a version, and may have to be confirmed.
//!
//! All processes are asked first, and other routers that share it. Order on the disk then: the version that runs, the new
//! version, what is pending, the new file beside the old one; then the file is replaced, which is the commit; then all
//! processes are told. Something pending counts only while the file says what it is about: an editor's change makes it void.

use std::{
    borrow::Cow,
    fs, io,
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use holdfast_api::manager::v1::{
    self as api, CommitReply, CommitRequest, ConfigurationReply, HistoryReply, ReloadReply,
};
use holdfast_process::spawn_task;
use holdfast_sys::file;
use holdfast_xrl::XrlError;
use tracing::{info, warn};

use crate::{
    apart::apart,
    file::{Prepared, base},
    history::{Entry, FOUND, History, Pending, Version},
    manager::Manager,
    reload::{Asking, Candidate, replace},
    text::Text,
};

/// A comment is no longer, in octets.
const LONGEST_COMMENT: usize = 1000;
/// Pause after a roll-back that failed.
const ROLL_BACK_RETRY: Duration = Duration::from_secs(10);
/// The longest time to confirm in.
const LONGEST_CONFIRM: Duration = Duration::from_secs(7 * 86_400);

/// A commit as it is asked for.
struct Change {
    candidate: Candidate,
    uid: Option<u32>,
    comment: String,
    /// In which time it has to be confirmed.
    confirm: Option<Duration>,
    asking: Asking,
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn failed(what: &str, error: &io::Error) -> XrlError {
    XrlError::failed_precondition(format!("{what}: {error}; nothing has changed"))
}

impl Manager {
    /// The file itself, where the configured path leads through links.
    fn real_file(&self) -> Result<PathBuf, XrlError> {
        let file = fs::canonicalize(&self.file);
        file.map_err(|error| failed(&self.file.display().to_string(), &error))
    }

    pub(crate) fn history(&self) -> Result<History, XrlError> {
        Ok(History::of(&self.real_file()?))
    }
}

/// The text that runs.
pub(crate) async fn show(manager: &Manager) -> Result<ConfigurationReply, XrlError> {
    let pending = manager.history().ok().and_then(|history| valid_pending(manager, &history));
    let running = Arc::clone(&manager.text.borrow());
    let base = running.base();
    let text = apart(move || running.read().map(Cow::into_owned)).await?;
    Ok(ConfigurationReply {
        base,
        text: text.map_err(|error| XrlError::internal(error.to_string()))?,
        file: manager.file.display().to_string(),
        unconfirmed_seconds: pending.map_or(0, |pending| pending.deadline.saturating_sub(now()).max(1)),
    })
}

/// What waits to be confirmed, if it is what runs.
fn valid_pending(manager: &Manager, history: &History) -> Option<Pending> {
    let pending = history.pending()?;
    let version = history.entry(pending.version).ok()?;
    (version.base() == manager.text.borrow().base()).then_some(pending)
}

/// The versions that are kept, newest first.
pub(crate) fn history(manager: &Manager) -> Result<HistoryReply, XrlError> {
    let history = manager.history()?;
    let numbers = history.numbers().map_err(|error| XrlError::internal(error.to_string()))?;
    let running = manager.text.borrow().base();
    let mut current_is_known = false;
    let mut versions = Vec::new();
    for version in numbers.iter().rev().filter_map(|number| history.entry(*number).ok()) {
        let current = !current_is_known && version.base() == running;
        current_is_known |= current;
        let Entry { number, time, uid, comment, .. } = version;
        versions.push(api::Version { number, time, uid, comment, current });
    }
    Ok(HistoryReply { versions })
}

/// The text of a version.
pub(crate) fn version(manager: &Manager, number: u64) -> Result<ConfigurationReply, XrlError> {
    let found = manager.history()?.version(number);
    let text = found.map_err(|_| XrlError::not_found(format!("there is no version {number}")))?.text;
    Ok(ConfigurationReply { base: base(&text), text, ..ConfigurationReply::default() })
}

/// A commit by an operator.
pub(crate) async fn commit(
    manager: &Rc<Manager>,
    request: CommitRequest,
    uid: Option<u32>,
) -> Result<CommitReply, XrlError> {
    let _turn = manager.reloading.lock().await;
    let CommitRequest { text, base, force, comment, confirm_seconds, without } = request;
    if comment.len() > LONGEST_COMMENT {
        return Err(XrlError::invalid_argument(format!("a comment has at most {LONGEST_COMMENT} octets")));
    }
    let confirm = (confirm_seconds > 0).then(|| Duration::from_secs(confirm_seconds));
    if confirm.is_some_and(|confirm| confirm > LONGEST_CONFIRM) {
        return Err(XrlError::invalid_argument("at most seven days to confirm"));
    }
    if !force {
        is_current(manager, base)?;
    }
    let candidate = Candidate::parse(text, "candidate", &manager.file, manager.schema).await?;
    let asking = Asking::everybody(without);
    apply(manager, Change { candidate, uid, comment, confirm, asking }).await
}

/// Whether what runs is `expected`, and the file says the same.
fn is_current(manager: &Manager, expected: u64) -> Result<(), XrlError> {
    let running = manager.text.borrow().base();
    if running != expected {
        return Err(XrlError::failed_precondition(
            "somebody else has committed meanwhile: `rebase` makes your changes to what runs now, `commit force` \
             overwrites it",
        ));
    }
    let name = manager.file.display();
    match file::text(&manager.file) {
        Ok(text) if base(&text) == running => Ok(()),
        Ok(_) => Err(XrlError::failed_precondition(format!(
            "{name} has been changed and not reloaded: `holdfast reload` takes it, `commit force` overwrites it"
        ))),
        Err(error) => Err(failed(&name.to_string(), &error)),
    }
}

/// Applies a change; the caller has the turn.
async fn apply(manager: &Rc<Manager>, change: Change) -> Result<CommitReply, XrlError> {
    let running = Arc::clone(&manager.text.borrow());
    let Change { candidate, uid, comment, confirm, asking } = change;
    if candidate.text.base() == running.base() && confirm.is_none() {
        let pending = manager.history()?.pending();
        return match pending {
            Some(_) => settle(manager).map(|()| CommitReply::default()),
            None => Ok(CommitReply::default()),
        };
    }
    let (file, history) = (manager.real_file()?, manager.history()?);
    let earlier = valid_pending(manager, &history);
    let text = Arc::clone(&candidate.text);
    let put = async || {
        let (running, on_disk) = (Arc::clone(&running), history.clone());
        let write = move || {
            let text = text.read()?.into_owned();
            let entry = Version { number: 0, time: now(), uid, comment, text };
            write(&file, &on_disk, &running, entry, confirm, earlier)
        };
        let written = apart(write).await?.map_err(|error| failed("writing the history", &error))?;
        let Written { number, prepared, pending } = written;
        match prepared.put() {
            Ok(()) => Ok((number, pending)),
            Err(error) => {
                let undone = history.set_pending(earlier).and_then(|()| history.remove(number));
                if let Err(error) = undone {
                    warn!(
                        event = "commit-failed",
                        "version {number} stays in the history, and never ran: {error}"
                    );
                }
                Err(failed("replacing the configuration file", &error))
            }
        }
    };
    let (reply, (number, pending)) = replace(manager, candidate, &asking, put).await?;
    match (pending, confirm) {
        (Some(pending), Some(time)) => {
            // The time begins when all have been told.
            let pending = Pending { deadline: now() + time.as_secs(), ..pending };
            if let Err(error) = history.set_pending(Some(pending)) {
                warn!(event = "commit-failed", "a manager after this one rolls it back sooner: {error}");
            }
            watch(manager, pending);
        }
        _ => settle(manager)?,
    }
    info!(event = "committed", version = number, uid, "committed");
    let ReloadReply { changes, problems, notes } = reply;
    Ok(CommitReply { version: number, changes, problems, notes })
}

/// What another router has committed: the caller has the turn.
pub(crate) async fn take(
    manager: &Rc<Manager>,
    candidate: Candidate,
    comment: String,
) -> Result<(), XrlError> {
    let candidate = Candidate { is_shared: true, ..candidate };
    // Nobody is there to leave a process out.
    let asking = Asking::WhoAnswers;
    apply(manager, Change { candidate, uid: None, comment, confirm: None, asking }).await.map(drop)
}

/// What is on the disk before the commit.
struct Written {
    number: u64,
    prepared: Prepared,
    pending: Option<Pending>,
}

fn write(
    file: &std::path::Path,
    history: &History,
    running: &Text,
    entry: Version,
    confirm: Option<Duration>,
    earlier: Option<Pending>,
) -> io::Result<Written> {
    let newest = history.newest_entry().filter(|newest| newest.base() == running.base());
    let before = match newest {
        Some(newest) => newest.number,
        None => {
            let (comment, text) = ("found in the file".to_owned(), running.read()?.into_owned());
            history.add(Version { number: 0, time: now(), uid: None, comment, text })?
        }
    };
    // What an editor has left there and nobody has reloaded is not lost.
    let known = [running.base(), base(&entry.text)];
    if let Some(text) = file::text(file).ok().filter(|found| !known.contains(&base(found))) {
        let comment = FOUND.to_owned();
        history.add(Version { number: 0, time: now(), uid: None, comment, text })?;
    }
    let prepared = Prepared::new(file, &entry.text)?;
    let number = history.add(entry)?;
    let pending = confirm.map(|time| Pending {
        version: number,
        back: earlier.map_or(before, |earlier| earlier.back),
        deadline: now() + time.as_secs(),
    });
    if pending.is_some() {
        history.set_pending(pending)?;
    }
    Ok(Written { number, prepared, pending })
}

/// Keeps what was to be confirmed.
pub(crate) async fn confirm(manager: &Rc<Manager>) -> Result<(), XrlError> {
    let _turn = manager.reloading.lock().await;
    if valid_pending(manager, &manager.history()?).is_none() {
        return Err(XrlError::failed_precondition("nothing waits to be confirmed"));
    }
    info!(event = "commit-confirmed", "commit confirmed");
    settle(manager)
}

/// Nothing is to be rolled back any more.
fn settle(manager: &Manager) -> Result<(), XrlError> {
    if let Some(timer) = manager.rollback.take() {
        timer.abort();
    }
    let settled = manager.history()?.set_pending(None);
    settled.map_err(|error| XrlError::internal(format!("it would be rolled back: {error}")))
}

/// Goes on waiting for what an earlier manager waited for.
pub(crate) fn resume(manager: &Rc<Manager>) {
    let Ok(history) = manager.history() else { return };
    match valid_pending(manager, &history) {
        Some(pending) => watch(manager, pending),
        None => {
            if let Err(error) = history.set_pending(None) {
                warn!(
                    event = "commit-failed",
                    "what was to be confirmed is void, and stays on the disk: {error}"
                );
            }
        }
    }
}

/// Rolls back in time.
fn watch(manager: &Rc<Manager>, pending: Pending) {
    let task = {
        let manager = Rc::clone(manager);
        spawn_task(async move {
            // The deadline is for a manager after this one: here nobody's setting of the clock matters.
            tokio::time::sleep(time_left(pending)).await;
            while let Err(error) = roll_back(&manager, pending).await {
                warn!(event = "commit-failed", "not rolled back, it is tried again: {}", error.message());
                tokio::time::sleep(ROLL_BACK_RETRY).await;
            }
        })
    };
    if let Some(before) = manager.rollback.replace(Some(task)) {
        before.abort();
    }
}

/// How long it may still wait.
fn time_left(pending: Pending) -> Duration {
    Duration::from_secs(pending.deadline.saturating_sub(now()))
}

/// Rolls back what has waited to be confirmed for its time, if it still does.
async fn roll_back(manager: &Rc<Manager>, waited: Pending) -> Result<(), XrlError> {
    let _turn = manager.reloading.lock().await;
    let history = manager.history()?;
    let Some(pending) = valid_pending(manager, &history) else {
        // Void: it must not come back to life with the same text.
        return history.set_pending(None).map_err(|error| XrlError::internal(error.to_string()));
    };
    if pending != waited {
        // It has a time of its own.
        return Ok(());
    }
    let Pending { version, back, .. } = pending;
    warn!(event = "rollback", version, back, "not confirmed: rolling back");
    // This task: what follows must not abort it.
    let this = manager.rollback.take();
    let done = async {
        let earlier = history.version(back).map_err(|error| XrlError::internal(error.to_string()))?;
        let candidate = Candidate::parse(earlier.text, "candidate", &manager.file, manager.schema).await?;
        let comment = format!("rolled back to version {back}: version {version} was not confirmed");
        let asking = Asking::Regardless;
        apply(manager, Change { candidate, uid: None, comment, confirm: None, asking }).await
    };
    let done = done.await;
    if done.is_err() {
        manager.rollback.replace(this);
    }
    done.map(drop)
}
