//! The simulated connections (wires) between one daemon and both clusters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use pve_autoscaler::kubernetes::Cluster;
use pve_autoscaler::proxmox::{Client, Settings, Transport};
use secrecy::SecretString;
use tokio::time::Instant;
use tower::{BoxError, service_fn};
use world::kubernetes::Kube;
use world::kubernetes::spec::KubeSpec;
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;
use world::redfish;
use world::serve::Body;
use world::signal::Signal;

/// Which cluster is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Proxmox VE.
    Proxmox,
    /// Kubernetes.
    Kubernetes,
}

/// A call from the daemon to a cluster, before it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The cluster that is called.
    pub side: Side,
    /// HTTP method.
    pub method: &'a str,
    /// The path without the query. For Proxmox VE, only the part below `/api2/json`.
    pub path: &'a str,
    /// The query. Empty if there is none.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// When the daemon sent the call. If the wire was held up, the call may arrive much later.
    pub sent: Instant,
}

/// How a call arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrival {
    /// The call arrives as it was sent.
    #[default]
    Once,
    /// The call was repeated on its way. It is carried out twice, and the first answer is lost.
    Twice,
}

/// Observes every call just before its cluster receives it, and may change how it arrives.
pub trait Observer: Send + Sync {
    /// Called just before a call is handed over. Nothing else happens in the world until the call arrives.
    fn before(&self, call: Call<'_>) -> Arrival;
}

/// Pauses the streams of all watches. Events that occur during the pause arrive when the streams continue.
/// Clones of this value are paused together.
#[derive(Clone, Debug, Default)]
pub struct Stall(Arc<(AtomicBool, Signal)>);

impl Stall {
    /// Pauses the streams, or lets them continue.
    pub fn set(&self, still: bool) {
        self.0.0.store(still, Ordering::SeqCst);
        self.0.1.give();
    }

    async fn over(&self) {
        let mut waiter = self.0.1.waiter();
        while self.0.0.load(Ordering::SeqCst) {
            waiter.wait().await;
        }
    }
}

/// The wires of one daemon. Clones share them.
#[derive(Clone)]
pub struct Wire {
    cut: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
    held: Arc<(Mutex<Held>, Signal)>,
    observer: Option<Arc<dyn Observer>>,
    stall: Option<Stall>,
}

/// The sides on which calls and answers are held up.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    proxmox: bool,
    kubernetes: bool,
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    fn on(&mut self, side: Side) -> &mut bool {
        match side {
            Side::Proxmox => &mut self.proxmox,
            Side::Kubernetes => &mut self.kubernetes,
        }
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Wire {
    /// Creates wires that count their calls in `calls`.
    pub fn counting(calls: Arc<AtomicU64>) -> Self {
        let last = Arc::new(AtomicU64::new(u64::MAX));
        Self { cut: Arc::default(), calls, last, held: Arc::default(), observer: None, stall: None }
    }

    /// Adds an observer to the wires.
    pub fn observed(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Lets `stall` pause the watches of these wires.
    pub fn stalling(mut self, stall: Stall) -> Self {
        self.stall = Some(stall);
        self
    }

    /// Cuts the wires once the call with this number has been carried out. Its answer is lost.
    pub fn cut_after(&self, last: u64) {
        self.last.store(last, Ordering::SeqCst);
    }

    /// Cuts the wires now. No later call of the daemon reaches a cluster.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Whether the wires are cut.
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Holds up all calls and answers on this side, or lets the waiting ones through. Open watches are not
    /// affected.
    pub fn hold(&self, side: Side, held: bool) {
        *lock(&self.held.0).on(side) = held;
        self.held.1.give();
    }

    async fn free(&self, side: Side) {
        let mut waiter = self.held.1.waiter();
        while *lock(&self.held.0).on(side) {
            waiter.wait().await;
        }
        if self.is_cut() {
            std::future::pending::<()>().await;
        }
    }

    async fn pass<R, F: Future<Output = R>>(&self, call: Call<'_>, carry_out: impl Fn() -> F) -> R {
        self.free(call.side).await;
        // Lease renewals are not counted. Otherwise, most of the points at which a test cuts the wires would
        // be renewals.
        let counts = u64::from(!call.path.contains("/leases"));
        let number = self.calls.fetch_add(counts, Ordering::SeqCst) + counts;
        let arrival = self.observer.as_ref().map(|observer| observer.before(call)).unwrap_or_default();
        if arrival == Arrival::Twice {
            drop(carry_out().await);
        }
        let answer = carry_out().await;
        if number >= self.last.load(Ordering::SeqCst) {
            self.cut();
        }
        self.free(call.side).await;
        answer
    }

    /// Returns a transport over these wires to the management controller of a host or machine. Calls over
    /// this transport are not observed, and only resets are counted.
    pub fn controller(&self, pve: &Pve, kube: &Kube, name: &str) -> Transport {
        let (pve, kube, name, wire) = (pve.clone(), kube.clone(), name.to_owned(), self.clone());
        Transport::new(service_fn(move |request: Request<Bytes>| {
            let (pve, kube, name, wire) = (pve.clone(), kube.clone(), name.clone(), wire.clone());
            async move {
                let counts = u64::from(request.method() != http::Method::GET);
                wire.unless_cut().await;
                let number = wire.calls.fetch_add(counts, Ordering::SeqCst) + counts;
                let answer = redfish::handle(&pve, &kube, &name, &request);
                if counts > 0 && number >= wire.last.load(Ordering::SeqCst) {
                    wire.cut();
                }
                wire.unless_cut().await;
                Ok::<_, BoxError>(answer)
            }
        }))
    }

    async fn unless_cut(&self) {
        if self.is_cut() {
            std::future::pending::<()>().await;
        }
    }

    /// A Proxmox VE client that uses these wires.
    ///
    /// # Errors
    /// Returns an error if the client refuses its settings.
    pub fn proxmox(&self, pve: &Pve) -> Result<Client, http::Error> {
        let (pve, wire) = (pve.clone(), self.clone());
        let transport = Transport::new(service_fn(move |request: Request<Bytes>| {
            let (pve, wire) = (pve.clone(), wire.clone());
            async move {
                let (method, uri, body) =
                    (request.method().clone(), request.uri().clone(), request.body().clone());
                let path = uri.path().strip_prefix("/api2/json").unwrap_or(uri.path());
                let query = uri.query().unwrap_or_default();
                let (side, method, sent) = (Side::Proxmox, method.as_str(), Instant::now());
                let call = Call { side, method, path, query, body: &body, sent };
                let answer = wire.pass(call, || pve.handle(request.clone())).await;
                let (parts, body) = answer.map_err(|_| BoxError::from("no answer"))?.into_parts();
                let bytes = body.collect().await.map_err(|_| BoxError::from("cut off"))?.to_bytes();
                Ok::<_, BoxError>(Response::from_parts(parts, bytes))
            }
        }));
        let settings = Settings {
            endpoints: vec!["https://127.0.0.1:8006".to_owned()],
            token_id: ClusterSpec::DEMO_TOKEN.to_owned(),
            agent_lane: 1,
            lifecycle_lane: 2,
            linked_clones: 4,
            full_clones: 2,
        };
        Client::new(transport, settings, &SecretString::from(ClusterSpec::DEMO_SECRET))
    }

    /// A Kubernetes client that uses these wires. The daemon's namespace is `pve-autoscaler`.
    pub fn kubernetes(&self, kube: &Kube) -> Cluster {
        let (kube, wire) = (kube.clone(), self.clone());
        let service = service_fn(move |mut request: Request<Bytes>| {
            let (kube, wire) = (kube.clone(), wire.clone());
            async move {
                let token = format!("Bearer {}", KubeSpec::DEMO_ADMIN_TOKEN);
                request.headers_mut().insert("authorization", token.parse()?);
                let (method, uri, body) =
                    (request.method().clone(), request.uri().clone(), request.body().clone());
                let query = uri.query().unwrap_or_default();
                let (side, method, path) = (Side::Kubernetes, method.as_str(), uri.path());
                let call = Call { side, method, path, query, body: &body, sent: Instant::now() };
                let answer = wire.pass(call, || kube.handle(request.clone())).await;
                let answer: Response<Body> = answer.map_err(|_| BoxError::from("no answer"))?;
                let is_watch = query.contains("watch=true");
                let stall = wire.stall.clone().filter(|_| is_watch);
                Ok::<_, BoxError>(answer.map(|body| halting(body, stall)))
            }
        });
        Cluster::with_service(service, "pve-autoscaler")
    }
}

type Halting = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;

/// A body that delivers no frames while its stream is paused.
fn halting(body: Body, stall: Option<Stall>) -> Halting {
    let Some(stall) = stall else {
        return body.map_err(|_| BoxError::from("cut off")).boxed_unsync();
    };
    let frames = BodyStream::new(body).then(move |frame| {
        let stall = stall.clone();
        async move {
            stall.over().await;
            frame.map_err(|_| BoxError::from("cut off"))
        }
    });
    StreamBody::new(frames).boxed_unsync()
}
