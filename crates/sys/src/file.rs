//! Opening files that somebody has named, without waiting for anybody: to open a pipe is to wait for who has its other end,
//! maybe for ever.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::OpenOptionsExt,
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

/// What a regular file says.
///
/// # Errors
/// Those of [`open`] and of reading; that it is no text.
pub fn text(file: &Path) -> io::Result<String> {
    io::read_to_string(open(file)?)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn directory() -> PathBuf {
        let directory = std::env::temp_dir().join(format!("holdfast-sys-file-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        directory
    }

    #[test]
    fn only_regular_files_are_opened_and_nobody_is_waited_for() {
        let directory = directory();
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
}
