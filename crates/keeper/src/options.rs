//! How the keeper is called.

use std::path::PathBuf;

use holdfast_api::keeper::v1::Sandbox;

/// How `holdfast run` was called.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file, which has been checked.
    pub configuration: PathBuf,
    /// Directory of the operator's socket; created if missing.
    pub runtime_directory: PathBuf,
    /// Level of the log, as the configuration says.
    pub log_filter: String,
    /// "text" or "json".
    pub log_format: String,
    /// How the manager is confined.
    pub sandbox: Sandbox,
    /// The first of the users that processes become; 0: none, and no program of somebody else is started.
    pub first_user: u32,
    /// It waits for the sessions of another router.
    pub standby: bool,
}
