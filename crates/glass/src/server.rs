//! HTTP, as little of it as a looking glass needs: one request on a connection.

use std::{convert::Infallible, rc::Rc, sync::Arc, time::Duration};

use holdfast_process::{Visit, serve_visitors, spawn_task};
use holdfast_xrl::{ErrorKind, XrlError};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tracing::debug;

use crate::{
    answer::{Answer, Answerer},
    chunks::{self, Chunks},
    patient::Patient,
    request::{self, Cost, Wrong},
};

/// Connections at a time. For one more, one closes that has sent no request.
const MOST_CONNECTIONS: usize = 256;
/// Those of them that look up a prefix or walk a table, or wait to.
const MOST_LONG: usize = 24;
/// Walks over a table at a time; the next ones wait for their turn.
const MOST_WALKS: usize = 4;
/// Prefixes that are looked up at a time.
const MOST_LOOK_UPS: usize = 2;
/// Whoever has waited so long for a turn may come again later.
const TURN_LIMIT: Duration = Duration::from_secs(5);
/// Until the request is there.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// From the connection to the end of the answer, however large.
const CONNECTION_LIMIT: Duration = Duration::from_secs(600);
/// Octets of a request's head.
const MOST_HEAD: usize = 16 << 10;

/// What all connections share.
struct Server {
    answerer: Rc<Answerer>,
    turns: Turns,
}

/// Who may have `bgp` work.
struct Turns {
    long: Arc<Semaphore>,
    walks: Arc<Semaphore>,
    look_ups: Arc<Semaphore>,
}

/// A turn lasts until it is dropped.
struct Turn {
    _long: OwnedSemaphorePermit,
    _kind: OwnedSemaphorePermit,
}

/// Too many others are at it.
#[derive(Debug)]
struct Busy;

impl Turns {
    fn new() -> Self {
        let turns = |most| Arc::new(Semaphore::new(most));
        Self { long: turns(MOST_LONG), walks: turns(MOST_WALKS), look_ups: turns(MOST_LOOK_UPS) }
    }

    /// Waits for a turn; none is needed for what costs nothing.
    async fn take(&self, cost: Cost, limit: Duration) -> Result<Option<Turn>, Busy> {
        let (kind, count) = match cost {
            Cost::Nothing => return Ok(None),
            Cost::LookUp => (&self.look_ups, 1),
            Cost::Walks(count) => (&self.walks, count),
        };
        let long = Arc::clone(&self.long).try_acquire_owned().map_err(|_| Busy)?;
        let kind = timeout(limit, Arc::clone(kind).acquire_many_owned(count)).await;
        let kind = kind.ok().and_then(Result::ok).ok_or(Busy)?;
        Ok(Some(Turn { _long: long, _kind: kind }))
    }
}

/// Answers those who connect. Connections end with it.
pub(crate) async fn serve(listener: TcpListener, answerer: Rc<Answerer>) {
    let server = Rc::new(Server { answerer, turns: Turns::new() });
    serve_visitors(listener, MOST_CONNECTIONS, |stream, visit| connection(stream, visit, Rc::clone(&server)))
        .await;
}

async fn connection(stream: TcpStream, visit: Visit, server: Rc<Server>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST_LIMIT);
    http.keep_alive(false).max_buf_size(MOST_HEAD);
    let service = service_fn(|request| {
        visit.has_asked();
        answer(request, Rc::clone(&server))
    });
    let served = http.serve_connection(TokioIo::new(Patient::new(stream)), service);
    match timeout(CONNECTION_LIMIT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("a connection: {error}"),
        Err(_) => debug!("a connection took longer than {} s", CONNECTION_LIMIT.as_secs()),
    }
}

async fn answer(request: Request<Incoming>, server: Rc<Server>) -> Result<Response<Chunks>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD"));
    }
    let uri = request.uri();
    let asked = match request::Request::parse(uri.path(), uri.query().unwrap_or_default()) {
        Ok(asked) => asked,
        Err(Wrong::Unknown) => return Ok(refusal(StatusCode::NOT_FOUND, "there is nothing here")),
        Err(Wrong::Value(why)) => return Ok(refusal(StatusCode::BAD_REQUEST, &why)),
    };
    // A walk's turn lasts until its last octet is on its way, or the reader is gone.
    let turn = match server.turns.take(asked.cost(), TURN_LIMIT).await {
        Ok(turn) => turn,
        Err(Busy) => return Ok(busy()),
    };
    Ok(match server.answerer.answer(&asked).await {
        Ok(Answer::Whole(value)) => response(StatusCode::OK, Chunks::whole(value.to_string())),
        Ok(Answer::Streamed(streamed)) => {
            let (writer, body) = chunks::pair();
            spawn_task(async move {
                let _turn = turn;
                streamed.write(writer).await;
            });
            response(StatusCode::OK, body)
        }
        Err(error) => failure(&error),
    })
}

fn response(status: StatusCode, body: Chunks) -> Response<Chunks> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// As birdwatcher says that something is wrong.
fn refusal(status: StatusCode, text: &str) -> Response<Chunks> {
    let mut response = response(status, Chunks::whole(json!({ "error": text }).to_string()));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

fn busy() -> Response<Chunks> {
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "too many ask at once");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(TURN_LIMIT.as_secs()));
    response
}

fn failure(error: &XrlError) -> Response<Chunks> {
    let status = match error.kind() {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    refusal(status, error.message())
}

#[cfg(test)]
mod tests {
    use holdfast_xrl::Node;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        task::LocalSet,
    };

    use super::*;

    #[tokio::test]
    async fn who_walks_leaves_room_for_others() {
        let turns = Turns::new();
        let at_once = Duration::ZERO;
        let take = |cost| turns.take(cost, at_once);
        let mut walks = vec![take(Cost::Walks(2)).await.expect("free")];
        walks.push(take(Cost::Walks(1)).await.expect("free"));
        assert!(take(Cost::Walks(2)).await.is_err(), "a dump is two walks");
        walks.push(take(Cost::Walks(1)).await.expect("free"));
        assert!(take(Cost::Walks(1)).await.is_err());
        let looks_up = [take(Cost::LookUp).await.expect("free"), take(Cost::LookUp).await.expect("free")];
        assert!(take(Cost::LookUp).await.is_err());
        assert!(take(Cost::Nothing).await.expect("always").is_none());
        drop((walks, looks_up));
        let all = Arc::clone(&turns.long).try_acquire_many_owned(MOST_LONG as u32);
        assert!(all.is_ok(), "who has not got a turn has left");
        assert!(take(Cost::LookUp).await.is_err(), "there would be no room for others");
        assert!(take(Cost::Nothing).await.is_ok());
    }
    #[test]
    fn who_asks_is_answered_beside_a_thousand_connections_that_say_nothing() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
            let address = listener.local_addr().expect("bound");
            let answerer = Rc::new(Answerer::new(Node::new("glass").resolver()));
            tokio::task::spawn_local(serve(listener, answerer));
            let mut silent = Vec::new();
            for _ in 0..1000 {
                silent.push(TcpStream::connect(address).await.expect("connected"));
            }
            let mut asks = TcpStream::connect(address).await.expect("connected");
            asks.write_all(b"GET /nothing HTTP/1.1\r\nHost: here\r\n\r\n").await.expect("asked");
            let mut answer = String::new();
            // Later the silent ones have to go.
            timeout(REQUEST_LIMIT, asks.read_to_string(&mut answer)).await.expect("in time").expect("read");
            assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        });
    }
}
