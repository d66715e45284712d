//! NodeUnschedulable: a cordoned node takes only pods that tolerate the cordon's taint.

use super::refusal::Refusal;
use super::taint_toleration::tolerates;
use model::node::{Node, Taint, TaintEffect};
use model::pod::Pod;

pub(super) fn check(pod: &Pod, node: &Node) -> Result<(), Refusal> {
    if !node.unschedulable {
        return Ok(());
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
        time_added: None,
    };
    if tolerates(&pod.tolerations, &taint) { Ok(()) } else { Err(Refusal::Unschedulable) }
}
