//! BGPsec path validation and signing (RFC 8205) for programs in C: `holdfast_bgpsec.h` over [`holdfast_path_validation`].
//!
//! Octets go in as they are in an UPDATE, and come out so. What is allocated here are tables ([`table`]) and signers
//! ([`signer`]), which whoever made them frees; everything else is the caller's. A call returns a [`hf_bgpsec_code`]; a null pointer or a
//! length that cannot be is one, and so is a panic, which does not leave the library. All calls may be made from several
//! threads, on the same table and the same signer, but a handle is freed by one when no other uses it.
//!
//! The header is made of these files (`tests/header.rs`); doc comments here are what a reader of it sees.

// The workspace denies it; this crate is the one beside `sys` that has to read and write where somebody else points.
#![allow(unsafe_code)]
// Names are those of the header.
#![allow(non_camel_case_types)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod code;
mod path;
mod pointers;
mod read;
mod signer;
mod table;

pub use code::{hf_bgpsec_code, hf_bgpsec_strerror, hf_bgpsec_version};
pub use path::{
    hf_bgpsec_as_path, hf_bgpsec_check, hf_bgpsec_ingress, hf_bgpsec_leave_confederation, hf_bgpsec_reason,
    hf_bgpsec_route, hf_bgpsec_state, hf_bgpsec_suites, hf_bgpsec_validate, hf_bgpsec_verdict,
};
pub use read::{
    hf_bgpsec_parts, hf_bgpsec_read, hf_bgpsec_segment, hf_bgpsec_segment_at, hf_bgpsec_signature,
    hf_bgpsec_signature_at,
};
pub use signer::{
    HF_BGPSEC_MOST_HOP, HF_BGPSEC_MOST_SIGNATURE, HF_BGPSEC_MOST_SIGNERS, hf_bgpsec_callback, hf_bgpsec_sign,
    hf_bgpsec_sign_all, hf_bgpsec_signer, hf_bgpsec_signer_callback, hf_bgpsec_signer_free,
    hf_bgpsec_signer_generate, hf_bgpsec_signer_new, hf_bgpsec_signer_ski, hf_bgpsec_signer_spki,
    hf_bgpsec_to_sign,
};
pub use table::{
    HF_BGPSEC_MOST_PENDING, HF_BGPSEC_MOST_REMEMBERED, HF_BGPSEC_MOST_SPKI, HF_BGPSEC_SKI, hf_bgpsec_applied,
    hf_bgpsec_table, hf_bgpsec_table_add, hf_bgpsec_table_commit, hf_bgpsec_table_count,
    hf_bgpsec_table_free, hf_bgpsec_table_new, hf_bgpsec_table_remove,
};

/// What a pointer is shared by, the compiler does not see.
const _: () = {
    const fn is_shared_between_threads<T: Send + Sync>() {}
    is_shared_between_threads::<hf_bgpsec_table>();
    is_shared_between_threads::<hf_bgpsec_signer>();
};
