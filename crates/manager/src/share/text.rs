//! What is told of a configuration, and what becomes of what is told.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::SystemTime,
};

use holdfast_api::shared::v1::Configuration;
use holdfast_config::{Config, shared::Shared};
use holdfast_tls::Sealing;
use holdfast_xrl::XrlError;
use tokio::sync::Notify;

use crate::text::Text;

/// What is known of what others know.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// What was last said to run here, and to which process; `None`: it has to be said anew.
    pub(super) said: Cell<Option<(u32, u64)>>,
    /// What runs here may be another one.
    pub(super) changed: Notify,
    /// Of the text that runs.
    pub(super) own: RefCell<Option<Own>>,
    /// The greatest serial that was made here.
    made: Cell<u64>,
    /// The greatest one that was opened here: what is older is not taken.
    pub(super) taken: Cell<u64>,
}

/// A message, and what it was made of.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) text: Arc<Text>,
    pub(super) config: Arc<Config>,
    pub(super) message: Configuration,
}

impl Sharing {
    /// Another text may run, or what was to run does not.
    pub(crate) fn may_differ(&self) {
        self.said.take();
        // Others take it for a new one, if they have had another one meanwhile.
        self.own.take();
        self.changed.notify_one();
    }

    /// Whether a serial that was made is less than one that others know. Then the next one is greater.
    pub(super) fn is_behind(&self, made: u64, known: u64) -> bool {
        let is_behind = made < known;
        if is_behind {
            self.made.set(self.made.get().max(known));
            self.own.take();
        }
        is_behind
    }

    /// A serial that is greater than all before, of the other router, too, as far as they were seen here.
    pub(super) fn next_serial(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.made.set(now.max(self.made.get().max(self.taken.get()).saturating_add(1)));
        self.made.get()
    }
}

/// What others can read who have the same secret; nobody without one.
pub(super) fn sealing(config: &Config) -> Option<Sealing> {
    config.store.as_ref()?.key.as_ref().map(|key| Sealing::new(&key.contents))
}

pub(super) fn internal(error: impl std::fmt::Display) -> XrlError {
    XrlError::internal(error.to_string())
}

/// What is told of a configuration.
pub(super) fn message(text: &str, config: &Config, serial: u64) -> Result<Configuration, XrlError> {
    let sealing = sealing(config);
    let shared = Shared::of(text, sealing.as_ref().map(Sealing::hash_key)).map_err(internal)?;
    let seal = |sealing: Sealing| sealing.seal(&context(shared.number, serial), shared.text.as_bytes());
    let sealed = sealing.map(seal).transpose().map_err(|_| internal("no random numbers"))?;
    Ok(Configuration { number: shared.number, sealed: sealed.unwrap_or_default(), serial })
}

/// A text is opened only as what it was sealed as.
fn context(number: u64, serial: u64) -> [u8; 16] {
    let both = u128::from(number) << 64 | u128::from(serial);
    both.to_le_bytes()
}

/// The number of what is shared, by the key of another configuration.
pub(super) fn number(text: &str, key_of: &Config) -> Result<u64, XrlError> {
    let key = sealing(key_of).map(|sealing| sealing.hash_key());
    Ok(Shared::of(text, key).map_err(internal)?.number)
}

/// The text of this router with what another one shares.
pub(super) fn merged(own: &str, theirs: &Configuration, sealing: &Sealing) -> Result<String, String> {
    let text = sealing.open(&context(theirs.number, theirs.serial), &theirs.sealed);
    let text = text.and_then(|octets| String::from_utf8(octets).ok());
    let text = text.ok_or("the other router has another secret in its `key-file`")?;
    let shared = Shared { number: theirs.number, text };
    let merged = shared.put_into(own).map_err(|error| error.to_string())?;
    let found = Shared::of(&merged, Some(sealing.hash_key())).map_err(|error| error.to_string())?;
    let is_same = found.number == theirs.number;
    is_same.then_some(merged).ok_or_else(|| "it is of a build that shares something else".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "[log]\nlevel = \"warn\"\n[router]\nid = \"10.0.0.1\"\nasn = 65001\n";
    const THEIRS: &str = "[router]\nid = \"10.0.0.1\"\nasn = 65002\n[metrics]\n";

    fn sealed(text: &str, sealing: &Sealing) -> Configuration {
        let shared = Shared::of(text, Some(sealing.hash_key())).expect("TOML");
        let sealed =
            sealing.seal(&context(shared.number, 3), shared.text.as_bytes()).expect("random numbers");
        Configuration { number: shared.number, sealed, serial: 3 }
    }

    #[test]
    fn what_another_router_shares_takes_the_place_of_ours() {
        let sealing = Sealing::new(b"a secret of both");
        let theirs = sealed(THEIRS, &sealing);
        let text = merged(OWN, &theirs, &sealing).expect("merged");
        assert!(text.contains("65002") && text.contains("warn") && !text.contains("metrics"), "{text}");
        assert!(!text.contains("65001"), "{text}");
        merged(OWN, &theirs, &Sealing::new(b"another secret!!")).expect_err("it cannot be read");
        let later = Configuration { serial: 4, ..theirs.clone() };
        merged(OWN, &later, &sealing).expect_err("it is passed off as a later one");
        let other = Configuration { number: theirs.number ^ 1, ..theirs };
        merged(OWN, &other, &sealing).expect_err("it is passed off as another one");
        // Somebody with the secret who shares other tables.
        let (number, octets) = (theirs_number(&sealing) ^ 1, THEIRS.as_bytes());
        let other = Configuration {
            number,
            sealed: sealing.seal(&context(number, 3), octets).expect("sealed"),
            serial: 3,
        };
        let why = merged(OWN, &other, &sealing).expect_err("it is not what its number says");
        assert!(why.contains("another build") || why.contains("of a build"), "{why}");
    }

    #[test]
    fn serials_rise_whatever_the_clock_says() {
        let sharing = Sharing::default();
        let first = sharing.next_serial();
        assert!(sharing.next_serial() > first);
        assert!(!sharing.is_behind(first, first) && sharing.is_behind(first, 1 << 62));
        assert_eq!(sharing.next_serial(), (1 << 62) + 1);
        sharing.taken.set(u64::MAX - 1);
        assert_eq!(sharing.next_serial(), u64::MAX);
    }

    fn theirs_number(sealing: &Sealing) -> u64 {
        sealed(THEIRS, sealing).number
    }
}
