//! Files that a configuration names: somebody else reads them, what they hold becomes a part of the values.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use crate::{
    Descriptor,
    input::{At, Problem, Report},
    schema::{DerFile, ExceptionsFile, KeyFile},
};

/// What a file has to hold.
#[derive(Copy, Clone, Debug)]
pub enum Holds<'a> {
    /// One of these at least.
    List(List),
    /// The private key of the first of these certificates; of any, if there are none.
    KeyOf(&'a [Vec<u8>]),
    /// The private key of a BGPsec router (RFC 8608 section 3): it comes first, then its public key.
    RouterKey,
    /// Text in UTF-8, which is the one thing that is returned.
    Text,
    /// The same, of which nobody else has a say: it names a program to be executed.
    Descriptor,
    /// A program that can be executed; nothing is returned. Who starts it later need not look.
    Program,
    /// A file or a directory, whatever it holds; nothing is returned. The same.
    Anything,
}

/// Of what there may be several in a file.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum List {
    /// Certificates.
    Certificates,
    /// Certificates of those who may have signed others.
    Authorities,
    /// Revocation lists.
    Revocations,
}

/// Reads a file, by the name that is in the configuration: what it holds (keys and certificates as DER), or what is wrong with it, without its
/// name.
pub type ReadFile<'a> = dyn Fn(&str, Holds<'_>) -> Result<Vec<Vec<u8>>, String> + 'a;

/// Octets of a password.
const LONGEST_SECRET: usize = 1024;

type Contents = Result<Arc<[Vec<u8>]>, String>;

/// Each file is read once, however many peers name it.
pub(crate) struct Files<'a> {
    /// `None`: files are not read.
    read: Option<&'a ReadFile<'a>>,
    known: RefCell<HashMap<(String, List), Contents>>,
}

impl<'a> Files<'a> {
    pub(crate) fn new(read: Option<&'a ReadFile<'a>>) -> Self {
        Self { read, known: RefCell::default() }
    }

    /// Whether files are read at all.
    pub(crate) fn are_read(&self) -> bool {
        self.read.is_some()
    }

    /// What a file holds a list of. Nothing, and a fault, where they cannot be had.
    pub(crate) fn lists(&self, report: &Report<'_>, name: At<String>, list: List) -> DerFile {
        let mut known = self.known.borrow_mut();
        let contents = known.entry((name.value.clone(), list)).or_insert_with(|| match self.read {
            Some(read) => read(&name.value, Holds::List(list)).map(Into::into),
            None => Ok(Arc::default()),
        });
        let contents = contents.clone().unwrap_or_else(|error| {
            report.add(&name.span, fault(&name.value, &error));
            Arc::default()
        });
        DerFile { file: name.value, contents }
    }

    /// The private key of these certificates.
    pub(crate) fn key(&self, report: &Report<'_>, name: At<String>, certificates: &[Vec<u8>]) -> KeyFile {
        let contents = match self.read.map(|read| read(&name.value, Holds::KeyOf(certificates))) {
            Some(Ok(keys)) => keys.into_iter().next().unwrap_or_default(),
            Some(Err(error)) => {
                report.add(&name.span, fault(&name.value, &error));
                Vec::new()
            }
            None => Vec::new(),
        };
        KeyFile { file: name.value, contents: contents.into() }
    }

    /// A private key of the router, and what tells it from others: its public key, or where files are not read its name.
    /// `None`, and a fault, where it cannot be had.
    pub(crate) fn router_key(&self, report: &Report<'_>, name: At<String>) -> Option<(KeyFile, Vec<u8>)> {
        let Some(read) = self.read else {
            let public = name.value.clone().into_bytes();
            return Some((KeyFile { file: name.value, contents: Arc::default() }, public));
        };
        let keys = read(&name.value, Holds::RouterKey);
        let keys = keys.map_err(|error| report.add(&name.span, fault(&name.value, &error))).ok()?;
        let mut keys = keys.into_iter();
        let [contents, public] = std::array::from_fn(|_| keys.next().unwrap_or_default());
        Some((KeyFile { file: name.value, contents: contents.into() }, public))
    }

    /// Local exceptions (RFC 8416), as text. `None`, and a fault, where they cannot be had.
    pub(crate) fn exceptions(&self, report: &Report<'_>, name: At<String>) -> Option<ExceptionsFile> {
        let Some(read) = self.read else {
            return Some(ExceptionsFile { file: name.value, text: Arc::default() });
        };
        let text = text(report, &name, read, Holds::Text)?;
        Some(ExceptionsFile { file: name.value, text: text.into() })
    }

    /// A password or another secret: a file of one line. `None`, and a fault, where it cannot be had.
    pub(crate) fn secret(&self, report: &Report<'_>, name: At<String>, shortest: usize) -> Option<KeyFile> {
        let Some(read) = self.read else {
            return Some(KeyFile { file: name.value, contents: Arc::default() });
        };
        let text = text(report, &name, read, Holds::Text)?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        if !(shortest..=LONGEST_SECRET).contains(&line.len()) || line.contains(['\n', '\0']) {
            let problem = fault(&name.value, "it is no secret as it is needed here");
            let expected = format!("one line of {shortest} to {LONGEST_SECRET} octets");
            report.add(&name.span, problem.expected(expected));
            return None;
        }
        Some(KeyFile { file: name.value, contents: line.as_bytes().into() })
    }

    /// What a descriptor describes. `None`, and a fault, where it cannot be had; `None` without one, where files are not
    /// read.
    pub(crate) fn descriptor(&self, report: &Report<'_>, name: &At<String>) -> Option<&'static Descriptor> {
        let text = text(report, name, self.read?, Holds::Descriptor)?;
        let read = Descriptor::parse(&text, &name.value);
        let is_there = |descriptor: &'static Descriptor| descriptor.look_for(&name.value, self.read?).err();
        match read.map(|descriptor| (descriptor, is_there(descriptor))) {
            Ok((descriptor, None)) => Some(descriptor),
            Ok((descriptor, Some(missing))) => {
                report.add_elsewhere(missing);
                Some(descriptor)
            }
            Err(wrong) => {
                report.add_elsewhere(wrong);
                None
            }
        }
    }
}

/// The text of a file; `None`, and a fault, where it cannot be had.
fn text(report: &Report<'_>, name: &At<String>, read: &ReadFile<'_>, holds: Holds<'_>) -> Option<String> {
    let text = read(&name.value, holds).and_then(|read| {
        let octets = read.into_iter().next().unwrap_or_default();
        String::from_utf8(octets).map_err(|_| "it is no text in UTF-8".to_owned())
    });
    text.map_err(|error| report.add(&name.span, fault(&name.value, &error))).ok()
}

fn fault(name: &str, error: &str) -> Problem {
    Problem::new(format!("{name}: {error}"))
}
