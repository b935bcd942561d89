//! What only `transport` is told, and how: the private key, what keys of QUIC derive from, and where secrets are written.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, Write},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use holdfast_api::transport::v1 as api;
use holdfast_process::Secrets;
use holdfast_sys::file::open_with;
use prost::Message;
use rustix::fs::{MemfdFlags, SealFlags};
use tracing::warn;

use crate::{manager::Manager, seeds::beside};

/// The descriptors of `Keep`: the sealed memory, and the file of the key log if there is one.
///
/// # Errors
/// Those of the memory. Without its key log the router is as good as with it: that is said in the log.
pub(crate) fn descriptors(secrets: &Secrets, manager: &Manager) -> io::Result<Vec<OwnedFd>> {
    let log = secrets.key_log.as_ref().and_then(|name| key_log(&manager.file, name));
    let secrets = api::Secrets {
        private_key: secrets.private_key.to_vec(),
        seeds: if secrets.seeds { beside::of(manager) } else { Vec::new() },
        key_log: log.as_ref().and(secrets.key_log.clone()).unwrap_or_default(),
    };
    let memory = sealed(&secrets.encode_to_vec())?;
    Ok(std::iter::once(memory).chain(log.map(OwnedFd::from)).collect())
}

/// Memory that nobody can change any more, not even who has made it.
fn sealed(octets: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match rustix::fs::memfd_create("secrets", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know NOEXEC_SEAL.
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create("secrets", flags)?,
        result => result?,
    };
    let mut memory = File::from(memory);
    memory.write_all(octets)?;
    // Whoever gets the descriptor begins where this one stands.
    memory.rewind()?;
    rustix::fs::fcntl_add_seals(
        &memory,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    Ok(memory.into())
}

/// Opens the file that secrets are added to; `configuration` is the file that it is named from.
fn key_log(configuration: &Path, name: &str) -> Option<File> {
    let file = configuration.parent().unwrap_or(Path::new("")).join(name);
    match open_with(OpenOptions::new().append(true).create(true).mode(0o600), &file) {
        Ok(log) => {
            warn!(
                event = "key-log",
                "secrets of TLS and QUIC sessions are written to {}: whoever reads it can read the sessions",
                file.display()
            );
            Some(log)
        }
        Err(error) => {
            warn!(event = "key-log", "no secrets of sessions are written to {}: {error}", file.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_is_sealed_is_read_from_its_beginning_and_never_changes() {
        let memory = File::from(sealed(b"secret").expect("memory"));
        let mut read = String::new();
        (&memory).read_to_string(&mut read).expect("read");
        assert_eq!(read, "secret");
        assert!((&memory).write_all(b"x").is_err() && memory.set_len(0).is_err());
    }

    #[test]
    fn a_key_log_that_is_a_pipe_is_not_waited_for() {
        let name = format!("holdfast-key-log-{}", std::process::id());
        let (directory, log) = (std::env::temp_dir(), std::env::temp_dir().join(&name));
        let made = std::process::Command::new("mkfifo").arg(&log).status();
        assert!(made.is_ok_and(|made| made.success()));
        assert!(key_log(&directory.join("router.toml"), &name).is_none());
        std::fs::remove_file(&log).expect("removed");
        assert!(key_log(&directory.join("router.toml"), &name).is_some(), "a file is made");
        std::fs::remove_file(&log).expect("removed");
    }
}
