//! The fuzz targets over their corpora and mutations of them.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::cell::Cell;

#[test]
fn any_request_has_verdicts_or_is_refused() {
    let judged = Cell::new(0);
    replay::replay("pathsec_request", 20_000, |octets| {
        judged.set(judged.get() + crate::fuzzing::request(octets));
    });
    assert!(judged.get() > 1000, "{}", judged.get());
}

#[test]
fn any_request_is_signed_or_is_refused() {
    let signed = Cell::new(0);
    replay::replay("pathsec_sign", 5_000, |octets| {
        signed.set(signed.get() + crate::fuzzing::sign_request(octets));
    });
    assert!(signed.get() > 1000, "{}", signed.get());
}
