//! The configuration: TOML text to checked values, with errors that point at the text.
//!
//! [`parse`] is the only way in; what comes out is a [`Config`] in which nothing has to be checked again,
//! or [`Diagnostics`] with everything that is wrong. Start with [`schema`].
//!
//! Not here: reading files (who can hands a function in, [`parse_with`]), applying changes, defaults that depend on the
//! machine.

pub mod describe;
mod descriptor;
mod diagnostic;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod input;
mod keyed;
#[rustfmt::skip]
mod keys;
mod line;
mod moment;
mod outline;
mod processes;
mod read;
pub mod schema;
pub mod secrets;
mod session;
pub mod shared;
mod size;
mod suggest;
pub mod whereabouts;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_config;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

pub use descriptor::{DescribedCommand, Descriptor, FORMAT, LONGEST_DESCRIPTOR, NoRoom, read_argument};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use files::{Holds, List, ReadFile};
pub use line::line_of;
pub use processes::{Check, Datagrams, Implied, OwnSection, ProcessKeys, RawIp, Routing, Schema};
pub use schema::Config;
pub use session::session;
pub use suggest::nearest;

/// Reads a configuration of a router that `schema` is for. `file` is the name that the diagnostics show. Files that it names stay unread.
///
/// # Errors
/// All errors of TOML's syntax; or, where there is none, everything else that is wrong, in the order of
/// the text.
pub fn parse(text: &str, file: &str, schema: Schema) -> Result<Config, Diagnostics> {
    read_text(text, file, schema, &files::Files::new(None))
}

/// [`parse`], with what is in the files that it names: `read` is asked for each. Those of `[[xrl.client]]` stay unread.
///
/// # Errors
/// As those of [`parse`]; and files that cannot be read, or hold something else.
pub fn parse_with(
    text: &str,
    file: &str,
    schema: Schema,
    read: &ReadFile<'_>,
) -> Result<Config, Diagnostics> {
    read_text(text, file, schema, &files::Files::new(Some(read)))
}

fn read_text(
    text: &str,
    file: &str,
    schema: Schema,
    files: &files::Files<'_>,
) -> Result<Config, Diagnostics> {
    let (outline, cuts) = outline::of(text);
    let (root, faults) = toml::de::DeTable::parse_recoverable(&outline);
    let report = input::Report::outlined(text, file, cuts);
    for fault in &faults {
        report.syntax(fault);
    }
    if faults.is_empty() {
        let config = read::config(&report, &root, schema, files);
        report.finish(config)
    } else {
        report.finish(None)
    }
}
