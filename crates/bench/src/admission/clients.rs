//! Honest clients, on the transport API with noq whatever the server has.

use std::{
    cell::Cell,
    future::poll_fn,
    net::{SocketAddr, UdpSocket},
    task::Poll,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use holdfast_tls::{
    Identity, PeerTls, Seeds, Trust,
    keys::{Algorithm, PrivateKey, Validity, self_signed},
};
use holdfast_transport::{Connection, Expected, Failure, noq::Endpoint};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, split},
    runtime::{Builder, Runtime},
    task::LocalSet,
    time::{sleep, timeout},
};

use super::{
    attacker::Ammunition,
    cases::{PEER, STRANGER},
    server::{CERTIFICATE, CLIENT, KEY},
};

/// Clients at once.
const AT_ONCE: usize = 16;
/// Different ClientHellos.
const HELLOS: usize = 500;
/// Octets there and back.
const LITTLE: usize = 64;
/// Octets of a transfer.
const MUCH: usize = 1 << 20;
/// ClientHellos of strangers for each client.
const SPAM: usize = 100;
/// ClientHellos of strangers in a second.
pub(super) const STORM: u32 = 10_000;
/// Whoever has not been served by then was not served.
const PATIENCE: Duration = Duration::from_secs(20);
/// Until what was said last is on its way.
const PARTING: Duration = Duration::from_millis(50);

/// What has become of what was sent.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) asked: u32,
    pub(super) served: u32,
    pub(super) attacks: u64,
    pub(super) attacked: Duration,
}

impl Outcome {
    pub(super) fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.served += other.served;
        self.attacks += other.attacks;
        self.attacked += other.attacked;
    }

    /// How many came in a second, while there was an attack.
    pub(super) fn attacks_per_s(&self) -> f64 {
        self.attacks as f64 / self.attacked.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// A key pair with its certificate.
struct Keys {
    key: PrivateKey,
    certificate: Vec<u8>,
}

impl Keys {
    fn new(name: &str) -> Result<Self> {
        let key = PrivateKey::generate(Algorithm::P256)?;
        let certificate = self_signed(&key, &[name.to_owned()], Validity::days(2))?;
        Ok(Self { key, certificate })
    }
}

pub(super) struct Clients {
    server: Keys,
    own: Keys,
    expected: Expected,
    runtime: Runtime,
}

impl Clients {
    pub(super) fn new() -> Result<Self> {
        let (server, own) = (Keys::new("server.example")?, Keys::new("client.example")?);
        let identity = Identity::new(std::slice::from_ref(&own.certificate), own.key.der())?;
        let trust = Trust { pins: vec![server.key.fingerprint()], ..Trust::default() };
        let tls = PeerTls::new(&identity, &trust, None)?;
        let expected =
            Expected { peer: "server".to_owned(), tls: Some(tls), idle: PATIENCE, ttl_security: false };
        Ok(Self { server, own, expected, runtime: Builder::new_current_thread().enable_all().build()? })
    }

    /// Who the server is, and whom it knows.
    pub(super) fn server_environment(&self) -> [(&'static str, String); 3] {
        [
            (CERTIFICATE, digits(&self.server.certificate)),
            (KEY, digits(self.server.key.der())),
            (CLIENT, digits(&self.own.key.fingerprint())),
        ]
    }

    /// ClientHellos, each in a datagram and each another one.
    pub(super) fn hellos(&self) -> Result<Ammunition> {
        self.run(async |endpoint, expected| {
            let mut hellos = Vec::new();
            for _ in 0..HELLOS {
                let nobody = tokio::net::UdpSocket::bind((PEER, 0)).await?;
                let mut datagram = vec![0; 2048];
                tokio::select! {
                    dialed = endpoint.connect(nobody.local_addr()?, None, expected) => {
                        bail!("somebody has answered: {dialed:?}");
                    }
                    length = nobody.recv(&mut datagram) => datagram.truncate(length?),
                }
                hellos.push(datagram);
            }
            Ok(Ammunition::new(hellos))
        })
    }

    /// Clients who are refused, once they have proven their address.
    pub(super) fn refused(&self, to: SocketAddr, count: u32) -> Result<Outcome> {
        self.run(async |endpoint, expected| {
            let outcome = many(count, async || match endpoint.connect(to, None, expected).await {
                Err(Failure::Refused(_)) => Ok(()),
                other => bail!("it should be refused: {other:?}"),
            });
            outcome.await
        })
    }

    /// Clients who connect, and get back what they say.
    pub(super) fn open(&self, to: SocketAddr, count: u32) -> Result<Outcome> {
        self.run(async |endpoint, expected| {
            many(count, async || once(endpoint, to, expected, LITTLE).await).await
        })
    }

    /// Who says something again and again.
    pub(super) fn echo(&self, to: SocketAddr, count: u32) -> Result<Outcome> {
        self.run(async |endpoint, expected| {
            let mut connection = endpoint.connect(to, None, expected).await?;
            let mut served = 0;
            for _ in 0..count {
                there_and_back(&mut connection, LITTLE).await?;
                served += 1;
            }
            connection.control.close(0, "");
            Ok(Outcome { asked: count, served, ..Outcome::default() })
        })
    }

    /// As [`Self::open`], one after the other, each among many strangers.
    pub(super) fn open_among(&self, to: SocketAddr, count: u32, hellos: &Ammunition) -> Result<Outcome> {
        let socket = UdpSocket::bind((STRANGER, 0))?;
        let begin = std::time::Instant::now();
        let mut outcome = self.run(async |endpoint, expected| {
            let mut outcome = Outcome::default();
            for _ in 0..count {
                let spam = async {
                    for number in 0..SPAM {
                        outcome.attacks += u64::from(hellos.one(&socket, to, outcome.attacks as usize));
                        if number % 10 == 9 {
                            tokio::task::yield_now().await;
                        }
                    }
                };
                let (served, ()) = tokio::join!(once(endpoint, to, expected, LITTLE), spam);
                outcome.asked += 1;
                outcome.served += u32::from(served.is_ok());
            }
            Ok(outcome)
        })?;
        outcome.attacked = begin.elapsed();
        Ok(outcome)
    }

    /// Who send much and get it back, one after the other, in a storm.
    pub(super) fn transfer_under(&self, to: SocketAddr, count: u32, hellos: &Ammunition) -> Result<Outcome> {
        let attack = hellos.keep_firing(STRANGER, to, STORM)?;
        let outcome = self.run(async |endpoint, expected| {
            let mut outcome = Outcome::default();
            for _ in 0..count {
                outcome.asked += 1;
                outcome.served += u32::from(once(endpoint, to, expected, MUCH).await.is_ok());
            }
            Ok(outcome)
        });
        let storm = attack.call_off();
        let outcome = outcome?;
        Ok(Outcome { asked: outcome.asked, served: outcome.served, ..storm })
    }

    /// With an endpoint of its own.
    fn run<T>(&self, story: impl AsyncFnOnce(&Endpoint, &Expected) -> Result<T>) -> Result<T> {
        LocalSet::new().block_on(&self.runtime, async {
            let endpoint = Endpoint::new(UdpSocket::bind((PEER, 0))?, &Seeds::random())?;
            let result = story(&endpoint, &self.expected).await;
            sleep(PARTING).await;
            result
        })
    }
}

/// So many, a few at once; whoever fails was not served.
async fn many(count: u32, client: impl AsyncFn() -> Result<()>) -> Result<Outcome> {
    let left = Cell::new(count);
    let served = Cell::new(0);
    let worker = async || {
        while let Some(rest) = left.get().checked_sub(1) {
            left.set(rest);
            let was_served = client().await.is_ok();
            served.set(served.get() + u32::from(was_served));
        }
    };
    let mut workers: Vec<_> = (0..AT_ONCE).map(|_| Box::pin(worker())).collect();
    poll_fn(|cx| {
        workers.retain_mut(|worker| worker.as_mut().poll(cx).is_pending());
        if workers.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    Ok(Outcome { asked: count, served: served.get(), ..Outcome::default() })
}

/// Connects, sends so many octets, and gets them back.
async fn once(endpoint: &Endpoint, to: SocketAddr, expected: &Expected, octets: usize) -> Result<()> {
    let served = async {
        let mut connection = endpoint.connect(to, None, expected).await?;
        there_and_back(&mut connection, octets).await?;
        connection.control.close(0, "");
        Ok(())
    };
    timeout(PATIENCE, served).await.context("it takes too long")?
}

async fn there_and_back(connection: &mut Connection, octets: usize) -> Result<()> {
    let sent = vec![0x5a; octets];
    let mut back = vec![0; octets];
    let (mut from, mut to) = split(&mut connection.stream);
    let (written, read) = tokio::join!(to.write_all(&sent), from.read_exact(&mut back));
    written?;
    read?;
    ensure!(sent == back, "it is not what was sent");
    Ok(())
}

fn digits(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
