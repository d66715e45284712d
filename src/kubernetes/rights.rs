//! The rights that this daemon needs, asked of the API server one by one.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use super::cluster::Cluster;
use super::error::Error;

/// A right that is needed, and whether we have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// e.g. `list`.
    pub verb: &'static str,
    /// API group, empty for the core one.
    pub group: &'static str,
    /// e.g. `nodes` or `pods/eviction`.
    pub resource: &'static str,
    /// The namespace, `None` for the whole cluster.
    pub namespace: Option<String>,
    /// What it is for.
    pub purpose: &'static str,
    /// We have it.
    pub granted: bool,
}

impl Right {
    /// The right in words, e.g. `delete nodes` or `create secrets in kube-system`.
    pub fn words(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let place = self.namespace.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
        format!("{} {}{group}{place}", self.verb, self.resource)
    }
}

/// Where a right is needed.
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
    purpose: &'static str,
}

/// Everything that `packaging/rbac.yaml` grants, and nothing else.
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
        purpose: "see what is scheduled and what waits",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "apps",
        resources: &["replicasets", "statefulsets", "deployments", "daemonsets"],
        place: Place::Everywhere,
        purpose: "see what makes pods",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "batch",
        resources: &["jobs"],
        place: Place::Everywhere,
        purpose: "see what makes pods",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "policy",
        resources: &["poddisruptionbudgets"],
        place: Place::Everywhere,
        purpose: "respect disruption budgets",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "scheduling.k8s.io",
        resources: &["priorityclasses"],
        place: Place::Everywhere,
        purpose: "know which pods go first",
    },
    Needed {
        verbs: &["list", "watch"],
        group: "storage.k8s.io",
        resources: &["storageclasses", "csinodes", "volumeattachments"],
        place: Place::Everywhere,
        purpose: "know where volumes can be used",
    },
    Needed {
        verbs: &["get", "patch", "delete"],
        group: "",
        resources: &["nodes"],
        place: Place::Everywhere,
        purpose: "label, taint, cordon and remove the nodes of its machines",
    },
    Needed {
        verbs: &["create"],
        group: "",
        resources: &["pods/eviction"],
        place: Place::Everywhere,
        purpose: "drain nodes",
    },
    Needed {
        verbs: &["create"],
        group: "events.k8s.io",
        resources: &["events"],
        place: Place::Everywhere,
        purpose: "say what was decided about pods and nodes",
    },
    Needed {
        verbs: &["get", "list", "create", "update", "delete"],
        group: "",
        resources: &["configmaps"],
        place: Place::Own,
        purpose: "keep the records of its machines",
    },
    Needed {
        verbs: &["get", "create", "update"],
        group: "coordination.k8s.io",
        resources: &["leases"],
        place: Place::Own,
        purpose: "agree on one active instance",
    },
    Needed {
        verbs: &["create", "delete"],
        group: "",
        resources: &["secrets"],
        place: Place::In("kube-system"),
        purpose: "make and remove bootstrap tokens",
    },
    Needed {
        verbs: &["get"],
        group: "",
        resources: &["configmaps"],
        place: Place::In("kube-public"),
        purpose: "read cluster-info, for joining",
    },
];

impl Cluster {
    /// Every right that is needed, with the API server's word on whether we have it.
    ///
    /// A single refusal is no proof while the API server starts: it has not read its roles for a moment then.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub async fn rights(&self) -> Result<Vec<Right>, Error> {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let mut rights = needed(&self.namespace);
        for right in &mut rights {
            let question =
                SelfSubjectAccessReview { spec: question(right), ..SelfSubjectAccessReview::default() };
            let action = format!("ask for the right to {}", right.words());
            let answer = self.call(action, reviews.create(&PostParams::default(), &question)).await?;
            right.granted = answer.status.is_some_and(|status| status.allowed);
        }
        Ok(rights)
    }
}

fn needed(own: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    for entry in NEEDED {
        for resource in entry.resources {
            for verb in entry.verbs {
                let namespace = match entry.place {
                    Place::Everywhere => None,
                    Place::Own => Some(own.to_owned()),
                    Place::In(name) => Some(name.to_owned()),
                };
                let (group, purpose) = (entry.group, entry.purpose);
                rights.push(Right { verb, group, resource, namespace, purpose, granted: false });
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
    // kube-public's right is for one object only, and a review without a name would ask for all of them.
    let name = (right.namespace.as_deref() == Some("kube-public")).then(|| "cluster-info".to_owned());
    SelfSubjectAccessReviewSpec {
        resource_attributes: Some(ResourceAttributes {
            verb: Some(right.verb.to_owned()),
            group: Some(right.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            name,
            namespace: right.namespace.clone(),
            ..ResourceAttributes::default()
        }),
        ..SelfSubjectAccessReviewSpec::default()
    }
}
