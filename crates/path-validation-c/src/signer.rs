//! Routers' private keys.

use holdfast_bgpsec_wire::{Path, Segment};
use holdfast_path_validation::{P256Signer, Signer, sign};
use holdfast_types::Asn;

use crate::{
    code::{
        call,
        hf_bgpsec_code::{self, *},
    },
    path::hf_bgpsec_route,
    pointers::{Out, Room, octets, value},
    table::HF_BGPSEC_SKI,
};

/// What a hop adds to a path, at most: a segment of 6 octets, an SKI of 20, a length of 2, and DER of 72.
pub const HF_BGPSEC_MOST_HOP: usize = 100;
/// What else a path of one hop has: two lengths of 2 octets, and a suite.
const HEADS: usize = 5;
/// Octets of a private key in DER, at most; one of P-256 has some 140.
const MOST_DER: usize = 4096;

/// A router's private key of P-256, and its AS. It is gone from memory when this is freed.
pub struct hf_bgpsec_signer(P256Signer);

/// A signer with a private key: PKCS#8 (RFC 5958) or an ECPrivateKey of SEC 1 (RFC 5915), in DER.
///
/// # Safety
/// `der` is null or points at `der_len` octets, `signer` is null or at room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_signer_new(
    asn: u32,
    der: *const u8,
    der_len: usize,
    signer: *mut *mut hf_bgpsec_signer,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let mut out = unsafe { Out::new(signer)? };
        out.write(std::ptr::null_mut());
        if der_len > MOST_DER {
            return Err(HF_BGPSEC_LENGTH);
        }
        // SAFETY: as the caller says.
        let der = unsafe { octets(der, der_len)? };
        out.write(Box::into_raw(Box::new(hf_bgpsec_signer(P256Signer::from_der(Asn(asn), der)?))));
        Ok(())
    })
}

/// A signer with a new private key, which nobody else has.
///
/// # Safety
/// `signer` is null or points at room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_signer_generate(
    asn: u32,
    signer: *mut *mut hf_bgpsec_signer,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let mut out = unsafe { Out::new(signer)? };
        out.write(std::ptr::null_mut());
        let key = P256Signer::generate(Asn(asn)).map_err(|_| HF_BGPSEC_RANDOMNESS)?;
        out.write(Box::into_raw(Box::new(hf_bgpsec_signer(key))));
        Ok(())
    })
}

/// Frees a signer. Null is nothing to free.
///
/// # Safety
/// `signer` is null, or a signer that nobody uses now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_signer_free(signer: *mut hf_bgpsec_signer) {
    if !signer.is_null() {
        // SAFETY: it is from one of the two above, and this is its last use.
        drop(unsafe { Box::from_raw(signer) });
    }
}

/// The subject key identifier of its key, `HF_BGPSEC_SKI` octets.
///
/// # Safety
/// `signer` is null or a signer; `ski` is null or points at room for 20 octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_signer_ski(
    signer: *const hf_bgpsec_signer,
    ski: *mut u8,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (signer, mut out) = unsafe { (value(signer)?, Out::new(ski.cast::<[u8; HF_BGPSEC_SKI]>())?) };
        out.write(signer.0.ski().0);
        Ok(())
    })
}

/// The subjectPublicKeyInfo of its key, in DER: what others add to their tables.
///
/// # Safety
/// `signer` is null or a signer; `out` is null or points at room for `capacity` octets, `out_len` is null or at a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_signer_spki(
    signer: *const hf_bgpsec_signer,
    out: *mut u8,
    capacity: usize,
    out_len: *mut usize,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (signer, room) = unsafe { (value(signer)?, Room::new(out, capacity, out_len)?) };
        room.write(&signer.0.router_key().spki)
    })
}

/// The path after the signer's AS was added (RFC 8205 section 4.2), to be sent to the route's target AS. No octets in `path`: the
/// route is originated. A block of another suite is left out. How long the signature will be nobody knows, so there has to be
/// room for `HF_BGPSEC_MOST_HOP` octets more than `path` has, and 5 more for the first one.
///
/// # Safety
/// `signer` is null or a signer; `path` is null or points at `path_len` octets; `route` is null or points at its type, and
/// that at its octets; `out` is null or points at room for `capacity` octets, `out_len` is null or at a number. `out` is not `path`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_sign(
    signer: *const hf_bgpsec_signer,
    path: *const u8,
    path_len: usize,
    pcount: u8,
    flags: u8,
    route: *const hf_bgpsec_route,
    out: *mut u8,
    capacity: usize,
    out_len: *mut usize,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (signer, path, route) = unsafe { (value(signer)?, octets(path, path_len)?, value(route)?) };
        // SAFETY: as the caller says.
        let (nlri, mut room) = unsafe { (route.read()?, Room::new(out, capacity, out_len)?) };
        let before = if path.is_empty() { None } else { Some(Path::parse(path)?) };
        room.wants(path.len() + HF_BGPSEC_MOST_HOP + if before.is_none() { HEADS } else { 0 })?;
        let segment = Segment { pcount, flags, asn: signer.0.asn() };
        room.write(&sign(before.as_ref(), segment, Asn(route.target_as), &nlri, &[&signer.0])?)
    })
}
