//! What only one process may know, and how it is told: private keys; and for `transport` what keys of QUIC derive from, and
//! where secrets are written.

use std::{
    fs::{File, OpenOptions},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use holdfast_api::transport::v1 as api;
use holdfast_process::{Secrets, seal};
use holdfast_sys::file::open_with;
use holdfast_xrl::{Channel, XrlError};
use prost::Message;
use tracing::warn;

use crate::{manager::Manager, seeds::beside};

/// Gives a process its secrets: sealed memory, and behind it the file of the key log if there is one.
///
/// # Errors
/// Those of the memory, and of the process. Without its key log the router is as good as with it: that is said in the log.
pub(crate) async fn give(secrets: &Secrets, channel: &Channel, manager: &Manager) -> Result<(), XrlError> {
    let log = secrets.key_log.as_ref().and_then(|name| key_log(&manager.file, name));
    // Nothing for another process than `transport`.
    let ours = api::Secrets {
        seeds: if secrets.seeds { beside::of(manager) } else { Vec::new() },
        key_log: log.as_ref().and(secrets.key_log.clone()).unwrap_or_default(),
        ..api::Secrets::default()
    };
    // Messages one behind the other are one message with the fields of both.
    let memory = seal(&[&*secrets.octets, &ours.encode_to_vec()].concat());
    let memory = memory.map_err(|error| XrlError::internal(format!("memory for secrets: {error}")))?;
    let descriptors = std::iter::once(memory).chain(log.map(OwnedFd::from)).collect();
    channel.call::<(), ()>(secrets.method, &(), descriptors).await
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
    use super::*;

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
