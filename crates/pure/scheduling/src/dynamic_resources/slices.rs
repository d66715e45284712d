//! The slices of a cluster, and their devices by number.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::cel::{self, Fault, Program, Value};
use model::devices::{AllocatedDevice, Device, DeviceTaint, DeviceTaintRule, ResourceSlice};

/// A number that identifies a device by its driver, pool and name.
pub(super) type DeviceId = u32;

/// All slices.
#[derive(Debug, Default)]
pub(super) struct Slices {
    /// Slices that belong to a single node, by node.
    of_node: BTreeMap<String, Vec<Arc<Slice>>>,
    /// The other slices.
    shared: Vec<Arc<Slice>>,
    /// All slices, by driver and pool.
    of_pool: BTreeMap<(String, String), Vec<Arc<Slice>>>,
    ids: BTreeMap<(String, String, String), DeviceId>,
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
    /// The taints of the device, including those from DeviceTaintRules.
    pub taints: Vec<DeviceTaint>,
    slice: Arc<ResourceSlice>,
    at: usize,
    value: OnceLock<Result<Value, Fault>>,
    /// For each expression: whether it selects the device.
    selected: Box<[OnceLock<Result<bool, Fault>>]>,
}

impl Dev {
    fn of(
        slice: &Arc<ResourceSlice>,
        at: usize,
        id: DeviceId,
        rules: &[Arc<DeviceTaintRule>],
        expressions: usize,
    ) -> Self {
        let device = &slice.devices[at];
        let is = |wanted: &Option<String>, own: &str| wanted.as_ref().is_none_or(|wanted| wanted == own);
        let tainted = rules.iter().filter(|rule| {
            rule.selector.as_ref().is_some_and(|devices| {
                is(&devices.driver, &slice.driver)
                    && is(&devices.pool, &slice.pool)
                    && is(&devices.device, &device.name)
            })
        });
        let added = tainted.map(|rule| rule.taint.clone());
        Self {
            id,
            taints: device.taints.iter().cloned().chain(added).collect(),
            slice: slice.clone(),
            at,
            value: OnceLock::new(),
            selected: std::iter::repeat_with(OnceLock::new).take(expressions).collect(),
        }
    }

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
    pub(super) fn selected_by<'p>(
        &self,
        expression: usize,
        program: impl FnOnce() -> Result<&'p Program, Fault>,
    ) -> Result<bool, Fault> {
        let find = || {
            let value = self.value.get_or_init(|| cel::value_of(self.driver(), self.object())).as_ref();
            program()?.selects(value.map_err(Clone::clone)?)
        };
        match self.selected.get(expression) {
            Some(known) => known.get_or_init(find).clone(),
            None => find(),
        }
    }
}

impl Slices {
    pub(super) fn of(
        objects: &[Arc<ResourceSlice>],
        rules: &[Arc<DeviceTaintRule>],
        expressions: usize,
    ) -> Self {
        let mut slices = Self::default();
        for object in objects {
            let slice = Arc::new(slices.slice(object, rules, expressions));
            match object.reach.node.clone() {
                Some(node) => slices.of_node.entry(node).or_default().push(slice.clone()),
                None => slices.shared.push(slice.clone()),
            }
            let pool = (object.driver.clone(), object.pool.clone());
            slices.of_pool.entry(pool).or_default().push(slice);
        }
        slices
    }

    fn slice(
        &mut self,
        object: &Arc<ResourceSlice>,
        rules: &[Arc<DeviceTaintRule>],
        expressions: usize,
    ) -> Slice {
        let mut devices = Vec::with_capacity(object.devices.len());
        for (at, device) in object.devices.iter().enumerate() {
            let key = (object.driver.clone(), object.pool.clone(), device.name.clone());
            let next = DeviceId::try_from(self.ids.len()).unwrap_or(DeviceId::MAX);
            let id = *self.ids.entry(key).or_insert(next);
            devices.push(Arc::new(Dev::of(object, at, id, rules, expressions)));
        }
        Slice { object: object.clone(), devices }
    }

    /// The slices that belong to this node alone.
    pub(super) fn of_node(&self, node: &str) -> &[Arc<Slice>] {
        self.of_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// The slices that do not belong to a single node.
    pub(super) fn shared(&self) -> &[Arc<Slice>] {
        &self.shared
    }

    /// All slices of a pool.
    pub(super) fn of_pool(&self, driver: &str, pool: &str) -> &[Arc<Slice>] {
        self.of_pool.get(&(driver.to_owned(), pool.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// The number of an allocated device, if a slice contains the device.
    pub(super) fn id_of(&self, device: &AllocatedDevice) -> Option<DeviceId> {
        let key = (device.driver.clone(), device.pool.clone(), device.device.clone());
        self.ids.get(&key).copied()
    }
}

/// The slices of a node that does not exist yet. Its devices are numbered from `first` on.
pub(super) fn local(
    slices: &[Arc<ResourceSlice>],
    rules: &[Arc<DeviceTaintRule>],
    expressions: usize,
    first: DeviceId,
) -> Vec<Arc<Slice>> {
    let mut next = first;
    let mut slice = |object: &Arc<ResourceSlice>| {
        let dev = |at: usize| {
            let dev = Arc::new(Dev::of(object, at, next, rules, expressions));
            next = next.saturating_add(1);
            dev
        };
        Arc::new(Slice { object: object.clone(), devices: (0..object.devices.len()).map(dev).collect() })
    };
    slices.iter().map(&mut slice).collect()
}
