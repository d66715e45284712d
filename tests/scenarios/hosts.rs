//! Whole hosts: emptied by packing, shut down, and woken when their room is needed.

use std::collections::BTreeSet;
use std::time::Duration;

use pve_autoscaler::observability::Order;
use world::proxmox::rights::TagAccess;
use world::proxmox::spec::{AccessSpec, ClusterSpec, Grant, VmSpec};
use world::proxmox::{Effect, Fault};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(5);
const LATER: Duration = Duration::from_hours(1);

/// Two of three hosts may be switched off; the template, the daemon and the remaining votes are on the third.
fn settings(power: &str) -> String {
    let hosts: String = ["pve2", "pve3"]
        .map(|name| format!("[[host]]\nname = \"{name}\"\npower = \"wake-on-lan\"\n"))
        .concat();
    ONE_POOL.replace("[[pool]]", &format!("[power]\nidle_for = \"10m\"\n{power}\n{hosts}[[pool]]"))
}

/// Grants the additional rights that a token needs to switch hosts.
fn grant(access: &mut AccessSpec) {
    let role = |privilege: &str| vec![privilege.to_owned()];
    access.roles.insert("Power".into(), role("Sys.PowerMgmt"));
    access.roles.insert("See".into(), role("VM.Audit"));
    for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
        for (path, role) in [("/nodes", "Power"), ("/vms", "See")] {
            let (path, who, role) = (path.to_owned(), who.to_owned(), role.to_owned());
            access.grants.push(Grant { path, who, role, propagate: true });
        }
    }
}

fn stage(text: &str) -> Stage {
    let stage = Stage::new(text);
    stage.pve.change_access(grant);
    stage
}

fn off(stage: &Stage) -> Vec<&'static str> {
    ["pve1", "pve2", "pve3"].into_iter().filter(|host| !stage.pve.is_online(host)).collect()
}

fn posts(stage: &Stage, what: &str) -> usize {
    stage.pve.calls().iter().filter(|call| call.method == "POST" && call.path.ends_with(what)).count()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_no_pod_needs_is_shut_down_and_the_quorum_stays() {
    let mut stage = stage(&settings(""));
    stage.start();
    stage
        .throughout("all stay on for the idle time", Duration::from_mins(9), |stage| off(stage).is_empty())
        .await;
    stage.until("one host is off", SOON, |stage| off(stage).len() == 1).await;
    // Quorum requires two of the three votes.
    stage
        .throughout("the others stay on", LATER, |stage| off(stage).len() == 1 && stage.pve.is_quorate())
        .await;
    assert_eq!(posts(&stage, "/status"), 1);
    assert!(stage.pve.stopped_with_hosts().is_empty());
}

/// A cluster that can do without one host, with at most one worker of the pool on each host.
fn apart(power: &str) -> String {
    settings(power).replace("bridge =", "max_per_host = 1\nbridge =")
}

/// Waits until one host is off, and returns its name.
async fn one_is_off(stage: &Stage) -> &'static str {
    stage.until("one host is off", LATER, |stage| off(stage).len() == 1).await;
    stage
        .until("that is known", SOON, |stage| stage.status().hosts.iter().any(|host| host.power == "Off"))
        .await;
    off(stage)[0]
}

#[tokio::test(start_paused = true)]
async fn a_host_is_woken_for_pods_that_find_no_room_and_goes_again_afterwards() {
    let mut stage = stage(&apart(""));
    stage.start();
    let host = one_is_off(&stage).await;
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("two pods run", SOON, |stage| stage.running_pods() == 2).await;
    assert_eq!(posts(&stage, "/wakeonlan"), 0, "there was room");
    stage.deploy("web", 3, "1500m", "1Gi");
    stage
        .until("the reason why the third pod waits is reported", SOON, |stage| {
            let why = format!("{host} is coming up");
            stage.status().pods.iter().any(|pod| pod.why.contains(&why))
        })
        .await;
    let took = stage.until("the third pod runs", SOON, |stage| stage.running_pods() == 3).await;
    assert!(took < Duration::from_mins(4), "{took:?}");
    assert!(off(&stage).is_empty());
    stage.deploy("web", 2, "1500m", "1Gi");
    stage.until("one host is off again", LATER, |stage| off(stage).len() == 1).await;
    stage.until("both pods run", SOON, |stage| stage.running_pods() == 2).await;
    assert!(stage.pve.stopped_with_hosts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_went_off_while_a_right_was_missing_is_woken_once_it_is_there() {
    let list = |tag: &str| {
        let user_allow_list = vec![tag.to_owned()];
        TagAccess { user_allow: "list".to_owned(), user_allow_list, ..TagAccess::default() }
    };
    let mut stage = stage(&apart(""));
    stage.pve.restrict_tags(list("other"));
    stage.start();
    one_is_off(&stage).await;
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.throughout("no host is woken", LATER, |stage| posts(stage, "/wakeonlan") == 0).await;
    stage.pve.restrict_tags(list("pve-autoscaler"));
    stage.until("the pods run", Duration::from_mins(15), |stage| stage.running_pods() == 3).await;
    assert!(off(&stage).is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_host_goes_before_it_is_known_whom_it_is_needed_for() {
    let mut stage = stage(&apart("").replace("template = 9000", "template = 9009"));
    stage.start();
    let why = "it is not known whether machines of pool workers can be created on this host: the token sees no VM 9009";
    let stays = |stage: &Stage| stage.status().hosts.iter().any(|host| host.why.starts_with(why));
    stage.until("the reason is reported", SOON, stays).await;
    stage.throughout("all stay on", LATER, |stage| off(stage).is_empty()).await;
    stage.reload(&apart(""));
    one_is_off(&stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_is_woken_for_a_pool_that_is_younger_than_its_sleep() {
    let mut stage = stage(&apart(""));
    stage.start();
    one_is_off(&stage).await;
    let (_, pool) = ONE_POOL.split_once("[[pool]]").unwrap();
    let later = pool
        .replace("name = \"workers\"", "name = \"later\"")
        .replace("9100-9109", "9110-9119")
        .replace("10.10.10.11-10.10.10.20", "10.10.10.31-10.10.10.40")
        .replace("bridge =", "max_per_host = 1\nbridge =");
    stage.reload(&(apart("").replace("max = 5", "max = 0") + "[[pool]]" + &later));
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("the pods run", Duration::from_mins(15), |stage| stage.running_pods() == 3).await;
    assert!(off(&stage).is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_host_is_woken_for_a_pool_whose_template_is_gone() {
    let mut stage = stage(&settings(""));
    stage.start();
    one_is_off(&stage).await;
    stage.pve.delete_by_hand(9000);
    let gone = |stage: &Stage| {
        let pools = stage.status().pools;
        pools.iter().any(|pool| pool.backoff.as_ref().is_some_and(|why| why.contains("no VM 9000")))
    };
    stage.until("that is seen", Duration::from_mins(10), gone).await;
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.throughout("no host is woken", LATER, |stage| posts(stage, "/wakeonlan") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_with_the_only_template_of_a_pool_is_woken_for_it() {
    let text = settings("").replace("[[host]]\nname = \"pve2\"\npower = \"wake-on-lan\"\n", "");
    let mut stage = stage(&text.replace("template = 9000", "template = 9003"));
    stage.start();
    assert_eq!(one_is_off(&stage).await, "pve3");
    tokio::time::sleep(LATER).await;
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert!(off(&stage).is_empty());
}

/// Applies this effect to all reads of this path, so that none gets a useful answer.
fn mute(stage: &Stage, path: &str, effect: Effect) {
    stage.pve.inject(Fault { method: "GET".into(), path: path.into(), times: usize::MAX, effect });
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_woken_is_used_though_it_cannot_be_asked_what_keeps_hosts_on() {
    let answer = || Effect::Answer { status: 500, reason: "got timeout".into(), body: String::new() };
    let hangs = || Effect::Delay(LATER);
    for (path, effect) in [
        ("/cluster/ceph/metadata", answer()),
        ("/cluster/ceph/metadata", hangs()),
        // Reads of pve2, which may be switched off as well.
        ("/nodes/pve2/version", hangs()),
        ("/nodes/pve2/config", hangs()),
    ] {
        let mut stage = stage(&apart(""));
        stage.start();
        assert_eq!(one_is_off(&stage).await, "pve3");
        mute(&stage, path, effect);
        stage.deploy("web", 3, "1500m", "1Gi");
        stage.until("the host is woken and used", SOON, |stage| stage.running_pods() == 3).await;
        assert!(off(&stage).is_empty(), "{path}");
        stage.deploy("web", 0, "1500m", "1Gi");
        stage
            .throughout("no host is switched off while reads fail", Duration::from_mins(30), |stage| {
                off(stage).is_empty() || path == "/nodes/pve2/version"
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_with_workers_is_emptied_with_new_nodes_first() {
    let text = settings("").replace("[[host]]\nname = \"pve3\"\npower = \"wake-on-lan\"\n", "");
    let mut stage = stage(&text.replace("bridge =", "placement = \"spread\"\nbridge ="));
    stage.start();
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("the pods run on three hosts", SOON, |stage| stage.running_pods() == 3).await;
    stage
        .until("pve2 is off", LATER, |stage| {
            assert!(stage.ready_nodes("workers").len() >= 3 || stage.running_pods() < 3, "{}", stage.scene());
            off(stage) == ["pve2"]
        })
        .await;
    stage.until("the pods run elsewhere", SOON, |stage| stage.running_pods() == 3).await;
    assert!(stage.status().machines.iter().all(|one| one.host != "pve2"), "{}", stage.scene());
    assert!(stage.pve.stopped_with_hosts().is_empty());
    stage
        .throughout("nothing flaps", LATER, |stage| off(stage) == ["pve2"] && stage.running_pods() == 3)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_goes_though_the_last_look_shows_the_kept_machine_that_left_it() {
    let text = settings("").replace("bridge =", "placement = \"spread\"\nbridge =");
    let mut stage = stage(&format!("{text}warm = {{ count = 3, state = \"booted\" }}\n"));
    stage.start();
    let kept = |stage: &Stage| stage.status().machines.iter().filter(|one| one.phase == "Warm").count();
    stage.until("a machine waits on each host", SOON, |stage| kept(stage) == 3).await;
    stage.until("one host is off", Duration::from_mins(20), |stage| off(stage).len() == 1).await;
    stage.until("three wait elsewhere", SOON, |stage| kept(stage) == 3).await;
    let removed = stage.pve.calls().iter().filter(|call| call.method == "DELETE").count();
    assert_eq!(removed, 1, "{}", stage.scene());
    assert!(stage.pve.stopped_with_hosts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_on_which_others_run_or_for_which_something_is_missing_stays_on() {
    let mut stage = stage(&settings(""));
    let others = VmSpec { running: true, ..VmSpec::machine(120, "pve3", "database") };
    assert!(stage.pve.create_by_hand(others));
    stage.pve.change_power("pve2", |power| power.ceph = true);
    stage.start();
    let says = |stage: &Stage, what: &str| stage.status().hosts.iter().any(|host| host.why.contains(what));
    stage
        .until("the reasons are reported", SOON, |stage| {
            says(stage, "unmanaged guests run on this host: 120") && says(stage, "Ceph")
        })
        .await;
    stage.throughout("all stay on", Duration::from_mins(30), |stage| off(stage).is_empty()).await;
    stage.pve.stop_by_hand(120);
    stage.pve.change_power("pve3", |power| power.without_mac = true);
    stage.until("pve3 could not be woken", SOON, |stage| says(stage, "pvenode config set")).await;
    stage.throughout("pve3 stays on", Duration::from_mins(30), |stage| off(stage).is_empty()).await;
    stage.pve.change_power("pve3", |power| power.without_mac = false);
    stage.pve.change_access(|access| access.grants.retain(|grant| grant.role != "Power"));
    stage.until("a missing right is shown", SOON, |stage| says(stage, "Sys.PowerMgmt on /nodes/pve3")).await;
    stage.throughout("pve3 stays on", Duration::from_mins(30), |stage| off(stage).is_empty()).await;
    stage.pve.change_access(grant);
    stage.until("pve3 is switched off", LATER, |stage| off(stage) == ["pve3"]).await;
}

/// Returns a cluster in which an idle host is due to be switched off after this time.
async fn just_before_one_goes(before: Duration) -> Stage {
    let mut stage = stage(&settings(""));
    stage.start();
    let due = |stage: &Stage| stage.status().hosts.iter().filter_map(|host| host.due).max();
    stage.until("a host is idle", SOON, |stage| due(stage).is_some()).await;
    let wait = due(&stage).unwrap().duration_since(stage.now()).unsigned_abs();
    tokio::time::sleep(wait.saturating_sub(before)).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_started_at_the_last_moment_keeps_its_host_on() {
    for before in [0, 5, 11] {
        let stage = just_before_one_goes(Duration::from_secs(before)).await;
        for (vmid, host) in [(120, "pve2"), (121, "pve3")] {
            let others = VmSpec { running: true, ..VmSpec::machine(vmid, host, "database") };
            stage.pve.create_by_hand(others);
        }
        tokio::time::sleep(Duration::from_mins(10)).await;
        // Once a host is shutting down, no VM can be started on it.
        let asked = posts(&stage, "/status") > 0;
        assert!(stage.pve.stopped_with_hosts().is_empty(), "{before} s before");
        assert!(asked || off(&stage).is_empty(), "{before} s before");
    }
}

/// Begins another client's migration of a VM, from a host that is never switched off to an idle host. Until
/// the VM has arrived, only the old host lists it.
fn someone_moves_120(stage: &Stage) {
    let others = VmSpec { running: true, ..VmSpec::machine(120, "pve1", "database") };
    stage.pve.create_by_hand(others);
    stage.pve.set_config_by_hand(120, "lock", Some("migrate"));
}

#[tokio::test(start_paused = true)]
async fn no_host_goes_while_a_guest_may_be_on_its_way_to_it() {
    let mut stage = stage(&settings(""));
    someone_moves_120(&stage);
    stage.start();
    stage.throughout("all stay on", LATER, |stage| off(stage).is_empty()).await;
    assert!(stage.status().hosts.iter().any(|host| host.why.contains("guest 120, which is being migrated")));
    stage.pve.set_config_by_hand(120, "lock", None);
    stage
        .until("a host that was idle all the while is switched off", SOON, |stage| off(stage).len() == 1)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_sets_out_at_the_last_moment_keeps_hosts_on() {
    for before in [0, 1, 3, 6] {
        let stage = just_before_one_goes(Duration::from_secs(before)).await;
        let asked = posts(&stage, "/status");
        someone_moves_120(&stage);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(posts(&stage, "/status"), asked, "{before} s before");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_come_up_is_left_alone_and_tried_again_later() {
    let mut stage = stage(&apart("wake_time = \"5m\""));
    stage.start();
    let host = one_is_off(&stage).await;
    stage.pve.change_power(host, |power| power.dead = true);
    stage.deploy("web", 3, "1500m", "1Gi");
    stage
        .until("the host is left alone", Duration::from_mins(15), |stage| {
            stage.status().hosts.iter().any(|one| one.why.contains("did not start within"))
        })
        .await;
    let tried = posts(&stage, "/wakeonlan");
    assert!((4..=6).contains(&tried), "once a minute: {tried}");
    assert_eq!(stage.running_pods(), 2);
    stage.pve.change_power(host, |power| power.dead = false);
    stage.until("the host is tried again", LATER, |stage| stage.running_pods() == 3).await;
    assert!(off(&stage).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_another_client_switched_off_is_not_woken() {
    let mut stage = stage(&apart("idle_for = \"10h\"").replace("idle_for = \"10m\"\n", ""));
    stage.start();
    stage.until("the daemon is ready", SOON, |stage| stage.status().ready).await;
    stage.pve.power_off_host("pve3");
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("two run", SOON, |stage| stage.running_pods() == 2).await;
    stage
        .until("pve3 is shown as `NotOurs`", SOON, |stage| {
            stage.status().hosts.iter().any(|host| host.power == "NotOurs" && host.name == "pve3")
        })
        .await;
    stage.throughout("pve3 is not woken", LATER, |stage| posts(stage, "/wakeonlan") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn what_has_begun_goes_on_after_a_crash_and_at_another_leader() {
    let mut stage = stage(&apart(""));
    stage.start();
    stage.until("a host is asked to shut down", LATER, |stage| posts(stage, "/status") == 1).await;
    stage.kill();
    tokio::time::sleep(Duration::from_mins(5)).await;
    let host = off(&stage)[0];
    let other = if host == "pve3" { "pve2" } else { "pve3" };
    stage.start_on(other);
    stage
        .until("the new leader knows that the host is off", SOON, |stage| {
            let status = stage.status_of(other);
            status.hosts.iter().any(|one| one.power == "Off" && one.name == host)
        })
        .await;
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("the host is woken", SOON, |stage| posts(stage, "/wakeonlan") == 1).await;
    stage.kill_on(other);
    stage.start();
    stage.until("all run", Duration::from_mins(10), |stage| stage.running_pods() == 3).await;
    assert!(posts(&stage, "/wakeonlan") <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_pause_switches_nothing() {
    let mut stage = stage(&settings(""));
    stage.start();
    stage.until("the daemon is ready", SOON, |stage| stage.status().ready).await;
    stage.order("pve1", Order::Pause { reason: String::new() }).await;
    stage.throughout("nothing goes", LATER, |stage| off(stage).is_empty()).await;
    stage.order("pve1", Order::Resume).await;
    stage.until("one host is switched off", LATER, |stage| off(stage).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_switched_without_a_word_in_the_hosts_own_table() {
    let mut stage = stage(ONE_POOL);
    stage.start();
    stage.throughout("all stay on", LATER, |stage| off(stage).is_empty()).await;
    let calls = stage.pve.calls();
    assert!(calls.iter().all(|call| call.path != "/cluster/ceph/metadata"), "Ceph is not queried either");
}

#[tokio::test(start_paused = true)]
async fn a_host_is_switched_on_by_its_management_controller() {
    let redfish = "power = \"redfish\"\n[host.redfish]\nendpoint = \"https://pve3\"\nuser = \"power\"\n\
                   password_file = \"/unused\"\nca = \"system\"\n";
    let text = apart("").replace("[[host]]\nname = \"pve2\"\npower = \"wake-on-lan\"\n", "");
    let mut stage = stage(&text.replace("power = \"wake-on-lan\"\n", redfish));
    // The controller switches the host on, so no MAC address for wake-on-LAN packets is needed.
    stage.pve.change_power("pve3", |power| power.without_mac = true);
    stage.start();
    assert_eq!(one_is_off(&stage).await, "pve3");
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("all run", SOON, |stage| stage.running_pods() == 3).await;
    assert_eq!(posts(&stage, "/wakeonlan"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_controller_does_not_know_us_is_not_switched_off() {
    let redfish = "power = \"redfish\"\n[host.redfish]\nendpoint = \"https://pve3\"\nuser = \"stranger\"\n\
                   password_file = \"/unused\"\nca = \"system\"\n";
    let text = apart("").replace("[[host]]\nname = \"pve2\"\npower = \"wake-on-lan\"\n", "");
    let mut stage = stage(&text.replace("power = \"wake-on-lan\"\n", redfish));
    stage.start();
    stage
        .until("the reason is reported", LATER, |stage| {
            stage
                .status()
                .hosts
                .iter()
                .any(|host| host.why.contains("it could not be woken") && host.why.contains("who are you?"))
        })
        .await;
    assert_eq!((off(&stage).len(), posts(&stage, "/status")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_goes_off_late_is_still_ours() {
    let text =
        apart("shutdown_time = \"2m\"").replace("[[host]]\nname = \"pve2\"\npower = \"wake-on-lan\"\n", "");
    let mut stage = stage(&text);
    stage.pve.change_power("pve3", |power| power.lingers = Duration::from_mins(4));
    stage.start();
    stage
        .until("the shutdown takes too long", LATER, |stage| {
            stage.status().decisions.iter().any(|one| one.what.contains("did not turn off within"))
        })
        .await;
    assert!(off(&stage).is_empty());
    assert_eq!(one_is_off(&stage).await, "pve3");
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("pve3 is woken after a while", LATER, |stage| stage.running_pods() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_be_emptied_is_emptied_less_and_less_often_and_takes_machines() {
    let text = settings("empty_time = \"30s\"")
        .replace("[[host]]\nname = \"pve3\"\npower = \"wake-on-lan\"\n", "")
        .replace("bridge =", "placement = \"spread\"\nbridge =");
    let mut stage = stage(&text);
    stage.start();
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("the pods run on three hosts", SOON, |stage| stage.running_pods() == 3).await;
    let mut emptied = BTreeSet::new();
    for _ in 0..4 * 60 {
        tokio::time::sleep(Duration::from_mins(1)).await;
        let status = stage.status();
        let begun = status
            .decisions
            .iter()
            .filter(|one| one.what.contains("is being emptied before it is switched off"));
        emptied.extend(begun.map(|one| one.time));
        assert!(status.hosts.iter().all(|one| !one.why.contains("left alone")), "{:?}", status.hosts);
    }
    assert!((2..=5).contains(&emptied.len()), "{emptied:?}");
    assert!(off(&stage).is_empty());
}
