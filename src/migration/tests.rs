//! Tests of single settings and broken files; whole files are tested in `tests/migration`.

use super::*;
use settings::Needs;

fn of(origin: Origin, text: &str) -> Migrated {
    let migrated = migrate(origin, &[SourceFile { name: "values.yaml", text }]).unwrap();
    let report = settings::parse("migrated", &migrated.text, Needs::Plan).err();
    assert!(report.is_none(), "{}\n{}", report.unwrap(), migrated.text);
    migrated
}

fn kproximate(config: &str) -> Migrated {
    of(Origin::Kproximate, &format!("kproximate:\n  config:\n    {}\n", config.replace('\n', "\n    ")))
}

#[test]
fn single_settings_are_taken_over() {
    for (there, here) in [
        ("kpNodeMemory: 3000", "memory = \"3000MiB\""),
        ("kpNodeMemory: \"4096\"", "memory = \"4GiB\""),
        ("pmUrl: pve1.example.org", "endpoints = [\"https://pve1.example.org:8006\"]"),
        ("pmUrl: http://10.0.0.1:8006/api2/json", "endpoints = [\"https://10.0.0.1:8006\"]"),
        ("pmUrl: https://[fd00::1]/api2/json", "endpoints = [\"https://[fd00::1]:8006\"]"),
        ("pmUrl: https://root:hidden@pve1:443/", "endpoints = [\"https://pve1:443\"]"),
        ("pmUserID: u@pve!t=hidden", "token_id = \"u@pve!t\""),
        ("kpNodeLabels: a/zone={{ targetHost }}", "\"a/zone\" = \"{{ host }}\""),
        ("kpNodeLabels: a=x-{{.TargetHost}}-y", "a = \"x-{{ host }}-y\""),
        ("kpNodeNamePrefix: KP_Node", "name = \"kp-node\""),
        (
            "pmExcludeHosts: pve3",
            "[[host]]\n# pmExcludeHosts\nname = \"pve3\"\n# no new machine is placed on this host\nclosed = true",
        ),
        ("waitSecondsForProvision: 300", "max_node_provision_time = \"7m\""),
        ("scaleDownCooldownSeconds: 90", "delay_after_add = \"90s\""),
        ("nodeSelectionStrategy: max-memory", "placement = \"balance\""),
        ("kpQemuExecJoin: false", "method = \"none\""),
        ("kpQemuExecJoin: \"true\"", "method = \"kubeadm\""),
    ] {
        let text = kproximate(there).text;
        assert!(text.contains(&format!("{here}\n")), "{there}: {here} is not in\n{text}");
        assert!(!text.contains("hidden"), "{there}: {text}");
    }
}

#[test]
fn what_cannot_be_taken_over_is_said_and_never_repeated() {
    for (there, said) in [
        ("pmUrl: \"https://a b/hidden\"", "FILL IN: pmUrl is not a host's address"),
        ("pmUserID: hidden@pam", "FILL IN: pmUserID is a user"),
        ("kpNodeCores: hidden", "kpNodeCores (not a valid value)"),
        ("kpNodeCores: 0", "kpNodeCores (`sizes` allows several): not converted"),
        ("kpNodeLabels: \"hidden\"", "kpNodeLabels: one of the labels has no `=`"),
        ("kpNodeLabels: node-role.kubernetes.io/master=", "kpNodeLabels: not converted"),
        ("kpNodeSomething: hidden", "# Unknown settings, not converted:\n# kpNodeSomething\n"),
        ("kpNodeSomething:\n  deep: [hidden]", "# kpNodeSomething.deep\n"),
        ("\"kp\\nmode = 'x'\": hidden", "# kp?mode = 'x'\n"),
    ] {
        let migrated = kproximate(there);
        assert!(migrated.text.contains(said), "{there}: {said} is not in\n{}", migrated.text);
        assert!(!format!("{migrated:?}").contains("hidden"), "{there}: {}", migrated.text);
    }
}

#[test]
fn secrets_are_neither_copied_nor_told() {
    let values = "kproximate:\n  config: {pmUserID: a@pve!b, kpQemuExecJoin: true}\n  secrets:\n    kpJoinCommand: COMMAND\n    pmToken: hidden\n    \
                  pmPassword: hidden\n    sshKey: \"-----BEGIN OPENSSH PRIVATE KEY-----\\nhidden\"\n    other: hidden\n";
    for (command, method) in [
        ("kubeadm join 10.0.0.2:6443 --token hidden", "api_server = \"10.0.0.2:6443\""),
        ("kubeadm join --token hidden:1 10.0.0.2:6443", "method = \"kubeadm\""),
        ("curl -sfL https://get.k3s.io | K3S_TOKEN=hidden sh -", "method = \"k3s\""),
        ("rke2 hidden", "method = \"command\""),
    ] {
        let migrated = of(Origin::Kproximate, &values.replace("COMMAND", &format!("{command:?}")));
        assert!(migrated.text.contains(method), "{command}: {}", migrated.text);
        assert!(migrated.text.contains("sshKey: not copied, because it is not a public key"));
        assert_eq!(migrated.unknown, ["secrets: other"]);
        assert!(!format!("{migrated:?}").contains("hidden"), "{command}: {}", migrated.text);
    }
}

#[test]
fn files_without_what_is_looked_for_are_refused_and_not_shown() {
    for (origin, text, message) in [
        (
            Origin::Kproximate,
            "a: 1",
            "none of the files has a map `kproximate`, as in the values of its chart (`helm get values`) or in the object that installs it",
        ),
        (Origin::Kproximate, "a: [hidden", "`f` is not YAML, line"),
        (Origin::ProxmoxAutoscaler, "x = 1", "none of the files has a setting of proxmox-autoscaler"),
        (Origin::KubeNodeSmith, "kind: Pod", "none of the files has a NodeSmithPool"),
        (Origin::Karpenter, "kind: Pod", "none of the files has a NodePool"),
        (Origin::Karpenter, "- hidden\nkind: x", "`f` is not YAML"),
    ] {
        let error = migrate(origin, &[SourceFile { name: "f", text }]).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
        assert!(!error.contains("hidden"), "{error}");
    }
}

#[test]
fn later_values_say_more_than_earlier_ones() {
    let files = [
        SourceFile { name: "a", text: "kproximate: {config: {maxKpNodes: 3, kpNodeCores: 8}}" },
        SourceFile { name: "b", text: "kproximate: {config: {maxKpNodes: 7}}" },
    ];
    let text = migrate(Origin::Kproximate, &files).unwrap().text;
    assert!(text.contains("\nmax = 7\n") && text.contains("\ncores = 8\n"), "{text}");
}

#[test]
fn pools_of_one_provider_share_its_vmids_without_overlap() {
    let pool = |name| {
        format!(
            "---\nkind: NodeSmithPool\nmetadata: {{name: {name}}}\nspec: {{providerRef: p, limits: {{maxNodes: 2}}}}\n"
        )
    };
    let provider = "kind: NodeSmithProvider\nmetadata: {name: p}\nspec: {type: proxmox, proxmox: {vmIDRange: {lower: 100, upper: 109}}}\n";
    let text = of(Origin::KubeNodeSmith, &format!("{provider}{}{}{}", pool("a"), pool("b"), pool("c"))).text;
    for range in ["100-102", "103-105", "106-108"] {
        assert!(text.contains(&format!("vmids = \"{range}\"")), "{text}");
    }
}

#[test]
fn what_a_further_provider_says_of_its_cluster_is_listed_and_not_dropped() {
    let pool = |name| {
        format!("---\nkind: NodeSmithPool\nmetadata: {{name: {name}}}\nspec: {{providerRef: {name}}}\n")
    };
    let provider = |name, endpoint| {
        format!(
            "---\nkind: NodeSmithProvider\nmetadata: {{name: {name}}}\nspec: {{proxmox: {{endpoint: \"{endpoint}\", \
             vmMemOverheadMiB: 512}}}}\n"
        )
    };
    let migrated = |second| {
        let providers = provider("a", "https://one:8006") + &provider("b", second);
        of(Origin::KubeNodeSmith, &format!("{providers}{}{}", pool("a"), pool("b")))
    };
    let other = migrated("https://two:8006");
    assert!(other.text.contains("https://one:8006"), "{}", other.text);
    let listed = ["NodeSmithProvider b: proxmox.endpoint", "NodeSmithProvider b: proxmox.vmMemOverheadMiB"];
    assert_eq!(other.unknown, listed, "{}", other.text);
    assert_eq!(migrated("https://one:8006").unknown, listed[1..]);
}

#[test]
fn settings_in_python_that_come_from_the_environment_are_left_open() {
    let text = "pxe_host = os.environ['H']\nmax_size = 4\npxe_autoscaled_node_network_mode = 'dhcp'\n";
    let migrated = of(Origin::ProxmoxAutoscaler, text);
    assert!(migrated.to_fill.contains(&"proxmox: endpoints".to_owned()), "{migrated:?}");
    assert!(migrated.text.contains("addresses = \"dhcp\""), "{}", migrated.text);
}

#[test]
fn a_command_that_installs_k3s_is_taken_over_or_told_option_by_option() {
    let values = "kproximate:\n  config: {kpQemuExecJoin: true, kpNodeNamePrefix: work, kpNodeTemplateName: t}\n  secrets:\n    kpJoinCommand: \"curl -sfL \
                  https://get.k3s.io | INSTALL_K3S_VERSION=v1.30.4+k3s1 K3S_URL=https://10.0.0.100:6443 K3S_TOKEN=hidden \
                  INSTALL_K3S_EXEC='agent --kubelet-arg=cloud-provider=external --with-node-id --node-taint a=b:NoSchedule' sh -\"\n";
    let migrated = of(Origin::Kproximate, values);
    for said in [
        "api_server = \"10.0.0.100:6443\"",
        "[pool.kubelet_args]",
        "cloud-provider = \"external\"",
        "taints = [\"a=b:NoSchedule\"]",
        "# kpJoinCommand: --with-node-id: ",
        "# kpJoinCommand: INSTALL_K3S_VERSION: ",
    ] {
        assert!(migrated.text.contains(said), "{said} is not in\n{}", migrated.text);
    }
    assert!(!migrated.to_fill.contains(&"bootstrap: api_server".to_owned()), "{:?}", migrated.to_fill);
    assert!(!format!("{migrated:?}").contains("hidden"));
}

/// The configuration for a NodePool with this `disruption`.
fn disruption(text: &str) -> String {
    let pool = "kind: NodePool\nmetadata: {name: p}\nspec:\n  template: {spec: {nodeClassRef: {name: c}}}\n  disruption: ";
    of(Origin::Karpenter, &format!("{pool}{text}\n")).text
}

#[test]
fn a_budget_for_reasons_that_are_not_known_does_not_become_one_for_all() {
    for (reasons, expected, told) in [
        ("[Unhealthy]", Some("reasons = [\"unready\"]"), false),
        ("[Surprising]", None, true),
        ("[Empty, Surprising]", Some("reasons = [\"empty\"]"), true),
    ] {
        let text = disruption(&format!("{{budgets: [{{nodes: \"1\", reasons: {reasons}}}]}}"));
        assert_eq!(text.contains("\n[[disruption]]"), expected.is_some(), "{reasons}: {text}");
        assert!(expected.is_none_or(|expected| text.contains(expected)), "{reasons}: {text}");
        assert_eq!(text.contains("Surprising"), told, "{reasons}: {text}");
    }
}

#[test]
fn policies_of_consolidation_are_taken_over_or_told() {
    for (policy, line, word) in [
        ("WhenEmpty", "\nconsolidation = false", ""),
        ("WhenEmptyOrUnderutilized", "\nconsolidation = true", ""),
        ("Balanced", "\nconsolidation = true", "Balanced in Karpenter weighs"),
    ] {
        let text = disruption(&format!("{{consolidationPolicy: {policy}}}"));
        assert!(text.contains(line) && text.contains(word), "{policy}: {text}");
    }
    let text = disruption("{consolidationPolicy: hidden}");
    assert!(!text.contains("\nconsolidation =") && text.contains("not a known policy"), "{text}");
    assert!(!text.contains("hidden"), "{text}");
}

#[test]
fn each_network_device_has_its_own_addresses() {
    let text = |network: &str| {
        let objects = format!(
            "kind: NodePool\nmetadata: {{name: p}}\nspec: {{template: {{spec: {{nodeClassRef: {{name: c}}}}}}}}\n---\n\
             kind: ProxmoxNodeClass\nmetadata: {{name: c}}\nspec: {{instanceTemplateRef: {{kind: ProxmoxTemplate, name: t}}}}\n---\n\
             kind: ProxmoxTemplate\nmetadata: {{name: t}}\nspec: {{network: {network}}}\n---\n\
             kind: CapacityBuffer\nmetadata: {{name: spare}}\nspec: {{replicas: 2}}\n"
        );
        of(Origin::Karpenter, &objects).text
    };
    let second = text("[{bridge: vmbr0}, {bridge: vmbr1, vlan: 7, address4: 10.1.0.0/24}]");
    assert!(second.contains("\naddresses = \"dhcp\""), "{second}");
    assert!(second.contains("[[pool.network]]\n") && second.contains("\nvlan = 7\n"), "{second}");
    assert!(second.contains("# CapacityBuffer spare: it stays in the cluster"), "{second}");
    let first = text("[{bridge: vmbr0, address4: 10.1.0.0/24}]");
    assert!(!first.contains("\naddresses = \"dhcp\"") && !first.contains("[[pool.network]]"), "{first}");
}
