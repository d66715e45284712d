//! An embedded Proxmox VE cluster: requests in, the real one's answers out, over simulated hosts and guests.
//!
//! [`Pve`] is a handle on the whole cluster. The state sits behind one plain lock that is never held across an await;
//! work that takes time runs as tasks on tokio's time. `spec` says what a cluster is made of, `hands` is what a test
//! does to it, everything else answers calls.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, header};
use jiff::Timestamp;
use tokio::{
    sync::{RwLock, Semaphore, broadcast},
    time::Instant,
};

use self::{
    answer::{Answer, Refusal, respond},
    params::Params,
    schema::Schema,
    spec::ClusterSpec,
    state::{Host, Pool, State, Vm, Volume},
};
use crate::{
    clock::WorldClock,
    guest::control_plane::ControlPlane,
    serve::{Body, NoAnswer},
};

mod access;
mod agent;
mod answer;
mod clone;
mod cluster;
mod config;
mod ha;
mod hands;
mod lifecycle;
mod params;
mod pools;
mod power;
mod schema;
pub mod spec;
mod state;
mod storage;
mod task;
mod tasks;
mod upid;

pub use hands::{CallRecord, Effect, Fault, VmView};

/// Blocking workers of a host for protected calls.
const WORKERS: usize = 3;
/// What the proxy waits for a call behind it.
const PROXY_LIMIT: Duration = Duration::from_secs(30);

/// Something that happened, for a live display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A task began.
    TaskStarted {
        /// Its id.
        upid: String,
    },
    /// A task ended.
    TaskEnded {
        /// Its id.
        upid: String,
        /// Its exit status.
        exit: String,
    },
    /// A VM was powered on or off.
    Power {
        /// VMID.
        vmid: u32,
        /// Whether it runs now.
        on: bool,
    },
    /// A guest joined a Kubernetes cluster.
    GuestJoined {
        /// VMID.
        vmid: u32,
    },
}

/// The locks of VMs by node and id.
type Locks = BTreeMap<(String, u32), Arc<RwLock<()>>>;

/// A handle on the cluster. Cheap to clone.
#[derive(Clone)]
pub struct Pve(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    locks: Mutex<Locks>,
    workers: BTreeMap<String, Arc<Semaphore>>,
    schema: Schema,
    clock: WorldClock,
    control_plane: Arc<dyn ControlPlane>,
    events: broadcast::Sender<Event>,
}

/// A call on its way to its answer.
#[derive(Clone, Debug)]
struct ApiCall {
    who: access::Identity,
    path: BTreeMap<String, String>,
    params: Params,
}

impl ApiCall {
    fn node(&self) -> &str {
        self.path.get("node").map_or("", String::as_str)
    }

    fn vmid(&self) -> u32 {
        self.path.get("vmid").and_then(|id| id.parse().ok()).unwrap_or(0)
    }
}

impl Pve {
    /// A cluster that runs from now on. Must be called inside a tokio runtime.
    pub fn new(
        spec: ClusterSpec,
        clock: WorldClock,
        seed: u64,
        control_plane: Arc<dyn ControlPlane>,
    ) -> Self {
        let schema = Schema::load(spec.schema.as_deref());
        let workers =
            spec.hosts.iter().map(|host| (host.name.clone(), Arc::new(Semaphore::new(WORKERS)))).collect();
        let (events, _) = broadcast::channel(1024);
        let running: Vec<u32> = spec.vms.iter().filter(|vm| vm.running).map(|vm| vm.vmid).collect();
        let state = Mutex::new(initial(spec, seed));
        let pve = Self(Arc::new(Inner {
            state,
            locks: Mutex::default(),
            workers,
            schema,
            clock,
            control_plane,
            events,
        }));
        for vmid in running {
            pve.power_on(vmid);
        }
        pve.beat();
        let weak = Arc::downgrade(&pve.0);
        let beat = pve.state().timings.beat;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(beat).await;
                let Some(inner) = weak.upgrade() else { return };
                Self(inner).beat();
            }
        });
        pve
    }

    /// Answers one request, as the proxy of some host would.
    ///
    /// # Errors
    /// The API is away, or the answer is lost.
    pub async fn handle(&self, request: Request<Bytes>) -> Result<Response<Body>, NoAnswer> {
        let (parts, body) = request.into_parts();
        let raw = parts.uri.path().to_owned();
        let path = raw.strip_prefix("/api2/json").unwrap_or(&raw).to_owned();
        let method = parts.method.as_str().to_owned();
        let (away, time) = {
            let mut state = self.state();
            let time = state.timings.request;
            (state.away, state.vary(time))
        };
        if away {
            return Err(NoAnswer);
        }
        let effect = hands::take_fault(&mut self.state(), &method, &path);
        tokio::time::sleep(time).await;
        let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let who = access::authenticate(&self.state().access, authorization);
        let token = who.as_ref().map_or_else(|_| String::new(), |who| who.token.clone());
        let answering = async {
            match &who {
                Ok(who) => {
                    let params = Params::read(&parts.method, parts.uri.query(), &parts.headers, &body)?;
                    self.dispatch(who.clone(), &method, &path, params).await
                }
                Err(refusal) => {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    Err(refusal.clone())
                }
            }
        };
        let response = match effect {
            None => Ok(respond(answering.await)),
            Some(Effect::Delay(time)) => {
                tokio::time::sleep(time).await;
                Ok(respond(answering.await))
            }
            Some(Effect::Answer { status, reason, body }) => Ok(answer::bare(status, &reason, &body)),
            Some(Effect::WorkThenTimeOut) => {
                let _ = answering.await;
                tokio::time::sleep(PROXY_LIMIT).await;
                Ok(answer::bare(596, "Connection timed out", ""))
            }
            Some(Effect::WorkThenLose) => {
                let _ = answering.await;
                Err(NoAnswer)
            }
            Some(Effect::Lose) => Err(NoAnswer),
        };
        let status = response.as_ref().map_or(0, |response| response.status().as_u16());
        let record =
            CallRecord { time: self.now(), method: method.clone(), path: path.clone(), status, token };
        self.state().record(record);
        response
    }

    async fn dispatch(
        &self,
        who: access::Identity,
        method: &str,
        path: &str,
        mut params: Params,
    ) -> Result<Answer, Refusal> {
        let Some((call, values)) = self.0.schema.find(method, path) else {
            return Err(Refusal::NotImplemented(format!("Method '{method} {path}' not implemented")));
        };
        let (template, protected) = (call.path, call.protected);
        if let Some(node) = values.get("node") {
            self.reach(node).await?;
        }
        for (name, value) in &values {
            if params.text(name).is_some_and(|given| given != *value) {
                return Err(Refusal::parameter(
                    name,
                    "duplicate parameter (already defined in URI with conflicting values!)",
                ));
            }
        }
        params::check(&mut params, &call.rules)?;
        let request = ApiCall { who, path: values, params };
        let worker =
            request.path.get("node").filter(|_| protected).and_then(|node| self.0.workers.get(node)).cloned();
        let (pve, method) = (self.clone(), method.to_owned());
        let Some(worker) = worker else { return pve.answer(&method, template, request).await };
        // The worker goes on when the proxy has long given up.
        let work = tokio::spawn(async move {
            let _permit = worker.acquire_owned().await;
            pve.answer(&method, template, request).await
        });
        match tokio::time::timeout(PROXY_LIMIT, work).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Refusal::Bare(596, "Broken pipe".into())),
            Err(_) => Err(Refusal::Bare(596, "Connection timed out".into())),
        }
    }

    /// Waits as a proxy does for a host that may be off.
    async fn reach(&self, node: &str) -> Result<(), Refusal> {
        let wait = {
            let mut state = self.state();
            match state.hosts.get_mut(node) {
                None => Err(Refusal::failed(format!(
                    "hostname lookup '{node}' failed - failed to get address info for: {node}: Name or service not known"
                ))),
                Some(host) if host.online => return Ok(()),
                Some(host) => {
                    let first = !std::mem::replace(&mut host.timed_out, true);
                    Ok(first)
                }
            }
        };
        match wait {
            Err(refusal) => {
                tokio::time::sleep(Duration::from_secs(10)).await;
                Err(refusal)
            }
            Ok(true) => {
                tokio::time::sleep(PROXY_LIMIT).await;
                Err(Refusal::Bare(595, "Connection timed out".into()))
            }
            Ok(false) => {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Err(Refusal::Bare(595, "No route to host".into()))
            }
        }
    }

    async fn answer(&self, method: &str, template: &str, request: ApiCall) -> Result<Answer, Refusal> {
        if let Some(rest) = template.strip_prefix("/nodes/{node}/qemu/{vmid}") {
            return self.answer_vm(method, rest, request).await;
        }
        let r = &request;
        match (method, template) {
            ("GET", "/version" | "/nodes/{node}/version") => Ok(self.version()),
            ("GET", "/access/permissions") => Ok(self.permissions(r)),
            ("GET", "/cluster/resources") => Ok(self.resources(r)),
            ("GET", "/cluster/nextid") => self.next_id(r),
            ("GET", "/cluster/status") => self.cluster_status(r),
            ("GET", "/cluster/tasks") => Ok(self.cluster_tasks(r)),
            ("GET", "/cluster/options") => Ok(self.cluster_options(r)),
            ("GET", "/cluster/ha/status/current") => self.ha_status(r),
            ("GET", "/storage") => Ok(self.storage_configs(r)),
            ("GET", "/nodes/{node}/network") => Ok(self.network(r)),
            ("GET", "/pools/{poolid}") => self.pool(r),
            ("GET", "/nodes") => Ok(self.nodes(r)),
            ("GET", "/nodes/{node}/status") => self.node_status(r),
            ("GET", "/nodes/{node}/qemu") => Ok(self.node_vms(r)),
            ("GET", "/nodes/{node}/tasks") => Ok(self.task_list(r)),
            ("GET", "/nodes/{node}/tasks/{upid}/status") => self.task_status(r),
            ("GET", "/nodes/{node}/tasks/{upid}/log") => self.task_log(r),
            ("DELETE", "/nodes/{node}/tasks/{upid}") => self.task_stop(r),
            ("GET", "/nodes/{node}/storage") => Ok(self.storages(r)),
            ("GET", "/nodes/{node}/storage/{storage}/status") => self.storage_status(r),
            ("GET", "/nodes/{node}/storage/{storage}/content") => self.storage_content(r),
            ("GET", "/pools") => self.pools(r),
            ("PUT", "/pools") => self.change_pool(r).await,
            _ => Err(Refusal::NotImplemented(format!("Method '{method} {template}' not implemented"))),
        }
    }

    async fn answer_vm(&self, method: &str, rest: &str, request: ApiCall) -> Result<Answer, Refusal> {
        let r = &request;
        match (method, rest) {
            ("DELETE", "") => self.destroy(r),
            ("POST", "/clone") => self.clone_vm(r),
            ("GET", "/config") => self.config(r),
            ("POST" | "PUT", "/config") => self.change_config(r, method == "POST").await,
            ("GET", "/pending") => self.pending(r),
            ("PUT", "/resize") => self.resize(r),
            ("GET", "/feature") => self.feature(r),
            ("GET", "/status/current") => self.status_current(r),
            ("POST", "/status/start") => self.start(r),
            ("POST", "/status/stop") => self.stop(r),
            ("POST", "/status/shutdown") => self.shutdown(r),
            ("GET", "/cloudinit/dump") => self.cloud_init_dump(r),
            _ if rest.starts_with("/agent/") => self.agent(&rest["/agent/".len()..], r).await,
            _ => {
                let path = format!("/nodes/{}/qemu/{}{rest}", r.node(), r.vmid());
                Err(Refusal::NotImplemented(format!("Method '{method} {path}' not implemented")))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.0.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    fn announce(&self, event: Event) {
        // Nobody may be listening; that is fine.
        let _ = self.0.events.send(event);
    }
}

impl tower::Service<Request<Bytes>> for Pve {
    type Response = Response<Body>;
    type Error = NoAnswer;
    type Future = BoxFuture<'static, Result<Response<Body>, NoAnswer>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), NoAnswer>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let pve = self.clone();
        Box::pin(async move { pve.handle(request).await })
    }
}

fn initial(spec: ClusterSpec, seed: u64) -> State {
    let booted = Instant::now();
    let host = |spec: spec::HostSpec| {
        (
            spec.name.clone(),
            Host { spec, online: true, off_since: None, timed_out: false, maintenance: false, booted },
        )
    };
    let mut state = State {
        name: spec.name,
        version: spec.version,
        hosts: spec.hosts.into_iter().map(host).collect(),
        storages: spec.storages.into_iter().map(|storage| (storage.id.clone(), storage)).collect(),
        pools: spec
            .pools
            .into_iter()
            .map(|(name, comment)| (name, Pool { comment, ..Pool::default() }))
            .collect(),
        access: spec.access,
        vms: BTreeMap::new(),
        volumes: BTreeMap::new(),
        tasks: BTreeMap::new(),
        task_order: Vec::new(),
        timings: spec.timings,
        quorum_forced_away: false,
        faults: Vec::new(),
        calls: VecDeque::new(),
        away: false,
        statistics: [BTreeMap::new(), BTreeMap::new()],
        beat_at: None,
        random: fastrand::Rng::with_seed(seed),
        next_pid: 400,
    };
    for vm in spec.vms {
        if let Some(pool) = vm.pool.as_ref().and_then(|pool| state.pools.get_mut(pool)) {
            pool.members.insert(vm.vmid);
        }
        let made = Vm::new(vm.vmid, &vm.node, vm.config, vm.faults);
        for (_, volid, text) in made.drives() {
            let storage = volid.split(':').next().unwrap_or_default().to_owned();
            let size = state::property(&text, "size").and_then(state::parse_size).unwrap_or(0);
            let format = volid.rsplit_once('.').map_or("raw", |(_, format)| format).to_owned();
            let place = state.place(&storage, &vm.node);
            state
                .volumes
                .insert((volid, place), Volume { storage, size, vmid: vm.vmid, parent: None, format });
        }
        state.vms.insert(vm.vmid, made);
    }
    state
}
