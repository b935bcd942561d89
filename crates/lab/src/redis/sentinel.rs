//! Two servers and somebody who promotes the second when the first has died: Redis Sentinel.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{PORT, PROGRAM, Redis};
use crate::{
    netns::{Namespace, output},
    topology::{Side, join, v4},
    wait,
};

/// The network between both servers.
const NETWORK: u8 = 20;
/// Where the sentinel listens.
const SENTINEL_PORT: &str = "26379";
/// How long anything of it may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A master, a replica, and a sentinel beside the replica. The hosts come last: they are used by the others.
#[derive(Debug)]
pub struct Pair {
    /// What is the master at first.
    pub first: Redis,
    /// What is promoted.
    pub second: Redis,
    sentinel: Child,
    directory: PathBuf,
    second_host: Namespace,
    _first_host: Namespace,
}

impl Pair {
    /// Starts all, and waits until the sentinel knows the replica, and the replica has what the master has.
    ///
    /// # Errors
    /// It does not come about.
    pub fn start() -> Result<Self> {
        let (first_host, second_host) = (Namespace::new("master")?, Namespace::new("replica")?);
        join(NETWORK, &first_host, &second_host)?;
        let (master, port) = (v4(NETWORK, Side::First).to_string(), PORT.to_string());
        let first = Redis::start(Some(&first_host), &[])?;
        let second = Redis::start(Some(&second_host), &["--replicaof", &master, &port])?;
        let directory = std::env::temp_dir().join(format!("{}-sentinel", second_host.name()));
        fs::create_dir_all(&directory)?;
        let file = directory.join("sentinel.conf");
        fs::write(
            &file,
            format!(
                "port {SENTINEL_PORT}\nprotected-mode no\ndir {}\nsentinel monitor store {master} {port} 1\n\
                 sentinel down-after-milliseconds store 500\nsentinel failover-timeout store 5000\n",
                directory.display()
            ),
        )?;
        let program = std::env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into());
        let mut command = second_host.command(program);
        command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let sentinel = command.spawn().context("starting the sentinel")?;
        let pair = Self { first, second, sentinel, directory, second_host, _first_host: first_host };
        let replica = v4(NETWORK, Side::Second).to_string();
        wait::until("the sentinel", LIMIT, || {
            let known =
                pair.sentinel(&["SENTINEL", "REPLICAS", "store"]).map_err(|error| error.to_string())?;
            let role = pair.second.cli(&["ROLE"]).map_err(|error| error.to_string())?;
            let is_there = known.contains(&replica) && role.contains("connected");
            if is_there { Ok(()) } else { Err(format!("{role} {known}")) }
        })?;
        Ok(pair)
    }

    fn sentinel(&self, words: &[&str]) -> Result<String> {
        output(self.second_host.command("redis-cli").args(["-p", SENTINEL_PORT]).args(words))
    }

    /// From now on nothing comes from the master to the replica, or does again.
    ///
    /// # Errors
    /// There are no rules here.
    pub fn part(&self, parts: bool) -> Result<()> {
        let master = v4(NETWORK, Side::First).to_string();
        let action = if parts { "-I" } else { "-D" };
        output(self.second_host.command("iptables").args([action, "INPUT", "-s", &master, "-j", "DROP"]))?;
        Ok(())
    }

    /// Waits until the second server is the master.
    ///
    /// # Errors
    /// It was not promoted.
    pub fn until_promoted(&self) -> Result<()> {
        self.until_role(&self.second, "master")
    }

    /// Makes the first server, started again, a replica of the second, as the sentinel does within half a minute.
    ///
    /// # Errors
    /// It is not.
    pub fn degrade(&self) -> Result<()> {
        self.first.cli(&["REPLICAOF", &v4(NETWORK, Side::Second).to_string(), &PORT.to_string()])?;
        self.until_role(&self.first, "slave")
    }

    fn until_role(&self, server: &Redis, wanted: &str) -> Result<()> {
        wait::until(wanted, LIMIT, || {
            let role = server.cli(&["ROLE"]).map_err(|error| error.to_string())?;
            if role.starts_with(wanted) { Ok(()) } else { Err(role) }
        })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = (self.sentinel.kill(), self.sentinel.wait());
        let _ = fs::remove_dir_all(&self.directory);
    }
}
