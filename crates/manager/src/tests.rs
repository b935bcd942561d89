//! A router for tests: its processes are as in the program in what the manager goes by.

use holdfast_process::{CapabilitySet, End, Files, Network, Process, Processes, Rights, User};

/// The processes of the router, in the order of their descriptors.
pub(crate) fn processes() -> Processes {
    const fn process(name: &'static str, user: u32) -> Process {
        Process {
            name,
            does: "does nothing",
            user: User::Own(user),
            rights: Rights::worker(Network::None),
            services: &[],
            after: &[],
            feeds: &[],
            end: End::Killed,
            hang_limit: None,
            section: None,
            routing: None,
            shows: &[],
            clears: &[],
        }
    }
    static WORKERS: [Process; 7] = [
        process("fea", 0),
        process("rib", 1),
        process("transport", 5),
        process("rpki", 6),
        process("bgp", 2),
        process("metrics", 3),
        process("glass", 4),
    ];
    static MONITOR: Process = Process {
        name: "monitor",
        does: "does nothing",
        user: User::OfRouter,
        rights: Rights {
            capabilities: CapabilitySet::empty(),
            network: Network::Handed,
            files: Files::Output,
        },
        services: &[],
        after: &[],
        feeds: &[],
        end: End::Asked,
        hang_limit: None,
        section: None,
        routing: None,
        shows: &[],
        clears: &[],
    };
    let all: Vec<_> = WORKERS.iter().chain([&MONITOR]).collect();
    Processes::new(&all).expect("they agree")
}
