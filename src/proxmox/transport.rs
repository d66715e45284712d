//! How requests reach an endpoint: reqwest in production, any service of plain `http` requests in tests.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, service_fn};

use super::tls::{self, Trust};

/// A service of plain requests with absolute URLs. A failure before anything was sent must be a [`NotSent`].
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, BoxError>;

/// The request did not leave: no connection could be made. Another endpoint may be tried.
#[derive(Debug, thiserror::Error)]
#[error("no connection")]
pub struct NotSent(#[source] pub BoxError);

/// A transport over the network.
///
/// HTTP/1.1 only. Idle connections are dropped after 3 s, before Proxmox closes them after 5 s. Nothing is repeated, no
/// proxy of the environment is used.
///
/// # Errors
/// When the trust cannot be set up (a certificate that cannot be read).
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
    let request = reqwest::Request::try_from(request.map(reqwest::Body::from))?;
    let response = client.execute(request).await.map_err(|error| {
        if error.is_connect() {
            BoxError::from(NotSent(error.without_url().into()))
        } else {
            error.without_url().into()
        }
    })?;
    let (parts, body) = Response::<reqwest::Body>::from(response).into_parts();
    Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
}
