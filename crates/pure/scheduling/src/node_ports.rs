//! NodePorts: no pod on the node may already use one of the pod's host ports.

use super::refusal::Refusal;
use model::pod::{HostPort, Pod};

pub(super) fn check(pod: &Pod, taken: &[HostPort]) -> Result<(), Refusal> {
    match pod.host_ports.iter().find(|wanted| taken.iter().any(|one| clash(one, wanted))) {
        None => Ok(()),
        Some(port) => Err(Refusal::Port(port.port)),
    }
}

/// Whether two host ports conflict. `0.0.0.0` means every address.
fn clash(a: &HostPort, b: &HostPort) -> bool {
    a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || a.ip == "0.0.0.0" || b.ip == "0.0.0.0")
}
