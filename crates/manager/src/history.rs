//! Versions of the configuration, in the directory `FILE.history` beside the file; and what is yet to be confirmed. Beside
//! them are the [seeds](crate::seeds).

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use tracing::warn;

use crate::file::{beside, replace};

/// Versions that are kept: with one more the oldest goes.
const MOST_VERSIONS: usize = 50;
/// A commit that waits to be confirmed.
const PENDING: &str = "pending.json";

/// A configuration that was committed, or that was there before the first commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) number: u64,
    /// Seconds since 1970.
    pub(crate) time: u64,
    /// Who committed it; `None`: the router itself, or somebody with an editor.
    pub(crate) uid: Option<u32>,
    pub(crate) comment: String,
    pub(crate) text: String,
}

/// A version that is rolled back unless it is confirmed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) version: u64,
    /// The version to go back to.
    pub(crate) back: u64,
    /// Seconds since 1970.
    pub(crate) deadline: u64,
}

/// The directory. It is made by the first commit, or the first seeds.
#[derive(Clone, Debug)]
pub(crate) struct History {
    directory: PathBuf,
}

impl History {
    pub(crate) fn of(file: &Path) -> Self {
        Self { directory: beside(file, ".history") }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number}.json"))
    }

    /// The numbers that are kept, in ascending order.
    pub(crate) fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let number = |entry: io::Result<fs::DirEntry>| -> Option<u64> {
            entry.ok()?.file_name().to_str()?.strip_suffix(".json")?.parse().ok()
        };
        let mut numbers: Vec<u64> = entries.filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// One version.
    pub(crate) fn version(&self, number: u64) -> io::Result<Version> {
        read(&self.path(number))
    }

    /// The newest version, if it can be read.
    pub(crate) fn newest(&self) -> Option<Version> {
        self.version(*self.numbers().ok()?.last()?).ok()
    }

    /// Makes the directory, if it is not there.
    pub(crate) fn make(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)
    }

    /// The file of the seeds: see [`crate::seeds`].
    pub(crate) fn seeds(&self) -> PathBuf {
        self.directory.join("seeds.json")
    }

    /// Adds a version, whose number is chosen here.
    pub(crate) fn add(&self, version: Version) -> io::Result<u64> {
        self.make()?;
        let numbers = self.numbers()?;
        let number = numbers.last().map_or(1, |last| last + 1);
        write(&self.path(number), &Version { number, ..version })?;
        for old in numbers.iter().take((numbers.len() + 1).saturating_sub(MOST_VERSIONS)) {
            fs::remove_file(self.path(*old))?;
        }
        Ok(number)
    }

    /// Takes back what [`Self::add`] has added.
    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
        fs::remove_file(self.path(number))
    }

    /// What waits to be confirmed.
    pub(crate) fn pending(&self) -> Option<Pending> {
        read(&self.directory.join(PENDING)).ok()
    }

    /// Sets what waits to be confirmed.
    pub(crate) fn set_pending(&self, pending: Option<Pending>) -> io::Result<()> {
        let file = self.directory.join(PENDING);
        match pending {
            Some(pending) => write(&file, &pending),
            None => match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

/// Puts the configuration back that was committed last, where there is no file. The keeper has looked for the file before it
/// started the first manager: whatever has removed it since must not keep the next manager from starting.
pub(crate) fn restore(configuration: &Path) {
    let is_missing = matches!(configuration.try_exists(), Ok(false));
    let newest = is_missing.then(|| History::of(configuration).newest()).flatten();
    let Some(Version { number, text, .. }) = newest else { return };
    let file = configuration.display();
    match replace(configuration, &text) {
        Ok(()) => {
            warn!(event = "configuration-restored", %file, number, "the file was gone: what was committed last is back");
        }
        Err(error) => {
            warn!(event = "configuration-restored", %file, number, "the file is gone and cannot be put back: {error}");
        }
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> io::Result<T> {
    Ok(serde_json::from_str(&holdfast_sys::file::text(file)?)?)
}

fn write(file: &Path, value: &impl Serialize) -> io::Result<()> {
    replace(file, &serde_json::to_string(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version { number: 0, time: 7, uid: Some(0), comment: "why".into(), text: text.into() }
    }

    /// A history of its own, in a directory that goes with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> (Self, History) {
            let path = std::env::temp_dir().join(format!("holdfast-history-{}-{name}", std::process::id()));
            let history = History::of(&path);
            (Self(history.directory.clone()), history)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn versions_are_numbered_and_the_oldest_go() -> io::Result<()> {
        let (_scratch, history) = Scratch::new("numbers");
        assert_eq!((history.numbers()?, history.newest()), (Vec::new(), None));
        for number in 1..=53 {
            assert_eq!(history.add(version(&number.to_string()))?, number);
        }
        assert_eq!(history.numbers()?, (4..=53).collect::<Vec<_>>());
        assert_eq!(history.newest().map(|newest| newest.text).as_deref(), Some("53"));
        assert_eq!(history.version(4)?.text, "4");
        history.remove(53)?;
        assert_eq!(history.add(version("again"))?, 53);
        Ok(())
    }

    #[test]
    fn a_configuration_that_is_gone_comes_back_as_it_was_committed_last() -> io::Result<()> {
        let (_scratch, history) = Scratch::new("gone");
        let file = PathBuf::from(history.directory.to_string_lossy().trim_end_matches(".history"));
        restore(&file);
        assert!(!file.exists(), "nothing was committed");
        for text in ["first", "last"] {
            history.add(version(text))?;
        }
        restore(&file);
        assert_eq!(fs::read_to_string(&file)?, "last");
        fs::write(&file, "edited")?;
        restore(&file);
        assert_eq!(fs::read_to_string(&file)?, "edited", "it is there");
        fs::remove_file(file)
    }

    #[test]
    fn what_is_pending_is_there_until_it_is_not() -> io::Result<()> {
        let (_scratch, history) = Scratch::new("pending");
        history.set_pending(None)?;
        history.add(version("x"))?;
        let pending = Pending { version: 2, back: 1, deadline: 99 };
        history.set_pending(Some(pending))?;
        assert_eq!((history.pending(), history.numbers()?), (Some(pending), vec![1]));
        history.set_pending(None)?;
        assert_eq!(history.pending(), None);
        Ok(())
    }
}
