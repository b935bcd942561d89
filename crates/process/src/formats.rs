//! What a build reads, writes and speaks: whether processes of two builds can work together, and take over from each
//! other.
//!
//! While a router is upgraded, processes of both builds are parts of it. The rule: the new build speaks everything
//! that the running one does (interfaces only grow: methods and fields are added, never changed, under the package's
//! name with its version), frames are the same, and it reads what the running one has written. The other direction is
//! the duty of who adds a method: a caller takes `NotFound` from an older process for an answer.

use std::{collections::BTreeMap, io};

use holdfast_api::{
    keeper::v1::KeeperClient, log::v1::LogClient, manager::v1::ManagerClient, metrics::v1::MetricsClient,
    prepare::v1::PreparationClient, process::v1::ProcessClient, profile::v1::ProfileClient,
    socket::v1::SocketClient,
};
use holdfast_xrl::{
    Client, FRAME_VERSION, ServiceInfo, component::v1::ComponentClient, finder_api::v1::FinderClient,
};
use serde::{Deserialize, Serialize};

use crate::{Binary, Processes};

/// What keeper and manager serve, and every process.
const COMMON: [&ServiceInfo; 10] = [
    FinderClient::SERVICE,
    ComponentClient::SERVICE,
    KeeperClient::SERVICE,
    ManagerClient::SERVICE,
    SocketClient::SERVICE,
    ProfileClient::SERVICE,
    ProcessClient::SERVICE,
    LogClient::SERVICE,
    MetricsClient::SERVICE,
    PreparationClient::SERVICE,
];

/// Versions of a format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Those that this build reads.
    pub reads: Vec<u32>,
    /// The one that it writes.
    pub writes: u32,
}

/// The replication log of the sessions: its own form, and that of all that `bgp` writes into it.
pub const NSR_LOG: u32 = 9;
/// Those that are read. In the first sessions do not say what was offered about restarts: nothing was. In the first two
/// they do not say what was offered about refreshes and filters: nothing was. In the first three all connections are TCP's
/// own sockets. In the first four what was sent and received since the last record is not counted, and deaths count
/// against sessions, not against places in what they have sent: these are forgotten. In the first five sessions do not say
/// under which path identifiers their routes are announced: nobody in them was told of several paths. In the first six each
/// record of a snapshot has one attribute set, and its routes. In the first seven sockets count from the beginning of their
/// connections, and what was sent is forgotten. In the first eight entries name each prefix as in NLRI.
pub const NSR_LOGS: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, NSR_LOG];
/// What a keeper hands to its successor (`keeper.v1.State`). A router of the first version has no process `transport`, and
/// none of its processes would be let in as what it is now: it is not gone on with, but started anew.
pub const KEEPER_STATE: u32 = 2;

/// What a build reads, writes and speaks; the answer of `holdfast formats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Formats {
    /// Version and hash of the file: see [`Binary::build`].
    pub build: String,
    /// Version of the frames between processes.
    pub xrl: u32,
    /// The replication log of the sessions.
    pub nsr_log: Versions,
    /// What a keeper hands to its successor.
    pub keeper_state: Versions,
    /// Services by their full name, with the numbers of their methods.
    pub interfaces: BTreeMap<String, Vec<u16>>,
}

impl Formats {
    /// Those of the calling program, which has these processes.
    ///
    /// # Errors
    /// When its own file cannot be read.
    pub fn own(processes: &Processes) -> io::Result<Self> {
        let only = |version| Versions { reads: vec![version], writes: version };
        let methods = |service: &ServiceInfo| {
            let mut numbers: Vec<_> = service.methods.iter().map(|method| method.id as u16).collect();
            numbers.sort_unstable();
            (service.name.to_owned(), numbers)
        };
        let own = processes.as_configured().flat_map(|process| process.services.iter().copied());
        Ok(Self {
            build: Binary::own()?.build(env!("CARGO_PKG_VERSION"))?,
            xrl: FRAME_VERSION,
            nsr_log: Versions { reads: NSR_LOGS.to_vec(), writes: NSR_LOG },
            keeper_state: only(KEEPER_STATE),
            interfaces: COMMON.into_iter().chain(own).map(methods).collect(),
        })
    }

    /// Reads the answer of `holdfast formats`, of whatever build.
    ///
    /// # Errors
    /// When it is no such answer.
    pub fn from_answer(answer: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(answer)
    }

    /// Why this build cannot replace a running one process by process; none: it can.
    pub fn obstacles(&self, running: &Self) -> Vec<String> {
        let mut obstacles = Vec::new();
        if self.xrl != running.xrl {
            obstacles.push(format!("it speaks frames of version {}, not {}", self.xrl, running.xrl));
        }
        let formats = [
            ("the log of the sessions", &self.nsr_log, &running.nsr_log),
            ("the keeper's state", &self.keeper_state, &running.keeper_state),
        ];
        for (what, new, old) in formats {
            if !new.reads.contains(&old.writes) {
                obstacles.push(format!("it cannot read {what} of version {}", old.writes));
            }
        }
        for (service, methods) in &running.interfaces {
            match self.interfaces.get(service) {
                None => obstacles.push(format!("it does not know {service}")),
                Some(known) if !methods.iter().all(|method| known.contains(method)) => {
                    obstacles.push(format!("it does not know every method of {service}"));
                }
                Some(_) => {}
            }
        }
        obstacles
    }
}

#[cfg(test)]
mod tests {
    use holdfast_api::bgp::v1::BgpClient;

    use super::*;
    use crate::{ConfigReader, End, Network, Process, Reads, Rights, User};

    static BGP: Process = Process {
        name: "bgp",
        does: "speaks BGP",
        user: User::OfRouter,
        rights: Rights::worker(Network::None),
        services: &[BgpClient::SERVICE],
        after: &[],
        feeds: &[],
        end: End::Killed,
        hang_limit: None,
        reads: Reads::Config(ConfigReader::NOTHING),
        reads_kept_of: &[],
        routing: None,
        shows: &[],
        clears: &[],
    };

    fn own() -> io::Result<Formats> {
        Formats::own(&Processes::new(&[&BGP]).expect("one process"))
    }

    #[test]
    fn a_build_can_replace_itself_and_one_that_knows_less() {
        let own = own().expect("readable");
        let mut older = own.clone();
        older.interfaces.remove("bgp.v1.Bgp");
        older.interfaces.get_mut("keeper.v1.Keeper").expect("it is there").pop();
        assert!(own.obstacles(&own).is_empty() && own.obstacles(&older).is_empty());
        let expected = ["it does not know bgp.v1.Bgp", "it does not know every method of keeper.v1.Keeper"];
        assert_eq!(older.obstacles(&own), expected);
    }

    #[test]
    fn what_is_written_has_to_be_read() {
        let own = own().expect("readable");
        let mut newer = own.clone();
        newer.nsr_log = Versions { reads: [&NSR_LOGS[..], &[NSR_LOG + 1]].concat(), writes: NSR_LOG + 1 };
        assert!(newer.obstacles(&own).is_empty());
        let cannot = format!("it cannot read the log of the sessions of version {}", NSR_LOG + 1);
        assert_eq!(own.obstacles(&newer), [cannot]);
        newer.xrl = 9;
        assert_eq!(newer.obstacles(&own), ["it speaks frames of version 9, not 1"]);
    }

    #[test]
    fn the_answer_is_read_as_it_was_written_and_may_say_more() {
        let own = own().expect("readable");
        let mut text = serde_json::to_value(&own).expect("JSON");
        text["later"] = serde_json::json!({ "reads": [7] });
        assert_eq!(serde_json::from_value::<Formats>(text).expect("read"), own);
    }
}
