//! TLS over TCP: the ClientHello in records (RFC 8446 section 5.1).

use crate::{
    client_hello::{BadHello, Peek, peek},
    reader::Reader,
    reassembly::Reassembly,
};

/// Octets of a fragment that is not encrypted, at most.
pub const MOST_FRAGMENT: u16 = 1 << 14;
/// ContentType handshake.
const HANDSHAKE: u8 = 22;
/// Of legacy_record_version, which says 3.1 or 3.3 and else nothing.
const MAJOR: u8 = 3;

/// Looks at the first octets of a connection, all that are here from its beginning on. Nothing is copied when the
/// ClientHello is in one record; else it is put together in `pieces`, which is emptied before.
///
/// # Errors
/// The ClientHello, or a record that holds it, is malformed.
pub fn peek_records<'a>(octets: &'a [u8], pieces: &'a mut Reassembly) -> Result<Peek<'a>, BadHello> {
    pieces.clear();
    let mut octets = Reader::new(octets);
    let mut length_so_far = 0;
    while let Some(kind) = octets.u8() {
        let begun = length_so_far > 0;
        match kind {
            HANDSHAKE => {}
            _ if begun => return Err(BadHello::Interrupted(kind)),
            _ => return Ok(Peek::Other),
        }
        let Some(major) = octets.u8() else { break };
        if !begun && major != MAJOR {
            return Ok(Peek::Other);
        }
        let Some((_, length)) = octets.u8().zip(octets.u16()) else { break };
        if length == 0 || length > MOST_FRAGMENT {
            return Err(BadHello::Record(length));
        }
        // Of the last one there may be a part only.
        let fragment = octets.take_up_to(length.into());
        if !begun {
            match peek(fragment)? {
                Peek::Incomplete => {}
                decided => return Ok(decided),
            }
        }
        // One that is too long to be put together stays incomplete.
        if pieces.insert(length_so_far, fragment).is_err() || pieces.peek() != Ok(Peek::Incomplete) {
            break;
        }
        length_so_far += fragment.len() as u64;
    }
    pieces.peek()
}
