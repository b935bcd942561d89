//! `holdfast check`.

use std::{fs, io, path::Path};

use crate::{Failure, json};

/// Checks a file. With `json` the diagnostics go to `out`, an empty array if there are none.
pub(crate) fn check(file: &Path, as_json: bool, out: &mut dyn io::Write) -> Result<(), Failure> {
    let read = fs::read(file).map_err(|error| Failure::Unreadable { file: file.to_owned(), error });
    // Not UTF-8 is a fault of the text, with a place: what is no character becomes one that TOML refuses.
    let text = String::from_utf8_lossy(&read?).replace(char::REPLACEMENT_CHARACTER, "\u{0}");
    match holdfast_config::parse(&text, &file.display().to_string()) {
        Ok(_) if as_json => json::line(out, &serde_json::json!([]))?,
        Ok(_) => writeln!(out, "{}: no errors", file.display())?,
        Err(wrong) => {
            if as_json {
                json::line(out, &wrong)?;
            }
            return Err(Failure::Wrong(wrong));
        }
    }
    Ok(())
}
