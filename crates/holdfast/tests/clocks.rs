//! Somebody may set the clock on the wall at any time, forwards and backwards: nothing is decided by it. Timers use
//! the clock that only runs (`Instant`); what is left is for people to read, and listed here. Certificates are of the
//! calendar: whether one is valid, the library of TLS decides by that clock, at a handshake and never after it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::sources;

/// Who may ask what time it is (a file, or all in a folder), and what for.
const READERS: [(&str, &str); 16] = [
    ("bgpd/src/nonstop.rs", "since when a session is frozen; shown"),
    ("bgpd/src/takeover.rs", "how long a session has been up; shown, and never longer than this machine"),
    ("bgpd/src/watch.rs", "time stamps for BMP and MRT"),
    ("cli/src/", "shown"),
    ("glass/src/", "shown"),
    (
        "manager/src/commit.rs",
        "the time of a version; until when a manager after this one waits for a confirmation",
    ),
    (
        "manager/src/seeds.rs",
        "whether the seeds of QUIC's keys are a day old; set wrongly, they change early or late",
    ),
    (
        "manager/src/share/text.rs",
        "the next serial of what is sealed; set back, serials go on from the greatest one that the router knows of",
    ),
    ("monitor/src/", "time stamps of BMP and MRT"),
    (
        "pathsecd/src/private_keys.rs",
        "whether `sign-from` of a private key is past; set wrongly, a key signs early or late, and never less than one before",
    ),
    ("process/src/profile.rs", "the time of a record for `holdfast profile`"),
    (
        "replicator/src/remaking.rs",
        "how much time has passed since; where the clock was set back, none has, and timestamps are ahead by a second",
    ),
    (
        "replicator/src/table.rs",
        "when a connection had a TCP timestamp, for another host; who goes on with it sends later ones, however clocks are set",
    ),
    (
        "routing/src/sequence.rs",
        "the first sequence number of digests; set back, neighbours discard messages until they have forgotten us",
    ),
    ("tls/src/keys/make.rs", "from when until when a new certificate is good"),
    ("transportd/src/carried.rs", "since when a connection has been carried; shown"),
];

#[test]
fn only_those_who_show_it_ask_for_the_time_of_day() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for entry in fs::read_dir(&crates).expect("the crates") {
        let path = entry.expect("an entry").path();
        // For development only.
        if !path.ends_with("lab") && !path.ends_with("bench") {
            sources(&path.join("src"), &mut all);
        }
    }
    let asks = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a source");
        ["SystemTime::now", "ClockId::Realtime", "CLOCK_REALTIME"].iter().any(|clock| text.contains(clock))
    };
    for path in all.iter().filter(|path| asks(path)) {
        let path = path.strip_prefix(&crates).expect("in there").display().to_string();
        let known = READERS.iter().any(|(reader, _)| path.starts_with(reader));
        assert!(
            known,
            "{path} asks for the time of day: what for? If nothing is decided by it, list it here"
        );
    }
}
