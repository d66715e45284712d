//! Determines which Node belongs to a bare-metal machine.

use std::sync::Arc;

use super::sight::Watched;
use kubernetes::Watches;
use model::Record;
use model::machine::Phase;
use model::node::Node;

/// Whether the record says that the daemon switched the machine on.
pub(crate) fn is_ours(record: &Record) -> bool {
    record.entered.contains_key(&Phase::Starting)
}

/// Returns the machine's Node according to these watches. Returns `None` if the machine has no Node, or if
/// the daemon has not switched the machine on. The name is compared first, because some vendors give all
/// their machines the same uuid.
pub(crate) fn seen(watches: &Watches, record: &Record) -> Option<Arc<Node>> {
    watches.node(&record.name).filter(|node| is_its(record, node))
}

/// The Node with the machine's name, as the watches show it.
pub(super) fn watched(watches: &Watches, record: &Record) -> Watched {
    match watches.node(&record.name) {
        None => Watched::Nothing,
        Some(node) if is_its(record, &node) => Watched::Own(node),
        Some(node) => Watched::Other(node.system_uuid.clone()),
    }
}

/// Whether a Node with the machine's name belongs to the machine.
pub(super) fn is_its(record: &Record, node: &Node) -> bool {
    is_ours(record) && record.smbios_uuid.as_deref().is_none_or(|uuid| is_same(uuid, &node.system_uuid))
}

/// Whether two uuids are equal, directly or after the bytes of the first three fields are swapped.
fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || turned(one).is_some_and(|one| one.eq_ignore_ascii_case(other))
}

/// A uuid with the bytes of each of its first three fields reversed.
fn turned(uuid: &str) -> Option<String> {
    let turn = |part: &str| -> Option<String> {
        let pairs: Option<Vec<&str>> =
            (0..part.len() / 2).rev().map(|at| part.get(at * 2..at * 2 + 2)).collect();
        Some(pairs?.concat())
    };
    let (first, rest) = uuid.split_once('-')?;
    let (second, rest) = rest.split_once('-')?;
    let (third, rest) = rest.split_once('-')?;
    Some(format!("{}-{}-{}-{rest}", turn(first)?, turn(second)?, turn(third)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_known_in_both_orders_of_its_bytes() {
        let uuid = "4c4c4544-0052-3510-8052-b4c04f4d3332";
        assert_eq!(turned(uuid).as_deref(), Some("44454c4c-5200-1035-8052-b4c04f4d3332"));
        for (other, same) in [
            (uuid, true),
            ("4C4C4544-0052-3510-8052-B4C04F4D3332", true),
            ("44454c4c-5200-1035-8052-b4c04f4d3332", true),
            ("44454c4c-5200-1035-8052-b4c04f4d3333", false),
            ("", false),
        ] {
            assert_eq!(is_same(uuid, other), same, "{other}");
        }
        assert!(!is_same("no uuid", "another"));
    }
}
