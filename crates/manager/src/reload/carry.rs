//! Another configuration is carried out.

use std::{collections::BTreeSet, rc::Rc, sync::Arc, time::Duration};

use holdfast_api::manager::v1::ReloadReply;
use holdfast_config::Config;
use holdfast_process::{Refit, spawn_task};
use holdfast_xrl::XrlError;
use rustix::process::Signal;
use tracing::warn;

use super::{
    Candidate,
    differences::{REPLACED, line},
    messages::Messages,
    plan::{Plan, plan},
    prepare::{Asking, prepare},
    sessions::Ending,
};
use crate::{
    birth::MANAGER,
    births,
    configure::{self, CONFIGURE_LIMIT, Message},
    faults, logging,
    manager::Manager,
    outsiders, protocols, read,
    replacement::{self, CARRIES, Replacement},
    sandbox::sandbox,
    share, tcp,
    text::Text,
};

/// How the death of a process that is replaced is described.
const REASON: &str = "other settings";
/// A manager that is replaced has so long to answer who has asked for it.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// One configuration in the place of another.
struct Change<'a> {
    manager: &'a Rc<Manager>,
    old: Arc<Config>,
    new: Arc<Config>,
}

/// Makes a candidate the configuration. `put` is called when nobody can refuse any more, and may: what it does is the commit.
pub(crate) async fn replace<T>(
    manager: &Rc<Manager>,
    candidate: Candidate,
    asking: &Asking,
    put: impl AsyncFnOnce() -> Result<T, XrlError>,
) -> Result<(ReloadReply, T), XrlError> {
    if manager.is_stopping() {
        return Err(XrlError::failed_precondition("the router is being stopped"));
    }
    let change = Change { manager, old: manager.config(), new: Arc::clone(&candidate.config) };
    let Plan { first, then, changes, replaced, refit } = plan(manager, &change.old, &change.new).await?;
    let prepared = prepare(manager, &candidate, [&first, &then], asking).await?;
    let notes =
        if candidate.is_shared { Vec::new() } else { share::offer::offer(manager, &candidate).await? };
    // As long as those can be asked who have them.
    let ending = match prepared.left_out.contains("bgp") {
        true => Ending::new(&manager.processes, &change.old, &change.new, []),
        false => Ending::ask(manager, &change.old, &change.new).await,
    };
    let over = ending.over.iter().map(|over| format!("{}: {}", over.peer, over.cause));
    let (over, ending): (Vec<_>, _) = (over.collect(), ending.names());
    let faults = faults::now(manager).await;
    let put = put().await.inspect_err(|_| manager.sharing.may_differ())?;
    let mut reply = ReloadReply { changes, notes, problems: Vec::new() };
    // Those that begin now have what the others are to be replaced for.
    let replaced = running(manager, replaced);
    reply.changes.extend(line(REPLACED, &replaced));
    change.take(candidate.text, refit);
    change.leave_out(&prepared.left_out, &mut reply.problems);
    let is_left_out = |name: &'static str| prepared.left_out.contains(name);
    change.tell_all(first, is_left_out, &mut reply).await;
    change.follow(&mut reply.problems).await;
    // The next one is told everything.
    let is_told_later = |name| is_left_out(name) || name != MANAGER && replaced.contains(&name);
    change.tell_all(then, is_told_later, &mut reply).await;
    drop(prepared);
    // `bgp` cannot say so itself when it ends.
    if change.ends("bgp") || replaced.contains(&"bgp") {
        reply.changes.extend(line("sessions ended", &ending));
    }
    reply.changes.extend(over);
    change.replace_all(&replaced, &mut reply.problems).await;
    reply.problems.extend(faults::since(&faults, manager).await);
    Ok((reply, put))
}

impl Change<'_> {
    /// From here on it is the configuration: whoever is born is told the new one.
    fn take(&self, text: Arc<Text>, refit: Refit) {
        let Self { manager, old, new } = self;
        if old.notes() != new.notes() {
            read::note(new);
        }
        manager.refit.borrow_mut().extend(refit);
        manager.config.replace(Arc::clone(new));
        manager.text.replace(text);
        manager.sharing.may_differ();
    }

    /// What the manager itself does by it; processes begin and end.
    async fn follow(&self, problems: &mut Vec<String>) {
        let Self { manager, old, new } = self;
        manager.want(new).await;
        let followed = manager.doors.follow(new).await;
        manager.limit_hangs();
        if old.log != new.log {
            spawn_task(logging::follow(Rc::clone(manager), new.log.clone()));
        }
        problems.extend(protocols::follow(manager).await);
        problems.extend(followed.err().map(|error| format!("listeners: {}", error.message())));
        problems.extend(tcp::follow(manager).err().map(|error| format!("xrl: {}", error.message())));
    }

    /// Who is left out is told as after its birth, and nobody waits for it.
    fn leave_out(&self, names: &BTreeSet<&'static str>, problems: &mut Vec<String>) {
        for &name in names {
            let why = "left out of the commit; it is told until it takes it".to_owned();
            problems.push(format!("{name}: {why}"));
            warn!(event = "configuration-refused", process = name, "{why}");
            let mut supervisor = self.manager.supervisor.borrow_mut();
            let pid = supervisor.reconfigure(name);
            supervisor.refused(name, why);
            drop(supervisor);
            if let Some(pid) = pid {
                spawn_task(births::configure(Rc::clone(self.manager), name, pid));
            }
        }
    }

    async fn tell_all(
        &self,
        messages: Messages,
        is_told_later: impl Fn(&'static str) -> bool,
        reply: &mut ReloadReply,
    ) {
        for (name, message) in messages {
            if is_told_later(name) {
                continue;
            }
            match tell(self.manager, name, message).await {
                Ok(ended) => reply.changes.extend(line("sessions ended", &ended)),
                Err(error) => {
                    warn!(
                        event = "configuration-refused",
                        process = name,
                        "does not take its configuration: {error}"
                    );
                    reply.problems.push(format!("{name}: {}", error.message()));
                }
            }
        }
    }

    /// Whether there is this process no more.
    fn ends(&self, name: &str) -> bool {
        let wants = |config| crate::birth::wanted(&self.manager.processes, config).contains(&name);
        wants(&self.old) && !wants(&self.new)
    }

    async fn replace_all(&self, names: &[&'static str], problems: &mut Vec<String>) {
        for name in names {
            let replaced = match *name {
                MANAGER => self.replace_manager().await.map_err(|error| error.message().to_owned()),
                CARRIES => self.replace_carrier().await,
                name => self.replace(name).await,
            };
            problems.extend(replaced.err().map(|why| format!("{name}: {why}")));
        }
    }

    async fn replace(&self, name: &str) -> Result<(), String> {
        let replacement = Replacement::of(self.manager, name);
        replacement.end(REASON);
        replacement.runs().await
    }

    /// One that carries connections lives on for them. There is room for one such: what it carries would end with it.
    async fn replace_carrier(&self) -> Result<(), String> {
        if replacement::carried(self.manager).await == 0 {
            return self.replace(CARRIES).await;
        }
        if !self.manager.retired.borrow().is_empty() {
            return Err(
                "keeps its settings until its next start: two of them carry connections already".into()
            );
        }
        let replacement = Replacement::of(self.manager, CARRIES);
        if !replacement.retire().await {
            replacement.end(REASON);
        }
        replacement.runs().await
    }

    /// The keeper starts the next one, which takes note of what runs.
    async fn replace_manager(&self) -> Result<(), XrlError> {
        let sandbox = sandbox(MANAGER, &self.new, &self.manager.processes);
        self.manager.keeper.confine_manager(sandbox).await?;
        let manager = Rc::clone(self.manager);
        spawn_task(async move {
            tokio::time::sleep(LAST_WORDS).await;
            let _turn = manager.reloading.lock().await;
            if manager.is_stopping() {
                // Nobody else would end the other processes in their order.
                return;
            }
            manager.signal(std::process::id(), Signal::TERM, REASON);
            // Nobody begins what could not be finished.
            std::future::pending::<()>().await;
        });
        Ok(())
    }
}

/// Those of some processes that run.
pub(super) fn running(manager: &Manager, names: Vec<&'static str>) -> Vec<&'static str> {
    names.into_iter().filter(|name| *name == MANAGER || manager.pid(name).is_some()).collect()
}

/// Tells a process, if it is there; the sessions that ended. A process that refuses is told all that holds then again
/// and again, as after its birth.
pub(crate) async fn tell(
    manager: &Rc<Manager>,
    name: &'static str,
    message: Message,
) -> Result<Vec<String>, XrlError> {
    let pid = manager.supervisor.borrow_mut().reconfigure(name);
    if pid.is_none() && name != MANAGER {
        return Ok(Vec::new());
    }
    let limit = outsiders::patience(name, &manager.config(), CONFIGURE_LIMIT);
    let told = async {
        let _turn = manager.turns.of(name).await;
        configure::tell(manager, name, message).await
    };
    let result = tokio::time::timeout(limit, told).await;
    let result = result.unwrap_or_else(|_| Err(XrlError::timeout("no answer to its configuration")));
    match (&result, pid) {
        (Ok(_), _) => manager.supervisor.borrow_mut().configured(name),
        (Err(error), Some(pid)) => {
            manager.supervisor.borrow_mut().refused(name, error.to_string());
            spawn_task(births::configure(Rc::clone(manager), name, pid));
        }
        (Err(_), None) => {}
    }
    result
}
