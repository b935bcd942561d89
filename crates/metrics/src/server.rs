//! HTTP, as little of it as a scraper needs: one request on a connection, two answers.

use std::{convert::Infallible, rc::Rc, time::Duration};

use bytes::Bytes;
use holdfast_process::{Visit, serve_visitors};
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
    time::timeout,
};
use tracing::debug;

use crate::{collect::Collector, text};

/// Connections at a time. For one more, one closes that sends no request or does not read its answer.
const MOST_CONNECTIONS: usize = 256;
/// Until the request is there.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// From the connection to the end of the answer: who reads more slowly is cut off.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// Octets of a request's head.
const MOST_HEAD: usize = 16 << 10;
const PATH: &str = "/metrics";

/// Answers those who connect. Connections end with it.
pub(crate) async fn serve(listener: TcpListener, collector: Rc<Collector>) {
    serve_visitors(listener, MOST_CONNECTIONS, |stream, visit| {
        connection(stream, visit, Rc::clone(&collector))
    })
    .await;
}

async fn connection(stream: TcpStream, visit: Visit, collector: Rc<Collector>) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST_LIMIT);
    server.keep_alive(false).max_buf_size(MOST_HEAD);
    let service = service_fn(async |request| {
        visit.has_asked();
        let answer = answer(request, &collector).await;
        visit.is_answered();
        answer
    });
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
    match collector.collect().await {
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

#[cfg(test)]
mod tests {
    use holdfast_xrl::Node;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        task::LocalSet,
    };

    use super::*;

    #[test]
    fn a_scraper_is_answered_beside_a_thousand_connections_that_say_nothing() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
            let address = listener.local_addr().expect("bound");
            let collector = Rc::new(Collector::new(Node::new("metrics").resolver()));
            tokio::task::spawn_local(serve(listener, collector));
            let mut silent = Vec::new();
            for _ in 0..1000 {
                silent.push(TcpStream::connect(address).await.expect("connected"));
            }
            let mut scraper = TcpStream::connect(address).await.expect("connected");
            scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").await.expect("asked");
            let mut answer = String::new();
            // Later the silent ones have to go.
            timeout(REQUEST_LIMIT, scraper.read_to_string(&mut answer))
                .await
                .expect("in time")
                .expect("read");
            // Without a Finder there is nobody to ask.
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        });
    }
}
