//! As whom processes run, and within which limits.

use holdfast_api::keeper::v1::Sandbox;
use holdfast_manager::sandbox;

use crate::{processes, schema};

fn of(name: &str, section: &str) -> Sandbox {
    let text = format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n{section}");
    let config = holdfast_config::parse(&text, "test", schema()).expect("no errors");
    sandbox(name, &config, &processes())
}

#[test]
fn each_process_but_the_manager_has_a_user_of_its_own() {
    let users = [
        "manager",
        "fea",
        "rib",
        "bgp",
        "metrics",
        "glass",
        "transport",
        "rpki",
        "pathsec",
        "replicator",
        "monitor",
    ];
    let users = users.map(|name| of(name, "").user);
    assert_eq!(users, [0, 60_700, 60_701, 60_702, 60_703, 60_704, 60_705, 60_706, 60_709, 60_711, 0]);
    assert_eq!(of("bgp", "[sandbox]\nfirst-user = 900\n").user, 902);
    assert_eq!(of("bgp", "[sandbox]\nfirst-user = 0\n").user, 0);
}

#[test]
fn limits_are_for_the_process_that_they_name() {
    let file = "[sandbox.limits.bgp]\nmemory = \"2 GiB\"\ncpu = 150\n";
    let limits = |name| (of(name, file).memory_octets, of(name, file).cpu_percent);
    assert_eq!((limits("bgp"), limits("rib")), ((2 << 30, 150), (0, 0)));
}

#[test]
fn only_the_process_that_writes_dumps_has_directories() {
    let dumps = "[bgp]\n[[bgp.mrt]]\nfile = \"/var/log/a/%Y.mrt\"\n[[bgp.mrt]]\nfile = \"/var/log/b/x.mrt\"\nwhat = \"table\"\n";
    assert_eq!(of("monitor", dumps).directories, ["/var/log/a", "/var/log/b"]);
    assert!(of("bgp", dumps).directories.is_empty() && of("monitor", "").directories.is_empty());
}

#[test]
fn it_is_open_only_where_that_is_said() {
    assert!(!of("bgp", "").open && of("bgp", "[sandbox]\nmode = \"off\"\n").open);
}
