//! Random strings, amounts and selectors.

use jiff::Timestamp;
use model::Resources;
use model::features::{Feature, Features};
use model::node::TaintEffect;
use model::selector::{LabelSelector, Labels, NodeSelector, NodeSelectorTerm, Operator, Requirement};
use model::snapshot::KNOWN_ANNOTATIONS;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// Strings that Kubernetes allows, including those that YAML could parse as another type or as syntax.
pub fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z][a-z0-9.-]{0,8}",
        1 => "[ -~]{1,12}",
        1 => "\\PC{1,6}",
        1 => prop::sample::select(vec![
            "y", "no", "on", "true", "null", "~", "1", "1.5", "1e3", "0x10", "0o7", "1_000", ".inf", "-", "- a", "a: b",
            "#", "a #b", "{", "[]", "&a", "*a", "!x", "|", ">", "%", "@", "`", "'", "\"", " a", "a ", "a\nb", "a\n", "\t",
            "---", "...", "2026-01-01", "12:30:45", "=", "<<", "?", ":", "a:", "\u{85}", "\u{2028}", "\u{feff}",
        ]).prop_map(ToOwned::to_owned),
    ]
}

pub fn name() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z][a-z0-9-]{0,6}", 1 => "[0-9]{1,4}", 1 => "[0-9]e[0-9]", 1 => Just("null".to_owned())]
}

pub fn labels() -> impl Strategy<Value = Labels> {
    btree_map(text(), prop_oneof![text(), Just(String::new())], 0..3)
}

pub fn annotations() -> impl Strategy<Value = Labels> {
    btree_map(prop::sample::select(KNOWN_ANNOTATIONS).prop_map(ToOwned::to_owned), text(), 0..2)
}

pub fn time() -> impl Strategy<Value = Timestamp> {
    (1_700_000_000_i64..1_900_000_000).prop_map(|seconds| Timestamp::from_second(seconds).unwrap())
}

pub fn bytes() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), 0..5000_i64, (0..64_i64).prop_map(|gib| gib << 30), Just(i64::MAX)]
}

pub fn resources(pods: impl Strategy<Value = i64>, least: i64) -> impl Strategy<Value = Resources> {
    let other = prop::sample::select(vec!["hugepages-2Mi", "nvidia.com/gpu", "example.com/x"]);
    let other = btree_map(other.prop_map(ToOwned::to_owned), least..5000, 0..3);
    (0..100_000_i64, bytes(), bytes(), pods, other).prop_map(
        |(cpu_milli, memory, ephemeral_storage, pods, other)| Resources {
            cpu_milli,
            memory,
            ephemeral_storage,
            pods,
            other,
        },
    )
}

pub fn operator() -> impl Strategy<Value = Operator> {
    use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
    prop::sample::select(vec![In, In, In, NotIn, Exists, DoesNotExist, Gt, Lt])
}

pub fn requirements() -> impl Strategy<Value = Vec<Requirement>> {
    let one = (text(), operator(), vec(text(), 0..3));
    vec(one.prop_map(|(key, operator, values)| Requirement { key, operator, values }), 0..4)
}

pub fn selector() -> impl Strategy<Value = LabelSelector> {
    requirements().prop_map(|requirements| LabelSelector { requirements })
}

pub fn node_term() -> impl Strategy<Value = NodeSelectorTerm> {
    (requirements(), requirements())
        .prop_map(|(match_expressions, match_fields)| NodeSelectorTerm { match_expressions, match_fields })
}

pub fn node_selector() -> impl Strategy<Value = NodeSelector> {
    vec(node_term(), 0..3).prop_map(|terms| NodeSelector { terms })
}

pub fn effect() -> impl Strategy<Value = TaintEffect> {
    prop::sample::select(vec![TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute])
}

/// Random features that a pod needs from a kubelet, or that a Node declares.
pub fn features() -> impl Strategy<Value = Features> {
    any::<[bool; 3]>().prop_map(|there| {
        Feature::ALL
            .into_iter()
            .zip(there)
            .fold(Features::default(), |all, (one, there)| all.with(one, there))
    })
}
