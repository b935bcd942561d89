//! The file that a process is executed from: by an open descriptor, so that another file under the same path changes
//! nothing for who holds this one.

use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::AsRawFd,
        unix::{fs::MetadataExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::Command,
};

/// An executable file.
#[derive(Debug)]
pub struct Binary {
    file: File,
    path: PathBuf,
}

/// Why a file is not to be executed as a part of the router.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// A directory, a socket, …
    #[error("it is no file")]
    NoFile,
    /// Nobody may execute it.
    #[error("it is not executable")]
    NotExecutable,
    /// No directory has it: it has been removed, or was only ever in somebody's memory (memfd_create(2)).
    #[error("it is in no directory")]
    Nowhere,
    /// Others could put something else into it, or have.
    #[error(
        "it has to belong to root or to the user of the router, and nobody else may have the right to write to it"
    )]
    NotOurs,
    /// It cannot be looked at.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
}

impl Binary {
    /// That of the calling process.
    ///
    /// # Errors
    /// When there is no `/proc`.
    pub fn own() -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/self/exe")?, path: std::env::current_exe()? })
    }

    /// One that somebody else has opened, as the router's next. The path is for people.
    ///
    /// # Errors
    /// When its owner or its rights would let others decide what the router executes.
    pub fn offered(file: File, path: &Path) -> Result<Self, BinaryError> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(BinaryError::NoFile);
        }
        if metadata.mode() & 0o111 == 0 {
            return Err(BinaryError::NotExecutable);
        }
        if metadata.nlink() == 0 {
            return Err(BinaryError::Nowhere);
        }
        let trusted = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
        if !trusted || metadata.mode() & 0o022 != 0 {
            return Err(BinaryError::NotOurs);
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// To execute it. The descriptor is not left open in what is executed.
    pub fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0(&self.path);
        command
    }

    /// What tells builds apart: the version, and the CRC-32 of the file in hexadecimal, as in "0.1.0+89abcdef".
    ///
    /// # Errors
    /// Of reading it, all of it: some 10 ms.
    pub fn build(&self, version: &str) -> io::Result<String> {
        // Opened anew: the offset of a descriptor that came from elsewhere is not ours.
        let mut file = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        let (mut crc, mut buffer) = (flate2::Crc::new(), vec![0; 1 << 18]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(format!("{version}+{:08x}", crc.sum())),
                len => crc.update(&buffer[..len]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What comes of a file that is removed after it.
    fn with_file<T>(name: &str, mode: u32, act: impl FnOnce(File) -> T) -> T {
        let path = std::env::temp_dir().join(format!("holdfast-binary-{}-{name}", std::process::id()));
        std::fs::write(&path, "#!").expect("written");
        let file = File::open(&path).expect("opened");
        file.set_permissions(std::fs::Permissions::from_mode(mode)).expect("ours");
        let result = act(file);
        std::fs::remove_file(&path).expect("removed");
        result
    }

    #[test]
    fn what_others_can_write_to_is_not_executed() {
        let offered = |file| Binary::offered(file, Path::new("x"));
        let refused = |name, mode| with_file(name, mode, |file| offered(file).err());
        assert!(refused("good", 0o755).is_none());
        assert!(matches!(refused("data", 0o644), Some(BinaryError::NotExecutable)));
        assert!(matches!(refused("group", 0o775), Some(BinaryError::NotOurs)));
        assert!(matches!(refused("all", 0o757), Some(BinaryError::NotOurs)));
        let folder = File::open("/").expect("opened");
        assert!(matches!(offered(folder), Err(BinaryError::NoFile)));
        let removed = with_file("removed", 0o755, |file| file);
        assert!(matches!(offered(removed), Err(BinaryError::Nowhere)));
        let memory = rustix::fs::memfd_create("binary", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::fchmod(&memory, rustix::fs::Mode::RWXU).expect("ours");
        assert!(matches!(offered(memory.into()), Err(BinaryError::Nowhere)));
    }

    #[test]
    fn a_build_is_named_after_its_content_wherever_the_descriptor_stands() {
        let binary = with_file("named", 0o755, |file| Binary { file, path: PathBuf::new() });
        let name = binary.build("0.1.0").expect("readable");
        io::copy(&mut &binary.file, &mut io::sink()).expect("readable");
        assert_eq!(binary.build("0.1.0").expect("readable"), name);
        // CRC-32 of "#!".
        assert_eq!(name, "0.1.0+b31975c0");
    }
}
