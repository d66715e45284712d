//! `/metrics`, `/healthz` and `/readyz` over HTTP, for monitoring; `/status` for browsers, if enabled.
//!
//! Clients cannot block the daemon, because the number of connections and the duration of each are limited.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::tz::TimeZone;
use runtime::boxed;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::notify::is_alive;
use super::page::{Asked, Links, View};
use super::problem::Problem;
use super::{Board, OthersNames};
use runtime::clock::SharedClock;
use settings::Config;

/// The maximum number of connections that are served at the same time.
const CONNECTIONS: usize = 16;
/// The time limit for one request and its response.
const LIMIT: Duration = Duration::from_secs(10);
/// The time limit for reading a request's head.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait before trying again to listen on an address.
const AGAIN: Duration = Duration::from_secs(30);
/// How long to pause after failing to accept a connection.
const PAUSE: Duration = Duration::from_secs(1);

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The pages that are served over HTTP.
#[derive(Clone)]
pub struct Pages {
    board: Board,
    settings: watch::Receiver<Arc<Config>>,
    clock: SharedClock,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("board", &self.board).finish_non_exhaustive()
    }
}

impl Pages {
    /// Pages that show the board, served at the address in the settings.
    pub fn new(board: Board, settings: watch::Receiver<Arc<Config>>, clock: SharedClock) -> Self {
        Self { board, settings, clock }
    }

    /// Serves the pages until the future is dropped. If the address cannot be used, the failure is shown as a
    /// problem on the board, and the daemon continues.
    #[boxed]
    pub async fn run(&self) {
        let mut settings = self.settings.clone();
        loop {
            let listen = settings.borrow_and_update().metrics.listen;
            let moved = async {
                while settings.borrow_and_update().metrics.listen == listen {
                    if settings.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            tokio::select! {
                biased;
                () = moved => {}
                () = self.listen(listen) => {}
            }
        }
    }

    async fn listen(&self, address: Option<SocketAddr>) {
        self.board.clear(&Problem::Metrics);
        let Some(address) = address else { return std::future::pending().await };
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    self.board.clear(&Problem::Metrics);
                    let address = listener.local_addr().unwrap_or(address);
                    tracing::info!(%address, "metrics are served");
                    return self.serve(listener).await;
                }
                Err(error) => {
                    tracing::warn!(%error, %address, "metrics cannot be served");
                    self.board.problem(&Problem::Metrics, &format!("cannot listen on {address}: {error}"));
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn serve(&self, listener: TcpListener) {
        let turns = Arc::new(Semaphore::new(CONNECTIONS));
        // The connections are closed when this set is dropped together with the future.
        let mut connections = JoinSet::new();
        loop {
            let Ok(turn) = turns.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let this = self.clone();
                    connections.spawn(async move {
                        this.connection(stream).await;
                        drop(turn);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections to the metrics endpoint");
                    tokio::time::sleep(PAUSE).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }

    async fn connection(&self, stream: TcpStream) {
        let service = service_fn(|request: Request<hyper::body::Incoming>| {
            let answer = self.answer(request.method(), request.uri(), request.headers());
            async move { Ok::<_, Infallible>(answer) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        match tokio::time::timeout(LIMIT, served).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a client that requested metrics disconnected"),
            Err(_) => tracing::debug!("a client did not read the metrics in time"),
        }
    }

    fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            return page(
                StatusCode::METHOD_NOT_ALLOWED,
                TEXT,
                "only GET and HEAD are supported\n".to_owned(),
            );
        }
        match uri.path() {
            "/metrics" => match self.metrics() {
                Ok(text) => page(StatusCode::OK, OPENMETRICS, text),
                Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            },
            "/healthz" => self.health(),
            "/readyz" => self.readiness(),
            "/" => page(StatusCode::OK, TEXT, self.pages().join("\n") + "\n"),
            "/status" if self.has_status() => self.status(uri.query().unwrap_or_default(), headers),
            _ => page(
                StatusCode::NOT_FOUND,
                TEXT,
                format!("not found; available pages: {}\n", self.pages().join(", ")),
            ),
        }
    }

    fn pages(&self) -> &'static [&'static str] {
        const ALL: [&str; 4] = ["/status", "/metrics", "/healthz", "/readyz"];
        if self.has_status() { &ALL } else { &ALL[1..] }
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        let (metrics, status) = (self.board.metrics(), self.board.status());
        let settings = self.settings.borrow().metrics;
        let others = OthersNames {
            kproximate: settings.kproximate_names,
            cluster_autoscaler: settings.cluster_autoscaler_names,
        };
        metrics.encode_beside(&status, others)
    }

    fn has_status(&self) -> bool {
        self.settings.borrow().metrics.status_page
    }

    fn status(&self, query: &str, headers: &HeaderMap) -> Response<Full<Bytes>> {
        if !is_local(headers) {
            let refusal = "the status page can only be opened at localhost, 127.0.0.1 or [::1]\n";
            return page(StatusCode::FORBIDDEN, TEXT, refusal.to_owned());
        }
        let (status, timeline) = (self.board.status(), self.board.timeline());
        let (asked, links) = (Asked::read(query), Links::of(&self.settings.borrow()));
        let view = View { now: self.clock.now(), zone: &TimeZone::system(), asked, links };
        let text = super::page::render(&status, &timeline, &view);
        let mut response = page(StatusCode::OK, HTML, text);
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, super::page::POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// Returns status 200 if rounds run on time, by the same rule as for systemd's watchdog. Otherwise,
    /// returns status 503.
    fn health(&self) -> Response<Full<Bytes>> {
        let since = self.board.since_last_round().unwrap_or_default();
        let interval = self.settings.borrow().scan_interval;
        if is_alive(self.board.has_begun(), since, interval) {
            page(StatusCode::OK, TEXT, "ok\n".to_owned())
        } else {
            page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("no round for {} s\n", since.as_secs()))
        }
    }

    fn readiness(&self) -> Response<Full<Bytes>> {
        let status = self.board.status();
        let (code, first) = if status.ready {
            (StatusCode::OK, "ok")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "waiting until both clusters have been read")
        };
        let mut text = format!("{first}\n");
        for (about, what) in &status.problems {
            text.push_str(&format!("{about}: {what}\n").replace('\r', " "));
        }
        page(code, TEXT, text)
    }
}

/// Whether the request's `Host` header names the local machine. This check protects against DNS rebinding, in
/// which a page from another site makes its own host name resolve to this machine.
fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn page(code: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::clock::SystemClock;
    use settings::{Needs, parse};

    fn pages(text: &str) -> (Pages, watch::Sender<Arc<Config>>) {
        let (sender, settings) = watch::channel(Arc::new(parse("c.toml", text, Needs::Plan).unwrap()));
        (Pages::new(Board::default(), settings, Arc::new(SystemClock)), sender)
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_healthy_while_rounds_come_and_ready_once_all_was_seen() {
        let (pages, _sender) = pages("scan_interval = \"10s\"");
        let code = |path: &str| {
            pages.answer(&Method::GET, &path.parse().unwrap(), &HeaderMap::new()).status().as_u16()
        };
        assert_eq!((code("/healthz"), code("/readyz")), (200, 503));
        pages.board.begin(false);
        assert_eq!((code("/healthz"), code("/readyz")), (200, 503), "the clusters have not been read");
        tokio::time::advance(Duration::from_mins(10)).await;
        assert_eq!((code("/healthz"), code("/readyz")), (503, 503));
        pages.board.begin(true);
        assert_eq!((code("/healthz"), code("/readyz")), (200, 200));
        tokio::time::advance(Duration::from_mins(10)).await;
        assert_eq!((code("/healthz"), code("/readyz")), (503, 200));
        pages.board.publish(pages.board.status(), None);
        assert_eq!(code("/healthz"), 200);
    }

    #[tokio::test]
    async fn only_what_is_there_is_served_and_only_read() {
        let (pages, _sender) = pages("");
        for (method, path, expected) in [
            (Method::GET, "/metrics", 200),
            (Method::HEAD, "/metrics", 200),
            (Method::POST, "/metrics", 405),
            (Method::GET, "/metrics/", 404),
            (Method::GET, "/status", 404),
            (Method::GET, "/../etc/passwd", 404),
        ] {
            assert_eq!(
                pages.answer(&method, &path.parse().unwrap(), &HeaderMap::new()).status().as_u16(),
                expected,
                "{method} {path}"
            );
        }
    }

    #[tokio::test]
    async fn the_status_page_is_there_when_it_is_wanted_and_only_for_this_machine() {
        let (pages, _sender) = pages("[metrics]\nstatus_page = true");
        for (host, expected) in [
            (Some("localhost:9736"), 200),
            (Some("127.0.0.1"), 200),
            (Some("[::1]:9736"), 200),
            (Some("evil.example:9736"), 403),
            (Some("127.0.0.1.evil.example"), 403),
            (None, 403),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(host.map(|host| (HOST, HeaderValue::from_static(host))));
            let answer = pages.answer(&Method::GET, &Uri::from_static("/status?span=24h"), &headers);
            assert_eq!(answer.status().as_u16(), expected, "{host:?}");
        }
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_a_problem_until_the_settings_name_another() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let (pages, sender) = pages(&format!("[metrics]\nlisten = \"{address}\""));
        let board = pages.board.clone();
        let running = tokio::spawn(async move { pages.run().await });
        let until = async |wrong: bool| {
            let waiting = async {
                while board.status().problems.contains_key("metrics") != wrong {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LIMIT, waiting).await.unwrap();
        };
        until(true).await;
        assert!(board.status().problems["metrics"].contains(&address.to_string()));
        let other = parse("c.toml", "[metrics]\nlisten = \"127.0.0.1:0\"", Needs::Plan).unwrap();
        sender.send_replace(Arc::new(other));
        until(false).await;
        running.abort();
    }
}
