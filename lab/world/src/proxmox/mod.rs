//! An embedded Proxmox VE cluster that answers requests as a real cluster does. Its hosts are simulated. By
//! default, its guests are simulated as well.
//!
//! [`Pve`] is a handle to the whole cluster. The state is behind one plain lock that is never held across an
//! await. Work that takes time runs as tokio tasks, on tokio's clock. `spec` describes a cluster, `hands` and
//! `sights` let tests change and inspect it without the API, and the other modules answer API calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, header};
use jiff::Timestamp;
use tokio::sync::{RwLock, Semaphore, broadcast};

use self::{
    answer::{Answer, Refusal, respond},
    params::Params,
    schema::Schema,
    spec::ClusterSpec,
    state::State,
};
use crate::{
    clock::WorldClock,
    fault,
    guest::control_plane::{ControlPlane, NoControlPlane},
    qemu::Hardware,
    serve::{Body, NoAnswer},
};

mod access;
mod agent;
mod ailing;
mod answer;
mod clone;
mod cloudinit;
mod cluster;
mod config;
mod create;
mod files;
mod firewall;
mod formats;
mod grants;
mod ha;
mod hands;
mod host_power;
mod hotplug;
mod initial;
pub mod iso;
mod lifecycle;
mod params;
mod pci;
mod pools;
mod power;
mod process;
mod real_agent;
pub mod rights;
mod schema;
mod seed;
mod sights;
pub mod spec;
mod state;
mod storage;
mod suspend;
mod task;
mod tasks;
mod touch;
mod tracked;
mod upid;
mod vm;

pub use files::WebImage;
pub use firewall::{ClusterFirewall, Firewall};
pub use hands::{CallRecord, Effect, Fault, TaskFault, VmView};
pub use host_power::HostPower;
pub use sights::{GuestView, HostView, StorageView};
pub use touch::Touch;

/// The number of blocking workers per host for protected calls.
const WORKERS: usize = 3;
/// How long the proxy waits for the answer to a call that it forwards.
const PROXY_LIMIT: Duration = Duration::from_secs(30);

/// An event for a live display.
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
        /// Whether the VM runs now.
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

/// A handle to the cluster. Cheap to clone.
#[derive(Clone)]
pub struct Pve(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    locks: Mutex<Locks>,
    workers: BTreeMap<String, Arc<Semaphore>>,
    schema: Schema,
    clock: WorldClock,
    control_plane: Arc<dyn ControlPlane>,
    /// The hardware that VMs run on, if their guests are not simulated.
    hardware: Option<Hardware>,
    events: broadcast::Sender<Event>,
}

/// A call that is being answered.
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
    /// Starts a cluster. Must be called inside a tokio runtime.
    pub fn new(
        spec: ClusterSpec,
        clock: WorldClock,
        seed: u64,
        control_plane: Arc<dyn ControlPlane>,
    ) -> Self {
        Self::build(spec, clock, seed, control_plane, None)
    }

    /// Starts a cluster whose VMs are real QEMU processes. Only the API and the hosts are simulated. Tokio's
    /// time must not be paused.
    pub fn on_hardware(spec: ClusterSpec, clock: WorldClock, seed: u64, hardware: Hardware) -> Self {
        Self::build(spec, clock, seed, Arc::new(NoControlPlane), Some(hardware))
    }

    fn build(
        spec: ClusterSpec,
        clock: WorldClock,
        seed: u64,
        control_plane: Arc<dyn ControlPlane>,
        hardware: Option<Hardware>,
    ) -> Self {
        let schema = Schema::load(spec.schema.as_deref());
        let workers =
            spec.hosts.iter().map(|host| (host.name.clone(), Arc::new(Semaphore::new(WORKERS)))).collect();
        let (events, _) = broadcast::channel(1024);
        let running: Vec<u32> = spec.vms.iter().filter(|vm| vm.running).map(|vm| vm.vmid).collect();
        let state = Mutex::new(initial::state(spec, clock.clone(), seed));
        let pve = Self(Arc::new(Inner {
            state,
            locks: Mutex::default(),
            workers,
            schema,
            clock,
            control_plane,
            hardware,
            events,
        }));
        for vmid in running {
            pve.power_on(vmid);
        }
        // VMs that exist at the start have existed for a long time, so both of pvestatd's last two reports
        // contain them.
        pve.beat();
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
        let weak = Arc::downgrade(&pve.0);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(ha::ROUND).await;
                let Some(inner) = weak.upgrade() else { return };
                Self(inner).ha_round();
            }
        });
        pve
    }

    /// Answers one request, as the proxy of one of the hosts does.
    ///
    /// # Errors
    /// Returns an error if the API is unreachable, or the answer is lost.
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
        let effect = fault::take(&mut self.state().faults, &method, &path);
        tokio::time::sleep(time).await;
        let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let who = access::authenticate(&self.state().access, authorization);
        let token = who.as_ref().map_or_else(|_| String::new(), |who| who.token.clone());
        let answering = async {
            match &who {
                Ok(who) => {
                    let uploaded = path.ends_with("/upload").then(|| files::multipart(&parts.headers, &body));
                    let params = match uploaded.flatten() {
                        Some((mut params, file)) => {
                            params.0.insert("tmpfilename".into(), self.spool(file).into());
                            params
                        }
                        None => Params::read(&parts.method, parts.uri.query(), &parts.headers, &body)?,
                    };
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
            Some(Effect::WorkThenDelay(time)) => {
                let answer = respond(answering.await);
                tokio::time::sleep(time).await;
                Ok(answer)
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
        if !["GET", "POST", "PUT", "DELETE"].contains(&method) {
            return Err(Refusal::Bare(501, format!("method '{method}' not available")));
        }
        let Some((call, values)) = self.0.schema.find(method, path) else {
            return Err(Refusal::NotImplemented(format!("Method '{method} {path}' not implemented")));
        };
        let (template, protected) = (call.path, call.protected);
        // The answering host sends the wake-on-LAN packet itself, because a call cannot be forwarded to a
        // host that is off.
        let own = template == "/nodes/{node}/wakeonlan";
        if let Some(node) = values.get("node").filter(|_| !own) {
            self.reach(node).await?;
        }
        if let Some(vmid) = values.get("vmid") {
            formats::vmid(vmid).map_err(|text| Refusal::parameter("vmid", text))?;
        }
        for (name, value) in &values {
            if params.text(name).is_some_and(|given| given != *value) {
                return Err(Refusal::parameter(
                    name,
                    "duplicate parameter (already defined in URI) with conflicting values!",
                ));
            }
        }
        params::check(&mut params, &call.rules)?;
        let request = ApiCall { who, path: values, params };
        let worker =
            request.path.get("node").filter(|_| protected).and_then(|node| self.0.workers.get(node)).cloned();
        let (pve, method) = (self.clone(), method.to_owned());
        let Some(worker) = worker else { return pve.answer(&method, template, request).await };
        // The worker continues even if the proxy gives up.
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

    /// Waits for a host that may be off, as the proxy does.
    async fn reach(&self, node: &str) -> Result<(), Refusal> {
        let wait = {
            let mut state = self.state();
            match state.hosts.get_mut(node) {
                None => Err(Refusal::failed(format!(
                    "hostname lookup '{node}' failed - failed to get address info for: {node}: Name or service not known"
                ))),
                Some(host) if host.online && !host.boots() => return Ok(()),
                Some(host) if host.online => return Err(Refusal::Bare(595, "Connection refused".into())),
                Some(host) => {
                    let first = !std::mem::replace(&mut host.timed_out, true);
                    Ok(first && host.is_looked_for())
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
            ("GET", "/cluster/mapping/pci") => Ok(self.pci_mappings(r)),
            ("GET", "/cluster/firewall/options") => self.cluster_firewall_options(r),
            ("GET", "/cluster/firewall/groups") => Ok(self.security_groups()),
            ("GET", "/storage") => Ok(self.storage_configs(r)),
            ("GET", "/nodes/{node}/network") => Ok(self.network(r)),
            ("GET", "/pools/{poolid}") => self.pool(r),
            ("GET", "/nodes") => Ok(self.nodes(r)),
            ("GET", "/nodes/{node}/status") => self.node_status(r),
            ("POST", "/nodes/{node}/status") => self.host_command(r),
            ("GET", "/nodes/{node}/config") => self.node_config(r),
            ("POST", "/nodes/{node}/wakeonlan") => self.wake_on_lan(r),
            ("GET", "/cluster/config/nodes") => self.corosync_nodes(r),
            ("GET", "/cluster/config/qdevice") => self.qdevice(r),
            ("GET", "/cluster/ceph/metadata") => self.ceph_metadata(r),
            // The embedded cluster has no containers.
            ("GET", "/nodes/{node}/lxc") => Ok(serde_json::json!([]).into()),
            ("GET", "/nodes/{node}/qemu") => Ok(self.node_vms(r)),
            ("GET", "/nodes/{node}/time") => self.node_time(r),
            ("GET", "/nodes/{node}/tasks") => Ok(self.task_list(r)),
            ("GET", "/nodes/{node}/tasks/{upid}/status") => self.task_status(r),
            ("GET", "/nodes/{node}/tasks/{upid}/log") => self.task_log(r),
            ("DELETE", "/nodes/{node}/tasks/{upid}") => self.task_stop(r),
            ("GET", "/nodes/{node}/storage") => Ok(self.storages(r)),
            ("GET", "/nodes/{node}/storage/{storage}/status") => self.storage_status(r),
            ("GET", "/nodes/{node}/storage/{storage}/content") => self.storage_content(r),
            ("POST", "/nodes/{node}/storage/{storage}/upload") => self.upload(r).await,
            ("POST", "/nodes/{node}/storage/{storage}/download-url") => self.download(r),
            ("DELETE", "/nodes/{node}/storage/{storage}/content/{volume}") => self.delete_volume(r),
            ("POST", "/nodes/{node}/qemu") => self.create_vm(r),
            ("GET", "/pools") => self.pools(r),
            ("PUT", "/pools") => self.change_pool(r).await,
            ("POST", "/pools") => self.create_pool(r).await,
            ("GET", "/access/roles") => Ok(self.roles()),
            ("POST", "/access/roles") => self.change_role(r, true).await,
            ("PUT", "/access/roles/{roleid}") => self.change_role(r, false).await,
            ("GET", "/access/users") => Ok(self.users(r)),
            ("POST", "/access/users") => self.create_user(r).await,
            ("GET", "/access/users/{userid}/token") => self.tokens(r),
            ("POST", "/access/users/{userid}/token/{tokenid}") => self.create_token(r).await,
            ("GET", "/access/acl") => Ok(self.grants(r)),
            ("PUT", "/access/acl") => self.change_grants(r).await,
            _ => Err(Refusal::NotImplemented(format!("Method '{method} {template}' not implemented"))),
        }
    }

    async fn answer_vm(&self, method: &str, rest: &str, request: ApiCall) -> Result<Answer, Refusal> {
        let r = &request;
        match (method, rest) {
            ("DELETE", "") => self.destroy(r),
            ("POST", "/clone") => self.clone_vm(r),
            ("POST", "/template") => self.convert(r),
            ("GET", "/config") => self.config(r),
            ("POST" | "PUT", "/config") => self.change_config(r, method == "POST").await,
            ("GET", "/pending") => self.pending(r),
            ("PUT", "/resize") => self.resize(r),
            ("GET", "/feature") => self.feature(r),
            ("GET", "/status/current") => self.status_current(r),
            ("POST", "/status/start") => self.start(r),
            ("POST", "/status/stop") => self.stop(r),
            ("POST", "/status/shutdown") => self.shutdown(r),
            ("POST", "/status/reboot") => self.reboot(r),
            ("POST", "/status/reset") => self.reset(r),
            ("POST", "/status/suspend") => self.suspend(r),
            ("GET", "/cloudinit") => self.cloud_init_pending(r),
            ("PUT", "/cloudinit") => self.renew_cloud_init(r).await,
            ("GET", "/cloudinit/dump") => self.cloud_init_dump(r),
            _ if rest.starts_with("/firewall/") => self.firewall(method, &rest["/firewall/".len()..], r),
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
        // There may be no listener; that is fine.
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
