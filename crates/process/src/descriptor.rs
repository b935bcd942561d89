//! What a process is, said once, in its own crate; and the list of them that a router is made of.
//!
//! The program collects the descriptors and passes them to the keeper and the manager, which derive every other list from
//! them: what may be started, as whom, in which order it is configured, replaced and stopped, and what is compared before an
//! upgrade. What is not described is not started.

use std::{sync::Arc, time::Duration};

use holdfast_config::{OwnSection, Routing};
use holdfast_sandbox::Rights;
use holdfast_xrl::ServiceInfo;

use crate::{OUTSIDERS, Reads};

/// How a `transport` is called that has given its place up, and lives on for the connections that it carries: its
/// name at the keeper, its class at the Finder.
pub const OLD_TRANSPORT: &str = "transport-old";

/// The role of routing protocols: our own that are like others, and those of somebody else.
pub const PROTOCOL: &str = "protocol";

/// A process that does some of the router's work.
#[derive(Debug)]
pub struct Process {
    /// Its name, which is its command and its class.
    pub name: &'static str,
    /// What it does, in a few words after its name: `speaks BGP`.
    pub does: &'static str,
    /// As whom it runs.
    pub user: User,
    /// What it may do.
    pub rights: Rights,
    /// The services that it has besides those of every process. It may register under their classes, too.
    pub services: &'static [&'static ServiceInfo],
    /// Processes that are configured before it. It is stopped before they are.
    pub after: &'static [&'static str],
    /// Processes that it tells routes or keys. When the binary is replaced they are replaced before it: a new process is
    /// told everything by an old one that is settled.
    pub feeds: &'static [&'static str],
    /// What ends it when another one replaces it.
    pub end: End,
    /// After how long without an answer it is hung, where that is another time than the router's.
    pub hang_limit: Option<HangLimit>,
    /// What it reads of the configuration.
    pub reads: Reads,
    /// Processes of which it may have copies of what the keeper keeps for them (`keeper.v1`: `ListOf`, `GetOf`, `WatchKept`).
    /// Their memory and their sockets are then its own, too.
    pub reads_kept_of: &'static [&'static str],
    /// The routing protocol that it speaks, where it is one as those of others are: its role is `protocol`. It has a section,
    /// and speaks on the interfaces that are named there.
    pub routing: Option<Routing>,
    /// What `holdfast show NAME` takes; the first is that of the name alone. Answered by
    /// [`Configured::show`](crate::Configured::show).
    pub shows: &'static [Command],
    /// What `holdfast clear NAME` takes; the first is that of the name alone. Carried out by
    /// [`Configured::clear`](crate::Configured::clear).
    pub clears: &'static [Command],
}

/// A command about a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// Its word.
    pub name: &'static str,
    /// What it shows or clears.
    pub doc: &'static str,
}

/// What ends a process that another one replaces.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// SIGKILL: its successor takes over from it as from one that has crashed.
    Killed,
    /// SIGTERM: it has something to finish that no successor could.
    Asked,
}

/// After how long without an answer a process is hung. None is while `hang-limit` of the router is 0.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HangLimit {
    /// Whatever the router's is: what depends on the process waits no longer.
    Exactly(Duration),
    /// So much of the router's: its turns are known to be longer, or shorter, than those of others.
    Percent(u32),
}

impl HangLimit {
    /// The limit where the router's is this.
    pub fn of(self, router: Duration) -> Duration {
        match self {
            Self::Exactly(_) if router.is_zero() => router,
            Self::Exactly(limit) => limit,
            Self::Percent(percent) => router * percent / 100,
        }
    }

    fn is_long_enough(self) -> bool {
        match self {
            Self::Exactly(limit) => limit >= LEAST_HANG_LIMIT.0,
            Self::Percent(percent) => percent >= LEAST_HANG_LIMIT.1,
        }
    }
}

/// The shortest limits that a process may describe: below them, one that is busy would be killed.
const LEAST_HANG_LIMIT: (Duration, u32) = (Duration::from_millis(100), 10);

/// As whom a process runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum User {
    /// The router's own: what it writes belongs to that user.
    OfRouter,
    /// One of its own: this many after the first, before those of [`OUTSIDERS`]. A number stays with a process.
    Own(u32),
}

impl Process {
    /// Its role, which says what it may call.
    pub fn role(&self) -> &'static str {
        if self.routing.is_some() { PROTOCOL } else { self.name }
    }

    /// Its section of the configuration, where it has one for itself.
    pub fn section(&self) -> Option<OwnSection> {
        match self.reads {
            Reads::Section(section) => Some(section),
            Reads::Config(_) => None,
        }
    }

    /// Classes under which it registers besides its name.
    pub fn classes(&self) -> impl Iterator<Item = &'static str> {
        self.services
            .iter()
            .map(|service| service.class)
            .filter(|class| !class.is_empty() && *class != self.name)
    }
}

/// Why descriptors cannot make a router.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DescriptorError {
    /// Two processes have one name.
    #[error("two processes are called {0:?}")]
    Name(&'static str),
    /// Two processes run as one user.
    #[error("{0:?} and {1:?} would run as one user")]
    User(&'static str, &'static str),
    /// A process has the user of a protocol of somebody else.
    #[error("{0:?} would run as a user of protocols of others")]
    Outsider(&'static str),
    /// A process is named that is not there.
    #[error("{0:?} names {1:?}, which is no process")]
    Unknown(&'static str, &'static str),
    /// A process would be hung as soon as it is busy.
    #[error("{0:?} would be hung at once")]
    HangLimit(&'static str),
    /// Processes that come after each other in a circle; one of them.
    #[error("{0:?} would come before itself")]
    Circle(&'static str),
}

/// The processes of a router, besides keeper and manager.
#[derive(Clone, Debug)]
pub struct Processes {
    /// In the order in which they are configured.
    configured: Arc<[&'static Process]>,
    /// In the order in which they are replaced.
    replaced: Arc<[&'static Process]>,
}

impl Processes {
    /// A router of these. Where the descriptors leave the order open, it is that of the list.
    ///
    /// # Errors
    /// Names or users that are there twice, and orders that cannot be kept.
    pub fn new(list: &[&'static Process]) -> Result<Self, DescriptorError> {
        for (place, process) in list.iter().enumerate() {
            if process.hang_limit.is_some_and(|limit| !limit.is_long_enough()) {
                return Err(DescriptorError::HangLimit(process.name));
            }
            if matches!(process.user, User::Own(number) if number >= OUTSIDERS.start) {
                return Err(DescriptorError::Outsider(process.name));
            }
            for other in &list[..place] {
                if other.name == process.name {
                    return Err(DescriptorError::Name(process.name));
                }
                if other.user == process.user && process.user != User::OfRouter {
                    return Err(DescriptorError::User(other.name, process.name));
                }
            }
        }
        for process in list {
            known(list, process, process.reads_kept_of)?;
        }
        Ok(Self {
            configured: in_order(list, |process| process.after)?,
            replaced: in_order(list, |process| process.feeds)?,
        })
    }

    /// The one of this name.
    pub fn named(&self, name: &str) -> Option<&'static Process> {
        self.configured.iter().copied().find(|process| process.name == name)
    }

    /// All of them, in the order in which they are told of a new configuration. They are stopped in the reverse order.
    pub fn as_configured(&self) -> impl DoubleEndedIterator<Item = &'static Process> {
        self.configured.iter().copied()
    }

    /// All of them, in the order in which they are replaced by those of another build.
    pub fn as_replaced(&self) -> impl Iterator<Item = &'static Process> {
        self.replaced.iter().copied()
    }
}

/// Refuses names of processes that are not there.
fn known(
    list: &[&'static Process],
    process: &Process,
    names: &'static [&'static str],
) -> Result<(), DescriptorError> {
    match names.iter().find(|name| !list.iter().any(|other| other.name == **name)) {
        Some(unknown) => Err(DescriptorError::Unknown(process.name, unknown)),
        None => Ok(()),
    }
}

/// Each after those that it names; else as they are listed.
fn in_order(
    list: &[&'static Process],
    before: impl Fn(&Process) -> &'static [&'static str],
) -> Result<Arc<[&'static Process]>, DescriptorError> {
    for process in list {
        known(list, process, before(process))?;
    }
    let mut waiting = list.to_vec();
    let mut ordered: Vec<&'static Process> = Vec::new();
    while let Some(first) = waiting.first() {
        let is_done = |name: &&str| ordered.iter().any(|done| done.name == *name);
        let next = waiting.iter().position(|process| before(process).iter().all(&is_done));
        let Some(next) = next else { return Err(DescriptorError::Circle(first.name)) };
        ordered.push(waiting.remove(next));
    }
    Ok(ordered.into())
}

#[cfg(test)]
pub(crate) mod tests {
    use holdfast_sandbox::Network;

    use super::*;
    use crate::ConfigReader;

    pub(crate) const fn process(
        name: &'static str,
        user: u32,
        after: &'static [&'static str],
        feeds: &'static [&'static str],
    ) -> Process {
        Process {
            name,
            does: "does nothing",
            user: User::Own(user),
            rights: Rights::worker(Network::None),
            services: &[],
            after,
            feeds,
            end: End::Killed,
            reads: Reads::Config(ConfigReader::NOTHING),
            reads_kept_of: &[],
            routing: None,
            shows: &[],
            hang_limit: None,
            clears: &[],
        }
    }

    static FEA: Process = process("fea", 0, &[], &[]);
    static RIB: Process = process("rib", 1, &["fea"], &["fea"]);
    static BGP: Process = process("bgp", 2, &["rib", "rpki"], &["rib"]);
    static RPKI: Process = process("rpki", 3, &[], &["bgp"]);

    #[test]
    fn each_comes_after_those_that_it_names_and_else_as_listed() {
        let processes = Processes::new(&[&RPKI, &BGP, &RIB, &FEA]).expect("an order");
        let names = |order: Vec<&Process>| order.iter().map(|process| process.name).collect::<Vec<_>>();
        assert_eq!(names(processes.as_configured().collect()), ["rpki", "fea", "rib", "bgp"]);
        assert_eq!(names(processes.as_replaced().collect()), ["fea", "rib", "bgp", "rpki"]);
        assert_eq!(processes.named("rib").map(|rib| rib.user), Some(User::Own(1)));
        assert!(processes.named("ospf").is_none());
    }

    #[test]
    fn a_hang_limit_is_a_time_or_a_part_of_the_routers_and_not_too_short() {
        let limit = |limit: HangLimit, router| limit.of(Duration::from_millis(router)).as_millis();
        let half_a_second = HangLimit::Exactly(Duration::from_millis(500));
        assert_eq!([2000, 10_000, 0].map(|router| limit(half_a_second, router)), [500, 500, 0]);
        assert_eq!([2000, 0].map(|router| limit(HangLimit::Percent(150), router)), [3000, 0]);
        let bfd = |limit| -> &'static Process {
            Box::leak(Box::new(Process { hang_limit: Some(limit), ..process("bfd", 9, &[], &[]) }))
        };
        let verdict = |limit| Processes::new(&[bfd(limit)]).err();
        assert_eq!(verdict(half_a_second), None);
        for wrong in [HangLimit::Exactly(Duration::from_millis(99)), HangLimit::Percent(9)] {
            assert_eq!(verdict(wrong), Some(DescriptorError::HangLimit("bfd")));
        }
    }

    #[test]
    fn descriptors_that_contradict_each_other_are_refused() {
        static SECOND: Process = process("rib", 7, &[], &[]);
        static SAME_USER: Process = process("ospf", 0, &[], &[]);
        static FOREIGN: Process = process("ospf", 200, &[], &[]);
        static CIRCLE: Process = process("ospf", 9, &["ospf"], &[]);
        let wrong = |list: &[&'static Process]| Processes::new(list).err();
        assert_eq!(wrong(&[&FEA, &RIB, &SECOND]), Some(DescriptorError::Name("rib")));
        assert_eq!(wrong(&[&FEA, &SAME_USER]), Some(DescriptorError::User("fea", "ospf")));
        assert_eq!(wrong(&[&FOREIGN]), Some(DescriptorError::Outsider("ospf")));
        assert_eq!(wrong(&[&RIB]), Some(DescriptorError::Unknown("rib", "fea")));
        assert_eq!(wrong(&[&CIRCLE]), Some(DescriptorError::Circle("ospf")));
    }
}
