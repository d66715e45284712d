//! Compares the recorded answers of a real Proxmox VE 9.2.11 cluster with those of the embedded cluster.
//!
//! Each scenario's calls are made again, in the recorded order, at the recorded times, by the same tokens,
//! and every answer is compared. Differences are only accepted if `known` lists them with their reason. A
//! listed difference that no longer occurs fails as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http_body_util::BodyExt;
use serde_json::Value;
use tokio::{task::JoinHandle, time::Instant};
use world::proxmox::Pve;

use self::{known::KNOWN, recording::Entry};

mod cluster;
mod compare;
mod known;
mod recording;
mod scene;
mod second;

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

/// A scenario that is being replayed.
struct Replay {
    pve: Pve,
    scenario: &'static str,
    /// The task ids, digests and process ids of the recorded cluster, each with the one that the embedded
    /// cluster gave out instead.
    given: BTreeMap<String, String>,
    /// The VMs that existed before the scenario.
    before: BTreeSet<u64>,
    began: Instant,
    late: Duration,
    /// Calls that had not been answered when the next call was made.
    open: Vec<(Entry, JoinHandle<Reply>)>,
    compared: usize,
    differences: BTreeMap<u64, Vec<String>>,
}

impl Replay {
    fn new(pve: Pve, scenario: &'static str) -> Self {
        Self {
            before: pve.vmids().into_iter().map(u64::from).collect(),
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

    /// Waits until the given second of the recording. If the replay has fallen behind, all later waits are
    /// delayed by the same time.
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
                scene::happen(&self.pve, event);
                second::happen(&self.pve, event);
                continue;
            }
            if let Some(command) = entry.command() {
                scene::command(&self.pve, command);
                continue;
            }
            let skipped = known::SKIPPED
                .iter()
                .any(|(scenario, n, _)| *scenario == self.scenario && n.contains(&entry.number()));
            if entry.is_raw() || skipped {
                continue;
            }
            scene::make_room(&self.pve, &entry);
            let authorization = cluster::authorization(entry.token());
            let request = entry.request(&self.given, authorization.as_deref());
            let call = tokio::spawn(send(self.pve.clone(), request));
            self.open.push((entry, call));
        }
        self.settle(f64::MAX).await;
        self
    }

    /// Processes the answers to all calls that the recorded cluster had answered by the given second.
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

    /// If the recorded task had ended, repeats the call until this cluster's task has ended as well.
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
        if reply.status == entry.status() {
            // Spaces at the end of a status line are ignored.
            let words = |reason: &str| compare::normal(reason.trim_end());
            let (recorded, ours) = (words(entry.reason()), words(&reply.reason));
            if recorded != ours {
                found.push(format!("reason {ours:?} instead of {recorded:?}"));
            }
            let (body, own) = without_moment(entry.body(), &reply.body);
            found.extend(compare::bodies(entry.path(), &self.before, &body, &own));
        } else {
            let (recorded, reason) = (entry.status(), entry.reason());
            found
                .push(format!("status {} {:?} instead of {recorded} {reason:?}", reply.status, reply.reason));
        }
        self.compared += 1;
        if !found.is_empty() {
            let call = format!("{} {}", entry.template(), entry.0["params"]);
            found.insert(0, call);
            self.differences.insert(entry.number(), found);
        }
    }

    /// Checks that every difference is listed, that every listed difference still occurs, and that enough
    /// answers were compared.
    #[expect(clippy::print_stdout, reason = "a test prints how much it has compared")]
    fn check(&self, least: usize) -> Result<(), String> {
        let own = KNOWN.iter().filter(|(scenario, _, _)| *scenario == self.scenario);
        let known: BTreeMap<u64, &str> =
            own.flat_map(|(_, numbers, why)| numbers.iter().map(move |number| (*number, *why))).collect();
        let mut wrong = Vec::new();
        for (number, found) in self.differences.iter().filter(|(number, _)| !known.contains_key(number)) {
            wrong.push(format!("{} {number}: {}", self.scenario, found.join("\n    ")));
        }
        for (number, why) in known.iter().filter(|(number, _)| !self.differences.contains_key(number)) {
            wrong.push(format!("{} {number}: listed, but no longer differs: {why}", self.scenario));
        }
        println!("{}: {} answers compared, {} differ as listed", self.scenario, self.compared, known.len());
        if self.compared < least {
            wrong.push(format!("{}: only {} answers compared", self.scenario, self.compared));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}

/// Removes the state of a task from both bodies if the recorded task was running, because the embedded
/// cluster's task may have ended already.
fn without_moment(recorded: &Value, ours: &Value) -> (Value, Value) {
    let (mut recorded, mut ours) = (recorded.clone(), ours.clone());
    if recorded["data"]["status"] == "running" && recorded["data"].get("upid").is_some() {
        for data in [&mut recorded["data"], &mut ours["data"]] {
            data.as_object_mut().into_iter().for_each(|members| {
                members.remove("status");
                members.remove("exitstatus");
            });
        }
    }
    (recorded, ours)
}

/// Replays scenarios one after another on one cluster. Each scenario has a minimum number of answers that
/// must be compared.
async fn replay(scenarios: &[(&'static str, usize)]) {
    let Some(folder) = recording::folder() else { return };
    let all: Vec<_> = scenarios.iter().map(|(scenario, _)| recording::read(&folder, scenario)).collect();
    let vms = scene::vms(&all.concat(), &[9000, 9010], scene::plain);
    let pve = cluster::cluster(vms, cluster::timings());
    // After this time, all running guests have booted, and pvestatd has reported all VMs.
    tokio::time::sleep(Duration::from_secs(122)).await;
    let mut wrong = Vec::new();
    for ((scenario, least), entries) in scenarios.iter().zip(all) {
        let done = Replay::new(pve.clone(), scenario).run(entries).await;
        wrong.extend(done.check(*least).err());
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Replays a scenario on a new cluster that is like the second recorded one.
async fn replay_second(scenario: &'static str, least: usize) {
    let Some(folder) = recording::folder() else { return };
    let entries = recording::read(&folder, scenario);
    let pve = second::cluster(scenario, &entries);
    tokio::time::sleep(Duration::from_secs(122)).await;
    let done = Replay::new(pve, scenario).run(second::with_events(scenario, entries)).await;
    let wrong = done.check(least).err();
    assert!(wrong.is_none(), "\n{}", wrong.unwrap_or_default());
}

macro_rules! replays_second {
    ($($test:ident: $scenario:literal $least:literal;)+) => {
        $(#[tokio::test(start_paused = true)]
        async fn $test() {
            replay_second($scenario, $least).await;
        })+
    };
}

replays_second! {
    a_seed_a_full_clone_and_a_firewall: "60-seed-full-clone-firewall" 30;
    a_seed_without_the_right_to_cloud_init_drives: "61-seed-lacks-cloudinit" 16;
    a_suspension_to_disk: "62-suspend-to-disk-and-resume" 24;
    cpus_and_memory_are_plugged: "63-hotplug" 15;
    a_clone_is_protected: "64-protection-inherited" 11;
    tags_are_restricted: "65-user-tag-access" 8;
    daemons_of_the_host_are_restarted: "66-restart-of-pvedaemon-and-pveproxy" 25;
    a_template_is_made: "67-template-download-import" 60;
    a_host_in_maintenance: "68-ha-maintenance" 4;
    a_host_that_is_off: "69-node-offline" 8;
    a_silent_pvestatd: "70-pvestatd-silent" 8;
    pools_are_seen_with_pool_audit: "71-pool-of-a-guest-needs-pool-audit" 5;
}

macro_rules! replays {
    ($($(#[$note:meta])* $test:ident: $($scenario:literal $least:literal),+;)+) => {
        $($(#[$note])* #[tokio::test(start_paused = true)]
        async fn $test() {
            replay(&[$(($scenario, $least)),+]).await;
        })+
    };
}

replays! {
    clone_configure_boot_and_destroy:
        "10-linked-clone-and-config" 90, "11-start-boot-agent" 22, "13-running-config-shutdown-destroy" 65;
    cluster_and_nodes: "02-version-nodes-status" 60;
    configurations_are_read: "03-template-config" 20;
    the_list_lags: "04-resources-lag" 50;
    clones_of_every_kind: "20-clone-variants" 140;
    clones_that_collide: "21-clone-collisions" 80;
    clones_that_end_early_and_calls_during_a_clone: "22b-clone-stopped-or-killed" 40, "22-locked-vm" 50;
    power: "23-power-edge-cases" 125;
    a_quick_restart: "23b-start-right-after-stop" 45;
    parameters_and_their_encodings: "24-parameters-and-encodings" 260;
    credentials: "25-authentication" 9;
    privileges: "26-permissions-one-missing" 50;
    pools: "27-pool-visibility" 35;
    agent_calls: "12-agent-exec" 60;
    an_agent_that_falls_silent: "12b-agent-exec-missing-command" 30;
    a_host_without_power: "30-node-down" 60;
    no_quorum: "31-no-quorum" 80;
    no_quorum_and_local_disks: "31b-no-quorum-destroy-local" 30;
    tasks: "40-tasks" 45;
    storages: "41-storage" 28;
    root_only_keys: "43-root-only-options" 40;
}
