//! The client for a Kubernetes cluster. It manages the connection and limits the duration of every call.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use runtime::boxed;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt, service_fn};

use super::error::{Error, ErrorKind};
use super::kubeconfig;
use super::retry_after;
use super::server_time::{ClockDifference, ServerTime};
use super::watch_loop::WATCH_SECONDS;
use runtime::clock::{SharedClock, SystemClock};
use runtime::fence::Fence;

/// How long a call may take by default.
const DEFAULT_LIMIT: Duration = Duration::from_secs(15);
/// The time limit for establishing a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// No random bytes were available.
#[derive(Debug, Error)]
#[error("the random number generator failed")]
pub struct EntropyError;

/// A source of random bytes for secrets. Tests and the simulation use a seeded one.
pub type Entropy = Arc<dyn Fn(&mut [u8]) -> Result<(), EntropyError> + Send + Sync>;

/// A function that is called after each finished call, with the kind of failure, if any, and how long the
/// call took. It is not called for watches.
pub type Observer = Arc<dyn Fn(Option<ErrorKind>, Duration) + Send + Sync>;

/// The settings for connecting to a cluster, besides the kubeconfig.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The kubeconfig context to use; `None` for the current context.
    pub context: Option<String>,
    /// The daemon's namespace, which contains the records.
    pub namespace: String,
    /// How long one call may take.
    pub request_timeout: Duration,
}

/// A client for a Kubernetes cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    pub(super) client: Client,
    /// The same client, but without a fence, and without waiting if a response contains `Retry-After`.
    pub(super) bare: Client,
    pub(super) namespace: Arc<str>,
    pub(super) clock: SharedClock,
    pub(super) entropy: Entropy,
    fence: Fence,
    time: ServerTime,
    limit: Duration,
    server: Arc<str>,
    observer: Option<Observer>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("server", &self.server)
            .field("namespace", &self.namespace)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Creates a client from a kubeconfig. No request is sent yet. Must be called inside a tokio runtime,
    /// after the process-wide rustls provider has been installed.
    ///
    /// Proxy settings in the environment are ignored.
    ///
    /// # Errors
    /// Returns an error if the text is not a kubeconfig, lacks the context, or names unusable certificates.
    #[boxed]
    pub async fn connect(kubeconfig: &SecretString, options: &ConnectOptions) -> Result<Self, Error> {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig.expose_secret()).map_err(Error::Kubeconfig)?;
        if let Some(lacks) = kubeconfig::lacks(&kubeconfig, options.context.as_deref()) {
            return Err(Error::KubeconfigLacks(lacks));
        }
        let program = kubeconfig::program(&kubeconfig, options.context.as_deref());
        let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
        let mut config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &choice).await.map_err(Error::Kubeconfig)?;
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            let reason = "its certificate authority data contains no certificate".to_owned();
            return Err(Error::Unusable { action: "use the kubeconfig".to_owned(), reason });
        }
        // By default, kube retries for minutes after 429, 503 and 504. A disruption budget's refusal is also
        // a 429, and must reach the caller immediately.
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_LIMIT.min(options.request_timeout));
        config.write_timeout = Some(options.request_timeout);
        // A watch ends by itself after WATCH_SECONDS, so a connection that is silent for longer is dead.
        config.read_timeout =
            Some(Duration::from_secs(u64::from(WATCH_SECONDS) + 15).max(options.request_timeout));
        // Ignores proxy settings in the environment. A kubeconfig that configures a proxy has already been
        // refused.
        config.proxy_url = None;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|source| match program {
            Some(program) => Error::KubeconfigLacks(format!(
                "its user gets tokens from the program `{program}`, which returned none: use a \
                    kubeconfig that contains a token or certificate, e.g. a token of the ServiceAccount \
                    in rbac.yaml"
            )),
            None => Error::Client(Box::new(source)),
        })?;
        let mut cluster = Self::with_client(client, &options.namespace);
        cluster.limit = options.request_timeout;
        cluster.server = server.into();
        Ok(cluster)
    }

    /// Creates a `Cluster` that uses an existing client, whose retries must be off. Must be called inside a
    /// tokio runtime.
    pub fn with_client(client: Client, namespace: &str) -> Self {
        let (fence, time) = (Fence::open(), ServerTime::default());
        Self {
            client: patient(&client, (&fence, &time), namespace),
            bare: client,
            namespace: namespace.into(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(operating_system),
            fence,
            time,
            limit: DEFAULT_LIMIT,
            server: "".into(),
            observer: None,
        }
    }

    /// Creates a `Cluster` whose requests are answered by an in-process service, for tests and simulations.
    /// Must be called inside a tokio runtime.
    pub fn with_service<S, B>(service: S, namespace: &str) -> Self
    where
        S: Service<http::Request<Bytes>, Response = http::Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let adapted = service_fn(move |request: http::Request<Body>| {
            let service = service.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(BoxError::from)?.to_bytes();
                service.oneshot(http::Request::from_parts(parts, body)).await.map_err(Into::into)
            }
        });
        Self::with_client(Client::new(adapted, namespace), namespace)
    }

    /// Sets the clock that is used for the expiry of tokens and the times of events.
    pub fn with_clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of random bytes.
    pub fn with_entropy(mut self, entropy: Entropy) -> Self {
        self.entropy = entropy;
        self
    }

    /// Returns the same cluster, but with this fence, which all requests except GET must pass. This applies
    /// to requests from every part of the daemon.
    pub fn fenced(&self, fence: &Fence) -> Self {
        let client = patient(&self.bare, (fence, &self.time), &self.namespace);
        Self { client, fence: fence.clone(), ..self.clone() }
    }

    /// Sets the time limit for each call.
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the observer to which each call is reported.
    pub fn with_observer(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Our own namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The API server's address; empty for an in-process service.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The difference between this host's clock and the API server's, according to the API server's last
    /// response. `None` if the difference is unknown or within the tolerance.
    pub fn clock_difference(&self) -> Option<ClockDifference> {
        ClockDifference::of(self.time.now()?, self.clock.now())
    }

    /// The later of this host's time and the API server's time. A deadline that is computed from it cannot
    /// already have passed by the API server's clock.
    pub(super) fn latest_now(&self) -> Timestamp {
        let own = self.clock.now();
        self.time.now().map_or(own, |time| time.max(own))
    }

    /// The API server's version, e.g. `v1.37.2`.
    ///
    /// # Errors
    /// Returns an error if the API server does not answer, or refuses the call.
    #[boxed]
    pub async fn version(&self) -> Result<String, Error> {
        let info = self.call("ask the API server for its version", self.client.apiserver_version()).await?;
        Ok(info.git_version)
    }

    /// Checks the fence before a change to the cluster that bypasses the API server.
    ///
    /// # Errors
    /// Returns [`super::ErrorKind::Fenced`] if this instance does not lead.
    #[boxed]
    pub async fn may_write(&self) -> Result<(), Error> {
        self.fence.pass().await.map_err(|fenced| {
            let source = kube::Error::Service(Box::new(fenced)).into();
            Error::Call { action: "change anything".to_owned(), source }
        })
    }

    /// Awaits a call, but not for longer than the limit.
    pub(super) async fn call<T>(
        &self,
        action: impl Into<String>,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        let sent = Instant::now();
        let outcome = match tokio::time::timeout(self.limit, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(Error::Call { action: action.into(), source: source.into() }),
            Err(_) => Err(Error::Timeout { action: action.into(), limit: self.limit }),
        };
        if let Some(observer) = &self.observer {
            observer(outcome.as_ref().err().map(Error::kind), sent.elapsed());
        }
        outcome
    }
}

/// A client that waits if the API server asks it to, and whose writes must pass this fence.
fn patient(bare: &Client, (fence, time): (&Fence, &ServerTime), namespace: &str) -> Client {
    let (bare, fence, time) = (bare.clone(), fence.clone(), time.clone());
    let service = service_fn(move |request: http::Request<Body>| {
        let (bare, fence, time) = (bare.clone(), fence.clone(), time.clone());
        async move {
            let answer = retry_after::send(&bare, &fence, request).await?;
            time.hear(answer.headers());
            Ok::<_, BoxError>(answer)
        }
    });
    Client::new(service, namespace)
}

fn operating_system(bytes: &mut [u8]) -> Result<(), EntropyError> {
    rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(bytes).map_err(|_| EntropyError)
}
