//! What each process keeps of its rights.

use std::path::{Path, PathBuf};

use holdfast_sys::CapabilitySet;

/// Longest chain of links that a configuration file is followed through, as in the kernel.
const MOST_LINKS: usize = 40;

/// What a process may do; everything else is taken from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// What it keeps of the capabilities that it was born with.
    pub capabilities: CapabilitySet,
    /// Sockets that it opens itself.
    pub network: Network,
    /// Files that it opens itself.
    pub files: Files,
    /// It runs before all others, and its memory is locked, as far as the kernel allows it ([`RealTime`](crate::RealTime)).
    pub real_time: bool,
}

/// The sockets that a process may open. What it does with those that it was handed is its own affair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// None, and none are handed to it but channels.
    None,
    /// None.
    Handed,
    /// None. Those that it is handed may carry datagrams.
    Datagrams,
    /// None. It is handed UDP sockets at these ports, of any address, in each table.
    Ports(&'static [u16]),
    /// IPv4 and IPv6.
    Internet,
    /// IPv4, IPv6 and netlink.
    InternetAndNetlink,
}

/// The files that a process may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// None.
    Handed,
    /// None. Those that are handed over are read and written at any place, and locked.
    HandedAndLocked,
    /// Those in these directories and below, for reading, writing and replacing; and, for reading, what the kernel says of
    /// processes and cgroups. Nothing is executed.
    Configuration(Vec<PathBuf>),
    /// Those in the directories of its [`Settings`](crate::Settings) and below, for writing and renaming; none is read.
    Output,
    /// Those of another program, which is executed in this one's place: these and what is below them, and the libraries of
    /// the system, for reading and executing. Nothing is written.
    Program(Vec<PathBuf>),
}

impl Network {
    /// The UDP ports at which it receives from anybody.
    pub fn ports(self) -> &'static [u16] {
        match self {
            Self::Ports(ports) => ports,
            Self::None | Self::Handed | Self::Datagrams | Self::Internet | Self::InternetAndNetlink => &[],
        }
    }
}

impl Rights {
    /// A process that opens nothing: no capabilities, no files.
    pub const fn worker(network: Network) -> Self {
        Self { capabilities: CapabilitySet::empty(), network, files: Files::Handed, real_time: false }
    }

    /// The same, in real time.
    pub const fn in_real_time(mut self) -> Self {
        self.real_time = true;
        self
    }

    /// A program of somebody else, which reads these files and what is below them. It opens no socket, and starts no process.
    pub fn program(reads: Vec<PathBuf>) -> Self {
        Self { files: Files::Program(reads), ..Self::worker(Network::Datagrams) }
    }

    /// The manager of the router with this configuration file. It opens sockets when no fea runs.
    pub fn manager(configuration: &Path) -> Self {
        Self {
            capabilities: CapabilitySet::NET_BIND_SERVICE,
            files: Files::Configuration(directories(configuration)),
            ..Self::worker(Network::Internet)
        }
    }
}

/// The file's directory, and those of the files that it is a link to.
fn directories(file: &Path) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    let mut next = Some(file.to_owned());
    while let Some(path) = next.take().filter(|_| directories.len() < MOST_LINKS) {
        let Some(directory) = path.parent() else { break };
        let directory = if directory == Path::new("") { Path::new(".") } else { directory };
        next = std::fs::read_link(&path).ok().map(|target| directory.join(target));
        directories.push(directory.to_owned());
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_the_directories_on_its_way_and_a_circle_ends() {
        let root = std::env::temp_dir().join(format!("holdfast-rights-{}", std::process::id()));
        let (etc, real) = (root.join("etc"), root.join("real"));
        std::fs::create_dir_all(&etc).expect("made");
        std::fs::create_dir_all(&real).expect("made");
        std::os::unix::fs::symlink("../real/router.toml", etc.join("router.toml")).expect("a link");
        std::os::unix::fs::symlink("circle", etc.join("circle")).expect("a link");
        let of = |name| directories(&etc.join(name));
        assert_eq!(of("plain"), std::slice::from_ref(&etc));
        assert_eq!(of("router.toml"), [etc.clone(), etc.join("../real")]);
        assert_eq!(of("circle").len(), MOST_LINKS);
        std::fs::remove_dir_all(&root).expect("removed");
        assert_eq!(directories(Path::new("router.toml")), [PathBuf::from(".")]);
    }
}
