//! Devices, classes and claims, looked up once for a whole decision. They do not change while it is made.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::ask::{ClaimAsk, Expressions};
use crate::model::devices::{
    AllocatedDevice, CLASS_PREFIX, ClaimSource, Device, DeviceClass, DeviceTaint, DeviceTaintRule, Made,
    ResourceClaim, ResourceSlice,
};
use crate::model::pod::Pod;
use crate::model::{KubernetesVersion, Snapshot};
use crate::scheduling::cel::{self, Fault, Value};

/// Namespace and name of a claim.
pub(in crate::scheduling) type ClaimKey = (String, String);

/// Stands for a device: its driver, its pool and its name.
pub(super) type DeviceId = u32;

/// Everything that is known of devices, classes and claims.
#[derive(Debug, Default)]
pub(in crate::scheduling) struct Facts {
    /// Slices whose devices are of one node alone, by node.
    of_node: BTreeMap<String, Vec<Arc<Slice>>>,
    /// The other slices.
    shared: Vec<Arc<Slice>>,
    /// All of them, by driver and pool.
    of_pool: BTreeMap<(String, String), Vec<Arc<Slice>>>,
    classes: BTreeMap<String, Class>,
    /// By extended resource: the class that serves it.
    resources: BTreeMap<String, String>,
    claims: BTreeMap<ClaimKey, Claim>,
    /// By the pod's uid: the claim that the scheduler made for its extended resources.
    extended: BTreeMap<String, ClaimKey>,
    ids: BTreeMap<(String, String, String), DeviceId>,
    expressions: Expressions,
    rules: Vec<Arc<DeviceTaintRule>>,
    pub(super) version: KubernetesVersion,
}

/// A class.
#[derive(Debug)]
pub(super) struct Class {
    pub object: Arc<DeviceClass>,
    /// The numbers of its selectors; none for one of another kind.
    pub selectors: Vec<Option<usize>>,
}

/// A claim.
#[derive(Debug)]
pub(super) struct Claim {
    pub object: Arc<ResourceClaim>,
    pub ask: Arc<ClaimAsk>,
}

/// A slice.
#[derive(Debug)]
pub(super) struct Slice {
    pub object: Arc<ResourceSlice>,
    pub devices: Vec<Arc<Dev>>,
}

/// A device of a slice.
#[derive(Debug)]
pub(super) struct Dev {
    pub id: DeviceId,
    /// With the taints that rules give it.
    pub taints: Vec<DeviceTaint>,
    slice: Arc<ResourceSlice>,
    at: usize,
    value: OnceLock<Result<Value, Fault>>,
    /// By expression: whether it selects the device.
    selected: Box<[OnceLock<Result<bool, Fault>>]>,
}

impl Dev {
    pub(super) fn object(&self) -> &Device {
        &self.slice.devices[self.at]
    }

    pub(super) fn driver(&self) -> &str {
        &self.slice.driver
    }

    /// `driver/pool/device`.
    pub(super) fn words(&self) -> String {
        format!("{}/{}/{}", self.slice.driver, self.slice.pool, self.object().name)
    }

    /// Whether an expression selects the device.
    pub(super) fn is_selected(&self, facts: &Facts, expression: usize) -> Result<bool, Fault> {
        let find = || {
            let value = self.value.get_or_init(|| cel::value_of(self.driver(), self.object())).as_ref();
            let program = facts.expressions.program(expression)?;
            program.selects(value.map_err(Clone::clone)?)
        };
        match self.selected.get(expression) {
            Some(known) => known.get_or_init(find).clone(),
            None => find(),
        }
    }
}

impl Facts {
    /// What a snapshot knows; nothing where it knows of no devices, classes and claims.
    pub(in crate::scheduling) fn of(snapshot: &Snapshot) -> Option<Self> {
        let none = snapshot.resource_slices.is_empty()
            && snapshot.device_classes.is_empty()
            && snapshot.resource_claims.is_empty();
        if none {
            return None;
        }
        let mut facts = Self {
            version: snapshot.kubernetes,
            rules: snapshot.device_taint_rules.clone(),
            ..Self::default()
        };
        facts.take_classes(snapshot);
        facts.take_claims(snapshot);
        for object in &snapshot.resource_slices {
            let slice = Arc::new(facts.slice(object));
            match object.reach.node.clone() {
                Some(node) => facts.of_node.entry(node).or_default().push(slice.clone()),
                None => facts.shared.push(slice.clone()),
            }
            let pool = (object.driver.clone(), object.pool.clone());
            facts.of_pool.entry(pool).or_default().push(slice);
        }
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

    /// Of two classes that name the same resource the newer one serves it. One that comes too late serves that of its own name no more
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

    fn slice(&mut self, object: &Arc<ResourceSlice>) -> Slice {
        let mut devices = Vec::with_capacity(object.devices.len());
        for (at, device) in object.devices.iter().enumerate() {
            let key = (object.driver.clone(), object.pool.clone(), device.name.clone());
            let next = DeviceId::try_from(self.ids.len()).unwrap_or(DeviceId::MAX);
            let id = *self.ids.entry(key).or_insert(next);
            devices.push(Arc::new(self.dev(object, at, id)));
        }
        Slice { object: object.clone(), devices }
    }

    fn dev(&self, slice: &Arc<ResourceSlice>, at: usize, id: DeviceId) -> Dev {
        let device = &slice.devices[at];
        let is = |wanted: &Option<String>, own: &str| wanted.as_ref().is_none_or(|wanted| wanted == own);
        let tainted = self.rules.iter().filter(|rule| {
            rule.selector.as_ref().is_some_and(|devices| {
                is(&devices.driver, &slice.driver)
                    && is(&devices.pool, &slice.pool)
                    && is(&devices.device, &device.name)
            })
        });
        let added = tainted.map(|rule| rule.taint.clone());
        Dev {
            id,
            taints: device.taints.iter().cloned().chain(added).collect(),
            slice: slice.clone(),
            at,
            value: OnceLock::new(),
            selected: std::iter::repeat_with(OnceLock::new).take(self.expressions.count()).collect(),
        }
    }

    /// Slices of a node that is still to come, its devices counted from this number on.
    pub(super) fn local(&self, slices: &[Arc<ResourceSlice>], first: DeviceId) -> Vec<Arc<Slice>> {
        let mut next = first;
        let mut slice = |object: &Arc<ResourceSlice>| {
            let dev = |at: usize| {
                let dev = Arc::new(self.dev(object, at, next));
                next = next.saturating_add(1);
                dev
            };
            Arc::new(Slice { object: object.clone(), devices: (0..object.devices.len()).map(dev).collect() })
        };
        slices.iter().map(&mut slice).collect()
    }

    /// Slices of a node alone.
    pub(super) fn slices_of(&self, node: &str) -> &[Arc<Slice>] {
        self.of_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// Slices of no node alone.
    pub(super) fn shared_slices(&self) -> &[Arc<Slice>] {
        &self.shared
    }

    /// All slices of a pool.
    pub(super) fn slices_in(&self, driver: &str, pool: &str) -> &[Arc<Slice>] {
        self.of_pool.get(&(driver.to_owned(), pool.to_owned())).map_or(&[], Vec::as_slice)
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

    /// The class that serves an extended resource.
    pub(in crate::scheduling) fn class_of(&self, resource: &str) -> Option<&str> {
        self.resources.get(resource).map(String::as_str)
    }

    /// The device that was allocated, if a slice has it.
    pub(super) fn id_of(&self, device: &AllocatedDevice) -> Option<DeviceId> {
        let key = (device.driver.clone(), device.pool.clone(), device.device.clone());
        self.ids.get(&key).copied()
    }

    /// How many devices are known.
    pub(super) fn devices(&self) -> DeviceId {
        DeviceId::try_from(self.ids.len()).unwrap_or(DeviceId::MAX)
    }

    /// The text of an expression.
    pub(super) fn text(&self, expression: usize) -> &str {
        self.expressions.text(expression)
    }
}

/// The claims that a pod names or that were made for it.
pub(super) fn named_claims(pod: &Pod) -> impl Iterator<Item = ClaimKey> {
    pod.resource_claims.iter().filter_map(|claim| match &claim.source {
        ClaimSource::Named(name) | ClaimSource::Template { made: Made::As(name), .. } => {
            Some((pod.namespace.clone(), name.clone()))
        }
        _ => None,
    })
}
