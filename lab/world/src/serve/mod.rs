//! The embedded APIs over TLS on loopback, for real clients.
//!
//! The handlers of both APIs receive plain `http` requests with the whole body, and answer with a streaming
//! body, so that a watch can stay open. If a handler fails, the connection is closed without an answer, which
//! is how a lost answer looks to a client.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub mod tls;

/// The server does not answer: it closes the connection without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection was closed without a response")]
pub struct NoAnswer;

/// A response body that may stream for as long as the connection lives.
pub type Body = UnsyncBoxBody<Bytes, NoAnswer>;

/// The maximum size of a request body, in bytes. A larger request is answered with status 413, and the
/// connection is closed.
pub const MAX_REQUEST_BODY: usize = 4 * 1024 * 1024;

/// How long a TLS handshake and the headers of a request may take.
const HEADER_LIMIT: Duration = Duration::from_secs(30);

/// Returns a body that is complete from the start.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
}

impl Serving {
    /// The address that was bound, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections and closes all open ones.
    pub fn shutdown(&self) {
        self.stop.cancel();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves `handler` over HTTP/1.1 on TLS at `address` until the returned handle is shut down or dropped.
///
/// # Errors
/// Returns an error if the address cannot be bound.
pub async fn serve_https<H, F>(handler: H, address: SocketAddr, tls: &tls::ServerTls) -> io::Result<Serving>
where
    H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response<Body>, NoAnswer>> + Send + 'static,
{
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.config));
    let stopped = stop.clone();
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stopped.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                // Accepting fails if no file descriptors are left. Wait a moment, so that some can be closed.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let connection = connection(stream, acceptor.clone(), handler.clone());
            let stopped = stopped.clone();
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => {}
                    () = connection => {}
                }
            });
        }
    });
    Ok(Serving { address, stop })
}

async fn connection<H, F>(stream: TcpStream, acceptor: TlsAcceptor, handler: H)
where
    H: Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response<Body>, NoAnswer>> + Send + 'static,
{
    let Ok(Ok(stream)) = tokio::time::timeout(HEADER_LIMIT, acceptor.accept(stream)).await else {
        return;
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = handler.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = match Limited::new(body, MAX_REQUEST_BODY).collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(_) => return Ok(too_large()),
            };
            handler(Request::from_parts(parts, body)).await
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
}

fn too_large() -> Response<Body> {
    let mut response = Response::new(full("request body too large"));
    *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    response
}
