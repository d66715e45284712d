//! Checks `packaging/rbac.yaml`: its rights suffice, none is superfluous, and `check` names each missing one.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::real::{RBAC, Real};
use crate::shared::bench::{Bench, Kubernetes as _, POOL, cluster};
use crate::{buffers, gangs};

/// The user name by which the API server knows the daemon.
const ACCOUNT: &str = "system:serviceaccount:pve-autoscaler:pve-autoscaler";

/// One right: verb, group, resource, namespace (empty: the whole cluster).
type Right = (String, String, String, String);

/// The roles of the manifest.
fn roles() -> Vec<Value> {
    let text = std::fs::read_to_string(RBAC).unwrap();
    let documents = text.split("\n---\n").map(|one| serde_saphyr::from_str::<Value>(one).unwrap());
    let roles: Vec<Value> =
        documents.filter(|one| one["kind"] == "Role" || one["kind"] == "ClusterRole").collect();
    assert_eq!(roles.len(), 4);
    roles
}

fn words(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Every right of a role, with the index of its rule.
fn rights(role: &Value) -> Vec<(usize, Right)> {
    let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
    let mut rights = Vec::new();
    for (at, rule) in role["rules"].as_array().into_iter().flatten().enumerate() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    let right = (verb.into(), group.into(), resource.into(), namespace.into());
                    rights.push((at, right));
                }
            }
        }
    }
    rights
}

/// The role without one right. The right's rule is split into one rule for each resource.
fn without(role: &Value, at: usize, (verb, group, resource, _): &Right) -> Value {
    let mut rules = role["rules"].as_array().cloned().unwrap();
    let rule = rules.remove(at);
    for other in words(&rule["resources"]) {
        let verbs: Vec<&str> = words(&rule["verbs"]).filter(|one| other != resource || one != verb).collect();
        if !verbs.is_empty() {
            let mut part = rule.clone();
            part["resources"] = json!([other]);
            part["verbs"] = json!(verbs);
            part["apiGroups"] = json!([group]);
            rules.push(part);
        }
    }
    let mut less = role.clone();
    less["rules"] = Value::Array(rules);
    less
}

/// Returns the rights that the API server granted to the daemon, according to the audit log. If `allowed` is
/// false, returns the rights that it refused.
fn asked(events: &[Value], allowed: bool) -> BTreeSet<Right> {
    let decision = if allowed { "allow" } else { "forbid" };
    let of_daemon = events.iter().filter(|event| {
        event["user"]["username"] == ACCOUNT
            && event["annotations"]["authorization.k8s.io/decision"] == decision
            && event["objectRef"].is_object()
    });
    let named = of_daemon.map(|event| {
        let object = &event["objectRef"];
        let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
        let resource = match object["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", text("resource")),
            None => text("resource"),
        };
        (event["verb"].as_str().unwrap_or_default().to_owned(), text("apiGroup"), resource, text("namespace"))
    });
    named.collect()
}

/// Every right of the manifest is used during the life of two machines, so none is superfluous; and no call
/// is refused, so none is missing.
#[tokio::test(flavor = "multi_thread")]
async fn every_right_of_the_manifest_is_used_and_no_other_is_asked_for() {
    let Some(mut bench) = Bench::<Real>::idle(cluster(), POOL).await else { return };
    buffers::install(&bench, 0).await;
    let before = bench.kube.plane.audit().unwrap().len();
    bench.start().await;
    buffers::told(&bench, "BufferIsEmpty").await;
    buffers::answered(&bench).await;
    bench.deploy("big", 2, "1500m", "1Gi").await;
    bench.until("both run", |bench| bench.running() == 2).await;
    bench.deploy("small", 2, "200m", "256Mi").await;
    bench.until("all run", |bench| bench.running() == 4).await;
    bench.kube.scale("big", 1).await;
    bench
        .until("one node is drained and removed", |bench| bench.vms().len() == 1 && bench.running() == 3)
        .await;
    bench.kube.scale("big", 0).await;
    bench.kube.scale("small", 0).await;
    bench.until("nothing is left", Bench::is_clean).await;
    bench.stop().await;
    buffers::uninstall(&bench).await;

    let events = bench.kube.plane.audit().unwrap();
    let refused = asked(&events[before..], false);
    assert!(refused.is_empty(), "refused: {refused:?}");
    let used = asked(&events[before..], true);
    let mut superfluous = Vec::new();
    for (_, right) in roles().iter().flat_map(rights) {
        let (verb, group, resource, namespace) = &right;
        // Kubernetes 1.36 does not have this kind.
        if resource == "podgroups" && !gangs::are_served(&bench) {
            continue;
        }
        let is_used = used.iter().any(|(used_verb, used_group, used_resource, used_namespace)| {
            (used_verb, used_group, used_resource) == (verb, group, resource)
                && (namespace.is_empty() || used_namespace == namespace)
        });
        if !is_used {
            superfluous.push(right);
        }
    }
    assert!(superfluous.is_empty(), "never used: {superfluous:?}");
}

/// Each right is removed in turn, and `check` names the missing one.
#[tokio::test(flavor = "multi_thread")]
async fn check_names_each_right_that_is_missing() {
    let Some(bench) = Bench::<Real>::idle(cluster(), POOL).await else { return };
    // `check` does not test rights on kinds that the API server does not serve.
    buffers::install(&bench, 0).await;
    let good = check(&bench).await;
    assert!(good["level"] == "ok", "{good}");
    for role in &roles() {
        for (at, right) in rights(role) {
            if right.2 == "podgroups" && !gangs::are_served(&bench) {
                continue;
            }
            bench.kube.replace(&without(role, at, &right)).await;
            let (verb, group, resource, namespace) = &right;
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
            let named = format!("{verb} {resource}{group}{place}");
            // The authorizer applies a role change only after a moment.
            let mut said = check(&bench).await;
            for _ in 0..20 {
                if said["level"] != "ok" {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                said = check(&bench).await;
            }
            let text = said.to_string();
            assert!(said["level"] != "ok" && text.contains(&named), "without `{named}`: {text}");
        }
        bench.kube.replace(role).await;
    }
    buffers::uninstall(&bench).await;
}

/// The result of `check` for the rights.
async fn check(bench: &Bench<Real>) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["daemon", "--", "check", "--output", "json", "--config"]).arg(bench.file("config.toml"));
    let output = command.kill_on_drop(true).output().await.unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let lines = answer["lines"].as_array().unwrap();
    let about = lines.iter().find(|line| line["what"].as_str().unwrap().trim() == "rights");
    about.unwrap_or_else(|| panic!("`check` reports nothing about rights: {answer}")).clone()
}

/// The admission policy lets the daemon create and remove its own bootstrap tokens in `kube-system`, but no
/// other Secrets. It does not apply to other users.
#[tokio::test(flavor = "multi_thread")]
async fn the_admission_policy_keeps_the_daemon_to_its_own_bootstrap_tokens() {
    let Some(bench) = Bench::<Real>::idle(cluster(), POOL).await else { return };
    let kubeconfig = bench.file("kubeconfig");
    let secret = |name: &str, kind: &str, label: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {
                "name": name, "namespace": "kube-system", "labels": { "app.kubernetes.io/managed-by": label },
            },
            "stringData": {
                "token-id": "abcdef", "token-secret": "0123456789abcdef",
                "usage-bootstrap-authentication": "true", "expiration": "2099-01-01T00:00:00Z",
            },
        })
        .to_string()
    };
    const TOKEN: &str = "bootstrap.kubernetes.io/token";
    let programs = bench.kube.plane.programs();
    let as_daemon = async |words: &[&str], input: &str| {
        programs.run("kubectl", &[&["--kubeconfig", &kubeconfig][..], words].concat(), input).await
    };
    let refused = async |words: &[&str], input: &str, why: &str| {
        let mut said = String::new();
        // A new policy takes effect a moment later.
        for _ in 0..50 {
            said = match as_daemon(words, input).await {
                Ok(done) => format!("the call was allowed: {done}"),
                Err(error) => format!("{error:#}"),
            };
            if said.contains(why) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{words:?} {input}: {said}");
    };
    let create = ["create", "--validate=false", "-f", "-"];
    let only_tokens = "may only create and remove bootstrap tokens";
    let only_own = "may only create and remove its own bootstrap tokens";
    refused(&create, &secret("stranger", "Opaque", "pve-autoscaler"), only_tokens).await;
    refused(&create, &secret("bootstrap-token-abcdef", TOKEN, "another"), only_own).await;
    as_daemon(&create, &secret("bootstrap-token-abcdef", TOKEN, "pve-autoscaler")).await.unwrap();
    let delete = ["-n", "kube-system", "delete", "secret", "bootstrap-token-abcdef", "--wait=false"];
    as_daemon(&delete, "").await.unwrap();
    // The administrator may create other Secrets and tokens, but the daemon may not remove them.
    bench.kube.admin.apply(&secret("precious", "Opaque", "pve-autoscaler")).await.unwrap();
    refused(&["-n", "kube-system", "delete", "secret", "precious"], "", only_tokens).await;
    bench.kube.admin.apply(&secret("bootstrap-token-foreig", TOKEN, "another")).await.unwrap();
    let delete = ["-n", "kube-system", "delete", "secret", "bootstrap-token-foreig", "--wait=false"];
    refused(&delete, "", only_own).await;
    // The daemon may neither read nor change Secrets, and may not create tokens in other namespaces.
    refused(&["-n", "kube-system", "get", "secret", "precious"], "", "cannot get resource").await;
    refused(&["-n", "kube-system", "label", "secret", "precious", "a=b"], "", "cannot get resource").await;
    let elsewhere =
        secret("bootstrap-token-abcdef", TOKEN, "pve-autoscaler").replace("kube-system", "default");
    refused(&create, &elsewhere, "cannot create resource").await;
    bench.kube.admin.kubectl(&["-n", "kube-system", "delete", "secret", "precious"], "").await.unwrap();
}
