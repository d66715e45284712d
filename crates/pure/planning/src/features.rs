//! The features that a fresh node of a pool will declare: those of the template's kubelet, as seen on the
//! pool's nodes.

use super::facts::machine::ByNode;
use super::facts::node::{pool_of, ready};
use model::Snapshot;
use model::features::{Feature, Features};
use model::node::Node;
use model::snapshot::{DeclaredFeatures, Memory};
use settings::Pool;

/// The features that a fresh node of the pool will declare. They are taken from the pool's newest ready node,
/// or else from what was remembered of an earlier node, or else from the defaults of a kubelet with the
/// control plane's version. Nodes whose kubelets have different settings are ignored.
pub(super) fn declared_by_fresh_nodes(snapshot: &Snapshot, machines: &ByNode, pool: &Pool) -> Features {
    let kubelet = pool.kubelet.words();
    let memory = || snapshot.memory.pools.get(&pool.name).and_then(|memory| memory.declared.clone());
    let known = seen(snapshot, machines, pool).or_else(memory).filter(|known| known.kubelet == kubelet);
    known.map_or_else(|| told(pool, Features::by_default(snapshot.kubernetes)), |known| known.features)
}

/// Remembers which features the nodes of the pool declare. Returns whether anything changed.
pub(super) fn learn(memory: &mut Memory, snapshot: &Snapshot, machines: &ByNode, pool: &Pool) -> bool {
    let Some(seen) = seen(snapshot, machines, pool) else { return false };
    let before = memory.pools.get(&pool.name).and_then(|own| own.declared.as_ref());
    if before == Some(&seen) {
        return false;
    }
    memory.pools.entry(pool.name.clone()).or_default().declared = Some(seen);
    true
}

/// The features of the pool's newest ready node whose kubelet has the pool's current settings.
fn seen(snapshot: &Snapshot, machines: &ByNode, pool: &Pool) -> Option<DeclaredFeatures> {
    let kubelet = pool.kubelet.words();
    let same = |node: &&Node| {
        let told = machines.get(node.name.as_str()).and_then(|machine| machine.made_of.get("kubelet"));
        told.map_or("", String::as_str) == kubelet
    };
    let nodes = snapshot.nodes.iter().map(AsRef::as_ref);
    let of_pool = nodes.filter(|node| pool_of(node) == Some(&*pool.name) && ready(node));
    let newest = of_pool.filter(same).max_by_key(|node| (node.created, &node.name))?;
    Some(DeclaredFeatures { features: newest.features, kubelet: kubelet.clone() })
}

/// Applies the feature gates in the pool's kubelet settings to these features. The command-line argument
/// takes precedence over the configuration field.
fn told(pool: &Pool, features: Features) -> Features {
    let arguments = pool.kubelet_args.get("feature-gates").map_or("", String::as_str);
    let argument = |one: Feature| {
        let gates = arguments.split(',').filter_map(|gate| gate.split_once('='));
        gates.filter(|(name, _)| name.trim() == one.name()).find_map(|(_, value)| value.trim().parse().ok())
    };
    let fields = pool.kubelet.fields().get("featureGates");
    let field = |one: Feature| fields.and_then(|gates| gates.get(one.name())?.as_bool());
    let gate = |one: Feature| argument(one).or_else(|| field(one));
    Feature::ALL.into_iter().fold(features, |all, one| match gate(one) {
        Some(is_on) => all.with(one, is_on),
        None => all,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use model::KubernetesVersion;
    use model::node::Condition;
    use model::snapshot::POOL_LABEL;
    use settings::{Config, Needs};

    fn config(own: &str) -> Config {
        let text = format!("[[pool]]\nname = \"w\"\nmax = 9\ncores = 2\nmemory = \"4GiB\"\n{own}\n");
        settings::parse("test", &text, Needs::Plan).unwrap()
    }

    fn snapshot(nodes: &[(&str, i64, Features)]) -> Snapshot {
        let node = |(name, age, features): &(&str, i64, Features)| {
            let condition =
                Condition { kind: "Ready".to_owned(), status: "True".to_owned(), last_transition: None };
            let mut node = Node { name: (*name).to_owned(), features: *features, ..Node::default() };
            node.labels.insert(POOL_LABEL.to_owned(), "w".to_owned());
            node.created = Some(jiff::Timestamp::from_second(*age).unwrap());
            node.conditions = vec![condition];
            Arc::new(node)
        };
        Snapshot { nodes: nodes.iter().map(node).collect(), ..Snapshot::default() }
    }

    /// The features of fresh nodes if no machine is known.
    fn fresh_features(snapshot: &Snapshot, pool: &Pool) -> Features {
        declared_by_fresh_nodes(snapshot, &ByNode::default(), pool)
    }

    fn restarts() -> Features {
        Features::default().with(Feature::RestartAllContainers, true)
    }

    #[test]
    fn a_pool_without_nodes_declares_what_a_kubelet_of_the_version_does() {
        let config = config("");
        let fresh =
            |kubernetes| fresh_features(&Snapshot { kubernetes, ..Snapshot::default() }, &config.pools[0]);
        assert_eq!(fresh(KubernetesVersion::V1_37), restarts());
        assert!(fresh(KubernetesVersion { major: 1, minor: 35 }).is_empty());
    }

    #[test]
    fn feature_gates_of_the_pool_count_until_a_node_is_seen() {
        let gates = "kubelet = { featureGates = { RestartAllContainersOnContainerExits = false, VolumeBindMountOptions = true } }";
        let fresh = fresh_features(&Snapshot::default(), &config(gates).pools[0]);
        assert_eq!(fresh.iter().collect::<Vec<_>>(), [Feature::BindMountOptions]);
        let argument =
            r#"kubelet_args = { feature-gates = "Other=true,RestartAllContainersOnContainerExits=false" }"#;
        assert!(fresh_features(&Snapshot::default(), &config(argument).pools[0]).is_empty());
    }

    #[test]
    fn the_newest_node_teaches_and_what_it_taught_stays_when_it_is_gone() {
        let config = config("");
        let pool = &config.pools[0];
        // The template's kubelet is older than the control plane.
        let seen = snapshot(&[("a", 1, restarts()), ("b", 2, Features::default())]);
        assert!(fresh_features(&seen, pool).is_empty());
        let mut memory = Memory::default();
        assert!(learn(&mut memory, &seen, &ByNode::default(), pool));
        assert!(!learn(&mut memory, &seen, &ByNode::default(), pool), "a second call changes nothing");
        let gone = Snapshot { memory, ..Snapshot::default() };
        assert!(fresh_features(&gone, pool).is_empty());
        let told = self::config("kubelet = { maxParallelImagePulls = 3 }");
        assert_eq!(
            fresh_features(&gone, &told.pools[0]),
            restarts(),
            "features remembered of kubelets with other settings are not used"
        );
    }
}
