//! Checks whether the kubelet of a machine whose VM is not visible has become silent.

use std::time::Duration;

use jiff::Timestamp;

use super::context::Context;
use super::machine_handle::MachineHandle;
use super::step_error::{BackoffTarget, StepError};
use super::{node, returned_nodes};
use model::node::Node;

/// How long a kubelet has to be silent before its Node is removed, if the VM is not visible and may be
/// running. Kubernetes waits for the same time before it ends the pods of a silent node
/// (`--default-unreachable-toleration-seconds`).
const UNHEARD: Duration = Duration::from_mins(5);

/// Returns an error as long as the machine's kubelet still reports. This function is called for a machine
/// whose VM is hidden or no longer has our mark. Such a VM may still be ours, because it may have been
/// removed from our pool, or its notes may have been changed. If the VM is `hidden`, its kubelet must also
/// have been silent for some time.
pub(super) async fn no_kubelet(
    ctx: &Context,
    machine: &MachineHandle,
    hidden: bool,
) -> Result<(), StepError> {
    let Some(node) = returned_nodes::node(ctx, machine).await? else { return Ok(()) };
    let is_silent = node::is_silent(&node);
    // The time is measured by this host's clock, because the Node's own timestamp comes from another clock.
    let silent_for = ctx.registry.silent(&machine.record().id, is_silent);
    if is_silent && (!hidden || is_long_silent(&node, silent_for, ctx.clock.now())) {
        return Ok(());
    }
    let heard = if is_silent { "reported within the last five minutes" } else { "still reports" };
    let record = machine.record();
    let vmid = record.slot.vmid;
    Err(StepError::Failed {
        what: format!(
            "VM {vmid} is not visible or no longer bears the machine's mark, but Node {} {heard}: put the VM \
                back into its resource pool and restore its notes; or, if the daemon should no longer \
                manage the VM: {}",
            node.name,
            kubernetes::command_to_drop(ctx.kubernetes.namespace(), record),
        ),
        blame: BackoffTarget::Other,
    })
}

/// Whether the kubelet has been silent for long enough. It must have been silent at each check, and its Node
/// must not have reported between two checks.
fn is_long_silent(node: &Node, silent_for: Duration, now: Timestamp) -> bool {
    let ready = node.conditions.iter().find(|one| one.kind == "Ready");
    let since = ready.and_then(|ready| ready.last_transition);
    // A timestamp in the future comes from a clock that is ahead, so it is ignored.
    let said = since.filter(|since| *since <= now).is_none_or(|since| {
        Duration::try_from(now.duration_since(since)).is_ok_and(|passed| passed >= UNHEARD)
    });
    silent_for >= UNHEARD && said
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::node::Condition;

    #[test]
    fn a_kubelet_that_was_heard_of_between_two_looks_has_not_long_been_silent() {
        let now: Timestamp = "2026-11-28T12:00:00Z".parse().unwrap();
        let node = |since: &str| Node {
            conditions: vec![Condition {
                kind: "Ready".to_owned(),
                status: "Unknown".to_owned(),
                last_transition: Some(since.parse().unwrap()),
            }],
            ..Node::default()
        };
        let (long, short) = (Duration::from_mins(10), Duration::from_mins(4));
        for (since, silent_for, expected) in [
            ("2026-11-28T11:50:00Z", long, true),
            ("2026-11-28T11:50:00Z", short, false),
            ("2026-11-28T11:59:40Z", long, false),
            // The timestamp comes from a clock that is ahead.
            ("2026-11-28T12:10:00Z", long, true),
            ("2026-11-28T12:10:00Z", short, false),
        ] {
            assert_eq!(is_long_silent(&node(since), silent_for, now), expected, "{since} {silent_for:?}");
        }
    }
}
