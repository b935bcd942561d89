//! Why a command could not be carried out.

use std::{io, path::PathBuf, process::ExitCode};

use holdfast_config::Diagnostics;
use holdfast_tls::keys::KeysError;
use holdfast_xrl::{ErrorKind, XrlError};

/// Why a command could not be carried out: what the operator reads, and the exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody listens on the router's socket.
    #[error(
        "no router runs in {} ({error}); start one with `holdfast run`, or name its directory with --runtime-dir",
        directory.display()
    )]
    NoRouter {
        /// The runtime directory.
        directory: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The router is to be reached over TCP.
    #[error("a router over tcp wants the client's key: set HOLDFAST_KEY_FILE (or HOLDFAST_KEY)")]
    NoKey,
    /// The router is there, but the manager or the process asked does not answer.
    #[error("the router does not answer: {0}")]
    NoAnswer(String),
    /// The process asked has ended before it answered, or has just begun: its next life answers, or it does so later.
    #[error("the router does not answer: {0}")]
    Interrupted(String),
    /// A process that the command asks does not run.
    #[error("{class} does not run (see `holdfast show processes`): {reason}")]
    NotRunning {
        /// Its class.
        class: String,
        /// What the Finder said.
        reason: String,
        /// The manager has such a process: it is about to run.
        is_expected: bool,
    },
    /// The process asked has refused.
    #[error("{}", .0.message())]
    Refused(XrlError),
    /// The router has a new configuration, and some of it is not there: the kernel or a process has refused it.
    #[error("runs, with faults, and what is missing is tried again (see `holdfast show processes`): {0}")]
    NotTaken(String),
    /// Some processes run another build than the one that was to run everywhere.
    #[error("the upgrade is not complete (the router's log says why): {0}")]
    NotUpgraded(String),
    /// Policies do not decide as they were expected to.
    #[error("{failed} of {tried} routes are not treated as expected")]
    NotAsExpected {
        /// Routes that are not.
        failed: usize,
        /// All of them.
        tried: usize,
    },
    /// A command of FRR's that is not one here.
    #[error("% Unknown command: {0}")]
    UnknownCommand(String),
    /// A command of `holdfast configure` that cannot be carried out.
    #[error("{0}")]
    Edit(String),
    /// A reload would be refused.
    #[error("only a restart of the router can change {0}")]
    NeedsRestart(String),
    /// There are differences. No failure, but an exit code of its own.
    #[error("there are differences")]
    Differs,
    /// Nothing matches.
    #[error("{0}")]
    NothingFound(String),
    /// The file cannot be read.
    #[error("{}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file is read and wrong. The diagnostics are printed to the standard output already if they are wanted
    /// as JSON.
    #[error("{0}")]
    Wrong(Diagnostics),
    /// Settings of this host, which are printed already, are not as the configuration needs them.
    #[error("settings of this host that the configuration needs otherwise: {0} (sysctl(8) changes them)")]
    Host(usize),
    /// A key, certificate, request or revocation list cannot be made, or not be kept.
    #[error("{0}")]
    Keys(#[from] KeysError),
    /// The file is read, and is not the key, certificate, request or revocation list that is wanted.
    #[error("{}: {error}", file.display())]
    KeyFile {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        error: KeysError,
    },
    /// What is given to a command whose exit codes are verdicts.
    #[error("{0}")]
    Input(String),
    /// The verdict on an UPDATE, which is on the standard output already. No failure, but an exit code of its own.
    #[error("the path is not Valid")]
    Judged(u8),
    /// The answer could not be written.
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
}

/// EX_USAGE, where 1 and 2 are verdicts.
pub const WRONG_INPUT: u8 = 64;

impl From<XrlError> for Failure {
    fn from(error: XrlError) -> Self {
        // Whoever was asked may be a program of anybody: it does not speak to the terminal.
        let plain = error.message().chars().filter(|c| !c.is_control() || *c == '\n').collect::<String>();
        let error = XrlError::new(error.kind(), plain);
        match error.kind() {
            ErrorKind::Disconnected | ErrorKind::Unavailable => Self::Interrupted(error.message().to_owned()),
            ErrorKind::Timeout => Self::NoAnswer(error.message().to_owned()),
            _ => Self::Refused(error),
        }
    }
}

impl Failure {
    /// Whether the same question may be answered soon.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::NotRunning { is_expected: true, .. })
    }

    /// 0, 1, 3 or 4, as the crate's documentation says; those of `bgpsec verify`, and 64 for what is given to it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoRouter { .. } | Self::NoAnswer(_) | Self::Interrupted(_) => 3,
            Self::Differs => 4,
            Self::Judged(code) => *code,
            Self::Input(_) => WRONG_INPUT,
            // The reader has seen enough, as `head` does.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::NotRunning { .. }
            | Self::NoKey
            | Self::Refused(_)
            | Self::NotTaken(_)
            | Self::NotUpgraded(_)
            | Self::NotAsExpected { .. }
            | Self::UnknownCommand(_)
            | Self::Edit(_)
            | Self::NeedsRestart(_)
            | Self::NothingFound(_)
            | Self::Unreadable { .. }
            | Self::Wrong(_)
            | Self::Host(_)
            | Self::Keys(_)
            | Self::KeyFile { .. }
            | Self::Output(_) => 1,
        }
    }

    /// Tells the operator on standard error, and gives the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let code = self.exit_code();
        match self {
            Self::Wrong(_) if json => {}
            Self::Host(_) if json => {}
            Self::Differs | Self::Judged(_) => {}
            _ if code == 0 => {}
            _ if json => eprintln!("{}", serde_json::json!({ "error": self.to_string() })),
            Self::Wrong(wrong) => eprintln!("{wrong}"),
            failure => eprintln!("holdfast: {failure}"),
        }
        ExitCode::from(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_somebody_else_does_not_speak_to_the_terminal() {
        for (error, said) in [
            (XrlError::internal("a\u{1b}[31mb\nc\u{7}"), "a[31mb\nc"),
            (XrlError::unavailable("\u{9b}2J"), "the router does not answer: 2J"),
        ] {
            assert_eq!(Failure::from(error).to_string(), said);
        }
    }
}
