//! A client of the embedded Proxmox VE that speaks plain JSON.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use world::{
    clock::WorldClock,
    guest::control_plane::{ControlPlane, JoinFailure, JoinRequest},
    proxmox::{Pve, spec::ClusterSpec},
};

#[derive(Default)]
pub struct Plane(pub Mutex<Vec<JoinRequest>>, pub Mutex<Vec<String>>);

impl ControlPlane for Plane {
    fn join(&self, request: JoinRequest) -> BoxFuture<'_, Result<(), JoinFailure>> {
        self.0.lock().expect("lock").push(request);
        Box::pin(async { Ok(()) })
    }

    fn power_lost(&self, system_uuid: &str) {
        self.1.lock().expect("lock").push(system_uuid.to_owned());
    }

    fn booted_again(&self, _: &str) {}
}

pub struct Client {
    pub pve: Pve,
    pub plane: Arc<Plane>,
    pub token: String,
}

pub struct Reply {
    pub status: u16,
    pub reason: String,
    pub body: Value,
}

impl Client {
    pub fn new() -> Self {
        Self::of(ClusterSpec::demo())
    }

    pub fn of(spec: ClusterSpec) -> Self {
        let plane = Arc::new(Plane::default());
        let clock = WorldClock::starting_at("2026-11-21T00:00:00Z".parse().expect("time"));
        let pve = Pve::new(spec, clock, 7, plane.clone());
        Self {
            pve,
            plane,
            token: format!("PVEAPIToken={}={}", ClusterSpec::DEMO_TOKEN, ClusterSpec::DEMO_SECRET),
        }
    }

    pub async fn call(&self, method: &str, path: &str, params: Value) -> Reply {
        let body = if params.is_null() { Bytes::new() } else { Bytes::from(params.to_string()) };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://localhost:8006/api2/json{path}"))
            .header("authorization", &self.token);
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(body).expect("request");
        let response = self.pve.handle(request).await.expect("an answer");
        let status = response.status().as_u16();
        let phrase =
            response.extensions().get::<hyper::ext::ReasonPhrase>().map(|phrase| phrase.as_bytes().to_vec());
        let reason = String::from_utf8(phrase.unwrap_or_default()).expect("text");
        let bytes = response.into_body().collect().await.expect("body").to_bytes();
        Reply { status, reason, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
    }

    pub async fn data(&self, method: &str, path: &str, params: Value) -> Value {
        let reply = self.call(method, path, params).await;
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.reason);
        reply.body["data"].clone()
    }

    /// Runs a call that starts a task and returns the task's exit status.
    pub async fn task(&self, method: &str, path: &str, params: Value) -> String {
        let upid = self.data(method, path, params).await;
        let upid = upid.as_str().expect("a UPID").to_owned();
        let node = upid.split(':').nth(1).expect("node").to_owned();
        for _ in 0..200 {
            let status = self.data("GET", &format!("/nodes/{node}/tasks/{upid}/status"), Value::Null).await;
            if status["status"] == "stopped" {
                return status["exitstatus"].as_str().expect("exit").to_owned();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{method} {path} never ended")
    }

    pub async fn clone_as(&self, vmid: u32) -> String {
        let params = json!({ "newid": vmid, "name": format!("w-{vmid}"), "description": "marker: 1\n", "pool": "k8s-workers" });
        self.task("POST", "/nodes/pve1/qemu/9000/clone", params).await
    }

    /// Clones a VM, starts it, and waits until its agent answers.
    pub async fn running(&self, vmid: u32) {
        assert_eq!(self.clone_as(vmid).await, "OK");
        let params = json!({ "cores": 4, "memory": 8192, "ipconfig0": "ip=10.10.10.11/24,gw=10.10.10.1" });
        assert_eq!(self.task("POST", &format!("/nodes/pve1/qemu/{vmid}/config"), params).await, "OK");
        assert_eq!(
            self.task("POST", &format!("/nodes/pve1/qemu/{vmid}/status/start"), Value::Null).await,
            "OK"
        );
        tokio::time::sleep(Duration::from_secs(30)).await;
    }

    pub async fn exec(&self, vmid: u32, command: Value, input: &str) -> Value {
        let params = json!({ "command": command, "input-data": input });
        let started = self.data("POST", &format!("/nodes/pve1/qemu/{vmid}/agent/exec"), params).await;
        for _ in 0..100 {
            let path = format!("/nodes/pve1/qemu/{vmid}/agent/exec-status?pid={}", started["pid"]);
            let status = self.data("GET", &path, Value::Null).await;
            if status["exited"] == 1 {
                return status;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("the command never ended")
    }
}
