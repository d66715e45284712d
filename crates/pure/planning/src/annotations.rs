//! Pod annotations whose values are parsed: how long a pod stays where it is, what moving it costs, and how
//! long it waits before a machine is created for it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use model::digest::DELAY;
use model::plan::IgnoredAnnotation;
use model::pod::Pod;
use model::{Snapshot, go};

/// Annotations that prevent the disruption of a pod, and of its node. The value is `true` or, on pods only, a
/// duration that begins when the pod starts.
const KEPT: [&str; 2] = ["pve-autoscaler/do-not-disrupt", "karpenter.sh/do-not-disrupt"];
/// The annotations that set the cost of moving a pod. The second annotation is used only if the first is
/// absent.
const COSTS: [&str; 2] = ["karpenter.sh/disruption-cost", "controller.kubernetes.io/pod-deletion-cost"];
/// The maximum number of ignored annotations that are reported.
const NAMED: usize = 50;

/// Whether an annotation on the pod keeps the pod on its node.
pub(super) fn is_kept(pod: &Pod, now: Timestamp) -> bool {
    KEPT.iter().filter_map(|key| pod.annotations.get(*key)).any(|value| {
        // If the pod has no start time, the duration has not begun yet, so the pod still stays on its node.
        let runs = |time: SignedDuration| pod.started.is_none_or(|start| now.duration_since(start) < time);
        value == "true" || kept_for(value).is_some_and(runs)
    })
}

/// The relative cost of moving the pod; 0 unless an annotation sets it.
pub(super) fn cost(pod: &Pod) -> i64 {
    let written = COSTS.iter().find_map(|key| pod.annotations.get(*key));
    written.and_then(|value| value.parse::<i32>().ok()).map_or(0, i64::from)
}

/// The age that the pod must reach before a machine is created for it, if an annotation sets one.
pub(super) fn delay(pod: &Pod) -> Option<SignedDuration> {
    go::duration(pod.annotations.get(DELAY)?)
}

/// Returns the annotations that are ignored because their values cannot be parsed.
pub(super) fn ignored(snapshot: &Snapshot, annotated: &[&Arc<Pod>]) -> Vec<IgnoredAnnotation> {
    let of_pods = annotated.iter().filter(|pod| !pod.is_finished()).flat_map(|pod| {
        let wrong = pod.annotations.iter().filter_map(|(key, value)| Some((key, value, wrong(key, value)?)));
        wrong.map(|(key, value, why)| ignore(format!("pod {}", pod.id()), key, value, why))
    });
    let of_nodes = snapshot.nodes.iter().flat_map(|node| {
        let kept = KEPT.iter().filter_map(|key| Some((*key, node.annotations.get(*key)?)));
        let wrong = kept.filter(|(_, value)| !["true", "false"].contains(&value.as_str()));
        wrong.map(|(key, value)| {
            ignore(format!("node {}", node.name), key, value, "only `true` prevents the removal of a Node")
        })
    });
    let mut all: Vec<IgnoredAnnotation> = of_nodes.chain(of_pods).collect();
    all.sort_by(|a, b| (&a.object, &a.annotation).cmp(&(&b.object, &b.annotation)));
    all.truncate(NAMED);
    all
}

fn ignore(object: String, key: &str, value: &str, why: &'static str) -> IgnoredAnnotation {
    IgnoredAnnotation { object, annotation: key.to_owned(), value: value.to_owned(), why }
}

/// Returns what is wrong with the value of a pod's annotation, if anything.
fn wrong(key: &str, value: &str) -> Option<&'static str> {
    if KEPT.contains(&key) {
        let fine = ["true", "false"].contains(&value) || kept_for(value).is_some();
        return (!fine).then_some("neither `true` nor a duration such as `4h` or `90m`");
    }
    if COSTS.contains(&key) {
        return value.parse::<i32>().is_err().then_some("not a 32-bit integer");
    }
    (key == DELAY && go::duration(value).is_none()).then_some("not a duration such as `30s` or `5m`")
}

fn kept_for(value: &str) -> Option<SignedDuration> {
    go::duration(value).filter(jiff::SignedDuration::is_positive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::pod_spec::PodSpec;

    const NOW: i64 = 100_000;

    fn pod(annotations: &[(&str, &str)], started: Option<i64>) -> Pod {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let started = started.map(|ago| Timestamp::from_second(NOW - ago).unwrap());
        let spec = PodSpec { annotations: annotations.collect(), ..PodSpec::default() };
        Pod { name: "p".to_owned(), started, spec: spec.into(), ..Pod::default() }
    }

    #[test]
    fn a_pod_is_kept_for_good_or_for_a_time_after_its_start() {
        let now = Timestamp::from_second(NOW).unwrap();
        for (value, started, kept) in [
            ("true", Some(9999), true),
            ("1h", Some(600), true),
            ("1h", Some(3599), true),
            ("1h", Some(3600), false),
            ("1h", None, true),
            ("1h30m", Some(5000), true),
            ("1d", Some(600), false),
            ("True", Some(600), false),
            ("false", Some(600), false),
            ("0s", Some(0), false),
            ("-1h", None, false),
            ("", None, false),
        ] {
            for key in KEPT {
                assert_eq!(is_kept(&pod(&[(key, value)], started), now), kept, "{key} {value} {started:?}");
            }
        }
    }

    #[test]
    fn a_cost_of_disruption_hides_one_of_deletion_even_where_it_cannot_be_read() {
        let (first, second) = (COSTS[0], COSTS[1]);
        for (annotations, expected) in [
            (vec![], 0),
            (vec![(second, "7")], 7),
            (vec![(first, "-3"), (second, "7")], -3),
            (vec![(first, "3000000000"), (second, "7")], 0),
            (vec![(first, "a lot"), (second, "7")], 0),
            (vec![(second, "+5")], 5),
        ] {
            assert_eq!(cost(&pod(&annotations, None)), expected, "{annotations:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let told = |key: &str, value: &str| {
            let pod = Arc::new(pod(&[(key, value)], None));
            ignored(&Snapshot::default(), &[&pod]).into_iter().map(|one| one.annotation).collect::<Vec<_>>()
        };
        for key in KEPT {
            assert_eq!(told(key, "1d"), [key]);
            assert_eq!(told(key, "True"), [key]);
            for fine in ["true", "false", "90m"] {
                assert_eq!(told(key, fine), Vec::<String>::new(), "{fine}");
            }
        }
        assert_eq!(told(COSTS[0], "1.5"), [COSTS[0]]);
        assert_eq!(told(DELAY, "5 minutes"), [DELAY]);
        assert_eq!(told(DELAY, "5m"), Vec::<String>::new());
    }
}
