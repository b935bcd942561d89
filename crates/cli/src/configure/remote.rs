//! What the session asks of the router. Each question has a connection of its own: the manager may die in between.

use std::{fs, io::Write, path::PathBuf};

use holdfast_api::manager::v1::{
    self as api, CommitReply, CommitRequest, ConfigurationReply, DiffReply, DiffRequest, Empty, HistoryReply,
    ManagerClient, VersionRequest,
};
use holdfast_config::{Descriptor, Schema};
use holdfast_xrl::{ErrorKind, XrlError};

use super::{Commit, candidate::Candidate};
use crate::{
    Failure, RELOAD, router,
    text::{Table, or_dash, time},
};

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
        };
        self.ask(async |manager| manager.commit(request).await)
    }

    pub(super) fn confirm(&self) -> Result<(), Failure> {
        self.ask(async |manager| manager.confirm(Empty {}).await).map(|_| ())
    }

    pub(super) fn history(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let HistoryReply { versions } = self.ask(async |manager| manager.history(Empty {}).await)?;
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
