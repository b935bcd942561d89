//! Descriptors of protocols of others: a file says of one what `PROCESS` says of each of ours.
//!
//! The rows of a configuration are static data, and so are those of a descriptor: they are made once for each text, and are
//! kept for good ([`Kept`]).

mod argument;
mod format;
mod kept;
mod read;
mod row;

use std::{path::PathBuf, time::Duration};

use toml::de::DeTable;

pub(crate) use self::kept::Kept;
pub use self::{argument::read_argument, format::FORMAT, kept::NoRoom};
use crate::{
    Diagnostics, Holds, ReadFile, Routing,
    describe::{Key, Table},
    input::{Problem, Report, Section},
    schema::ProcessLimits,
};

/// Longest text of a descriptor, in octets.
pub const LONGEST_DESCRIPTOR: usize = 64 << 10;
/// Different descriptors that a process can have read, right ones.
const MOST_DESCRIPTORS: usize = 128;

static KNOWN: Kept<String, Descriptor> = Kept::new(MOST_DESCRIPTORS);

/// What a file says of a protocol of others.
#[derive(Debug)]
pub struct Descriptor {
    text: String,
    /// What it does, after "the process that".
    pub does: String,
    /// What is executed: an absolute path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it may read and execute besides the program and the system's libraries: absolute paths.
    pub reads: Vec<PathBuf>,
    /// As which of the users for protocols it runs; `None`: that follows from its name.
    pub user: Option<u8>,
    /// It may be silent for so long; zero: for ever. `None`: as long as our own processes.
    pub hang_limit: Option<Duration>,
    /// What it may use, where the configuration does not say it.
    pub limits: ProcessLimits,
    /// Its distance, and its datagrams.
    pub routing: Routing,
    /// The rows of its section.
    pub section: &'static Table,
    /// What `holdfast show NAME` takes; the first is that of the name alone.
    pub shows: Vec<DescribedCommand>,
    /// What `holdfast clear NAME` takes; the first is that of the name alone.
    pub clears: Vec<DescribedCommand>,
}

/// A command about a protocol.
#[derive(Clone, Debug)]
pub struct DescribedCommand {
    /// Its word.
    pub name: String,
    /// What it shows or clears.
    pub doc: String,
    /// Its arguments, each of one value. Those that are required come first on the command line, in this order; the others are
    /// options.
    pub arguments: &'static [Key],
}

impl Descriptor {
    /// Reads a descriptor. `file` is the name that diagnostics show. It is kept for good, and found again by its text.
    ///
    /// # Errors
    /// All that is wrong with it; or that too many are kept already.
    pub fn parse(text: &str, file: &str) -> Result<&'static Self, Diagnostics> {
        if let Some(known) = KNOWN.find(text) {
            return Ok(known);
        }
        let is_too_long = text.len() > LONGEST_DESCRIPTOR;
        let (root, faults) = DeTable::parse_recoverable(if is_too_long { "" } else { text });
        let report = Report::new(text, file);
        faults.iter().for_each(|fault| report.syntax(fault));
        if is_too_long {
            let problem = Problem::new("this is too long for a descriptor");
            report.add(&(0..0), problem.expected(format!("{LONGEST_DESCRIPTOR} octets at most")));
        }
        let draft = match !report.has_problems() {
            true => read::descriptor(&report, &root),
            false => None,
        };
        let draft = draft.filter(|_| !report.has_problems());
        let kept = draft.map(|draft| KNOWN.keep(text.to_owned(), || draft.keep(text)));
        let kept = kept.transpose().unwrap_or_else(|full| {
            report.add(&(0..0), full.problem());
            None
        });
        report.finish(kept)
    }

    /// Looks whether what it names is on this host: its program, and what that reads. `file` is the name that diagnostics show.
    ///
    /// # Errors
    /// What is not there, or is no program, with its place in the text.
    pub fn look_for(&self, file: &str, look: &ReadFile<'_>) -> Result<(), Diagnostics> {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        let report = Report::new(&self.text, file);
        let section = Section::file(&report, root.get_ref(), &FORMAT);
        section.know_all();
        let programs = section.optional::<String>("program").into_iter().map(|at| (at, Holds::Program));
        let reads = section.list::<String>("reads").unwrap_or_default().into_iter();
        for (path, holds) in programs.chain(reads.map(|at| (at, Holds::Anything))) {
            if let Err(error) = look(&path.value, holds) {
                report.add(&path.span, Problem::new(format!("{}: {error}", path.value)));
            }
        }
        drop(section);
        report.finish(Some(()))
    }

    /// As which of the users for protocols one of this name runs: always as the same.
    pub fn user_of(&self, name: &str) -> u8 {
        // FNV-1a, folded. Names of a configuration are no input of somebody else's.
        let mix = |hash: u32, octet: u8| (hash ^ u32::from(octet)).wrapping_mul(0x0100_0193);
        let fold = |hash: u32| hash.to_be_bytes().into_iter().fold(0, |sum, octet| sum ^ octet);
        self.user.unwrap_or_else(|| fold(name.bytes().fold(0x811c_9dc5, mix)))
    }

    /// What the file says, as it is.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Descriptor {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Descriptor {}

impl NoRoom {
    /// What an operator can do about it.
    pub(crate) fn problem(self) -> Problem {
        Problem::new(self.to_string()).hint("end the manager by `holdfast call signal://manager/TERM`: the next one begins anew, and all others stay")
    }
}
