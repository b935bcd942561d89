//! BGPsec_PATH among attributes.

use holdfast_bgp_wire::{
    Attributes,
    attribute::{code, flag, push},
};
use holdfast_bgpsec_wire::Path as SecurePath;

/// Whether there are signatures.
pub(crate) fn has_secure_path(attributes: Attributes<'_>) -> bool {
    secure_path(attributes).is_some()
}

/// The value of BGPsec_PATH, if it has signatures.
pub(crate) fn secure_path(attributes: Attributes<'_>) -> Option<&[u8]> {
    secure_path_value(attributes).filter(|value| !value.is_empty())
}

/// Whether a router of our AS has said that the route starts there: it has sent neither AS_PATH nor BGPsec_PATH (RFC 8205
/// section 4.1).
pub(crate) fn starts_inside(attributes: Attributes<'_>) -> bool {
    secure_path_value(attributes).is_some_and(<[u8]>::is_empty)
}

/// The value of BGPsec_PATH, whatever it is.
pub(crate) fn secure_path_value(attributes: Attributes<'_>) -> Option<&[u8]> {
    attributes.iter().find(|attribute| attribute.code == code::BGPSEC_PATH).map(|attribute| attribute.value)
}

/// Puts BGPsec_PATH where it belongs among attributes.
pub(crate) fn insert_secure_path(attributes: &mut Vec<u8>, value: &[u8]) {
    let behind = Attributes(attributes).iter().take_while(|attribute| attribute.code < code::BGPSEC_PATH);
    let at: usize = behind.map(|attribute| attribute.wire.len()).sum();
    let mut wire = Vec::with_capacity(value.len() + 4);
    push(&mut wire, flag::OPTIONAL, code::BGPSEC_PATH, value);
    attributes.splice(at..at, wire);
}

/// The hops of a path.
pub(crate) fn hops(attributes: Attributes<'_>) -> usize {
    secure_path(attributes).and_then(|value| SecurePath::parse(value).ok()).map_or(0, |path| path.hops())
}
