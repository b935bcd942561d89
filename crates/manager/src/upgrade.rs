//! Another binary under a running router: process by process, each of which takes over from the one before as after a
//! crash. What cannot work is refused before anything is touched; a build whose processes do not run is taken back.

use std::{
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use holdfast_api::{
    keeper::v1::{Empty, UseBinaryRequest},
    manager::v1::{UpgradeProgress, UpgradeRequest},
    rib::v1::{Empty as RibEmpty, OriginStatus, RibClient, Status},
};
use holdfast_process::OLD_TRANSPORT;
use holdfast_xrl::XrlError;
use rustix::process::Signal;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{info, warn};

use crate::{
    manager::Manager,
    replacement::{self, CARRIES, Replacement},
};

/// Those between whom routes are under way.
const WITH_ROUTES: [&str; 3] = ["fea", "rib", "bgp"];
/// Before the next one is replaced, the routes are where they belong, as far as they were before: what peers bring whose
/// sessions have to come up anew, or that are down, takes as long as it takes.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
const SETTLE_PAUSE: Duration = Duration::from_millis(20);
/// How the death of a process that is replaced is described.
const REASON: &str = "upgrade";
/// The operator reads the last line no later.
const LAST_WORDS: Duration = Duration::from_secs(2);

type Say = UnboundedSender<UpgradeProgress>;

/// Replaces everything that was not started from this build. Returns when nothing is left to do, or the keeper was
/// asked to replace this manager and itself.
///
/// # Errors
/// What stands against it, with nothing touched; or which process did not run, with the old build running again.
pub(crate) async fn upgrade(
    manager: &Rc<Manager>,
    request: &UpgradeRequest,
    file: OwnedFd,
    say: &Say,
) -> Result<(), XrlError> {
    // No other upgrade, and no reload, at the same time.
    let _turn =
        manager.reloading.try_lock().map_err(|_| refused("a reload or another upgrade is going on"))?;
    if manager.is_stopping() {
        return Err(refused("the router is being stopped"));
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(&request.path));
    let wrong = |text: &str| XrlError::failed_precondition(format!("{}: {text}", path.display()));
    let copy = file.try_clone().map_err(|error| XrlError::internal(error.to_string()))?;
    let question = UseBinaryRequest { path: request.path.clone(), ..UseBinaryRequest::default() };
    let new = manager.keeper.examine(question, vec![copy]).await.map_err(|error| wrong(error.message()))?;
    if !new.obstacles.is_empty() {
        return Err(wrong(&new.obstacles.join("; ")));
    }
    let upgrade = Upgrade { manager, build: new.build, now: request.now, say };
    let names = manager.processes.as_replaced().map(|process| process.name);
    let first: Vec<_> = names.filter(|name| upgrade.is_old(name)).collect();
    let last: Vec<_> = ["manager", "keeper"].into_iter().filter(|name| upgrade.is_old(name)).collect();
    let ends_retired = request.now && !manager.retired.borrow().is_empty();
    if first.is_empty() && last.is_empty() && !ends_retired {
        upgrade.say("", "every process runs this build already", Duration::ZERO);
        return Ok(());
    }
    if request.dry_run {
        let replaced: Vec<_> = first.iter().chain(&last).copied().collect();
        upgrade.say_what_would_be(&replaced).await;
        return Ok(());
    }
    info!(event = "upgrade-begun", build = upgrade.build, path = %path.display(), "upgrade begins");
    let request = UseBinaryRequest { path: request.path.clone(), build: upgrade.build.clone() };
    manager.keeper.use_binary(request, vec![file]).await?;
    if ends_retired {
        upgrade.end_retired().await?;
    }
    let was_synced = upgrade.fea_synced().await.unwrap_or(false);
    upgrade.replace_all(&first, was_synced).await?;
    if !last.is_empty() {
        let progress = UpgradeProgress { last: true, ..upgrade.progress("", "", Duration::ZERO) };
        if say.send(progress).is_ok() {
            let _ = tokio::time::timeout(LAST_WORDS, say.closed()).await;
        }
        manager.keeper.hand_over(Empty {}).await?;
    }
    Ok(())
}

fn refused(text: &str) -> XrlError {
    XrlError::failed_precondition(text)
}

/// How a process makes room for the next one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Room {
    /// It lives on for what it carries, if it carries anything.
    Retires,
    Dies,
}

struct Upgrade<'a> {
    manager: &'a Rc<Manager>,
    /// The build that is to run everywhere.
    build: String,
    /// Nobody retires.
    now: bool,
    say: &'a Say,
}

impl Upgrade<'_> {
    fn progress(&self, process: &str, text: &str, took: Duration) -> UpgradeProgress {
        UpgradeProgress {
            build: self.build.clone(),
            process: process.to_owned(),
            text: text.to_owned(),
            milliseconds: took.as_millis().try_into().unwrap_or(u64::MAX),
            last: false,
            retires: false,
        }
    }

    /// Tells the operator, who may have gone.
    fn say(&self, process: &str, text: &str, took: Duration) {
        let _ = self.say.send(self.progress(process, text, took));
    }

    /// What a process was started from; empty if it is not wanted.
    fn build_of(&self, name: &str) -> String {
        match name {
            "manager" => self.manager.own.borrow().build.clone(),
            "keeper" => self.manager.keeper_build.borrow().clone(),
            _ => {
                let supervisor = self.manager.supervisor.borrow();
                supervisor.process(name).map(|process| process.build.clone()).unwrap_or_default()
            }
        }
    }

    fn is_old(&self, name: &str) -> bool {
        let wanted =
            ["manager", "keeper"].contains(&name) || self.manager.supervisor.borrow().process(name).is_some();
        wanted && self.build_of(name) != self.build
    }

    /// What would be done with these, and with whom retires for them or has before.
    async fn say_what_would_be(&self, names: &[&str]) {
        let carried = if names.contains(&CARRIES) { self.carried().await } else { 0 };
        if self.now || carried > 0 {
            for old in self.manager.retired.borrow().values() {
                self.say(&old.name, &format!("{} would be ended", old.build), Duration::ZERO);
            }
        }
        for name in names {
            let retires = *name == CARRIES && carried > 0;
            let text = match retires {
                true => "would be replaced, and carry its connections on until they end",
                false => "would be replaced",
            };
            let text = format!("{} {text}", self.build_of(name));
            let progress = UpgradeProgress { retires, ..self.progress(name, &text, Duration::ZERO) };
            let _ = self.say.send(progress);
        }
    }

    /// How many connections there are for which `transport` would retire.
    async fn carried(&self) -> u32 {
        if self.now { 0 } else { replacement::carried(self.manager).await }
    }

    /// Ends those that have retired before, with what they carry.
    async fn end_retired(&self) -> Result<(), XrlError> {
        let before: Vec<_> = self.manager.retired.borrow().values().cloned().collect();
        let begin = Instant::now();
        if !self.manager.end_retired(Signal::KILL, REASON).await {
            return Err(XrlError::failed_precondition(format!("{OLD_TRANSPORT} does not end")));
        }
        for old in before {
            self.say(&old.name, &format!("ended, of {}", old.build), begin.elapsed());
        }
        Ok(())
    }

    /// Has a process give its place up, if it carries what would end with it; whether it has. One that has retired
    /// before is ended first: there is room for one.
    async fn retire(&self, replacement: &Replacement<'_>) -> Result<bool, XrlError> {
        if replacement.name != CARRIES || self.carried().await == 0 {
            return Ok(false);
        }
        self.end_retired().await?;
        Ok(replacement.retire().await)
    }

    /// Replaces these processes; if one does not run, all of them go back.
    async fn replace_all(&self, names: &[&str], was_synced: bool) -> Result<(), XrlError> {
        for (number, name) in names.iter().enumerate() {
            let begin = Instant::now();
            match self.replace(name, Room::Retires).await {
                Ok(retires) => {
                    let text = match retires {
                        true => "replaced; the one before carries its connections on until they end",
                        false => "replaced",
                    };
                    let progress = UpgradeProgress { retires, ..self.progress(name, text, begin.elapsed()) };
                    let _ = self.say.send(progress);
                    if WITH_ROUTES.contains(name) {
                        let _ = tokio::time::timeout(SETTLE_LIMIT, self.settled(was_synced)).await;
                    }
                }
                Err(why) => {
                    warn!(
                        event = "upgrade-failed",
                        process = name,
                        build = self.build,
                        "upgrade: {why}: back to the build before"
                    );
                    self.manager.keeper.use_binary(UseBinaryRequest::default(), Vec::new()).await?;
                    let mut text = format!("{name} does not run with {}: {why}; ", self.build);
                    text.push_str(match self.back(&names[..=number]).await {
                        Ok(()) => "the build before runs again",
                        Err(_) => "nor does it with the build before: see `holdfast show processes`",
                    });
                    return Err(XrlError::failed_precondition(text));
                }
            }
        }
        Ok(())
    }

    /// Waits until what `bgp` knows is at the rib, and what the rib knows at the fea. Where routes of an earlier life were
    /// still kept in the kernel before, for want of a peer, the end of that is not waited for.
    async fn settled(&self, was_synced: bool) {
        let runs = |name| self.manager.pid(name).is_some();
        let is_settled = |status: &Status| {
            let is_told = |origin: &OriginStatus| origin.alive && (origin.told || origin.synced);
            let bgp_told = status.origins.iter().any(|origin| origin.name == "bgp" && is_told(origin));
            (status.fea_synced || !was_synced) && status.pending == 0 && (bgp_told || !runs("bgp"))
        };
        while runs("rib") && !self.rib().await.is_ok_and(|status| is_settled(&status)) {
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
    }

    async fn fea_synced(&self) -> Result<bool, XrlError> {
        Ok(self.rib().await?.fea_synced)
    }

    async fn rib(&self) -> Result<Status, XrlError> {
        let rib: RibClient = self.manager.resolver.client("rib").await?;
        rib.show_status(RibEmpty {}).await
    }

    async fn back(&self, names: &[&str]) -> Result<(), String> {
        let mut result = Ok(());
        for name in names {
            result = result.and(self.replace(name, Room::Dies).await.map(drop));
        }
        result
    }

    /// Has a process make room, and waits until another runs in its place; whether the one before lives on.
    async fn replace(&self, name: &str, room: Room) -> Result<bool, String> {
        let replacement = Replacement::of(self.manager, name);
        let retired = match room {
            Room::Retires => self.retire(&replacement).await,
            Room::Dies => Ok(false),
        };
        let retired = retired.map_err(|error| error.message().to_owned())?;
        if !retired {
            replacement.end(REASON);
        }
        replacement.runs().await.map(|()| retired)
    }
}
