//! How requests reach an endpoint: through reqwest in production, and in tests through any service that
//! handles `http` requests.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, service_fn};

use super::tls::{self, Trust};

/// A service that handles plain requests with absolute URLs. If it fails before anything was sent, the error
/// must be [`NotSent`].
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>;

/// The request was not sent, because no connection could be made. Another endpoint may be tried.
#[derive(Debug, thiserror::Error)]
#[error("no connection")]
pub struct NotSent(#[source] pub BoxError);

/// The maximum size of the answer to a request, in bytes. It is attached to the request as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimit(pub usize);

impl Default for AnswerLimit {
    /// The default is several times the size of a large cluster's lists.
    fn default() -> Self {
        Self(64 << 20)
    }
}

/// The answer is larger than allowed; the request may have been carried out.
#[derive(Debug, thiserror::Error)]
#[error("the answer is larger than {} MiB and was not read completely", limit.0 >> 20)]
pub struct TooLarge {
    /// The largest size allowed.
    pub limit: AnswerLimit,
}

/// A transport over the network. It reads no more of an answer than the request's `AnswerLimit` allows.
///
/// Uses only HTTP/1.1. Idle connections are dropped after 3 s, because Proxmox VE closes them after 5 s.
/// Requests are never repeated, and proxies in the environment are ignored.
///
/// # Errors
/// Returns an error if the trusted certificates cannot be used, e.g. because one is unreadable.
pub fn connect(
    trust: &Trust,
    connect_timeout: Duration,
    request_timeout: Duration,
) -> Result<Transport, BoxError> {
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls::config(trust)?)
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .pool_idle_timeout(Duration::from_secs(3))
        .connect_timeout(connect_timeout)
        .timeout(request_timeout)
        .build()?;
    Ok(BoxCloneSyncService::new(service_fn(move |request| send(client.clone(), request))))
}

async fn send(client: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, BoxError> {
    let limit = request.extensions().get().copied().unwrap_or_default();
    let request = reqwest::Request::try_from(request.map(reqwest::Body::from))?;
    let response = client.execute(request).await.map_err(|error| {
        if error.is_connect() {
            BoxError::from(NotSent(error.without_url().into()))
        } else {
            error.without_url().into()
        }
    })?;
    let (parts, body) = Response::<reqwest::Body>::from(response).into_parts();
    Ok(Response::from_parts(parts, whole(body, limit).await?))
}

async fn whole<B>(body: B, limit: AnswerLimit) -> Result<Bytes, BoxError>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let read = Limited::new(body, limit.0).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { BoxError::from(TooLarge { limit }) } else { error }
    })?;
    Ok(read.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_an_answer_without_an_end_no_more_is_read_than_allowed() {
        let endless = |limit| {
            let piece = Bytes::from(vec![b'x'; 1 << 16]);
            let body = http_body_util::StreamBody::new(futures::stream::repeat_with(move || {
                Ok::<_, BoxError>(hyper::body::Frame::data(piece.clone()))
            }));
            whole(body, AnswerLimit(limit))
        };
        let refused = endless(1 << 20).await.unwrap_err();
        assert_eq!(refused.to_string(), "the answer is larger than 1 MiB and was not read completely");
        let small = http_body_util::Full::new(Bytes::from_static(b"{}"));
        assert_eq!(whole(small, AnswerLimit(2)).await.unwrap(), "{}");
    }
}
