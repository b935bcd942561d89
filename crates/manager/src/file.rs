//! Files that are replaced whole: whoever reads one finds the old text or the new one, also after a crash.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    hash::Hasher,
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use siphasher::sip::SipHasher13;

/// Rights of a file that is new: there may be keys of sessions in it.
const MODE: u32 = 0o600;

/// A text that is safely on the disk, beside the file that it is to replace. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Prepared {
    temporary: PathBuf,
    file: PathBuf,
}

impl Prepared {
    /// Writes the text, with owner and mode of the file if that is there.
    pub(crate) fn new(file: &Path, text: &str) -> io::Result<Self> {
        let prepared = Self { temporary: beside(file, ".new"), file: file.to_owned() };
        // What an earlier manager left.
        let _ = fs::remove_file(&prepared.temporary);
        let mut options = OpenOptions::new();
        let mut new = options.write(true).create_new(true).mode(MODE).open(&prepared.temporary)?;
        if let Ok(before) = fs::metadata(file) {
            let ours = new.metadata()?;
            if (ours.uid(), ours.gid()) != (before.uid(), before.gid()) {
                fchown(&new, Some(before.uid()), Some(before.gid())).map_err(|error| {
                    io::Error::other(format!(
                        "the file belongs to {}:{}, and could not be left to them: {error}",
                        before.uid(),
                        before.gid()
                    ))
                })?;
            }
            new.set_permissions(fs::Permissions::from_mode(before.mode()))?;
        }
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        Ok(prepared)
    }

    /// Puts it in the place of the file.
    pub(crate) fn put(self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.file)?;
        File::open(self.file.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // It is gone after `put`.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Names a text. The same in every build.
pub(crate) fn base(text: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Makes a file that is there whole or not at all. Its directory is for the caller to write out.
pub(crate) fn write_new(file: &Path, text: &str) -> io::Result<()> {
    let prepared = Prepared::new(file, text)?;
    fs::rename(&prepared.temporary, &prepared.file)
}

/// Replaces a file, or makes it.
pub(crate) fn replace(file: &Path, text: &str) -> io::Result<()> {
    Prepared::new(file, text)?.put()
}

/// A path with something added to its name.
pub(crate) fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut path = OsString::from(file);
    path.push(ending);
    path.into()
}
