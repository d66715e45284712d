//! Which hosts are switched off, and which are woken.

use std::fmt::Write;

use model::Plan;
use model::plan::RemovalReason;
use model::power::HostOutcome;
use model::workload::Backoff;
use planning::{Limits, plan_within};
use settings::Config;

use crate::cluster::{Cluster, node_verdict, of_pool, pod_verdict, removed};
use model::plan::{NodeOutcome, PodOutcome};

/// Pool `w`, and hosts `b`, `c`, … that may be switched off after ten minutes.
fn config(hosts: &[&str], power: &str) -> Config {
    let hosts = hosts.iter().fold(String::new(), |mut all, host| {
        let _ = write!(all, "[[host]]\nname = \"{host}\"\npower = \"wake-on-lan\"\n");
        all
    });
    of_pool("", &format!("[power]\nidle_for = \"10m\"\n{power}\n{hosts}"))
}

/// Hosts with room for two machines each. The fields say which hosts are on, what is known about them, which
/// managed machines exist, and what is remembered.
struct Hosts {
    on: &'static [(&'static str, bool)],
    facts: &'static str,
    machines: &'static str,
    memory: &'static str,
}

impl Hosts {
    fn cluster(&self, cluster: Cluster) -> Cluster {
        let hosts: Vec<String> = self
            .on
            .iter()
            .map(|(name, on)| format!("{{name: {name}, online: {on}, cores: 16, memory: 18Gi}}, "))
            .collect();
        let votes: Vec<String> = self.on.iter().map(|(name, _)| format!("{name}: 1, ")).collect();
        let (hosts, votes, facts) = (hosts.concat(), votes.concat(), self.facts);
        cluster
            .with(&format!(
                "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nhosts: [{hosts}]\nmachines: [{}]\n\
                 power: {{votes: {{{votes}}}, hosts: {{{facts}}}}}",
                self.machines
            ))
            .with(&format!(
                "apiVersion: pve-autoscaler/v1\nkind: AutoscalerState\nlastRound: 2026-01-01T11:59:50Z\nhosts: {{{}}}",
                self.memory
            ))
    }

    fn plan(&self, cluster: Cluster, config: &Config) -> Plan {
        self.cluster(cluster).plan(config)
    }
}

const THREE: &[(&str, bool)] = &[("a", true), ("b", true), ("c", true)];
const C_OFF: &[(&str, bool)] = &[("a", true), ("b", true), ("c", false)];
const GOOD: &str = "b: {answers: true}, c: {answers: true}";
const LONG: &str = "b: {idleSince: 2026-01-01T11:00:00Z}, c: {idleSince: 2026-01-01T11:00:00Z}";
/// What is remembered about host `c` if the daemon has switched it off.
const OURS: &str = "c: {power: {step: Off, since: 2026-01-01T11:00:00Z, reachedBy: [w], room: {name: c, online: true, cores: 16, \
     memory: 19327352832, memoryUsed: 0}}}";

fn said(plan: &Plan) -> Vec<(&str, HostOutcome)> {
    plan.hosts.iter().map(|one| (one.host.as_str(), one.verdict)).collect()
}

fn why<'p>(plan: &'p Plan, host: &str) -> &'p str {
    &plan.hosts.iter().find(|one| one.host == host).unwrap().message
}

#[test]
fn one_idle_host_goes_at_a_time_and_never_the_majority() {
    let config = config(&["b", "c"], "");
    let young = Hosts { on: THREE, facts: GOOD, machines: "", memory: "" };
    let plan = young.plan(Cluster::new(), &config);
    assert_eq!(said(&plan), [("b", HostOutcome::Idle), ("c", HostOutcome::Idle)]);
    assert_eq!(plan.hosts[0].due, Some("2026-01-01T12:10:00Z".parse().unwrap()));
    let old = Hosts { memory: LONG, ..young };
    let plan = old.plan(Cluster::new(), &config);
    assert_eq!(said(&plan), [("b", HostOutcome::Idle), ("c", HostOutcome::SwitchOff)]);
    let next =
        "b: {idleSince: 2026-01-01T11:00:00Z}, c: {power: {step: ShuttingDown, since: 2026-01-01T11:58:00Z}}";
    let plan = Hosts { memory: next, ..old }.plan(Cluster::new(), &config);
    assert_eq!(said(&plan), [("b", HostOutcome::Needed), ("c", HostOutcome::GoingOff)]);
    assert!(why(&plan, "b").contains("1 of 3 votes left"), "{}", why(&plan, "b"));
    // The daemon remembers host `c` as switched off, but it is still on. It may yet shut down, so its vote is
    // not counted.
    let late = "b: {idleSince: 2026-01-01T11:00:00Z}, c: {power: {step: Off, since: 2026-01-01T11:00:00Z}}";
    let plan = Hosts { memory: late, ..old }.plan(Cluster::new(), &config);
    assert!(why(&plan, "b").contains("1 of 3 votes left"), "{}", why(&plan, "b"));
}

#[test]
fn the_time_that_no_instance_watched_does_not_count() {
    let config = config(&["c"], "");
    let hosts =
        Hosts { on: THREE, facts: GOOD, machines: "", memory: "c: {idleSince: 2026-01-01T11:40:00Z}" };
    let cluster = hosts.cluster(Cluster::new());
    let mut snapshot = cluster.snapshot();
    snapshot.memory.last_round = Some("2026-01-01T11:45:00Z".parse().unwrap());
    let plan = planning::plan(&snapshot, &config);
    assert_eq!(plan.hosts[0].verdict, HostOutcome::Idle);
    assert_eq!(plan.hosts[0].since, Some("2026-01-01T11:55:00Z".parse().unwrap()));
}

#[test]
fn each_reason_to_stay_is_said() {
    let stays = |power: &str, facts: &'static str, machines: &'static str| {
        let hosts = Hosts { on: THREE, facts, machines, memory: LONG };
        let plan = hosts.plan(Cluster::new(), &config(&["c"], power));
        assert_eq!(said(&plan), [("c", HostOutcome::Needed)]);
        why(&plan, "c").to_owned()
    };
    let coming = "{name: w-1, pool: w, vmid: 9101, host: c, cores: 4, memory: 8Gi, phase: Booting}";
    for (power, facts, machines, expected) in [
        ("min_hosts_on = 3", GOOD, "", "`power.min_hosts_on` keeps 3 hosts on"),
        (
            "",
            "c: {answers: true, others: [120, 121, 122, 123]}",
            "",
            "unmanaged guests run on this host: 120, 121, 122 and more",
        ),
        ("", "c: {answers: true, staysOn: because}", "", "because"),
        ("", "c: {answers: false}", "", "its API does not answer"),
        ("", "b: {answers: true}", "", "it is not known yet whether the host has to stay on"),
        ("", GOOD, coming, "w-1 is being created on this host"),
    ] {
        let said = stays(power, facts, machines);
        assert!(said.contains(expected), "no {expected:?} in {said:?}");
    }
}

/// Two nodes with one pod each. The machine `w-2` is on host `c`.
fn two_nodes() -> Cluster {
    let nodes = Cluster::new().idle("w-1", "w").idle("w-2", "w");
    nodes.pod("p1", "3", "w-1").pod("p2", "3", "w-2")
}

const MACHINES: &str = "{name: w-1, pool: w, vmid: 9101, host: a, cores: 4, memory: 8Gi, phase: Ready, node: w-1}, \
     {name: w-2, pool: w, vmid: 9102, host: c, cores: 4, memory: 8Gi, phase: Ready, node: w-2}";

#[test]
fn a_host_with_a_worker_is_emptied_if_another_has_room_for_it() {
    let config = config(&["c"], "");
    let hosts = Hosts { on: THREE, facts: GOOD, machines: MACHINES, memory: LONG };
    let begins = hosts.plan(two_nodes(), &config);
    assert_eq!(said(&begins), [("c", HostOutcome::Emptied)]);
    assert!(begins.scale_up.is_empty() && removed(&begins).is_empty(), "the first round changes no machine");
    let memory = "c: {power: {step: Emptying, since: 2026-01-01T11:59:00Z}}";
    let goes_on = Hosts { memory, ..hosts };
    let plan = goes_on.plan(two_nodes(), &config);
    assert_eq!(said(&plan), [("c", HostOutcome::Emptied)]);
    assert_eq!(plan.scale_up[0].machines.len(), 1, "the replacement is created first");
    assert_ne!(plan.scale_up[0].machines[0].host, "c");
    assert_eq!(node_verdict(&plan, "w-2"), NodeOutcome::NoPlaceToMovePods);
    let with_room = two_nodes().idle("w-3", "w");
    let machines = format!(
        "{MACHINES}, {{name: w-3, pool: w, vmid: 9103, host: b, cores: 4, memory: 8Gi, phase: Ready, node: w-3}}"
    );
    let plan = Hosts { machines: machines.leak(), ..goes_on }.plan(with_room, &config);
    assert_eq!(removed(&plan), ["w-2"]);
    assert_eq!(plan.scale_down[0].reason, RemovalReason::HostOff);
}

#[test]
fn a_host_waits_until_it_is_seen_that_the_last_machine_is_gone() {
    let config = config(&["c"], "");
    let memory = "c: {power: {step: Emptying, since: 2026-01-01T11:59:00Z}}";
    let with = |facts, memory| Hosts { on: THREE, facts, machines: "", memory }.plan(Cluster::new(), &config);
    let plan = with("c: {answers: true, going: [9102]}", memory);
    assert_eq!(said(&plan), [("c", HostOutcome::Emptied)]);
    assert_eq!(why(&plan, "c"), "still in use by 1 of the daemon's machines");
    // If a VM on an idle host was a machine until recently, the host is not switched off immediately.
    assert_eq!(said(&with("c: {answers: true, going: [9102]}", LONG)), [("c", HostOutcome::Emptied)]);
    assert_eq!(said(&with("c: {answers: true}", memory)), [("c", HostOutcome::SwitchOff)]);
    // The VMID now belongs to another VM.
    assert_eq!(said(&with("c: {answers: true, others: [9102]}", memory)), [("c", HostOutcome::Needed)]);
}

#[test]
fn no_host_goes_while_a_guest_may_be_on_its_way_to_it() {
    let config = config(&["c"], "");
    let emptying = "c: {power: {step: Emptying, since: 2026-01-01T11:59:00Z}}";
    for (memory, verdict) in [(LONG, HostOutcome::Idle), (emptying, HostOutcome::Emptied)] {
        let with = |facts| Hosts { on: THREE, facts, machines: "", memory }.plan(Cluster::new(), &config);
        let plan = with("c: {answers: true, migrating: [120]}");
        assert_eq!(said(&plan), [("c", verdict)]);
        let why = why(&plan, "c");
        assert!(why.ends_with("waiting for guest 120, which is being migrated"), "{why}");
        assert_eq!(said(&with("c: {answers: true}")), [("c", HostOutcome::SwitchOff)]);
    }
}

#[test]
fn no_host_is_emptied_on_which_a_machine_has_left_a_disk() {
    let machines = "{name: w-1, pool: w, vmid: 9101, host: c, cores: 4, memory: 8Gi, phase: Clearing}, \
         {name: w-2, pool: w, vmid: 9102, host: c, cores: 4, memory: 8Gi, phase: Ready, node: w-2}";
    let hosts = Hosts { on: THREE, facts: GOOD, machines, memory: LONG };
    let plan = hosts.plan(Cluster::new().idle("w-2", "w").pod("p2", "3", "w-2"), &config(&["c"], ""));
    assert_eq!(said(&plan), [("c", HostOutcome::Idle)]);
    let why = why(&plan, "c");
    assert!(why.ends_with("waiting for the leftovers of w-1 to be removed from this host"), "{why}");
}

#[test]
fn a_host_whose_worker_has_no_place_elsewhere_stays_and_one_that_is_emptied_is_kept_when_its_room_is_needed()
{
    let config = of_pool(
        "max_per_host = 1",
        "[power]\nidle_for = \"10m\"\n[[host]]\nname = \"c\"\npower = \"wake-on-lan\"\n",
    );
    let full = format!(
        "{MACHINES}, {{name: w-3, pool: w, vmid: 9103, host: b, cores: 4, memory: 8Gi, phase: Ready, node: w-3}}"
    );
    let nodes = || two_nodes().idle("w-3", "w").pod("p3", "3", "w-3");
    let hosts = Hosts { on: THREE, facts: GOOD, machines: full.leak(), memory: LONG };
    let plan = hosts.plan(nodes(), &config);
    assert_eq!(said(&plan), [("c", HostOutcome::Needed)]);
    assert!(why(&plan, "c").contains("would not find room"), "{}", why(&plan, "c"));
    let memory = "c: {power: {step: Emptying, since: 2026-01-01T11:59:00Z}}";
    let empty = Hosts { on: THREE, facts: GOOD, machines: "", memory };
    let waits = Cluster::new().pod("p1", "3", "").pod("p2", "3", "").pod("p3", "3", "");
    let plan = empty.plan(waits, &config);
    assert_eq!(said(&plan), [("c", HostOutcome::Needed)]);
    assert!(why(&plan, "c").contains("its room is needed"), "{}", why(&plan, "c"));
}

#[test]
fn a_pod_that_must_stay_keeps_its_host_on() {
    let config = config(&["c"], "");
    let hosts = Hosts { on: THREE, facts: GOOD, machines: MACHINES, memory: LONG };
    let pinned = two_nodes().with(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: bare, namespace: d}\nspec: {nodeName: w-2, containers: [{name: c}]}",
    );
    let plan = hosts.plan(pinned, &config);
    assert_eq!(said(&plan), [("c", HostOutcome::Needed)]);
    assert!(why(&plan, "c").contains("d/bare keeps w-2 (NotReplicated)"), "{}", why(&plan, "c"));
}

/// This many pods that each need a separate node.
fn waiting(count: usize) -> Cluster {
    (0..count).fold(Cluster::new(), |all, number| all.pod(&format!("p{number}"), "3", ""))
}

#[test]
fn a_host_that_we_switched_off_is_woken_for_what_finds_no_room_and_for_nothing_else() {
    let config = config(&["c"], "");
    let hosts = Hosts { on: C_OFF, facts: "c: {answers: false}", machines: "", memory: OURS };
    // Hosts `a` and `b` have room for two machines each.
    let plan = hosts.plan(waiting(4), &config);
    assert_eq!(said(&plan), [("c", HostOutcome::Off)]);
    let plan = hosts.plan(waiting(5), &config);
    assert_eq!(said(&plan), [("c", HostOutcome::Wake)]);
    assert_eq!(why(&plan, "c"), "pods and missing machines that would have room if this host were on: 1");
    assert_eq!(plan.scale_up[0].machines.len(), 4, "no machine is placed on the host before it is on");
    let message =
        &plan.pods.iter().find(|pod| pod.verdict == PodOutcome::NoHostCapacity).unwrap().reasons()[0].message;
    assert!(message.contains("c is switched off until it is needed"), "{message}");
    // A pod that fits no pool would not fit any better if the host were on.
    let plan = hosts.plan(waiting(4).pod("huge", "64", ""), &config);
    assert_eq!(pod_verdict(&plan, "d/huge"), PodOutcome::NoPoolFits);
    assert_eq!(said(&plan), [("c", HostOutcome::Off)]);
}

#[test]
fn a_host_is_woken_for_a_chunk_of_a_buffer_as_for_a_pod() {
    let config = config(&["c"], "");
    let hosts = Hosts { on: C_OFF, facts: "c: {answers: false}", machines: "", memory: OURS };
    for (chunks, expected) in [(1, HostOutcome::Off), (2, HostOutcome::Wake)] {
        let cluster = waiting(3)
            .with(
                "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: t, namespace: d}\n\
                 template: {spec: {containers: [{name: c, resources: {requests: {cpu: 3}}}]}}",
            )
            .with(&format!(
                "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {{name: b, namespace: d}}\n\
                 spec: {{podTemplateRef: {{name: t}}, replicas: {chunks}}}"
            ));
        assert_eq!(said(&hosts.plan(cluster, &config)), [("c", expected)], "{chunks}");
    }
}

#[test]
fn a_host_without_which_no_template_reaches_it_is_woken_for_a_pool_whose_labels_tell_hosts() {
    let power = "[power]\nidle_for = \"10m\"\n[[host]]\nname = \"c\"\npower = \"wake-on-lan\"\n";
    let config = of_pool("labels = { host = \"{{ host }}\" }", power);
    let hosts = Hosts { on: C_OFF, facts: "c: {answers: false}", machines: "", memory: OURS };
    let there = Cluster::new().with(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: there, namespace: d}\n\
         spec: {nodeSelector: {host: c}, containers: [{name: c, resources: {requests: {cpu: 3}}}]}",
    );
    for (cluster, expected) in
        [(waiting(4), HostOutcome::Off), (waiting(5), HostOutcome::Wake), (there, HostOutcome::Wake)]
    {
        let mut snapshot = hosts.cluster(cluster).snapshot();
        let reach = Some(vec!["a".into(), "b".into()]);
        snapshot.memory.pools.entry("w".into()).or_default().reach = reach;
        let plan = planning::plan(&snapshot, &config);
        assert_eq!(said(&plan), [("c", expected)], "{:?}", plan.pods);
    }
}

#[test]
fn a_host_is_woken_for_a_pool_that_backs_off_only_if_a_template_of_the_pool_is_on_it() {
    let config = config(&["c"], "");
    let across: &str = OURS.replace("reachedBy: [w]", "reachedBy: [w], across: [w]").leak();
    for (memory, without_template, expected) in [
        (OURS, true, HostOutcome::Wake),
        // Machines on `c` would be cloned from another host's template, which is missing.
        (across, true, HostOutcome::Off),
        // If the back-off has another cause, waking a host does not end it.
        (OURS, false, HostOutcome::Off),
        (across, false, HostOutcome::Off),
    ] {
        let hosts = Hosts { on: C_OFF, facts: "c: {answers: false}", machines: "", memory };
        let mut snapshot = hosts.cluster(waiting(1)).snapshot();
        let until = "2026-01-01T12:01:00Z".parse().unwrap();
        let pool = snapshot.memory.pools.entry("w".into()).or_default();
        pool.backoff = Some(Backoff { until, reason: "x".to_owned(), seconds: 0 });
        pool.without_template = without_template;
        let plan = planning::plan(&snapshot, &config);
        assert_eq!(pod_verdict(&plan, "d/p0"), PodOutcome::BackingOff);
        assert_eq!(said(&plan), [("c", expected)], "{memory} {without_template}");
    }
}

#[test]
fn a_template_on_one_host_on_its_way_is_none_for_the_next() {
    const TWO_OFF: &[(&str, bool)] = &[("a", true), ("b", false), ("c", false)];
    let config = config(&["b", "c"], "");
    // Machines on `c` would be cloned from another host's template, which is missing. Host `b` has its own
    // template.
    let coming = OURS.replace("c:", "b:").replace("name: c", "name: b").replace(
        "step: Off, since: 2026-01-01T11:00:00Z",
        "step: Waking, asked: 2026-01-01T11:59:50Z, since: 2026-01-01T11:59:50Z",
    );
    let memory = format!("{coming}, {}", OURS.replace("reachedBy: [w]", "reachedBy: [w], across: [w]"));
    let hosts = Hosts { on: TWO_OFF, facts: "", machines: "", memory: memory.leak() };
    let mut snapshot = hosts.cluster(waiting(3)).snapshot();
    let until = "2026-01-01T12:01:00Z".parse().unwrap();
    let pool = snapshot.memory.pools.entry("w".into()).or_default();
    pool.backoff = Some(Backoff { until, reason: "x".to_owned(), seconds: 0 });
    pool.without_template = true;
    let plan = planning::plan(&snapshot, &config);
    assert_eq!(said(&plan), [("b", HostOutcome::Waking), ("c", HostOutcome::Off)]);
}

#[test]
fn a_host_that_others_switched_off_and_one_that_failed_are_not_woken() {
    let config = config(&["c"], "");
    let hosts = Hosts { on: C_OFF, facts: "", machines: "", memory: "" };
    let plan = hosts.plan(waiting(5), &config);
    assert_eq!(said(&plan), [("c", HostOutcome::NotOurs)]);
    let failed =
        OURS.replace("c: {power", "c: {backoff: {until: 2026-01-01T13:00:00Z, reason: it is dead}, power");
    let plan = Hosts { memory: failed.leak(), ..hosts }.plan(waiting(5), &config);
    assert_eq!(said(&plan), [("c", HostOutcome::Off)]);
    assert!(why(&plan, "c").contains("it is dead"));
}

#[test]
fn a_host_on_its_way_counts_as_room_and_is_asked_again_each_minute_until_its_time_is_over() {
    let config = config(&["c"], "wake_time = \"10m\"");
    let step = |since: &str, asked: &str| -> &'static str {
        let step = format!("step: Waking, since: 2026-01-01T11:{since}Z, asked: 2026-01-01T11:{asked}Z");
        OURS.replace("step: Off, since: 2026-01-01T11:00:00Z", &step).leak()
    };
    let waking = |memory, on, facts| {
        let plan = Hosts { on, facts, machines: "", memory }.plan(waiting(5), &config);
        (plan.hosts[0].verdict, plan.scale_up[0].machines.len())
    };
    let deaf = "c: {answers: false}";
    assert_eq!(waking(step("58:00", "59:30"), C_OFF, deaf), (HostOutcome::Waking, 4));
    assert_eq!(waking(step("58:00", "58:59"), C_OFF, deaf), (HostOutcome::Wake, 4));
    assert_eq!(waking(step("50:00", "59:30"), C_OFF, deaf), (HostOutcome::GivenUp, 4));
    assert_eq!(waking(step("58:00", "59:30"), THREE, deaf), (HostOutcome::Waking, 4));
    assert_eq!(waking(step("58:00", "59:30"), THREE, GOOD), (HostOutcome::Needed, 5));
}

/// One host of three is on.
const TWO_OFF: &[(&str, bool)] = &[("a", true), ("b", false), ("c", false)];

#[test]
fn a_gang_that_needs_several_hosts_has_them_woken_one_after_the_other_if_all_of_it_fits_then() {
    let config = config(&["b", "c"], "");
    let both = format!("{OURS}, {}", OURS.replace("c:", "b:").replace("name: c", "name: b"));
    let gang = |count: u32| {
        let pod = |cluster: Cluster, number| {
            let pod = crate::gangs::pod("g", number, "", "");
            cluster.with(&pod)
        };
        (0..count).fold(Cluster::new().with(&crate::gangs::group("g", count)), pod)
    };
    let hosts = Hosts { on: TWO_OFF, facts: "", machines: "", memory: both.clone().leak() };
    let plan = hosts.plan(gang(6), &config);
    assert_eq!(said(&plan), [("b", HostOutcome::Wake), ("c", HostOutcome::Off)]);
    assert_eq!(
        why(&plan, "b"),
        "pods and missing machines that would have room if this and other hosts were on: 6"
    );
    let coming = both.replace(
        "b: {power: {step: Off, since: 2026-01-01T11:00:00Z",
        "b: {power: {step: Waking, asked: 2026-01-01T11:59:50Z, since: 2026-01-01T11:59:50Z",
    );
    let coming = Hosts { memory: coming.leak(), ..hosts };
    assert_eq!(said(&coming.plan(gang(6), &config)), [("b", HostOutcome::Waking), ("c", HostOutcome::Wake)]);
    assert_eq!(said(&coming.plan(gang(4), &config)), [("b", HostOutcome::Waking), ("c", HostOutcome::Off)]);
    // The gang would not fit even if all hosts were on.
    let plan = hosts.plan(gang(7), &config);
    assert_eq!(said(&plan), [("b", HostOutcome::Off), ("c", HostOutcome::Off)]);
}

#[test]
fn as_few_hosts_are_woken_as_are_enough() {
    let config = config(&["b", "c"], "");
    let both = format!("{OURS}, {}", OURS.replace("c:", "b:").replace("name: c", "name: b"));
    let hosts = Hosts { on: TWO_OFF, facts: "", machines: "", memory: both.clone().leak() };
    let plan = hosts.plan(waiting(4), &config);
    assert_eq!(said(&plan), [("b", HostOutcome::Wake), ("c", HostOutcome::Off)]);
    let coming = both.replace(
        "b: {power: {step: Off, since: 2026-01-01T11:00:00Z",
        "b: {power: {step: Waking, asked: 2026-01-01T11:59:50Z, since: 2026-01-01T11:59:50Z",
    );
    let coming = Hosts { memory: coming.leak(), ..hosts };
    assert_eq!(
        said(&coming.plan(waiting(4), &config)),
        [("b", HostOutcome::Waking), ("c", HostOutcome::Off)]
    );
    assert_eq!(
        said(&coming.plan(waiting(5), &config)),
        [("b", HostOutcome::Waking), ("c", HostOutcome::Wake)]
    );
}

/// The limit may end the decision at any point. It is then unknown how much room is lacking.
#[test]
fn a_host_is_only_woken_if_the_round_has_found_out_that_it_helps() {
    let config = config(&["b", "c"], "");
    let both = format!("{OURS}, {}", OURS.replace("c:", "b:").replace("name: c", "name: b"));
    let coming = both.replace(
        "b: {power: {step: Off, since: 2026-01-01T11:00:00Z",
        "b: {power: {step: Waking, asked: 2026-01-01T11:59:50Z, since: 2026-01-01T11:59:50Z",
    );
    let hosts = Hosts { on: TWO_OFF, facts: "", machines: "", memory: coming.leak() };
    let snapshot = hosts.cluster(waiting(6)).snapshot();
    let mut woken = 0;
    for growth in 0..3000 {
        let plan = plan_within(&snapshot, &config, Limits { growth, reasons: 0, ..Limits::default() });
        if said(&plan) == [("b", HostOutcome::Waking), ("c", HostOutcome::Wake)] {
            woken += 1;
            assert_eq!(
                why(&plan, "c"),
                "pods and missing machines that would have room if this host were on: 2",
                "with a limit of {growth}"
            );
        }
    }
    assert!((1..3000).contains(&woken), "{woken}");
}

#[test]
fn a_host_that_was_emptied_in_vain_is_left_alone_for_a_while() {
    let config = config(&["c"], "");
    let with = |until: &str| {
        let memory = format!(
            "c: {{idleSince: 2026-01-01T11:00:00Z, emptyingBackoff: {{until: {until}, reason: it was needed, seconds: 1200}}}}"
        );
        Hosts { on: THREE, facts: GOOD, machines: "", memory: memory.leak() }.plan(Cluster::new(), &config)
    };
    let plan = with("2026-01-01T12:00:10Z");
    assert_eq!(said(&plan), [("c", HostOutcome::Idle)]);
    assert_eq!(plan.hosts[0].due, Some("2026-01-01T12:00:10Z".parse().unwrap()));
    assert!(
        why(&plan, "c").contains("an earlier attempt to empty it failed: it was needed"),
        "{}",
        why(&plan, "c")
    );
    assert_eq!(said(&with("2026-01-01T12:00:00Z")), [("c", HostOutcome::SwitchOff)]);
}

#[test]
fn a_gang_that_waits_for_something_else_than_room_wakes_no_host_and_keeps_none_on() {
    let waits = |minimum| {
        Cluster::new().with(&crate::gangs::group("g", minimum)).with(&crate::gangs::pod("g", 0, "", ""))
    };
    let config = config(&["b", "c"], "");
    let hosts = Hosts { on: THREE, facts: GOOD, machines: "", memory: LONG };
    let plan = hosts.plan(waits(2), &config);
    assert_eq!(pod_verdict(&plan, "d/g-0"), PodOutcome::AwaitsGang);
    assert_eq!(said(&plan), [("b", HostOutcome::Idle), ("c", HostOutcome::SwitchOff)]);
}
