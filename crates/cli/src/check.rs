//! `holdfast check`.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use holdfast_config::{Descriptor, Diagnostics, Holds, LONGEST_DESCRIPTOR, List, Schema};
use holdfast_tls::files;

use crate::{Failure, host, json};

/// Checks a file, and the files that it names. With `json` the diagnostics go to `out`, an empty array if there are none. With `host`
/// an error is also a setting of this host that the configuration needs otherwise.
pub(crate) fn check(
    file: &Path,
    schema: Schema,
    host: bool,
    as_json: bool,
    out: &mut dyn io::Write,
) -> Result<(), Failure> {
    let text = text(file, u64::MAX)?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let named = |name: &str, holds: Holds<'_>| match directory.join(name) {
        file if matches!(holds, Holds::Program | Holds::Anything) => named(&file, holds),
        file if is_below(&file, directory) => named(&file, holds),
        _ => Err("it has to be in the directory of the configuration or below: the router reads no other"
            .to_owned()),
    };
    let config = holdfast_config::parse_with(&text, &file.display().to_string(), schema, &named);
    let settings = match &config {
        Ok(config) if host => host::settings(config, &host::read),
        Ok(_) | Err(_) => Vec::new(),
    };
    if settings.is_empty() {
        return answer(file, config.map(|config| config.notes()), as_json, out);
    }
    match as_json {
        true => json::line(out, &settings)?,
        false => {
            answer(file, config.map(|config| config.notes()), as_json, out)?;
            settings.iter().try_for_each(|setting| writeln!(out, "{setting}"))?;
        }
    }
    Err(Failure::Host(settings.len()))
}

/// Checks a descriptor of a protocol.
pub(crate) fn descriptor(file: &Path, as_json: bool, out: &mut dyn io::Write) -> Result<(), Failure> {
    // One octet more is too long already.
    let text = text(file, LONGEST_DESCRIPTOR as u64 + 1)?;
    let name = file.display().to_string();
    let descriptor = Descriptor::parse(&text, &name);
    // What only the router may refuse is a note: whoever writes a descriptor need not be who runs the router, nor be there.
    let notes = |descriptor: &Descriptor| {
        let refused = files::trusted_text(file).err().map(|why| format!("the router would refuse it: {why}"));
        let missing = descriptor.look_for(&name, &|name, holds| named(Path::new(name), holds)).err();
        let missing = missing.iter().flat_map(|missing| missing.iter());
        refused.into_iter().chain(missing.map(|missing| missing.message.clone())).collect()
    };
    answer(file, descriptor.map(notes), as_json, out)
}

/// What a file says, up to so many octets.
fn text(file: &Path, most: u64) -> Result<String, Failure> {
    let mut read = Vec::new();
    let opened = fs::File::open(file);
    let result = opened.and_then(|opened| opened.take(most).read_to_end(&mut read));
    result.map_err(|error| Failure::Unreadable { file: file.to_owned(), error })?;
    // Not UTF-8 is a fault of the text, with a place: what is no character becomes one that TOML refuses.
    Ok(String::from_utf8_lossy(&read).replace(char::REPLACEMENT_CHARACTER, "\u{0}"))
}

/// Says what is wrong with a file, or what there is to note.
fn answer(
    file: &Path,
    checked: Result<Vec<String>, Diagnostics>,
    as_json: bool,
    out: &mut dyn io::Write,
) -> Result<(), Failure> {
    match checked {
        Ok(_) if as_json => json::line(out, &serde_json::json!([]))?,
        Ok(notes) => {
            notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
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
        Holds::RouterKey => files::router_key(file).map(Into::into),
        Holds::Text => files::text(file).map(|text| vec![text]),
        Holds::Descriptor => files::trusted_text(file).map(|text| vec![text]),
        Holds::Program => program(file).map(|()| Vec::new()),
        Holds::Anything => fs::metadata(file).map(|_| Vec::new()).map_err(|error| error.to_string()),
    }
}

/// Whether there is a program.
fn program(file: &Path) -> Result<(), String> {
    let found = fs::metadata(file).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is no file".to_owned());
    }
    match found.permissions().mode() & 0o111 {
        0 => Err("nobody may execute it".to_owned()),
        _ => Ok(()),
    }
}
