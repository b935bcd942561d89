//! Versions of the configuration, in the directory `FILE.history` beside the file; and what is yet to be confirmed. Beside
//! them are the [seeds](crate::seeds).
//!
//! A long text is in [parts], which versions share. A version is written after its parts, and removed before them: after a death
//! at any step each version that is there can be read.

mod parts;

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{self, ErrorKind},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use tracing::warn;

use self::parts::{Parts, SHORT};
use crate::file::{base, beside, replace};

/// Versions that are kept: with one more the oldest goes.
const MOST_VERSIONS: usize = 50;
/// Octets of all of them together: with more the oldest go, but for those that may have to run again.
const MOST_OCTETS: u64 = 256 << 20;
/// The newest versions, which stay however long they are: what ran before, what was found in the file, and what is new.
const KEPT: usize = 3;
/// The comment of a version that somebody had written with an editor when a commit replaced it.
pub(crate) const FOUND: &str = "found in the file, did not run";
/// A commit that waits to be confirmed.
const PENDING: &str = "pending.json";

/// A configuration that was committed, or that was there before the first commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    /// Seconds since 1970.
    pub(crate) time: u64,
    /// Who committed it; `None`: the router itself, or somebody with an editor.
    pub(crate) uid: Option<u32>,
    pub(crate) comment: String,
    pub(crate) text: String,
}

/// The file of a version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) time: u64,
    pub(crate) uid: Option<u32>,
    pub(crate) comment: String,
    /// The text, if it is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The parts of a long one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<String>,
    /// Names a long one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<u64>,
}

impl Entry {
    /// Names the text: see [`base`].
    pub(crate) fn base(&self) -> u64 {
        self.base.unwrap_or_else(|| base(self.text.as_deref().unwrap_or_default()))
    }
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
    most_octets: u64,
}

impl History {
    pub(crate) fn of(file: &Path) -> Self {
        Self { directory: beside(file, ".history"), most_octets: MOST_OCTETS }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number}.json"))
    }

    /// The numbers that are kept, in ascending order.
    pub(crate) fn numbers(&self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let number = |entry: io::Result<fs::DirEntry>| -> Option<u64> {
            entry.ok()?.file_name().to_str()?.strip_suffix(".json")?.parse().ok()
        };
        let mut numbers: Vec<u64> = entries.filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// One version, without its text if that is long.
    pub(crate) fn entry(&self, number: u64) -> io::Result<Entry> {
        read(&self.path(number))
    }

    /// One version.
    pub(crate) fn version(&self, number: u64) -> io::Result<Version> {
        let Entry { number, time, uid, comment, text, parts, base: _ } = self.entry(number)?;
        let text = text.map_or_else(|| self.parts().text(&parts), Ok)?;
        Ok(Version { number, time, uid, comment, text })
    }

    fn parts(&self) -> Parts {
        Parts(self.directory.join("parts"))
    }

    /// The newest version, if it can be read.
    pub(crate) fn newest(&self) -> Option<Version> {
        self.version(*self.numbers().ok()?.last()?).ok()
    }

    /// The newest version without its text, if it can be read.
    pub(crate) fn newest_entry(&self) -> Option<Entry> {
        self.entry(*self.numbers().ok()?.last()?).ok()
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
        let Version { number: _, time, uid, comment, text } = version;
        let entry = Entry { number, time, uid, comment, text: None, parts: Vec::new(), base: None };
        let entry = match text.len() {
            ..=SHORT => Entry { text: Some(text), ..entry },
            _ => Entry { parts: self.parts().keep(&text)?, base: Some(base(&text)), ..entry },
        };
        write(&self.path(number), &entry)?;
        self.clear_up()?;
        Ok(number)
    }

    /// Takes back what [`Self::add`] has added.
    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
        fs::remove_file(self.path(number))?;
        self.clear_up()
    }

    /// Removes the oldest versions of which there is no room, and the parts of no version.
    fn clear_up(&self) -> io::Result<()> {
        let sizes = self.parts().sizes()?;
        let pending = self.pending();
        let may_run = |number| pending.is_some_and(|it| it.version == number || it.back == number);
        // The newest first: what is there for one of them is there for all before.
        let (mut octets, mut kept, mut is_full, mut named) = (0, 0, false, HashSet::new());
        let mut entries = Vec::new();
        for number in self.numbers()?.into_iter().rev() {
            let parts = match self.entry(number) {
                Ok(entry) => entry.parts,
                // Nobody can read it.
                Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            entries.push((number, parts));
        }
        for (number, parts) in &entries {
            let more = size_of_file(&self.path(*number))? + octets_of(parts, &named, &sizes);
            is_full |= kept >= MOST_VERSIONS || octets + more > self.most_octets;
            if !is_full || kept < KEPT || may_run(*number) {
                (octets, kept) = (octets + more, kept + 1);
                named.extend(parts.iter().map(String::as_str));
            } else {
                fs::remove_file(self.path(*number))?;
            }
        }
        self.parts().retain(&named)
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
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

/// Takes back a version that never ran: a manager had written it when it died, and had not replaced the file. Its text is still
/// beside the file then. A commit that waited to be confirmed before is rolled back in time all the same.
pub(crate) fn take_back(configuration: &Path) {
    let configuration = fs::canonicalize(configuration).unwrap_or_else(|_| configuration.to_owned());
    let prepared = beside(&configuration, ".new");
    let Ok(text) = holdfast_sys::file::text(&prepared) else { return };
    let history = History::of(&configuration);
    let runs = holdfast_sys::file::text(&configuration).unwrap_or_default();
    let newest = history.newest_entry().filter(|newest| runs != text && newest.base() == base(&text));
    let Some(Entry { number, .. }) = newest else { return };
    // The new commit had put itself in the place of an earlier one that waited, with the same way back. That one counts only
    // while the file says it.
    let waited = history.pending().filter(|pending| pending.version == number);
    let earlier =
        history.numbers().ok().and_then(|numbers| numbers.into_iter().rev().find(|it| *it < number));
    let earlier = earlier.and_then(|earlier| history.entry(earlier).ok());
    let is_what_ran = |entry: &Entry| entry.base() == base(&runs) && entry.comment != FOUND;
    let before = earlier.filter(is_what_ran).map(|entry| entry.number);
    let again = waited.zip(before).filter(|(pending, before)| pending.back != *before);
    let again = again.map(|(pending, before)| Pending { version: before, ..pending });
    let done = match waited {
        Some(_) => history.set_pending(again),
        None => Ok(()),
    };
    // The text beside the file goes last: a death in between is followed by the same.
    match done.and_then(|()| history.remove(number)).and_then(|()| fs::remove_file(&prepared)) {
        Ok(()) => {
            warn!(event = "commit-taken-back", number, "a manager died in a commit: the version never ran");
        }
        Err(error) => {
            warn!(event = "commit-failed", "version {number} stays in the history, and never ran: {error}");
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

fn size_of_file(file: &Path) -> io::Result<u64> {
    Ok(fs::metadata(file)?.len())
}

/// The octets of the parts that are not named yet.
fn octets_of(parts: &[String], named: &HashSet<&str>, sizes: &HashMap<String, u64>) -> u64 {
    let new: HashSet<&str> = parts.iter().map(String::as_str).filter(|part| !named.contains(part)).collect();
    new.into_iter().filter_map(|part| sizes.get(part)).sum()
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
        assert_eq!(&*history.version(4)?.text, "4");
        history.remove(53)?;
        assert_eq!(history.add(version("again"))?, 53);
        Ok(())
    }

    #[test]
    fn a_version_that_was_written_and_never_ran_is_taken_back_with_what_it_had_to_confirm() -> io::Result<()>
    {
        let (_scratch, history) = Scratch::new("back");
        let file = std::env::temp_dir().join(format!("holdfast-history-{}-back", std::process::id()));
        let prepared = beside(&file, ".new");
        let pending = |version, back| Some(Pending { version, back, deadline: 9 });
        for (waited, wanted) in [(None, None), (pending(3, 2), None), (pending(3, 1), pending(2, 1))] {
            for text in ["one", "two", "three"] {
                history.add(version(text))?;
            }
            history.set_pending(waited)?;
            fs::write(&file, "two")?;
            take_back(&file);
            assert_eq!(
                history.numbers()?,
                [1, 2, 3],
                "nothing is beside the file: the third ran, and an editor came"
            );
            fs::write(&prepared, "three")?;
            take_back(&file);
            assert_eq!((history.numbers()?, history.pending()), (vec![1, 2], wanted));
            assert!(!prepared.exists());
            for number in [2, 1] {
                history.remove(number)?;
            }
        }
        // It ran, and the directory has been written in another order than the file.
        history.add(version("one"))?;
        fs::write(&file, "one")?;
        fs::write(&prepared, "one")?;
        take_back(&file);
        assert_eq!(history.numbers()?, [1]);
        fs::remove_file(&prepared)?;
        fs::remove_file(&file)
    }

    /// A long text, of which one line is this.
    fn long(line: &str) -> String {
        let lines = |from: u32| (from..from + 20_000).map(|number| format!("  \"10.0.{number}.0/24\",\n"));
        lines(0).chain([format!("{line}\n")]).chain(lines(20_000)).collect()
    }

    fn octets(history: &History) -> io::Result<u64> {
        Ok(history.parts().sizes()?.values().sum())
    }

    #[test]
    fn equal_parts_of_long_texts_are_there_once_and_go_with_the_last_that_has_them() -> io::Result<()> {
        let (_scratch, history) = Scratch::new("parts");
        let texts: Vec<String> = (0..60).map(|number| long(&format!("# {number}"))).collect();
        for text in &texts {
            history.add(version(text))?;
        }
        for number in [60, 30, 11] {
            assert_eq!(*history.version(number)?.text, texts[number as usize - 1], "{number}");
            assert_eq!(history.entry(number)?.base(), base(&texts[number as usize - 1]));
        }
        let one = texts[0].len() as u64;
        assert!(octets(&history)? < 4 * one, "{} of {one}", octets(&history)?);
        for short in 0..50 {
            history.add(version(&short.to_string()))?;
        }
        assert_eq!((octets(&history)?, history.numbers()?.len()), (0, 50));
        Ok(())
    }

    #[test]
    fn the_oldest_go_where_all_together_are_too_long_and_what_may_run_again_stays() -> io::Result<()> {
        let (_scratch, history) = Scratch::new("octets");
        // Nothing is equal in them.
        let text = |number: u64| (0..10_000).map(|line| format!("# {number} {line}\n")).collect::<String>();
        let length = text(10).len() as u64;
        let history = History { most_octets: 6 * length, ..history };
        history.make()?;
        history.set_pending(Some(Pending { version: 2, back: 1, deadline: 99 }))?;
        for number in 1..=20 {
            assert_eq!(history.add(version(&text(number)))?, number);
            assert!(octets(&history)? <= history.most_octets + 3 * length, "{}", octets(&history)?);
        }
        assert_eq!(history.numbers()?, [1, 2, 16, 17, 18, 19, 20]);
        for number in history.numbers()? {
            assert_eq!(*history.version(number)?.text, text(number));
        }
        // However long they are, the newest stay.
        let history = History { most_octets: 0, ..history };
        history.set_pending(None)?;
        history.add(version(&text(21)))?;
        assert_eq!(history.numbers()?, [19, 20, 21]);
        Ok(())
    }

    #[test]
    fn a_death_at_any_step_leaves_versions_that_can_be_read() -> io::Result<()> {
        let (_scratch, history) = Scratch::new("death");
        history.add(version(&long("first")))?;
        // Before its version is there: parts of nobody, and half a file beside them.
        history.parts().keep(&long("second"))?;
        fs::write(history.parts().0.join("abc-0.new"), "half")?;
        assert_eq!(*history.version(1)?.text, long("first"));
        assert_eq!(history.add(version(&long("third")))?, 2);
        assert_eq!(
            (&*history.version(1)?.text, &*history.version(2)?.text),
            (&*long("first"), &*long("third"))
        );
        let named: HashSet<_> = [1, 2]
            .map(|number| history.entry(number))
            .into_iter()
            .flatten()
            .flat_map(|it| it.parts)
            .collect();
        assert_eq!(
            history.parts().sizes()?.into_keys().collect::<HashSet<_>>(),
            named,
            "nothing else is left"
        );
        // After a version is gone, and before its parts are.
        fs::remove_file(history.path(1))?;
        history.add(version("short"))?;
        assert_eq!(*history.version(2)?.text, long("third"));
        Ok(())
    }

    #[test]
    fn versions_of_earlier_builds_are_read_and_short_ones_are_written_like_them() -> io::Result<()> {
        let (_scratch, history) = Scratch::new("earlier");
        history.make()?;
        let text = long("of before");
        let json = |number: u64, text: &str| {
            serde_json::json!({ "number": number, "time": 7, "uid": 0, "comment": "why", "text": text })
                .to_string()
        };
        fs::write(history.path(1), json(1, &text))?;
        assert_eq!(history.version(1)?, Version { number: 1, ..version(&text) });
        assert_eq!(history.entry(1)?.base(), base(&text));
        history.add(version("short"))?;
        let written: serde_json::Value = serde_json::from_str(&fs::read_to_string(history.path(2))?)?;
        assert_eq!(written.to_string(), json(2, "short").parse::<serde_json::Value>()?.to_string());
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
