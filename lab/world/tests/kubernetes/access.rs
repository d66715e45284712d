//! Bootstrap tokens, joins, and rights.

use serde_json::{Value, json};
use world::guest::control_plane::{ControlPlane, JoinRequest};

use super::client::{Client, join, seconds, token};

#[tokio::test(start_paused = true)]
async fn a_token_is_signed_and_lets_in_as_its_secret_says() {
    let signed = "jws-kubeconfig-aaaaaa";
    type Changes = &'static [(&'static str, Option<&'static str>)];
    let table: [(Changes, bool, u16, &str); 8] = [
        (&[], true, 200, "as kubeadm makes it"),
        (&[("usage-bootstrap-signing", None)], false, 200, "not for signing"),
        (&[("usage-bootstrap-authentication", Some("false"))], true, 401, "not for authentication"),
        (&[("expiration", Some("2026-11-21T01:00:00Z"))], true, 200, "not expired"),
        (&[("expiration", Some("2026-11-20T00:00:00Z"))], false, 401, "expired"),
        (&[("expiration", Some("tomorrow"))], false, 401, "an expiration that cannot be read"),
        (&[("auth-extra-groups", Some("others"))], true, 401, "a group without the required prefix"),
        (&[("auth-extra-groups", None)], true, 403, "without the group of new nodes"),
    ];
    for (changes, is_signed, status, case) in table {
        let client = Client::new(&[]);
        client.apply(&token("aaaaaa", changes));
        seconds(0.1).await;
        let info =
            client.with_token("unknown").kube.get("ConfigMap", "kube-public", "cluster-info").expect("there");
        assert_eq!(info["data"].get(signed).is_some(), is_signed, "{case}");
        let bearer = client.with_token("aaaaaa.0123456789abcdef");
        let path = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";
        assert_eq!(bearer.call("GET", path, Value::Null).await.0, status, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_goes_when_it_expires_and_its_signature_with_it() {
    let client = Client::new(&[]);
    client.apply(&token("aaaaaa", &[("expiration", Some("2026-11-21T00:00:30Z"))]));
    let is_there = || client.kube.get("Secret", "kube-system", "bootstrap-token-aaaaaa").is_some();
    let is_signed = || {
        let info = client.kube.get("ConfigMap", "kube-public", "cluster-info").expect("there");
        info["data"].get("jws-kubeconfig-aaaaaa").is_some()
    };
    seconds(29.0).await;
    assert!(is_there() && is_signed());
    seconds(1.1).await;
    assert!(!is_there() && !is_signed());
}

#[tokio::test(start_paused = true)]
async fn joins_fail_at_once_or_after_kubeadms_patience() {
    type Change = fn(&mut JoinRequest);
    let table: [(Change, &str, f64); 5] = [
        (|_| {}, "", 0.0),
        (|join| join.token = "bbbbbb.0123456789abcdef".into(), "could not find a JWS signature", 302.0),
        (|join| join.token = "aaaaaa.wrongwrongwrong1".into(), "could not find a JWS signature", 302.0),
        (|join| join.api_server = "10.10.10.9:6443".into(), "connection refused", 302.0),
        (|join| join.ca_cert_hashes = vec!["sha256:11".into()], "none of the public keys", 0.0),
    ];
    for (change, expected, least) in table {
        let client = Client::new(&[]);
        client.apply(&token("aaaaaa", &[]));
        seconds(0.1).await;
        let mut request = join("w1", "aaaaaa");
        change(&mut request);
        let began = tokio::time::Instant::now();
        let ended = client.kube.join(request).await;
        let stderr = ended.as_ref().err().map_or("", |failure| failure.stderr.as_str());
        assert_eq!(ended.is_ok(), expected.is_empty(), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(began.elapsed().as_secs_f64() >= least, "{expected}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_join_waits_for_its_signature_and_is_refused_the_name_of_a_ready_node() {
    let client = Client::new(&["w1"]);
    let kube = client.kube.clone();
    let waiting = tokio::spawn(async move { kube.join(join("w2", "aaaaaa")).await });
    seconds(20.0).await;
    client.apply(&token("aaaaaa", &[]));
    assert!(waiting.await.expect("ended").is_ok());
    let refused = client.kube.join(join("w1", "aaaaaa")).await.expect_err("taken");
    assert!(refused.stderr.contains("a Node with name \"w1\" and status \"Ready\" already exists"));
    assert_eq!(refused.exit_code, 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_account_may_do_what_its_roles_say() {
    let client = Client::new(&["w1"]);
    let bot = client.with_token("bot");
    let subjects = json!([{ "kind": "ServiceAccount", "name": "bot", "namespace": "default" }]);
    let rules = |group: &str, resources: &[&str], verbs: &[&str], names: &[&str]| json!([{ "apiGroups": [group], "resources": resources, "verbs": verbs, "resourceNames": names }]);
    let made = [
        json!({ "kind": "ClusterRole", "metadata": { "name": "nodes" }, "rules": rules("", &["nodes"], &["list", "get"], &[]) }),
        json!({
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "nodes" },
            "subjects": subjects,
            "roleRef": { "kind": "ClusterRole", "name": "nodes" },
        }),
        json!({
            "kind": "Role",
            "metadata": { "name": "maps", "namespace": "kube-system" },
            "rules": rules("", &["configmaps"], &["get"], &["kubeadm-config"]),
        }),
        json!({
            "kind": "RoleBinding",
            "metadata": { "name": "maps", "namespace": "kube-system" },
            "subjects": subjects,
            "roleRef": { "kind": "Role", "name": "maps" },
        }),
    ];
    assert_eq!(bot.call("GET", "/api/v1/nodes", Value::Null).await.0, 403, "before the rights are granted");
    for object in &made {
        client.apply(object);
    }
    let table = [
        ("GET", "/api/v1/nodes", 200),
        ("GET", "/api/v1/nodes/w1", 200),
        ("GET", "/api/v1/nodes?watch=1&timeoutSeconds=1", 403),
        ("DELETE", "/api/v1/nodes/w1", 403),
        ("GET", "/api/v1/namespaces/kube-system/configmaps/kubeadm-config", 200),
        ("GET", "/api/v1/namespaces/kube-system/configmaps/kubelet-config", 403),
        ("GET", "/api/v1/namespaces/kube-system/configmaps", 403),
        // kubeadm grants this right only to clients that do not authenticate.
        ("GET", "/api/v1/namespaces/kube-public/configmaps/cluster-info", 403),
    ];
    for (method, path, expected) in table {
        assert_eq!(bot.call(method, path, Value::Null).await.0, expected, "{method} {path}");
    }
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, resource, allowed) in
        [("list", "nodes", true), ("delete", "nodes", false), ("list", "pods", false)]
    {
        let review = json!({ "spec": { "resourceAttributes": { "verb": verb, "resource": resource } } });
        let (status, answer) = bot.call("POST", reviews, review).await;
        assert_eq!((status, &answer["status"]["allowed"]), (201, &json!(allowed)), "{verb} {resource}");
    }
    assert_eq!(client.with_token("stranger").call("GET", "/api/v1/nodes", Value::Null).await.0, 401);
}
