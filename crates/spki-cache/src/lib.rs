//! `holdfast spki-cache`: gives routers what is in a directory, over the RPKI-to-Router protocol.
//!
//! The SPKI cache of the thesis on BGPsec for FRR grown up: keys of `holdfast keygen` and certificates, VRPs and ASPAs as
//! relying parties write them, local exceptions. It looks at the directory now and then and tells routers what has
//! changed. A change counts as a whole: while a file is broken, all is as it was before.
//!
//! It validates nothing: what is in the directory is said. The protocol itself is in `holdfast-rtr`.

mod folder;
mod json;
mod serve;

use std::{
    cell::RefCell,
    hash::{BuildHasher as _, RandomState},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use clap::{Args, value_parser};
use holdfast_process::log;
use holdfast_rtr::{Cache, CacheConfig, Counts, Dataset};
use holdfast_rtr_wire::{Serial, Timing, Version};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::{LocalSet, spawn_blocking, spawn_local},
};
use tracing::{info, warn};

use folder::{Broken, Folder};
use serve::Shared;

/// `holdfast spki-cache`
#[derive(Args)]
pub struct SpkiCache {
    /// What routers are told: keys as `holdfast keygen` makes them, certificates of routers, VRPs and ASPAs in JSON
    /// as rpki-client writes them, SLURM files.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where routers connect; may be given several times. The protocol's own port is 323.
    #[arg(short, long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8282")]
    listen: Vec<SocketAddr>,
    /// How often the directory is looked at, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = value_parser!(u64).range(1..=86400))]
    look: u64,
    /// After how many seconds routers are to ask again.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = value_parser!(u32).range(1..=86400))]
    refresh: u32,
    /// After how many seconds they are to try again.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = value_parser!(u32).range(1..=7200))]
    retry: u32,
    /// For how many seconds they may go on with what they have if they hear nothing.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, value_parser = value_parser!(u32).range(600..=172_800))]
    expire: u32,
    /// Seconds between two words to a router that there is something new; the protocol wants 60 at least.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(0..=86400))]
    notify: u64,
    /// The highest version of the protocol that is spoken: 0, 1 (router keys) or 2 (ASPAs).
    #[arg(long, value_name = "VERSION", default_value_t = 2, value_parser = value_parser!(u8).range(0..=2))]
    protocol: u8,
    /// How many routers may be connected.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Only read the directory, and say what is in it.
    #[arg(long)]
    check: bool,
}

impl SpkiCache {
    /// Serves until it is stopped. Exit code 1: the directory cannot be used, or nobody can connect.
    pub fn run(self) -> ExitCode {
        log::start("spki-cache", "info", "text");
        match self.serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("holdfast: {why}");
                ExitCode::FAILURE
            }
        }
    }

    fn serve(self) -> Result<(), String> {
        if self.expire <= self.refresh || self.expire <= self.retry {
            return Err("--expire must be more than --refresh and --retry (RFC 8210 section 6)".into());
        }
        let mut folder = Folder::new(self.directory.clone());
        let data = folder.look().unwrap_or_else(|| Ok(Dataset::default())).map_err(listed)?;
        let counts = told(data.counts());
        if self.check {
            println!("{counts}");
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let mut cache = Cache::new(self.config(), RandomState::new().hash_one(()) as u16, Serial(1));
        cache.publish(data);
        info!(directory = %self.directory.display(), "{counts}");
        LocalSet::new().block_on(&runtime, self.routers(folder, cache))
    }

    fn config(&self) -> CacheConfig {
        CacheConfig {
            version: Version::from_octet(self.protocol).unwrap_or(Version::LATEST),
            timing: Timing { refresh: self.refresh, retry: self.retry, expire: self.expire },
            notify: Duration::from_secs(self.notify),
            ..CacheConfig::default()
        }
    }

    async fn routers(&self, folder: Folder, cache: Cache) -> Result<(), String> {
        let (change, changed) = watch::channel(());
        let room = Arc::new(Semaphore::new(self.clients as usize));
        let shared = Shared { cache: Rc::new(RefCell::new(cache)), changed, room };
        for address in &self.listen {
            let listener = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
            let bound = listener.local_addr().map_err(|error| format!("{address}: {error}"))?;
            info!(address = %bound, "routers can connect");
            spawn_local(serve::listen(listener, shared.clone()));
        }
        tokio::select! {
            () = self.look(folder, &shared, &change) => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        Ok(())
    }

    /// Looks at the directory for ever.
    async fn look(&self, mut folder: Folder, shared: &Shared, change: &watch::Sender<()>) {
        loop {
            tokio::time::sleep(Duration::from_secs(self.look)).await;
            let looked = spawn_blocking(move || {
                let found = folder.look();
                (folder, found)
            });
            let found = match looked.await {
                Ok((same, found)) => {
                    folder = same;
                    found
                }
                // It has panicked, which nothing in it may; there is nothing to go on with.
                Err(error) => return warn!("the directory is not looked at any more: {error}"),
            };
            match found {
                Some(Ok(data)) => publish(shared, change, data),
                Some(Err(broken)) => {
                    for (file, why) in broken {
                        warn!(file = %file.display(), "not used, and all is as it was before: {why}");
                    }
                }
                None => {}
            }
        }
    }
}

fn publish(shared: &Shared, change: &watch::Sender<()>, data: Dataset) {
    let counts = told(data.counts());
    let mut cache = shared.cache.borrow_mut();
    if cache.publish(data) {
        info!(serial = cache.serial().0, "{counts}");
        drop(cache);
        // Somebody hears it: a receiver is in `shared`.
        let _ = change.send(());
    }
}

fn told(counts: Counts) -> String {
    let Counts { ipv4, ipv6, router_keys, aspas } = counts;
    format!("{router_keys} router keys, {ipv4} IPv4 and {ipv6} IPv6 VRPs, {aspas} ASPAs")
}

fn listed(broken: Broken) -> String {
    let lines: Vec<String> = broken.iter().map(|(file, why)| format!("{}: {why}", file.display())).collect();
    lines.join("\n")
}
