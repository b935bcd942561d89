//! Random octets from which `transport` derives the keys that have to outlive it: those of tokens and of stateless resets.
//!
//! They are beside the history of the configuration. Once they are a day old others take their place, while the manager
//! runs as well as when one begins, and those before stay good for a day more: who listens gives no connection id a longer
//! life than that, so each one in use is of one of both.

pub(crate) mod beside;
pub(crate) mod rotation;

use std::{
    cell::RefCell,
    io,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::warn;

use crate::file;

/// Octets of a seed.
const LENGTH: usize = 64;
/// From this age on there is a new one.
const OLD: Duration = holdfast_tls::Seeds::LIFETIME;

/// What the file says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Kept {
    /// Seconds since 1970 when the current one was made.
    made: u64,
    /// The current one and the one before, in hexadecimal.
    seeds: Vec<String>,
}

/// What the manager holds of them; nothing as long as nobody needs any.
#[derive(Default)]
pub(crate) struct Seeds {
    held: RefCell<Option<Held>>,
    /// There are some now.
    begun: Notify,
}

/// Seeds, and when others take their place.
struct Held {
    kept: Kept,
    due: Instant,
}

impl Held {
    /// Begins with what was found, if it is not old; and whether it is something new. By a clock that was set back it would
    /// be young for long, by the one that only runs it is not.
    fn begin(found: Option<Kept>, made: u64, now: Instant, fresh: &[u8; LENGTH]) -> (Self, bool) {
        let (kept, is_new) = current(found, made, fresh);
        let age = Duration::from_secs(made.saturating_sub(kept.made));
        (Self { kept, due: now + OLD.saturating_sub(age) }, is_new)
    }

    /// Others take their place if that is due; whether it was.
    fn rotate(&mut self, made: u64, now: Instant, fresh: &[u8; LENGTH]) -> bool {
        let is_due = self.due <= now;
        if is_due {
            self.kept = next(Some(&self.kept), made, fresh);
            self.due = now + OLD;
        }
        is_due
    }
}

fn say_not_kept(why: &str) {
    warn!(event = "seeds-not-kept", "keys of QUIC do not outlive this router: {why}");
}

fn fresh() -> Result<[u8; LENGTH], String> {
    let mut fresh = [0; LENGTH];
    match getrandom(&mut fresh, GetRandomFlags::empty()) {
        Ok(LENGTH) => Ok(fresh),
        _ => Err("the kernel has no random numbers".to_owned()),
    }
}

fn since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// What a file says; nothing if there is none, or it says something else.
fn read(file: &Path) -> Option<Kept> {
    let text = holdfast_sys::file::text(file).ok()?;
    let kept: Option<Kept> = serde_json::from_str(&text).ok();
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
        found => (next(found.as_ref(), now, fresh), true),
    }
}

/// A new one, and the one that was current.
fn next(before: Option<&Kept>, made: u64, fresh: &[u8; LENGTH]) -> Kept {
    let before = before.and_then(|kept| kept.seeds.first().cloned());
    Kept { made, seeds: std::iter::once(hexadecimal(fresh)).chain(before).collect() }
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
    fn they_rotate_when_they_are_a_day_old_by_the_clock_that_only_runs() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let found = current(None, 1000, &[1; LENGTH]).0;
        // Six hours old, so due in eighteen.
        let (mut held, is_new) = Held::begin(Some(found), 1000 + DAY / 4, begin, &[9; LENGTH]);
        assert!(!is_new && held.due == after(DAY / 4 * 3));
        assert!(!held.rotate(5000, after(DAY / 4 * 3 - 1), &[2; LENGTH]), "a second early");
        assert!(held.rotate(5000, after(DAY / 4 * 3), &[2; LENGTH]));
        assert_eq!(octets(&held.kept), Some(vec![vec![2; LENGTH], vec![1; LENGTH]]));
        // The other clock is set back by far: nothing comes earlier or later for that.
        assert!(!held.rotate(0, after(DAY / 4 * 7 - 1), &[3; LENGTH]));
        assert!(held.rotate(0, after(DAY / 4 * 7), &[3; LENGTH]));
        assert_eq!(octets(&held.kept), Some(vec![vec![3; LENGTH], vec![2; LENGTH]]));
    }

    #[test]
    fn what_seems_to_be_of_the_future_rotates_in_a_day() {
        let begin = Instant::now();
        let found = current(None, 1000 * DAY, &[1; LENGTH]).0;
        let (held, is_new) = Held::begin(Some(found), 7, begin, &[9; LENGTH]);
        assert!(!is_new && held.due == begin + OLD);
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
