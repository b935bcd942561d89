//! Seeds are kept beside the history of the configuration.

use std::time::Instant;

use super::{Held, Kept, LENGTH, fresh, octets, read, say_not_kept, since_1970, write};
use crate::{history::History, manager::Manager};

/// The seeds, the current one first.
pub(crate) fn of(manager: &Manager) -> Vec<Vec<u8>> {
    let mut held = manager.seeds.held.borrow_mut();
    if held.is_none() {
        match fresh() {
            Ok(fresh) => {
                *held = Some(load(manager, &fresh));
                manager.seeds.begun.notify_one();
            }
            Err(error) => say_not_kept(&error),
        }
    }
    held.as_ref().and_then(|held| octets(&held.kept)).unwrap_or_default()
}

fn load(manager: &Manager, fresh: &[u8; LENGTH]) -> Held {
    let file = manager.history().ok().map(|history| history.seeds());
    let (held, is_new) = Held::begin(file.as_deref().and_then(read), since_1970(), Instant::now(), fresh);
    if is_new {
        keep(manager, &held.kept);
    }
    held
}

/// Puts them on the disk. Without that the router is as good as with it, until it is started again.
pub(super) fn keep(manager: &Manager, kept: &Kept) {
    let written =
        manager.history().map_err(|error| error.message().to_owned()).and_then(|history: History| {
            history.make().and_then(|()| write(&history.seeds(), kept)).map_err(|error| error.to_string())
        });
    if let Err(error) = written {
        say_not_kept(&format!("they cannot be kept beside the configuration: {error}"));
    }
}
