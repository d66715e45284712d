//! Creates an inventory for a snapshot: a machine for each node, and hosts with room for more machines.

use std::sync::Arc;

use pve_autoscaler::model::Snapshot;
use pve_autoscaler::model::Vmid;
use pve_autoscaler::model::machine::{Host, Machine, Phase};
use pve_autoscaler::model::node::Node;
use pve_autoscaler::model::snapshot::{Inventory, POOL_LABEL};

/// Adds a machine for each node of a snapshot, and twenty hosts. Does nothing if there are no nodes.
pub fn list_machines(all: &mut Snapshot) {
    if all.nodes.is_empty() {
        return;
    }
    let machines = all.nodes.iter().enumerate().map(|(number, node)| machine(node, number));
    let machines = Some(machines.collect());
    let host = |number| Host {
        name: format!("h{number:02}").into(),
        online: true,
        cores: 100_000,
        memory: 1 << 50,
        ..Host::default()
    };
    let hosts = Some((0..20).map(host).collect());
    all.proxmox = Inventory { hosts, machines, ..Inventory::default() }.into();
}

fn machine(node: &Arc<Node>, number: usize) -> Machine {
    Machine {
        name: node.name.clone(),
        pool: (node.labels[POOL_LABEL].clone()).into(),
        vmid: Vmid(10_000 + u32::try_from(number).unwrap()),
        host: format!("h{:02}", number % 20).into(),
        cores: 10,
        memory: 10 << 30,
        phase: Phase::Ready,
        node: Some(node.name.clone()),
        ..Machine::default()
    }
}
