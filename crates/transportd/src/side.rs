//! Which side of a port of QUIC is this process's: never that of one that has retired and may live on.
//!
//! Who retires leaves a note at the keeper, which outlives the manager and both processes.

use holdfast_api::keeper::v1::{Empty, KeeperClient, OnDeath, PutRequest};
use holdfast_transport::Side;
use holdfast_xrl::XrlError;
use rustix::fs::{MemfdFlags, memfd_create};

/// Under which key the note is.
const KEY: &str = "retired";

/// That of a process that begins now.
///
/// # Errors
/// The keeper has gone.
pub(crate) async fn begin(keeper: &KeeperClient) -> Result<Side, XrlError> {
    let kept = keeper.list(Empty {}).await?.kept;
    let note = kept.into_iter().find(|kept| kept.key == KEY).and_then(|kept| kept.note);
    Ok(note.and_then(|note| read(&note)).map_or(Side::default(), Side::other))
}

/// This one retires: whoever comes next has the other side.
///
/// # Errors
/// Of the memory that the note goes with, and as the keeper says.
pub(crate) async fn retire(keeper: &KeeperClient, side: Side) -> Result<(), XrlError> {
    let memory = memfd_create(KEY, MemfdFlags::CLOEXEC);
    let memory = memory.map_err(|error| XrlError::unavailable(format!("memory for a note: {error}")))?;
    let (key, note) = (KEY.to_owned(), text(side).to_owned());
    let put = PutRequest { key, on_death: OnDeath::Keep.into(), hold_milliseconds: 0, note };
    keeper.put(put, vec![memory]).await?;
    Ok(())
}

fn text(side: Side) -> &'static str {
    match side {
        Side::Low => "low",
        Side::High => "high",
    }
}

fn read(note: &str) -> Option<Side> {
    [Side::Low, Side::High].into_iter().find(|side| text(*side) == note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        assert_eq!([Side::Low, Side::High].map(|side| read(text(side))), [Some(Side::Low), Some(Side::High)]);
        assert_eq!(read(""), None);
    }
}
