//! The resources that this API server serves.

/// One resource type.
#[expect(clippy::struct_field_names, reason = "the API calls the field `kind`")]
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// The API group, empty for the core group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Such as `Node`.
    pub kind: &'static str,
    /// Such as `nodes`.
    pub plural: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Short names, for discovery.
    pub short: &'static [&'static str],
    /// Whether the status is a subresource, so that writes to the object itself do not change the status.
    pub status: bool,
    /// Whether changes to an object's spec increment its `metadata.generation`.
    pub generation: bool,
    /// The name under which the objects are stored. Two resources may serve the same objects.
    pub store: &'static str,
}

impl Kind {
    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.into() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether the resource is served only if its CustomResourceDefinition exists.
    pub fn is_custom(&self) -> bool {
        self.group.ends_with(".x-k8s.io")
    }

    /// The resource's name in errors, such as `leases.coordination.k8s.io`.
    pub fn resource(&self) -> String {
        dotted(self.plural, self.group)
    }

    /// The kind's name in validation errors, such as `Lease.coordination.k8s.io`.
    pub fn qualified(&self) -> String {
        dotted(self.kind, self.group)
    }
}

/// `name.group`, or the name alone for the core group.
pub(super) fn dotted(name: &str, group: &str) -> String {
    if group.is_empty() { name.into() } else { format!("{name}.{group}") }
}

/// The resource with this group and plural name.
pub(super) fn by_plural(group: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.group == group && kind.plural == plural).copied()
}

/// The resource of this kind. If there are several, the one in the core group wins.
pub(super) fn by_kind(kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|one| one.kind == kind).copied()
}

/// The resource whose objects are stored under this name.
pub(super) fn by_store(store: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|one| one.store == store).copied()
}

const fn core(
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
) -> Kind {
    Kind {
        group: "",
        version: "v1",
        kind,
        plural,
        namespaced,
        short,
        status: false,
        generation: false,
        store: plural,
    }
}

const fn of(group: &'static str, version: &'static str, base: Kind) -> Kind {
    Kind { group, version, ..base }
}

const fn kept_as(store: &'static str, base: Kind) -> Kind {
    Kind { store, ..base }
}

const fn with_status(base: Kind) -> Kind {
    Kind { status: true, ..base }
}

const fn with_generation(base: Kind) -> Kind {
    Kind { status: true, generation: true, ..base }
}

pub(super) static NODE: Kind = core("Node", "nodes", false, &["no"]);
pub(super) static POD: Kind = with_generation(core("Pod", "pods", true, &["po"]));
pub(super) static NAMESPACE: Kind = with_status(core("Namespace", "namespaces", false, &["ns"]));
pub(super) static CONFIG_MAP: Kind = core("ConfigMap", "configmaps", true, &["cm"]);
pub(super) static SECRET: Kind = core("Secret", "secrets", true, &[]);
pub(super) static EVENT: Kind = core("Event", "events", true, &["ev"]);
static NEW_EVENT: Kind = of("events.k8s.io", "v1", core("Event", "events", true, &["ev"]));
static SERVICE: Kind = with_status(core("Service", "services", true, &["svc"]));
pub(super) static SERVICE_ACCOUNT: Kind = core("ServiceAccount", "serviceaccounts", true, &["sa"]);
pub(super) static CLAIM: Kind =
    with_status(core("PersistentVolumeClaim", "persistentvolumeclaims", true, &["pvc"]));
pub(super) static VOLUME: Kind = with_status(core("PersistentVolume", "persistentvolumes", false, &["pv"]));
static REPLICATION_CONTROLLER: Kind =
    with_generation(core("ReplicationController", "replicationcontrollers", true, &["rc"]));
pub(super) static DEPLOYMENT: Kind =
    of("apps", "v1", with_generation(core("Deployment", "deployments", true, &["deploy"])));
pub(super) static REPLICA_SET: Kind =
    of("apps", "v1", with_generation(core("ReplicaSet", "replicasets", true, &["rs"])));
pub(super) static STATEFUL_SET: Kind =
    of("apps", "v1", with_generation(core("StatefulSet", "statefulsets", true, &["sts"])));
pub(super) static DAEMON_SET: Kind =
    of("apps", "v1", with_generation(core("DaemonSet", "daemonsets", true, &["ds"])));
pub(super) static JOB: Kind = of("batch", "v1", with_generation(core("Job", "jobs", true, &[])));
pub(super) static BUDGET: Kind =
    of("policy", "v1", with_generation(core("PodDisruptionBudget", "poddisruptionbudgets", true, &["pdb"])));
pub(super) static PRIORITY_CLASS: Kind =
    of("scheduling.k8s.io", "v1", core("PriorityClass", "priorityclasses", false, &["pc"]));
/// PodGroups are served only if their feature gate is on.
pub(super) static POD_GROUP: Kind =
    of("scheduling.k8s.io", "v1beta1", with_generation(core("PodGroup", "podgroups", true, &[])));
pub(super) static STORAGE_CLASS: Kind =
    of("storage.k8s.io", "v1", core("StorageClass", "storageclasses", false, &["sc"]));
static CSI_DRIVER: Kind = of("storage.k8s.io", "v1", core("CSIDriver", "csidrivers", false, &[]));
static STORAGE_CAPACITY: Kind =
    of("storage.k8s.io", "v1", core("CSIStorageCapacity", "csistoragecapacities", true, &[]));
pub(super) static CSI_NODE: Kind = of("storage.k8s.io", "v1", core("CSINode", "csinodes", false, &[]));
pub(super) static ATTACHMENT: Kind =
    of("storage.k8s.io", "v1", with_status(core("VolumeAttachment", "volumeattachments", false, &[])));
pub(super) static LEASE: Kind = of("coordination.k8s.io", "v1", core("Lease", "leases", true, &[]));
pub(super) static ACCESS_REVIEW: Kind =
    of("authorization.k8s.io", "v1", core("SelfSubjectAccessReview", "selfsubjectaccessreviews", false, &[]));
pub(super) static SUBJECT_REVIEW: Kind =
    of("authentication.k8s.io", "v1", core("SelfSubjectReview", "selfsubjectreviews", false, &[]));
pub(super) static RESOURCE_CLAIM: Kind =
    of("resource.k8s.io", "v1", with_status(core("ResourceClaim", "resourceclaims", true, &[])));
pub(super) static RESOURCE_SLICE: Kind =
    of("resource.k8s.io", "v1", core("ResourceSlice", "resourceslices", false, &[]));
pub(super) static DEVICE_CLASS: Kind =
    of("resource.k8s.io", "v1", core("DeviceClass", "deviceclasses", false, &[]));
static DEVICE_TAINT_RULE: Kind =
    of("resource.k8s.io", "v1", with_status(core("DeviceTaintRule", "devicetaintrules", false, &[])));
pub(super) static CLUSTER_ROLE: Kind =
    of("rbac.authorization.k8s.io", "v1", core("ClusterRole", "clusterroles", false, &[]));
pub(super) static CLUSTER_ROLE_BINDING: Kind =
    of("rbac.authorization.k8s.io", "v1", core("ClusterRoleBinding", "clusterrolebindings", false, &[]));
pub(super) static ROLE: Kind = of("rbac.authorization.k8s.io", "v1", core("Role", "roles", true, &[]));
pub(super) static ROLE_BINDING: Kind =
    of("rbac.authorization.k8s.io", "v1", core("RoleBinding", "rolebindings", true, &[]));
/// ValidatingAdmissionPolicies are stored and served, but not evaluated.
static ADMISSION_POLICY: Kind = of(
    "admissionregistration.k8s.io",
    "v1",
    with_generation(core("ValidatingAdmissionPolicy", "validatingadmissionpolicies", false, &[])),
);
static ADMISSION_BINDING: Kind = of(
    "admissionregistration.k8s.io",
    "v1",
    core("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false, &[]),
);
pub(super) static CUSTOM_RESOURCE: Kind = of(
    "apiextensions.k8s.io",
    "v1",
    with_generation(core("CustomResourceDefinition", "customresourcedefinitions", false, &["crd", "crds"])),
);
static CAPACITY_BUFFER: Kind = of(
    "autoscaling.x-k8s.io",
    "v1beta1",
    with_generation(core("CapacityBuffer", "capacitybuffers", true, &["cb"])),
);
static PROVISIONING_REQUEST: Kind = of(
    "autoscaling.x-k8s.io",
    "v1",
    with_generation(core("ProvisioningRequest", "provisioningrequests", true, &["provreq", "provreqs"])),
);
static POD_TEMPLATE: Kind = Kind { generation: true, ..core("PodTemplate", "podtemplates", true, &[]) };
pub(super) static SIGNING_REQUEST: Kind = of(
    "certificates.k8s.io",
    "v1",
    with_status(core("CertificateSigningRequest", "certificatesigningrequests", false, &["csr"])),
);

/// All resources, those of the core group first.
pub(super) static KINDS: [&Kind; 44] = [
    &NODE,
    &POD,
    &NAMESPACE,
    &CONFIG_MAP,
    &SECRET,
    &EVENT,
    &SERVICE,
    &SERVICE_ACCOUNT,
    &CLAIM,
    &VOLUME,
    &REPLICATION_CONTROLLER,
    &DEPLOYMENT,
    &REPLICA_SET,
    &STATEFUL_SET,
    &DAEMON_SET,
    &JOB,
    &BUDGET,
    &PRIORITY_CLASS,
    &POD_GROUP,
    &STORAGE_CLASS,
    &CSI_DRIVER,
    &CSI_NODE,
    &STORAGE_CAPACITY,
    &ATTACHMENT,
    &LEASE,
    &ACCESS_REVIEW,
    &SUBJECT_REVIEW,
    &NEW_EVENT,
    &RESOURCE_CLAIM,
    &RESOURCE_SLICE,
    &DEVICE_CLASS,
    &DEVICE_TAINT_RULE,
    &CLUSTER_ROLE,
    &CLUSTER_ROLE_BINDING,
    &ROLE,
    &ROLE_BINDING,
    &SIGNING_REQUEST,
    &ADMISSION_POLICY,
    &ADMISSION_BINDING,
    &POD_TEMPLATE,
    &CUSTOM_RESOURCE,
    &CAPACITY_BUFFER,
    &PROVISIONING_REQUEST,
    &LEGACY,
];
/// The resource `endpoints`, which kubectl reads when it describes a Service.
static LEGACY: Kind = kept_as("endpoints", core("Endpoints", "endpoints", true, &["ep"]));
