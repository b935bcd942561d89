//! What `holdfast run --standby` refuses.

use crate::spki_cache::bench::{fails, folder};

/// What the program says of a configuration with these lines.
fn refused(name: &str, lines: &str) -> String {
    let path = format!("{}/router.toml", folder(name));
    let peer = "[[bgp.peer]]\nname = \"a\"\naddress = \"10.0.0.2\"\nasn = 65002\n";
    let text = format!("[router]\nid = \"10.0.0.1\"\nasn = 65001\n{lines}\n[bgp]\n{peer}");
    std::fs::write(&path, text).expect("written");
    fails(&["run", "--standby", "-c", &path])
}

#[test]
fn a_standby_needs_a_store_and_a_lease_that_others_know() {
    assert!(refused("without-store", "").contains("no [nonstop.store]"));
    let store = "[nonstop.store]\nkind = \"redis\"\naddresses = [\"10.0.0.9:6379\"]";
    assert!(refused("without-lease", store).contains("needs `lease-directory`"));
}
