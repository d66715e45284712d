//! Tests the calls with which the client reads the state of the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use model::Vmid;
use proxmox::{Exit, HaStatus, Kind, TaskFilter, TaskStatus, makes_linked_clones};
use world::proxmox::spec::{ClusterSpec, GIB, StorageKind, StorageSpec};

use crate::lab;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn the_guests_system_is_told_by_its_agent() {
    let pve = pve();
    let client = client(&pve);
    booted(&client).await;
    let system = client.agent_os_info("pve1", VMID).await.unwrap();
    assert_eq!((system.id.as_str(), system.version_id.as_str()), ("debian", "13"));
    assert!(system.pretty_name.contains("Debian") && !system.kernel.is_empty());
    assert_eq!(system.machine, "x86_64");
}

#[tokio::test(start_paused = true)]
async fn tasks_of_before_and_tasks_that_run_are_found_again() {
    let pve = pve();
    let client = client(&pve);
    cloned(&client).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let mut second = clone_request();
    second.vmid = Vmid(9102);
    second.full = true;
    let running = client.clone_vm(&second).await.unwrap();
    let all = client.tasks("pve1", &TaskFilter::default()).await.unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((&all[0].upid, &all[0].status), (&running, &TaskStatus::Running));
    assert_eq!(all[1].status, TaskStatus::Ended(Exit::Ok));
    assert!(all.iter().all(|task| task.user == ClusterSpec::DEMO_TOKEN && task.about == "9000"));
    assert_eq!(client.clone_target(&running).await.unwrap(), Some(Vmid(9102)));

    let list = async |filter: TaskFilter| client.tasks("pve1", &filter).await.unwrap().len();
    let since = all[0].started - 50;
    assert_eq!(list(TaskFilter { since: Some(since), ..TaskFilter::default() }).await, 1);
    assert_eq!(list(TaskFilter { vmid: Some(Vmid(9000)), ..TaskFilter::default() }).await, 2);
    assert_eq!(
        list(TaskFilter { vmid: Some(Vmid(9102)), ..TaskFilter::default() }).await,
        0,
        "a clone's task is listed under the template"
    );
    assert_eq!(list(TaskFilter { kind: Some("qmstart".to_owned()), ..TaskFilter::default() }).await, 0);
    assert_eq!(list(TaskFilter { limit: Some(1), ..TaskFilter::default() }).await, 1);
    assert_eq!(client.tasks("pve2", &TaskFilter::default()).await.unwrap(), []);
    assert_eq!(done(&client, &running).await, Exit::Ok);
}

#[tokio::test(start_paused = true)]
async fn templates_are_found_by_vmid_and_by_name() {
    let pve = pve();
    tokio::time::sleep(Duration::from_secs(15)).await;
    let seen = client(&pve).resources().await.unwrap();
    let vmids = |wanted: &str| seen.find(wanted).iter().map(|guest| guest.vmid).collect::<Vec<_>>();
    assert_eq!(vmids("9000"), [Vmid(9000)]);
    assert_eq!(vmids("k8s-worker-local"), [Vmid(9001), Vmid(9002), Vmid(9003)]);
    assert!(seen.find("k8s-worker-local").iter().all(|guest| guest.template));
    assert_eq!(seen.templates().len(), 4);
    assert_eq!(seen.find("9002")[0].host, "pve2");
}

#[tokio::test(start_paused = true)]
async fn a_storage_says_whether_it_makes_linked_clones_and_what_room_it_has() {
    let mut spec = ClusterSpec::demo();
    spec.storages.push(StorageSpec {
        id: "thick".to_owned(),
        kind: StorageKind::Lvm,
        size: 100 * GIB,
        used: 40 * GIB,
        shared: false,
        hosts: vec!["pve2".to_owned()],
        content: "images".to_owned(),
        copy_rate: None,
    });
    let pve = lab::pve(spec);
    let all = admin(&pve).storage_config().await.unwrap();
    let linked: Vec<_> = all.iter().map(|one| (one.name.as_str(), makes_linked_clones(&one.kind))).collect();
    assert_eq!(
        linked,
        [("local", Some(true)), ("local-lvm", Some(true)), ("shared", Some(true)), ("thick", Some(false))]
    );
    let shared: Vec<_> = all.iter().filter(|one| one.shared).map(|one| one.name.as_str()).collect();
    assert_eq!(shared, ["shared"]);
    assert!(all[3].is_on("pve2") && !all[3].is_on("pve1") && all[3].holds_disks());
    assert!(!all[0].holds_disks(), "{:?}", all[0].content);
    let thick = admin(&pve).storages_on("pve2", Some("thick")).await.unwrap();
    assert_eq!(
        (thick[0].kind.as_str(), thick[0].available.cast_unsigned() / GIB, thick[0].active),
        ("lvm", 60, true)
    );
    assert_eq!(admin(&pve).storages_on("pve1", None).await.unwrap().len(), 3);

    let own = client(&pve).storage_config().await.unwrap();
    let names: Vec<_> = own.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["local-lvm", "shared"], "only storages on which the token has a right");
}

#[tokio::test(start_paused = true)]
async fn bridges_without_a_right_on_them_are_not_listed() {
    let mut spec = ClusterSpec::demo();
    spec.hosts[0].bridges.push("vmbr9".to_owned());
    let pve = lab::pve(spec);
    let names = |bridges: Vec<proxmox::Bridge>| {
        bridges.into_iter().filter(|bridge| bridge.active).map(|bridge| bridge.name).collect::<Vec<_>>()
    };
    assert_eq!(names(client(&pve).bridges("pve1").await.unwrap()), ["vmbr0"]);
    assert_eq!(names(admin(&pve).bridges("pve1").await.unwrap()), ["vmbr0", "vmbr9"]);
}

#[tokio::test(start_paused = true)]
async fn a_pools_members_are_listed_and_a_missing_pool_is_not_there() {
    let pve = pve();
    let client = client(&pve);
    assert_eq!(client.pool_members("k8s-workers").await.unwrap(), BTreeSet::new());
    cloned(&client).await;
    assert_eq!(client.pool_members("k8s-workers").await.unwrap(), BTreeSet::from([VMID]));
    assert_eq!(client.pool_members("nope").await.unwrap_err().kind, Kind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn the_cluster_tells_its_name_its_hosts_and_its_quorum() {
    let pve = pve();
    let client = client(&pve);
    let status = client.cluster_status().await.unwrap();
    assert_eq!((status.name.as_deref(), status.quorate), (Some("demo"), true));
    assert!(status.hosts.len() == 3 && status.hosts.values().all(|online| *online));
    pve.power_off_host("pve3");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let status = client.cluster_status().await.unwrap();
    assert_eq!((status.hosts["pve3"], status.quorate), (false, true));

    let alone = ClusterSpec { name: None, ..ClusterSpec::demo() };
    let status = self::client(&lab::pve(alone)).cluster_status().await.unwrap();
    assert_eq!((status.name, status.quorate), (None, true));
}

#[tokio::test(start_paused = true)]
async fn maintenance_shows_in_the_ha_status_and_in_the_list() {
    let pve = pve();
    let client = client(&pve);
    assert_eq!(client.ha_status().await.unwrap(), HaStatus::default());
    cloned(&client).await;
    pve.set_maintenance("pve2", true);
    pve.set_ha(VMID.0, true);
    let ha = client.ha_status().await.unwrap();
    assert_eq!(ha.maintenance, BTreeSet::from(["pve2".to_owned()]));
    assert_eq!(ha.vms.keys().collect::<Vec<_>>(), [&VMID]);
    let seen = client.resources().await.unwrap();
    assert!(seen.hosts["pve2"].maintenance && !seen.hosts["pve1"].maintenance);
    pve.set_maintenance("pve2", false);
    assert!(client.ha_status().await.unwrap().maintenance.is_empty());
}

#[tokio::test(start_paused = true)]
async fn rights_are_read_for_one_path() {
    let pve = pve();
    let client = client(&pve);
    let rights = client.privileges_on("/pool/k8s-workers").await.unwrap();
    assert!(rights.contains("VM.Allocate") && !rights.contains("VM.Clone"), "{rights:?}");
    assert!(client.privileges_on("/pool/k8s-templates").await.unwrap().contains("VM.Clone"));
    assert!(client.privileges_on("/access").await.unwrap().is_empty());
}
