//! A client for the embedded Proxmox VE, and the setup steps that most tests share.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use model::Vmid;
use proxmox::marker::Marker;
use proxmox::{Client, CloneRequest, ExecStatus, Exit, Settings, Transport, Upid};
use secrecy::SecretString;
use tower::{BoxError, service_fn};
use world::proxmox::Pve;
use world::proxmox::spec::ClusterSpec;

use crate::lab;

pub const VMID: Vmid = Vmid(9101);
pub const LIMIT: Duration = Duration::from_mins(2);
pub const POLL: Duration = Duration::from_secs(1);

pub fn pve() -> Pve {
    lab::pve(ClusterSpec::demo())
}

pub fn in_process(pve: &Pve) -> Transport {
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

pub fn settings(endpoints: &[&str]) -> Settings {
    Settings {
        endpoints: endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect(),
        token_id: ClusterSpec::DEMO_TOKEN.to_owned(),
        agent_lane: 1,
        lifecycle_lane: 2,
        linked_clones: 4,
        full_clones: 2,
    }
}

pub fn secret() -> SecretString {
    SecretString::from(ClusterSpec::DEMO_SECRET)
}

pub fn client(pve: &Pve) -> Client {
    client_as(pve, ClusterSpec::DEMO_TOKEN, ClusterSpec::DEMO_SECRET)
}

/// A client whose token has every right that a token can have.
pub fn admin(pve: &Pve) -> Client {
    client_as(pve, "root@pam!admin", ClusterSpec::DEMO_ADMIN_SECRET)
}

fn client_as(pve: &Pve, token: &str, secret: &str) -> Client {
    let mut settings = settings(&["https://127.0.0.1:8006"]);
    token.clone_into(&mut settings.token_id);
    Client::new(in_process(pve), settings, &SecretString::from(secret)).unwrap()
}

pub fn marker() -> Marker {
    let (cluster, pool, machine) = ("home".to_owned(), "workers".to_owned(), "m-1".to_owned());
    Marker { cluster, region: None, pool: pool.into(), machine: machine.into(), kubernetes: None }
}

pub fn clone_request() -> CloneRequest {
    CloneRequest {
        template_host: "pve1".to_owned(),
        template: Vmid(9000),
        vmid: VMID,
        name: "workers-a1".to_owned(),
        description: marker().describe("for shop/web-1\n"),
        pool: Some("k8s-workers".to_owned()),
        target: None,
        full: false,
        storage: None,
    }
}

pub async fn done(client: &Client, upid: &Upid) -> Exit {
    client.wait_task(upid, LIMIT, POLL).await.unwrap()
}

pub async fn cloned(client: &Client) {
    let upid = client.clone_vm(&clone_request()).await.unwrap();
    assert_eq!(done(client, &upid).await, Exit::Ok);
}

pub async fn booted(client: &Client) {
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

pub async fn run(client: &Client, script: &str, input: &str) -> ExecStatus {
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
