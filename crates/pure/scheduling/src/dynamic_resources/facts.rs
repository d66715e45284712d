//! Devices, classes and claims, looked up once for a whole decision. They do not change during the decision.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::ask::{ClaimAsk, Expressions};
use super::slices::{self, Dev, DeviceId, Slice, Slices};
use crate::cel::Fault;
use model::devices::{
    CLASS_PREFIX, ClaimSource, DeviceClass, DeviceTaintRule, Made, ResourceClaim, ResourceSlice,
};
use model::pod::Pod;
use model::{KubernetesVersion, Snapshot};

/// The namespace and the name of a claim.
pub(crate) type ClaimKey = (String, String);

/// All known devices, classes and claims.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The slices. Their devices are not read until a pod asks for devices.
    objects: Vec<Arc<ResourceSlice>>,
    slices: OnceLock<Slices>,
    classes: BTreeMap<String, Class>,
    /// For each extended resource: the class that provides devices for it.
    resources: BTreeMap<String, String>,
    claims: BTreeMap<ClaimKey, Claim>,
    /// The claims that the scheduler created for pods' extended resources, by the pod's uid.
    extended: BTreeMap<String, ClaimKey>,
    expressions: Expressions,
    rules: Vec<Arc<DeviceTaintRule>>,
    pub(super) version: KubernetesVersion,
}

/// A class.
#[derive(Debug)]
pub(super) struct Class {
    pub object: Arc<DeviceClass>,
    /// The numbers of the class's selectors. `None` stands for a selector that is not a CEL expression.
    pub selectors: Vec<Option<usize>>,
}

/// A claim.
#[derive(Debug)]
pub(super) struct Claim {
    pub object: Arc<ResourceClaim>,
    pub ask: Arc<ClaimAsk>,
}

impl Facts {
    /// The facts of a snapshot. `None` if the snapshot has neither slices nor classes nor claims.
    pub(crate) fn of(snapshot: &Snapshot) -> Option<Self> {
        let none = snapshot.resource_slices.is_empty()
            && snapshot.device_classes.is_empty()
            && snapshot.resource_claims.is_empty();
        if none {
            return None;
        }
        let mut facts = Self {
            version: snapshot.kubernetes,
            rules: snapshot.device_taint_rules.clone(),
            objects: snapshot.resource_slices.clone(),
            ..Self::default()
        };
        facts.take_classes(snapshot);
        facts.take_claims(snapshot);
        Some(facts)
    }

    fn take_classes(&mut self, snapshot: &Snapshot) {
        let mut classes: Vec<_> = snapshot.device_classes.iter().collect();
        classes.sort_by(|a, b| a.name.cmp(&b.name));
        for object in classes {
            let selectors = object.selectors.iter();
            let selectors = selectors.map(|one| one.as_ref().map(|text| self.expressions.number(text)));
            let class = Class { object: object.clone(), selectors: selectors.collect() };
            self.classes.insert(object.name.clone(), class);
            self.serve(object);
        }
    }

    /// Registers the extended resources for which a class provides devices. If two classes name the same
    /// resource, the newer class provides it. If the newer class was registered first, the older one is
    /// ignored: not even the resource named after it ([`CLASS_PREFIX`]) is registered, as in kube-scheduler
    /// (`ExtendedResourceCache`).
    fn serve(&mut self, class: &DeviceClass) {
        if let Some(resource) = &class.extended_resource {
            let other = self.resources.get(resource).and_then(|name| self.classes.get(name));
            let age = |class: &DeviceClass| (class.created, std::cmp::Reverse(class.name.clone()));
            if other.is_some_and(|other| age(class) <= age(&other.object)) {
                return;
            }
            self.resources.insert(resource.clone(), class.name.clone());
        }
        self.resources.insert(format!("{CLASS_PREFIX}{}", class.name), class.name.clone());
    }

    fn take_claims(&mut self, snapshot: &Snapshot) {
        for object in &snapshot.resource_claims {
            let key = (object.namespace.clone(), object.name.clone());
            let owner = object.owner.as_ref().map_or("", |owner| owner.uid.as_str());
            if object.extended {
                self.extended.insert(owner.to_owned(), key.clone());
            }
            let ask = Arc::new(ClaimAsk::of(object, &mut self.expressions));
            self.claims.insert(key, Claim { object: object.clone(), ask });
        }
    }

    /// The slices. They are prepared when the first pod asks for devices.
    pub(super) fn slices(&self) -> &Slices {
        self.slices.get_or_init(|| Slices::of(&self.objects, &self.rules, self.expressions.count()))
    }

    /// The slices of a node that does not exist yet. Its devices are numbered from `first` on.
    pub(super) fn local(&self, slices: &[Arc<ResourceSlice>], first: DeviceId) -> Vec<Arc<Slice>> {
        slices::local(slices, &self.rules, self.expressions.count(), first)
    }

    /// Whether each slice belongs to one node only.
    pub(super) fn are_local(&self) -> bool {
        self.objects.iter().all(|slice| slice.reach.node.is_some())
    }

    /// Whether an expression selects a device.
    pub(super) fn is_selected(&self, device: &Dev, expression: usize) -> Result<bool, Fault> {
        device.selected_by(expression, || self.expressions.program(expression))
    }

    pub(super) fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    pub(super) fn claim(&self, key: &ClaimKey) -> Option<&Claim> {
        self.claims.get(key)
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = (&ClaimKey, &Claim)> {
        self.claims.iter()
    }

    /// The claim for the extended resources of the pod with this uid.
    pub(super) fn extended_claim(&self, uid: &str) -> Option<&ClaimKey> {
        self.extended.get(uid)
    }

    /// The class that provides devices for an extended resource.
    pub(crate) fn class_of(&self, resource: &str) -> Option<&str> {
        self.resources.get(resource).map(String::as_str)
    }

    /// An upper bound on the number of devices. It can be too high, because a device in two slices counts
    /// twice.
    pub(super) fn devices(&self) -> DeviceId {
        let count: usize = self.objects.iter().map(|slice| slice.devices.len()).sum();
        DeviceId::try_from(count).unwrap_or(DeviceId::MAX)
    }

    /// The text of an expression.
    pub(super) fn text(&self, expression: usize) -> &str {
        self.expressions.text(expression)
    }
}

/// The claims that a pod names or that were created for it.
pub(super) fn named_claims(pod: &Pod) -> impl Iterator<Item = ClaimKey> {
    pod.resource_claims.iter().filter_map(|claim| match &claim.source {
        ClaimSource::Named(name) | ClaimSource::Template { made: Made::As(name), .. } => {
            Some((pod.namespace.clone(), name.clone()))
        }
        _ => None,
    })
}
