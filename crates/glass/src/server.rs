//! HTTP, as little of it as a looking glass needs: one request on a connection.

use std::{convert::Infallible, rc::Rc, sync::Arc, time::Duration};

use holdfast_process::spawn_task;
use holdfast_xrl::{ErrorKind, XrlError};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use crate::{
    answer::{Answer, Answerer},
    chunks::{self, Chunks},
    request::{self, Wrong},
};

/// Connections at a time; the next ones wait in the listener's backlog.
const MOST_CONNECTIONS: usize = 32;
/// Walks over a table at a time; the next ones wait for their turn.
const MOST_WALKS: usize = 4;
/// Until the request is there.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// From the connection to the end of the answer, however large.
const CONNECTION_LIMIT: Duration = Duration::from_secs(600);
/// Octets of a request's head.
const MOST_HEAD: usize = 16 << 10;
/// Pause after a connection could not be accepted: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
struct Server {
    answerer: Rc<Answerer>,
    walks: Arc<Semaphore>,
}

/// Answers those who connect. Connections end with it.
pub(crate) async fn serve(listener: TcpListener, answerer: Rc<Answerer>) {
    let server = Rc::new(Server { answerer, walks: Arc::new(Semaphore::new(MOST_WALKS)) });
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn_local(connection(stream, Rc::clone(&server)));
            }
            Err(error) => {
                warn!(event = "accept-failed", "accepting a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, server: Rc<Server>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST_LIMIT);
    http.keep_alive(false).max_buf_size(MOST_HEAD);
    let service = service_fn(|request| answer(request, Rc::clone(&server)));
    let served = http.serve_connection(TokioIo::new(stream), service);
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
    let turn = match asked.is_long() {
        true => Arc::clone(&server.walks).acquire_owned().await.ok(),
        false => None,
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

fn failure(error: &XrlError) -> Response<Chunks> {
    let status = match error.kind() {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    refusal(status, error.message())
}
