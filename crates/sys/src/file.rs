//! Opening files that somebody has named, without waiting for anybody: to open a pipe is to wait for who has its other end,
//! maybe for ever.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Opens a regular file for reading.
///
/// # Errors
/// Those of opening, and that it is something else.
pub fn open(file: &Path) -> io::Result<File> {
    open_with(File::options().read(true), file)
}

/// Opens a regular file with these options, whose flags are replaced.
///
/// # Errors
/// Those of opening, and that it is something else.
pub fn open_with(options: &mut OpenOptions, file: &Path) -> io::Result<File> {
    // A terminal must not become that of the router, either.
    let opened = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(file)?;
    // What was opened is asked, so that nobody can put something else there in between.
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Opens a regular file for reading that nobody can have written but root and the caller's user.
///
/// # Errors
/// Those of [`open`], and that somebody else has a say in it.
pub fn open_trusted(file: &Path) -> io::Result<File> {
    let opened = open(file)?;
    let found = opened.metadata()?;
    let refused = |text: String| Err(io::Error::new(ErrorKind::InvalidInput, text));
    if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        return refused(format!("it belongs to user {}, not to root or to who runs the router", found.uid()));
    }
    match found.mode() & WRITABLE_BY_OTHERS {
        0 => Ok(opened),
        _ => refused("others than its owner may write to it (`chmod go-w` takes that away)".to_owned()),
    }
}

/// Bits of a mode: group and others. With an access list the group's are those of all whom it names.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// What a regular file says.
///
/// # Errors
/// Those of [`open`] and of reading; that it is no text.
pub fn text(file: &Path) -> io::Result<String> {
    io::read_to_string(open(file)?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, chown},
        path::PathBuf,
    };

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn directory(of: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("holdfast-sys-file-{of}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        directory
    }

    #[test]
    fn only_regular_files_are_opened_and_nobody_is_waited_for() {
        let directory = directory("kinds");
        let (pipe, plain) = (directory.join("pipe"), directory.join("plain"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        fs::write(&plain, "what it says").expect("written");
        assert_eq!(text(&plain).expect("read"), "what it says");
        for other in [&pipe, &directory, Path::new("/dev/zero")] {
            let error = open(other).expect_err("it is something else");
            assert_eq!(error.to_string(), "it is no regular file", "{}", other.display());
        }
        // Nobody reads from it; then somebody does.
        let append = || open_with(File::options().append(true), &pipe).expect_err("a pipe").kind();
        assert_ne!(append(), ErrorKind::InvalidInput);
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).expect("opened");
        assert_eq!(append(), ErrorKind::InvalidInput);
        drop(reader);
        assert_eq!(open(&directory.join("none")).expect_err("nothing").kind(), ErrorKind::NotFound);
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn a_file_is_trusted_that_nobody_else_can_have_written() {
        let directory = directory("trust");
        let file = directory.join("file");
        fs::write(&file, "").expect("written");
        let with = |mode| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("changed");
            open_trusted(&file).map(drop).map_err(|error| error.to_string())
        };
        for mode in [0o600, 0o644, 0o755] {
            assert_eq!(with(mode), Ok(()), "{mode:o}");
        }
        for mode in [0o620, 0o664, 0o602, 0o666] {
            assert!(with(mode).is_err_and(|why| why.contains("others than its owner")), "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            let _ = with(0o644);
            chown(&file, Some(7), None).expect("changed");
            let why = open_trusted(&file).expect_err("somebody else's").to_string();
            assert_eq!(why, "it belongs to user 7, not to root or to who runs the router");
        }
        fs::remove_dir_all(&directory).expect("removed");
    }
}
