//! `holdfast check`.

use std::{fs, io, path::Path};

use holdfast_config::{Holds, List, Schema};
use holdfast_tls::files;

use crate::{Failure, json};

/// Checks a file, and the files that it names. With `json` the diagnostics go to `out`, an empty array if there are none.
pub(crate) fn check(
    file: &Path,
    schema: Schema,
    as_json: bool,
    out: &mut dyn io::Write,
) -> Result<(), Failure> {
    let read = fs::read(file).map_err(|error| Failure::Unreadable { file: file.to_owned(), error });
    // Not UTF-8 is a fault of the text, with a place: what is no character becomes one that TOML refuses.
    let text = String::from_utf8_lossy(&read?).replace(char::REPLACEMENT_CHARACTER, "\u{0}");
    let directory = file.parent().unwrap_or(Path::new(""));
    let named = |name: &str, holds: Holds<'_>| match directory.join(name) {
        file if is_below(&file, directory) => named(&file, holds),
        _ => Err("it has to be in the directory of the configuration or below: the router reads no other"
            .to_owned()),
    };
    match holdfast_config::parse_with(&text, &file.display().to_string(), schema, &named) {
        Ok(_) if as_json => json::line(out, &serde_json::json!([]))?,
        Ok(config) => {
            config.notes().iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
            writeln!(out, "{}: no errors", file.display())?;
        }
        Err(wrong) => {
            if as_json {
                json::line(out, &wrong)?;
            }
            return Err(Failure::Wrong(wrong));
        }
    }
    Ok(())
}

/// Whether a file, wherever its links lead, is where a router that runs may read. One that is not there is somebody else's fault.
fn is_below(file: &Path, directory: &Path) -> bool {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    match (fs::canonicalize(file), fs::canonicalize(directory)) {
        (Ok(file), Ok(directory)) => file.starts_with(directory),
        _ => true,
    }
}

/// What a file holds that the configuration names.
fn named(file: &Path, holds: Holds<'_>) -> Result<Vec<Vec<u8>>, String> {
    match holds {
        Holds::List(List::Certificates) => files::certificates(file),
        Holds::List(List::Authorities) => files::authorities(file),
        Holds::List(List::Revocations) => files::revocations(file),
        Holds::KeyOf(certificates) => files::private_key(file, certificates).map(|key| vec![key]),
        Holds::Text => files::text(file).map(|text| vec![text]),
    }
}
