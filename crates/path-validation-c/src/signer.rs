//! Routers' private keys.

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use holdfast_bgpsec_wire::{MOST_BLOCKS, Path, Segment, Ski};
use holdfast_path_validation::{CannotSign, P256, P256Signer, SUITE_P256, Signer, Suite, sign};
use holdfast_types::Asn;

use crate::{
    code::{
        call,
        hf_bgpsec_code::{self, *},
    },
    path::hf_bgpsec_route,
    pointers::{Out, Room, octets, value, values},
    table::HF_BGPSEC_SKI,
};

/// What a hop adds to a path, at most: a segment of 6 octets, an SKI of 20, a length of 2, and DER of 72.
pub const HF_BGPSEC_MOST_HOP: usize = 100;
/// Signers of a call, at most: as many as a path has Signature_Blocks.
pub const HF_BGPSEC_MOST_SIGNERS: usize = 2;
/// Octets of a signature that a callback makes, at most.
pub const HF_BGPSEC_MOST_SIGNATURE: usize = 8192;
/// Octets of a segment of the Secure_Path, and of the length before all of them.
const SEGMENT: usize = 6;
const PATH_HEAD: usize = 2;
/// Octets of SKI and length before a signature, and of length and suite before those of a block.
const SIGNATURE_HEAD: usize = HF_BGPSEC_SKI + 2;
const BLOCK_HEAD: usize = 3;
/// Octets of a signature in DER of suite 1, at most.
const MOST_P256: usize = 72;
/// Octets of a private key in DER, at most; one of P-256 has some 140.
const MOST_DER: usize = 4096;

const _: () = assert!(
    HF_BGPSEC_MOST_HOP == SEGMENT + SIGNATURE_HEAD + MOST_P256 && HF_BGPSEC_MOST_SIGNERS == MOST_BLOCKS,
    "the header says so"
);

/// A router's private key and its AS. A key that is here is gone from memory when this is freed.
pub struct hf_bgpsec_signer(Key);

enum Key {
    /// Here.
    Own(P256Signer),
    /// A callback's.
    Elsewhere(Callback),
}

impl hf_bgpsec_signer {
    fn signer(&self) -> &dyn Signer {
        match &self.0 {
            Key::Own(signer) => signer,
            Key::Elsewhere(callback) => callback,
        }
    }

    /// Octets of a signature, at most.
    fn most(&self) -> usize {
        match &self.0 {
            Key::Own(_) => MOST_P256,
            Key::Elsewhere(callback) => callback.most,
        }
    }
}

/// What a callback signs.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct hf_bgpsec_to_sign {
    /// What the signature covers (RFC 8205 section 4.2).
    pub octets: *const u8,
    /// How many octets that are.
    pub octets_len: usize,
    /// The digest of these octets, SHA-256 for suite 1. Null if the library does not know the suite.
    pub digest: *const u8,
    /// How many octets it has.
    pub digest_len: usize,
}

/// Signs, with a key that the library does not see. `user` is what `hf_bgpsec_signer_callback` was given. `signature` has room for
/// `capacity` octets, and `signature_len` for how many there are. 0: it has signed; anything else: it cannot. It returns: it does
/// not throw, and does not jump.
pub type hf_bgpsec_callback = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        what: *const hf_bgpsec_to_sign,
        signature: *mut u8,
        capacity: usize,
        signature_len: *mut usize,
    ) -> c_int,
>;

struct Callback {
    asn: Asn,
    suite: u8,
    ski: Ski,
    most: usize,
    /// Not null.
    function: hf_bgpsec_callback,
    user: *mut c_void,
}

// SAFETY: `user` is only handed to the function, which may be called by any thread and by several (`hf_bgpsec_signer_callback`).
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Signer for Callback {
    fn suite(&self) -> u8 {
        self.suite
    }

    fn asn(&self) -> Asn {
        self.asn
    }

    fn ski(&self) -> Ski {
        self.ski
    }

    fn sign(&self, octets: &[u8]) -> Result<Vec<u8>, CannotSign> {
        let function = self.function.ok_or(CannotSign::Device)?;
        let digest = (self.suite == SUITE_P256).then(|| P256.digest(octets));
        let digest = digest.as_ref().map(AsRef::<[u8]>::as_ref);
        let what = hf_bgpsec_to_sign {
            octets: octets.as_ptr(),
            octets_len: octets.len(),
            digest: digest.map_or(ptr::null(), <[u8]>::as_ptr),
            digest_len: digest.map_or(0, <[u8]>::len),
        };
        let (mut signature, mut length) = (vec![0; self.most], 0);
        // SAFETY: whoever made the signer says that it may be called so.
        let failed = unsafe { function(self.user, &what, signature.as_mut_ptr(), self.most, &mut length) };
        if failed != 0 || length == 0 || length > self.most {
            return Err(CannotSign::Device);
        }
        signature.truncate(length);
        Ok(signature)
    }
}

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
        out.write(ptr::null_mut());
        if der_len > MOST_DER {
            return Err(HF_BGPSEC_LENGTH);
        }
        // SAFETY: as the caller says.
        let der = unsafe { octets(der, der_len)? };
        out.write(handle(Key::Own(P256Signer::from_der(Asn(asn), der)?)));
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
        out.write(ptr::null_mut());
        let key = P256Signer::generate(Asn(asn)).map_err(|_| HF_BGPSEC_RANDOMNESS)?;
        out.write(handle(Key::Own(key)));
        Ok(())
    })
}

/// A signer whose key is elsewhere: in a device, say. `callback` makes its signatures, of `suite` and with `most` octets at most (72
/// for suite 1, `HF_BGPSEC_MOST_SIGNATURE` for any). `ski` are `HF_BGPSEC_SKI` octets. Suites other than 1 can be signed with and not
/// validated; 0 and 255 are none.
///
/// # Safety
/// `ski` is null or points at 20 octets, `signer` is null or at room for a pointer. `callback` is null or may be called
/// with `user`, by each thread that signs with the signer, until the signer is freed. It writes as many octets as it says, and
/// `capacity` at most.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_signer_callback(
    asn: u32,
    suite: u8,
    ski: *const u8,
    most: usize,
    callback: hf_bgpsec_callback,
    user: *mut c_void,
    signer: *mut *mut hf_bgpsec_signer,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let mut out = unsafe { Out::new(signer)? };
        out.write(ptr::null_mut());
        // SAFETY: as the caller says.
        let ski = unsafe { value(ski.cast::<[u8; HF_BGPSEC_SKI]>())? };
        if callback.is_none() {
            return Err(HF_BGPSEC_NULL);
        }
        if matches!(suite, 0 | 255) {
            return Err(HF_BGPSEC_RESERVED_SUITE);
        }
        if most == 0 || most > HF_BGPSEC_MOST_SIGNATURE {
            return Err(HF_BGPSEC_LENGTH);
        }
        let callback = Callback { asn: Asn(asn), suite, ski: Ski(*ski), most, function: callback, user };
        out.write(handle(Key::Elsewhere(callback)));
        Ok(())
    })
}

fn handle(key: Key) -> *mut hf_bgpsec_signer {
    Box::into_raw(Box::new(hf_bgpsec_signer(key)))
}

/// Frees a signer. Null is nothing to free.
///
/// # Safety
/// `signer` is null, or a signer that nobody uses now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_signer_free(signer: *mut hf_bgpsec_signer) {
    if !signer.is_null() {
        // SAFETY: it is from one of the three above, and this is its last use.
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
        out.write(signer.signer().ski().0);
        Ok(())
    })
}

/// The subjectPublicKeyInfo of its key, in DER: what others add to their tables. `HF_BGPSEC_KEY_ELSEWHERE`: a callback has it.
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
        match &signer.0 {
            Key::Own(signer) => room.write(&signer.router_key().spki),
            Key::Elsewhere(_) => Err(HF_BGPSEC_KEY_ELSEWHERE),
        }
    })
}

/// The path after the signer's AS was added (RFC 8205 section 4.2), to be sent to the route's target AS. No octets in `path`: the
/// route is originated. A block of another suite is left out. How long the signature will be nobody knows, so there has to be
/// room for `HF_BGPSEC_MOST_HOP` octets more than `path` has, and 5 more for the first one. A callback's signature may be longer
/// than the 72 octets in that.
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
    // SAFETY: as the caller says.
    unsafe { hf_bgpsec_sign_all(&signer, 1, path, path_len, pcount, flags, route, out, capacity, out_len) }
}

/// The same with several signers of one AS, each for a suite of its own: `count` pointers at `signers`, `HF_BGPSEC_MOST_SIGNERS` at
/// most. A signer whose suite the path does not have is not asked. There has to be room for a segment of 6 octets, and for each
/// signer 22 octets and its signature; and for a route that is originated 2 octets, and 3 for each signer.
///
/// # Safety
/// `signers` is null or points at `count` pointers, each null or a signer; the rest is as of `hf_bgpsec_sign`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_sign_all(
    signers: *const *const hf_bgpsec_signer,
    count: usize,
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
        if count > HF_BGPSEC_MOST_SIGNERS {
            return Err(HF_BGPSEC_LENGTH);
        }
        // SAFETY: as the caller says.
        let signers = unsafe { values(signers, count)? }.iter().map(|signer| unsafe { value(*signer) });
        let signers: Vec<&hf_bgpsec_signer> = signers.collect::<Result<_, _>>()?;
        let asn = signers.first().ok_or(HF_BGPSEC_UNSIGNED)?.signer().asn();
        // SAFETY: as the caller says.
        let (path, route) = unsafe { (octets(path, path_len)?, value(route)?) };
        // SAFETY: as the caller says.
        let (nlri, mut room) = unsafe { (route.read()?, Room::new(out, capacity, out_len)?) };
        let before = if path.is_empty() { None } else { Some(Path::parse(path)?) };
        let heads = if before.is_none() { PATH_HEAD + signers.len() * BLOCK_HEAD } else { 0 };
        let signatures: usize = signers.iter().map(|signer| SIGNATURE_HEAD + signer.most()).sum();
        room.wants(path.len() + SEGMENT + signatures + heads)?;
        let segment = Segment { pcount, flags, asn };
        let signers: Vec<&dyn Signer> = signers.into_iter().map(hf_bgpsec_signer::signer).collect();
        room.write(&sign(before.as_ref(), segment, Asn(route.target_as), &nlri, &signers)?)
    })
}
