//! Checks with the API server whether the daemon has each of the rights that it needs.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use runtime::boxed;

use super::capacity_buffer;
use super::cluster::Cluster;
use super::error::Error;
use super::gangs;
use super::provisioning_request;
use super::serving_certificates::SERVING_SIGNER;

/// A required right, and whether the daemon has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb, e.g. `list`.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, e.g. `nodes` or `pods/eviction`.
    pub resource: &'static str,
    /// The namespace; `None` for the entire cluster.
    pub namespace: Option<String>,
    /// The only object that the right applies to; `None` for all objects.
    pub name: Option<&'static str>,
    /// Why the right is needed.
    pub purpose: &'static str,
    /// Whether the daemon has the right.
    pub granted: bool,
}

impl Right {
    /// The right in words, e.g. `delete nodes` or `create secrets in kube-system`.
    pub fn words(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let place = self.namespace.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
        // The name `cluster-info` is left out, because the namespace `kube-public` is specific enough.
        let name = self.name.filter(|_| self.namespace.is_none());
        let name = name.map(|name| format!(" {name}")).unwrap_or_default();
        format!("{} {}{group}{name}{place}", self.verb, self.resource)
    }
}

/// The namespaces in which a right is needed.
#[derive(Clone, Copy)]
enum Place {
    Everywhere,
    Own,
    In(&'static str),
}

struct Needed {
    verbs: &'static [&'static str],
    group: &'static str,
    resources: &'static [&'static str],
    place: Place,
    name: Option<&'static str>,
    purpose: &'static str,
}

/// Kinds that need a CustomResourceDefinition or a feature gate: the API group and version, the plural name,
/// and the resources that the daemon only accesses if this kind is served.
const OPTIONAL: [(&str, &str, &[&str]); 3] = [
    (capacity_buffer::VERSION, capacity_buffer::PLURAL, &[capacity_buffer::PLURAL, "podtemplates"]),
    (
        provisioning_request::VERSION,
        provisioning_request::PLURAL,
        &[provisioning_request::PLURAL, "podtemplates"],
    ),
    (gangs::VERSION, gangs::PLURAL, &[gangs::PLURAL]),
];

/// Exactly the rights that `packaging/rbac.yaml` grants.
const NEEDED: &[Needed] = &[
    Needed {
        verbs: &["list", "watch"],
        group: "",
        resources: &[
            "nodes",
            "pods",
            "namespaces",
            "replicationcontrollers",
            "persistentvolumes",
            "persistentvolumeclaims",
        ],
        place: Place::Everywhere,
        name: None,
        purpose: "see what is scheduled and what is pending",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "apps",
        resources: &["replicasets", "statefulsets", "deployments", "daemonsets"],
        place: Place::Everywhere,
        name: None,
        purpose: "identify the workloads that create pods",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "batch",
        resources: &["jobs"],
        place: Place::Everywhere,
        name: None,
        purpose: "identify the workloads that create pods",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "policy",
        resources: &["poddisruptionbudgets"],
        place: Place::Everywhere,
        name: None,
        purpose: "respect disruption budgets",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "scheduling.k8s.io",
        resources: &["priorityclasses"],
        place: Place::Everywhere,
        name: None,
        purpose: "know which pods are scheduled first",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "scheduling.k8s.io",
        resources: &["podgroups"],
        place: Place::Everywhere,
        name: None,
        purpose: "know which pods are placed together or not at all",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "storage.k8s.io",
        resources: &["storageclasses", "csidrivers", "csinodes", "csistoragecapacities", "volumeattachments"],
        place: Place::Everywhere,
        name: None,
        purpose: "know where volumes can be used",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "resource.k8s.io",
        resources: &["resourceclaims", "deviceclasses", "resourceslices", "devicetaintrules"],
        place: Place::Everywhere,
        name: None,
        purpose: "know which devices are free",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "autoscaling.x-k8s.io",
        resources: &["capacitybuffers", "provisioningrequests"],
        place: Place::Everywhere,
        name: None,
        purpose: "see what capacity is requested",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "",
        resources: &["podtemplates"],
        place: Place::Everywhere,
        name: None,
        purpose: "see which pods the requested capacity is for",
    },
    Needed {
        verbs: &["patch"],
        group: "autoscaling.x-k8s.io",
        resources: &["capacitybuffers/status", "provisioningrequests/status"],
        place: Place::Everywhere,
        name: None,
        purpose: "report how much of the requested capacity is available",
    },
    Needed {
        verbs: &["get", "patch", "delete"],
        group: "",
        resources: &["nodes"],
        place: Place::Everywhere,
        name: None,
        purpose: "label, taint, cordon and remove the nodes of its machines",
    },
    Needed {
        verbs: &["create"],
        group: "",
        resources: &["pods/eviction"],
        place: Place::Everywhere,
        name: None,
        purpose: "drain nodes",
    },
    Needed {
        verbs: &["create"],
        group: "events.k8s.io",
        resources: &["events"],
        place: Place::Everywhere,
        name: None,
        purpose: "report decisions about pods and nodes",
    },
    Needed {
        verbs: &["get", "list", "create", "update", "delete"],
        group: "",
        resources: &["configmaps"],
        place: Place::Own,
        name: None,
        purpose: "keep the records of its machines",
    },
    Needed {
        verbs: &["get", "create", "update"],
        group: "coordination.k8s.io",
        resources: &["leases"],
        place: Place::Own,
        name: None,
        purpose: "elect the leader",
    },
    Needed {
        verbs: &["create", "delete"],
        group: "",
        resources: &["secrets"],
        place: Place::In("kube-system"),
        name: None,
        purpose: "create and remove bootstrap tokens",
    },
    Needed {
        verbs: &["get"],
        group: "",
        resources: &["configmaps"],
        place: Place::In("kube-public"),
        name: Some("cluster-info"),
        purpose: "read cluster-info, so that machines can join",
    },
];

/// Everything that `packaging/rbac-serving.yaml` grants, and nothing else. The API server's admission plugin
/// `CertificateApproval` requires the verb `approve` for the signer, in addition to the right to the
/// subresource.
const SERVING: &[Needed] = &[
    Needed {
        verbs: &["list", "watch"],
        group: CERTIFICATES,
        resources: &["certificatesigningrequests"],
        place: Place::Everywhere,
        name: None,
        purpose: "see requests for serving certificates",
    },
    Needed {
        verbs: &["patch"],
        group: CERTIFICATES,
        resources: &["certificatesigningrequests/approval"],
        place: Place::Everywhere,
        name: None,
        purpose: "approve serving certificates",
    },
    Needed {
        verbs: &["approve"],
        group: CERTIFICATES,
        resources: &["signers"],
        place: Place::Everywhere,
        name: Some(SERVING_SIGNER),
        purpose: "approve serving certificates",
    },
];

const CERTIFICATES: &str = "certificates.k8s.io";

impl Cluster {
    /// All required rights, and whether the daemon has them according to the API server. Rights to kinds that
    /// the API server does not serve are left out.
    ///
    /// While the API server starts, a single refusal proves nothing, because the API server may not have read
    /// its roles yet.
    ///
    /// # Errors
    /// Returns an error if the API server does not answer.
    #[boxed]
    pub async fn rights(&self) -> Result<Vec<Right>, Error> {
        let mut served = Vec::new();
        for (version, plural, _) in OPTIONAL {
            served.push(self.serves(version, plural).await?);
        }
        let mut rights = needed(NEEDED, &self.namespace);
        rights.retain(|right| is_needed(right, &served));
        self.asked(rights).await
    }

    /// Like [`Self::rights`], for the additional rights that approving serving certificates needs.
    ///
    /// # Errors
    /// Returns an error if the API server does not answer.
    #[boxed]
    pub async fn serving_rights(&self) -> Result<Vec<Right>, Error> {
        self.asked(needed(SERVING, &self.namespace)).await
    }

    async fn asked(&self, mut rights: Vec<Right>) -> Result<Vec<Right>, Error> {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        for right in &mut rights {
            let question =
                SelfSubjectAccessReview { spec: question(right), ..SelfSubjectAccessReview::default() };
            let action = format!("check the right to {}", right.words());
            let answer = self.call(action, reviews.create(&PostParams::default(), &question)).await?;
            right.granted = answer.status.is_some_and(|status| status.allowed);
        }
        Ok(rights)
    }
}

/// Whether the right is needed, given which of the optional kinds are served.
fn is_needed(right: &Right, served: &[bool]) -> bool {
    let kind = right.resource.split('/').next().unwrap_or_default();
    let mut of_it =
        OPTIONAL.iter().zip(served).filter(|((_, _, resources), _)| resources.contains(&kind)).peekable();
    of_it.peek().is_none() || of_it.any(|(_, served)| *served)
}

fn needed(all: &[Needed], own: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    for entry in all {
        for resource in entry.resources {
            for verb in entry.verbs {
                let namespace = match entry.place {
                    Place::Everywhere => None,
                    Place::Own => Some(own.to_owned()),
                    Place::In(name) => Some(name.to_owned()),
                };
                let (group, name, purpose) = (entry.group, entry.name, entry.purpose);
                rights.push(Right { verb, group, resource, namespace, name, purpose, granted: false });
            }
        }
    }
    rights
}

fn question(right: &Right) -> SelfSubjectAccessReviewSpec {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource, None),
    };
    SelfSubjectAccessReviewSpec {
        resource_attributes: Some(ResourceAttributes {
            verb: Some(right.verb.to_owned()),
            group: Some(right.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            // The review must name the object. If it asked about all objects, a right to a single object
            // would not be enough.
            name: right.name.map(ToOwned::to_owned),
            namespace: right.namespace.clone(),
            ..ResourceAttributes::default()
        }),
        ..SelfSubjectAccessReviewSpec::default()
    }
}
