//! Worlds whose pods have device claims, and worlds of plain pods in a cluster with a device class.

use std::sync::Arc;

use pve_autoscaler::model::amount::Amount;
use pve_autoscaler::model::devices::{
    AllocatedDevice, Allocation, Attribute, Capacity, ClaimSource, Device, DeviceAsk, DeviceClass,
    DeviceRequest, Made, PodClaim, Reach, RequestKind, ResourceClaim, ResourceSlice,
};
use pve_autoscaler::model::pod::{Owner, Pod};
use pve_autoscaler::model::selector::{NodeSelector, NodeSelectorTerm, Operator, Requirement};
use pve_autoscaler::model::{Plan, Snapshot};

use crate::clusters::{CLUSTER, Cluster, Manner, pod};

const DRIVER: &str = "gpu.example.com";

/// Nodes with devices, running pods that use one device each, and pending pods that need one each.
#[derive(Clone, Copy)]
pub struct World {
    pub nodes: usize,
    /// How many devices each node has.
    pub devices: usize,
    /// How many pods with a device run on each node.
    pub pods: usize,
    pub waiting: usize,
    /// Whether the nodes have been unneeded for a long time.
    pub idle: bool,
}

impl World {
    pub fn snapshot(self) -> Snapshot {
        let cluster = Cluster { nodes: self.nodes, pods: 0, apps: 100, idle: self.idle, ..CLUSTER };
        let mut all = serving(cluster.snapshot(), self.devices);
        let nodes: Vec<String> = all.nodes.iter().map(|node| node.name.clone()).collect();
        let mut pods = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            for number in 0..self.pods {
                let allocated = AllocatedDevice {
                    driver: DRIVER.to_owned(),
                    pool: node.clone(),
                    device: format!("gpu-{number:03}"),
                    ..AllocatedDevice::default()
                };
                pods.push(add(&mut all, at * self.pods + number, Some((node, allocated))));
            }
        }
        pods.extend((0..self.waiting).map(|number| add(&mut all, nodes.len() * self.pods + number, None)));
        all.pods = pods.into_iter().map(Arc::new).collect();
        all.pods.sort_by_cached_key(|pod| pod.id());
        all
    }
}

/// Adds a claim from the app's template to the snapshot, and returns the pod that uses the claim.
fn add(all: &mut Snapshot, number: usize, home: Option<(&str, AllocatedDevice)>) -> Pod {
    let app = format!("app-{:05}", number % 100);
    let node = home.as_ref().map(|(node, _)| *node);
    let mut pod = pod(number, &app, (80, 50), Manner::Plain, node);
    let name = format!("{}-gpu", pod.name);
    let made = Made::As(name.clone());
    let source = ClaimSource::Template { template: app, made };
    pod.resource_claims = vec![PodClaim { name: "gpu".to_owned(), source }];
    let selector = format!(
        "device.attributes[\"{DRIVER}\"].model == \"a\" && device.capacity[\"{DRIVER}\"].memory.compareTo(quantity(\"40Gi\")) >= 0"
    );
    let ask = DeviceAsk {
        name: "gpu".to_owned(),
        class: "gpu".to_owned(),
        selectors: vec![Some(selector)],
        ..DeviceAsk::default()
    };
    let owner = Owner {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
    };
    all.resource_claims.push(Arc::new(ResourceClaim {
        namespace: pod.namespace.clone(),
        uid: name.clone(),
        name,
        owner: Some(owner),
        requests: vec![DeviceRequest { name: "gpu".to_owned(), kind: RequestKind::Exactly(ask) }],
        reserved_for: node.iter().map(|_| pod.uid.clone()).collect(),
        allocation: home.map(|(node, device)| Allocation { devices: vec![device], nodes: Some(only(node)) }),
        ..ResourceClaim::default()
    }));
    pod
}

/// A selector that matches only this node.
fn only(node: &str) -> NodeSelector {
    let field = Requirement {
        key: "metadata.name".to_owned(),
        operator: Operator::In,
        values: vec![node.to_owned()],
    };
    let term = NodeSelectorTerm { match_fields: vec![field], ..NodeSelectorTerm::default() };
    NodeSelector { terms: vec![term] }
}

/// Adds a device class, and this many devices for each node.
pub fn serving(mut all: Snapshot, devices: usize) -> Snapshot {
    all.device_classes = vec![Arc::new(DeviceClass {
        name: "gpu".to_owned(),
        selectors: vec![Some(format!("device.driver == \"{DRIVER}\""))],
        extended_resource: Some("example.com/gpu".to_owned()),
        ..DeviceClass::default()
    })];
    let slice = |node: &str| ResourceSlice {
        name: format!("{node}-gpu"),
        driver: DRIVER.to_owned(),
        pool: node.to_owned(),
        generation: 1,
        slices: 1,
        reach: Reach { node: Some(node.to_owned()), ..Reach::default() },
        devices: (0..devices).map(device).collect(),
        ..ResourceSlice::default()
    };
    all.resource_slices = all.nodes.iter().map(|node| Arc::new(slice(&node.name))).collect();
    all
}

fn device(number: usize) -> Device {
    let text = |text: &str| Attribute::String(text.to_owned());
    let index = Attribute::Int(i64::try_from(number).unwrap_or(0));
    let attributes = [("model", text("a")), ("uuid", text(&format!("GPU-{number:036}"))), ("index", index)];
    let memory = Capacity { value: Amount::units(80 << 30), policy: None };
    Device {
        name: format!("gpu-{number:03}"),
        attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        capacity: [("memory".to_owned(), memory)].into(),
        ..Device::default()
    }
}

/// The settings of a pool that declares this many devices for each of its machines.
pub fn declaring(devices: usize) -> String {
    format!(
        "[[pool]]\nname = \"w0\"\nmax = 50000\ncores = 10\nmemory = \"10GiB\"\n\
         allocatable = {{ cpu = \"10\", memory = \"10000Mi\", pods = 110 }}\n\
         [[pool.device]]\ndriver = \"{DRIVER}\"\ncount = {devices}\nattributes = {{ model = \"a\" }}\n\
         capacity = {{ memory = \"80Gi\" }}\n"
    )
}

/// How many machines a plan creates.
pub fn machines(plan: &Plan) -> usize {
    plan.scale_up.iter().map(|pool| pool.machines.len()).sum()
}
