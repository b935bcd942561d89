//! HTTP, as little of it as a scraper needs: one request on a connection, two answers.

use std::{convert::Infallible, rc::Rc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use crate::{collect::Collector, text};

/// Connections at a time; the next ones wait in the listener's backlog.
const MOST_CONNECTIONS: usize = 8;
/// Until the request is there.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// From the connection to the end of the answer: who reads more slowly is cut off.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// Octets of a request's head.
const MOST_HEAD: usize = 16 << 10;
/// Pause after a connection could not be accepted: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const PATH: &str = "/metrics";

/// Answers those who connect. Connections end with it.
pub(crate) async fn serve(listener: TcpListener, collector: Rc<Collector>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn_local(connection(stream, Rc::clone(&collector)));
            }
            Err(error) => {
                warn!(event = "accept-failed", "accepting a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, collector: Rc<Collector>) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST_LIMIT);
    server.keep_alive(false).max_buf_size(MOST_HEAD);
    let service = service_fn(|request| answer(request, &collector));
    let served = server.serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_LIMIT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("a connection: {error}"),
        Err(_) => debug!("a connection took longer than {} s", CONNECTION_LIMIT.as_secs()),
    }
}

async fn answer(
    request: Request<Incoming>,
    collector: &Collector,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    Ok(match (request.uri().path(), is_read) {
        (PATH, true) => metrics(collector).await,
        (PATH, false) => refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n"),
        _ => refusal(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    })
}

async fn metrics(collector: &Collector) -> Response<Full<Bytes>> {
    let text = match collector.collect().await {
        Ok(families) => text::text(families).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match text {
        Ok(text) => {
            let mut response = Response::new(Full::from(text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(text::CONTENT_TYPE));
            response
        }
        Err(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}\n")),
    }
}

fn refusal(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text.to_owned()));
    *response.status_mut() = status;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}
