//! Keeping what was made in files.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::KeysError;

/// Who may read a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// Its owner only: private keys.
    Secret,
    /// Everybody.
    Public,
}

/// Writes a file as a whole or not at all. What is there is replaced with `force` only.
///
/// # Errors
/// [`KeysError::Exists`], or what the system says.
pub fn write(path: &Path, contents: &[u8], access: Access, force: bool) -> Result<(), KeysError> {
    let fault = |error| KeysError::File { path: path.to_owned(), error };
    let beside = beside(path).map_err(fault)?;
    let written =
        fill(&beside, contents, access).and_then(|file| file.sync_all()).and_then(|()| match force {
            true => fs::rename(&beside, path),
            // Unlike a rename, a link replaces nothing.
            false => fs::hard_link(&beside, path),
        });
    // Renamed it is gone, else it has to go.
    let _ = fs::remove_file(&beside);
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.exists() => {
            Err(KeysError::Exists(path.to_owned()))
        }
        Err(error) => Err(fault(error)),
        Ok(()) => settle(path).map_err(fault),
    }
}

/// Writes a file that is not there yet, one of many: [`sync`] has them all on the disk, which file by file would take longer
/// than anything else.
///
/// # Errors
/// What the system says, as that there is one.
pub fn create(path: &Path, contents: &[u8], access: Access) -> Result<(), KeysError> {
    let fault = |error| KeysError::File { path: path.to_owned(), error };
    fill(path, contents, access).map_err(fault)?;
    Ok(())
}

/// What was written there is on the disk.
///
/// # Errors
/// What the system says.
pub fn sync(directory: &Path) -> Result<(), KeysError> {
    let fault = |error| KeysError::File { path: directory.to_owned(), error };
    let opened = File::open(directory).map_err(fault)?;
    rustix::fs::syncfs(&opened).map_err(|error| fault(error.into()))
}

fn fill(path: &Path, contents: &[u8], access: Access) -> io::Result<File> {
    let mode = match access {
        Access::Secret => 0o600,
        Access::Public => 0o644,
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(contents)?;
    Ok(file)
}

/// A name in the same directory for what is not whole yet.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    Ok(path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id())))
}

/// The name is on the disk as well.
fn settle(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_for_its_owner_and_is_not_replaced_unasked() {
        let directory = std::env::temp_dir().join(format!("holdfast-keys-{}", std::process::id()));
        fs::create_dir(&directory).expect("a fresh directory");
        let key = directory.join("key.pem");
        write(&key, b"one", Access::Secret, false).expect("is written");
        assert_eq!(fs::metadata(&key).expect("is there").permissions().mode() & 0o777, 0o600);
        let again = write(&key, b"two", Access::Secret, false).expect_err("is there");
        assert!(matches!(again, KeysError::Exists(_)), "{again}");
        assert_eq!(fs::read(&key).expect("is there"), b"one");
        write(&key, b"two", Access::Secret, true).expect("is replaced");
        assert_eq!(fs::read(&key).expect("is there"), b"two");
        assert_eq!(fs::read_dir(&directory).expect("is there").count(), 1, "nothing is left beside it");
        fs::remove_dir_all(&directory).expect("goes");
    }

    #[test]
    fn a_directory_that_is_missing_is_said() {
        let fault =
            write(Path::new("/nowhere/key.pem"), b"", Access::Secret, false).expect_err("no directory");
        assert_eq!(fault.to_string(), "/nowhere/key.pem: No such file or directory (os error 2)");
    }
}
