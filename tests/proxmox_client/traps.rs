//! The traps of the API, by their numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use pve_autoscaler::proxmox::marker::Description;
use pve_autoscaler::proxmox::{Client, Exit, Kind, Power, TaskStatus, Transport};
use tower::{BoxError, service_fn};
use world::proxmox::spec::VmSpec;
use world::proxmox::{Effect, Fault};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn trap_01_a_taken_vmid_is_a_collision_and_its_vm_is_untouched() {
    let pve = pve();
    let client = client(&pve);
    assert!(pve.create_by_hand(VmSpec::template(VMID, "pve1", "foreign", "shared")));
    let before = pve.vm(VMID);
    let error = client.clone_vm(&clone_request()).await.unwrap_err();
    assert!(Client::is_collision(&error), "{error}");
    assert_eq!(pve.vm(VMID), before);
}

#[tokio::test(start_paused = true)]
async fn trap_02_a_collision_on_another_host_only_shows_in_the_task() {
    let pve = pve();
    let client = client(&pve);
    assert!(pve.create_by_hand(VmSpec::template(VMID, "pve2", "foreign", "shared")));
    let before = pve.vm(VMID);
    let upid = client.clone_vm(&clone_request()).await.unwrap();
    let exit = done(&client, &upid).await;
    assert_eq!(exit.problem(), Some(Kind::Exists), "{exit:?}");
    assert_eq!(pve.vm(VMID), before);
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
    let error = client.config("pve1", 4711).await.unwrap_err();
    assert_eq!((error.kind, error.status), (Kind::NotFound, 500), "{error}");
}

#[tokio::test(start_paused = true)]
async fn trap_06_success_and_failure_of_a_start_are_in_the_task() {
    let pve = pve();
    let client = client(&pve);
    booted(&client).await;
    let upid = client.start("pve1", VMID).await.unwrap();
    let Exit::Failed(text) = done(&client, &upid).await else { panic!("a second start went well") };
    assert!(text.contains("already running"), "{text}");
    assert!(matches!(client.task_status(&upid).await.unwrap(), TaskStatus::Ended(Exit::Failed(_))));
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
    assert_eq!(seen.guests[&VMID].host, "pve1", "the host is immediate");
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
    // The first endpoint takes requests and never answers.
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
    assert_eq!(done(&client, &upid).await, Exit::Ok, "the endpoint that answered is kept");
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
    let error = client.config("pve1", 9000).await.unwrap_err();
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
async fn trap_20_a_running_vm_is_not_destroyed() {
    let pve = pve();
    let client = client(&pve);
    booted(&client).await;
    let error = client.destroy("pve1", VMID).await.unwrap_err();
    assert!(error.text.contains("is running"), "{error}");
    assert!(pve.vm(VMID).is_some());
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
async fn trap_25_without_quorum_writes_fail_and_the_client_can_tell() {
    let pve = pve();
    let client = client(&pve);
    pve.set_quorum(false);
    assert!(!client.quorate().await.unwrap());
    let error = client.clone_vm(&clone_request()).await.unwrap_err();
    assert_eq!(error.kind, Kind::NoQuorum, "{error}");
}
