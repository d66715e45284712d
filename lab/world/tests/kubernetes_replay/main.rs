//! Compares the recorded answers of a real Kubernetes 1.36.2 with those of the embedded cluster.
//!
//! Each scenario's calls are made again, in the recorded order, at the recorded times, by the same callers,
//! and every answer is compared. Watches are kept open as long as the recorded ones, and the changes that
//! they report for each object are compared. Differences are only accepted if `known` lists them with their
//! reason. A listed difference that no longer occurs fails as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http_body_util::BodyExt;
use serde_json::Value;
use tokio::{task::JoinHandle, time::Instant};
use world::{
    clock::WorldClock,
    guest::control_plane::{ControlPlane, JoinFailure},
    kubernetes::Kube,
};

use self::{
    known::{KNOWN, SKIPPED},
    recording::{Entry, Given},
    scene::Made,
};

mod compare;
mod known;
mod recording;
mod scene;
mod stage;
mod watches;

/// How long the cluster has been up when a scenario begins.
const BEFORE: Duration = Duration::from_secs(40);

struct Reply {
    status: u64,
    retry_after: bool,
    body: Value,
    /// The events of a watch, each with the moment at which it arrived.
    events: Vec<(f64, Value)>,
}

/// Makes a call. If the call is a watch, reads events until the watch ends, or until the moment at which the
/// recorded client closed it.
async fn send(
    kube: Kube,
    request: http::Request<bytes::Bytes>,
    until: Option<Instant>,
    began: Instant,
) -> Reply {
    let none = || Reply { status: 0, retry_after: false, body: Value::Null, events: Vec::new() };
    let Ok(response) = kube.handle(request).await else { return none() };
    let status = u64::from(response.status().as_u16());
    let retry_after = response.headers().contains_key("retry-after");
    let Some(until) = until.filter(|_| status == 200) else {
        let bytes = response.into_body().collect().await.expect("body").to_bytes();
        let plain = || Value::from(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| plain());
        return Reply { status, retry_after, body, events: Vec::new() };
    };
    let mut body = response.into_body();
    let mut events = Vec::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until, body.frame()).await {
        let Ok(data) = frame.into_data() else { continue };
        let event = serde_json::from_slice(&data).expect("one event a frame");
        events.push((began.elapsed().as_secs_f64(), event));
    }
    Reply { status, retry_after, body: Value::Null, events }
}

/// The result of a command that timeout(1) had to end.
fn ended_by_timeout() -> JoinFailure {
    JoinFailure { stderr: String::new(), exit_code: 124, after: Duration::ZERO }
}

/// The next step of a scenario.
enum Step<'a> {
    Entry(&'a Entry),
    Make(&'a Value),
    Change(&'static str, &'static str, &'static str, Value),
}

/// A scenario that is being replayed.
struct Replay {
    kube: Kube,
    scenario: &'static str,
    given: Given,
    owners: BTreeMap<String, String>,
    began: Instant,
    /// Calls that had not been answered when the next call was made.
    open: Vec<(Entry, JoinHandle<Reply>)>,
    joins: Vec<(Entry, JoinHandle<Result<(), JoinFailure>>)>,
    compared: usize,
    watched: usize,
    differences: BTreeMap<u64, Vec<String>>,
    /// The differences in watches that have occurred and that `known` lists: each watch's number and object.
    other_stories: BTreeSet<(u64, String)>,
}

impl Replay {
    async fn wait_until(&self, seconds: f64) {
        tokio::time::sleep_until(self.began + Duration::from_secs_f64(seconds.max(0.0))).await;
    }

    async fn run(&mut self, entries: &[Entry], made: &[Made]) {
        let objects = made.iter().filter_map(|made| Some((made.at?, Step::Make(&made.object))));
        let changes = stage::changes(self.scenario).into_iter();
        let changes =
            changes.map(|(at, kind, space, name, patch)| (at, Step::Change(kind, space, name, patch)));
        let entries = entries.iter().map(|entry| (starts(entry), Step::Entry(entry)));
        let mut steps: Vec<(f64, Step)> = objects.chain(changes).chain(entries).collect();
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (at, step) in steps {
            self.settle(at).await;
            self.wait_until(at).await;
            match step {
                Step::Entry(entry) => self.take(entry).await,
                Step::Make(object) => {
                    scene::make(&self.kube, &mut self.given, &mut self.owners, object, made);
                }
                Step::Change(kind, space, name, Value::Null) => self.kube.remove(kind, space, name),
                Step::Change(kind, space, name, patch) => {
                    assert!(self.kube.patch_by_hand(kind, space, name, &patch), "no {kind} {space}/{name}");
                }
            }
        }
        self.settle(f64::MAX).await;
        for (entry, join) in std::mem::take(&mut self.joins) {
            let ended = join.await.expect("an end");
            self.compare_join(&entry, &ended);
        }
    }

    async fn take(&mut self, entry: &Entry) {
        if let Some(event) = entry.happening() {
            scene::happen(&self.kube, self.scenario, event).await;
            if self.scenario.starts_with("04c") && event.starts_with("reboot") {
                let kube = self.kube.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(52)).await;
                    kube.booted_again(&scene::machine("worker-2"));
                });
            }
            return;
        }
        let skipped = |(scenario, numbers, _): &&(&str, &[u64], &str)| {
            *scenario == self.scenario && numbers.contains(&entry.number())
        };
        let command = entry.0["command"].as_str().unwrap_or_default();
        if let Some(rest) = command.strip_prefix("kubectl drain ").filter(|_| entry.0["exit"] == 0) {
            let node = rest.split(' ').next().unwrap_or_default();
            scene::drain(&self.kube, node);
        }
        if entry.method() == "HOST" || SKIPPED.iter().any(|one| skipped(&one)) {
            return;
        }
        if entry.method() == "GUEST-EXEC" {
            self.in_guest(entry);
            return;
        }
        self.catch_up(entry);
        self.catch_up_watch(entry).await;
        let authorization = stage::authorization(entry.0["as"].as_str().unwrap_or_default());
        let request = entry.request(&self.given, authorization.as_deref());
        let until = entry.events().map(|_| self.began + Duration::from_secs_f64(entry.answered() + 0.02));
        let call = tokio::spawn(send(self.kube.clone(), request, until, self.began));
        self.open.push((entry.clone(), call));
    }

    /// A recorded write of a Node may name a version that so far only an open watch has reported. If so, uses
    /// the Node's latest version instead.
    fn catch_up(&mut self, entry: &Entry) {
        let version = entry.0["request_body"]["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let Some(name) = entry.path().strip_prefix("/api/v1/nodes/").filter(|_| entry.status() == 200) else {
            return;
        };
        let known = version.is_empty() || self.given.0.contains_key(version);
        if let Some(node) = self.kube.get("Node", "", name).filter(|_| !known) {
            let own = node["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            self.given.0.insert(version.to_owned(), own);
        }
    }

    /// If a watch starts from a version that is later than every known version, starts it at the current
    /// version.
    async fn catch_up_watch(&mut self, entry: &Entry) {
        let Ok(version) = entry.query("resourceVersion").parse::<u64>() else { return };
        let known = self.given.0.keys().filter_map(|known| known.parse::<u64>().ok()).max().unwrap_or(0);
        if entry.0.get("events").is_none() || version <= known {
            return;
        }
        let request = http::Request::get("/api/v1/namespaces")
            .header("authorization", stage::authorization("admin").unwrap_or_default())
            .body(bytes::Bytes::new())
            .expect("a request");
        let list = send(self.kube.clone(), request, None, self.began).await;
        if let Some(present) = list.body["metadata"]["resourceVersion"].as_str() {
            self.given.0.insert(version.to_string(), present.to_owned());
        }
    }

    fn in_guest(&mut self, entry: &Entry) {
        let words: Vec<&str> =
            entry.0["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match words.as_slice() {
            ["systemctl", "restart", "kubelet"] => self.kube.restart_kubelet(entry.path()),
            ["kubeadm", "reset", ..] => self.kube.power_lost(&scene::machine(entry.path())),
            [.., "kubeadm", "join", "--config", "/dev/stdin"] => {
                let Some(request) = scene::join(entry, stage::CA_HASH) else { return };
                let kube = self.kube.clone();
                let patience = if words[0] == "timeout" { 20 } else { 400 };
                let ended = async move {
                    let limit = Duration::from_secs(patience);
                    tokio::time::timeout(limit, kube.join(request))
                        .await
                        .unwrap_or_else(|_| Err(ended_by_timeout()))
                };
                self.joins.push((entry.clone(), tokio::spawn(ended)));
            }
            _ => {}
        }
    }

    /// Processes the answers to all calls that the recorded cluster had answered by the given second.
    async fn settle(&mut self, seconds: f64) {
        for (entry, call) in std::mem::take(&mut self.open) {
            if entry.answered() > seconds + 0.0005 {
                self.open.push((entry, call));
                continue;
            }
            let reply = call.await.expect("an answer");
            self.given.learn(entry.body(), &reply.body);
            self.compare(&entry, &reply);
        }
    }

    fn compare(&mut self, entry: &Entry, reply: &Reply) {
        let mut found = Vec::new();
        if reply.status == entry.status() {
            if let Some(recorded) = entry.events() {
                for ((_, recorded), (_, ours)) in recorded.iter().zip(&reply.events) {
                    if recorded["type"] == ours["type"]
                        && scene::identity(&recorded["object"]) == scene::identity(&ours["object"])
                    {
                        self.given.learn(recorded, ours);
                    }
                }
                for (title, text) in watches::stories(&recorded, &reply.events, entry.is_cut()) {
                    let listed = known::STORIES.iter().any(|(scenario, number, titles, _)| {
                        *scenario == self.scenario
                            && *number == entry.number()
                            && titles.contains(&title.as_str())
                    });
                    if listed {
                        self.other_stories.insert((entry.number(), title));
                    } else {
                        found.push(text);
                    }
                }
                self.watched += recorded.len();
            } else {
                found.extend(compare::bodies(entry.body(), &reply.body));
            }
            let retry_after = entry.0["headers"].get("retry-after").is_some();
            if reply.retry_after != retry_after {
                found.push(format!("retry-after: {} instead of {retry_after}", reply.retry_after));
            }
        } else {
            found.push(format!("status {} instead of {}: {}", reply.status, entry.status(), reply.body));
        }
        self.note(entry, found);
    }

    fn compare_join(&mut self, entry: &Entry, ended: &Result<(), JoinFailure>) {
        let mut found = Vec::new();
        let exit = entry.0["exit"].as_i64().unwrap_or(0);
        let own = ended.as_ref().map_or_else(|failure| i64::from(failure.exit_code), |()| 0);
        if exit != own {
            found.push(format!("exit {own} instead of {exit}: {ended:?}"));
        }
        if let Err(failure) = ended {
            let text = entry.0["stderr"].as_str().unwrap_or_default();
            let recorded = text.lines().find(|line| line.starts_with("error:")).unwrap_or_default();
            if !failure.stderr.contains(recorded) {
                found.push(format!("stderr {:?} instead of {recorded:?}", failure.stderr));
            }
        }
        self.note(entry, found);
    }

    fn note(&mut self, entry: &Entry, mut found: Vec<String>) {
        self.compared += 1;
        if !found.is_empty() {
            let query = entry.0.get("query").map(Value::to_string).unwrap_or_default();
            found.insert(0, format!("{} {} {query}", entry.method(), entry.path()));
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
        let stories = known::STORIES.iter().filter(|(scenario, ..)| *scenario == self.scenario);
        for (_, number, titles, why) in stories {
            for title in *titles {
                if !self.other_stories.contains(&(*number, (*title).to_owned())) {
                    wrong.push(format!(
                        "{} {number}: {title} is listed, but no longer differs: {why}",
                        self.scenario
                    ));
                }
            }
        }
        println!(
            "{}: {} answers compared, among them {} events; {} answers differ, {} of them as listed; the changes of {} objects differ as listed",
            self.scenario,
            self.compared,
            self.watched,
            self.differences.len(),
            known.len(),
            self.other_stories.len()
        );
        if self.compared < least {
            wrong.push(format!("{}: only {} answers compared", self.scenario, self.compared));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}

/// Returns the second at which the replay starts an entry. The recorded guests were slow, but the simulated
/// ones are not. Therefore a join that succeeds starts just before its recorded end.
fn starts(entry: &Entry) -> f64 {
    let waits = entry.number() == 5 && entry.path() == "worker-4";
    if entry.method() == "GUEST-EXEC"
        && entry.0["exit"] == 0
        && !waits
        && !entry.0["command"][0].eq("systemctl")
    {
        return entry.answered() - 0.01;
    }
    entry.time()
}

/// Replays a scenario that was recorded in one or more parts. Fails if fewer than `least` answers were
/// compared.
async fn replay(parts: &[&'static str], least: usize) {
    let Some(folder) = recording::folder() else { return };
    let scenario = parts[0];
    let entries = recording::read(&folder, parts);
    let began = recording::beginning(&entries);
    let clock =
        WorldClock::starting_at(began.checked_sub(jiff::SignedDuration::from_secs(40)).expect("a time"));
    let kube = Kube::new(stage::cluster(scenario, recording::ca_pem(&entries)), clock, 1);
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let names: BTreeSet<String> = scene::namespaces(&entries);
    for name in names.iter().filter(|name| kube.get("Namespace", "", name).is_none()) {
        let namespace = serde_json::json!({ "kind": "Namespace", "metadata": { "name": name } });
        kube.apply(&namespace).expect("a namespace");
    }
    let made = scene::made_by_hand(scenario, &entries, began);
    let (mut given, mut owners) = (Given::default(), BTreeMap::new());
    for one in made.iter().filter(|made| made.at.is_none()) {
        scene::make(&kube, &mut given, &mut owners, &one.object, &made);
    }
    tokio::time::sleep_until(start + BEFORE).await;
    let mut replay = Replay {
        kube,
        scenario,
        given,
        owners,
        began: Instant::now(),
        open: Vec::new(),
        joins: Vec::new(),
        compared: 0,
        watched: 0,
        differences: BTreeMap::new(),
        other_stories: BTreeSet::new(),
    };
    replay.run(&entries, &made).await;
    let done = replay.check(least);
    assert!(done.is_ok(), "\n{}", done.err().unwrap_or_default());
}

macro_rules! replays {
    ($($test:ident: $($part:literal),+; at least $least:literal;)+) => {
        $(#[tokio::test(start_paused = true)]
        async fn $test() {
            replay(&[$($part),+], $least).await;
        })+
    };
}

replays! {
    refusals_and_evictions: "01-errors"; at least 110;
    what_evictions_take_from_a_budget: "01b-evictions-budget"; at least 20;
    an_eviction_before_the_status_of_its_budget: "01c-eviction-before-pdb-status"; at least 8;
    lists_and_watches: "02-list-watch"; at least 60;
    expired_versions: "02b-expired-and-restart"; at least 12;
    pods_that_fit_nowhere_and_new_nodes: "03-pods-scheduling", "03b-pods-new-nodes-preemption"; at least 33;
    a_node_from_its_join_to_its_removal: "04-node-join-to-removal"; at least 35;
    a_dead_node_with_pods: "04b-node-dead-with-pods"; at least 15;
    a_guest_that_reboots: "04c-node-reboot-and-reset"; at least 9;
    tokens_and_joins: "05-bootstrap-tokens-and-join"; at least 50;
    joins_that_wait: "05b-join-waits"; at least 4;
    a_join_with_an_expired_token: "05c-join-expired-token"; at least 4;
    a_drain: "06-drain", "06b-drain-kubectl"; at least 20;
    leases: "07-leases"; at least 20;
}
