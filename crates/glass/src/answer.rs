//! Asks `bgp`, and writes what it says.

use std::{
    cell::RefCell,
    io::{self, Write},
    rc::Rc,
    time::{Duration, Instant, SystemTime},
};

use holdfast_api::bgp::v1::{
    BgpClient, Empty, Neighbor, NeighborView, Path, Paths, Prefix, ShowNeighborRoutesRequest,
    ShowNeighborsRequest, ShowRouteRequest, ShowRoutesRequest, SummaryFamily,
};
use holdfast_process::Resolver;
use holdfast_xrl::{ErrorKind, ReplyStream, XrlError};
use serde_json::{Map, Value, json};

use crate::{
    chunks::Writer,
    request::{Counted, Request},
    time, words,
};

/// How long `bgp` may take for its next word.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer about sessions serves for those who ask next.
const FRESH: Duration = Duration::from_secs(5);
/// How long whoever asks may keep an answer.
const TTL: Duration = Duration::from_secs(60);
/// The version of birdwatcher whose answers these are.
const BIRDWATCHER: &str = "2.2.5";

/// Who has the answers.
pub(crate) struct Answerer {
    resolver: Resolver,
    started: SystemTime,
    /// The last word about the sessions.
    neighbors: RefCell<Option<Asked>>,
}

/// The sessions as they were.
#[derive(Clone)]
struct Asked {
    since: Instant,
    at: SystemTime,
    neighbors: Rc<Vec<Neighbor>>,
}

/// The beginning of an answer that streams, and the streams.
pub(crate) struct Streamed {
    parts: Vec<Part>,
}

struct Part {
    key: &'static str,
    first: Option<Paths>,
    rest: ReplyStream<Paths>,
    /// Which paths of those that come.
    wanted: Wanted,
    /// Not those of this peer.
    except: String,
}

/// An answer.
pub(crate) enum Answer {
    Whole(Value),
    Streamed(Streamed),
}

/// Which paths.
type Wanted = fn(&Path) -> bool;

fn all(_: &Path) -> bool {
    true
}

fn accepted(path: &Path) -> bool {
    !path.filtered
}

fn filtered(path: &Path) -> bool {
    path.filtered
}

async fn within<T>(call: impl Future<Output = Result<T, XrlError>>) -> Result<T, XrlError> {
    let answer = tokio::time::timeout(PATIENCE, call).await;
    answer.unwrap_or_else(|_| Err(XrlError::timeout("bgp does not answer")))
}

/// What stands in every answer: when it was asked for, and how long it is good.
fn api(at: SystemTime, from_cache: bool) -> Value {
    json!({
        "Version": BIRDWATCHER,
        "result_from_cache": from_cache,
        "cache_status": {
            "orig_ttl": 0,
            "cached_at": { "date": time::long(at), "timezone_type": "UTC", "timezone": "UTC" },
        },
    })
}

fn whole(at: SystemTime, from_cache: bool, key: &str, value: Value) -> Value {
    let mut answer = Map::new();
    answer.insert("api".into(), api(at, from_cache));
    answer.insert("ttl".into(), time::long(at + TTL).into());
    answer.insert("cached_at".into(), time::long(at).into());
    answer.insert(key.into(), value);
    Value::Object(answer)
}

impl Answerer {
    pub(crate) fn new(resolver: Resolver) -> Self {
        Self { resolver, started: SystemTime::now(), neighbors: RefCell::default() }
    }

    async fn bgp(&self) -> Result<BgpClient, XrlError> {
        within(self.resolver.client("bgp")).await
    }

    /// Everything up to the first routes: until then whoever asks can still be told that something is wrong.
    pub(crate) async fn answer(&self, request: &Request) -> Result<Answer, XrlError> {
        let now = SystemTime::now();
        let value = match request {
            Request::Status => whole(now, false, "status", self.status(now).await?),
            Request::Protocols => self.protocols(words::protocol).await?,
            Request::ProtocolsShort => self.protocols(words::short).await?,
            Request::Symbols => {
                let symbols =
                    json!({ "routing table": ["master4", "master6"], "protocol": self.names().await? });
                whole(now, false, "symbols", symbols)
            }
            Request::SymbolTables => whole(now, false, "symbols", json!(["master4", "master6"])),
            Request::SymbolProtocols => whole(now, false, "symbols", json!(self.names().await?)),
            Request::NeighborCount(name, counted) => {
                whole(now, false, "routes", self.count(name, *counted).await?.into())
            }
            Request::TableCount { afi } => whole(now, false, "routes", self.table_count(*afi).await?.into()),
            Request::Route(destination) => whole(now, false, "routes", self.route(destination).await?),
            Request::Pipe => whole(now, false, "routes", json!([])),
            Request::PipeCount => whole(now, false, "routes", 0.into()),
            Request::Neighbor(..) | Request::Table { .. } | Request::Dump => {
                return Ok(Answer::Streamed(self.stream(request).await?));
            }
        };
        Ok(Answer::Whole(value))
    }

    async fn status(&self, now: SystemTime) -> Result<Value, XrlError> {
        let summary = within(self.bgp().await?.show_summary(Empty {})).await?;
        Ok(json!({
            "version": concat!("holdfast ", env!("CARGO_PKG_VERSION")),
            "router_id": summary.router_id,
            "current_server": time::short(now),
            "last_reboot": time::short(self.started),
            "last_reconfig": time::short(self.started),
            "message": "Daemon is up and running",
        }))
    }

    /// All sessions, as they are or were a moment ago; and which of the two.
    async fn neighbors(&self) -> Result<(Asked, bool), XrlError> {
        let known = self.neighbors.borrow().clone().filter(|asked| asked.since.elapsed() < FRESH);
        if let Some(asked) = known {
            return Ok((asked, true));
        }
        let (since, at) = (Instant::now(), SystemTime::now());
        let mut stream = self.bgp().await?.show_neighbors(ShowNeighborsRequest::default());
        let mut neighbors = Vec::new();
        while let Some(neighbor) = within(stream.next()).await? {
            neighbors.push(neighbor);
        }
        let asked = Asked { since, at, neighbors: Rc::new(neighbors) };
        self.neighbors.replace(Some(asked.clone()));
        Ok((asked, false))
    }

    async fn protocols(&self, word: fn(&Neighbor) -> (String, Value)) -> Result<Value, XrlError> {
        let (asked, from_cache) = self.neighbors().await?;
        let protocols: Map<_, _> = asked.neighbors.iter().map(word).collect();
        Ok(whole(asked.at, from_cache, "protocols", protocols.into()))
    }

    async fn names(&self) -> Result<Vec<String>, XrlError> {
        let (Asked { neighbors, .. }, _) = self.neighbors().await?;
        Ok(neighbors.iter().filter_map(|neighbor| Some(neighbor.peer.as_ref()?.name.clone())).collect())
    }

    async fn count(&self, name: &str, counted: Counted) -> Result<u64, XrlError> {
        let request = ShowNeighborsRequest { peer: name.to_owned() };
        let mut stream = self.bgp().await?.show_neighbors(request);
        let neighbor = within(stream.next()).await?.unwrap_or_default();
        let counts = neighbor.families.iter().map(|family| match counted {
            Counted::Accepted => family.accepted,
            Counted::Best => family.best,
            Counted::Filtered => family.received.saturating_sub(family.accepted),
            Counted::Exported => family.sent,
        });
        Ok(counts.sum())
    }

    async fn table_count(&self, afi: u32) -> Result<u64, XrlError> {
        let summary = within(self.bgp().await?.show_summary(Empty {})).await?;
        let wanted = |family: &&SummaryFamily| match afi {
            0 => true,
            1 => family.family.starts_with("ipv4"),
            _ => family.family.starts_with("ipv6"),
        };
        Ok(summary.families.iter().filter(wanted).map(|family| family.paths).sum())
    }

    /// No route is an answer, too.
    async fn route(&self, destination: &str) -> Result<Value, XrlError> {
        let request = ShowRouteRequest { destination: destination.to_owned() };
        match within(self.bgp().await?.show_route(request)).await {
            Ok(found) => Ok(found.prefixes.iter().flat_map(|prefix| routes(prefix, accepted, "")).collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(json!([])),
            Err(error) => Err(error),
        }
    }

    async fn stream(&self, request: &Request) -> Result<Streamed, XrlError> {
        let bgp = self.bgp().await?;
        let table = |afi, peer: &str| bgp.show_routes(ShowRoutesRequest { afi, peer: peer.to_owned() });
        let nobody = String::new;
        let parts: Vec<(&'static str, ReplyStream<Paths>, Wanted, String)> = match request {
            Request::Neighbor(peer, view) => {
                let request = ShowNeighborRoutesRequest { peer: peer.clone(), view: (*view).into(), afi: 0 };
                // What a peer has sent itself is not worth a word, in BIRD neither.
                let except = if *view == NeighborView::Withheld { peer.clone() } else { nobody() };
                vec![("routes", bgp.show_neighbor_routes(request), all, except)]
            }
            Request::Table { afi, filtered: refused, peer } => {
                let wanted: Wanted = if *refused { filtered } else { accepted };
                vec![("routes", table(*afi, peer), wanted, nobody())]
            }
            Request::Dump => vec![
                ("imported", table(0, ""), accepted as Wanted, nobody()),
                ("filtered", table(0, ""), filtered as Wanted, nobody()),
            ],
            _ => Vec::new(),
        };
        let mut streamed = Streamed { parts: Vec::new() };
        for (key, mut rest, wanted, except) in parts {
            let first = within(rest.next()).await?;
            streamed.parts.push(Part { key, first, rest, wanted, except });
        }
        Ok(streamed)
    }
}

fn routes(prefix: &Prefix, wanted: Wanted, except: &str) -> impl Iterator<Item = Value> {
    let shown = prefix.paths.iter().filter(move |path| {
        wanted(path) && (except.is_empty() || path.peer != except && path.peer_address != except)
    });
    shown.map(|path| words::route(&prefix.prefix, path))
}

impl Streamed {
    /// Writes the answer as it comes; what is not whole is not ended like JSON, nor like HTTP.
    pub(crate) async fn write(self, mut out: Writer) {
        match self.write_parts(&mut out).await {
            Ok(Some(())) => out.finish().await,
            // Whoever asked is gone.
            Ok(None) => {}
            Err(error) => {
                tracing::debug!("an answer ends early: {error}");
                out.abandon().await;
            }
        }
    }

    async fn write_parts(self, out: &mut Writer) -> Result<Option<()>, XrlError> {
        let failed = |error: io::Error| XrlError::internal(error.to_string());
        let now = SystemTime::now();
        let head =
            json!({ "api": api(now, false), "ttl": time::long(now + TTL), "cached_at": time::long(now) });
        let head = head.to_string();
        // The object is left open for the routes.
        out.write_all(head.strip_suffix('}').unwrap_or(&head).as_bytes()).map_err(failed)?;
        for Part { key, first, mut rest, wanted, except } in self.parts {
            write!(out, ",\"{key}\":[").map_err(failed)?;
            let (mut next, mut separator) = (first, "");
            while let Some(Paths { prefixes, .. }) = next {
                for route in prefixes.iter().flat_map(|prefix| routes(prefix, wanted, &except)) {
                    write!(out, "{separator}{route}").map_err(failed)?;
                    separator = ",";
                }
                if out.pace().await.is_none() {
                    return Ok(None);
                }
                next = within(rest.next()).await?;
            }
            write!(out, "]").map_err(failed)?;
        }
        write!(out, "}}").map_err(failed)?;
        Ok(Some(()))
    }
}
