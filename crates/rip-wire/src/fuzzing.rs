//! Bodies of the fuzz targets, also run by tests.

use crate::{Command, Entry, Message, Protocol, Ripng, Ripv2, Writer};

/// Reads a message of both protocols; the entries that can be read are written again and read back as the same. Returns
/// how many there were.
pub fn messages(octets: &[u8]) -> usize {
    again::<Ripv2>(octets) + again::<Ripng>(octets)
}

fn again<P: Protocol>(octets: &[u8]) -> usize {
    let Ok(message) = Message::<P>::read(octets) else { return 0 };
    message.queries().for_each(drop);
    let entries: Vec<Entry<P>> = message.entries().filter_map(Result::ok).collect();
    for chunk in entries.chunks(24) {
        let mut writer = Writer::<P>::new(Command::Response, None, 0);
        assert!(chunk.iter().all(|entry| writer.push(entry)), "24 entries and as many next hops have room");
        let octets = writer.finish(0);
        let message = Message::<P>::read(&octets).expect("what was written can be read");
        assert!(message.entries().eq(chunk.iter().copied().map(Ok)));
    }
    entries.len()
}
