//! Tests that the daemon checks for exactly the rights that the shipped manifests grant.

use std::collections::BTreeSet;

use kubernetes::Right;
use serde_json::{Value, json};

use crate::fake::{Reply, cluster};

/// Verb, group, resource, namespace.
type Tuple = (String, String, String, Option<String>);

const SHIPPED: &str = include_str!("../../../../packaging/rbac.yaml");
const FOR_CERTIFICATES: &str = include_str!("../../../../packaging/rbac-serving.yaml");

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

fn shipped(manifest: &str) -> BTreeSet<Tuple> {
    let mut rights = BTreeSet::new();
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap_or_default();
    for document in documents {
        let namespace = document["metadata"]["namespace"].as_str().map(ToOwned::to_owned);
        for rule in document["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let tuple = |verb| (verb, group.clone(), resource.clone(), namespace.clone());
                    rights.extend(texts(&rule["verbs"]).into_iter().map(tuple));
                }
            }
        }
    }
    rights
}

#[tokio::test(start_paused = true)]
async fn the_shipped_roles_grant_what_is_needed_and_nothing_else() {
    // Every kind is served.
    let (cluster, _) = cluster(|asked| match asked.path.strip_prefix("/apis/") {
        Some(version) if asked.method == "GET" => {
            let named = |name: &str| json!({ "name": name, "singularName": "", "namespaced": true, "kind": "", "verbs": [] });
            let all = ["capacitybuffers", "provisioningrequests", "podgroups"].map(named);
            Reply::Json(200, json!({ "kind": "APIResourceList", "groupVersion": version, "resources": all }))
        }
        _ => Reply::Json(201, json!({ "spec": asked.body["spec"] })),
    });
    let tuple =
        |one: Right| (one.verb.to_owned(), one.group.to_owned(), one.resource.to_owned(), one.namespace);
    let needed: BTreeSet<Tuple> = cluster.rights().await.unwrap().into_iter().map(tuple).collect();
    assert!(!needed.is_empty());
    assert_eq!(needed, shipped(SHIPPED));
    let further = cluster.serving_rights().await.unwrap();
    let to_one: Vec<_> = further.iter().filter_map(|right| Some((right.resource, right.name?))).collect();
    assert_eq!(to_one, [("signers", "kubernetes.io/kubelet-serving")]);
    let further: BTreeSet<Tuple> = further.into_iter().map(tuple).collect();
    assert_eq!(further, shipped(FOR_CERTIFICATES));
}

#[test]
fn no_shipped_role_reads_secrets_or_takes_everything() {
    for (verb, group, resource, namespace) in shipped(SHIPPED).into_iter().chain(shipped(FOR_CERTIFICATES)) {
        assert!(verb != "*" && group != "*" && resource != "*");
        if resource == "secrets" {
            assert!(["create", "delete"].contains(&verb.as_str()), "{verb} secrets in {namespace:?}");
        }
    }
}
