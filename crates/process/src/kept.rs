//! Descriptors that the keeper has for the next life of this process, by name: memory, sockets. They go with the router.

use std::{os::fd::OwnedFd, time::Duration};

use holdfast_api::keeper::v1::{Empty, GetRequest, KeeperClient, OnDeath, PutRequest};
use holdfast_xrl::XrlError;

/// The names of all that is kept for this process.
///
/// # Errors
/// As the keeper says.
pub async fn keys(keeper: &KeeperClient) -> Result<Vec<String>, XrlError> {
    Ok(keeper.list(Empty {}).await?.kept.into_iter().map(|kept| kept.key).collect())
}

/// A copy of what is kept under this name; `None`: nothing.
///
/// # Errors
/// As the keeper says.
pub async fn find(keeper: &KeeperClient, key: &str) -> Result<Option<OwnedFd>, XrlError> {
    if !keys(keeper).await?.iter().any(|kept| kept == key) {
        return Ok(None);
    }
    get(keeper, key).await
}

/// A copy of what is known to be kept under this name.
///
/// # Errors
/// As the keeper says, also that there is nothing.
pub async fn get(keeper: &KeeperClient, key: &str) -> Result<Option<OwnedFd>, XrlError> {
    let (_, descriptors) = keeper.get(GetRequest { key: key.to_owned() }).await?;
    Ok(descriptors.into_iter().next())
}

/// Keeps a descriptor in place of what has had the name: for so long after the death of this process, or for good.
///
/// # Errors
/// As the keeper says.
pub async fn put(
    keeper: &KeeperClient,
    key: String,
    descriptor: OwnedFd,
    hold: Option<Duration>,
) -> Result<(), XrlError> {
    let hold_milliseconds = hold.map_or(0, |hold| u64::try_from(hold.as_millis()).unwrap_or(u64::MAX));
    let on_death = OnDeath::Keep.into();
    let request = PutRequest { key, on_death, hold_milliseconds, ..PutRequest::default() };
    keeper.put(request, vec![descriptor]).await.map(|_| ())
}

/// Has the keeper close its copy, if it has one.
pub fn forget(keeper: &KeeperClient, key: String) {
    keeper.drop(GetRequest { key }).detach();
}
