//! A client that follows a session as a routing protocol does: `holdfast call` at the socket of the protocol `lab`.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    router::{Router, binary},
    wait,
};

/// The follower. It dies when it is dropped, so its session is kept for its next life.
#[derive(Debug)]
pub struct Follower {
    child: Child,
    said: Arc<Mutex<Vec<Value>>>,
}

impl Follower {
    /// Follows the session of a request, as `holdfast call` writes it: `remote:ip=10.0.1.2&profile=fast`.
    ///
    /// # Errors
    /// The program does not start. What the router refuses is in [`Self::states`].
    pub fn start(router: &Router, request: &str) -> Result<Self> {
        let directory = router.directory().join("lab");
        if !directory.exists() {
            fs::create_dir(&directory)?;
            symlink("../protocol-lab.sock", directory.join("holdfast.sock"))?;
        }
        let mut command = Command::new(binary()?);
        command.args(["call", &format!("bfd/bfd.v1/Follow?{request}"), "--json"]);
        command.env("HOLDFAST_RUNTIME_DIR", directory).stdin(Stdio::null()).stdout(Stdio::piped());
        // It says so when the router ends.
        command.stderr(Stdio::null());
        let mut child = command.spawn().context("holdfast call")?;
        let lines = BufReader::new(child.stdout.take().context("standard output")?).lines();
        let said = Arc::<Mutex<Vec<Value>>>::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Self { child, said })
    }

    /// All that it was told, in order.
    pub fn said(&self) -> Vec<Value> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The states that it was told, in order, each once in a row.
    pub fn states(&self) -> Vec<String> {
        let name = |said: &Value| said["state"].as_str().unwrap_or("ADMIN_DOWN").to_owned();
        let mut states: Vec<_> = self.said().iter().map(name).collect();
        states.dedup();
        states
    }

    /// Waits until the last state that it was told is this one.
    ///
    /// # Errors
    /// It is not in time.
    pub fn until(&self, state: &str, limit: Duration) -> Result<()> {
        wait::until(&format!("a follower told {state}"), limit, || {
            let states = self.states();
            if states.last().is_some_and(|last| last == state) { Ok(()) } else { Err(format!("{states:?}")) }
        })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
