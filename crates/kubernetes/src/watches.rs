//! The state of the cluster, kept up to date by watches.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::api::scheduling::v1 as scheduling;
use k8s_openapi::api::storage::v1 as storage;
use kube::core::DeserializeGuard;
use kube::{Api, Resource};
use runtime::boxed;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::buffers::{self, Referred};
use super::cluster::Cluster;
use super::convert::{self, ConvertError};
use super::gangs;
use super::object_cache::Store;
use super::pod_templates;
use super::version;
use super::wake_signals::{self, Worth};
use super::watch_health::{Board, Problem};
use super::watch_loop::Feed;
use model::buffer::{CapacityBuffer, PodTemplate, TemplateRef};
use model::devices::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use model::gang::PodGroup;
use model::pod_spec::Specs;
use model::request::ProvisioningRequest;
use model::workload::{
    Controller, CsiDriver, CsiNode, DaemonSet, DisruptionBudget, Namespace, PersistentVolume, PriorityClass,
    StorageCapacity, StorageClass, VolumeAttachment, VolumeClaim,
};
use model::{KubernetesVersion, Node, Pod, Snapshot};
use runtime::ordered_notify::Changed;

/// The watched kinds, and whether they are essential for decisions.
const KINDS: &[(&str, bool)] = &[
    ("Node", true),
    ("Pod", true),
    ("PodDisruptionBudget", true),
    ("Namespace", false),
    ("ReplicaSet", false),
    ("ReplicationController", false),
    ("StatefulSet", false),
    ("Deployment", false),
    ("DaemonSet", false),
    ("Job", false),
    ("PriorityClass", false),
    ("PersistentVolume", false),
    ("PersistentVolumeClaim", false),
    ("StorageClass", false),
    ("CSIDriver", false),
    ("CSINode", false),
    ("CSIStorageCapacity", false),
    ("VolumeAttachment", false),
    ("ResourceClaim", false),
    ("DeviceClass", false),
    ("ResourceSlice", false),
    ("DeviceTaintRule", false),
    (buffers::KIND, false),
    (buffers::REQUEST, false),
    (pod_templates::KIND, false),
    (gangs::KIND, false),
    (version::KIND, false),
];

#[derive(Debug, Default)]
struct Stores {
    nodes: Store<Node>,
    pods: Store<Pod>,
    budgets: Store<DisruptionBudget>,
    namespaces: Store<Namespace>,
    uid: Arc<OnceLock<String>>,
    replica_sets: Store<Controller>,
    replication_controllers: Store<Controller>,
    stateful_sets: Store<Controller>,
    deployments: Store<Controller>,
    jobs: Store<Controller>,
    daemon_sets: Store<DaemonSet>,
    priority_classes: Store<PriorityClass>,
    volumes: Store<PersistentVolume>,
    claims: Store<VolumeClaim>,
    storage_classes: Store<StorageClass>,
    csi_drivers: Store<CsiDriver>,
    csi_nodes: Store<CsiNode>,
    storage_capacities: Store<StorageCapacity>,
    attachments: Store<VolumeAttachment>,
    resource_claims: Store<ResourceClaim>,
    device_classes: Store<DeviceClass>,
    resource_slices: Store<ResourceSlice>,
    device_taint_rules: Store<DeviceTaintRule>,
    buffers: Store<CapacityBuffer>,
    requests: Store<ProvisioningRequest>,
    pod_templates: Store<PodTemplate>,
    pod_groups: Store<PodGroup>,
}

impl Stores {
    /// Whether the buffer's references have been resolved. Until then, the buffer is left out of snapshots.
    fn can_be_resolved(&self, buffer: &CapacityBuffer, controllers: &[Arc<Controller>]) -> bool {
        match &buffer.template {
            Some(TemplateRef::PodTemplate(_)) => self.pod_templates.is_listed(),
            Some(TemplateRef::Scalable { .. }) => {
                let found = controllers.iter().find(|one| buffer.refers_to(one));
                found.is_none_or(|controller| controller.template.is_some())
            }
            None => true,
        }
    }

    /// Whether each template that the request names is known. This matters while the list of templates may be
    /// outdated: a missing template then proves nothing, so the request is left out.
    fn have_templates_of(&self, request: &ProvisioningRequest) -> bool {
        let key = |name: &str| format!("{}/{name}", request.namespace);
        request.sets.iter().all(|(name, _)| self.pod_templates.get(&key(name)).is_some())
    }
}

/// Watches of all kinds that decisions read. Cheap to clone. The watches end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Watches {
    stores: Arc<Stores>,
    version: watch::Receiver<Option<KubernetesVersion>>,
    board: Board,
    _stop: Arc<DropGuard>,
}

impl Watches {
    /// Starts watching, until `cancel` is cancelled or the last clone of the result is dropped. Must be
    /// called inside a tokio runtime.
    pub fn start(cluster: &Cluster, cancel: &CancellationToken) -> Self {
        let stores = Arc::new(Stores::default());
        let board = Board::new(KINDS);
        let cancel = cancel.child_token();
        let starter = Starter { cluster, board: &board, cancel: &cancel };
        let version = starter.version();
        let s = &*stores;
        starter.spawn::<core::Node, _>("Node", convert::node, wake_signals::node, &s.nodes);
        starter.pods(&s.pods, version.clone());
        starter.spawn::<policy::PodDisruptionBudget, _>(
            "PodDisruptionBudget",
            convert::budget,
            wake_signals::any,
            &s.budgets,
        );
        starter.namespaces(&s.namespaces, &s.uid);
        let referred = starter.buffers(&s.buffers, &s.requests, &s.pod_templates);
        starter.controllers(s, &referred);
        starter.storage(s);
        starter.devices(s);
        starter.run(gangs::GROUPS.follow(cluster.clone(), board.clone(), s.pod_groups.clone()));
        starter.spawn::<scheduling::PriorityClass, _>(
            "PriorityClass",
            |one| Ok(convert::priority_class(one)),
            wake_signals::none,
            &s.priority_classes,
        );
        Self { stores, version, board, _stop: Arc::new(cancel.drop_guard()) }
    }

    /// Returns a snapshot of the cluster's currently known state. The caller adds the time, the Proxmox VE
    /// data and the daemon's memory.
    pub fn snapshot(&self) -> Snapshot {
        let s = &self.stores;
        let controllers =
            [&s.replica_sets, &s.replication_controllers, &s.stateful_sets, &s.deployments, &s.jobs];
        let mut snapshot = Snapshot {
            kubernetes: self.version.borrow().unwrap_or_default(),
            nodes: s.nodes.all(),
            pods: s.pods.all(),
            namespaces: s.namespaces.all(),
            controllers: controllers.into_iter().flat_map(Store::all).collect(),
            daemon_sets: s.daemon_sets.all(),
            budgets: s.budgets.all(),
            volumes: s.volumes.all(),
            claims: s.claims.all(),
            storage_classes: s.storage_classes.all(),
            csi_drivers: s.csi_drivers.all(),
            csi_nodes: s.csi_nodes.all(),
            storage_capacities: s.storage_capacities.all(),
            attachments: s.attachments.all(),
            priority_classes: s.priority_classes.all(),
            resource_claims: s.resource_claims.all(),
            device_classes: s.device_classes.all(),
            resource_slices: s.resource_slices.all(),
            device_taint_rules: s.device_taint_rules.all(),
            pod_templates: s.pod_templates.all(),
            ..Snapshot::default()
        };
        snapshot.buffers = s.buffers.all();
        let current = s.pod_templates.is_listed() && self.board.is_well(pod_templates::KIND);
        let requests =
            || s.requests.all().into_iter().filter(|one| current || s.have_templates_of(one)).collect();
        snapshot.pod_groups = s.pod_groups.is_listed().then(|| s.pod_groups.all());
        snapshot.requests = s.requests.is_listed().then(requests);
        snapshot.buffers.retain(|buffer| s.can_be_resolved(buffer, &snapshot.controllers));
        snapshot
    }

    /// A node by name.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.stores.nodes.get(name)
    }

    /// All nodes.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.stores.nodes.all()
    }

    /// The node with this `systemUUID`.
    pub fn node_by_system_uuid(&self, uuid: &str) -> Option<Arc<Node>> {
        self.stores.nodes.all().into_iter().find(|node| node.system_uuid == uuid)
    }

    /// The names of the PersistentVolumes that are attached to the node. A volume without a PersistentVolume
    /// is listed by the name of its VolumeAttachment.
    pub fn attached(&self, node: &str) -> BTreeSet<String> {
        let all = self.stores.attachments.all();
        let here = all.iter().filter(|one| one.node == node);
        here.map(|one| one.volume.clone().unwrap_or_else(|| one.name.clone())).collect()
    }

    /// The uid that identifies this Kubernetes cluster. It is known once namespaces have been read.
    pub fn kubernetes_uid(&self) -> Option<String> {
        self.stores.uid.get().cloned()
    }

    /// A pod by namespace and name.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.stores.pods.get(&format!("{namespace}/{name}"))
    }

    /// A number that increases with every change that triggers a round.
    pub fn changed(&self) -> Changed {
        self.board.changed()
    }

    /// A number that increases with every pod that becomes pending. It increases before the number that
    /// [`Self::changed`] returns does.
    pub fn demand(&self) -> Changed {
        self.board.demand()
    }

    /// Waits until the daemon has listed each kind once or given up on it. It gives up on a nonessential kind
    /// if the API server does not serve that kind, or refuses it several times. The wait continues while any
    /// other kind cannot be read; [`Watches::problems`] contains the reason.
    #[boxed]
    pub async fn synced(&self) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.board.settled().wait_for(|settled| *settled).await;
    }

    /// Whether the daemon has listed each kind once or given up on it; see [`Self::synced`].
    pub fn is_synced(&self) -> bool {
        *self.board.settled().borrow()
    }

    /// The current problems: kinds and single objects that cannot be read.
    pub fn problems(&self) -> Vec<Problem> {
        self.board.problems()
    }

    /// The kinds that the API server currently refuses to show. The data about them is outdated or empty.
    pub fn unseen(&self) -> Vec<Problem> {
        self.board.unseen()
    }

    /// Whether the essential kinds are current: all kinds are synced, and the watches of the essential ones
    /// are not broken.
    pub fn is_current(&self) -> bool {
        self.is_synced() && !self.problems().iter().any(|problem| problem.essential)
    }
}

pub(super) struct Starter<'a> {
    pub cluster: &'a Cluster,
    pub board: &'a Board,
    cancel: &'a CancellationToken,
}

impl Starter<'_> {
    fn version(&self) -> watch::Receiver<Option<KubernetesVersion>> {
        let (known, version) = watch::channel(None);
        self.run(version::follow(self.cluster.clone(), self.board.clone(), known));
        version
    }

    /// Watches pods. The resources that a pod uses on its node depend on the control plane's version, so all
    /// pods are listed again if the version changes.
    fn pods(&self, store: &Store<Pod>, mut version: watch::Receiver<Option<KubernetesVersion>>) {
        let api: Api<DeserializeGuard<core::Pod>> = Api::all(self.cluster.client.clone());
        let (store, board) = (store.clone(), self.board.clone());
        self.run(async move {
            loop {
                let Ok(known) = version.wait_for(Option::is_some).await.map(|known| *known) else { return };
                let specs = Mutex::new(Specs::default());
                let convert = Box::new(move |pod: &_| {
                    let mut specs = specs.lock().unwrap_or_else(PoisonError::into_inner);
                    convert::pod(pod, known.unwrap_or_default(), &mut specs)
                });
                let feed = Feed {
                    kind: "Pod",
                    api: api.clone(),
                    fields: None,
                    convert,
                    worth: wake_signals::pod,
                    store: store.clone(),
                    board: board.clone(),
                };
                tokio::select! {
                    biased;
                    other = version.wait_for(|other| *other != known) => {
                        if other.is_err() {
                            return;
                        }
                    }
                    () = feed.follow() => {}
                }
            }
        });
    }

    fn controllers(&self, s: &Stores, referred: &watch::Receiver<Arc<Referred>>) {
        self.controllers_of::<apps::ReplicaSet>(
            "ReplicaSet",
            convert::replica_set,
            &s.replica_sets,
            referred,
        );
        self.controllers_of::<apps::StatefulSet>(
            "StatefulSet",
            convert::stateful_set,
            &s.stateful_sets,
            referred,
        );
        self.controllers_of::<apps::Deployment>("Deployment", convert::deployment, &s.deployments, referred);
        self.controllers_of::<batch::Job>("Job", convert::job, &s.jobs, referred);
        self.controllers_of::<core::ReplicationController>(
            "ReplicationController",
            convert::replication_controller,
            &s.replication_controllers,
            referred,
        );
        self.spawn::<apps::DaemonSet, _>(
            "DaemonSet",
            convert::daemon_set,
            wake_signals::none,
            &s.daemon_sets,
        );
    }

    fn storage(&self, s: &Stores) {
        self.spawn::<core::PersistentVolume, _>(
            "PersistentVolume",
            convert::volume,
            wake_signals::none,
            &s.volumes,
        );
        self.spawn::<core::PersistentVolumeClaim, _>(
            "PersistentVolumeClaim",
            convert::claim,
            wake_signals::none,
            &s.claims,
        );
        self.spawn::<storage::StorageClass, _>(
            "StorageClass",
            |one| Ok(convert::storage_class(one)),
            wake_signals::none,
            &s.storage_classes,
        );
        self.spawn::<storage::CSIDriver, _>(
            "CSIDriver",
            |one| Ok(convert::csi_driver(one)),
            wake_signals::none,
            &s.csi_drivers,
        );
        self.spawn::<storage::CSIStorageCapacity, _>(
            "CSIStorageCapacity",
            convert::storage_capacity,
            wake_signals::none,
            &s.storage_capacities,
        );
        self.spawn::<storage::CSINode, _>(
            "CSINode",
            |one| Ok(convert::csi_node(one)),
            wake_signals::none,
            &s.csi_nodes,
        );
        // The removal of a machine waits until its volumes are detached, so every change to an attachment
        // triggers a round.
        self.spawn::<storage::VolumeAttachment, _>(
            "VolumeAttachment",
            |one| Ok(convert::attachment(one)),
            wake_signals::any,
            &s.attachments,
        );
    }

    /// Watches the kinds that describe devices. Not every API server serves them.
    fn devices(&self, s: &Stores) {
        self.spawn::<resource::ResourceClaim, _>(
            "ResourceClaim",
            convert::resource_claim,
            wake_signals::none,
            &s.resource_claims,
        );
        self.spawn::<resource::DeviceClass, _>(
            "DeviceClass",
            |one| Ok(convert::device_class(one)),
            wake_signals::none,
            &s.device_classes,
        );
        self.spawn::<resource::ResourceSlice, _>(
            "ResourceSlice",
            convert::resource_slice,
            wake_signals::none,
            &s.resource_slices,
        );
        self.spawn::<resource::DeviceTaintRule, _>(
            "DeviceTaintRule",
            |one| Ok(convert::device_taint_rule(one)),
            wake_signals::none,
            &s.device_taint_rules,
        );
    }

    /// Watches namespaces. The uid of `kube-system`, which exists for as long as the cluster does, is used as
    /// the cluster's uid.
    fn namespaces(&self, store: &Store<Namespace>, uid: &Arc<OnceLock<String>>) {
        let uid = uid.clone();
        let convert = move |one: &core::Namespace| {
            if let ("kube-system", Some(own)) =
                (one.metadata.name.as_deref().unwrap_or_default(), &one.metadata.uid)
            {
                uid.get_or_init(|| own.clone());
            }
            Ok(convert::namespace(one))
        };
        let feed = Feed {
            kind: "Namespace",
            api: Api::all(self.cluster.client.clone()),
            fields: None,
            convert: Box::new(convert),
            worth: wake_signals::none,
            store: store.clone(),
            board: self.board.clone(),
        };
        self.run(feed.follow());
    }

    fn spawn<K, T>(
        &self,
        kind: &'static str,
        convert: fn(&K) -> Result<T, ConvertError>,
        worth: fn(Option<&T>, Option<&T>) -> Worth,
        store: &Store<T>,
    ) where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        T: PartialEq + Send + Sync + 'static,
    {
        let api: Api<DeserializeGuard<K>> = Api::all(self.cluster.client.clone());
        let (store, board, convert) = (store.clone(), self.board.clone(), Box::new(convert));
        let feed = Feed { kind, api, fields: None, convert, worth, store, board };
        self.run(feed.follow());
    }

    pub(super) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = task => {}
            }
        });
    }
}
