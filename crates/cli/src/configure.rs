//! `holdfast configure`: changes to the configuration of a running router, made together and taken together.
//!
//! The candidate lives here; a commit names what it was made from, so that two operators cannot overwrite each other.
//! The same language is typed and scripted.

mod candidate;
mod complete;
mod hidden;
mod language;
mod place;
mod prompt;
mod remote;
mod value;

use std::{
    fs,
    io::{self, IsTerminal, Read, Write},
    path::PathBuf,
};

use clap::Args;
use holdfast_api::manager::v1::ConfigurationReply;
use holdfast_config::Schema;

use self::{
    candidate::Candidate,
    language::{Command, Commit, VERBS},
};
pub(crate) use self::{hidden::hide_both, remote::Remote};
use crate::{Failure, Options};

/// Changes the configuration of the running router: a candidate is edited, compared, checked and committed. Reads
/// commands from the terminal, from a script, or from standard input; `help` lists them. A script ends at the first
/// command that fails, with nothing committed but what it has committed before.
#[derive(Clone, Debug, Args)]
pub struct Configure {
    /// How to reach the router.
    #[command(flatten)]
    pub(crate) options: Options,
    /// A file with commands.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// One session.
struct Session<'a> {
    candidate: Candidate,
    remote: Remote,
    /// What the configuration of every router may say.
    schema: Schema,
    out: &'a mut dyn Write,
}

impl Configure {
    pub(crate) fn run(self, schema: Schema, out: &mut dyn Write) -> Result<(), Failure> {
        let remote = Remote::new(self.options.runtime_dir);
        let running = remote.running()?;
        let described = remote.schema(schema)?.file();
        let candidate = Candidate::new(running.text, running.base, described).map_err(Failure::Edit)?;
        let mut session = Session { candidate, remote, schema, out };
        match self.file {
            Some(file) => {
                let text = fs::read_to_string(&file).map_err(|error| Failure::Unreadable { file, error })?;
                session.script(&text)
            }
            None if io::stdin().is_terminal() => prompt::run(&mut session),
            None => {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text)?;
                session.script(&text)
            }
        }
    }
}

impl Session<'_> {
    fn script(&mut self, text: &str) -> Result<(), Failure> {
        for (number, line) in (1..).zip(text.lines()) {
            match self.line(line) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // What an error is about is above it.
                Err(failure) => {
                    self.out.flush()?;
                    eprintln!("holdfast: line {number}: {line}");
                    return Err(failure);
                }
            }
        }
        match self.candidate.is_changed() {
            true => Err(Failure::Edit("the script ends without `commit`: nothing has changed".to_owned())),
            false => Ok(()),
        }
    }

    /// Carries one line out; `false` at the end.
    fn line(&mut self, line: &str) -> Result<bool, Failure> {
        if let Some(line) = line.trim_end().strip_suffix('?') {
            let text = complete::explain(self.candidate.document(), line);
            self.out.write_all(text.as_bytes())?;
            return Ok(true);
        }
        match language::read(line).map_err(Failure::Edit)? {
            Some(Command::Exit) => return self.exit(),
            Some(command) => self.carry_out(command)?,
            None => {}
        }
        Ok(true)
    }

    /// Begins again with what runs.
    fn begin(&mut self, running: ConfigurationReply) -> Result<(), Failure> {
        let described = self.remote.patiently(|remote| remote.schema(self.schema))?.file();
        self.candidate = Candidate::new(running.text, running.base, described).map_err(Failure::Edit)?;
        Ok(())
    }

    fn exit(&self) -> Result<bool, Failure> {
        match self.candidate.is_changed() {
            true => Err(Failure::Edit("there are changes: `commit` or `discard` them first".to_owned())),
            false => Ok(false),
        }
    }

    fn carry_out(&mut self, command: Command) -> Result<(), Failure> {
        match command {
            Command::Change(words) => self.candidate.change(&words).map_err(Failure::Edit),
            Command::Show(path) => self.show(&path),
            Command::Compare => self.compare(),
            Command::Check => self.check(),
            Command::Commit(commit) => self.commit(commit),
            Command::Rollback(number) => self.roll_back(number),
            Command::History => self.remote.history(self.out),
            Command::Rebase => {
                let running = self.remote.running()?;
                self.candidate.rebase(running.text, running.base).map_err(Failure::Edit)
            }
            Command::Discard => {
                let running = self.remote.running()?;
                self.begin(running)
            }
            Command::Help(_) => {
                VERBS.iter().try_for_each(|(verb, help)| writeln!(self.out, "  {verb:9} {help}"))?;
                writeln!(self.out, "  ?         after anything: what may come next")?;
                Ok(())
            }
            Command::Exit => Ok(()),
        }
    }

    fn show(&mut self, path: &[String]) -> Result<(), Failure> {
        let document = self.candidate.document();
        let (place, _) = place::find(document, path).map_err(Failure::Edit)?;
        let text = place::text(&hidden::hide(&document.toml, document.described), &place.steps);
        let text = text.ok_or_else(|| Failure::Edit("there is nothing there".to_owned()))?;
        Ok(self.out.write_all(text.trim_start_matches('\n').as_bytes())?)
    }

    fn compare(&mut self) -> Result<(), Failure> {
        let (running, candidate) = (&self.candidate.running, self.candidate.text());
        let described = self.candidate.document().described;
        let texts = hide_both(running, &candidate, described);
        let [running, candidate] = texts.ok_or_else(|| Failure::Edit("it is no TOML".to_owned()))?;
        let text = difference(&running, &candidate, "running", "candidate");
        Ok(self.out.write_all(text.as_bytes())?)
    }

    fn check(&mut self) -> Result<(), Failure> {
        let diff = self.remote.diff(self.candidate.text(), "candidate")?;
        crate::diff::write(&diff, self.out)?;
        crate::diff::needs_no_restart(&diff)
    }

    fn commit(&mut self, commit: Commit) -> Result<(), Failure> {
        if !self.candidate.is_changed() && commit.confirm_seconds == 0 {
            return self.confirm();
        }
        let reply = self.remote.commit(&self.candidate, &commit)?;
        reply.changes.iter().try_for_each(|change| writeln!(self.out, "{change}"))?;
        let faults = if reply.problems.is_empty() { "" } else { ", with faults" };
        writeln!(self.out, "version {} runs{faults}", reply.version)?;
        reply.notes.iter().try_for_each(|note| writeln!(self.out, "note: {note}"))?;
        if commit.confirm_seconds > 0 {
            writeln!(self.out, "rolled back in {} s unless confirmed by `commit`", commit.confirm_seconds)?;
        }
        let running = self.remote.patiently(Remote::running)?;
        self.begin(running)?;
        match reply.problems.is_empty() {
            true => Ok(()),
            false => Err(Failure::NotTaken(reply.problems.join("; "))),
        }
    }

    fn confirm(&mut self) -> Result<(), Failure> {
        if self.remote.running()?.unconfirmed_seconds == 0 {
            return Ok(writeln!(self.out, "nothing to commit")?);
        }
        self.remote.confirm()?;
        Ok(writeln!(self.out, "confirmed")?)
    }

    fn roll_back(&mut self, number: u64) -> Result<(), Failure> {
        let text = if number == 0 { self.remote.running()?.text } else { self.remote.version(number)? };
        self.candidate.load(&text).map_err(Failure::Edit)
    }
}

/// Lines that differ, with three around them; nothing where none do.
pub(crate) fn difference(old: &str, new: &str, old_name: &str, new_name: &str) -> String {
    similar::TextDiff::from_lines(old, new).unified_diff().header(old_name, new_name).to_string()
}
