//! Configurations that differ in little.

use holdfast_config::{Config, Schema};
use holdfast_manager::{Ending, Messages, Plan};
use holdfast_process::Refit;

use crate::processes;

/// What has to be done.
pub(super) fn plan(old: &Config, new: &Config) -> Plan {
    Plan::new(&processes(), old, new, &Refit::new()).expect("a plan")
}

/// What differs, in lines for people.
pub(super) fn changes(old: &Config, new: &Config) -> Vec<String> {
    plan(old, new).changes
}

/// The peers whose connections get other options.
pub(super) fn refit(old: &Config, new: &Config) -> Vec<String> {
    plan(old, new).refit.into_iter().collect()
}

/// Whose sessions end.
pub(super) fn ending(old: &Config, new: &Config) -> Vec<String> {
    Ending::new(&processes(), old, new, []).names()
}

/// To whom something is told first, and to whom then.
pub(super) fn told(old: &Config, new: &Config) -> (Vec<String>, Vec<String>) {
    let Plan { first, then, .. } = plan(old, new);
    (whom(&first), whom(&then))
}

pub(super) const FILE: &str = r#"
    [router]
    id = "10.0.0.1"
    asn = 65000
    [[static]]
    prefix = "192.0.2.0/24"
    blackhole = true
    [bgp]
    [[bgp.network]]
    prefix = "198.51.100.0/24"
    [[bgp.peer]]
    name = "a"
    address = "10.0.1.2"
    asn = 65001
    import = "accept-all"
    [[bgp.peer]]
    name = "b"
    address = "10.0.2.2"
    asn = 65002
    md5 = "first"
"#;

pub(super) fn config(changed: &[(&str, &str)]) -> Config {
    let mut text = FILE.to_owned();
    for (old, new) in changed {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    holdfast_config::parse(&text, "test", Schema::new([])).expect("no errors")
}

/// The same with peer `a` over TLS; files hold their names, and what is behind `+` in `version`.
pub(super) fn secure(changed: &[(&str, &str)], version: &str) -> Config {
    let mut text = FILE.replace("[bgp]", "[tls]\nkey = \"k.pem\"\ncertificate = \"c.pem\"\n[bgp]");
    let trust = "asn = 65001\ntransport = \"tls\"\ntls-authorities = \"ca.pem\"\ntls-name = \"r2\"";
    text = text.replace("asn = 65001", trust);
    for (old, new) in changed {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    let read = |file: &str, _: holdfast_config::Holds<'_>| Ok(vec![format!("{file}{version}").into_bytes()]);
    holdfast_config::parse_with(&text, "test", Schema::new([]), &read).expect("no errors")
}

pub(super) const VRFS: &str = r#"
    [[vrf]]
    name = "blue"
    table = 100
    [[vrf]]
    name = "red"
    netns = "red"
    [[static]]
    vrf = "blue"
    prefix = "192.0.2.0/24"
    blackhole = true
    [[bgp.peer]]
    vrf = "blue"
    name = "c"
    address = "10.0.1.2"
    asn = 65003
    [[bgp.peer]]
    vrf = "red"
    name = "d"
    address = "10.0.1.2"
    asn = 65004
"#;

pub(super) fn with_vrfs(changed: &[(&str, &str)]) -> Config {
    let text = format!("{FILE}{VRFS}");
    let text = changed.iter().fold(text, |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replace(old, new)
    });
    holdfast_config::parse(&text, "test", Schema::new([])).expect("no errors")
}

/// To whom something is told: class and VRF; before it, that it is given its secrets.
pub(super) fn whom(messages: &Messages) -> Vec<String> {
    let names = messages.iter().flat_map(|(_, message)| {
        let whom = |class| holdfast_xrl::scoped(class, message.vrf.as_deref());
        let secrets = message.request.secrets.as_ref().map(|_| whom("secrets"));
        secrets.into_iter().chain([whom(message.request.service.class)])
    });
    names.collect()
}
