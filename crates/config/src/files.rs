//! Files that a configuration names: somebody else reads them, what they hold becomes a part of the values.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use crate::{
    input::{At, Problem, Report},
    schema::{DerFile, KeyFile},
};

/// What a file has to hold.
#[derive(Copy, Clone, Debug)]
pub enum Holds<'a> {
    /// Certificates, one at least.
    Certificates,
    /// Revocation lists, one at least.
    Revocations,
    /// The private key of the first of these certificates; of any, if there are none.
    KeyOf(&'a [Vec<u8>]),
}

/// Reads a file, by the name that is in the configuration: what it holds as DER, or what is wrong with it, without its
/// name.
pub type ReadFile<'a> = dyn Fn(&str, Holds<'_>) -> Result<Vec<Vec<u8>>, String> + 'a;

type Contents = Result<Arc<[Vec<u8>]>, String>;

/// Each file is read once, however many peers name it.
pub(crate) struct Files<'a> {
    /// `None`: files are not read.
    read: Option<&'a ReadFile<'a>>,
    /// By name, and whether it holds revocation lists.
    known: RefCell<HashMap<(String, bool), Contents>>,
}

impl<'a> Files<'a> {
    pub(crate) fn new(read: Option<&'a ReadFile<'a>>) -> Self {
        Self { read, known: RefCell::default() }
    }

    /// Certificates or revocation lists. Nothing, and a fault, where they cannot be had.
    pub(crate) fn lists(&self, report: &Report<'_>, name: At<String>, holds: Holds<'_>) -> DerFile {
        let key = (name.value.clone(), matches!(holds, Holds::Revocations));
        let mut known = self.known.borrow_mut();
        let contents = known.entry(key).or_insert_with(|| match self.read {
            Some(read) => read(&name.value, holds).map(Into::into),
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
}

fn fault(name: &str, error: &str) -> Problem {
    Problem::new(format!("{name}: {error}"))
}
