//! The metrics of a daemon that runs as a separate process, read over HTTP as Prometheus reads them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic on unexpected results"
)]

#[path = "lab/bench.rs"]
mod bench;
mod lab;
#[path = "lab/openmetrics.rs"]
mod openmetrics;

use std::process::Stdio;
use std::time::Duration;

use bench::{Bench, no_secret_in};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// A time limit, far longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(30);

/// Metrics that are on the page once a round has read both clusters. Some are measured during the round,
/// others are published after it.
const SEEN: [&str; 3] =
    ["pve_autoscaler_nodes{", "pve_autoscaler_host_memory_bytes{", "pve_autoscaler_pool_max_nodes{"];

/// A daemon, and the address of its metrics.
struct Served {
    address: String,
    daemon: Child,
}

async fn start(bench: &Bench) -> Served {
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .args(["run", "--config", &bench.path("config.toml").display().to_string()])
        .args(["--socket", &bench.path("control.sock").display().to_string()])
        .env_remove("RUST_LOG")
        .env_remove("JOURNAL_STREAM")
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(daemon.stderr.take().unwrap()).lines();
    let reading = async {
        while let Some(line) = log.next_line().await.unwrap() {
            if let Some((_, address)) = line.split_once("metrics are served address=") {
                return address.trim().to_owned();
            }
        }
        panic!("the daemon did not log the address of its metrics");
    };
    let address = tokio::time::timeout(LONG, reading).await.unwrap();
    tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    Served { address, daemon }
}

impl Served {
    /// The head and body of a response.
    async fn get(&self, path: &str) -> (String, String) {
        let asking = async {
            let mut stream = TcpStream::connect(&self.address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::time::timeout(LONG, asking).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Repeats the request until the response meets the condition.
    async fn until(&self, path: &str, is_so: impl Fn(&str, &str) -> bool) -> (String, String) {
        let asking = async {
            loop {
                let (head, body) = self.get(path).await;
                if is_so(&head, &body) {
                    return (head, body);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(LONG, asking).await.unwrap()
    }
}

/// The names and labels that `docs/reference/metrics.md` lists.
fn documented() -> Vec<(String, String, Vec<String>)> {
    let page = include_str!("../docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let labels = cells[2].split(", ").map(|label| label.trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.trim().is_empty()).collect();
        (cells[0].trim_end_matches('`').to_owned(), cells[1].to_owned(), labels)
    })
    .collect()
}

#[tokio::test]
async fn every_line_is_well_formed_and_every_family_documented() {
    let bench = Bench::demo().await;
    let served = start(&bench).await;
    let (head, body) = served.until("/metrics", |_, body| SEEN.iter().all(|one| body.contains(one))).await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text"), "{head}");
    no_secret_in(&body);
    let families = openmetrics::read(&body);
    let documented = documented();
    assert!(documented.len() > 40);
    for (name, family) in &families {
        let full = if family.kind == "counter" { format!("{name}_total") } else { name.clone() };
        if name.starts_with("process_") {
            assert!(
                include_str!("../docs/reference/metrics.md").contains(&format!("`{full}`")),
                "{full} is not documented"
            );
            continue;
        }
        let row = documented.iter().find(|(documented, ..)| *documented == full);
        let (_, kind, labels) = row.unwrap_or_else(|| panic!("{full} is not documented"));
        assert_eq!(*kind, family.kind, "{name}");
        assert!(family.labels.iter().all(|label| labels.contains(label)), "{name}: {:?}", family.labels);
    }
    let value = |family: &str, suffix: &str, labels: &str| {
        families[&format!("pve_autoscaler_{family}")].value(suffix, labels)
    };
    assert_eq!(value("ready", "", ""), Some(1.0));
    assert_eq!(value("leader", "", ""), Some(1.0));
    assert_eq!(value("pool_max_nodes", "", "{pool=\"workers\"}"), Some(3.0));
    assert!(value("calls", "_total", "{api=\"proxmox\",outcome=\"Ok\"}") > Some(0.0), "{body}");
    assert!(value("calls", "_total", "{api=\"kubernetes\",outcome=\"Ok\"}") > Some(0.0), "{body}");
    assert!(value("host_memory_bytes", "", "{host=\"pve1\"}") > Some(0.0), "{body}");
    if let Some(file) = std::env::var_os("KEEP_METRICS") {
        std::fs::write(file, &body).unwrap();
    }
}

/// Asserts that the served page contains the family of each metric that the alerts and the dashboard query. A
/// family may have no samples yet.
#[tokio::test]
async fn alerts_and_dashboard_find_what_they_ask_for() {
    let bench = Bench::demo().await;
    let served = start(&bench).await;
    let (_, body) = served.until("/metrics", |_, body| SEEN.iter().all(|one| body.contains(one))).await;
    let families = openmetrics::read(&body);
    let part = |c: char| c.is_ascii_lowercase() || c == '_';
    for text in [
        include_str!("../packaging/prometheus/alerts.yaml"),
        include_str!("../packaging/grafana/dashboard.json"),
    ] {
        let named = text.match_indices("pve_autoscaler_").map(|(at, _)| &text[at..]);
        let named = named.map(|rest| rest.split(|c| !part(c)).next().unwrap());
        let named: std::collections::BTreeSet<&str> = named.collect();
        assert!(named.len() > 5, "{named:?}");
        for name in named {
            let family = name.trim_end_matches("_total").trim_end_matches("_bucket");
            assert!(families.contains_key(family), "{name} is not served: {body}");
        }
    }
    let Ok(promtool) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        eprintln!("skipped: promtool is not installed");
        return;
    };
    // `promtool` reads the older text format. It has neither units nor an end marker, and its comment lines
    // contain the full names of counters, with `_total`.
    let older: String = body.lines().filter_map(|line| older(line, &families)).collect();
    let mut promtool = promtool;
    promtool.stdin.take().unwrap().write_all(older.as_bytes()).await.unwrap();
    let said = tokio::time::timeout(LONG, promtool.wait_with_output()).await.unwrap().unwrap();
    let said = [said.stdout, said.stderr].concat();
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// Converts an OpenMetrics line to Prometheus' own text format. Returns `None` if that format has no such
/// line.
fn older(line: &str, families: &openmetrics::Families) -> Option<String> {
    if line.starts_with("# EOF") || line.starts_with("# UNIT") {
        return None;
    }
    let mut words: Vec<&str> = line.splitn(4, ' ').collect();
    let whole = format!("{}_total", words.get(2).copied().unwrap_or_default());
    if line.starts_with("# ") && families[words[2]].kind == "counter" {
        words[2] = &whole;
    }
    Some(format!("{}\n", words.join(" ")))
}

#[tokio::test]
async fn it_is_ready_when_both_clusters_were_seen_and_healthy_before() {
    let bench = Bench::demo().await;
    let kubeconfig = std::fs::read_to_string(bench.path("kubeconfig")).unwrap();
    bench.kubeconfig("127.0.0.1:1");
    let mut served = start(&bench).await;
    let (head, body) = served.get("/readyz").await;
    assert!(
        head.starts_with("HTTP/1.1 503") && body.contains("waiting until both clusters"),
        "{head}\n{body}"
    );
    assert!(served.get("/healthz").await.0.starts_with("HTTP/1.1 200"));
    let (_, body) = served.get("/metrics").await;
    assert!(body.contains("pve_autoscaler_ready 0"), "{body}");
    openmetrics::read(&body);
    // This daemon must end before the next one can take the control socket.
    served.daemon.kill().await.unwrap();
    bench.write("kubeconfig", &kubeconfig, 0o600);
    let served = start(&bench).await;
    served.until("/readyz", |head, _| head.starts_with("HTTP/1.1 200")).await;
}

#[tokio::test]
async fn a_reload_switches_them_off() {
    let bench = Bench::demo().await;
    let served = start(&bench).await;
    served.get("/healthz").await;
    bench.change("listen = \"127.0.0.1:0\"", "enabled = false");
    let id = served.daemon.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &id]).status().await.unwrap().success());
    let closed = async {
        while TcpStream::connect(&served.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, closed).await.unwrap();
}

#[tokio::test]
async fn a_client_that_keeps_a_connection_silent_keeps_no_other_out() {
    let bench = Bench::demo().await;
    let served = start(&bench).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(&served.address).await.unwrap());
    }
    assert!(served.get("/healthz").await.0.starts_with("HTTP/1.1 200"));
}
