//! Bootstrap tokens and the ConfigMap `cluster-info`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kubernetes::{EntropyError, ErrorKind};
use runtime::clock::TokioClock;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::Level;

use crate::captured::captured;
use crate::fake::{Reply, cluster, refusal};

/// A source of bytes that counts upwards from 250, so that the bytes that must be discarded come early.
fn counting() -> impl Fn(&mut [u8]) -> Result<(), EntropyError> {
    |bytes| {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from((250 + at) % 256).unwrap();
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_authenticates_signs_and_ends() {
    let (cluster, log) = cluster(|asked| Reply::Json(201, asked.body.clone()));
    let clock = TokioClock::starting_at("2026-11-21T01:00:00.5Z".parse().unwrap());
    let cluster = cluster.with_clock(Arc::new(clock)).with_entropy(Arc::new(counting()));
    let token = cluster.draw_token(Duration::from_mins(30)).unwrap();
    cluster.create_token(&token, "machine web-x7k2").await.unwrap();
    // Bytes 250 and 251 are the last usable ones and give `8` and `9`; 252 to 255 are discarded, and 0, 1, 2
    // … give `a`, `b`, `c` …
    assert_eq!(token.id, "89abcd");
    assert_eq!(token.joined().expose_secret(), "89abcd.89abcdefghijklmn");
    let asked = log.last();
    assert_eq!((asked.method, asked.path.as_str()), (Method::POST, "/api/v1/namespaces/kube-system/secrets"));
    assert_eq!(asked.body["type"], "bootstrap.kubernetes.io/token");
    assert_eq!(asked.body["metadata"]["name"], "bootstrap-token-89abcd");
    let expected = json!({
        "token-id": "89abcd",
        "token-secret": "89abcdefghijklmn",
        "description": "machine web-x7k2",
        "expiration": "2026-11-21T01:30:00Z",
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
    });
    assert_eq!(asked.body["stringData"], expected);
    let shown = format!("{token:?}");
    assert!(!shown.contains("efghijklmn"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn ids_of_the_real_source_differ_and_are_well_formed() {
    let (cluster, _) = cluster(|asked| Reply::Json(201, asked.body.clone()));
    let one = cluster.draw_token(Duration::from_mins(1)).unwrap();
    let two = cluster.draw_token(Duration::from_mins(1)).unwrap();
    assert_ne!(one.secret.expose_secret(), two.secret.expose_secret());
    for (text, length) in [(one.id.as_str(), 6), (one.secret.expose_secret(), 16)] {
        assert_eq!(text.len(), length);
        assert!(text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_id_can_be_deleted_and_a_token_that_is_gone_is_no_error() {
    let (cluster, log) = cluster(|_| refusal(404, "NotFound", "not found"));
    cluster.delete_token("abc123").await.unwrap();
    assert_eq!(log.last().path, "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abc123");
    for wrong in ["", "ABC123", "../../x", "abc1234"] {
        assert_eq!(cluster.delete_token(wrong).await.unwrap_err().kind(), ErrorKind::Unusable, "{wrong}");
    }
    assert_eq!(log.all().len(), 1);
}

fn info(keys: &[&str]) -> Value {
    let mut data = json!({ "kubeconfig": "" });
    for key in keys {
        data[key] = json!("x..y");
    }
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cluster-info" }, "data": data })
}

#[tokio::test(start_paused = true)]
async fn the_signature_is_waited_for_and_not_for_ever() {
    let begun = Instant::now();
    let (cluster, _) = cluster(move |_| match begun.elapsed().as_secs() {
        0 => Reply::Json(200, info(&["jws-kubeconfig-other1"])),
        1 => Reply::Refused,
        _ => Reply::Json(200, info(&["jws-kubeconfig-abc123"])),
    });
    cluster.wait_for_signature("abc123", Duration::from_secs(10)).await.unwrap();
    let error = cluster.wait_for_signature("never1", Duration::from_secs(10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(15));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_info_without_a_ca_is_refused() {
    for text in ["", "clusters: []", "clusters: [{name: a, cluster: {server: https://x}}]", "{"] {
        let map = json!({ "metadata": {}, "data": { "kubeconfig": text } });
        let (cluster, _) = cluster(move |_| Reply::Json(200, map.clone()));
        assert_eq!(cluster.cluster_info().await.unwrap_err().kind(), ErrorKind::Unusable, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorded_cluster_info_gives_the_hash_that_kubeadm_accepted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/kubernetes/recordings/05-bootstrap-tokens-and-join.json");
    let Ok(text) = fs::read_to_string(&path) else {
        println!("skipped: {} is absent", path.display());
        return;
    };
    let recording: Value = serde_json::from_str(&text).unwrap();
    let body = recording["exchanges"][0]["body"].clone();
    let (cluster, _) = cluster(move |_| Reply::Json(200, body.clone()));
    let info = cluster.cluster_info().await.unwrap();
    assert!(info.ca_pem.starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(text.contains(&info.ca_hash), "no join was recorded with {}", info.ca_hash);
    assert!(info.server.starts_with("https://"));
}

#[tokio::test(start_paused = true)]
async fn a_tokens_secret_is_never_logged_not_even_from_an_answer_that_cannot_be_read() {
    let (lines, _guard) = captured(Level::TRACE);
    for code in [201, 409, 500] {
        let (cluster, log) =
            cluster(move |asked| Reply::Json(code, json!({ "kind": 7, "metadata": asked.query })));
        let cluster = cluster.with_entropy(Arc::new(counting()));
        let minted = cluster.create_token(&cluster.draw_token(Duration::from_mins(1)).unwrap(), "a").await;
        assert_eq!(minted.is_ok(), code == 201, "{code}");
        assert!(log.last().body["stringData"]["token-secret"] == "89abcdefghijklmn");
    }
    let (cluster, _) = cluster(|asked| Reply::Json(201, json!({ "kind": 7, "echo": asked.body })));
    let cluster = cluster.with_entropy(Arc::new(counting()));
    cluster.create_token(&cluster.draw_token(Duration::from_mins(1)).unwrap(), "a").await.unwrap();
    tracing::info!("a line that proves that lines are captured");
    let text = lines.text();
    assert!(text.contains("lines are captured"));
    assert!(!text.contains("89abcdefghijklmn"), "{text}");
}
