//! The Proxmox client against the embedded Proxmox VE: a machine's whole life, and the traps of the API by name.
//!
//! Traps that do not concern the client's calls: 3 and 18 (tags and root-only keys are the caller's choice of keys), 15 and 16
//! (values of the caller), 17 (snippets are not used), 22 (the planner's choice of hosts), 23 (privilege names are the set-up's).

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

mod lab;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use pve_autoscaler::proxmox::marker::{Description, Marker};
use pve_autoscaler::proxmox::{
    Client, CloneRequest, Exit, Kind, Power, Settings, TaskStatus, Transport, Trust, Upid, connect,
};
use secrecy::SecretString;
use tower::{BoxError, service_fn};
use world::proxmox::spec::{ClusterSpec, VmSpec};
use world::proxmox::{Effect, Fault, Pve};
use world::serve::{serve_https, tls::ServerTls};

const VMID: u32 = 9101;
const LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_secs(1);

fn pve() -> Pve {
    lab::pve(ClusterSpec::demo())
}

fn in_process(pve: &Pve) -> Transport {
    let pve = pve.clone();
    Transport::new(service_fn(move |request: Request<Bytes>| {
        let pve = pve.clone();
        async move {
            let (parts, body) =
                pve.handle(request).await.map_err(|_| BoxError::from("no answer"))?.into_parts();
            let bytes = body.collect().await.map_err(|_| BoxError::from("cut off"))?.to_bytes();
            Ok::<_, BoxError>(Response::from_parts(parts, bytes))
        }
    }))
}

fn settings(endpoints: &[&str]) -> Settings {
    Settings {
        endpoints: endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect(),
        token_id: ClusterSpec::DEMO_TOKEN.to_owned(),
        agent_lane: 1,
        lifecycle_lane: 2,
    }
}

fn secret() -> SecretString {
    SecretString::from(ClusterSpec::DEMO_SECRET)
}

fn client(pve: &Pve) -> Client {
    Client::new(in_process(pve), settings(&["https://127.0.0.1:8006"]), &secret()).unwrap()
}

fn marker() -> Marker {
    Marker { cluster: "home".to_owned(), pool: "workers".to_owned(), machine: "m-1".to_owned() }
}

fn clone_request() -> CloneRequest {
    CloneRequest {
        template_host: "pve1".to_owned(),
        template: 9000,
        vmid: VMID,
        name: "workers-a1".to_owned(),
        description: marker().describe("for shop/web-1\n"),
        pool: Some("k8s-workers".to_owned()),
        target: None,
        full: false,
        storage: None,
    }
}

async fn done(client: &Client, upid: &Upid) -> Exit {
    client.wait_task(upid, LIMIT, POLL).await.unwrap()
}

async fn cloned(client: &Client) {
    let upid = client.clone_vm(&clone_request()).await.unwrap();
    assert_eq!(done(client, &upid).await, Exit::Ok);
}

async fn booted(client: &Client) {
    cloned(client).await;
    let upid = client.start("pve1", VMID).await.unwrap();
    assert_eq!(done(client, &upid).await, Exit::Ok);
    for _ in 0..100 {
        if client.agent_ping("pve1", VMID).await.unwrap() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    panic!("the agent never answered");
}

async fn run(client: &Client, script: &str, input: &str) -> pve_autoscaler::proxmox::ExecStatus {
    let input = SecretString::from(input);
    let pid = client.agent_exec("pve1", VMID, &["/bin/sh", "-c", script], Some(&input)).await.unwrap();
    for _ in 0..60 {
        let status = client.agent_exec_status("pve1", VMID, pid).await.unwrap();
        if status.exited {
            return status;
        }
        tokio::time::sleep(POLL).await;
    }
    panic!("{script} never ended");
}

async fn a_life(client: &Client, pve: &Pve) {
    cloned(client).await;
    let config = client.config("pve1", VMID).await.unwrap();
    assert_eq!(config.owner(), Description::Ours(marker()));
    assert!(config.agent_enabled() && config.cloudinit_drive().is_some() && config.smbios_uuid().is_some());
    let mut set = BTreeMap::new();
    for (key, value) in [
        ("cores", "4"),
        ("memory", "8192"),
        ("ipconfig0", "ip=10.10.10.11/24,gw=10.10.10.1"),
        ("ciupgrade", "0"),
        ("tags", "k8s;workers"),
        ("sshkeys", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJustATestKeyJustATestKeyJustATestKey00 me@host\n"),
    ] {
        set.insert(key.to_owned(), value.to_owned());
    }
    set.insert("net0".to_owned(), config.net_with("net0", Some("vmbr0"), None).unwrap());
    let task = client.set_config("pve1", VMID, &set, &[], config.digest().unwrap(), 20).await.unwrap();
    if let Some(task) = task {
        assert_eq!(done(client, &task).await, Exit::Ok);
    }
    let after = client.config("pve1", VMID).await.unwrap();
    assert_eq!(after.get("cores"), Some("4"));
    assert_eq!(after.get("tags"), Some("k8s;workers"));
    assert_eq!(
        after.get("net0").map(|net| net.split(',').next()),
        config.get("net0").map(|net| net.split(',').next())
    );
    let size = config.drive_size("scsi0").unwrap();
    let upid = client.resize("pve1", VMID, "scsi0", size + (8 << 30)).await.unwrap();
    assert_eq!(done(client, &upid).await, Exit::Ok);
    let upid = client.start("pve1", VMID).await.unwrap();
    assert_eq!(done(client, &upid).await, Exit::Ok);
    assert_eq!(client.power("pve1", VMID).await.unwrap(), Power::Running);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let upid = client.shutdown("pve1", VMID, 60).await.unwrap();
    assert_eq!(done(client, &upid).await, Exit::Ok);
    assert_eq!(client.power("pve1", VMID).await.unwrap(), Power::Stopped);
    assert!(client.quorate().await.unwrap());
    let upid = client.destroy("pve1", VMID).await.unwrap();
    assert!(done(client, &upid).await.is_success());
    assert!(pve.vm(VMID).is_none());
    assert!(client.calls() < 25, "{} calls for one life", client.calls());
}

#[tokio::test(start_paused = true)]
async fn a_machine_lives_over_http() {
    let pve = pve();
    a_life(&client(&pve), &pve).await;
}

#[tokio::test]
async fn a_machine_is_cloned_and_destroyed_over_tls_with_the_clusters_ca_and_with_a_pinned_certificate() {
    let tls = ServerTls::for_loopback("Proxmox Virtual Environment").unwrap();
    let pve = pve();
    let served = pve.clone();
    let handler = move |request| {
        let pve = served.clone();
        async move { pve.handle(request).await }
    };
    let serving = serve_https(handler, "127.0.0.1:0".parse().unwrap(), &tls).await.unwrap();
    let endpoint = format!("https://{}", serving.address());
    let over = |trust: &Trust| {
        let transport = connect(trust, Duration::from_secs(5), Duration::from_secs(35)).unwrap();
        Client::new(transport, settings(&[&endpoint]), &secret()).unwrap()
    };
    let by_ca = over(&Trust::Authorities(tls.ca_pem.clone()));
    let upid = by_ca.clone_vm(&clone_request()).await.unwrap();
    assert_eq!(by_ca.wait_task(&upid, LIMIT, Duration::from_millis(200)).await.unwrap(), Exit::Ok);
    let by_pin = over(&Trust::Fingerprint(tls.fingerprint.clone()));
    let upid = by_pin.destroy("pve1", VMID).await.unwrap();
    assert!(by_pin.wait_task(&upid, LIMIT, Duration::from_millis(200)).await.unwrap().is_success());

    let wrong = [
        Trust::Fingerprint(tls.fingerprint.replace(|c: char| c.is_ascii_digit(), "0")),
        Trust::Authorities(ServerTls::for_loopback("Another").unwrap().ca_pem),
    ];
    for trust in &wrong {
        let error = over(trust).quorate().await.unwrap_err();
        assert_eq!(error.kind, Kind::HostUnreachable, "{error}");
        assert!(error.text.contains("certificate"), "{error}");
    }
}

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
    let mut settings = settings(&["https://127.0.0.1:8006"]);
    settings.token_id = "root@pam!admin".to_owned();
    let admin = SecretString::from(ClusterSpec::DEMO_ADMIN_SECRET);
    let client = Client::new(in_process(&pve), settings, &admin).unwrap();
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

#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_told_apart_and_never_shown() {
    let pve = pve();
    let wrong = SecretString::from("0a1b2c3d-wrong-secret");
    let client = Client::new(in_process(&pve), settings(&["https://127.0.0.1:8006"]), &wrong).unwrap();
    let error = client.resources().await.unwrap_err();
    assert_eq!(error.kind, Kind::Unauthorized);
    let said = format!("{error} {error:?} {client:?}");
    assert!(!said.contains("wrong-secret"), "{said}");
}
