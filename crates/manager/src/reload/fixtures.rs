//! Configurations that differ in little.

use holdfast_config::{Config, Schema};

use super::{messages::Messages, sessions::Ending};
use crate::configure::{Message, Part};

/// Whose sessions end.
pub(super) fn ending(old: &Config, new: &Config) -> Vec<String> {
    Ending::new(old, new).names()
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

/// To whom something is told: class and VRF.
pub(super) fn whom(messages: &Messages) -> Vec<String> {
    let part = |part: &Part| match part {
        Part::Socket(_) => "socket",
        Part::Keep(_) => "secrets",
        Part::Transport(_) => "transport",
        Part::Fea(_) => "fea",
        Part::Rib(_) => "rib",
        Part::Bgp(_) => "bgp",
        Part::Metrics(_) | Part::Glass(_) | Part::Monitor(_) | Part::Rpki(_) | Part::Own(..) => "other",
    };
    let scoped = |message: &Message| holdfast_xrl::scoped(part(&message.part), message.vrf.as_deref());
    messages.iter().map(|(_, message)| scoped(message)).collect()
}
