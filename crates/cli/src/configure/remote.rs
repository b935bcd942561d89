//! What the session asks of the router. Each question has a connection of its own: the manager may die in between.

use std::{
    cell::Cell,
    fs,
    io::Write,
    path::PathBuf,
    time::{Duration, Instant},
};

use holdfast_api::manager::v1::{
    self as api, CommitReply, CommitRequest, ConfigurationReply, DiffReply, DiffRequest, Empty,
    ManagerClient, VersionRequest,
};
use holdfast_config::{Descriptor, Schema};
use holdfast_xrl::{ErrorKind, XrlError};

use super::{Commit, candidate::Candidate};
use crate::{
    Failure, RELOAD, router,
    text::{Table, or_dash, time},
};

/// How long the next manager may take to be there, and all processes to have what it tells them.
const SUCCESSION: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// Where nobody can say what came of a commit.
const LOST: &str = "the connection was lost, and no other manager has come: `history` says whether the commit has \
                    taken effect";

/// The way to a router.
#[derive(Debug)]
pub(crate) struct Remote {
    directory: PathBuf,
}

impl Remote {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(ManagerClient) -> Result<T, XrlError>) -> Result<T, Failure> {
        let mut answer = None;
        router::with(&self.directory, async |router| {
            let manager: ManagerClient = router.client("manager").await?;
            answer = Some(router::answer_within(RELOAD, question(manager)).await?);
            Ok(())
        })?;
        answer.ok_or_else(|| Failure::NoAnswer("it has said nothing".to_owned()))
    }

    pub(super) fn running(&self) -> Result<ConfigurationReply, Failure> {
        self.ask(async |manager| manager.show_configuration(Empty {}).await)
    }

    /// Asks what changes nothing, of the next manager if that dies meanwhile: what was done before is done all the same.
    pub(super) fn patiently<T>(&self, question: impl Fn(&Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let deadline = Instant::now() + SUCCESSION;
        loop {
            match question(self) {
                Err(Failure::NoAnswer(_) | Failure::Interrupted(_)) if Instant::now() < deadline => {
                    std::thread::sleep(LOOK);
                }
                answer => return answer,
            }
        }
    }

    /// What the configuration of the router may say: what `schema` says of every router, and what protocols of others have.
    pub(crate) fn schema(&self, schema: Schema) -> Result<Schema, Failure> {
        schema.with(&self.descriptors()?).map_err(|full| Failure::Edit(full.to_string()))
    }

    /// The protocols of others in the configuration that runs, by name.
    pub(crate) fn descriptors(&self) -> Result<Vec<(String, &'static Descriptor)>, Failure> {
        let shown = self.ask(async |manager| match manager.show_descriptors(Empty {}).await {
            // One of an earlier build has none.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            shown => shown.map(|reply| reply.descriptors),
        })?;
        let protocol =
            |shown: api::Descriptor| Ok((shown.name, Descriptor::parse(&shown.text, "a descriptor")?));
        shown.into_iter().map(protocol).collect::<Result<_, _>>().map_err(Failure::Wrong)
    }

    pub(super) fn version(&self, number: u64) -> Result<String, Failure> {
        let request = VersionRequest { number };
        Ok(self.ask(async |manager| manager.show_version(request).await)?.text)
    }

    /// What a reload of this text would do.
    pub(crate) fn diff(&self, text: String, file: &str) -> Result<DiffReply, Failure> {
        let request = DiffRequest { text, file: file.to_owned() };
        self.ask(async |manager| manager.diff(request).await)
    }

    /// The text that runs.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        Ok(self.running()?.text)
    }

    pub(super) fn commit(&self, candidate: &Candidate, commit: &Commit) -> Result<CommitReply, Failure> {
        let request = CommitRequest {
            text: candidate.text(),
            base: candidate.base,
            force: commit.force,
            comment: commit.comment.clone(),
            confirm_seconds: commit.confirm_seconds,
            without: commit.without.clone(),
        };
        let (before, is_lost) = (self.manager().ok(), Cell::new(false));
        let asked = self.ask(async |manager| {
            let asked = manager.commit(request).await;
            is_lost.set(asked.as_ref().is_err_and(|error| error.kind() == ErrorKind::Disconnected));
            asked
        });
        match asked {
            Err(Failure::Interrupted(_)) if is_lost.get() => {
                self.outcome(&candidate.text(), before.map(|it| it.pid))
            }
            asked => asked,
        }
    }

    /// What came of a commit whose answer was lost. The manager that was asked has ended: what the next one runs is what
    /// was committed.
    fn outcome(&self, text: &str, before: Option<u32>) -> Result<CommitReply, Failure> {
        let deadline = Instant::now() + SUCCESSION;
        let next = loop {
            match self.manager() {
                Ok(manager) if before.is_some_and(|before| manager.pid != before) => break manager,
                Ok(_) | Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK),
                Ok(_) | Err(_) => return Err(Failure::NoAnswer(LOST.to_owned())),
            }
        };
        if self.patiently(Self::running)?.text != text {
            let text = "the manager has ended before the commit took effect: nothing has changed";
            return Err(Failure::Refused(XrlError::unavailable(text)));
        }
        // It tells every process all of it.
        let problems = loop {
            let processes = self.patiently(Self::processes)?;
            let late =
                |process: &&api::Process| process.state == "configuring" || process.state == "starting";
            let late = processes.iter().filter(late).map(|late| format!("{}: {}", late.name, late.state));
            let late: Vec<_> = late.collect();
            if late.is_empty() || Instant::now() > deadline {
                break late;
            }
            std::thread::sleep(LOOK);
        };
        let history = self.patiently(Self::versions)?;
        let version = history.iter().find(|version| version.current).map_or(0, |version| version.number);
        let note =
            format!("the manager has ended meanwhile; the next one (pid {}) has carried it out", next.pid);
        Ok(CommitReply { version, problems, notes: vec![note], ..CommitReply::default() })
    }

    fn processes(&self) -> Result<Vec<api::Process>, Failure> {
        Ok(self.ask(async |manager| manager.show_processes(Empty {}).await)?.processes)
    }

    fn versions(&self) -> Result<Vec<api::Version>, Failure> {
        Ok(self.ask(async |manager| manager.history(Empty {}).await)?.versions)
    }

    /// The manager that answers.
    fn manager(&self) -> Result<api::Process, Failure> {
        let manager = self.processes()?.into_iter().find(|process| process.name == "manager");
        manager.ok_or_else(|| Failure::NoAnswer("it does not say who its manager is".to_owned()))
    }

    pub(super) fn confirm(&self) -> Result<(), Failure> {
        self.ask(async |manager| manager.confirm(Empty {}).await).map(|_| ())
    }

    pub(super) fn history(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let versions = self.versions()?;
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let mut table = Table::new(&["", ">Version", "Time", "Who", "Comment"]);
        for version in versions {
            let current = if version.current { "*" } else { "" };
            let who = version.uid.map(|uid| user(&users, uid)).unwrap_or_default();
            let (number, time) = (version.number.to_string(), time(version.time));
            table.row([current.to_owned(), number, time, or_dash(&who).to_owned(), version.comment]);
        }
        Ok(table.write(out)?)
    }
}

/// The name of a user in passwd(5), or the number.
fn user(users: &str, uid: u32) -> String {
    let number = uid.to_string();
    let named = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = named.into_iter().find(|fields| fields.get(2) == Some(&number.as_str()));
    found.and_then(|fields| fields.first().map(ToString::to_string)).unwrap_or(number)
}
