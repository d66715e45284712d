//! The recorded answers of a real Proxmox VE 9.2.11 cluster against the ones of the embedded cluster.
//!
//! Each scenario's calls are made again, in the recorded order, at the recorded times, by the same tokens, and every
//! answer is compared. Differences are only accepted where `known` lists them with their reason; a listed difference that
//! is none any more fails as well.

use std::{collections::BTreeMap, time::Duration};

use http_body_util::BodyExt;
use serde_json::Value;
use tokio::{task::JoinHandle, time::Instant};
use world::proxmox::{Pve, spec::VmSpec};

use self::{known::KNOWN, recording::Entry};

mod cluster;
mod compare;
mod known;
mod recording;

struct Reply {
    status: u64,
    reason: String,
    body: Value,
}

async fn send(pve: Pve, request: http::Request<bytes::Bytes>) -> Reply {
    let Ok(response) = pve.handle(request).await else {
        return Reply { status: 0, reason: String::new(), body: Value::Null };
    };
    let status = u64::from(response.status().as_u16());
    let phrase =
        response.extensions().get::<hyper::ext::ReasonPhrase>().map(|phrase| phrase.as_bytes().to_vec());
    let reason = String::from_utf8(phrase.unwrap_or_default()).expect("text");
    let bytes = response.into_body().collect().await.expect("body").to_bytes();
    let plain = || Value::from(String::from_utf8_lossy(&bytes).into_owned());
    Reply { status, reason, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| plain()) }
}

/// One scenario under way.
struct Replay {
    pve: Pve,
    scenario: &'static str,
    /// What the recorded cluster gave out (task ids, digests, process ids) and what this one gave out instead.
    given: BTreeMap<String, String>,
    began: Instant,
    late: Duration,
    /// Calls that had no answer yet when the next was made.
    open: Vec<(Entry, JoinHandle<Reply>)>,
    compared: usize,
    differences: BTreeMap<u64, Vec<String>>,
}

impl Replay {
    fn new(pve: Pve, scenario: &'static str) -> Self {
        Self {
            pve,
            scenario,
            given: BTreeMap::new(),
            began: Instant::now(),
            late: Duration::ZERO,
            open: Vec::new(),
            compared: 0,
            differences: BTreeMap::new(),
        }
    }

    /// Waits for the moment of a recorded second. A run that is late stays late.
    async fn wait_until(&mut self, seconds: f64) {
        let moment = self.began + Duration::from_secs_f64(seconds);
        tokio::time::sleep_until(moment + self.late).await;
        self.late = self.late.max(moment.elapsed());
    }

    async fn run(mut self, entries: Vec<Entry>) -> Self {
        for entry in entries {
            self.settle(entry.time()).await;
            self.wait_until(entry.time()).await;
            if let Some(event) = entry.event() {
                known::happen(&self.pve, event);
                continue;
            }
            if let Some(command) = entry.command() {
                known::command(&self.pve, command, &self.given);
                continue;
            }
            let skipped = known::SKIPPED
                .iter()
                .any(|(scenario, n, _)| *scenario == self.scenario && n.contains(&entry.number()));
            if entry.is_raw() || skipped {
                continue;
            }
            let authorization = cluster::authorization(entry.token());
            let request = entry.request(&self.given, authorization.as_deref());
            let call = tokio::spawn(send(self.pve.clone(), request));
            self.open.push((entry, call));
        }
        self.settle(f64::MAX).await;
        self
    }

    /// Takes the answers of all calls that had been answered at this recorded second.
    async fn settle(&mut self, seconds: f64) {
        let open = std::mem::take(&mut self.open);
        for (entry, call) in open {
            if entry.answered() > seconds + 0.011 {
                self.open.push((entry, call));
                continue;
            }
            let reply = call.await.expect("an answer");
            let reply = self.once_ended(&entry, reply).await;
            self.learn(&entry, &reply);
            self.compare(&entry, &reply);
        }
    }

    /// Where the recorded task had ended, asks until this one has ended as well.
    async fn once_ended(&self, entry: &Entry, mut reply: Reply) -> Reply {
        if entry.body()["data"]["status"] != "stopped" || entry.body()["data"].get("upid").is_none() {
            return reply;
        }
        for _ in 0..600 {
            if reply.body["data"]["status"] != "running" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            let authorization = cluster::authorization(entry.token());
            reply = send(self.pve.clone(), entry.request(&self.given, authorization.as_deref())).await;
        }
        reply
    }

    fn learn(&mut self, entry: &Entry, reply: &Reply) {
        let (recorded, ours) = (&entry.body()["data"], &reply.body["data"]);
        for (recorded, ours) in
            [(recorded, ours), (&recorded["digest"], &ours["digest"]), (&recorded["pid"], &ours["pid"])]
        {
            let is_id = recorded.as_str().is_some_and(|text| text.starts_with("UPID:") || text.len() == 40);
            let is_pid = recorded.is_number() && entry.path().ends_with("/agent/exec");
            if (is_id || is_pid) && !ours.is_null() {
                let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.given.insert(plain(recorded), plain(ours));
            }
        }
    }

    fn compare(&mut self, entry: &Entry, reply: &Reply) {
        let mut found = Vec::new();
        let absent = reply.status == 501 && entry.status() != 501;
        if absent && known::ABSENT.contains(&entry.template().as_str()) {
            return;
        }
        if reply.status != entry.status() {
            found.push(format!(
                "status {} {:?} and not {} {:?}",
                reply.status,
                reply.reason,
                entry.status(),
                entry.reason()
            ));
        } else {
            let (recorded, ours) = (compare::normal(entry.reason()), compare::normal(&reply.reason));
            if recorded != ours {
                found.push(format!("reason {ours:?} and not {recorded:?}"));
            }
            let mut body = entry.body().clone();
            let mut own = reply.body.clone();
            if body["data"]["status"] == "running" && body["data"].get("upid").is_some() {
                // This one may have ended already.
                for data in [&mut body["data"], &mut own["data"]] {
                    data.as_object_mut().into_iter().for_each(|members| {
                        members.remove("status");
                        members.remove("exitstatus");
                    });
                }
            }
            found.extend(compare::bodies(entry.path(), &body, &own));
        }
        self.compared += 1;
        if !found.is_empty() {
            let call = format!("{} {}", entry.template(), entry.0["params"]);
            found.insert(0, call);
            self.differences.insert(entry.number(), found);
        }
    }

    /// Every difference is a known one, every known one is still there, and enough was compared.
    fn check(&self, least: usize) -> Result<(), String> {
        let mut text = String::new();
        let known: BTreeMap<u64, &str> = KNOWN
            .iter()
            .filter(|(scenario, _, _)| *scenario == self.scenario)
            .flat_map(|(_, numbers, why)| numbers.iter().map(move |number| (*number, *why)))
            .collect();
        for (number, found) in self.differences.iter().filter(|(number, _)| !known.contains_key(number)) {
            text += &format!("{} {number}: {}\n", self.scenario, found.join("\n    "));
        }
        for (number, why) in known.iter().filter(|(number, _)| !self.differences.contains_key(number)) {
            text += &format!("{} {number}: is alike now, though listed: {why}\n", self.scenario);
        }
        println!("{}: {} answers compared, {} differ as listed", self.scenario, self.compared, known.len());
        if self.compared < least {
            text += &format!("{}: only {} answers compared\n", self.scenario, self.compared);
        }
        if text.is_empty() { Ok(()) } else { Err(text) }
    }
}

/// Replays scenarios one after another on one cluster, and compares at least so many answers.
async fn replay(scenarios: &[(&'static str, usize)], vms: Vec<VmSpec>) {
    let Some(folder) = recording::folder() else { return };
    let pve = cluster::cluster(vms, cluster::timings());
    // The statistics know all VMs before the first call.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let mut wrong = String::new();
    for (scenario, least) in scenarios {
        let entries = recording::read(&folder, scenario);
        let done = Replay::new(pve.clone(), scenario).run(entries).await;
        wrong.extend(done.check(*least).err());
    }
    if let Ok(folder) = std::env::var("DIFFS") {
        std::fs::write(format!("{folder}/{}", scenarios[0].0), &wrong).expect("written");
        return;
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// VMs that were there before a scenario, each cloned from the recorded template.
fn clones(vms: &[(u32, &str, &str)]) -> Vec<VmSpec> {
    let mut specs = vec![cluster::template(9011, "pve2", "debian-13-k8s-b")];
    specs.extend(vms.iter().map(|(vmid, node, name)| cluster::machine(*vmid, node, name)));
    specs
}

#[tokio::test(start_paused = true)]
async fn clone_configure_boot_and_destroy() {
    let scenarios = [
        ("10-linked-clone-and-config", 90),
        ("11-start-boot-agent", 20),
        ("13-running-config-shutdown-destroy", 60),
    ];
    replay(&scenarios, Vec::new()).await;
}

#[tokio::test(start_paused = true)]
async fn cluster_and_configuration_reads() {
    replay(&[("02-version-nodes-status", 1)], Vec::new()).await;
    replay(&[("03-template-config", 1)], Vec::new()).await;
    replay(&[("04-resources-lag", 1)], Vec::new()).await;
}

#[tokio::test(start_paused = true)]
async fn clones_of_every_kind() {
    replay(&[("20-clone-variants", 1)], clones(&[])).await;
    replay(&[("21-clone-collisions", 1)], clones(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn locked_vms_and_clones_that_end_early() {
    replay(&[("22-locked-vm", 1)], clones(&[])).await;
    replay(&[("22b-clone-stopped-or-killed", 1)], clones(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn power() {
    replay(&[("23-power-edge-cases", 1)], clones(&[(180, "pve1", "k8s-w-180")])).await;
    replay(&[("23b-start-right-after-stop", 1)], clones(&[(222, "pve1", "k8s-w-222")])).await;
}

#[tokio::test(start_paused = true)]
async fn parameters_and_credentials() {
    replay(&[("24-parameters-and-encodings", 1)], clones(&[])).await;
    replay(&[("25-authentication", 1)], clones(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn permissions() {
    replay(
        &[("26-permissions-one-missing", 1)],
        clones(&[(182, "pve1", "k8s-w-182"), (183, "pve1", "k8s-w-183")]),
    )
    .await;
    replay(&[("27-pool-visibility", 1)], clones(&[(185, "pve1", "k8s-w-185")])).await;
}

#[tokio::test(start_paused = true)]
async fn agent() {
    replay(&[("12-agent-exec", 1)], clones(&[(120, "pve1", "k8s-w-120")])).await;
    replay(&[("12b-agent-exec-missing-command", 1)], clones(&[(120, "pve1", "k8s-w-120")])).await;
}

#[tokio::test(start_paused = true)]
async fn hosts_and_quorum() {
    replay(&[("30-node-down", 1)], clones(&[])).await;
    replay(&[("31-no-quorum", 1)], clones(&[])).await;
    replay(&[("31b-no-quorum-destroy-local", 1)], clones(&[])).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_and_storage() {
    replay(&[("40-tasks", 1)], clones(&[])).await;
    replay(&[("41-storage", 1)], clones(&[])).await;
    replay(&[("43-root-only-options", 1)], clones(&[])).await;
}
