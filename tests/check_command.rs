//! `check` and `plan` as an operator runs them, against the embedded Proxmox VE and the embedded Kubernetes
//! over TLS.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

#[path = "lab/bench.rs"]
mod bench;
#[path = "check_command/grow.rs"]
mod grow;
#[path = "check_command/inherited.rs"]
mod inherited;
#[path = "check_command/kubelet.rs"]
mod kubelet;
mod lab;
#[path = "check_command/pci.rs"]
mod pci;
#[path = "check_command/rights.rs"]
mod rights;
#[path = "check_command/templates.rs"]
mod templates;
#[path = "check_command/texts.rs"]
mod texts;

use bench::{Bench, POOL, no_secret_in};
use serde_json::{Value, json};
use tokio::process::Command;
use world::kubernetes::spec::{KubeSpec, NodeSpec};
use world::proxmox::spec::{ClusterSpec, VmSpec};
use world::serve::tls::ServerTls;

impl Bench {
    async fn check(&self) -> (i32, String) {
        self.check_with(&[]).await
    }

    async fn check_with(&self, arguments: &[&str]) -> (i32, String) {
        let config = self.path("config.toml").display().to_string();
        let mut all = vec!["check", "--config", &config];
        all.extend(arguments);
        let (status, out, err) = run(&all).await;
        (status, out + &err)
    }

    /// The exit status, and the lines about one subject in JSON output.
    async fn about(&self, what: &str) -> (i32, Vec<Value>) {
        let config = self.path("config.toml").display().to_string();
        let (status, out, _) = run(&["check", "--output", "json", "--config", &config]).await;
        let answer: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(answer["status"], status);
        let lines = answer["lines"].as_array().unwrap();
        let about: Vec<Value> = lines
            .iter()
            .filter(|line| line["what"].as_str().unwrap().trim().starts_with(what))
            .cloned()
            .collect();
        assert!(!about.is_empty(), "nothing about {what}: {out}");
        (status, about)
    }
}

async fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler")).args(arguments).output().await.unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    no_secret_in(&out);
    no_secret_in(&err);
    (output.status.code().unwrap(), out, err)
}

/// The message and the help of a line, in one text.
fn words(line: &Value) -> String {
    format!("{} | {}", line["message"].as_str().unwrap(), line["help"].as_str().unwrap_or_default())
}

/// The message and help of the first line that is not `ok`, or of the first line if all are.
fn first_bad(lines: &[Value]) -> String {
    words(lines.iter().find(|line| line["level"] != "ok").unwrap_or(&lines[0]))
}

#[tokio::test]
async fn everything_is_good_where_it_is() {
    let (status, said) = Bench::demo().await.check().await;
    assert_eq!(status, 0, "{said}");
    for text in [
        "PVE 9.2.11, 3 hosts",
        "14 of 14 privileges",
        "cluster demo",
        "privileges on /pool/k8s-workers",
        "v1.36.2",
        "its CA pinned",
        "1 node, 0 pods",
        "pool workers",
        "template k8s-worker (9000 on pve1, linked clone)",
        "agent enabled, cloud-init drive ide2",
        "on pve1, pve2, pve3",
        "slots 9100-9109 × 10.10.10.11-10.10.10.20",
        "10 slots, 10 free",
        "for more machines: pve1 15, pve2 15, pve3 15",
        "network vmbr0",
    ] {
        assert!(said.contains(text), "{text} is missing:\n{said}");
    }
    assert!(!said.contains("error") && !said.contains("warning"), "{said}");
}

#[tokio::test]
async fn slots_that_others_have_are_named() {
    let mut spec = ClusterSpec::demo();
    let mut seen = VmSpec::machine(9101, "pve2", "database");
    seen.pool = Some("k8s-workers".to_owned());
    let mut ours = VmSpec::machine(9102, "pve2", "workers-a");
    ours.pool = Some("k8s-workers".to_owned());
    ours.config.insert(
        "description".to_owned(),
        "pve-autoscaler/v1 cluster=kubernetes pool=workers machine=1".to_owned(),
    );
    let mut router = VmSpec::machine(150, "pve1", "router");
    router.pool = Some("k8s-workers".to_owned());
    router.config.insert("ipconfig0".to_owned(), "ip=10.10.10.19/24,gw=10.10.10.1".to_owned());
    ours.config.insert("ipconfig0".to_owned(), "ip=10.10.10.13/24".to_owned());
    spec.vms.extend([router, seen, ours, VmSpec::machine(9103, "pve3", "invisible")]);
    let mut other = NodeSpec::worker("other", 4, 8);
    other.address = "10.10.10.20".to_owned();
    let mut own = NodeSpec::worker("workers-a", 4, 8);
    own.address = "10.10.10.13".to_owned();
    own.system_uuid = "00000000-0000-4000-8000-000000009102".to_owned();
    let kube = KubeSpec { nodes: vec![other, own], ..KubeSpec::demo() };
    let bench = Bench::new(spec, kube).await;
    let (status, lines) = bench.about("slots").await;
    assert_eq!(status, 0, "these findings are not errors");
    let said: Vec<_> = lines.iter().map(words).collect();
    assert_eq!(said.len(), 4, "{said:#?}");
    assert!(said[0].starts_with("9101 is VM `database` on pve2, which is unmanaged"), "{said:#?}");
    assert!(said[1].starts_with("9103 is a VM or container that the token cannot see"), "{said:#?}");
    assert!(said[2].starts_with("10.10.10.20 is the address of Node `other`"), "{said:#?}");
    assert!(said[3].starts_with("10.10.10.19 is set in VM `router` (150)"), "{said:#?}");
    bench.change("max = 3", "max = 8");
    let (_, lines) = bench.about("slots").await;
    let said = words(&lines[4]);
    assert!(said.starts_with("10 slots, 5 free: enough for 6 machines, but `max` is 8"), "{said}");
}

#[tokio::test]
async fn networks_pools_and_sizes_that_are_not_there_are_told_together() {
    let bench = Bench::demo().await;
    bench.change("vmbr0", "vmbr9");
    bench.change("k8s-workers", "k8s-wrokers");
    bench.change("8GiB", "200GiB");
    let (status, said) = bench.check().await;
    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains("no bridge `vmbr9` on pve1, pve2, pve3") && said.contains("the token may use vmbr0"),
        "{said}"
    );
    assert!(said.contains("no host could ever take a machine of 4 cores and 200 GiB"), "{said}");
    assert!(said.contains("resource pool k8s-wrokers") && said.contains("there is no such pool"), "{said}");
}

#[tokio::test]
async fn a_host_of_which_nothing_is_known_is_said_to_be_so_and_nothing_else_is_concluded() {
    let pve = lab::pve(ClusterSpec::demo());
    for host in ["pve1", "pve2", "pve3"] {
        pve.forget_what_pvestatd_said(host);
    }
    let bench = Bench::of(pve, KubeSpec::demo()).await;
    let (status, said) = bench.check().await;
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("run `systemctl restart pvestatd` on pve2"), "{said}");
    for wrong in ["no template", "could ever take", "0 KiB", "no bridge", "lower `memory` or"] {
        assert!(!said.contains(wrong), "{wrong}: {said}");
    }
}

#[tokio::test]
async fn a_token_that_others_can_read_is_refused() {
    let bench = Bench::demo().await;
    bench.write("token", ClusterSpec::DEMO_SECRET, 0o644);
    let (status, said) = bench.check().await;
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("others can read") && said.contains("chmod 0600"), "{said}");
    assert!(said.contains("v1.36.2"), "the other cluster is still checked: {said}");
}

#[tokio::test]
async fn a_wrong_token_is_told() {
    let bench = Bench::demo().await;
    bench.write("token", "00000000-0000-0000-0000-000000000000", 0o600);
    let (status, said) = bench.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("Authentication failed!"), "{said}");
}

#[tokio::test]
async fn another_authority_is_refused() {
    let bench = Bench::demo().await;
    bench.write("ca.pem", &ServerTls::for_loopback("Another").unwrap().ca_pem, 0o644);
    let (status, said) = bench.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("certificate"), "{said}");
}

#[tokio::test]
async fn a_closed_port_is_told_with_its_address() {
    let bench = Bench::demo().await;
    bench.change(&bench.proxmox.address().to_string(), "127.0.0.1:1");
    let (status, said) = bench.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("no connection to https://127.0.0.1:1: Connection refused"), "{said}");
}

#[tokio::test]
async fn a_configuration_that_is_only_enough_for_plans_says_what_the_daemon_lacks() {
    let bench = Bench::demo().await;
    let pool = "[[pool]]\nname = \"workers\"\nmax = 3\ncores = 4\nmemory = \"8GiB\"\n";
    bench.write("config.toml", &(bench.proxmox() + pool), 0o644);
    let (status, said) = bench.check().await;
    assert_eq!(status, 2, "{said}");
    for text in ["the `[kubernetes]` table is missing", "`template`"] {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert!(said.contains("PVE 9.2.11"), "Proxmox VE is still checked: {said}");
    let (status, said) = bench.check_with(&["--for", "plan"]).await;
    assert_eq!(status, 0, "{said}");
}

#[tokio::test]
async fn a_live_plan_without_the_table_it_needs_says_so() {
    let bench = Bench::demo().await;
    let pool = "[[pool]]\nname = \"workers\"\nmax = 3\ncores = 4\nmemory = \"8GiB\"\n";
    bench.write("config.toml", &(bench.proxmox() + pool), 0o644);
    let config = bench.path("config.toml").display().to_string();
    let (status, _, said) = run(&["plan", "--config", &config]).await;
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("no `[kubernetes]` table"), "{said}");
}

#[tokio::test]
async fn what_is_wrong_with_a_configuration_has_its_place_in_json() {
    let bench = Bench::demo().await;
    bench.write("wrong.toml", "scan_interval = \"10s\"\nbatch_max = \"0s\"\n", 0o644);
    let config = bench.path("wrong.toml").display().to_string();
    let arguments = ["check", "--offline", "--for", "plan", "--output", "json", "--config", &config];
    let (status, out, err) = run(&arguments).await;
    assert_eq!(status, 2, "{err}");
    let lines: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(lines["lines"][0]["at"], json!({"line": 2, "column": 13}), "{out}");
}

#[tokio::test]
async fn what_is_still_to_be_filled_in_is_counted() {
    let bench = Bench::demo().await;
    let pool = "[[pool]]\nname = \"w\"\nmax = 3\ncores = 4\nmemory = \"8GiB\"\n";
    let text = format!(
        "# FILL IN: a name\ncluster = \"home\"\n{pool}# FILL IN: VMIDs\n# vmids = \"9100-9149\"\n# filled in\n"
    );
    for (text, expected) in
        [(text.as_str(), Some("2 places are still marked FILL IN: lines 1, 8")), (pool, None)]
    {
        bench.write("migrated.toml", text, 0o644);
        let config = bench.path("migrated.toml").display().to_string();
        let arguments = ["check", "--offline", "--for", "plan", "--output", "json", "--config", &config];
        let (status, out, err) = run(&arguments).await;
        assert_eq!(status, 0, "{out} {err}");
        let lines: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(lines["lines"][1]["message"].as_str(), expected, "{out}");
    }
}

#[tokio::test]
async fn a_firewall_that_would_do_nothing_and_groups_that_are_not_there_are_named() {
    let bench = Bench::demo().await;
    bench.configure(&format!("{POOL}[pool.security]\n"));
    let (status, said) = bench.about("firewall").await;
    assert_eq!((status, said[0]["level"].as_str()), (0, Some("warning")), "{said:?}");
    assert_eq!(said[0]["message"], "the datacenter's firewall is off: nothing is filtered");
    bench.configure(&format!("{POOL}[pool.security]\ngroups = [\"k8s-workers\"]\n"));
    let (status, said) = bench.about("firewall").await;
    assert_eq!(status, 1, "{said:?}");
    assert_eq!(said[0]["message"], "there is no security group k8s-workers");
}

#[tokio::test]
async fn every_region_is_looked_at_and_one_that_does_not_answer_is_named() {
    let bench = Bench::demo().await;
    let port = bench.proxmox.address().port();
    let also = |at: &str| {
        bench.proxmox().replace("[proxmox]", "[[proxmox.also]]\nregion = \"east\"").replace("127.0.0.1", at)
    };
    bench.change("[proxmox]", "[proxmox]\nregion = \"west\"");
    bench.change("name = \"workers\"", "name = \"workers\"\nregion = \"west\"");
    bench.change("[kubernetes]", &format!("{}[kubernetes]", also("localhost")));
    // Both tables describe the same cluster.
    let (status, said) = bench.check().await;
    assert_eq!(status, 0, "{said}");
    for text in [
        "proxmox west: https://127.0.0.1",
        "proxmox east: https://localhost",
        "they may be the same Proxmox VE cluster",
    ] {
        assert!(said.contains(text), "{text} is missing:\n{said}");
    }
    bench.change(&format!("https://localhost:{port}"), "https://127.0.0.1:1");
    let (status, said) = bench.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(
        said.contains("proxmox east: https://127.0.0.1:1") && said.contains("10 slots, 10 free"),
        "{said}"
    );
}
