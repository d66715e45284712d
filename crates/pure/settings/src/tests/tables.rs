//! Invalid settings of each table, and the errors that they cause.

use super::*;

/// Checks that the text of each case causes exactly one finding, and that the report contains the expected
/// parts.
fn refuses(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let Err(report) = parse("c.toml", text, Needs::Plan) else { panic!("no error reported for\n{text}") };
        let said = report.plain();
        assert_eq!(report.findings().len(), 1, "{said}");
        for part in *expected {
            assert!(said.contains(part), "no {part:?} in\n{said}");
        }
    }
}

#[test]
fn what_is_wrong_at_the_top_is_said() {
    refuses(&[
        ("mode = \"obsrve\"\n", &["unknown variant `obsrve`", "did you mean `observe`?"]),
        ("cluster = \"Home\"\n", &["`Home` is not a valid cluster id", "c.toml:1:11", "lower-case letters"]),
        ("cluster = \"\"\n", &["is not a valid cluster id"]),
        (
            "batch_window = \"2s\"\nbatch_max = \"1s\"\n",
            &[
                "`batch_window` is longer than `batch_max`",
                "c.toml:1:16",
                "because of this",
                "raise `batch_max`",
            ],
        ),
        ("batch_window = \"2s\"\n", &["must be at most 1s, the default of `batch_max`"]),
        ("batch_max = \"50ms\"\n", &["`batch_max` is shorter than `batch_window`", "at least 100ms"]),
        ("batch_max = \"0s\"\n", &["`batch_max` must be longer than zero", "must be more than \"0s\""]),
    ]);
}

#[test]
fn a_wrong_type_is_named_in_words() {
    refuses(&[
        ("[limits]\nmax_parallel_creates = -1\n", &["invalid value", "expected a whole number, not less"]),
        ("[scale_down]\nenabled = \"no\"\n", &["invalid type", "expected `true` or `false`"]),
        ("[[pool]]\nname = \"a\"\nhosts = \"pve1\"\n", &["invalid type", "expected a list"]),
        ("[[pool]]\nname = \"a\"\nvmids = 1.5\n", &["expected a string, a whole number or a list of them"]),
        ("[[pool]]\nname = \"a\"\ntemplate = []\n", &["expected a string or a whole number"]),
    ]);
}

#[test]
fn no_limit_is_zero() {
    for key in schema::keys_of("limits") {
        let zero = if key.starts_with("max_") { "0" } else { "\"0s\"" };
        let title = if key.starts_with("max_") { "is zero" } else { "must be longer than zero" };
        refuses(&[(&format!("[limits]\n{key} = {zero}\n"), &[&format!("`{key}` {title}"), "c.toml:2:"])]);
    }
}

#[test]
fn scaling_is_checked() {
    refuses(&[
        ("[scale_up]\nbackoff_initial = \"0s\"\n", &["`backoff_initial` must be longer than zero"]),
        (
            "[scale_up]\nbackoff_initial = \"1h\"\nbackoff_max = \"30m\"\n",
            &["`backoff_initial` is longer than `backoff_max`", "must be at most \"30m\"", "because of this"],
        ),
        (
            "[scale_up]\nbackoff_max = \"1m\"\n",
            &[
                "`backoff_max` is shorter than `backoff_initial`",
                "must be at least 300s, the default of `backoff_initial`",
            ],
        ),
        (
            "[scale_down]\nmax_removals_per_hour = 0\n",
            &["`max_removals_per_hour` is zero", "to switch removals off, set `enabled = false`"],
        ),
        ("[scale_down]\nmax_parallel_drains = 0\n", &["`max_parallel_drains` is zero", "enabled = false"]),
    ]);
}

#[test]
fn a_leaders_term_ends_before_another_may_begin() {
    refuses(&[
        ("[leader]\nlease_duration = \"10500ms\"\n", &["is not a whole number of seconds", "c.toml:2:18"]),
        (
            "[leader]\nlease_duration = \"6s\"\n",
            &["`renew_deadline` is too close to `lease_duration`", "1s longer than `renew_deadline`"],
        ),
        ("[leader]\nrenew_deadline = \"10s\"\n", &["`renew_deadline` is too close", "c.toml:2:18"]),
        ("[leader]\nretry_period = \"4s\"\n", &["`retry_period` is longer than half", "two attempts"]),
        ("[leader]\nrenew_deadline = \"3s\"\n", &["`retry_period` is longer than half", "c.toml:2:18"]),
    ]);
    let fine = "[leader]\nlease_duration = \"7s\"\nrenew_deadline = \"6s\"\nretry_period = \"3s\"\n";
    assert_eq!(good(fine, Needs::Plan).leader.lease_duration, Duration::from_secs(7));
}

#[test]
fn the_way_to_kubernetes_is_checked() {
    let with = |line: &str| format!("[kubernetes]\nkubeconfig_file = \"/k\"\n{line}\n");
    for (line, expected) in [
        ("namespace = \"Auto_Scaler\"", "`Auto_Scaler` is not a valid namespace"),
        ("namespace = \"\"", "is not a valid namespace"),
        ("context = \"\"", "`context` is empty"),
    ] {
        refuses(&[(&with(line), &[expected, "c.toml:3:"])]);
    }
    refuses(&[
        (
            "[kubernetes]\nkubeconfig_file = \"kubeconfig\"\n",
            &["`kubeconfig_file` is not an absolute path", "must begin with `/`", "an absolute path"],
        ),
        (
            "[kubernetes]\nkubeconfig_credential = \"/run/kubeconfig\"\n",
            &["`kubeconfig_credential` is not the name of a credential", "ends in `_file`"],
        ),
    ]);
}

#[test]
fn the_way_to_proxmox_is_checked() {
    let needed = "[proxmox]\nendpoints = [\"https://a\"]\ntoken_id = \"a@pve!b\"\ntoken_file = \"/t\"\n";
    for (lines, expected) in [
        ("ca_file = \"/c\"\nagent_calls_per_host = 0", "`agent_calls_per_host` is zero"),
        ("ca_file = \"/c\"\ncalls_per_host = 0", "`calls_per_host` is zero"),
        ("ca_file = \"/c\"\nlinked_clones_per_storage = 0", "`linked_clones_per_storage` is zero"),
        ("ca_file = \"/c\"\nfull_clones_per_storage = 0", "`full_clones_per_storage` is zero"),
        ("ca_file = \"/c\"\ncpu_overcommit = 0.0", "`cpu_overcommit` must be between"),
        ("ca_file = \"/c\"\nmemory_reserve = \"-1GiB\"", "`memory_reserve` is negative"),
        ("ca_file = \"/c\"\nresource_pool = \"a b\"", "`a b` is not a valid resource pool name"),
        ("ca_file = \"ca.pem\"", "`ca_file` is not an absolute path"),
        ("ca = \"mozilla\"", "must be \"system\""),
        ("ca = \"system\"\nca_file = \"/c\"", "`ca_file` and `ca` are both given"),
        ("ca_credential = \"a/b\"", "`ca_credential` is not the name of a credential"),
    ] {
        refuses(&[(&format!("{needed}{lines}\n"), &[expected])]);
    }
    let trusts = [
        ("ca = \"system\"", ProxmoxTrust::System),
        ("ca_credential = \"ca\"", ProxmoxTrust::CaCredential(credential("ca"))),
    ];
    for (line, trust) in trusts {
        assert_eq!(good(&format!("{needed}{line}\n"), Needs::Plan).proxmox.unwrap().trust, trust);
    }
}

fn credential(name: &str) -> Credential {
    Credential { name: name.to_owned(), folder: "/etc/pve-autoscaler/credentials".into() }
}

const HOST_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqT0vUKZT3fYqDm3YQkJH0q5T7d6l1yq1cZ1mQy0f2B";

#[test]
fn the_bootstrap_is_checked() {
    let ssh = format!(
        "[bootstrap]\ntoken = \"ssh\"\nssh_host = \"cp1\"\nssh_key_file = \"/k\"\nssh_host_key = \"{HOST_KEY}\"\n"
    );
    let api = "[bootstrap]\n";
    for (text, expected) in [
        (ssh.replace("ssh_host = \"cp1\"\n", ""), "`ssh_host` is missing"),
        (ssh.replace("cp1", "cp1:22"), "set the port with `ssh_port`"),
        (ssh.replace(&format!("ssh_host_key = \"{HOST_KEY}\"\n"), ""), "`ssh_host_key` is missing"),
        (ssh.replace("AAAAC", "BBBBC"), "`ssh_host_key` is not a public key"),
        (ssh.replace(&HOST_KEY[40..], ""), "`ssh_host_key` is not a public key"),
        (ssh.replace("ssh-ed25519", "ecdsa-sha2-nistp256"), "`ssh_host_key` is not a public key"),
        (
            ssh.replace("ssh-ed25519", "cp1 ssh-ed25519"),
            "from the output of `ssh-keyscan` without the host name",
        ),
        (ssh.replace(HOST_KEY, "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQE="), "must be Ed25519 or ECDSA"),
        (ssh.replace("ssh_key_file = \"/k\"\n", ""), "neither `ssh_key_file` nor `ssh_key_credential`"),
        (ssh.replace("\"/k\"", "\"id_ed25519\""), "`ssh_key_file` is not an absolute path"),
        (format!("{ssh}ssh_port = 0\n"), "`ssh_port` is zero"),
        (format!("{ssh}ssh_user = \"Root\"\n"), "`Root` is not a valid user name"),
        (format!("{api}ssh_port = 22\n"), "`ssh_port` has no effect while tokens come from"),
        (format!("{api}ssh_host = \"a\"\n"), "set `token = \"ssh\"`, or remove it"),
        (format!("{api}method = \"k3d\"\n"), "did you mean `k3s`?"),
        (format!("{api}api_server = \"https://10.0.0.1:6443\"\n"), "without `https://`"),
        (format!("{api}api_server = \"10.0.0.1\"\n"), "is not the address of an API server"),
        (format!("{api}api_server = \"10.0.0.1:0\"\n"), "is not the address of an API server"),
        (format!("{api}probe_port = 0\n"), "`probe_port` is zero"),
        (format!("{api}ignore_preflight_errors = [\"Num CPU\"]\n"), "is not a kubeadm preflight check"),
        (format!("{api}token_ttl = \"0s\"\n"), "`token_ttl`"),
        (format!("{api}token_ttl = \"16m\"\n"), "must be at least \"17m\""),
    ] {
        let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
        assert!(report.contains(expected), "no {expected:?} in\n{report}");
    }
    let six = format!("{api}api_server = \"[fd00::2]:6443\"\nprobe_port = 22\n");
    let bootstrap = good(&six, Needs::Plan).bootstrap.unwrap();
    assert_eq!((bootstrap.probe_port, bootstrap.accept_degraded), (Some(22), true));
    let bootstrap = good(&ssh, Needs::Plan).bootstrap.unwrap();
    let ssh = bootstrap.ssh().unwrap();
    assert_eq!((ssh.host.as_str(), ssh.port, ssh.user.as_str()), ("cp1", 22, "root"));
    assert_eq!(ssh.host_key, HOST_KEY);
}

#[test]
fn each_method_has_settings_of_its_own() {
    for (name, expected) in [("k3s", "bootstrap"), ("command", "bootstrap")] {
        let bootstrap = good(&method(name), Needs::Plan).bootstrap.unwrap();
        let credential = SecretSource::Credential(credential(expected));
        assert_eq!(bootstrap.secrets().into_iter().map(|(_, one)| one).collect::<Vec<_>>(), [&credential]);
        assert!(bootstrap.needs_agent());
    }
    let none = good(&method("none"), Needs::Plan).bootstrap.unwrap();
    assert!(none.method == BootstrapMethod::None && !none.needs_agent());

    let (k3s, none) = (method("k3s"), method("none"));
    let pool = "[[pool]]\nname = \"w\"\nmax = 1\ncores = 2\nmemory = \"4GiB\"\n";
    let script = |text: &str| format!("[bootstrap]\nmethod = \"command\"\ncommand = '''\n{text}'''\n{pool}");
    refuses(&[
        (&k3s.replace("api_server = \"10.10.10.2:6443\"\n", ""), &["`api_server` is missing"]),
        (&k3s.replace("server_token_credential", "#"), &["neither `server_token_file` nor"]),
        (
            &format!("{k3s}token_ttl = \"30m\"\n"),
            &[
                "`token_ttl` has no effect with `method = \"k3s\"`",
                "c.toml:5:13",
                "applies only to `method = \"kubeadm\"`",
            ],
        ),
        ("[bootstrap]\nmethod = \"command\"\n", &["`command` is missing"]),
        (&script("  "), &["`command` is empty"]),
        (&script("echo \u{e4}"), &["non-ASCII characters"]),
        (&script(&"x".repeat(40_000)), &["longer than 32768 bytes"]),
        (
            &script("join\njoin {{ machine.nam }}"),
            &["the variables in `command` cannot be filled in", "line 2: undefined value"],
        ),
        (&script("{% if %}"), &["the variables in `command` cannot be filled in", "line 1"]),
        (&script("{{ machine.mac }}"), &["line 1: undefined value"]),
        (&format!("{none}accept_degraded = true\n"), &["`accept_degraded` has no effect"]),
        (&format!("{none}probe_port = 22\n"), &["`probe_port` has no effect"]),
        (
            &format!("{none}{pool}kubelet_args = {{ v = 2 }}\n"),
            &["pool `w`: `kubelet_args` has no effect", "the template's kubelet"],
        ),
        (
            &format!("{none}{pool}startup_taints = [\"a=b:NoSchedule\"]\n"),
            &["pool `w`: `startup_taints` has no effect"],
        ),
    ]);
    good(&script("join {{ machine.name | sh }} {{ pool.name }}"), Needs::Plan);
}

#[test]
fn drains_have_groups_and_a_limit_for_each_pool() {
    let config = good("[scale_down]\ndrain_priorities = [-5, 0, 2000000000]\n", Needs::Plan);
    assert_eq!(config.scale_down.drain_priorities, [-5, 0, 2_000_000_000]);
    assert_eq!(good("", Needs::Plan).scale_down.drain_priorities, [2_000_000_000]);
    let pool = "[[pool]]\nname = \"a\"\nmax = 1\ncores = 1\nmemory = \"1GiB\"\n";
    assert_eq!(
        good(&format!("{pool}drain = \"90s\"\n"), Needs::Plan).pools[0].drain,
        Some(Duration::from_secs(90))
    );
    assert_eq!(good(pool, Needs::Plan).pools[0].drain, None);
    refuses(&[
        (
            "[scale_down]\ndrain_priorities = [1, 1]\n",
            &["`drain_priorities` are not in ascending order", "c.toml:2:20"],
        ),
        (&format!("{pool}drain = \"0s\"\n"), &["`drain`", "c.toml:6:9"]),
    ]);
}

#[test]
fn a_key_with_a_character_of_several_bytes_is_reported() {
    refuses(&[("nam\u{feff}e = \"a\"\n", &["c.toml:1"]), ("tök€n = 1\n", &["c.toml:1"])]);
}

#[test]
fn a_pool_may_have_a_bootstrap_of_its_own() {
    let all = "[bootstrap]\nmethod = \"command\"\ncommand = \"join\"\n";
    let own = "[pool.bootstrap]\nmethod = \"none\"\n";
    let second = POOL.replace("\"w\"", "\"v\"").replace("9100", "9101").replace("0.0.5", "0.0.6");
    let config = good(&format!("{all}{POOL}{own}{second}"), Needs::Plan);
    let names: Vec<bool> =
        config.pools.iter().map(|pool| config.bootstrap_of(pool).unwrap().needs_agent()).collect();
    assert_eq!((names, config.bootstraps().count()), (vec![false, true], 2));
    let config = good(&format!("{all}{POOL}{own}"), Needs::Plan);
    assert_eq!(config.bootstraps().count(), 1, "no pool uses `[bootstrap]`");
    let report = parse("c.toml", &format!("{POOL}{own}"), Needs::Run).unwrap_err().plain();
    assert!(!report.contains("[bootstrap]"), "{report}");
    let table = |more: &str| format!("{POOL}max_pods = 9\n[pool.bootstrap]\n{more}");
    refuses(&[
        (&table("probe_port = 22\n"), &["`probe_port` applies to all pools", "c.toml:11:14"]),
        (&table("token_ttl = \"1m\"\n"), &["`token_ttl` is too short", "c.toml:11:13"]),
        (
            &table("method = \"command\"\ncommand = \"{{ machine.x }}\"\n"),
            &["the variables in `command` cannot be filled in", "c.toml:12:11"],
        ),
        (
            &table("method = \"none\"\n").replace("max_pods = 9", "kubelet_args = { v = 2 }"),
            &["`kubelet_args` has no effect with `method = \"none\"`"],
        ),
        (
            &table("method = \"none\"\n").replace("max_pods = 9", "warm = { count = 1, state = \"booted\" }"),
            &["cannot be kept booted"],
        ),
    ]);
}

#[test]
fn what_is_wrong_with_a_seed_has_its_place() {
    let seed =
        |more: &str| format!("{POOL}[pool.cloud_init]\nmethod = \"seed\"\nstorage = \"local\"\n{more}");
    let user = "user_data = \"#cloud-config\\n\"\n";
    assert!(parse("c.toml", &seed(user), Needs::Plan).is_ok());
    let drive = "[pool.cloud_init]\n";
    refuses(&[
        (&seed(""), &["pool `w`: the seed needs `user_data`"]),
        (&seed(user).replace("storage = \"local\"\n", ""), &["the seed needs `storage`"]),
        (&seed(user).replace("\"local\"", "\"/tmp\""), &["`/tmp` is not a valid storage name"]),
        (
            &seed("user_data = \"\"\"a\n{{ machine.nam }}\"\"\""),
            &["the variables in `user_data` cannot be filled in", "c.toml:12:13", "line 2"],
        ),
        (
            &format!("{}network_config = \"{{{{ secret }}}}\"", seed(user)),
            &["the variables in `network_config` cannot be filled in"],
        ),
        (&format!("{POOL}{drive}{user}"), &["Proxmox VE's own cloud-init drive does not use `storage`"]),
        (
            &seed(user).replace("prefix = 24\n", "prefix = 24\nsearch = \"example.org\"\n"),
            &["with a seed, `search` needs `dns`", "set `dns` as well"],
        ),
        (
            &seed(user).replace("prefix = 24\n", "prefix = 24\nuser = \"me\"\n"),
            &["`user` and `ssh_keys` do not apply to a seed", "define users and their keys in `user_data`"],
        ),
    ]);
}
