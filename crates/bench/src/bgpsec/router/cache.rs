//! A cache that says what it is told to, when it is told to: how long a change takes is counted from that moment.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use holdfast_lab::netns::Namespace;
use holdfast_rtr::{Cache, CacheConfig, Connection, Dataset, Reply};
use holdfast_rtr_wire::Serial;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::sleep_until,
};

/// Longer than anything that is measured.
const FOR_EVER: Duration = Duration::from_secs(86400);

/// It listens until this is dropped.
pub(super) struct RtrCache {
    cache: Arc<Mutex<Cache>>,
    change: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl RtrCache {
    /// Serves one router at a time at an address of this host, with nothing to say yet.
    pub(super) fn start(host: &Namespace, address: SocketAddr) -> Result<Self> {
        let config = CacheConfig { notify: Duration::ZERO, ..CacheConfig::default() };
        let cache = Arc::new(Mutex::new(Cache::new(config, 1, Serial(1))));
        let (change, changed) = watch::channel(());
        let shared = Arc::clone(&cache);
        let thread = host.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(listen(address, &shared, changed))
        })?;
        Ok(Self { cache, change: Some(change), thread: Some(thread) })
    }

    /// What it has from now on; when routers hear of it at the earliest.
    pub(super) fn publish(&self, data: Dataset) -> Instant {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).publish(data);
        let now = Instant::now();
        self.change.iter().for_each(|change| change.send_replace(()));
        now
    }
}

impl Drop for RtrCache {
    fn drop(&mut self) {
        drop(self.change.take());
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the cache: {error:#}");
        }
    }
}

async fn listen(address: SocketAddr, cache: &Mutex<Cache>, mut changed: watch::Receiver<()>) -> Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening at {address}"))?;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // Whoever goes may come again.
                let _ = serve(accepted?.0, cache, changed.clone()).await;
            }
            over = changed.changed() => if over.is_err() { return Ok(()) },
        }
    }
}

async fn serve(mut stream: TcpStream, cache: &Mutex<Cache>, mut changed: watch::Receiver<()>) -> Result<()> {
    stream.set_nodelay(true)?;
    let locked = || cache.lock().unwrap_or_else(PoisonError::into_inner);
    let mut connection = Connection::new(Instant::now());
    let mut octets = vec![0; 4096];
    loop {
        let reply = connection.poll_reply(&mut locked(), Instant::now());
        match reply {
            Some(Reply::Send(octets)) => {
                stream.write_all(&octets).await?;
                connection.handle_timeout(Instant::now());
            }
            Some(Reply::Close) => return Ok(()),
            None => {
                let due = connection.poll_timeout(&locked()).unwrap_or_else(|| Instant::now() + FOR_EVER);
                tokio::select! {
                    read = stream.read(&mut octets) => match read? {
                        0 => return Ok(()),
                        length => connection.received(&mut locked(), &octets[..length], Instant::now()),
                    },
                    change = changed.changed() => change?,
                    () = sleep_until(due.into()) => connection.handle_timeout(Instant::now()),
                }
            }
        }
    }
}
