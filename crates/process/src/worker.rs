//! The processes that the keeper starts for the manager: the one list of them.
//!
//! Whoever needs an order or a number of each derives it from here, and the keeper starts nobody else. So a new process
//! cannot be forgotten: without every field of its [`Worker`] nothing compiles.

/// How a `transport` is called that has given its place up, and lives on for the connections that it carries: its
/// name at the keeper, its class at the Finder.
pub const OLD_TRANSPORT: &str = "transport-old";

/// A process that does some of the router's work, and what the manager and the keeper have to know of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Worker {
    /// Its name, which is its command, its class and its role.
    pub name: &'static str,
    /// As whom it runs.
    pub user: User,
    /// Its turn when the binary is replaced: a new process is told everything by an old one that is settled, and then that
    /// one is replaced under it. So who is fed by another has an earlier turn.
    pub turn: u8,
    /// What ends it then.
    pub end: End,
}

/// What ends a process that another one replaces.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// SIGKILL: its successor takes over from it as from one that has crashed.
    Killed,
    /// SIGTERM: it has something to finish that no successor could.
    Asked,
}

/// As whom a process runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum User {
    /// The router's own: what it writes belongs to that user.
    OfRouter,
    /// One of its own: this many after the first. A number stays with a process.
    Own(u32),
}

/// All of them, in the order in which they are told of a new configuration; they are stopped in the reverse order.
pub static WORKERS: [Worker; 8] = [
    Worker { name: "fea", user: User::Own(0), turn: 0, end: End::Killed },
    Worker { name: "rib", user: User::Own(1), turn: 1, end: End::Killed },
    Worker { name: "transport", user: User::Own(5), turn: 2, end: End::Killed },
    Worker { name: "rpki", user: User::Own(6), turn: 4, end: End::Killed },
    Worker { name: "bgp", user: User::Own(2), turn: 3, end: End::Killed },
    Worker { name: "metrics", user: User::Own(3), turn: 5, end: End::Killed },
    Worker { name: "glass", user: User::Own(4), turn: 6, end: End::Killed },
    // The dumps are the router's user's, and the one that is being written gets its name.
    Worker { name: "monitor", user: User::OfRouter, turn: 7, end: End::Asked },
];

impl Worker {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        WORKERS.iter().find(|worker| worker.name == name)
    }

    /// All of them, in the order of their turns.
    pub fn by_turn() -> [&'static Self; WORKERS.len()] {
        let mut workers = WORKERS.each_ref();
        workers.sort_by_key(|worker| worker.turn);
        workers
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn who_is_fed_by_another_is_replaced_before_it() {
        let turn = |name| Worker::named(name).map(|worker| worker.turn);
        for (fed, feeder) in [("fea", "rib"), ("rib", "bgp"), ("bgp", "rpki")] {
            assert!(turn(fed).is_some() && turn(fed) < turn(feeder), "{fed} before {feeder}");
        }
    }

    #[test]
    fn nobody_shares_a_turn_or_a_user() {
        let turns: BTreeSet<_> = WORKERS.iter().map(|worker| worker.turn).collect();
        assert_eq!(turns.len(), WORKERS.len());
        let own = |worker: &Worker| match worker.user {
            User::Own(number) => Some(number),
            User::OfRouter => None,
        };
        let numbers: Vec<_> = WORKERS.iter().filter_map(own).collect();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
    }
}
