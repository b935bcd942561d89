//! What somebody does to the door who is no friend: everything that is bad input comes to a router that runs, and has a
//! session of somebody else, which must not notice.
//!
//! ```text
//!  good ──1── r0 ──3── third: late, or a feeder
//!  AS 65001   │        AS 65003
//!             └──2── bad
//!                     AS 65002
//! ```
//!
//! `bad` is configured, and has a certificate: what a stranger can do, it can do too.

mod client;
mod flight;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Error, Result, bail, ensure};
use holdfast_bgp_wire::{Origin, edit::AttributesBuilder};
use holdfast_lab::{
    keys::{Shown, Signer, now},
    netns::Namespace,
    router::{Files, Router},
    table::{AttributeSet, Table},
    topology::{Side, Star, v4},
    wait,
};
use holdfast_tls::{ALPN_TLS, PeerTls, rustls::ClientConnection};
use holdfast_types::Prefix;
use serde_json::Value;
use tokio::{net::TcpSocket, runtime::Builder, sync::oneshot};

use crate::abuse::{
    client::{ROUTER, Streams},
    flight::{Flight, Nobody, Retry},
};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Attempts of a flood.
const MANY: u64 = 10_000;
const MIB: u64 = 1 << 20;
/// RFC 9000 section 20.1.
const STREAM_LIMIT_ERROR: u64 = 4;

/// A peer over QUIC that connects to us.
fn peer(name: &str, number: u8) -> String {
    format!(
        r#"
[[bgp.peer]]
name = "{name}"
address = "10.0.{number}.2"
asn = 6500{number}
passive = true
transport = "quic"
tls-authorities = "authority.pem"
tls-name = "{name}.example"
import = "accept-all"
export = "accept-all"
"#
    )
}

fn configuration(rest: &str) -> String {
    let (good, bad) = (peer("good", 1), peer("bad", 2));
    format!(
        r#"
[router]
id = "10.0.0.1"
asn = 65000
[tls]
certificate = "certificate.pem"
key = "key.pem"
[bgp]
connect-retry = 1
hold-time = 9
[[bgp.network]]
prefix = "20.0.0.0/24"
{good}{bad}{rest}"#
    )
}

/// Where the router is for the host in a network, and that host.
fn ends(network: u8) -> (SocketAddr, SocketAddr) {
    ((v4(network, Side::First), 179).into(), (v4(network, Side::Second), 0).into())
}

/// Everything that runs. The session with `good` is up, and stays.
struct Scene {
    r0: Router,
    _good: Router,
    signer: Signer,
    bad: Shown,
    files: Files,
    star: Star,
    /// What there was of the session at first.
    before: Value,
}

impl Scene {
    fn start(rest: &str) -> Result<Self> {
        let star = Star::new(3)?;
        let signer = Signer::new("Lab CA")?;
        let bad = signer.sign("bad.example")?;
        let files = signer.files_of(&signer.sign(ROUTER)?);
        let r0 = Router::start_with_files(&star.router, &configuration(rest), &files)?;
        let good = neighbor(star.neighbor(1), &signer, "good", 1)?;
        let before = r0.until_established("good", LIMIT)?;
        Ok(Self { r0, _good: good, signer, bad, files, star, before })
    }

    fn reload(&self, rest: &str) -> Result<()> {
        self.r0.reload_with_files(&configuration(rest), &self.files).map(drop)
    }

    /// What `bad` knows of the router, as it should.
    fn tls(&self) -> Result<PeerTls> {
        self.bad.towards(&self.signer, ROUTER)
    }

    /// Nobody has noticed, and everybody who was let in is accounted for.
    fn ensure_unharmed(&self) -> Result<()> {
        self.ensure_it_adds_up()?;
        let now = self.r0.neighbor("good")?;
        for key in ["bgpState", "connectionsEstablished", "connectionsDropped"] {
            ensure!(now[key] == self.before[key], "{key}: {now}\n{}", self.r0.log_tail());
        }
        Ok(())
    }

    /// A number of all listeners of QUIC together.
    fn of_listeners(&self, number: impl Fn(&Value) -> u64) -> Result<u64> {
        let shown = self.r0.show(&["listeners"])?;
        let all = shown["listeners"].as_array().context("listeners")?;
        Ok(all.iter().filter(|listener| listener["protocol"] == "quic").map(number).sum())
    }

    fn handshakes(&self) -> Result<u64> {
        self.of_listeners(|listener| listener["handshakes"].as_u64().unwrap_or(0))
    }

    /// At each listener, whatever is under way: what has passed is the sum of what has become of it, and what the last
    /// stage says that it has passed.
    fn ensure_it_adds_up(&self) -> Result<()> {
        let shown = self.r0.show(&["listeners"])?;
        for listener in shown["listeners"].as_array().context("listeners")? {
            let count = |key: &str| listener[key].as_u64().with_context(|| format!("{key}: {listener}"));
            let parts = ["let_in", "failed", "under_way", "refused_after_proof"].map(count);
            let sum = parts.into_iter().sum::<Result<u64>>()?;
            ensure!(count("passed")? == sum, "{listener}");
            let stages = listener["stages"].as_array().context("stages")?;
            let last = stages.last().and_then(|stage| stage["passed"].as_u64()).context("a stage")?;
            let accepted: u64 = stages.iter().filter_map(|stage| stage["accepted"].as_u64()).sum();
            ensure!(sum == last + accepted, "{listener}");
        }
        Ok(())
    }

    /// Attempts that a stage has seen, ignored, and so on.
    fn counted(&self, stage: &str, what: &str) -> Result<u64> {
        self.of_listeners(|listener| {
            let mut stages = listener["stages"].as_array().into_iter().flatten();
            stages.find(|found| found["name"] == stage).and_then(|found| found[what].as_u64()).unwrap_or(0)
        })
    }

    fn until_counted(&self, stage: &str, what: &str, least: u64) -> Result<()> {
        wait::until(stage, LIMIT, || match self.counted(stage, what) {
            Ok(counted) if counted >= least => Ok(()),
            counted => Err(format!("{counted:?} of {least}")),
        })
    }

    /// What the router carries for `bad`.
    fn carried(&self) -> Result<Vec<Value>> {
        let shown = self.r0.show(&["connections"])?;
        let all = shown["connections"].as_array().context("connections")?;
        Ok(all.iter().filter(|connection| connection["peer"] == "bad").cloned().collect())
    }

    fn until_carried(&self, number: usize) -> Result<Vec<Value>> {
        wait::until("connections of bad", LIMIT, || match self.carried() {
            Ok(carried) if carried.len() == number => Ok(carried),
            carried => Err(format!("{carried:?}")),
        })
    }

    /// First flights without end.
    fn flood(&self, first: u32) -> Result<Flood> {
        let over = Arc::<AtomicBool>::default();
        let (told, flight) = (Arc::clone(&over), Flight::new(&self.tls()?)?);
        let thread = self.star.neighbor(2).spawn(move || {
            let (to, from) = ends(2);
            let mut nobody = Nobody::new(from, to)?;
            let mut next = first;
            while !told.load(Ordering::Relaxed) {
                flight::flood(&mut nobody, &flight, next, 100)?;
                next += 100;
            }
            nobody.ensure_not_amplified()
        })?;
        Ok(Flood { over, thread })
    }
}

struct Flood {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Flood {
    fn end(self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| Error::msg("the flood has panicked"))?
    }
}

/// A router of a neighbour, which connects to r0.
fn neighbor(host: &Namespace, signer: &Signer, name: &str, number: u8) -> Result<Router> {
    let configuration = format!(
        r#"
[router]
id = "10.0.{number}.2"
asn = 6500{number}
[tls]
certificate = "certificate.pem"
key = "key.pem"
[bgp]
connect-retry = 1
hold-time = 9
[[bgp.peer]]
name = "r0"
address = "10.0.{number}.1"
asn = 65000
transport = "quic"
tls-authorities = "authority.pem"
tls-name = "{ROUTER}"
import = "accept-all"
export = "accept-all"
"#
    );
    let shown = signer.sign(&format!("{name}.example"))?;
    Router::start_with_files(host, &configuration, &signer.files_of(&shown))
}

/// A story on a thread of its own at a host.
fn at<T: Send + 'static, F: Future<Output = Result<T>>>(
    host: &Namespace,
    story: impl FnOnce() -> F + Send + 'static,
) -> Result<T> {
    host.run(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let story = async { tokio::time::timeout(LIMIT, story()).await.context("it takes too long")? };
        runtime.block_on(story)
    })?
}

#[test]
fn ten_thousand_handshakes_that_are_never_finished_keep_nobody_out() -> Result<()> {
    /// What 640 of them may cost `transport`, over what it had before.
    const MOST: u64 = 64 * MIB;
    /// `most-handshakes`, and a quarter more for those that offer what has priority.
    const UNDER_WAY: u64 = 512 + 128;
    let late = peer("late", 3);
    let scene = Scene::start(&late)?;

    // As it is without [admission]: after the first ones, who comes has to prove its address, and no more is kept of it.
    let flood = scene.flood(0)?;
    let third = neighbor(scene.star.neighbor(3), &scene.signer, "late", 3)?;
    third.until_established("r0", LIMIT).with_context(|| scene.r0.log_tail())?;
    scene.until_counted("sources", "seen", MANY)?;
    flood.end()?;
    let kept = scene.handshakes()?;
    ensure!(kept < UNDER_WAY / 2, "{kept} handshakes under way");
    ensure!(scene.counted("retry", "retried")? > 0);

    // As nobody should configure it.
    let defenceless = "[admission]\nretry = \"never\"\nmost-handshakes = 512\n\
                       unvalidated = { per-second = 100000, burst = 100000 }\n";
    scene.reload(&(defenceless.to_owned() + &late))?;
    let before = scene.r0.heap("transport")?;
    let seen = scene.counted("sources", "seen")?;
    let flood = scene.flood(1 << 20)?;
    scene.until_counted("sources", "seen", seen + MANY)?;
    let most = wait::until("as many as there may be", LIMIT, || match scene.handshakes() {
        Ok(under_way) if under_way >= 512 => Ok(under_way),
        under_way => Err(format!("{under_way:?}")),
    })?;
    let grown = scene.r0.heap("transport")?.saturating_sub(before);
    flood.end()?;
    println!("{most} handshakes under way: {} KiB", grown / 1024);
    ensure!(most <= UNDER_WAY && grown <= MOST, "{most} handshakes, {grown} octets");
    ensure!(scene.counted("handshakes", "ignored")? > 0);

    scene.ensure_unharmed()?;
    third.until_established("r0", LIMIT).map(drop)
}

#[test]
fn answers_to_nobody_are_short_and_a_token_serves_once() -> Result<()> {
    let scene = Scene::start("[admission]\nretry = \"always\"\n")?;
    let bad = scene.star.neighbor(2);
    let (to, from) = ends(2);

    // Another version of QUIC, in too little for one that we could speak, and in as much as an Initial.
    let answered = bad.run(move || {
        let mut probe = vec![0; 1200];
        probe[..5].copy_from_slice(&[0xc0, 0xba, 0xba, 0xba, 0xba]);
        for length in [7, 8, 21, 300] {
            let mut nobody = Nobody::new(from, to)?;
            nobody.say(&probe[..length])?;
            nobody.ensure_unanswered()?;
        }
        let mut nobody = Nobody::new(from, to)?;
        nobody.say(&probe)?;
        nobody.answer()
    })??;
    // Version 0, and among the others the one that there is (RFC 9000 section 17.2.1).
    ensure!(answered[1..5] == [0; 4] && answered.ends_with(&[0, 0, 0, 1]), "{answered:?}");

    let no_attempt =
        |what: &str| scene.of_listeners(|listener| listener["no_attempt"][what].as_u64().unwrap_or(0));
    ensure!(no_attempt("unknown_version")? == 5, "{}", scene.r0.show(&["listeners"])?);

    // What is nothing at all.
    bad.run(move || {
        let mut nobody = Nobody::new(from, to)?;
        for length in 1..200_usize {
            let octet = (length * 37) as u8;
            nobody.say(&vec![octet; length * 7])?;
        }
        nobody.ensure_not_amplified()
    })??;
    scene.ensure_unharmed()?;
    ensure!(scene.handshakes()? == 0);
    ensure!(no_attempt("garbage")? > 0, "{}", scene.r0.show(&["listeners"])?);

    let flight = Flight::new(&scene.tls()?)?;
    let first = flight.clone();
    let (mut nobody, retry) = bad.run(move || {
        let mut nobody = Nobody::new(from, to)?;
        nobody.say(&first.numbered(1)?)?;
        let answer = nobody.answer()?;
        let retry = Retry::read(&answer).context("no Retry")?;
        nobody.say(&first.attempt(&retry.destination, &retry.token)?)?;
        anyhow::Ok((nobody, retry))
    })??;
    scene.until_counted("sources", "seen", 3)?;
    ensure!(scene.handshakes()? == 1, "its address is proven");
    let seen = scene.counted("sources", "seen")?;
    for number in 0..20 {
        nobody.say(&flight.attempt(&[number; 20], &retry.token)?)?;
    }
    scene.until_counted("sources", "seen", seen + 20)?;
    ensure!(scene.handshakes()? == 1, "a token has served twice");

    // Nobody has proven anything: no more than three times of it comes back (RFC 9000 section 8.1).
    scene.reload("[admission]\nretry = \"never\"\n")?;
    bad.run(move || {
        let mut nobody = Nobody::new(from, to)?;
        nobody.say(&flight.numbered(2)?)?;
        nobody.answer()?;
        nobody.ensure_not_amplified()
    })??;
    scene.ensure_unharmed()
}

/// OPEN of AS 65002 with a hold time of four minutes, and KEEPALIVE (RFC 4271 section 4).
fn greeting() -> Vec<u8> {
    let mut octets = vec![0xff; 16];
    octets.extend([0, 29, 1, 4, 0xfd, 0xea, 0, 240, 10, 0, 2, 2, 0]);
    octets.extend([0xff; 16]);
    octets.extend([0, 19, 4]);
    octets
}

/// Routes with 1 KiB of attributes each.
fn bulky(routes: u32) -> Table {
    let set = |number: u32| {
        let mut attributes = AttributesBuilder::new(Origin::Igp);
        attributes.communities = (0..250).map(|community| number << 8 | community).collect();
        AttributeSet { bytes: attributes.build() }
    };
    let prefix = |number: u32| Prefix::new(Ipv4Addr::from_bits(50 << 24 | number << 8).into(), 24);
    let routes = (0..routes).map(|number| (prefix(number).expect("a length of IPv4"), number));
    let routes: Vec<_> = routes.collect();
    Table { sets: (0..routes.len() as u32).map(set).collect(), routes }
}

#[test]
fn a_neighbour_gets_no_more_than_it_is_given() -> Result<()> {
    /// All that is sent to a neighbour, and what of it `transport` may keep.
    const ROUTES: u32 = 16 * 1024;
    const MOST: u64 = 8 * MIB;
    let feeder = "[[bgp.peer]]\nname = \"feeder\"\naddress = \"10.0.3.2\"\nasn = 65003\npassive = true\n\
                  import = \"accept-all\"\n";
    let scene = Scene::start(feeder)?;
    let bad = scene.star.neighbor(2);
    let (to, from) = ends(2);

    // Octets before the handshake is over, which could be replayed.
    let (tls, own) = (scene.tls()?, scene.signer.sign(ROUTER)?);
    let (up, when_up) = std::sync::mpsc::channel();
    let (end, ended) = oneshot::channel::<()>();
    let early = bad.spawn(move || {
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let endpoint = client::endpoint(from)?;
            let connection = client::send_early(&endpoint, &tls, &own, to, &greeting()).await;
            up.send(connection.as_ref().map(drop).map_err(ToString::to_string))?;
            let _ = ended.await;
            drop(connection);
            client::depart(&endpoint).await;
            anyhow::Ok(())
        })
    })?;
    when_up.recv_timeout(LIMIT)?.map_err(Error::msg)?;
    let carried = scene.until_carried(1)?;
    ensure!(carried[0]["octetsReceived"] == 0, "{carried:?}");
    drop(end);
    early.join().map_err(|_| Error::msg("panicked"))??;
    let tls = scene.tls()?;
    let given = at(bad, async move || client::is_given_a_ticket(&client::endpoint(from)?, &tls, to).await)?;
    ensure!(!given, "the router gives out tickets");
    scene.until_carried(0)?;
    scene.ensure_unharmed()?;

    // More streams than one.
    for streams in [Streams::Bidirectional, Streams::Unidirectional] {
        let tls = scene.tls()?;
        let error =
            at(bad, async move || client::open_too_many(&client::endpoint(from)?, &tls, to, streams).await)?;
        ensure!(error == STREAM_LIMIT_ERROR, "{streams:?}: error {error}");
    }
    scene.ensure_unharmed()?;

    // Everything, to somebody who does not read.
    let tls = scene.tls()?;
    let (end, mut ended) = oneshot::channel::<()>();
    let silent = bad.spawn(move || {
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let endpoint = client::endpoint(from)?;
            // Who has just behaved like this may have to wait a little.
            loop {
                let connection = client::connect(&endpoint, &tls, to).await?;
                let (mut send, _receive) = connection.open_bi().await?;
                send.write_all(&greeting()).await?;
                tokio::select! {
                    _ = &mut ended => return anyhow::Ok(()),
                    _ = connection.closed() => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        })
    })?;
    scene.r0.until_established("bad", LIMIT)?;
    let before = scene.r0.heap("transport")?;
    let _feeder = scene.star.speaker(3, 65003, |config| config.tables = vec![Arc::new(bulky(ROUTES))])?;
    let has_all = |shown: &Value| {
        shown["addressFamilyInfo"]["ipv4Unicast"]["sentPrefixCounter"].as_u64() > Some(ROUTES.into())
    };
    scene.r0.until_neighbor("good", LIMIT, has_all)?;
    let grown = scene.r0.heap("transport")?.saturating_sub(before);
    let carried = scene.carried()?;
    let sent = carried.first().and_then(|carried| carried["octetsSent"].as_u64()).context("octets")?;
    println!(
        "of {} KiB it was sent {} KiB; transport has grown by {} KiB",
        ROUTES,
        sent / 1024,
        grown / 1024
    );
    ensure!(sent < u64::from(ROUTES) * 1024 / 2, "{sent} octets: it must have read");
    ensure!(grown <= MOST, "{grown} octets");
    scene.ensure_unharmed()?;
    drop(end);
    silent.join().map_err(|_| Error::msg("panicked"))?
}

#[test]
fn a_connection_that_bgp_does_not_want_is_closed_at_once() -> Result<()> {
    /// Cease/Connection Rejected (RFC 4486).
    const REJECTED: [u8; 2] = [6, 5];
    const AT_ONCE: Duration = Duration::from_secs(2);
    let both = configuration("").replacen(
        "address = \"10.0.2.2\"\nasn = 65002\npassive = true\ntransport = \"quic\"",
        "address = \"10.0.2.2\"\nasn = 65002\npassive = true\ntransport = [\"quic\", \"tls\"]",
        1,
    );
    let scene = Scene::start("")?;
    scene.r0.reload_with_files(&both, &scene.files)?;
    scene.r0.cli(&["peer", "stop", "bad"])?;
    let bad = scene.star.neighbor(2);
    let (to, from) = ends(2);

    let tls = scene.tls()?;
    let closed = at(bad, async move || {
        let endpoint = client::endpoint(from)?;
        let connection = client::connect(&endpoint, &tls, to).await?;
        let (mut send, _receive) = connection.open_bi().await?;
        send.write_all(&greeting()).await?;
        // It stays, whatever it reads.
        Ok(tokio::time::timeout(AT_ONCE, connection.closed()).await?)
    })?;
    let noq::ConnectionError::ApplicationClosed(close) = closed else { bail!("{closed}") };
    ensure!(u64::from(close.error_code) == 0x605 && close.reason.is_empty(), "{close}");

    let tls = scene.tls()?;
    let heard = at(bad, async move || {
        let (mut client, mut stream) = over_tls(&tls, from, to).await?;
        stream.set_read_timeout(Some(AT_ONCE))?;
        let mut heard = Vec::new();
        loop {
            let read = client.read_tls(&mut stream)?;
            client.process_new_packets()?;
            // That no more is there yet is no end.
            let _ = std::io::Read::read_to_end(&mut client.reader(), &mut heard);
            if read == 0 {
                return Ok(heard);
            }
        }
    })?;
    ensure!(heard.len() == 21 && heard[18] == 3 && heard[19..] == REJECTED, "{heard:?}");

    let log = scene.r0.log();
    ensure!(log.contains("event=\"connection-refused\"") && log.contains("Connection Rejected"), "{log}");
    scene.ensure_unharmed()
}

#[test]
fn keys_rotate_while_a_session_runs() -> Result<()> {
    const DAY: i64 = 86_400;
    let scene = Scene::start("")?;
    let file = scene.r0.directory().join("router.toml.history/seeds.json");
    let read = || -> Result<Value> { Ok(serde_json::from_slice(&fs::read(&file)?)?) };
    let mut kept = read()?;
    let first = kept["seeds"][0].clone();
    // In two seconds they are a day old, for the next manager.
    kept["made"] = (now()? - DAY + 2).into();
    fs::write(&file, kept.to_string())?;
    scene.r0.kill("manager")?;
    wait::until("other seeds", LIMIT, || {
        let log = scene.r0.log();
        if log.contains("keys of QUIC have changed") { Ok(()) } else { Err(scene.r0.log_tail()) }
    })?;
    let seeds = read()?["seeds"].clone();
    ensure!(seeds[0] != first && seeds[1] == first, "the one before is the second one now");
    scene.ensure_unharmed()?;
    // And the next one comes up under them.
    scene.r0.cli(&["clear", "bgp", "good"])?;
    let again = |shown: &Value| {
        shown["bgpState"] == "Established"
            && shown["connectionsEstablished"] != scene.before["connectionsEstablished"]
    };
    scene.r0.until_neighbor("good", LIMIT, again).map(drop)
}

/// Sessions are up and silent, which is what most of them are most of the time.
#[test]
fn a_hundred_connections_cost_little() -> Result<()> {
    const CONNECTIONS: u8 = 100;
    /// Of one, in `transport`.
    const MOST: u64 = 256 * 1024;
    let range = "[[bgp.peer]]\nname = \"range\"\nlisten-range = \"10.0.3.0/24\"\nasn = 65003\n\
                 transport = [\"quic\", \"tls\"]\ntls-authorities = \"authority.pem\"\n";
    let scene = Scene::start(range)?;
    let host = scene.star.neighbor(3);
    for (protocol, first) in [("quic", 10), ("tls", 10 + CONNECTIONS)] {
        let addresses = (first..first + CONNECTIONS).map(|number| Ipv4Addr::new(10, 0, 3, number));
        let addresses: Vec<_> = addresses.collect();
        for address in &addresses {
            host.ip(&["address", "add", &format!("{address}/24"), "dev", "n3"])?;
        }
        let tls = scene.tls()?;
        let before = scene.r0.heap("transport")?;
        let (up, when_up) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel::<()>();
        let clients = host.spawn(move || {
            Builder::new_current_thread().enable_all().build()?.block_on(async {
                let (to, _) = ends(3);
                let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
                for address in addresses {
                    let from = SocketAddr::new(address.into(), 0);
                    kept.push(match protocol {
                        "quic" => {
                            let endpoint = client::endpoint(from)?;
                            let connection = client::connect(&endpoint, &tls, to).await?;
                            let (mut send, receive) = connection.open_bi().await?;
                            send.write_all(&[0xff]).await?;
                            Box::new((endpoint, connection, send, receive))
                        }
                        _ => Box::new(over_tls(&tls, from, to).await?),
                    });
                }
                up.send(())?;
                let _ = ended.await;
                anyhow::Ok(())
            })
        })?;
        if when_up.recv_timeout(LIMIT).is_err() {
            drop(end);
            return clients.join().map_err(|_| Error::msg("panicked"))?;
        }
        wait::until("all are carried", LIMIT, || {
            let shown = scene.r0.show(&["connections"]).map_err(|error| error.to_string())?;
            let all = shown["connections"].as_array().into_iter().flatten();
            let there = all.filter(|one| one["protocol"] == protocol && one["peer"] != "good").count();
            if there == usize::from(CONNECTIONS) { Ok(()) } else { Err(format!("{there}")) }
        })?;
        let each = scene.r0.heap("transport")?.saturating_sub(before) / u64::from(CONNECTIONS);
        println!("{protocol}: {} KiB each", each / 1024);
        ensure!(each <= MOST, "{protocol}: {each} octets each");
        drop(end);
        clients.join().map_err(|_| Error::msg("panicked"))??;
    }
    scene.ensure_unharmed()
}

/// A connection of TLS that has said its first octet.
async fn over_tls(
    tls: &PeerTls,
    from: SocketAddr,
    to: SocketAddr,
) -> Result<(ClientConnection, std::net::TcpStream)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(from)?;
    let mut stream = socket.connect(to).await?.into_std()?;
    stream.set_nonblocking(false)?;
    let mut client = ClientConnection::new(tls.client(ALPN_TLS), tls.server_name())?;
    std::io::Write::write_all(&mut client.writer(), &[0xff])?;
    while client.is_handshaking() || client.wants_write() {
        client.complete_io(&mut stream)?;
    }
    Ok((client, stream))
}
