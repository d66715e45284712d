//! The Proxmox VE client. For each call, it chooses an endpoint, encodes and authorizes the request, waits
//! for a lane, and reads the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use super::answer;
pub(super) use super::concurrency::Lane;
use super::concurrency::{Lanes, Sizes};
use super::error::{Error, Kind};
use super::transport::{AnswerLimit, NotSent, TooLarge, Transport};
use runtime::error_chain::{chain, root};
use runtime::fence::{Fence, Fenced};

/// Everything except letters, digits, `-`, `_`, `.` and `~` is encoded. This includes `;`, which Proxmox VE
/// treats as a separator in forms.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The maximum size of an answer from a guest, in bytes. The daemon's scripts print only a few lines, and
/// other programs in the guest are not trusted.
const GUEST_ANSWER: AnswerLimit = AnswerLimit(4 << 20);

/// The parameters of a call, in order.
pub(super) type Parameters<'a> = &'a [(&'a str, String)];

/// The parameters or the body of a call.
pub(super) enum Payload<'a> {
    /// Parameters, which are sent in the query for GET and DELETE, and in a form for POST and PUT.
    Parameters(Parameters<'a>),
    /// A body, with its content type.
    Body(String, Bytes),
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Base URLs, e.g. `https://127.0.0.1:8006`. The first one that answers is used until it fails.
    pub endpoints: Vec<String>,
    /// The token's id, `user@realm!name`.
    pub token_id: String,
    /// How many agent calls may run at a time per host. A host has three workers for protected calls, and a
    /// call to a silent agent occupies one for 3 s.
    pub agent_lane: usize,
    /// How many other protected calls may run at a time per host.
    pub lifecycle_lane: usize,
    /// How many linked clones may run at a time per source storage.
    pub linked_clones: usize,
    /// How many full clones may run at a time per source storage, and how many guests may be suspended at a
    /// time per host.
    pub full_clones: usize,
}

/// A function that is called after each API call. It receives the kind of error, if the call failed, and the
/// time since the call was sent.
pub type Observer = Arc<dyn Fn(Option<Kind>, Duration) + Send + Sync>;

/// A client of a Proxmox VE cluster. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    fence: Fence,
    observer: Option<Observer>,
    /// The place in a lane that this client holds, if any. If it holds one, its calls do not wait for a lane.
    place: Option<Arc<OwnedSemaphorePermit>>,
}

struct Shared {
    transport: Transport,
    settings: Settings,
    authorization: HeaderValue,
    current: AtomicUsize,
    lanes: Lanes,
    calls: AtomicU64,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

impl Client {
    /// A client that uses this transport.
    ///
    /// # Errors
    /// Returns an error if the token contains a character that is not allowed in a header.
    pub fn new(transport: Transport, settings: Settings, token: &SecretString) -> Result<Self, http::Error> {
        // The secret is encoded because the server URL-decodes it.
        let secret = utf8_percent_encode(token.expose_secret().trim(), ENCODED);
        let mut authorization = HeaderValue::try_from(format!("PVEAPIToken={}={secret}", settings.token_id))?;
        authorization.set_sensitive(true);
        let sizes = Sizes {
            agent: settings.agent_lane,
            lifecycle: settings.lifecycle_lane,
            linked_clones: settings.linked_clones,
            full_clones: settings.full_clones,
        };
        let shared = Shared {
            transport,
            settings,
            authorization,
            current: AtomicUsize::new(0),
            lanes: Lanes::new(sizes),
            calls: AtomicU64::new(0),
        };
        Ok(Self { shared: Arc::new(shared), fence: Fence::open(), observer: None, place: None })
    }

    /// A copy of this client whose writes must pass the fence.
    pub fn fenced(&self, fence: &Fence) -> Self {
        Self { fence: fence.clone(), ..self.clone() }
    }

    pub(super) fn holding(&self, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { place: place.map(Arc::new), ..self.clone() }
    }

    /// Returns this client with an observer that is notified of each call.
    pub fn with_observer(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The number of requests so far. A call makes one request for each endpoint that it tries.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    pub(super) async fn get(
        &self,
        lane: Lane<'_>,
        path: &str,
        query: Parameters<'_>,
    ) -> Result<Value, Error> {
        self.call(Method::GET, lane, path, query).await
    }

    pub(super) async fn post(
        &self,
        lane: Lane<'_>,
        path: &str,
        form: Parameters<'_>,
    ) -> Result<Value, Error> {
        self.call(Method::POST, lane, path, form).await
    }

    /// Makes a call. GET and DELETE send their parameters in the query, POST and PUT in a form.
    pub(super) async fn call(
        &self,
        method: Method,
        lane: Lane<'_>,
        path: &str,
        parameters: Parameters<'_>,
    ) -> Result<Value, Error> {
        self.send(method, lane, path, &Payload::Parameters(parameters)).await
    }

    /// Like [`Self::call`], with any payload.
    pub(super) async fn send(
        &self,
        method: Method,
        lane: Lane<'_>,
        path: &str,
        payload: &Payload<'_>,
    ) -> Result<Value, Error> {
        let call = format!("{method} {path}");
        let limit = if matches!(lane, Lane::Agent(_)) { GUEST_ANSWER } else { AnswerLimit::default() };
        let lane = self.lanes().of(lane).filter(|_| self.place.is_none());
        let _permit = match &lane {
            Some(lane) => Some(acquire(lane, &call).await?),
            None => None,
        };
        let sent = Instant::now();
        let outcome = self.over_endpoints(&method, path, payload, (&call, limit)).await;
        if let Some(observer) = &self.observer {
            observer(outcome.as_ref().err().map(|error| error.kind), sent.elapsed());
        }
        outcome
    }

    pub(super) fn lanes(&self) -> &Lanes {
        &self.shared.lanes
    }

    /// Tries the endpoints in turn until one answers. If a request may have reached an endpoint, it is
    /// repeated at the next one only if it is a GET.
    async fn over_endpoints(
        &self,
        method: &Method,
        path: &str,
        payload: &Payload<'_>,
        (call, limit): (&str, AnswerLimit),
    ) -> Result<Value, Error> {
        let endpoints = &self.shared.settings.endpoints;
        let first = self.shared.current.load(Ordering::Relaxed);
        let mut last =
            Error::without_answer(call, Kind::HostUnreachable, "no endpoint is configured".to_owned());
        for turn in 0..endpoints.len() {
            let at = (first + turn) % endpoints.len();
            let mut request = self.request(method, &endpoints[at], path, payload).map_err(|error| {
                Error::without_answer(call, Kind::BadRequest, format!("the request cannot be built: {error}"))
            })?;
            request.extensions_mut().insert(limit);
            // The fence is checked after the wait for a lane, because this instance must lead at the moment
            // the request is sent.
            if method != Method::GET {
                let refused = |fenced: Fenced| Error::without_answer(call, Kind::Fenced, fenced.to_string());
                self.fence.pass().await.map_err(refused)?;
            }
            self.shared.calls.fetch_add(1, Ordering::Relaxed);
            let mut transport = self.shared.transport.clone();
            let sent = match transport.ready().await {
                Ok(ready) => ready.call(request).await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(response) => {
                    self.shared.current.store(at, Ordering::Relaxed);
                    if response.body().len() > limit.0 {
                        return Err(too_large(method, call, &TooLarge { limit }));
                    }
                    return answer::read(call, &response);
                }
                Err(error) if error.is::<NotSent>() => {
                    let why = error.source().map_or_else(|| error.to_string(), root);
                    let text = format!("no connection to {}: {why}", endpoints[at]);
                    last = Error::without_answer(call, Kind::HostUnreachable, text);
                }
                Err(error) if error.is::<TooLarge>() => return Err(too_large(method, call, &*error)),
                Err(error) => {
                    // The request may have arrived. A read can be repeated at another endpoint; a write
                    // cannot.
                    let text = format!("no answer from {}: {}", endpoints[at], chain(error.as_ref()));
                    last = Error::without_answer(call, Kind::OutcomeUnknown, text);
                    if method != Method::GET {
                        return Err(last);
                    }
                }
            }
        }
        Err(last)
    }

    fn request(
        &self,
        method: &Method,
        endpoint: &str,
        path: &str,
        payload: &Payload<'_>,
    ) -> Result<Request<Bytes>, http::Error> {
        let base = format!("{}/api2/json{path}", endpoint.trim_end_matches('/'));
        let request = Request::builder()
            .method(method.clone())
            .header(AUTHORIZATION, self.shared.authorization.clone());
        let parameters = match payload {
            Payload::Body(kind, body) => {
                return request.uri(base).header(CONTENT_TYPE, kind).body(body.clone());
            }
            Payload::Parameters(parameters) => parameters,
        };
        let encoded: Vec<_> =
            parameters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let encoded = encoded.join("&");
        let in_query = method == Method::GET || method == Method::DELETE;
        let url = if in_query && !encoded.is_empty() { format!("{base}?{encoded}") } else { base };
        let mut request = request.uri(url);
        if !in_query {
            request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        request.body(if in_query { Bytes::new() } else { Bytes::from(encoded) })
    }
}

/// The error for an answer that was not read completely. The request may have been carried out.
fn too_large(method: &Method, call: &str, error: &dyn std::error::Error) -> Error {
    let kind = if *method == Method::GET { Kind::Other } else { Kind::OutcomeUnknown };
    Error::without_answer(call, kind, error.to_string())
}

async fn acquire<'s>(lane: &'s Semaphore, call: &str) -> Result<SemaphorePermit<'s>, Error> {
    lane.acquire()
        .await
        .map_err(|_| Error::without_answer(call, Kind::Other, "the client is being shut down".to_owned()))
}

/// Percent-encodes a value or a part of a path.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Response;
    use tokio::time::Instant;
    use tower::{BoxError, service_fn};

    use super::*;

    /// A client whose lanes each allow one call at a time, and whose calls all receive empty answers.
    fn client() -> Client {
        let transport = Transport::new(service_fn(|_: Request<Bytes>| async {
            Ok::<_, BoxError>(Response::new(Bytes::from_static(b"{\"data\":null}")))
        }));
        let settings = Settings {
            endpoints: vec!["https://a".to_owned()],
            token_id: "a@pve!b".to_owned(),
            agent_lane: 1,
            lifecycle_lane: 1,
            linked_clones: 1,
            full_clones: 1,
        };
        Client::new(transport, settings, &SecretString::from("s")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_a_place_need_not_wait_and_others_do() {
        let client = client();
        let ask = async |client: &Client| client.get(Lane::Lifecycle("pve1"), "/x", &[]).await;
        let placed = client.in_line("pve1").await;
        assert!(ask(&placed).await.is_ok());
        assert!(tokio::time::timeout(Duration::from_secs(1), ask(&client)).await.is_err());
        drop(placed);
        assert!(ask(&client).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_term_no_write_leaves_and_reads_do() {
        let client = client().fenced(&Fence::until(Instant::now() + Duration::from_secs(6)));
        let ask = async |method| client.call(method, Lane::Lifecycle("pve1"), "/x", &[]).await;
        let writes = [Method::POST, Method::PUT, Method::DELETE];
        for method in writes.clone() {
            assert!(ask(method).await.is_ok());
        }
        // The term may also end while a call waits for its lane.
        let lane = client.lanes().of(Lane::Lifecycle("pve1")).unwrap();
        let held = lane.acquire().await.unwrap();
        let (waiting, ()) = tokio::join!(ask(Method::POST), async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            drop(held);
        });
        assert_eq!(waiting.unwrap_err().kind, Kind::Fenced);
        let before = client.calls();
        for method in writes {
            assert_eq!(ask(method).await.unwrap_err().kind, Kind::Fenced);
        }
        assert_eq!(client.calls(), before);
        assert!(ask(Method::GET).await.is_ok());
    }

    #[tokio::test]
    async fn a_guest_may_say_less_than_a_cluster() {
        let transport = Transport::new(service_fn(|request: Request<Bytes>| async move {
            assert!(request.extensions().get::<AnswerLimit>().is_some());
            let text = format!("{{\"data\":\"{}\"}}", "x".repeat(GUEST_ANSWER.0));
            Ok::<_, BoxError>(Response::new(Bytes::from(text)))
        }));
        let shared = client().shared;
        let settings = shared.settings.clone();
        let client = Client::new(transport, settings, &SecretString::from("s")).unwrap();
        let ask = async |method, lane| client.call(method, lane, "/x", &[]).await;
        assert!(ask(Method::GET, Lane::Lifecycle("pve1")).await.is_ok());
        let read = ask(Method::GET, Lane::Agent("pve1")).await.unwrap_err();
        assert_eq!(read.kind, Kind::Other);
        let said =
            "Proxmox did not answer GET /x: the answer is larger than 4 MiB and was not read completely";
        assert_eq!(read.to_string(), said);
        let write = ask(Method::POST, Lane::Agent("pve1")).await.unwrap_err();
        assert_eq!(write.kind, Kind::OutcomeUnknown);
    }
}
