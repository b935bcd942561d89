//! Waiting for a state of the world, with a limit.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Asks every 20 ms until `probe` says `Ok(value)`; after `limit` fails with the last thing it said.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<T, String>) -> Result<T> {
    let start = Instant::now();
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(last) if start.elapsed() > limit => {
                bail!("{what}: not within {} s; last seen: {last}", limit.as_secs())
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
