//! Tests a machine's entire life cycle, both in process and over TLS.

use std::collections::BTreeMap;
use std::time::Duration;

use proxmox::marker::Description;
use proxmox::{Client, Exit, Kind, Power, Trust, connect};
use secrecy::SecretString;
use world::proxmox::Pve;
use world::serve::{serve_https, tls::ServerTls};

use crate::support::*;

pub async fn a_life(client: &Client, pve: &Pve) {
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
    let net = config.net_with("net0", None, &[("bridge", "vmbr0".to_owned())]);
    set.insert("net0".to_owned(), net);
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
    assert!(pve.vm(VMID.0).is_none());
    assert!(client.calls() < 25, "{} calls for one machine", client.calls());
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

#[tokio::test]
async fn an_endpoint_that_is_away_is_passed_over_and_the_one_that_answers_is_kept() {
    let tls = ServerTls::for_loopback("Proxmox Virtual Environment").unwrap();
    let pve = pve();
    let serve = async || {
        let served = pve.clone();
        let handler = move |request| {
            let pve = served.clone();
            async move { pve.handle(request).await }
        };
        serve_https(handler, "127.0.0.1:0".parse().unwrap(), &tls).await.unwrap()
    };
    // The address of a listener that was closed immediately, so that no program listens on it.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (first, second) = (serve().await, serve().await);
    let endpoints = [gone, first.address(), second.address()].map(|address| format!("https://{address}"));
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    let trust = Trust::Authorities(tls.ca_pem.clone());
    let transport = connect(&trust, Duration::from_secs(5), Duration::from_secs(35)).unwrap();
    let client = Client::new(transport, settings(&endpoints), &secret()).unwrap();

    // Nothing was sent to the first endpoint, so even a POST is sent to the next one.
    let upid = client.clone_vm(&clone_request()).await.unwrap();
    assert_eq!(client.wait_task(&upid, LIMIT, Duration::from_millis(200)).await.unwrap(), Exit::Ok);
    let before = client.calls();
    assert!(client.quorate().await.unwrap());
    assert_eq!(client.calls(), before + 1, "the endpoint that answered is tried first");

    first.shutdown();
    assert!(client.quorate().await.unwrap(), "a read goes on to the next endpoint");
    let upid = client.destroy("pve1", VMID).await.unwrap();
    assert!(client.wait_task(&upid, LIMIT, Duration::from_millis(200)).await.unwrap().is_success());
    assert_eq!(pve.task_exits().len(), 2, "the clone and the destruction each ran once");

    second.shutdown();
    let error = client.quorate().await.unwrap_err();
    assert!(matches!(error.kind, Kind::HostUnreachable | Kind::OutcomeUnknown), "{error}");
    assert!(error.text.contains(endpoints[1]), "{error}");
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
