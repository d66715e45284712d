//! Several Proxmox VE clusters: hosts with equal names, a cluster that cannot be reached, and a separate
//! quorum for each cluster.

use model::plan::NodeOutcome;
use model::power::HostOutcome;
use planning::plan;
use settings::{self, Config, Needs};

use crate::cluster::{Cluster, node_verdict, removed};

/// Pool `w` in the first cluster, pool `e` in `east`.
fn config(more: &str) -> Config {
    let table = |region: &str, at: &str| {
        format!(
            "region = \"{region}\"\nendpoints = [\"https://{at}\"]\ntoken_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n"
        )
    };
    let pool = |name: &str, region: &str| {
        format!(
            "[[pool]]\nname = \"{name}\"\nregion = \"{region}\"\nmax = 9\ncores = 4\nmemory = \"8GiB\"\n\
             labels = {{ region = \"{{{{ region }}}}\", host = \"{{{{ host }}}}\" }}\n\
             allocatable = {{ cpu = \"4\", memory = \"8Gi\", pods = 10 }}\n"
        )
    };
    let text = format!(
        "{more}\n[proxmox]\n{}[[proxmox.also]]\n{}{}{}",
        table("west", "a"),
        table("east", "b"),
        pool("w", "west"),
        pool("e", "east")
    );
    settings::parse("test", &text, Needs::Plan).unwrap_or_else(|report| panic!("{report}"))
}

fn with_hosts(hosts: &str) -> Cluster {
    Cluster::new().with(&format!(
        "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nmachines: []\nhosts:\n{hosts}"
    ))
}

const BOTH: &str = "- {name: pve1, online: true, cores: 16, memory: 64Gi}\n- {name: east/pve1, online: true, cores: 16, memory: 64Gi}\n";

fn pod(cluster: Cluster, name: &str, region: &str) -> Cluster {
    cluster.with(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: d}}\n\
         spec: {{nodeSelector: {{region: {region}, host: pve1}}, containers: [{{name: c, resources: {{requests: {{cpu: 3}}}}}}]}}"
    ))
}

#[test]
fn a_pool_grows_on_hosts_of_its_region_alone() {
    for (region, pool, host) in [("west", "w", "pve1"), ("east", "e", "east/pve1")] {
        let plan = pod(with_hosts(BOTH), "p", region).plan(&config(""));
        assert_eq!(plan.scale_up.len(), 1, "{:?}", plan.pods);
        assert_eq!(
            (plan.scale_up[0].pool.as_str(), plan.scale_up[0].machines[0].host.as_str()),
            (pool, host)
        );
    }
    let first = BOTH.lines().next().unwrap();
    let plan = pod(with_hosts(first), "p", "east").plan(&config(""));
    assert!(plan.scale_up.is_empty());
}

#[test]
fn a_pool_out_of_sight_loses_no_node_and_the_other_does() {
    let cluster = Cluster::new().idle("near", "w").idle("far", "e").node("silent", "e", "", "False");
    let both = cluster.plan(&config(""));
    assert_eq!(removed(&both), ["far", "near", "silent"]);
    let mut snapshot = cluster.snapshot();
    let why = Some("region `east` cannot be acted on".to_owned());
    snapshot.memory.pools.entry("e".into()).or_default().out_of_sight = why;
    let plan = plan(&snapshot, &config(""));
    assert_eq!(removed(&plan), ["near"]);
    for node in ["far", "silent"] {
        assert_eq!(node_verdict(&plan, node), NodeOutcome::PoolUnhealthy);
    }
    // The timers of the `east` nodes continue: they depend on pods, which can still be seen.
    let far = plan.nodes.iter().find(|one| one.node == "far").unwrap();
    assert!(far.since.is_some() && far.message.as_ref().unwrap().contains("east"), "{far:?}");
}

#[test]
fn each_cluster_keeps_its_own_majority() {
    let config = config(
        "[power]\nidle_for = \"10m\"\n[[host]]\nname = \"pve1\"\nregion = \"east\"\npower = \"wake-on-lan\"",
    );
    for (votes, expected) in [
        ("east/pve1: 1, east/pve2: 1, east/pve3: 1", HostOutcome::SwitchOff),
        // Four of six votes would be left in total, but only one of three in `east`.
        ("pve1: 1, pve2: 1, pve3: 1, east/pve1: 2, east/pve2: 1", HostOutcome::Needed),
    ] {
        let hosts = ["pve1", "pve2", "pve3", "east/pve1", "east/pve2", "east/pve3"]
            .map(|name| format!("{{name: {name}, online: true, cores: 16, memory: 18Gi}}"))
            .join(", ");
        let cluster = Cluster::new()
            .with(&format!(
                "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nmachines: []\nhosts: [{hosts}]\n\
                 power: {{votes: {{{votes}}}, hosts: {{east/pve1: {{answers: true}}}}}}"
            ))
            .with(
                "apiVersion: pve-autoscaler/v1\nkind: AutoscalerState\nlastRound: 2026-01-01T11:59:50Z\n\
                 hosts: {east/pve1: {idleSince: 2026-01-01T11:00:00Z}}",
            );
        let plan = cluster.plan(&config);
        assert_eq!(plan.hosts.len(), 1, "{:?}", plan.hosts);
        assert_eq!(plan.hosts[0].verdict, expected, "{:?}", plan.hosts[0]);
    }
}
