//! What a routing protocol may call, one of somebody else's too: what it needs for routes and packets, what anybody may look at,
//! and nothing else.

use crate::processes;

/// Methods that take the role `protocol` by name, and why a protocol needs them.
const NEEDED: [(&str, &str); 15] = [
    ("bfd.v1.Bfd/Follow", "whether its neighbours are there"),
    ("bfd.v1.Bfd/Watch", "whether its neighbours are there"),
    ("fea.v1.Fea/Interfaces", "where it may speak, and from which addresses"),
    ("rib.v1.Rib/AddOrigin", "to bring routes"),
    ("rib.v1.Rib/EndOfSync", "to bring routes"),
    ("rib.v1.Rib/Invalidations", "how its next hops are reached"),
    ("rib.v1.Rib/Redistribute", "routes of others"),
    ("rib.v1.Rib/Register", "how its next hops are reached"),
    ("rib.v1.Rib/Routes", "to bring routes"),
    ("rib.v1.Rib/Told", "to bring routes"),
    ("rib.v1.Rib/Unregister", "how its next hops are reached"),
    ("socket.v1.Socket/Group", "datagrams"),
    ("socket.v1.Socket/Raw", "raw IP of a process of ours"),
    ("socket.v1.Socket/Receive", "raw IP"),
    ("socket.v1.Socket/Send", "raw IP"),
];

#[test]
fn a_protocol_may_call_what_it_needs_and_what_anybody_may_look_at() {
    let mut named = Vec::new();
    let processes = processes();
    for service in processes.as_configured().flat_map(|process| process.services) {
        for method in service.methods.iter().filter(|method| method.allows("protocol")) {
            let name = format!("{}/{}", service.name, method.name);
            if method.roles.contains(&"protocol") {
                named.push(name);
            } else {
                let only_reads =
                    ["Show", "Lookup", "List", "Status"].iter().any(|verb| method.name.starts_with(verb));
                // A class has the ports of its descriptor, and those of others have no ports.
                assert!(only_reads || name == "socket.v1.Socket/Port", "{name} is for anybody");
            }
        }
    }
    named.sort();
    assert_eq!(named, NEEDED.map(|(name, _)| name));
}
