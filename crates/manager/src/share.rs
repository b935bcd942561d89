//! The part of the configuration that all routers have which may have the same sessions (`shared.v1`).
//!
//! ```text
//!  commit, reload ── offer ──> process that shares ──> the store ──> process that shares ── next ──> the other manager
//!        <── may take effect ──┘   <── what the other router runs, in the file of the lease ──┘
//! ```
//! What travels is sealed with a secret of the operator (`holdfast_tls::Sealing`): nobody else reads it, or can make one. Which tables these are
//! says `holdfast_config::shared::TABLES`; what else is in the file is about this router alone.
//!
//! [`text`] says what travels, [`offer`] asks whether something may take effect, [`taking`] takes what others have.

pub(crate) mod offer;
pub(crate) mod taking;
pub(crate) mod text;
