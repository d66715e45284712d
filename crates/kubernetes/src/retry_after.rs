//! Waits and retries if the API server asks clients to wait.
//!
//! If API Priority and Fairness rejects a request, or the API server is shutting down, the response is 429
//! with the number of seconds after which the client may retry (`Retry-After`). The API server has not
//! carried out such a request. It is sent again after that time, but only a few times, and only within the
//! time limit of its call. If a disruption budget refuses an eviction, the response is also 429. That
//! response is about the pod, so it is returned to the caller.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

use runtime::fence::Fence;

/// The maximum number of times a request is sent again.
const REPEATS: u32 = 3;
/// The maximum length of a single wait, even if the API server asks for more.
const LONGEST: Duration = Duration::from_secs(10);

/// Sends a request, and sends it again if the API server asks clients to wait. For a write, the fence is
/// checked before each attempt.
pub(super) async fn send(
    open: &Client,
    fence: &Fence,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    let (parts, mut body) = request.into_parts();
    for _ in 0..REPEATS {
        let Some(copy) = body.try_clone() else { break };
        pass(fence, &parts.method).await?;
        let answer = open.send(Request::from_parts(parts.clone(), body)).await?;
        let Some(wait) = asked_to_wait(parts.uri.path(), answer.status(), answer.headers()) else {
            return Ok(answer);
        };
        tracing::debug!(path = parts.uri.path(), ?wait, "the API server asks clients to wait (429)");
        drop(answer);
        tokio::time::sleep(wait).await;
        body = copy;
    }
    pass(fence, &parts.method).await?;
    Ok(open.send(Request::from_parts(parts, body)).await?)
}

async fn pass(fence: &Fence, method: &Method) -> Result<(), BoxError> {
    if *method != Method::GET {
        fence.pass().await?;
    }
    Ok(())
}

/// Returns how long the API server asks clients to wait, if it does.
fn asked_to_wait(path: &str, status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // If API Priority and Fairness causes the refusal, the response is plain text. If a disruption budget
    // causes it, the response is a JSON object.
    let about_the_pod =
        path.ends_with("/eviction") && text(CONTENT_TYPE).is_some_and(|kind| kind.contains("json"));
    if status != StatusCode::TOO_MANY_REQUESTS || about_the_pod {
        return None;
    }
    let seconds = text(RETRY_AFTER)?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::time::Instant;
    use tower::service_fn;

    use super::*;
    use crate::{Cluster, ErrorKind};

    type Sent = Arc<Mutex<Vec<String>>>;

    /// A cluster whose API server answers 429 this many times, and then returns its version.
    fn cluster(refusals: usize, kind: &'static str) -> (Cluster, Sent) {
        let sent = Sent::default();
        let seen = sent.clone();
        let service = service_fn(move |request: Request<Bytes>| {
            let mut seen = seen.lock().unwrap();
            let answer = Response::builder();
            let answer = if seen.len() < refusals {
                let answer = answer.status(429).header("retry-after", "2").header("content-type", kind);
                answer.body("Too many requests, please try again later.\n")
            } else {
                answer.body(r#"{"major":"1","minor":"37","gitVersion":"v1.37.2","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#)
            };
            seen.push(format!("{} {}", request.method(), request.uri().path()));
            async move { Ok::<_, BoxError>(answer.unwrap().map(|text| Full::new(Bytes::from(text)))) }
        });
        (Cluster::with_service(service, "kube-system"), sent)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_comes_again_after_the_time_that_the_api_server_names() {
        let (cluster, sent) = cluster(2, "text/plain; charset=utf-8");
        let began = Instant::now();
        assert_eq!(cluster.version().await.unwrap(), "v1.37.2");
        assert_eq!(began.elapsed().as_secs(), 4);
        assert_eq!(*sent.lock().unwrap(), ["GET /version"; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_come_again_for_ever_nor_beyond_the_limit_of_its_call() {
        let (cluster, sent) = cluster(usize::MAX, "text/plain");
        assert_eq!(cluster.version().await.unwrap_err().kind(), ErrorKind::TooManyRequests);
        assert_eq!(sent.lock().unwrap().len(), 4);
        let impatient = cluster.with_limit(Duration::from_secs(3));
        assert_eq!(impatient.version().await.unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(sent.lock().unwrap().len(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_had_to_wait_passes_the_fence_once_more() {
        let (cluster, sent) = cluster(usize::MAX, "text/plain");
        let fenced = cluster.fenced(&Fence::until(Instant::now() + Duration::from_secs(1)));
        let refused = fenced.annotate_node("n", "key", Some("value")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Fenced);
        assert_eq!(sent.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_disruption_budgets_refusal_is_an_answer() {
        let headers = |kind: &'static str, after: &'static str| {
            HeaderMap::from_iter([
                (CONTENT_TYPE, http::HeaderValue::from_static(kind)),
                (RETRY_AFTER, http::HeaderValue::from_static(after)),
            ])
        };
        let (pod, eviction) = ("/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/pods/b/eviction");
        let busy = StatusCode::TOO_MANY_REQUESTS;
        let seconds =
            |path, status, headers| asked_to_wait(path, status, &headers).map(|wait| wait.as_secs());
        assert_eq!(seconds(eviction, busy, headers("application/json", "10")), None);
        assert_eq!(seconds(eviction, busy, headers("text/plain; charset=utf-8", "1")), Some(1));
        assert_eq!(seconds(pod, busy, headers("application/json", "1")), Some(1));
        assert_eq!(seconds(pod, busy, headers("text/plain", "86400")), Some(10));
        assert_eq!(seconds(pod, busy, headers("text/plain", "soon")), None);
        assert_eq!(seconds(pod, StatusCode::SERVICE_UNAVAILABLE, headers("text/plain", "1")), None);
    }
}
