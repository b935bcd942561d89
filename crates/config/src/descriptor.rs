//! Descriptors of protocols of others: a file says of one what `PROCESS` says of each of ours.
//!
//! The rows of a configuration are static data, and so are those of a descriptor: they are made once for each text, and are
//! kept for good ([`Kept`]).

mod format;
mod kept;
mod read;
mod row;

use std::{path::PathBuf, time::Duration};

use toml::de::DeTable;

pub(crate) use self::kept::Kept;
pub use self::{format::FORMAT, kept::NoRoom};
use crate::{
    Diagnostics, Routing,
    describe::Table,
    input::{Problem, Report},
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedCommand {
    /// Its word.
    pub name: String,
    /// What it shows or clears.
    pub doc: String,
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
