//! The shipped rights are sufficient, and none is superfluous. With all rights, the scenario succeeds.
//! Without any single right of `packaging/rbac.yaml` or any single privilege of `packaging/proxmox-setup.sh`,
//! something fails or is reported as a problem.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use world::kubernetes::spec::{KubeSpec, ServiceAccountSpec};
use world::proxmox::spec::{ClusterSpec, Grant};

use crate::openmetrics::read;
use crate::stage::{ONE_POOL, Stage};
use crate::{buffers, requests};

const ACCOUNT: &str = "system:serviceaccount:pve-autoscaler:pve-autoscaler";
const MANIFEST: &str = include_str!("../../packaging/rbac.yaml");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/proxmox-setup.sh");

/// The manifest's Roles and ClusterRoles, and their bindings.
fn manifest() -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(MANIFEST).unwrap();
    let about_roles = |one: &Value| one["apiVersion"] == "rbac.authorization.k8s.io/v1";
    documents.into_iter().filter(about_roles).collect()
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(String::from).collect()
}

/// For each right in the manifest, its name and the manifest without it.
pub fn without_each(manifest: &[Value]) -> Vec<(String, Vec<Value>)> {
    let mut variants = Vec::new();
    for (document, role) in manifest.iter().enumerate() {
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        for (at, rule) in rules.iter().enumerate() {
            for (resource, verb) in pairs(rule) {
                let mut less = rules.clone();
                let taken = less.remove(at);
                less.extend(
                    pairs(&taken).into_iter().filter(|one| *one != (resource.clone(), verb.clone())).map(
                        |(resource, verb)| {
                            let mut rule = taken.clone();
                            rule["resources"] = json!([resource]);
                            rule["verbs"] = json!([verb]);
                            rule
                        },
                    ),
                );
                let mut changed = manifest.to_vec();
                changed[document]["rules"] = Value::Array(less);
                let place = role["metadata"]["namespace"].as_str().unwrap_or("all");
                variants.push((format!("{verb} {resource} in {place}"), changed));
            }
        }
    }
    variants
}

fn pairs(rule: &Value) -> Vec<(String, String)> {
    let resources = words(&rule["resources"]);
    let of = |resource: String| words(&rule["verbs"]).into_iter().map(move |verb| (resource.clone(), verb));
    resources.into_iter().flat_map(of).collect()
}

/// The roles with their privileges, and the paths on which they are granted, as printed by the script's dry
/// run.
fn script() -> (BTreeMap<String, Vec<String>>, Vec<Grant>) {
    let options = ["--pool", "k8s-workers", "--template", "9000", "--storage", "shared", "--bridge", "vmbr0"];
    let output =
        std::process::Command::new("sh").arg(SCRIPT).arg("--dry-run").args(options).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut roles = BTreeMap::new();
    let mut grants = Vec::new();
    for line in text.lines() {
        let plain = line.replace('\'', "");
        if let Some((role, privileges)) =
            plain.strip_prefix("pveum role add ").and_then(|rest| rest.split_once(" --privs "))
        {
            roles.insert(role.to_owned(), privileges.split(' ').map(String::from).collect());
        }
        let words: Vec<&str> = plain.split(' ').collect();
        if let [
            "pveum",
            "acl",
            "modify",
            path,
            "--users",
            user,
            "--tokens",
            token,
            "--roles",
            role,
            _,
            propagate,
        ] = words[..]
        {
            for who in [user, token] {
                let (path, who, role) = (path.to_owned(), who.to_owned(), role.to_owned());
                grants.push(Grant { path, who, role, propagate: propagate == "1" });
            }
        }
    }
    assert!(roles.len() == 5 && grants.len() == 10, "{text}");
    (roles, grants)
}

/// A stage in which the daemon has exactly these rights.
fn stage(rights: &[Value], roles: BTreeMap<String, Vec<String>>, grants: Vec<Grant>) -> Stage {
    let account = ServiceAccountSpec {
        name: ACCOUNT.to_owned(),
        token: KubeSpec::DEMO_ADMIN_TOKEN.to_owned(),
        rules: Vec::new(),
    };
    let admin_token = "not-known-here".to_owned();
    let kube =
        KubeSpec { admin_token, service_accounts: vec![account], pod_groups: true, ..KubeSpec::demo() };
    let mut cluster = ClusterSpec::demo();
    cluster.access.roles = roles;
    cluster.access.grants = grants;
    // A size other than the template's, so that everything has to be set.
    let text = ONE_POOL
        .replace("cores = 2", "cores = 3")
        .replace("memory = \"4GiB\"", "memory = \"5GiB\"")
        .replace("[[pool]]", "[scale_down]\nunneeded_time = \"30s\"\ndelay_after_add = \"0s\"\n[[pool]]")
        + "disk = \"20GiB\"\nuser = \"keeper\"\ntags = [\"kubernetes\"]\n";
    let stage = Stage::of(&text, cluster, kube);
    for object in rights {
        stage.kube.apply(object).unwrap();
    }
    // The buffer is read and its state is reported, but no machine is created for it.
    buffers::install(&stage);
    stage.kube.apply(&buffers::template("chunk", "1")).unwrap();
    let spec = json!({ "podTemplateRef": { "name": "chunk" }, "replicas": 0 });
    stage.kube.apply(&buffers::buffer("empty", spec)).unwrap();
    requests::install(&stage);
    stage.kube.apply(&requests::request("huge", requests::CHECK, "chunk", 99)).unwrap();
    stage
}

/// What an operator sees during one run of [`life`].
#[derive(Debug)]
struct ClusterResources {
    /// The first expectation that was not met.
    failed: Option<&'static str>,
    /// The problems that the status showed.
    problems: BTreeSet<String>,
}

impl ClusterResources {
    fn is_well(&self) -> bool {
        self.failed.is_none() && self.problems.is_empty()
    }

    /// Waits until the condition is met. If this takes too long, records the failure.
    async fn comes(&mut self, stage: &Stage, failure: &'static str, is_so: impl Fn(&Stage) -> bool) -> bool {
        let end = Instant::now() + Duration::from_mins(8);
        while self.failed.is_none() {
            let problems = stage.status().problems;
            self.problems.extend(problems.into_iter().map(|(about, what)| format!("{about}: {what}")));
            if is_so(stage) {
                return true;
            }
            if Instant::now() > end {
                self.failed = Some(failure);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        false
    }
}

/// A pool grows by two nodes. One of them is drained and removed because the other has room. Then the other
/// is removed, too.
async fn life(mut stage: Stage) -> ClusterResources {
    let mut seen = ClusterResources { failed: None, problems: BTreeSet::new() };
    stage.start();
    seen.comes(&stage, "the daemon is not ready", |stage| stage.status().ready).await;
    stage.deploy("big", 2, "2500m", "1Gi");
    seen.comes(&stage, "no nodes come", |stage| stage.running_pods() == 2).await;
    let records = |stage: &Stage| stage.leftovers().iter().all(|name| name.starts_with("machine-"));
    seen.comes(&stage, "tokens stay", records).await;
    stage.deploy("small", 2, "200m", "256Mi");
    seen.comes(&stage, "no pods come", |stage| stage.running_pods() == 4).await;
    stage.kube.scale("default", "big", 1);
    let moved = |stage: &Stage| stage.vms(9100..=9109).len() == 1 && stage.running_pods() == 3;
    seen.comes(&stage, "no node is drained", moved).await;
    stage.kube.scale("default", "big", 0);
    stage.kube.scale("default", "small", 0);
    let clean = |stage: &Stage| stage.vms(9100..=9109).is_empty() && stage.leftovers().is_empty();
    seen.comes(&stage, "something is left", clean).await;
    let measured = |stage: &Stage| {
        let families = read(&stage.board().metrics().encode(&stage.status()).unwrap());
        families.contains_key("pve_autoscaler_host_storage_bytes")
    };
    seen.comes(&stage, "no storage is seen", measured).await;
    let shown = |stage: &Stage| {
        let buffer = stage.kube.get("CapacityBuffer", "default", "empty").unwrap();
        let answered = requests::says(stage, "huge", "Provisioned", "False", "CapacityIsNotFound");
        buffer["status"]["replicas"] == 0 && answered
    };
    seen.comes(&stage, "no buffer is shown", shown).await;
    let told = |stage: &Stage| stage.kube.list("Event").iter().any(|event| is_ours(event));
    seen.comes(&stage, "no event is written", told).await;
    seen
}

fn is_ours(event: &Value) -> bool {
    event["reportingComponent"] == "pve-autoscaler"
}

/// Creates a stage inside a runtime.
type Make = Box<dyn FnOnce() -> Stage + Send>;

/// Runs [`life`] once for each variant, each time in a separate world. Several variants run at a time.
fn play(variants: Vec<(String, Make)>) -> BTreeMap<String, ClusterResources> {
    let todo = Mutex::new(variants.into_iter());
    let done = Mutex::new(BTreeMap::new());
    let next = || todo.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((name, make)) = next() {
                    let mut builder = tokio::runtime::Builder::new_current_thread();
                    let runtime = builder.enable_all().start_paused(true).build().unwrap();
                    let seen = runtime.block_on(async move { life(make()).await });
                    done.lock().unwrap().insert(name, seen);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

#[test]
fn a_life_goes_wrong_without_any_single_right_of_the_shipped_manifest() {
    let (roles, grants) = script();
    let all = manifest();
    let mut variants: Vec<(String, Vec<Value>)> = without_each(&all);
    variants.push(("nothing".to_owned(), all));
    let make = |(name, rights): (String, Vec<Value>)| {
        let (roles, grants) = (roles.clone(), grants.clone());
        let make: Make = Box::new(move || stage(&rights, roles, grants));
        (name, make)
    };
    judge(play(variants.into_iter().map(make).collect()));
}

#[test]
fn a_life_goes_wrong_without_any_single_privilege_of_the_shipped_roles() {
    let (roles, grants) = script();
    let mut variants = vec![("nothing".to_owned(), roles.clone())];
    for (role, privileges) in &roles {
        // `Pool.Audit` is for `adopt`, which `life` does not run.
        for privilege in privileges.iter().filter(|one| *one != "Pool.Audit") {
            let mut less = roles.clone();
            less.get_mut(role).unwrap().retain(|one| one != privilege);
            variants.push((format!("{privilege} in {role}"), less));
        }
    }
    let make = |(name, roles): (String, BTreeMap<String, Vec<String>>)| {
        let grants = grants.clone();
        let make: Make = Box::new(move || stage(&manifest(), roles, grants));
        (name, make)
    };
    judge(play(variants.into_iter().map(make).collect()));
}

/// Asserts that there are no problems with all rights, and that there is a problem if any single right is
/// missing.
fn judge(mut lives: BTreeMap<String, ClusterResources>) {
    let complete = lives.remove("nothing").unwrap();
    assert!(complete.is_well(), "with all shipped rights: {complete:?}");
    let superfluous: Vec<&String> =
        lives.iter().filter(|(_, seen)| seen.is_well()).map(|(name, _)| name).collect();
    assert!(superfluous.is_empty(), "not needed: {superfluous:?}");
}
