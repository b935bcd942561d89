//! What a path says, part by part.

use holdfast_bgpsec_wire::{MOST_BLOCKS, Path};

use crate::{
    code::{
        call,
        hf_bgpsec_code::{self, *},
    },
    pointers::{Out, octets},
};

/// How many parts a path has.
#[repr(C)]
#[derive(Copy, Clone, Default, Debug)]
pub struct hf_bgpsec_parts {
    /// Segments of the Secure_Path, and signatures of each Signature_Block; one at least.
    pub segments: usize,
    /// Signature_Blocks: one or two.
    pub blocks: usize,
    /// Their algorithm suites; 0 for a block that is not there.
    pub suites: [u8; 2],
}

/// What an AS has added to the Secure_Path.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct hf_bgpsec_segment {
    /// The AS.
    pub asn: u32,
    /// How many times the AS counts.
    pub pcount: u8,
    /// The flags as received; 0x80: added inside a confederation.
    pub flags: u8,
}

/// A signature of a Signature_Block.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct hf_bgpsec_signature {
    /// Where it is in the octets of the path: there as long as those are.
    pub octets: *const u8,
    /// How many octets it has.
    pub octets_len: usize,
    /// What it calls the key.
    pub ski: [u8; 20],
    /// The block's algorithm suite.
    pub suite: u8,
}

const _: () = assert!(MOST_BLOCKS == 2, "the header says so");

/// How many segments and Signature_Blocks a path has.
///
/// # Safety
/// `path` is null or points at `path_len` octets; `parts` is null or points at room for its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_read(
    path: *const u8,
    path_len: usize,
    parts: *mut hf_bgpsec_parts,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (path, mut out) = unsafe { (octets(path, path_len)?, Out::new(parts)?) };
        out.write(hf_bgpsec_parts::default());
        let path = Path::parse(path)?;
        let mut parts = hf_bgpsec_parts { segments: path.hops(), ..hf_bgpsec_parts::default() };
        for (suite, block) in parts.suites.iter_mut().zip(path.blocks()) {
            *suite = block.suite;
            parts.blocks += 1;
        }
        out.write(parts);
        Ok(())
    })
}

/// A segment of the Secure_Path; 0 is the most recent one. `HF_BGPSEC_NO_SUCH`: the path has fewer.
///
/// # Safety
/// `path` is null or points at `path_len` octets; `segment` is null or points at room for its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_segment_at(
    path: *const u8,
    path_len: usize,
    hop: usize,
    segment: *mut hf_bgpsec_segment,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (path, mut out) = unsafe { (octets(path, path_len)?, Out::new(segment)?) };
        let segment = Path::parse(path)?.segments().nth(hop).ok_or(HF_BGPSEC_NO_SUCH)?;
        out.write(hf_bgpsec_segment { asn: segment.asn.0, pcount: segment.pcount, flags: segment.flags });
        Ok(())
    })
}

/// The signature of a segment in a Signature_Block. Blocks are counted from 0 in the order of the attribute, segments as in
/// `hf_bgpsec_segment_at`. `HF_BGPSEC_NO_SUCH`: the path has fewer.
///
/// # Safety
/// `path` is null or points at `path_len` octets; `signature` is null or points at room for its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bgpsec_signature_at(
    path: *const u8,
    path_len: usize,
    block: usize,
    hop: usize,
    signature: *mut hf_bgpsec_signature,
) -> hf_bgpsec_code {
    call(|| {
        // SAFETY: as the caller says.
        let (path, mut out) = unsafe { (octets(path, path_len)?, Out::new(signature)?) };
        let block = Path::parse(path)?.blocks().nth(block).ok_or(HF_BGPSEC_NO_SUCH)?;
        let signature = block.signatures().nth(hop).ok_or(HF_BGPSEC_NO_SUCH)?;
        out.write(hf_bgpsec_signature {
            octets: signature.octets.as_ptr(),
            octets_len: signature.octets.len(),
            ski: signature.ski.0,
            suite: block.suite,
        });
        Ok(())
    })
}
