//! `check` and `plan` as an operator runs them, against the embedded Proxmox VE and the embedded Kubernetes over TLS.

#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

#[path = "lab/bench.rs"]
mod bench;
#[path = "check_command/grow.rs"]
mod grow;
mod lab;
#[path = "check_command/pci.rs"]
mod pci;

use bench::{Bench, POOL, no_secret_in};
use serde_json::{Value, json};
use tokio::process::Command;
use world::kubernetes::spec::{KubeSpec, NodeSpec, Rule, ServiceAccountSpec};
use world::proxmox::spec::{AccessSpec, ClusterSpec, Grant, StorageKind, StorageSpec, VmSpec};
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

    /// What is said about one thing, in the form for programs.
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

/// Message and help of a line in one text.
fn words(line: &Value) -> String {
    format!("{} | {}", line["message"].as_str().unwrap(), line["help"].as_str().unwrap_or_default())
}

/// The first line that is not good.
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
        "pve1 15, pve2 15, pve3 15 more machines",
        "network vmbr0",
    ] {
        assert!(said.contains(text), "{text} is missing:\n{said}");
    }
    assert!(!said.contains("error") && !said.contains("warning"), "{said}");
}

#[tokio::test]
async fn a_missing_privilege_is_named_once() {
    let mut spec = ClusterSpec::demo();
    for privileges in spec.access.roles.values_mut() {
        privileges.retain(|privilege| privilege != "VM.PowerMgmt");
    }
    let (status, said) = Bench::new(spec, KubeSpec::demo()).await.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("lacks VM.PowerMgmt"), "{said}");
    assert_eq!(said.matches("VM.PowerMgmt").count(), 1, "{said}");
}

#[tokio::test]
async fn each_privilege_that_is_taken_from_one_role_is_named() {
    // The lab's roles have two more than those that are shipped.
    let unused = ["VM.Config.Cloudinit", "Pool.Audit"];
    let whole = ClusterSpec::demo();
    for (role, privileges) in &whole.access.roles {
        for privilege in privileges.iter().filter(|one| !unused.contains(&one.as_str())) {
            let mut spec = whole.clone();
            spec.access.roles.get_mut(role).unwrap().retain(|one| one != privilege);
            let (status, said) = Bench::new(spec, KubeSpec::demo()).await.check().await;
            assert!(
                status != 0 && said.contains(privilege.as_str()),
                "{privilege} from {role}: {status}\n{said}"
            );
        }
    }
}

#[tokio::test]
async fn a_privilege_on_the_wrong_path_is_named_with_the_command_that_grants_it() {
    let mut spec = ClusterSpec::demo();
    spec.access.grants.retain(|grant| grant.path != "/storage/shared");
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    bench.change("template = 9000", "template = \"k8s-worker\"");
    let (status, lines) = bench.about("template k8s-worker (").await;
    assert_eq!(status, 1);
    let said = first_bad(&lines);
    assert!(said.contains("lacks Datastore.AllocateSpace, Datastore.Audit on /storage/shared"), "{said}");
    assert!(said.contains("pveum acl modify /storage/shared --users autoscaler@pve"), "{said}");
}

#[tokio::test]
async fn a_token_with_rights_on_a_pool_needs_that_pool() {
    let bench = Bench::demo().await;
    bench.change("resource_pool = \"k8s-workers\"\n", "");
    let (status, lines) = bench.about("machines").await;
    let said = first_bad(&lines);
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("lacks VM.Allocate") && said.contains("on /vms/9100"), "{said}");
    assert!(said.contains("set `proxmox.resource_pool` to a pool on which the token has them"), "{said}");
}

#[tokio::test]
async fn release_8_has_another_privilege_for_the_agent() {
    let mut spec = ClusterSpec::demo();
    spec.version = "8.4.21".to_owned();
    spec.access = AccessSpec::least_privilege("8.4.21", &["shared", "local-lvm"], &["vmbr0"]);
    let (status, said) = Bench::new(spec.clone(), KubeSpec::demo()).await.check().await;
    assert_eq!(status, 0, "{said}");
    for privileges in spec.access.roles.values_mut() {
        privileges.retain(|privilege| privilege != "VM.Monitor");
    }
    let (status, said) = Bench::new(spec, KubeSpec::demo()).await.check().await;
    assert_eq!(status, 4, "{said}");
    assert!(said.contains("lacks VM.Monitor"), "{said}");
}

#[tokio::test]
async fn each_missing_right_in_kubernetes_has_a_line_with_its_purpose() {
    let rules = vec![
        Rule::new("get list watch create update patch", "*", "*", None),
        Rule::new("delete", "", "configmaps secrets", None),
    ];
    let account = ServiceAccountSpec {
        name: "system:serviceaccount:kube-system:limited".to_owned(),
        token: "limited".to_owned(),
        rules,
    };
    let kube = KubeSpec { service_accounts: vec![account], ..KubeSpec::demo() };
    let (status, lines) = Bench::new(ClusterSpec::demo(), kube).await.about("rights").await;
    assert_eq!(status, 4);
    let missing: Vec<_> = lines.iter().map(words).collect();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(
        missing[0].starts_with("may not delete nodes, to label, taint, cordon and remove"),
        "{missing:?}"
    );
    assert!(missing[0].contains("rbac.yaml"), "{missing:?}");
}

#[tokio::test]
async fn rights_to_approve_certificates_are_asked_for_only_where_that_is_switched_on() {
    let groups = ["", "apps", "batch", "policy", "scheduling.k8s.io", "storage.k8s.io", "events.k8s.io"];
    let groups = groups.into_iter().chain(["coordination.k8s.io"]);
    let mut rules: Vec<Rule> = groups.map(|group| Rule::new("*", group, "*", None)).collect();
    rules.push(Rule::new("list", "certificates.k8s.io", "*", None));
    let account = ServiceAccountSpec {
        name: "system:serviceaccount:kube-system:limited".to_owned(),
        token: "limited".to_owned(),
        rules,
    };
    let kube = KubeSpec { service_accounts: vec![account], ..KubeSpec::demo() };
    let bench = Bench::new(ClusterSpec::demo(), kube).await;
    let (status, text) = bench.check().await;
    assert!(status == 0 && !text.contains("serving certificates"), "{text}");
    bench.change("[kubernetes]\n", "[kubernetes]\napprove_serving_certificates = true\n");
    let (status, lines) = bench.about("serving certificates").await;
    assert_eq!(status, 4);
    let said: Vec<_> = lines.iter().map(words).collect();
    for (line, expected) in [
        "may not watch certificatesigningrequests.certificates.k8s.io, to see requests",
        "may not patch certificatesigningrequests/approval.certificates.k8s.io, to approve",
        "may not approve signers.certificates.k8s.io kubernetes.io/kubelet-serving, to approve",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(said[line].starts_with(expected), "{said:?}");
    }
    assert!(said.len() == 3 && said[2].contains("rbac-serving.yaml"), "{said:?}");
}

#[tokio::test]
async fn templates_that_join_by_themselves_need_neither_agent_nor_rights_for_tokens() {
    let mut spec = ClusterSpec::demo();
    spec.vms[0].config.insert("agent".to_owned(), "0".to_owned());
    for privileges in spec.access.roles.values_mut() {
        privileges.retain(|privilege| privilege != "VM.GuestAgent.Unrestricted");
    }
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    bench.change("[bootstrap]\n", "[bootstrap]\nmethod = \"none\"\n");
    let (status, text) = bench.check().await;
    assert_eq!(status, 0, "{text}");
    for expected in ["13 of 13 privileges", "the template joins by itself", "no agent, cloud-init drive ide2"]
    {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[tokio::test]
async fn a_pool_with_a_way_of_its_own_to_join_is_looked_at_by_that() {
    let mut spec = ClusterSpec::demo();
    spec.vms[0].config.insert("agent".to_owned(), "0".to_owned());
    spec.vms[0].config.remove("ide2");
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    let dhcp = POOL.replace("10.10.10.11-10.10.10.20", "dhcp").replace("prefix = 24\n", "");
    bench.configure(&format!("{dhcp}[pool.bootstrap]\nmethod = \"none\"\n"));
    let (status, text) = bench.check().await;
    assert_eq!(status, 0, "{text}");
    for expected in ["joining, pool workers", "the template joins by itself", "no agent, no cloud-init drive"]
    {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    bench.configure(&format!("{POOL}[pool.bootstrap]\nmethod = \"none\"\n"));
    let (status, text) = bench.check().await;
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("has no cloud-init drive"), "an address has to be told:\n{text}");
}

#[tokio::test]
async fn a_secret_for_joining_that_cannot_be_read_is_named() {
    let bench = Bench::demo().await;
    let token = bench.path("k3s").display().to_string();
    let k3s = format!(
        "[bootstrap]\nmethod = \"k3s\"\napi_server = \"10.0.0.1:6443\"\nserver_token_file = \"{token}\"\n"
    );
    bench.change("[bootstrap]\n", &k3s);
    let (status, text) = bench.check().await;
    assert_eq!(status, 4, "{text}");
    assert!(text.contains("the token of K3s: cannot read"), "{text}");
    bench.write("k3s", "s3cret", 0o600);
    let (status, text) = bench.check().await;
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("agents of K3s, at 10.0.0.1:6443"), "{text}");
}

#[tokio::test]
async fn templates_that_cannot_be_cloned_are_told_with_a_way_out() {
    type Spoil = fn(&mut ClusterSpec);
    let cases: [(Spoil, &str, &str, &str); 9] = [
        (|_| {}, "template = 9000", "template = 9999", "there is no VM 9999"),
        (|_| {}, "template = 9000", "template = \"k8s-wroker\"", "no template is called `k8s-wroker`"),
        (
            |spec| drop(spec.vms[0].config.insert("agent".to_owned(), "0".to_owned())),
            "",
            "",
            "qm set 9000 --agent enabled=1",
        ),
        (|spec| drop(spec.vms[0].config.remove("ide2")), "", "", "no cloud-init drive"),
        (
            |spec| drop(spec.vms[0].config.insert("lock".to_owned(), "clone".to_owned())),
            "",
            "",
            "it is locked (clone)",
        ),
        (
            |_| {},
            "template = 9000",
            "template = 9000\ndisk = \"8GiB\"",
            "scsi0 has 10 GiB already, and `disk` is 8 GiB",
        ),
        (
            |_| {},
            "template = 9000",
            "template = 9000\nclone = \"full\"\nstorage = \"local\"",
            "storage `local` that the token may see",
        ),
        (
            |_| {},
            "template = 9000",
            "template = 9000\nwarm = { count = 2, state = \"suspended\" }\nvm_options = { vmstatestorage = \"local\" }",
            "storage `local`, where the memory of suspended machines goes, is not there",
        ),
        (
            |spec| spec.storages[2].used = spec.storages[2].size - (20 << 30),
            "template = 9000",
            "template = 9000\nwarm = { count = 2, state = \"suspended\" }",
            "GiB left on pve1, and 2 of them take 32.9 GiB",
        ),
    ];
    for (spoil, from, to, expected) in cases {
        let mut spec = ClusterSpec::demo();
        spoil(&mut spec);
        let bench = Bench::new(spec, KubeSpec::demo()).await;
        if !from.is_empty() {
            bench.change(from, to);
        }
        let (status, lines) = bench.about("template").await;
        let said = first_bad(&lines);
        assert!(said.contains(expected), "{expected}: {lines:#?}");
        // Room may come: that is a warning.
        assert_eq!(status, i32::from(!said.contains(" left on ")), "{said}");
        assert_eq!(lines[0]["pool"], "workers");
    }
}

#[tokio::test]
async fn what_seeds_need_is_looked_at() {
    let grant = |spec: &mut ClusterSpec, privileges: &str| {
        let privileges = privileges.split(' ').map(ToOwned::to_owned).collect();
        spec.access.roles.insert("Seeds".into(), privileges);
        for who in ["autoscaler@pve", ClusterSpec::DEMO_TOKEN] {
            let (path, role) = ("/storage/local".into(), "Seeds".into());
            spec.access.grants.push(Grant { path, who: who.into(), role, propagate: false });
        }
    };
    let all = "Datastore.AllocateTemplate Datastore.Allocate Datastore.Audit";
    for (storage, privileges, machines, expected) in [
        ("local", all, "VM.Config.CDROM", "agent enabled, seeds on local"),
        (
            "local",
            "Datastore.AllocateTemplate Datastore.Audit",
            "VM.Config.CDROM",
            "lacks Datastore.Allocate on",
        ),
        ("local", all, "VM.Audit", "lacks VM.Config.CDROM on"),
        ("local-lvm", all, "VM.Config.CDROM", "pvesm set local-lvm --content iso"),
    ] {
        let mut spec = ClusterSpec::demo();
        spec.vms[0].config.remove("ide2");
        grant(&mut spec, privileges);
        spec.access.roles.get_mut("KasWorker").unwrap().push(machines.to_owned());
        let bench = Bench::new(spec, KubeSpec::demo()).await;
        bench.configure(&format!(
            "{POOL}[pool.cloud_init]\nmethod = \"seed\"\nstorage = \"{storage}\"\nuser_data = \"#cloud-config\\n\"\n"
        ));
        let (status, text) = bench.check().await;
        assert_eq!(status == 0, expected.starts_with("agent"), "{text}");
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[tokio::test]
async fn machines_that_boot_from_the_network_need_a_storage_alone() {
    let pool =
        POOL.replace("template = 9000\n", "boot = \"network\"\ndisk = \"16GiB\"\nstorage = \"local-lvm\"\n");
    let pool = pool.replace("10.10.10.11-10.10.10.20", "dhcp").replace("prefix = 24\n", "");
    for (storage, expected) in [
        ("local-lvm", "empty disk virtio0 of 16 GiB on local-lvm"),
        ("local", "there is no storage `local` for disks"),
    ] {
        let bench = Bench::demo().await;
        bench.configure(&pool.replace("local-lvm", storage));
        let (status, text) = bench.check().await;
        assert_eq!(status == 0, storage == "local-lvm", "{text}");
        assert!(text.contains(expected) && text.contains("network vmbr0"), "no {expected:?} in\n{text}");
    }
}

#[tokio::test]
async fn thick_lvm_makes_no_linked_clones() {
    let mut spec = ClusterSpec::demo();
    spec.storages.push(StorageSpec {
        id: "san-lvm".to_owned(),
        kind: StorageKind::Lvm,
        shared: true,
        ..spec.storages[1].clone()
    });
    let mut grants: Vec<_> =
        spec.access.grants.iter().filter(|grant| grant.path == "/storage/shared").cloned().collect();
    for grant in &mut grants {
        "/storage/san-lvm".clone_into(&mut grant.path);
    }
    spec.access.grants.extend(grants);
    spec.vms.push(VmSpec::template(9005, "pve1", "gpu-worker", "san-lvm"));
    let bench = Bench::new(spec, KubeSpec::demo()).await;
    bench.change("template = 9000", "template = \"gpu-worker\"");
    let (status, said) = bench.check().await;
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("storage `san-lvm` (LVM, thick) cannot make linked clones"), "{said}");
    assert!(
        said.contains("help: set `clone = \"full\"` for this pool, or move the template to `local-lvm`"),
        "{said}"
    );
    let last = "1 error: `run` would start, but pool `workers` would not work as configured";
    assert!(said.trim_end().ends_with(last), "{said}");
    bench.change("template = \"gpu-worker\"", "template = \"gpu-worker\"\nclone = \"full\"");
    let (status, said) = bench.check().await;
    assert_eq!(status, 0, "{said}");
}

#[tokio::test]
async fn hosts_that_no_template_reaches_are_named() {
    let bench = Bench::demo().await;
    bench.change("template = 9000", "template = 9002");
    let (status, lines) = bench.about("template 9002, hosts").await;
    assert_eq!((status, lines[0]["level"].as_str()), (0, Some("warning")));
    let said = words(&lines[0]);
    assert!(said.contains("no clone can be made on pve1, pve3") && said.contains("shared storage"), "{said}");
    bench.change("template = 9002", "template = 9002\nhosts = [\"pve1\", \"pve4\"]");
    let (status, said) = bench.check().await;
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("there is no such host") && said.contains("there are pve1, pve2, pve3"), "{said}");
    // One template on each host, all of one name: every host is reached.
    bench.configure(&POOL.replace("9000", "\"k8s-worker-local\""));
    let (status, said) = bench.check().await;
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("(9003 on pve3, linked clone)") && !said.contains("warning"), "{said}");
}

#[tokio::test]
async fn slots_that_somebody_else_has_are_named() {
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
    assert_eq!(status, 0, "what is only doubtful is no error");
    let said: Vec<_> = lines.iter().map(words).collect();
    assert_eq!(said.len(), 4, "{said:#?}");
    assert!(said[0].starts_with("9101 is VM `database` on pve2, not ours"), "{said:#?}");
    assert!(said[1].starts_with("9103 is a VM or container that the token may not see"), "{said:#?}");
    assert!(said[2].starts_with("10.10.10.20 is the address of Node `other`"), "{said:#?}");
    assert!(said[3].starts_with("10.10.10.19 is set in VM `router` (150)"), "{said:#?}");
    bench.change("max = 3", "max = 8");
    let (_, lines) = bench.about("slots").await;
    let said = words(&lines[4]);
    assert!(said.starts_with("10 slots, 5 free: enough for 6 machines, and `max` is 8"), "{said}");
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
        said.contains("no bridge `vmbr9` on pve1, pve2, pve3") && said.contains("it may use vmbr0"),
        "{said}"
    );
    assert!(said.contains("no host could ever take a machine of 4 cores and 200 GiB"), "{said}");
    assert!(said.contains("resource pool k8s-wrokers") && said.contains("there is no such pool"), "{said}");
}

#[tokio::test]
async fn a_token_that_others_can_read_is_refused() {
    let bench = Bench::demo().await;
    bench.write("token", ClusterSpec::DEMO_SECRET, 0o644);
    let (status, said) = bench.check().await;
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("others can read") && said.contains("chmod 0600"), "{said}");
    assert!(said.contains("v1.36.2"), "the other cluster is looked at all the same: {said}");
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
    for text in ["the table `[kubernetes]` is missing", "the table `[bootstrap]` is missing", "`template`"] {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert!(said.contains("PVE 9.2.11"), "what can be looked at is: {said}");
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
    assert!(said.contains("no table `[kubernetes]`"), "{said}");
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
async fn templates_that_are_described_are_compared_with_those_there_are() {
    let bench = Bench::demo().await;
    let described = |more: &str| {
        format!(
            "{POOL}[[template]]\nname = \"made\"\nimage = \"https://images.example/a.qcow2\"\nchecksum = \"sha256:{}\"\n\
             vmids = \"9010-9019\"\nbridge = \"vmbr0\"\n{more}\n",
            "a".repeat(64)
        )
    };
    for (more, status, part) in [
        (
            "storage = \"shared\"",
            0,
            "it is not there on pve1 as it is described | `pve-autoscaler template made`",
        ),
        ("storage = \"nowhere\"", 1, "no host that is online has its storage `nowhere`"),
        ("storage = \"shared\"\nhosts = [\"pve9\"]", 1, "there is no host `pve9`"),
        ("storage = \"shared\"\nimage_storage = \"local-lvm\"", 1, "does not take the content `import`"),
    ] {
        bench.configure(&described(more));
        let (ended, lines) = bench.about("making template made").await;
        assert_eq!(ended, status, "{lines:?}");
        assert!(lines.iter().any(|line| words(line).contains(part)), "no {part:?} in {lines:?}");
    }
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
    // One cluster by two names.
    let (status, said) = bench.check().await;
    assert_eq!(status, 0, "{said}");
    for text in
        ["proxmox west: https://127.0.0.1", "proxmox east: https://localhost", "are they one cluster?"]
    {
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
