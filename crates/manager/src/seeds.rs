//! Random octets from which `transport` derives the keys that have to outlive it: those of tokens and of stateless resets.
//! They are beside the history of the configuration, changed when a manager begins that finds them a day old, and the ones
//! before stay good until then.

use std::{
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use holdfast_xrl::XrlError;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::{file, history::History, service::Manager};

/// Octets of a seed.
const LENGTH: usize = 64;
/// From this age on there is a new one.
const OLD: Duration = Duration::from_secs(86_400);

/// What the file says.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Seconds since 1970 when the current one was made.
    made: u64,
    /// The current one and the one before, in hexadecimal.
    seeds: Vec<String>,
}

/// The seeds, the current one first; the same for the whole life of the manager.
pub(crate) fn of(manager: &Manager) -> Vec<Vec<u8>> {
    let mut known = manager.seeds.borrow_mut();
    if known.is_empty() {
        *known = match load(manager) {
            Ok(seeds) => seeds,
            Err(error) => {
                warn!(
                    event = "seeds-not-kept",
                    "no random numbers for the keys of QUIC: {}",
                    error.message()
                );
                Vec::new()
            }
        };
    }
    known.clone()
}

fn load(manager: &Manager) -> Result<Vec<Vec<u8>>, XrlError> {
    let mut fresh = [0; LENGTH];
    match getrandom(&mut fresh, GetRandomFlags::empty()) {
        Ok(LENGTH) => {}
        _ => return Err(XrlError::internal("the kernel has none")),
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let history = manager.history();
    let path = history.as_ref().ok().map(History::seeds);
    let found = path.as_deref().and_then(read);
    let (kept, is_new) = current(found, now, &fresh);
    let written = match &history {
        Ok(history) if is_new => {
            history.make().and_then(|()| write(&history.seeds(), &kept)).map_err(|error| error.to_string())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.message().to_owned()),
    };
    if let Err(error) = written {
        warn!(
            event = "seeds-not-kept",
            "keys of QUIC do not outlive this router: they cannot be kept beside the configuration: {error}"
        );
    }
    Ok(octets(&kept).unwrap_or_default())
}

/// What a file says; nothing if there is none, or it says something else.
fn read(file: &Path) -> Option<Kept> {
    let text = std::fs::read(file).ok()?;
    let kept: Option<Kept> = serde_json::from_slice(&text).ok();
    let kept = kept.filter(|kept| octets(kept).is_some());
    if kept.is_none() {
        warn!(event = "seeds-not-kept", "{} is not what it was: there are new keys of QUIC", file.display());
    }
    kept
}

fn write(file: &Path, kept: &Kept) -> io::Result<()> {
    file::replace(file, &serde_json::to_string(kept)?)
}

/// What holds from now on, and whether that is something new.
fn current(found: Option<Kept>, now: u64, fresh: &[u8; LENGTH]) -> (Kept, bool) {
    match found {
        Some(kept) if now.saturating_sub(kept.made) < OLD.as_secs() => (kept, false),
        found => {
            let before = found.and_then(|kept| kept.seeds.into_iter().next());
            let seeds = std::iter::once(hexadecimal(fresh)).chain(before).collect();
            (Kept { made: now, seeds }, true)
        }
    }
}

fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// One or two seeds of their length.
fn octets(kept: &Kept) -> Option<Vec<Vec<u8>>> {
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let seed = |text: &String| -> Option<Vec<u8>> {
        let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        (digits && text.len() == 2 * LENGTH).then(|| text.as_bytes().chunks(2).map(octet).collect())?
    };
    let seeds = kept.seeds.iter().map(seed).collect::<Option<Vec<_>>>()?;
    (1..=2).contains(&seeds.len()).then_some(seeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn a_seed_is_replaced_after_a_day_and_the_one_before_stays() {
        let (first, is_new) = current(None, 1000, &[1; LENGTH]);
        assert!(is_new && octets(&first) == Some(vec![vec![1; LENGTH]]));
        let (same, is_new) = current(Some(first.clone()), 999 + DAY, &[2; LENGTH]);
        assert!(!is_new && same == first);
        let (second, is_new) = current(Some(first), 1000 + DAY, &[2; LENGTH]);
        assert!(is_new && octets(&second) == Some(vec![vec![2; LENGTH], vec![1; LENGTH]]));
        let (third, _) = current(Some(second), 1000 + 2 * DAY, &[3; LENGTH]);
        assert_eq!(octets(&third), Some(vec![vec![3; LENGTH], vec![2; LENGTH]]));
        let (back, is_new) = current(Some(third.clone()), 5, &[4; LENGTH]);
        assert!(!is_new && back == third, "a clock that was set back replaces nothing");
    }

    #[test]
    fn a_file_that_says_something_else_counts_as_none() {
        let path = std::env::temp_dir().join(format!("holdfast-seeds-{}", std::process::id()));
        let (kept, _) = current(None, 7, &[9; LENGTH]);
        write(&path, &kept).expect("written");
        assert!(read(&path).is_some_and(|read| read == kept));
        for text in ["", "{}", "{\"made\":1,\"seeds\":[]}", "{\"made\":1,\"seeds\":[\"00\"]}"] {
            std::fs::write(&path, text).expect("written");
            assert!(read(&path).is_none(), "{text}");
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(read(&path).is_none());
    }
}
