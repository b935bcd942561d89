//! Landlock: files, TCP ports, and signals to processes outside.

use std::path::{Path, PathBuf};

use crate::{Files, Network, Rights};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope,
};

/// What is asked for; an older kernel gives what it has.
const WANTED: ABI = ABI::V7;
/// What the kernel says of processes and their cgroups.
const KERNEL: [&str; 2] = ["/proc", "/sys/fs/cgroup"];
/// What a program needs that is linked with libraries of the system, or is an interpreter of it.
const SYSTEM: [&str; 9] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/urandom",
];

/// Closes what the process has no right to; by which version of Landlock, 0 if there is none.
pub(crate) fn close(rights: &Rights, output: &[PathBuf]) -> Result<u32, RulesetError> {
    let mut ruleset =
        Ruleset::default().handle_access(AccessFs::from_all(WANTED))?.scope(Scope::from_all(WANTED))?;
    if let Network::None | Network::Handed | Network::Datagrams | Network::Ports(_) = rights.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(WANTED))?;
    }
    let mut ruleset = ruleset.create()?;
    let open: Vec<(&Path, _)> = match &rights.files {
        Files::Handed | Files::HandedAndLocked => Vec::new(),
        Files::Configuration(directories) => {
            let kept = directories.iter().map(|path| (path.as_path(), configuration()));
            kept.chain(KERNEL.iter().map(|path| (path.as_ref(), reading()))).collect()
        }
        Files::Output => output.iter().map(|path| (path.as_path(), writing())).collect(),
        Files::Program(reads) => {
            let system = SYSTEM.iter().map(Path::new);
            reads.iter().map(PathBuf::as_path).chain(system).map(|path| (path, executing(path))).collect()
        }
    };
    for (path, access) in open {
        // What is not there cannot be opened later either.
        if let Ok(directory) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(directory, access))?;
        }
    }
    Ok(match ruleset.restrict_self()?.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as u32,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    })
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

/// Reading and executing what is there, a file or a directory.
fn executing(path: &Path) -> BitFlags<AccessFs> {
    let file = AccessFs::ReadFile | AccessFs::Execute;
    if path.is_dir() { file | AccessFs::ReadDir } else { file }
}

/// Making files, and giving them another name.
fn writing() -> BitFlags<AccessFs> {
    let renaming = AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Refer;
    AccessFs::WriteFile | AccessFs::Truncate | renaming
}

/// Reading, and replacing a file by another as a whole.
fn configuration() -> BitFlags<AccessFs> {
    let replacing = AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::MakeSym | AccessFs::Refer;
    let removing = AccessFs::RemoveFile | AccessFs::RemoveDir;
    reading() | AccessFs::WriteFile | AccessFs::Truncate | replacing | removing
}
