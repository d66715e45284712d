//! Tests for the traps of the API. The name of each test begins with the number of its trap.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use model::Vmid;
use proxmox::marker::Description;
use proxmox::{Client, CloneRequest, Exit, Kind, Power, TaskStatus, Transport, agent_privilege};
use tower::{BoxError, service_fn};
use world::guest::GuestFaults;
use world::proxmox::spec::{AccessSpec, ClusterSpec, StorageKind, VmSpec};
use world::proxmox::{Effect, Fault, Pve};

use crate::lab;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn trap_01_a_taken_vmid_is_a_collision_and_its_vm_is_untouched() {
    let pve = pve();
    let client = client(&pve);
    assert!(pve.create_by_hand(VmSpec::template(VMID.0, "pve1", "foreign", "shared")));
    let before = pve.vm(VMID.0);
    let error = client.clone_vm(&clone_request()).await.unwrap_err();
    assert!(Client::is_collision(&error), "{error}");
    assert_eq!(pve.vm(VMID.0), before);
}

#[tokio::test(start_paused = true)]
async fn trap_02_a_collision_on_another_host_only_shows_in_the_task() {
    let pve = pve();
    let client = client(&pve);
    assert!(pve.create_by_hand(VmSpec::template(VMID.0, "pve2", "foreign", "shared")));
    let before = pve.vm(VMID.0);
    let upid = client.clone_vm(&clone_request()).await.unwrap();
    let exit = done(&client, &upid).await;
    assert_eq!(exit.problem(), Some(Kind::Exists), "{exit:?}");
    assert_eq!(pve.vm(VMID.0), before);
}

#[tokio::test(start_paused = true)]
async fn trap_03_a_clone_has_the_templates_tags_and_our_marker_from_its_first_unlocked_moment() {
    let pve = pve();
    let client = client(&pve);
    cloned(&client).await;
    let config = client.config("pve1", VMID).await.unwrap();
    assert_eq!(config.get("tags"), Some("k8s;template"), "tags prove nothing");
    assert_eq!(config.owner(), Description::Ours(marker()));
}

#[tokio::test(start_paused = true)]
async fn trap_04_a_vm_is_not_visible_through_its_pool_before_the_clone_has_ended() {
    let pve = pve();
    let client = client(&pve);
    let upid = client.clone_vm(&clone_request()).await.unwrap();
    assert_eq!(client.config("pve1", VMID).await.unwrap_err().kind, Kind::Forbidden);
    assert_eq!(done(&client, &upid).await, Exit::Ok);
    assert!(client.config("pve1", VMID).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn trap_05_a_missing_vm_is_no_404() {
    let pve = pve();
    let client = admin(&pve);
    let error = client.config("pve1", Vmid(4711)).await.unwrap_err();
    assert_eq!((error.kind, error.status), (Kind::NotFound, Some(500)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn trap_06_success_and_failure_of_a_start_are_in_the_task() {
    let pve = pve();
    let client = client(&pve);
    booted(&client).await;
    let upid = client.start("pve1", VMID).await.unwrap();
    let Exit::Failed(text) = done(&client, &upid).await else { panic!("a second start succeeded") };
    assert!(text.contains("already running"), "{text}");
    assert!(matches!(client.task_status(&upid).await.unwrap(), TaskStatus::Ended(Exit::Failed(_))));
}

#[tokio::test(start_paused = true)]
async fn trap_06_warnings_are_success_and_a_worker_that_vanished_proves_nothing() {
    let pve = pve();
    let client = client(&pve);
    cloned(&client).await;
    pve.set_storage_busy("shared", true);
    let upid = client.destroy("pve1", VMID).await.unwrap();
    let exit = done(&client, &upid).await;
    assert_eq!(exit, Exit::Warnings(2));
    assert!(exit.is_success());
    let mut request = clone_request();
    (request.vmid, request.full) = (Vmid(9102), true);
    let upid = client.clone_vm(&request).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    pve.power_off_host("pve1");
    pve.power_on_host("pve1");
    let exit = done(&client, &upid).await;
    assert_eq!((exit.is_success(), exit.problem()), (false, Some(Kind::OutcomeUnknown)), "{exit:?}");
}

#[tokio::test(start_paused = true)]
async fn trap_07_power_is_asked_of_the_vm_and_not_of_the_lagging_list() {
    let pve = pve();
    let client = client(&pve);
    cloned(&client).await;
    let upid = client.start("pve1", VMID).await.unwrap();
    assert_eq!(done(&client, &upid).await, Exit::Ok);
    assert_eq!(client.power("pve1", VMID).await.unwrap(), Power::Running);
    let seen = client.resources().await.unwrap();
    assert_eq!(seen.guests[&VMID].host, "pve1", "the list shows the current host");
}

#[tokio::test(start_paused = true)]
async fn trap_08_a_596_or_a_lost_answer_says_nothing_of_the_outcome() {
    for effect in [Effect::WorkThenTimeOut, Effect::WorkThenLose] {
        let pve = pve();
        let client = client(&pve);
        let path = "/nodes/pve1/qemu/9000/clone".to_owned();
        pve.inject(Fault { method: "POST".to_owned(), path, times: 1, effect });
        let error = client.clone_vm(&clone_request()).await.unwrap_err();
        assert_eq!(error.kind, Kind::OutcomeUnknown, "{error}");
        let posts = pve.calls().iter().filter(|call| call.method == "POST").count();
        assert_eq!(posts, 1, "a POST is never repeated blindly");
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(client.config("pve1", VMID).await.unwrap().owner(), Description::Ours(marker()));
    }
}

#[tokio::test(start_paused = true)]
async fn trap_09_agent_calls_to_a_silent_guest_leave_workers_for_others() {
    let pve = pve();
    let client = client(&pve);
    cloned(&client).await;
    let upid = client.start("pve1", VMID).await.unwrap();
    assert_eq!(done(&client, &upid).await, Exit::Ok);
    let pings: Vec<_> = (0..6)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.agent_ping("pve1", VMID).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let started = tokio::time::Instant::now();
    assert!(client.power("pve1", VMID).await.is_ok());
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    for ping in pings {
        assert!(ping.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn trap_10_a_read_goes_to_the_next_endpoint_and_a_write_does_not() {
    let pve = pve();
    let inner = in_process(&pve);
    // The first endpoint accepts requests, but closes the connection instead of answering.
    let transport = Transport::new(service_fn(move |request: Request<Bytes>| {
        let mut inner = inner.clone();
        async move {
            if request.uri().host() == Some("first") {
                return Err(BoxError::from("connection closed"));
            }
            tower::Service::call(tower::ServiceExt::ready(&mut inner).await?, request).await
        }
    }));
    let endpoints = settings(&["https://first:8006", "https://second:8006"]);
    let client = Client::new(transport, endpoints, &secret()).unwrap();
    let error = client.clone_vm(&clone_request()).await.unwrap_err();
    assert_eq!(error.kind, Kind::OutcomeUnknown);
    assert!(pve.calls().is_empty());
    assert!(client.quorate().await.unwrap());
    let upid = client.clone_vm(&clone_request()).await.unwrap();
    assert_eq!(done(&client, &upid).await, Exit::Ok, "the endpoint that answered is used again");
}

#[tokio::test(start_paused = true)]
async fn trap_11_an_error_without_a_message_is_read_from_the_reason_phrase() {
    let pve = pve();
    let client = client(&pve);
    let path = "/nodes/pve1/qemu/9000/config".to_owned();
    let effect = Effect::Answer {
        status: 500,
        reason: "VM is locked (backup)".to_owned(),
        body: "{\"data\":null}".to_owned(),
    };
    pve.inject(Fault { method: "GET".to_owned(), path, times: 1, effect });
    let error = client.config("pve1", Vmid(9000)).await.unwrap_err();
    assert_eq!((error.kind, error.text.as_str()), (Kind::Locked, "VM is locked (backup)"));
}

#[tokio::test(start_paused = true)]
async fn trap_12_an_unknown_parameter_is_refused_and_named() {
    let pve = pve();
    let client = client(&pve);
    cloned(&client).await;
    let digest = client.config("pve1", VMID).await.unwrap().digest().unwrap().to_owned();
    let set = BTreeMap::from([("no-such-key".to_owned(), "1".to_owned())]);
    let error = client.set_config("pve1", VMID, &set, &[], &digest, 5).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadRequest);
    assert!(error.text.contains("no-such-key"), "{error}");
}

/// A Proxmox VE 8.4 cluster that uses the official API schema of that release; `None` if the schema file is
/// missing.
fn release_8() -> Option<Pve> {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pve/apidoc-8.4.json");
    if !schema.is_file() {
        return None;
    }
    let access = AccessSpec::least_privilege("8.4.21", &["shared"], &["vmbr0"]);
    let version = "8.4.21".to_owned();
    Some(lab::pve(ClusterSpec { version, access, schema: Some(schema), ..ClusterSpec::demo() }))
}

#[tokio::test(start_paused = true)]
async fn trap_12_release_8_knows_every_parameter_that_is_sent() {
    let Some(pve) = release_8() else {
        println!("skipped: the official schema of release 8.4 is absent");
        return;
    };
    crate::life::a_life(&client(&pve), &pve).await;
}

#[tokio::test(start_paused = true)]
async fn trap_13_numbers_and_booleans_are_read_in_any_form() {
    let pve = pve();
    let client = client(&pve);
    let answer = async |path: &str, body: &str| {
        let effect = Effect::Answer { status: 200, reason: "OK".to_owned(), body: body.to_owned() };
        pve.inject(Fault { method: "*".to_owned(), path: path.to_owned(), times: 1, effect });
    };
    let status = "/nodes/pve1/qemu/9101/status/current";
    for managed in ["1", "\"1\"", "true"] {
        let body = format!(r#"{{"data":{{"vmid":"9101","status":"stopped","ha":{{"managed":{managed}}}}}}}"#);
        answer(status, &body).await;
        assert!(client.vm_status("pve1", VMID).await.unwrap().ha_managed, "{managed}");
    }
    for (cores, template) in [("2", "1"), ("\"2\"", "\"1\""), ("2.0", "true")] {
        let row = format!(
            r#"{{"type":"qemu","vmid":"9000","node":"pve1","maxcpu":{cores},"template":{template},"maxmem":"1024"}}"#
        );
        answer("/cluster/resources", &format!(r#"{{"data":[{row}]}}"#)).await;
        let guest = client.resources().await.unwrap().guests.remove(&Vmid(9000)).unwrap();
        assert_eq!((guest.cores, guest.template, guest.memory), (2, true, 1024), "{row}");
    }
    answer("/nodes/pve1/qemu/9101/config", r#"{"data":{"template":1,"cores":"4","digest":"d"}}"#).await;
    let config = client.config("pve1", VMID).await.unwrap();
    assert_eq!((config.is_template(), config.get("cores")), (true, Some("4")));
}

#[tokio::test(start_paused = true)]
async fn trap_14_and_semicolons_keys_and_values_arrive_as_they_were_given() {
    let pve = pve();
    let client = client(&pve);
    cloned(&client).await;
    let digest = client.config("pve1", VMID).await.unwrap().digest().unwrap().to_owned();
    let set = BTreeMap::from([
        ("tags".to_owned(), "b;a".to_owned()),
        ("ipconfig0".to_owned(), "ip=10.10.10.11/24,gw=10.10.10.1".to_owned()),
        ("nameserver".to_owned(), "10.0.0.1 10.0.0.2".to_owned()),
    ]);
    if let Some(task) = client.set_config("pve1", VMID, &set, &[], &digest, 5).await.unwrap() {
        assert_eq!(done(&client, &task).await, Exit::Ok);
    }
    let config = client.config("pve1", VMID).await.unwrap();
    assert_eq!(config.get("tags"), Some("a;b"));
    assert_eq!(config.get("ipconfig0"), Some("ip=10.10.10.11/24,gw=10.10.10.1"));
    assert_eq!(config.get("nameserver"), Some("10.0.0.1 10.0.0.2"));
    let error = client.set_config("pve1", VMID, &set, &[], &digest, 5).await.unwrap_err();
    assert_eq!(error.kind, Kind::Changed, "an old digest is refused");
}

#[tokio::test(start_paused = true)]
async fn trap_14_ssh_keys_are_encoded_once_for_the_value_and_once_for_the_form() {
    let pve = pve();
    let client = client(&pve);
    cloned(&client).await;
    let digest = client.config("pve1", VMID).await.unwrap().digest().unwrap().to_owned();
    let keys = "ssh-ed25519 AAAA+b/c== me@host\nssh-rsa AAAA two; words\n";
    let set = BTreeMap::from([("sshkeys".to_owned(), keys.to_owned())]);
    if let Some(task) = client.set_config("pve1", VMID, &set, &[], &digest, 5).await.unwrap() {
        assert_eq!(done(&client, &task).await, Exit::Ok);
    }
    let stored = pve.vm(VMID.0).unwrap().config["sshkeys"].clone();
    assert!(!stored.contains(['+', ' ', ';', '\n']) && !stored.contains("%25"), "{stored}");
    let decoded = percent_encoding::percent_decode_str(&stored).decode_utf8().unwrap();
    assert_eq!(decoded, keys.trim_end());
}

#[tokio::test(start_paused = true)]
async fn trap_15_name_servers_are_separated_by_blanks_whatever_they_came_with() {
    let pve = pve();
    let client = client(&pve);
    cloned(&client).await;
    for given in ["10.0.0.1,10.0.0.2", "10.0.0.1; 10.0.0.2", "10.0.0.1 10.0.0.2"] {
        let digest = client.config("pve1", VMID).await.unwrap().digest().unwrap().to_owned();
        let set = BTreeMap::from([("nameserver".to_owned(), given.to_owned())]);
        if let Some(task) = client.set_config("pve1", VMID, &set, &[], &digest, 5).await.unwrap() {
            assert_eq!(done(&client, &task).await, Exit::Ok);
        }
        assert_eq!(pve.vm(VMID.0).unwrap().config["nameserver"], "10.0.0.1 10.0.0.2", "{given}");
    }
}

#[tokio::test(start_paused = true)]
async fn trap_16_a_template_that_upgrades_packages_at_its_first_boot_is_told() {
    let pve = pve();
    let client = client(&pve);
    assert!(!client.config("pve1", Vmid(9000)).await.unwrap().upgrades_packages());
    for (value, upgrades) in [(None, true), (Some("1"), true), (Some("0"), false)] {
        pve.set_config_by_hand(9000, "ciupgrade", value);
        assert_eq!(
            client.config("pve1", Vmid(9000)).await.unwrap().upgrades_packages(),
            upgrades,
            "{value:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn trap_18_a_root_only_key_is_forbidden_even_to_roots_token_and_named() {
    let pve = pve();
    cloned(&client(&pve)).await;
    let client = admin(&pve);
    let digest = client.config("pve1", VMID).await.unwrap().digest().unwrap().to_owned();
    for key in ["affinity", "hugepages", "args"] {
        let set = BTreeMap::from([(key.to_owned(), "0-1".to_owned())]);
        let error = client.set_config("pve1", VMID, &set, &[], &digest, 5).await.unwrap_err();
        assert_eq!(error.kind, Kind::Forbidden, "{error}");
        assert!(error.text.contains(key), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn trap_19_a_stop_overrules_a_shutdown_that_holds_the_vm() {
    let pve = pve();
    let client = client(&pve);
    pve.set_guest_faults(9000, GuestFaults { ignores_shutdown: true, ..GuestFaults::default() });
    booted(&client).await;
    let shutdown = client.shutdown("pve1", VMID, 600).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let digest = client.config("pve1", VMID).await.unwrap().digest().unwrap().to_owned();
    let set = BTreeMap::from([("description".to_owned(), "x".to_owned())]);
    let upid = client.set_config("pve1", VMID, &set, &[], &digest, 20).await.unwrap_err();
    assert_eq!(upid.kind, Kind::Busy, "the shutdown holds the lock: {upid}");
    let stop = client.stop("pve1", VMID).await.unwrap();
    assert_eq!(done(&client, &stop).await, Exit::Ok);
    assert_eq!(client.power("pve1", VMID).await.unwrap(), Power::Stopped);
    assert!(!done(&client, &shutdown).await.is_success());
}

#[tokio::test(start_paused = true)]
async fn trap_20_a_running_vm_is_not_destroyed() {
    let pve = pve();
    let client = client(&pve);
    booted(&client).await;
    let error = client.destroy("pve1", VMID).await.unwrap_err();
    assert!(error.text.contains("is running"), "{error}");
    assert!(pve.vm(VMID.0).is_some());
}

#[tokio::test(start_paused = true)]
async fn trap_20_disks_that_a_destruction_leaves_are_named_by_its_log_in_either_release() {
    for version in ["8.4.21", "9.2.11"] {
        let access = AccessSpec::least_privilege(version, &["shared"], &["vmbr0"]);
        let pve = lab::pve(ClusterSpec { version: version.to_owned(), access, ..ClusterSpec::demo() });
        let client = client(&pve);
        cloned(&client).await;
        pve.set_storage_busy("shared", true);
        let upid = client.destroy("pve1", VMID).await.unwrap();
        let exit = done(&client, &upid).await;
        assert_eq!(exit == Exit::Ok, version == "8.4.21", "{exit:?}");
        let mut named = client.leaked_disks(&upid).await.unwrap().unwrap();
        named.sort();
        assert_eq!(named, pve.volumes_of(VMID.0), "{version}");
        assert_eq!(named.len(), 2);
        assert!(
            client.disks_of("pve1", "shared", VMID).await.unwrap().is_empty(),
            "the token with rights on the resource pool sees no leftover disks"
        );
        assert_eq!(admin(&pve).disks_of("pve1", "shared", VMID).await.unwrap(), named);
    }
}

#[tokio::test(start_paused = true)]
async fn trap_21_clones_of_one_storage_wait_for_each_other_and_not_for_those_of_another() {
    let client = client(&pve());
    let one = |name: &str| BTreeSet::from([name.to_owned()]);
    let mut held = BTreeMap::new();
    for number in 0..4 {
        held.insert(number, client.clone_turn(&one("pve1/local-lvm"), false).await);
    }
    let soon = Duration::from_secs(1);
    let waits = async |sources: &BTreeSet<String>, full| {
        tokio::time::timeout(soon, client.clone_turn(sources, full)).await.is_err()
    };
    assert!(waits(&one("pve1/local-lvm"), false).await, "four clones are in progress");
    assert!(!waits(&one("pve2/local-lvm"), false).await, "the storage of the same name on pve2 is free");
    assert!(!waits(&one("pve1/local-lvm"), true).await, "full clones are counted separately");
    let both = BTreeSet::from(["pve1/local-lvm".to_owned(), "shared".to_owned()]);
    assert!(waits(&both, false).await, "a template on two storages needs room on both");
    held.remove(&0);
    assert!(!waits(&both, false).await);
}

#[tokio::test(start_paused = true)]
async fn trap_22_what_a_template_cannot_be_cloned_to_is_refused_before_anything_is_there() {
    let mut spec = ClusterSpec::demo();
    let thick = spec.storages.iter_mut().find(|storage| storage.id == "local-lvm").unwrap();
    thick.kind = StorageKind::Lvm;
    let pve = lab::pve(spec);
    let client = client(&pve);
    let cases = [
        (9001, "pve1", None, "Linked clone feature is not supported"),
        (9001, "pve1", Some("pve2"), "VM uses local storage"),
        (9000, "pve2", None, "unable to find configuration file"),
    ];
    for (template, host, target, text) in cases {
        let request = CloneRequest {
            template: Vmid(template),
            template_host: host.to_owned(),
            target: target.map(str::to_owned),
            ..clone_request()
        };
        let error = client.clone_vm(&request).await.unwrap_err();
        assert!(error.text.contains(text), "{error}");
        assert!(pve.vm(VMID.0).is_none());
    }
    let named = CloneRequest { storage: Some("shared".to_owned()), ..clone_request() };
    let upid = client.clone_vm(&named).await.unwrap();
    assert_eq!(done(&client, &upid).await, Exit::Ok, "a storage is only sent with a full clone");
}

#[tokio::test(start_paused = true)]
async fn trap_23_the_agents_privilege_of_the_other_release_does_not_do() {
    for (version, granted) in [("8.4.21", "9.2.11"), ("9.2.11", "8.4.21")] {
        let access = AccessSpec::least_privilege(granted, &["shared"], &["vmbr0"]);
        let pve = lab::pve(ClusterSpec { version: version.to_owned(), access, ..ClusterSpec::demo() });
        let client = client(&pve);
        cloned(&client).await;
        let release = client.version().await.unwrap();
        let rights = client.privileges_on("/pool/k8s-workers").await.unwrap();
        assert!(!rights.contains(agent_privilege(&release)), "the token lacks the agent privilege");
        let error = client.agent_ping("pve1", VMID).await.unwrap_err();
        assert_eq!(error.kind, Kind::Forbidden, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn trap_24_output_is_put_together_again_and_only_ascii_is_sent() {
    let pve = pve();
    let client = client(&pve);
    booted(&client).await;
    let status = run(&client, "cat; echo gone >&2; exit 3", "token on standard input").await;
    assert_eq!((status.stdout.trim(), status.stderr.trim()), ("token on standard input", "gone"));
    assert_eq!(status.exit_code, Some(3));
    let error = client.agent_exec("pve1", VMID, &["/bin/sh", "-c", "echo ü"], None).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadRequest);
    let status = run(&client, "no-such-program", "").await;
    assert_eq!(status.exit_code, Some(127));
}

#[tokio::test(start_paused = true)]
async fn trap_24_an_agents_error_within_a_200_is_an_error() {
    let pve = pve();
    let client = client(&pve);
    for what in ["ping", "get-osinfo", "network-get-interfaces"] {
        let path = format!("/nodes/pve1/qemu/{VMID}/agent/{what}");
        let body =
            r#"{"data":{"result":{"error":{"class":"CommandNotFound","desc":"it has been disabled"}}}}"#;
        let effect = Effect::Answer { status: 200, reason: "OK".to_owned(), body: body.to_owned() };
        pve.inject(Fault { method: "*".to_owned(), path, times: 1, effect });
        let error = match what {
            "ping" => client.agent_ping("pve1", VMID).await.unwrap_err(),
            "get-osinfo" => client.agent_os_info("pve1", VMID).await.unwrap_err(),
            _ => client.agent_interfaces("pve1", VMID).await.unwrap_err(),
        };
        assert_eq!(error.text, "it has been disabled");
    }
}

#[tokio::test(start_paused = true)]
async fn trap_25_without_quorum_writes_fail_and_the_client_can_tell() {
    let pve = pve();
    let client = client(&pve);
    pve.set_quorum(false);
    assert!(!client.quorate().await.unwrap());
    let error = client.clone_vm(&clone_request()).await.unwrap_err();
    assert_eq!(error.kind, Kind::NoQuorum, "{error}");
}

#[tokio::test(start_paused = true)]
async fn trap_25_a_vm_that_ha_manages_is_only_asked_to_stop_and_says_itself_when_it_has() {
    let pve = pve();
    let client = client(&pve);
    booted(&client).await;
    pve.set_ha(VMID.0, true);
    assert!(client.vm_status("pve1", VMID).await.unwrap().ha_managed);
    let upid = client.stop("pve1", VMID).await.unwrap();
    assert_eq!(upid.kind(), "hastop");
    assert_eq!(done(&client, &upid).await, Exit::Ok);
    assert_eq!(client.power("pve1", VMID).await.unwrap(), Power::Running);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(client.power("pve1", VMID).await.unwrap(), Power::Stopped);
    let upid = client.destroy("pve1", VMID).await.unwrap();
    assert_eq!(done(&client, &upid).await, Exit::Ok, "with `purge`, a VM in HA can be destroyed");
}
