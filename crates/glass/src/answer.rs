//! Asks `bgp`, and writes what it says.

use std::{
    io::{self, Write},
    time::{Duration, Instant, SystemTime},
};

use holdfast_api::bgp::v1::{
    BgpClient, Empty, Neighbor, NeighborView, Path, Paths, Prefix, ShowNeighborRoutesRequest,
    ShowNeighborsRequest, ShowRouteRequest, ShowRoutesRequest, Summary, SummaryFamily, SummaryPeer,
};
use holdfast_process::Resolver;
use holdfast_xrl::{ErrorKind, ReplyStream, XrlError};
use serde_json::{Map, Value, json};

use crate::{
    chunks::Writer,
    kept::{Kept, Said},
    request::{Counted, Request},
    time, words,
};

/// How long `bgp` may take for its next word.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long whoever asks may keep an answer.
const TTL: Duration = Duration::from_secs(60);
/// The version of birdwatcher whose answers these are.
const BIRDWATCHER: &str = "2.2.5";

/// Who has the answers.
pub(crate) struct Answerer {
    resolver: Resolver,
    neighbors: Kept<Vec<Neighbor>>,
    /// Without peers.
    summary: Kept<Summary>,
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

/// What takes longer than `bgp` may is an error.
pub(crate) async fn within<T>(call: impl Future<Output = Result<T, XrlError>>) -> Result<T, XrlError> {
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
        Self { resolver, neighbors: Kept::default(), summary: Kept::default() }
    }

    async fn bgp(&self) -> Result<BgpClient, XrlError> {
        within(self.resolver.client("bgp")).await
    }

    /// Everything up to the first routes: until then whoever asks can still be told that something is wrong.
    pub(crate) async fn answer(&self, request: &Request) -> Result<Answer, XrlError> {
        let now = SystemTime::now();
        let value = match request {
            Request::Status => self.status(now).await?,
            Request::Protocols => self.protocols(words::protocol).await?,
            Request::ProtocolsShort => self.protocols(words::short).await?,
            Request::Symbols => {
                let symbols =
                    json!({ "routing table": ["master4", "master6"], "protocol": self.names().await? });
                whole(now, false, "symbols", symbols)
            }
            Request::SymbolTables => whole(now, false, "symbols", json!(["master4", "master6"])),
            Request::SymbolProtocols => whole(now, false, "symbols", json!(self.names().await?)),
            Request::NeighborCount(name, counted) => self.count(name, *counted).await?,
            Request::TableCount { afi } => self.table_count(*afi).await?,
            Request::Route(destination) => whole(now, false, "routes", self.route(destination).await?),
            Request::Pipe => whole(now, false, "routes", json!([])),
            Request::PipeCount => whole(now, false, "routes", 0.into()),
            Request::Neighbor(..) | Request::Table { .. } | Request::Dump => {
                return Ok(Answer::Streamed(self.stream(request).await?));
            }
        };
        Ok(Answer::Whole(value))
    }

    /// When `bgp` began and was last configured is not known here.
    async fn status(&self, now: SystemTime) -> Result<Value, XrlError> {
        let (said, from_cache) = self.summary().await?;
        let status = json!({
            "version": concat!("holdfast ", env!("CARGO_PKG_VERSION")),
            "router_id": said.value.router_id,
            "current_server": time::short(now),
            "last_reboot": "",
            "last_reconfig": "",
            "message": "Daemon is up and running",
        });
        Ok(whole(said.at, from_cache, "status", status))
    }

    async fn summary(&self) -> Result<(Said<Summary>, bool), XrlError> {
        let ask = async || {
            let mut summary = within(self.bgp().await?.show_summary(Empty {})).await?;
            summary.families.iter_mut().for_each(|family| family.peers = Vec::new());
            Ok(summary)
        };
        self.summary.get(Instant::now(), ask).await
    }

    /// All sessions, as they are or were a moment ago; and which of the two.
    async fn neighbors(&self) -> Result<(Said<Vec<Neighbor>>, bool), XrlError> {
        let ask = async || {
            let mut stream = self.bgp().await?.show_neighbors(ShowNeighborsRequest::default());
            let mut neighbors = Vec::new();
            while let Some(neighbor) = within(stream.next()).await? {
                neighbors.push(neighbor);
            }
            Ok(neighbors)
        };
        self.neighbors.get(Instant::now(), ask).await
    }

    async fn protocols(&self, word: fn(&Neighbor, SystemTime) -> (String, Value)) -> Result<Value, XrlError> {
        let (said, from_cache) = self.neighbors().await?;
        let protocols: Map<_, _> = said.value.iter().map(|neighbor| word(neighbor, said.at)).collect();
        Ok(whole(said.at, from_cache, "protocols", protocols.into()))
    }

    async fn names(&self) -> Result<Vec<String>, XrlError> {
        let (said, _) = self.neighbors().await?;
        Ok(said.value.iter().filter_map(|neighbor| Some(neighbor.peer.as_ref()?.name.clone())).collect())
    }

    async fn count(&self, name: &str, counted: Counted) -> Result<Value, XrlError> {
        let (said, from_cache) = self.neighbors().await?;
        let neighbor = named(&said.value, name)
            .ok_or_else(|| XrlError::not_found(format!("there is no peer {name:?}")))?;
        let counts = neighbor.families.iter().map(|family| match counted {
            Counted::Accepted => family.accepted,
            Counted::Best => family.best,
            Counted::Filtered => family.received.saturating_sub(family.accepted),
            Counted::Exported => family.sent,
        });
        Ok(whole(said.at, from_cache, "routes", counts.sum::<u64>().into()))
    }

    async fn table_count(&self, afi: u32) -> Result<Value, XrlError> {
        let (said, from_cache) = self.summary().await?;
        let wanted = |family: &&SummaryFamily| match afi {
            0 => true,
            1 => family.family.starts_with("ipv4"),
            _ => family.family.starts_with("ipv6"),
        };
        let paths = said.value.families.iter().filter(wanted).map(|family| family.paths);
        Ok(whole(said.at, from_cache, "routes", paths.sum::<u64>().into()))
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
        let table = |afi, peer: &str| {
            bgp.show_routes(ShowRoutesRequest { afi, peer: peer.to_owned(), ..ShowRoutesRequest::default() })
        };
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

/// A peer by its name, else by its address.
fn named<'a>(neighbors: &'a [Neighbor], name: &str) -> Option<&'a Neighbor> {
    let by = |is: fn(&SummaryPeer) -> &str| {
        neighbors.iter().find(|neighbor| neighbor.peer.as_ref().is_some_and(|peer| is(peer) == name))
    };
    by(|peer| &peer.name).or_else(|| by(|peer| &peer.address))
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
                for prefix in &prefixes {
                    for route in routes(prefix, wanted, &except) {
                        write!(out, "{separator}{route}").map_err(failed)?;
                        separator = ",";
                    }
                    if out.pace().await.is_none() {
                        return Ok(None);
                    }
                }
                next = within(rest.next()).await?;
            }
            write!(out, "]").map_err(failed)?;
        }
        write!(out, "}}").map_err(failed)?;
        Ok(Some(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_found_by_its_name_before_its_address() {
        let peer = |name: &str, address: &str| Neighbor {
            peer: Some(SummaryPeer { name: name.into(), address: address.into(), ..SummaryPeer::default() }),
            ..Neighbor::default()
        };
        let peers = [peer("a", "10.0.0.1"), peer("10.0.0.1", "10.0.0.2")];
        assert_eq!(named(&peers, "10.0.0.1"), Some(&peers[1]));
        assert_eq!(named(&peers, "10.0.0.2"), Some(&peers[1]));
        assert_eq!(named(&peers, "a"), Some(&peers[0]));
        assert_eq!(named(&peers, "b"), None);
    }
}
