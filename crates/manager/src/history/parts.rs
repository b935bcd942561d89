//! Long texts of the history, in parts: equal parts of several versions are there once.
//!
//! A text is cut at ends of lines, which lines is said by their hash: so a change moves no cut but those beside it. A part is a
//! file that is named by its contents. It is written before the version that names it, and removed after the last of those.

use std::{
    collections::{HashMap, HashSet},
    fs,
    hash::Hasher,
    io,
    path::{Path, PathBuf},
};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::file::write_new;

/// Shorter texts are in the files of their versions, where earlier builds find them.
pub(super) const SHORT: usize = 64 << 10;
/// About so many parts has a text, as far as they are neither shorter nor longer than these.
const PARTS: usize = 128;
const SHORTEST: usize = 8 << 10;
const LONGEST: usize = 1 << 20;
/// Parts that have one hash and are different.
const MOST_ALIKE: u32 = 16;

/// The directory of the parts.
#[derive(Clone, Debug)]
pub(super) struct Parts(pub(super) PathBuf);

impl Parts {
    /// Keeps a text; the names of its parts.
    ///
    /// # Errors
    /// Of the file system. Parts that were written before are left, and removed by the next [`Self::retain`].
    pub(super) fn keep(&self, text: &str) -> io::Result<Vec<String>> {
        fs::create_dir_all(&self.0)?;
        let names = split(text).map(|part| self.keep_one(part)).collect();
        fs::File::open(&self.0)?.sync_all()?;
        names
    }

    fn keep_one(&self, part: &str) -> io::Result<String> {
        let mut hasher = SipHasher13::new();
        hasher.write(part.as_bytes());
        let hash = hasher.finish128().as_u128();
        for number in 0..MOST_ALIKE {
            let name = format!("{hash:032x}-{number}");
            let file = self.0.join(&name);
            match fs::read(&file) {
                Ok(found) if found == part.as_bytes() => return Ok(name),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    write_new(&file, part)?;
                    return Ok(name);
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("too many parts are alike"))
    }

    /// The text of these parts.
    ///
    /// # Errors
    /// A part cannot be read.
    pub(super) fn text(&self, names: &[String]) -> io::Result<String> {
        let mut text = String::new();
        for name in names {
            if !is_name(name) {
                return Err(io::Error::other("no name of a part"));
            }
            text.push_str(&holdfast_sys::file::text(&self.0.join(name))?);
        }
        Ok(text)
    }

    /// The octets of each part.
    ///
    /// # Errors
    /// Of the file system.
    pub(super) fn sizes(&self) -> io::Result<HashMap<String, u64>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
            entries => entries?,
        };
        let mut sizes = HashMap::new();
        for entry in entries {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                sizes.insert(name, entry.metadata()?.len());
            }
        }
        Ok(sizes)
    }

    /// Removes all parts but these, and whatever a death has left.
    ///
    /// # Errors
    /// Of the file system.
    pub(super) fn retain(&self, named: &HashSet<&str>) -> io::Result<()> {
        for name in self.sizes()?.keys().filter(|name| !named.contains(name.as_str())) {
            fs::remove_file(self.0.join(name))?;
        }
        Ok(())
    }
}

/// Whether it is what a part may be called: a version may come from an earlier disk of anybody.
fn is_name(name: &str) -> bool {
    Path::new(name).components().count() == 1
        && name.bytes().all(|octet| octet.is_ascii_hexdigit() || octet == b'-')
}

/// The parts of a text.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let usual = (text.len() / PARTS).next_power_of_two().clamp(SHORTEST, LONGEST);
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (part, behind) = rest.split_at(first(rest, usual));
        rest = behind;
        Some(part)
    })
}

/// How long the first part is.
fn first(text: &str, usual: usize) -> usize {
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        if length > 0 && length + line.len() > 4 * usual {
            return length;
        }
        length += line.len();
        if length > 4 * usual {
            return text.floor_char_boundary(4 * usual);
        }
        let mut hasher = SipHasher13::new();
        hasher.write(line.as_bytes());
        // One line of so many that they are about as long as a part.
        let is_end = hasher.finish128().h1.is_multiple_of((usual / line.len()).max(1) as u64);
        if is_end && length >= usual / 4 {
            return length;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(from: u32, count: u32) -> String {
        (from..from + count)
            .map(|number| format!("  \"10.{}.{}.0/24\",\n", number >> 8, number & 0xff))
            .collect()
    }

    #[test]
    fn a_change_leaves_most_parts_as_they_are() {
        let text = lines(0, 50_000);
        let parts: HashSet<&str> = split(&text).collect();
        assert!((20..500).contains(&parts.len()), "{}", parts.len());
        assert!(split(&text).all(|part| part.len() <= 4 * SHORTEST), "none is long");
        for at in [0, text.len() / 2, text.len()] {
            let at = text[..at].rfind('\n').map_or(0, |end| end + 1);
            let changed = [&text[..at], "# one line more\n", &text[at..]].concat();
            let other = split(&changed).filter(|part| !parts.contains(part)).count();
            assert!((1..=2).contains(&other), "{other} parts differ");
        }
    }

    #[test]
    fn the_parts_of_a_text_are_the_text() {
        let lines = lines(0, 1000);
        for text in [
            String::new(),
            "one line".to_owned(),
            "é".repeat(3_000_000),
            "\n".repeat(300_000),
            "the same\n".repeat(300_000),
            format!("{}{lines}", "x".repeat(100_001)),
            format!("{lines}{}\n{lines}", "é".repeat(100_001)),
            lines.repeat(2000),
        ] {
            let parts: Vec<_> = split(&text).collect();
            assert!(parts.concat() == text, "{} octets", text.len());
            assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= 4 * LONGEST));
        }
    }
}
