//! Clients created from a kubeconfig.

use std::time::Duration;

use kubernetes::{Cluster, ConnectOptions, ErrorKind, Watches};
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use crate::captured::captured;

fn options(context: Option<&str>) -> ConnectOptions {
    ConnectOptions {
        context: context.map(ToOwned::to_owned),
        namespace: "pve-autoscaler".to_owned(),
        request_timeout: Duration::from_secs(2),
    }
}

fn kubeconfig(ca: &str) -> SecretString {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: one\n\
         contexts:\n- name: one\n  context: {{cluster: c, user: u}}\n- name: two\n  context: {{cluster: d, user: u}}\n\
         clusters:\n- name: c\n  cluster: {{server: 'https://127.0.0.1:1'{ca}}}\n\
         - name: d\n  cluster: {{server: 'https://127.0.0.1:2'}}\n\
         users:\n- name: u\n  user: {{token: very-secret}}\n"
    )
    .into()
}

#[tokio::test]
async fn the_context_chooses_the_cluster_and_nothing_secret_is_shown() {
    for (context, server) in [(None, "https://127.0.0.1:1/"), (Some("two"), "https://127.0.0.1:2/")] {
        let cluster = Cluster::connect(&kubeconfig(""), &options(context)).await.unwrap();
        assert_eq!(cluster.server(), server);
        assert_eq!(cluster.namespace(), "pve-autoscaler");
        assert!(!format!("{cluster:?}").contains("very-secret"));
    }
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_an_error() {
    let cases = [
        ("no kubeconfig", "][".into(), None),
        ("no such context", kubeconfig(""), Some("three")),
        ("no certificate", kubeconfig(", certificate-authority-data: bm9uZQ=="), None),
    ];
    for (what, text, context) in cases {
        let error = Cluster::connect(&text, &options(context)).await.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Unusable, "{what}: {error:?}");
        assert!(!format!("{error:?}").contains("very-secret"), "{what}");
    }
}

#[tokio::test]
async fn an_api_server_that_is_not_there_is_unreachable_at_once() {
    let cluster = Cluster::connect(&kubeconfig(""), &options(None)).await.unwrap();
    let error = cluster.version().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
}

#[tokio::test]
async fn an_api_server_that_is_not_there_is_logged_once_for_all_watches() {
    let (lines, _guard) = captured(Level::INFO);
    let cluster = Cluster::connect(&kubeconfig(""), &options(None)).await.unwrap();
    let watches = Watches::start(&cluster, &CancellationToken::new());
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while watches.problems().len() < 20 && tokio::time::Instant::now() < limit {
        tokio::task::yield_now().await;
    }
    assert!(watches.problems().len() >= 20, "a problem is reported for each kind: {:?}", watches.problems());
    // Only log lines from the daemon itself are checked, not those from the client library.
    let text = lines.text();
    let own: Vec<_> = text.lines().filter(|line| line.contains("kubernetes::")).collect();
    let [text] = own[..] else { panic!("one line for all kinds: {own:#?}") };
    assert!(text.contains("the Kubernetes API server cannot be reached; retrying"), "{text}");
    assert!(text.contains("Connection refused") && !text.contains("ServiceError"), "{text}");
}
