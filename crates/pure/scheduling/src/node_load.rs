//! The pods of a node and their total requests. The totals are computed once, so that any number of worlds
//! can place all of the pods in one step.

use std::sync::Arc;

use model::pod::{HostPort, Pod};
use model::resources::Resources;

/// The pods of a node, with the resources and ports that they use. Worlds share the list of pods.
#[derive(Clone, Debug, Default)]
pub struct NodeLoad {
    pub(super) pods: Arc<Vec<Arc<Pod>>>,
    pub(super) used: Resources,
    pub(super) ports: Vec<HostPort>,
    /// The pods that matter beyond their node: they require something of other pods, use volumes, or may use
    /// devices.
    pub(super) far_reaching: Vec<Arc<Pod>>,
}

impl NodeLoad {
    /// Computes the totals of the given pods.
    pub fn new(pods: Arc<Vec<Arc<Pod>>>) -> Self {
        let mut load = Self::default();
        for pod in pods.iter() {
            load.used.add(&pod.requests);
            load.ports.extend(pod.host_ports.iter().cloned());
            let may_use_devices = !pod.resource_claims.is_empty() || !pod.requests.other.is_empty();
            if pod.looks().is_some() || pod.spec.digest().has_volumes || may_use_devices {
                load.far_reaching.push(pod.clone());
            }
        }
        load.pods = pods;
        load
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::World;
    use super::*;
    use model::Snapshot;
    use model::devices::DeviceClass;
    use model::node::Node;
    use model::pod::{PodAffinityTerm, Volume, VolumeSource};
    use model::workload::VolumeClaim;

    /// A plain pod, and pods with anti-affinity, a host port, a claim or a device.
    fn pods() -> Vec<Arc<Pod>> {
        let pod = |name: &str, change: &dyn Fn(&mut Pod)| {
            let mut pod = Pod { name: name.to_owned(), node: Some("a".to_owned()), ..Pod::default() };
            pod.requests = Resources { cpu_milli: 100, memory: 7, pods: 1, ..Resources::default() };
            change(&mut pod);
            Arc::new(pod)
        };
        let claim = VolumeSource::Claim { name: "c".to_owned(), ephemeral: false, read_only: false };
        let apart = PodAffinityTerm {
            selector: None,
            namespaces: Vec::new(),
            namespace_selector: None,
            topology_key: "kubernetes.io/hostname".to_owned(),
            match_label_keys: Vec::new(),
            mismatch_label_keys: Vec::new(),
        };
        let port = HostPort { ip: "0.0.0.0".to_owned(), protocol: "TCP".to_owned(), port: 80 };
        vec![
            pod("plain", &|_| {}),
            pod("apart", &|pod| pod.affinity.anti.push(apart.clone())),
            pod("port", &|pod| pod.host_ports.push(port.clone())),
            pod("claim", &|pod| {
                pod.volumes.push(Volume { name: "v".to_owned(), source: claim.clone() });
            }),
            pod("device", &|pod| {
                pod.requests.other.insert("example.org/gpu".to_owned(), 1);
            }),
        ]
    }

    #[test]
    fn a_world_does_not_tell_how_its_pods_were_placed() {
        let node = |name: &str| Arc::new(Node { name: name.to_owned(), ..Node::default() });
        let access_modes = vec!["ReadWriteOncePod".to_owned()];
        let claim = VolumeClaim { name: "c".to_owned(), access_modes, ..VolumeClaim::default() };
        let snapshot = Snapshot {
            nodes: ["a", "b"].map(node).to_vec(),
            claims: vec![Arc::new(claim)],
            ..Snapshot::default()
        };
        let extended_resource = Some("example.org/gpu".to_owned());
        let class = DeviceClass { extended_resource, ..DeviceClass::default() };
        let served = Snapshot { device_classes: vec![Arc::new(class)], ..snapshot.clone() };
        let load = NodeLoad::new(Arc::new(pods()));
        assert_eq!(load.far_reaching.len(), 3);
        for (what, snapshot, is_counted) in
            [("plain", &snapshot, false), ("counted", &snapshot, true), ("devices", &served, false)]
        {
            let worlds = [true, false].map(|at_once| {
                let mut world = World::without_pods(snapshot);
                if is_counted {
                    world.crowd();
                }
                if at_once {
                    world.place_all(&load, 0);
                } else {
                    for pod in pods() {
                        world.place(&pod, 0);
                    }
                }
                format!("{world:?}")
            });
            assert_eq!(worlds[0], worlds[1], "{what}");
        }
    }
}
