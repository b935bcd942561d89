//! Entry points for fuzzing; called by the tests too.

use crate::frame::{FrameDecoder, HEADER_LEN, MAX_BODY};

/// Any bytes are frames, the beginning of one, or an error; none is longer than allowed, none is seen twice.
pub fn frames(bytes: &[u8]) {
    let mut decoder = FrameDecoder::default();
    let mut consumed = 0;
    let mut rest = bytes;
    while !rest.is_empty() {
        let space = decoder.space();
        let (piece, behind) = rest.split_at(rest.len().min(space.len()).min(1000));
        space[..piece.len()].copy_from_slice(piece);
        decoder.filled(piece.len());
        rest = behind;
        loop {
            match decoder.next_frame() {
                Ok(Some((_, body))) => consumed += HEADER_LEN + body.len(),
                Ok(None) => break,
                Err(_) => return,
            }
            assert!(consumed <= bytes.len() && consumed <= HEADER_LEN + MAX_BODY.max(bytes.len()));
        }
    }
}

/// Any bytes are an error of some kind.
pub fn error(bytes: &[u8]) {
    let error = crate::XrlError::decode(bytes);
    assert_eq!(crate::XrlError::decode(&error.encode()).kind(), error.kind());
}

/// Any text is an XRL, which survives printing, or an error.
pub fn xrl(text: &str) {
    if let Ok(xrl) = text.parse::<crate::text::Xrl>() {
        let printed = xrl.to_string();
        assert_eq!(printed.parse().as_ref(), Ok(&xrl), "{printed}");
    }
}
