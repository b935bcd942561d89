//! Files of non-stop routing, which the keeper opens for the manager. Of their names, only a few are known: a manager that
//! somebody has taken over reaches no file of another name, wherever it is.

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_api::keeper::v1::{KnownFile, OpenFileRequest};
use rustix::fs::{CWD, Mode, OFlags, openat};

/// Opens the file, and makes it if it is not there. `runtime` is the router's own directory.
pub(crate) fn open(request: &OpenFileRequest, runtime: &Path) -> Result<OwnedFd> {
    let name = match request.file() {
        KnownFile::Unspecified => bail!("no such file is known"),
        KnownFile::Lease => "lease",
        KnownFile::StoreA => "store.a",
        KnownFile::StoreB => "store.b",
    };
    let directory = match request.directory.as_str() {
        "" => runtime.to_owned(),
        directory => PathBuf::from(directory),
    };
    ensure!(directory.is_absolute() || directory == runtime, "{} is no absolute path", directory.display());
    let path = directory.join(name);
    open_known(&path).with_context(|| path.display().to_string())
}

fn open_known(path: &Path) -> Result<OwnedFd> {
    // A link may lead to a file of another name, and a pipe must not be waited for.
    let flags = OFlags::RDWR
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?);
    ensure!(file.metadata()?.is_file(), "it is no regular file");
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn a_file_is_made_once_and_links_and_pipes_are_refused() {
        let directory = std::env::temp_dir().join(format!("holdfast-known-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let request = |file: KnownFile, directory: &str| OpenFileRequest {
            directory: directory.to_owned(),
            file: file.into(),
        };
        for _ in 0..2 {
            open(&request(KnownFile::Lease, ""), &directory).expect("opened");
        }
        let mode = fs::metadata(directory.join("lease")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = directory.to_str().expect("text");
        open(&request(KnownFile::StoreA, text), Path::new("/nowhere")).expect("opened");
        fs::write(directory.join("other"), "").expect("written");
        symlink(directory.join("other"), directory.join("store.b")).expect("a link");
        for (file, directory) in [
            (KnownFile::StoreB, text),
            (KnownFile::Unspecified, text),
            (KnownFile::Lease, "."),
            (KnownFile::Lease, "/nowhere"),
        ] {
            open(&request(file, directory), Path::new("/nowhere")).expect_err("refused");
        }
        fs::remove_file(directory.join("store.a")).expect("removed");
        let made = std::process::Command::new("mkfifo").arg(directory.join("store.a")).status();
        assert!(made.is_ok_and(|made| made.success()));
        open(&request(KnownFile::StoreA, text), Path::new("/nowhere")).expect_err("a pipe");
        fs::remove_dir_all(directory).expect("removed");
    }
}
