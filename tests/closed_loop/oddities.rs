//! Adds rarely used fields to a cluster's nodes and pods. Such odd clusters are used only to compare filters.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::worlds::{Draw, HOSTNAME, ZONE};

const NAMESPACES: [&str; 3] = ["d", "e", "f"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Adds namespaces and nodes to the cluster, and rarely used fields to its nodes and to most of its pods.
pub fn add(draw: &mut Draw, cluster: &mut Cluster) {
    for (name, labels) in [("e", json!({"team": "a"})), ("f", json!({}))] {
        let metadata = json!({"name": name, "labels": labels});
        cluster.rest.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
    }
    for _ in 0..draw.of(&[0, 1, 2, 4]) {
        let pool = draw.index(cluster.pools.len());
        let name = cluster.pools[pool].name.clone();
        cluster.add(&name);
    }
    for node in &mut cluster.nodes {
        odd_node(draw, node);
    }
    let names: Vec<Value> = cluster.nodes.iter().map(|node| node["metadata"]["name"].clone()).collect();
    for pod in &mut cluster.pods {
        if draw.percent(70) {
            odd_pod(draw, pod, &names);
        }
    }
}

/// Lets time pass for pods that have been scheduled: some end, some are being deleted, some lose their node.
pub fn age(draw: &mut Draw, cluster: &mut Cluster) {
    for pod in &mut cluster.pods {
        let bound = pod["spec"]["nodeName"].is_string();
        match draw.index(20) {
            0 => pod["metadata"]["deletionTimestamp"] = json!("2026-01-15T11:59:00Z"),
            1 if bound => pod["status"]["phase"] = json!(draw.of(&["Succeeded", "Failed"])),
            2 if bound => pod["spec"]["nodeName"] = json!("gone"),
            3 if bound => pod["metadata"]["labels"] = json!({"app": "g0"}),
            _ => {}
        }
    }
}

fn odd_node(draw: &mut Draw, node: &mut Value) {
    if draw.percent(15) {
        node["spec"]["unschedulable"] = json!(true);
    }
    if draw.percent(20) {
        let key = draw.of(&["a", "b", "node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable"]);
        let effect = draw.of(&["NoSchedule", "NoExecute", "PreferNoSchedule"]);
        let taints = node["spec"]["taints"].as_array_mut().unwrap();
        taints.push(json!({"key": key, "value": draw.of(&["", "1"]), "effect": effect}));
    }
    let labels = node["metadata"]["labels"].as_object_mut().unwrap();
    for (percent, key, values) in [(20, "num", ["1", "7", "x"]), (20, "disk", ["ssd", "hdd", ""])] {
        if draw.percent(percent) {
            labels.insert(key.to_owned(), json!(draw.of(&values)));
        }
    }
    for key in [HOSTNAME, ZONE] {
        if draw.percent(10) {
            labels.remove(key);
        }
    }
    let offers = node["status"]["allocatable"].as_object_mut().unwrap();
    if draw.percent(20) {
        offers.insert("example.com/gpu".to_owned(), json!(draw.of(&["0", "1", "4"])));
    }
    if draw.percent(10) {
        offers.insert("pods".to_owned(), json!(draw.of(&["0", "1", "3"])));
    }
    if draw.percent(10) {
        offers.remove("ephemeral-storage");
    }
}

fn odd_pod(draw: &mut Draw, pod: &mut Value, nodes: &[Value]) {
    if draw.percent(50) {
        pod["metadata"]["labels"]["ver"] = json!(draw.of(&["v1", "v2"]));
    }
    if draw.percent(10) {
        pod["metadata"]["namespace"] = json!(draw.of(&NAMESPACES));
    }
    let spec = &mut pod["spec"];
    if draw.percent(25) {
        let terms: Vec<Value> = (0..draw.of(&[1, 1, 2])).map(|_| node_term(draw, nodes)).collect();
        spec["affinity"]["nodeAffinity"] = json!({REQUIRED: {"nodeSelectorTerms": terms}});
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        if draw.percent(20) {
            let terms: Vec<Value> = (0..draw.of(&[1, 1, 2])).map(|_| pod_term(draw)).collect();
            spec["affinity"][kind] = json!({REQUIRED: terms});
        }
    }
    if draw.percent(30) {
        let mut keys = [HOSTNAME, ZONE, "disk", "tier"];
        draw.shuffle(&mut keys);
        let all: Vec<Value> = keys.iter().take(draw.of(&[1, 1, 2])).map(|key| spread(draw, key)).collect();
        spec["topologySpreadConstraints"] = json!(all);
    }
    if draw.percent(25) {
        let key = draw.of(&["a", "b", "dedicated", "node.kubernetes.io/not-ready"]);
        spec["tolerations"] = draw.of(&[
            || json!([{"operator": "Exists"}]),
            || json!([{"key": "a", "value": "1", "effect": "NoSchedule"}]),
        ])();
        if draw.percent(60) {
            spec["tolerations"] = json!([{"key": key, "operator": "Exists"}]);
        }
    }
    odd_container(draw, spec);
}

fn odd_container(draw: &mut Draw, spec: &mut Value) {
    if draw.percent(20) {
        let port = draw.of(&[80, 80, 81]);
        let ip = draw.of(&["0.0.0.0", "127.0.0.1", "10.0.0.1", "::"]);
        let mut port = json!({"containerPort": port, "hostPort": port, "protocol": draw.of(&["TCP", "UDP"])});
        if draw.percent(60) {
            port["hostIP"] = json!(ip);
        }
        spec["containers"][0]["ports"] = json!([port]);
    }
    if draw.percent(10) {
        spec["containers"][0]["resources"]["limits"]["example.com/gpu"] = json!(draw.of(&["1", "2"]));
    }
    if draw.percent(10) {
        spec["containers"][0]["resources"]["requests"]["ephemeral-storage"] =
            json!(draw.of(&["1Gi", "60Gi"]));
    }
    if draw.percent(10) {
        let mut init = json!({"name": "i", "image": "i", "resources": {"requests": {"cpu": draw.of(&["100m", "2"]), "memory": "1Gi"}}});
        if draw.percent(50) {
            init["restartPolicy"] = json!("Always");
        }
        spec["initContainers"] = json!([init]);
    }
    if draw.percent(10) {
        spec["overhead"] = json!({"cpu": "250m", "memory": "100Mi"});
    }
    if draw.percent(7) {
        spec["resources"][draw.of(&["requests", "limits"])] =
            json!({"cpu": draw.of(&["1", "3"]), "memory": "4Gi"});
    }
}

fn node_term(draw: &mut Draw, nodes: &[Value]) -> Value {
    let key = draw.of(&["num", "disk", "tier", ZONE]);
    let expression = match draw.of(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]) {
        with @ ("In" | "NotIn") => {
            json!({"key": key, "operator": with, "values": [draw.of(&["1", "ssd", "t0"]), draw.of(&["7", "", "z1", "-x"])]})
        }
        than @ ("Gt" | "Lt") => {
            json!({"key": "num", "operator": than, "values": [draw.of(&["0", "4", "9", "-5"])]})
        }
        alone => json!({"key": key, "operator": alone}),
    };
    let mut term = json!({"matchExpressions": [expression]});
    if draw.percent(20) && !nodes.is_empty() {
        let name = nodes[draw.index(nodes.len())].clone();
        let operator = draw.of(&["In", "NotIn"]);
        term["matchFields"] = json!([{"key": "metadata.name", "operator": operator, "values": [name]}]);
    }
    term
}

fn selector(draw: &mut Draw) -> Value {
    let mut selector = json!({});
    if draw.percent(60) {
        selector["matchLabels"] = json!({"app": draw.of(&["g0", "g1", "g2"])});
    }
    if draw.percent(50) {
        let expression = match draw.of(&["In", "NotIn", "Exists", "DoesNotExist"]) {
            with @ ("In" | "NotIn") => json!({"key": "ver", "operator": with, "values": ["v1", "v3"]}),
            alone => json!({"key": "ver", "operator": alone}),
        };
        selector["matchExpressions"] = json!([expression]);
    }
    selector
}

fn pod_term(draw: &mut Draw) -> Value {
    let mut term = json!({"topologyKey": draw.of(&[HOSTNAME, HOSTNAME, ZONE, "disk", "nowhere"])});
    if draw.percent(90) {
        term["labelSelector"] = selector(draw);
    }
    if draw.percent(30) {
        term["namespaces"] = json!([draw.of(&NAMESPACES), "nowhere"]);
    }
    if draw.percent(30) {
        term["namespaceSelector"] = draw.of(&[
            || json!({}),
            || json!({"matchLabels": {"team": "a"}}),
            || json!({"matchLabels": {"kubernetes.io/metadata.name": "f"}}),
        ])();
    }
    term
}

fn spread(draw: &mut Draw, key: &str) -> Value {
    let mut one = json!({"topologyKey": key, "maxSkew": draw.of(&[1, 1, 2, 3]), "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector(draw)});
    if draw.percent(30) {
        one["minDomains"] = json!(draw.of(&[1, 2, 5]));
    }
    if draw.percent(30) {
        one["nodeAffinityPolicy"] = json!(draw.of(&["Honor", "Ignore"]));
    }
    if draw.percent(30) {
        one["nodeTaintsPolicy"] = json!(draw.of(&["Honor", "Ignore"]));
    }
    if draw.percent(20) && one["labelSelector"].get("matchExpressions").is_none() {
        one["matchLabelKeys"] = json!(["ver"]);
    }
    one
}
