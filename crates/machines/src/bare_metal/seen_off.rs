//! Determines when a machine was first seen to be off, for checks that run outside the machine's task.

use jiff::Timestamp;

use crate::node::is_ready;
use crate::out_of_service::NOTICED;
use model::Record;
use model::node::Node;
use proxmox::redfish::PowerState;

/// Returns the time at which a machine was first seen to be off, given its record, its power state and its
/// Node. Not meant for a machine that is being switched on. Returns `None` if the machine was not seen to be
/// off, or is in service again.
pub fn seen_off(
    record: &Record,
    power: PowerState,
    node: Option<&Node>,
    now: Timestamp,
) -> Option<Timestamp> {
    let Some(off) = record.seen_off else { return (power == PowerState::Off).then_some(now) };
    let heard = node.is_some_and(is_ready) && now.duration_since(off).unsigned_abs() > NOTICED;
    (!heard || power != PowerState::On).then_some(off)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use model::node::Condition;

    #[test]
    fn one_that_was_off_is_ours_again_once_its_node_is_ready_for_longer_than_a_dead_one_looks_so() {
        let at = |minute| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute);
        let node = |status: &str| {
            let (kind, status) = ("Ready".to_owned(), status.to_owned());
            let conditions = vec![Condition { kind, status, last_transition: None }];
            Node { conditions, ..Node::default() }
        };
        let (ready, silent) = (node("True"), node("Unknown"));
        let (off, on) = (PowerState::Off, PowerState::On);
        for (what, before, power, node, now, after) in [
            ("it runs", None, on, Some(&ready), 0, None),
            ("it was switched off by hand", None, off, Some(&ready), 5, Some(5)),
            ("it is still off", Some(5), off, None, 9, Some(5)),
            ("its Node looks ready for a moment", Some(5), on, Some(&ready), 6, Some(5)),
            ("it was switched on, but runs something else", Some(5), on, Some(&silent), 9, Some(5)),
            ("it has no Node", Some(5), on, None, 9, Some(5)),
            ("it serves again", Some(5), on, Some(&ready), 9, None),
            ("it is being switched off", Some(5), PowerState::PoweringOff, Some(&ready), 9, Some(5)),
        ] {
            let record = Record { seen_off: before.map(at), ..Record::example() };
            assert_eq!(seen_off(&record, power, node, at(now)), after.map(at), "{what}");
        }
    }
}
