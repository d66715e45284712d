//! What `check` reports about rights: the token's in Proxmox VE, the daemon's in Kubernetes, and access to
//! secrets.

use world::kubernetes::spec::{KubeSpec, Rule, ServiceAccountSpec};
use world::proxmox::spec::{AccessSpec, ClusterSpec};

use crate::bench::{Bench, POOL};
use crate::{first_bad, words};

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
    let whole = ClusterSpec::demo();
    for (role, privileges) in &whole.access.roles {
        for privilege in privileges {
            let mut spec = whole.clone();
            spec.access.roles.get_mut(role).unwrap().retain(|one| one != privilege);
            let (status, said) = Bench::new(spec, KubeSpec::demo()).await.check().await;
            // The daemon does not need `Pool.Audit`, but `adopt` does.
            let is_needed = privilege != "Pool.Audit";
            assert!(
                (status != 0) == is_needed && said.contains(privilege.as_str()),
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
    assert!(
        said.contains(
            "set `proxmox.resource_pool` to a resource pool on which the token has these privileges"
        ),
        "{said}"
    );
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
        missing[0].starts_with("may not delete nodes, which is needed to label, taint, cordon and remove"),
        "{missing:?}"
    );
    assert!(missing[0].contains("rbac.yaml"), "{missing:?}");
}

#[tokio::test]
async fn rights_to_custom_kinds_are_asked_for_only_where_they_are_served() {
    let kube = |definitions: &[&str]| {
        let groups = ["", "apps", "batch", "policy", "scheduling.k8s.io", "storage.k8s.io", "events.k8s.io"];
        let groups = groups.into_iter().chain(["coordination.k8s.io", "resource.k8s.io"]);
        let account = ServiceAccountSpec {
            name: "system:serviceaccount:kube-system:earlier".to_owned(),
            token: "earlier".to_owned(),
            rules: groups.map(|group| Rule::new("*", group, "*", None)).collect(),
        };
        let objects = definitions.iter().map(|text| serde_saphyr::from_str(text).unwrap()).collect();
        KubeSpec { service_accounts: vec![account], objects, ..KubeSpec::demo() }
    };
    let (status, text) = Bench::new(ClusterSpec::demo(), kube(&[])).await.check().await;
    assert_eq!(status, 0, "{text}");
    let buffers = kube(&[include_str!("../crds/capacitybuffers.yaml")]);
    let (status, lines) = Bench::new(ClusterSpec::demo(), buffers).await.about("rights").await;
    assert_eq!(status, 4);
    let said: Vec<_> = lines.iter().map(words).collect();
    for (line, right) in
        ["list capacitybuffers", "watch capacitybuffers", "patch capacitybuffers/status"].iter().enumerate()
    {
        assert!(
            said[line].starts_with(&format!("may not {right}.autoscaling.x-k8s.io, which is needed to ")),
            "{said:?}"
        );
    }
    assert_eq!(said.len(), 3, "{said:?}");
}

#[tokio::test]
async fn rights_to_approve_certificates_are_asked_for_only_where_that_is_switched_on() {
    let groups = ["", "apps", "batch", "policy", "scheduling.k8s.io", "storage.k8s.io", "events.k8s.io"];
    let groups = groups.into_iter().chain(["coordination.k8s.io", "resource.k8s.io"]);
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
        "may not watch certificatesigningrequests.certificates.k8s.io, which is needed to see requests",
        "may not patch certificatesigningrequests/approval.certificates.k8s.io, which is needed to approve",
        "may not approve signers.certificates.k8s.io kubernetes.io/kubelet-serving, which is needed to approve",
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
    for expected in ["13 of 13 privileges", "machines join by themselves", "no agent, cloud-init drive ide2"]
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
    for expected in ["joining, pool workers", "machines join by themselves", "no agent, no cloud-init drive"]
    {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    bench.configure(&format!("{POOL}[pool.bootstrap]\nmethod = \"none\"\n"));
    let (status, text) = bench.check().await;
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("has no cloud-init drive"), "the address needs a cloud-init drive:\n{text}");
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
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("the K3s token: cannot read"), "{text}");
    bench.write("k3s", "s3cret", 0o600);
    let (status, text) = bench.check().await;
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("K3s agents, at 10.0.0.1:6443"), "{text}");
}
