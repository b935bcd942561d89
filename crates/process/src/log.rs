//! The log: lines of text or JSON on standard error.
//!
//! The keeper says by environment what the configuration says, so that a process logs its first line right.

use tracing_subscriber::EnvFilter;

/// Names a level ("info") or a filter as tracing-subscriber reads it.
pub const LEVEL: &str = "HOLDFAST_LOG";
/// "text" or "json".
pub const FORMAT: &str = "HOLDFAST_LOG_FORMAT";

/// Starts logging as the environment says, and as given where it says nothing.
pub fn start(level: &str, format: &str) {
    let filter = EnvFilter::try_from_env(LEVEL).unwrap_or_else(|_| EnvFilter::new(level));
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // Somebody else may have started it: a test, say.
    let _ = if std::env::var(FORMAT).as_deref().unwrap_or(format) == "json" {
        lines.json().flatten_event(true).try_init()
    } else {
        lines.with_ansi(false).try_init()
    };
}
