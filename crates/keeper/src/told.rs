//! Kept descriptors as `keeper.v1` tells of them.

use std::{os::fd::OwnedFd, time::Duration};

use holdfast_api::keeper::v1 as api;
use holdfast_xrl::{MAX_FDS, XrlError};

use crate::{
    service::milliseconds,
    store::{Kept, OnDeath},
};

/// A hold time from which on a descriptor is kept for ever.
const LONGEST_HOLD: Duration = Duration::from_secs(365 * 86_400);

/// Copies of what is under these keys, as `get` finds them.
pub(crate) fn copies(
    keys: &[String],
    mut get: impl FnMut(&str) -> Option<std::io::Result<OwnedFd>>,
) -> Result<(api::GetManyReply, Vec<OwnedFd>), XrlError> {
    if keys.len() > MAX_FDS {
        return Err(XrlError::invalid_argument(format!("more than {MAX_FDS} keys at a time")));
    }
    let (mut found, mut copies) = (Vec::new(), Vec::new());
    for key in keys {
        let copy = get(key).transpose().map_err(|error| XrlError::unavailable(error.to_string()))?;
        found.push(copy.is_some());
        copies.extend(copy);
    }
    Ok((api::GetManyReply { found }, copies))
}

/// What becomes of a descriptor, as it was asked for.
pub(crate) fn on_death(on_death: api::OnDeath, hold_milliseconds: u64) -> OnDeath {
    match on_death {
        api::OnDeath::Close => OnDeath::Close,
        api::OnDeath::Keep => OnDeath::Keep(match hold_milliseconds {
            0 => None,
            // As long as that is for ever, and a time beyond what the clock can hold must not be.
            hold => Some(Duration::from_millis(hold)).filter(|hold| *hold < LONGEST_HOLD),
        }),
    }
}

/// What is kept, as it is told.
pub(crate) fn describe(owner: &str, key: &str, kept: &Kept) -> api::Kept {
    let (on_death, hold) = match kept.on_death {
        OnDeath::Close => (api::OnDeath::Close, None),
        OnDeath::Keep(hold) => (api::OnDeath::Keep, hold),
    };
    api::Kept {
        owner: owner.to_owned(),
        key: key.to_owned(),
        on_death: on_death.into(),
        hold_milliseconds: hold.map_or(0, milliseconds),
        note: kept.note.clone(),
    }
}
