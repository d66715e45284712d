//! TaintToleration: every `NoSchedule` and `NoExecute` taint must be tolerated.

use super::refusal::Refusal;
use model::node::{Node, Taint, TaintEffect};
use model::pod::{Pod, Toleration};

pub(super) fn check(pod: &Pod, node: &Node) -> Result<(), Refusal> {
    match untolerated(&pod.tolerations, &node.taints) {
        None => Ok(()),
        Some(taint) => Err(Refusal::Taint { key: taint.key.clone(), value: taint.value.clone() }),
    }
}

/// Whether the tolerations cover all taints that keep pods away.
pub fn tolerates_all(tolerations: &[Toleration], taints: &[Taint]) -> bool {
    untolerated(tolerations, taints).is_none()
}

fn untolerated<'a>(tolerations: &[Toleration], taints: &'a [Taint]) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule)
        .find(|taint| !tolerates(tolerations, taint))
}

/// Whether one of the tolerations matches the taint (`Toleration.ToleratesTaint`): effect, key and value must
/// agree. An empty key agrees with every key.
pub(super) fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|one| {
        let effect = one.effect.is_none_or(|effect| effect == taint.effect);
        let key = one.key.is_empty() || one.key == taint.key;
        effect && key && (one.exists || one.value == taint.value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toleration_agrees_in_key_value_and_effect() {
        let taint = Taint {
            key: "a".to_owned(),
            value: "1".to_owned(),
            effect: TaintEffect::NoSchedule,
            time_added: None,
        };
        let cases = [
            ("a", false, "1", Some(TaintEffect::NoSchedule), true),
            ("a", false, "1", None, true),
            ("a", false, "2", None, false),
            ("a", true, "", None, true),
            ("b", true, "", None, false),
            ("", true, "", None, true),
            ("", false, "1", None, true),
            ("", false, "2", None, false),
            ("a", true, "", Some(TaintEffect::NoExecute), false),
        ];
        for (key, exists, value, effect, expected) in cases {
            let one = Toleration { key: key.to_owned(), exists, value: value.to_owned(), effect };
            assert_eq!(tolerates(std::slice::from_ref(&one), &taint), expected, "{one:?}");
        }
    }
}
