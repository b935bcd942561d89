//! A configuration is read and checked, with the files that it names.

use std::path::Path;

use holdfast_config::{Config, Holds, List, Schema};
use holdfast_tls::files;
use tracing::warn;

use crate::tcp;

/// Reads and checks a configuration file.
///
/// # Errors
/// As text for the operator: every mistake with its line.
pub fn read_configuration(file: &Path, schema: Schema) -> Result<Config, String> {
    parse(&read_text(file)?, &file.display().to_string(), file, schema)
}

pub(crate) fn read_text(file: &Path) -> Result<String, String> {
    holdfast_sys::file::text(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// `name` is how errors call the text, `file` where it is, or is to be: files that it names are beside it.
pub(crate) fn parse(text: &str, name: &str, file: &Path, schema: Schema) -> Result<Config, String> {
    let directory = file.parent().unwrap_or(Path::new(""));
    let read = |name: &str, holds: Holds<'_>| named(&directory.join(name), holds);
    let config = holdfast_config::parse_with(text, name, schema, &read);
    let mut config = config.map_err(|diagnostics| diagnostics.to_string())?;
    tcp::read_keys(&mut config, file)?;
    Ok(config)
}

/// What a file holds that the configuration names. Of other directories than the configuration's, this process may read
/// nothing once it runs.
fn named(file: &Path, holds: Holds<'_>) -> Result<Vec<Vec<u8>>, String> {
    let held = match holds {
        Holds::List(List::Certificates) => files::certificates(file),
        Holds::List(List::Authorities) => files::authorities(file),
        Holds::List(List::Revocations) => files::revocations(file),
        Holds::KeyOf(certificates) => files::private_key(file, certificates).map(|key| vec![key]),
        Holds::RouterKey => files::router_key(file).map(Into::into),
        Holds::Text => files::text(file).map(|text| vec![text]),
        Holds::Descriptor => files::trusted_text(file).map(|text| vec![text]),
        // The keeper starts a program again and again: it may come later. A router that starts without it starts.
        Holds::Program | Holds::Anything => Ok(Vec::new()),
    };
    held.map_err(|error| match error.starts_with("Permission denied") {
        true => format!(
            "{error}: it has to belong to the router's user, in the directory of the configuration or below"
        ),
        false => error,
    })
}

/// Says what is allowed, and may not be what was meant.
pub(crate) fn note(config: &Config) {
    config.notes().iter().for_each(|note| warn!(event = "configuration-note", "{note}"));
}
