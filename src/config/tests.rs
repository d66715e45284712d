//! A whole file: everything that is wrong with it, at its place; and the example.

use super::*;

/// A pool with addresses, for what stands below it.
const POOL: &str = "[[pool]]\nname = \"w\"\nmax = 1\ncores = 2\nmemory = \"4GiB\"\nvmids = \"9100\"\naddresses = \"10.0.0.5\"\nprefix = 24\n";

#[test]
fn every_wrong_thing_is_reported_at_once_and_at_its_place() {
    let text = "scan_interval = \"0s\"\n\n[scale_down]\nutilization_threshold = 1.5\n\n[[pool]]\nname = \"gpu\"\n\
        min = 5\nmax = 3\ncores = 4\nmemory = \"8 gigs\"\n";
    let report = parse("config.toml", text, Needs::Plan).unwrap_err().plain();
    for expected in [
        "config.toml:1:17",
        "`scan_interval` must be longer than zero",
        "config.toml:4:25",
        "pool `gpu`: `min` is greater than `max`",
        "config.toml:8:7",
        "help: raise `max`, or lower `min`",
        "config.toml:11:10",
    ] {
        assert!(report.contains(expected), "no {expected:?} in\n{report}");
    }
}

#[test]
fn an_unknown_key_gets_a_suggestion() {
    let cases = [
        ("[scale_dwon]\n", "did you mean `scale_down`?"),
        ("[scale_down]\nuneeded_time = \"10m\"\n", "did you mean `unneeded_time`?"),
        ("[[pool]]\nname = \"a\"\nmaximum = 3\n", "unknown field `maximum`"),
    ];
    for (text, expected) in cases {
        let report = parse("c.toml", text, Needs::Plan).unwrap_err().plain();
        assert!(report.contains(expected), "no {expected:?} in\n{report}");
    }
}

#[test]
fn how_the_clusters_are_reached_is_checked() {
    let good = "endpoints = [\"https://127.0.0.1:8006\"]\ntoken_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n";
    let cases = [
        (good.to_owned(), ""),
        (good.replace("https", "http"), "is not an endpoint"),
        (good.replace("[\"https://127.0.0.1:8006\"]", "[]"), "`endpoints` is empty"),
        (good.replace("a@pve!b", "a@pve!b=0a1b"), "is not a token's id"),
        (good.replace("token_file = \"/t\"\n", ""), "neither `token_file` nor `token_credential`"),
        (format!("{good}token_credential = \"t\"\n"), "`token_file` and `token_credential` are both given"),
        (good.replace("token_file", "token"), "name it with `token_file`"),
        (good.replace("ca_file = \"/c\"\n", ""), "neither `ca_file` nor `fingerprint`"),
        (good.replace("ca_file = \"/c\"", "fingerprint = \"AB:CD\""), "not a SHA-256 fingerprint"),
        (format!("{good}request_timeout = \"soon\"\n"), "`request_timeout` is not a duration"),
    ];
    for (table, expected) in cases {
        let answer = parse("c.toml", &format!("[proxmox]\n{table}"), Needs::Plan);
        match answer {
            Ok(config) => assert!(expected.is_empty() && config.proxmox.is_some(), "{expected}"),
            Err(report) => assert!(!expected.is_empty() && report.plain().contains(expected), "{report}"),
        }
    }
    let report = parse("c.toml", "[kubernetes]\ncontext = \"home\"\n", Needs::Plan).unwrap_err().plain();
    assert!(report.contains("neither `kubeconfig_file` nor `kubeconfig_credential`"), "{report}");
}

#[test]
fn a_secret_in_the_file_is_refused_and_never_shown() {
    let cases = [
        "[proxmox]\ntoken = \"S3CR3T\"\n",
        "[proxmox]\n\"token\" = \"S3CR3T\"\n",
        "proxmox = { password = \"S3CR3T\" }\n",
        "[bootstrap]\ntoken = \"S3CR3T\"\n",
        "[bootstrap]\ntoken = \"\"\"\nabc\nS3CR3T\n\"\"\"\n",
        "[proxmox]\nendpoints = []\ntoken_id = \"a@pve!b=S3CR3T\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n",
    ];
    for text in cases {
        let report = parse("c.toml", text, Needs::Plan).unwrap_err();
        for said in [report.plain(), report.styled(), format!("{report:?}")] {
            assert!(!said.contains("S3CR3T"), "{said}");
        }
        let hints = ["token_file", "say where it comes from, not what it is"];
        assert!(hints.iter().any(|hint| report.plain().contains(hint)), "{report}");
    }
}

#[test]
fn a_size_below_its_bound_is_refused() {
    for (memory, expected) in [("-8GiB", "is negative"), ("0", "is zero"), ("0GiB", "is zero")] {
        let text = format!("[[pool]]\nname = \"a\"\nmax = 1\ncores = 1\nmemory = \"{memory}\"\n");
        let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
        assert!(report.contains(expected), "{report}");
    }
}

#[test]
fn a_value_of_another_shape_gets_a_way_out() {
    let pool = "[[pool]]\nname = \"a\"\nmax = 1\ncores = 1\n";
    let cases = [
        ("[pool]\nname = \"a\"\n".to_owned(), "write `[[pool]]`"),
        (format!("{pool}memory = 8\n"), "put it in quotes, with its unit if it has one"),
        ("[[pool]]\nname = \"a\"\nmax = \"1\"\n".to_owned(), "write it without quotes"),
        (format!("{pool}memory = \"8GiB\"\ntaints = \"a=b:NoSchedule\"\n"), "`[\"a=b:NoSchedule\"]`"),
    ];
    for (text, expected) in cases {
        let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
        assert!(report.contains(expected), "no {expected:?} in\n{report}");
    }
}

#[test]
fn what_is_no_file_of_text_is_told_apart() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("c.toml");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    let cases = [
        (folder.path(), "name the file in it"),
        (path.as_path(), "not a text file"),
        (Path::new("/nonexistent/c.toml"), "config.example.toml"),
    ];
    for (path, expected) in cases {
        let report = load(path, Needs::Plan).unwrap_err().plain();
        assert!(report.contains(expected), "{report}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let report = load(Path::new("/nonexistent/c.toml"), Needs::Plan).unwrap_err().plain();
    assert!(report.contains("cannot read `/nonexistent/c.toml`"), "{report}");
}

/// Text of the example with its settings switched on, each in its first way or in its last.
fn example(other_ways: bool) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut in_other_way = false;
    for line in include_str!("../../config.example.toml").lines() {
        match line.strip_prefix("#| ") {
            Some(other) if other_ways => {
                if !in_other_way {
                    lines.pop();
                }
                lines.push(other);
                in_other_way = true;
            }
            Some(_) => {}
            None => {
                lines.push(line.strip_prefix("#: ").unwrap_or(line));
                in_other_way = false;
            }
        }
    }
    lines.join("\n")
}

/// `[bootstrap]` of the example with another method.
fn method(name: &str) -> String {
    format!("[bootstrap]\n{}\n", marked(name))
}

/// What the example has for another way of a table.
fn marked(name: &str) -> String {
    let mark = format!("#{name}| ");
    let lines: Vec<&str> = include_str!("../../config.example.toml")
        .lines()
        .filter_map(|line| line.strip_prefix(&mark))
        .collect();
    lines.join("\n")
}

fn good(text: &str, needs: Needs) -> Config {
    parse("example", text, needs).unwrap_or_else(|report| panic!("{}", report.plain()))
}

#[test]
fn the_example_is_a_configuration_and_names_every_key() {
    let config = good(include_str!("../../config.example.toml"), Needs::Plan);
    assert_eq!(config.pools.len(), 1);
    let (first, other) = (example(false), example(true));
    let config = good(&first, Needs::Run);
    assert_eq!(config.pools[0].slots().len(), 50);
    assert!(config.bootstrap.unwrap().ssh().is_none());
    let config = good(&other, Needs::Run);
    assert_eq!(config.pools[0].template, Some(TemplateRef::Vmid(9000)));
    assert_eq!(config.pools[0].slots().len(), 41);
    assert!(config.bootstrap.unwrap().ssh().is_some());
    let seed = format!("{POOL}[pool.cloud_init]\n{}\n", marked("seed"));
    assert!(matches!(good(&seed, Needs::Plan).pools[0].cloud_init, CloudInit::Seed(_)));
    let redfish = format!("[[host]]\nname = \"pve1\"\n{}\n", marked("redfish"));
    assert!(good(&redfish, Needs::Plan).hosts["pve1"].power.is_some());
    assert!(good(&marked("machine"), Needs::Plan).pools[0].is_physical());
    let (head, tail) = first.split_once("[[host]]").unwrap();
    let several = format!("{head}{}\n[[host]]{tail}", marked("also"));
    assert_eq!(good(&several, Needs::Run).also[0].region.as_deref(), Some("east"));
    let methods = ["k3s", "command", "none", "seed", "redfish", "machine"].map(marked);
    for keys in [
        KEYS,
        proxmox::KEYS,
        kubernetes::KEYS,
        bootstrap::KEYS,
        scale_up::KEYS,
        scale_down::KEYS,
        health::KEYS,
        hosts::KEYS,
        power::KEYS,
        power::REDFISH_KEYS,
        replace::KEYS,
        disruption::KEYS,
        leader::KEYS,
        limits::KEYS,
        metrics::KEYS,
        record::KEYS,
        pool::KEYS,
        pool::SCHEDULE_KEYS,
        pool::DEVICE_KEYS,
        pool::SECURITY_KEYS,
        pool::PCI_KEYS,
        template::KEYS,
        pool::CLOUD_INIT_KEYS,
        pool::PHYSICAL_KEYS,
    ] {
        for key in keys {
            let named = |text: &str| text.lines().any(|line| line.starts_with(&format!("{key} =")));
            let shown = named(&first) || named(&other) || methods.iter().any(|method| named(method));
            assert!(shown, "config.example.toml does not name `{key}`");
        }
    }
}

#[test]
fn the_example_shows_the_defaults() {
    let shown = good(&example(false), Needs::Run);
    let bare = good(include_str!("../../config.example.toml"), Needs::Plan);
    let tables = |config: &Config| {
        format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            config.mode,
            config.cluster,
            config.scan_interval,
            config.batch_window,
            config.batch_max,
            config.scale_up,
            config.scale_down,
            config.health,
            config.leader,
            config.limits,
            config.metrics
        )
    };
    assert_eq!(tables(&shown), tables(&bare));
    let needed =
        "endpoints = [\"https://a\"]\ntoken_id = \"a@pve!b\"\ntoken_file = \"/t\"\nca_file = \"/c\"\n";
    let text = format!("[proxmox]\n{needed}[kubernetes]\nkubeconfig_file = \"/k\"\n[bootstrap]\n");
    let bare = good(&text, Needs::Plan);
    let (shown_proxmox, bare_proxmox) = (shown.proxmox.unwrap(), bare.proxmox.unwrap());
    let numbers = |it: &Proxmox| {
        let times = (it.connect_timeout, it.request_timeout, it.agent_calls_per_host, it.calls_per_host);
        let clones = (it.linked_clones_per_storage, it.full_clones_per_storage);
        let memory = (it.memory_overcommit, it.memory_reserve, it.count_stopped);
        format!("{times:?} {clones:?} {:?} {memory:?}", it.cpu_overcommit)
    };
    assert_eq!(numbers(&shown_proxmox), numbers(&bare_proxmox));
    let (shown_kube, bare_kube) = (shown.kubernetes.unwrap(), bare.kubernetes.unwrap());
    assert_eq!(
        (shown_kube.namespace, shown_kube.request_timeout),
        (bare_kube.namespace, bare_kube.request_timeout)
    );
    let (shown, bare) = (shown.bootstrap.unwrap(), bare.bootstrap.unwrap());
    assert_eq!(
        (Kubeadm { api_server: None, ..shown.kubeadm().unwrap().clone() }, shown.accept_degraded),
        (bare.kubeadm().unwrap().clone(), bare.accept_degraded)
    );
}

#[test]
fn a_plan_needs_pools_at_most_and_the_daemon_everything() {
    assert!(parse("c.toml", "", Needs::Plan).is_ok());
    let report = parse("c.toml", "", Needs::Run).unwrap_err().plain();
    for table in ["[proxmox]", "[kubernetes]", "[bootstrap]", "[[pool]]"] {
        assert!(report.contains(&format!("the table `{table}` is missing")), "{report}");
    }
    let pool = "[[pool]]\nname = \"a\"\nmax = 1\ncores = 1\nmemory = \"1GiB\"\n";
    assert!(parse("c.toml", pool, Needs::Plan).is_ok());
    let report = parse("c.toml", pool, Needs::Run).unwrap_err().plain();
    for key in ["template", "vmids", "addresses"] {
        assert!(report.contains(&format!("pool `a`: `{key}` is missing")), "{report}");
    }
    assert!(report.contains("c.toml:2:8"), "{report}");
}

#[test]
fn findings_come_in_the_order_of_the_file_with_line_and_column() {
    let text = "# Ä\nscan_interval = \"0s\"\n[[pool]]\nname = \"Ä\"\nmin = 2\nmax = 1\ncores = 0\nmemory = \"0\"\n\
        [limits]\nclone = \"0s\"\n";
    let report = parse("c.toml", text, Needs::Run).unwrap_err();
    let places: Vec<_> = report.findings().iter().map(|finding| report.position(finding)).collect();
    let named = places.iter().flatten().copied().collect::<Vec<_>>();
    assert!(named.is_sorted() && places.iter().take(3).all(Option::is_none), "{places:?}");
    for place in [(2, 17), (4, 8), (5, 7), (7, 9), (8, 10), (10, 9)] {
        assert!(named.contains(&place), "no {place:?} in {named:?}");
    }
}

/// Each text has exactly these findings: title, what stands at the place, and the way out, in parts.
fn refuses(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let Err(report) = parse("c.toml", text, Needs::Plan) else { panic!("nothing is wrong with\n{text}") };
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
        ("cluster = \"Home\"\n", &["`Home` cannot be a cluster's id", "c.toml:1:11", "lower-case letters"]),
        ("cluster = \"\"\n", &["cannot be a cluster's id"]),
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
        ("[[pool]]\nname = \"a\"\nvmids = 1.5\n", &["expected a text, a whole number or a list of them"]),
        ("[[pool]]\nname = \"a\"\ntemplate = []\n", &["expected a text or a whole number"]),
    ]);
}

#[test]
fn no_limit_is_zero() {
    for key in limits::KEYS {
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
        ("[leader]\nlease_duration = \"10500ms\"\n", &["is not in whole seconds", "c.toml:2:18"]),
        (
            "[leader]\nlease_duration = \"6s\"\n",
            &["`renew_deadline` is not shorter than `lease_duration`", "longer than `renew_deadline` by 1s"],
        ),
        ("[leader]\nrenew_deadline = \"10s\"\n", &["`renew_deadline` is not shorter", "c.toml:2:18"]),
        ("[leader]\nretry_period = \"4s\"\n", &["`retry_period` is longer than half", "two tries"]),
        ("[leader]\nrenew_deadline = \"3s\"\n", &["`retry_period` is longer than half", "c.toml:2:18"]),
    ]);
    let fine = "[leader]\nlease_duration = \"7s\"\nrenew_deadline = \"6s\"\nretry_period = \"3s\"\n";
    assert_eq!(good(fine, Needs::Plan).leader.lease_duration, Duration::from_secs(7));
}

#[test]
fn the_way_to_kubernetes_is_checked() {
    let with = |line: &str| format!("[kubernetes]\nkubeconfig_file = \"/k\"\n{line}\n");
    for (line, expected) in [
        ("namespace = \"Auto_Scaler\"", "`Auto_Scaler` cannot be a namespace"),
        ("namespace = \"\"", "cannot be a namespace"),
        ("context = \"\"", "`context` is empty"),
    ] {
        refuses(&[(&with(line), &[expected, "c.toml:3:"])]);
    }
    refuses(&[
        (
            "[kubernetes]\nkubeconfig_file = \"kubeconfig\"\n",
            &["`kubeconfig_file` is not an absolute path", "must begin with `/`", "from the root on"],
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
        ("ca_file = \"/c\"\nresource_pool = \"a b\"", "`a b` cannot be a resource pool"),
        ("ca_file = \"ca.pem\"", "`ca_file` is not an absolute path"),
        ("ca = \"mozilla\"", "must be \"system\""),
        ("ca = \"system\"\nca_file = \"/c\"", "`ca_file` and `ca` are both given"),
        ("ca_credential = \"a/b\"", "`ca_credential` is not the name of a credential"),
    ] {
        refuses(&[(&format!("{needed}{lines}\n"), &[expected])]);
    }
    let trusts = [
        ("ca = \"system\"", ProxmoxTrust::System),
        ("ca_credential = \"ca\"", ProxmoxTrust::CaCredential("ca".to_owned())),
    ];
    for (line, trust) in trusts {
        assert_eq!(good(&format!("{needed}{line}\n"), Needs::Plan).proxmox.unwrap().trust, trust);
    }
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
        (ssh.replace("cp1", "cp1:22"), "the port goes into `ssh_port`"),
        (ssh.replace(&format!("ssh_host_key = \"{HOST_KEY}\"\n"), ""), "`ssh_host_key` is missing"),
        (ssh.replace("AAAAC", "BBBBC"), "`ssh_host_key` is not a public key"),
        (ssh.replace(&HOST_KEY[40..], ""), "`ssh_host_key` is not a public key"),
        (ssh.replace("ssh-ed25519", "ecdsa-sha2-nistp256"), "`ssh_host_key` is not a public key"),
        (ssh.replace("ssh-ed25519", "cp1 ssh-ed25519"), "from `ssh-keyscan` without the host's name"),
        (ssh.replace(HOST_KEY, "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQE="), "must be Ed25519 or ECDSA"),
        (ssh.replace("ssh_key_file = \"/k\"\n", ""), "neither `ssh_key_file` nor `ssh_key_credential`"),
        (ssh.replace("\"/k\"", "\"id_ed25519\""), "`ssh_key_file` is not an absolute path"),
        (format!("{ssh}ssh_port = 0\n"), "`ssh_port` is zero"),
        (format!("{ssh}ssh_user = \"Root\"\n"), "`Root` cannot be a user's name"),
        (format!("{api}ssh_port = 22\n"), "`ssh_port` means nothing while tokens come from"),
        (format!("{api}ssh_host = \"a\"\n"), "set `token = \"ssh\"`, or remove it"),
        (format!("{api}method = \"k3d\"\n"), "did you mean `k3s`?"),
        (format!("{api}api_server = \"https://10.0.0.1:6443\"\n"), "without `https://`"),
        (format!("{api}api_server = \"10.0.0.1\"\n"), "is not the address of an API server"),
        (format!("{api}api_server = \"10.0.0.1:0\"\n"), "is not the address of an API server"),
        (format!("{api}probe_port = 0\n"), "`probe_port` is zero"),
        (format!("{api}ignore_preflight_errors = [\"Num CPU\"]\n"), "is not a preflight check"),
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
        let credential = SecretSource::Credential(expected.to_owned());
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
                "`token_ttl` means nothing with `method = \"k3s\"`",
                "c.toml:5:13",
                "goes with `method = \"kubeadm\"`",
            ],
        ),
        ("[bootstrap]\nmethod = \"command\"\n", &["`command` is missing"]),
        (&script("  "), &["`command` is empty"]),
        (&script("echo \u{e4}"), &["beyond ASCII"]),
        (&script(&"x".repeat(40_000)), &["longer than 32768 bytes"]),
        (
            &script("join\njoin {{ machine.nam }}"),
            &["`command` cannot be filled in", "line 2: undefined value"],
        ),
        (&script("{% if %}"), &["`command` cannot be filled in", "line 1"]),
        (&script("{{ machine.mac }}"), &["line 1: undefined value"]),
        (&format!("{none}accept_degraded = true\n"), &["`accept_degraded` means nothing"]),
        (&format!("{none}probe_port = 22\n"), &["`probe_port` means nothing"]),
        (
            &format!("{none}{pool}kubelet_args = {{ v = 2 }}\n"),
            &["pool `w`: `kubelet_args` does nothing", "in the template's kubelet"],
        ),
        (
            &format!("{none}{pool}startup_taints = [\"a=b:NoSchedule\"]\n"),
            &["pool `w`: `startup_taints` does nothing"],
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
    assert_eq!(config.bootstraps().count(), 1, "nobody uses the one for all");
    let report = parse("c.toml", &format!("{POOL}{own}"), Needs::Run).unwrap_err().plain();
    assert!(!report.contains("[bootstrap]"), "{report}");
    let table = |more: &str| format!("{POOL}max_pods = 9\n[pool.bootstrap]\n{more}");
    refuses(&[
        (&table("probe_port = 22\n"), &["`probe_port` is the same for all pools", "c.toml:11:14"]),
        (&table("token_ttl = \"1m\"\n"), &["`token_ttl` is too short", "c.toml:11:13"]),
        (
            &table("method = \"command\"\ncommand = \"{{ machine.x }}\"\n"),
            &["`command` cannot be filled in", "c.toml:12:11"],
        ),
        (
            &table("method = \"none\"\n").replace("max_pods = 9", "kubelet_args = { v = 2 }"),
            &["`kubelet_args` does nothing with `method = \"none\"`"],
        ),
        (
            &table("method = \"none\"\n").replace("max_pods = 9", "warm = { count = 1, state = \"booted\" }"),
            &["cannot wait for it booted"],
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
        (&seed(""), &["pool `w`: `user_data` of the seed is missing"]),
        (&seed(user).replace("storage = \"local\"\n", ""), &["`storage` of the seed is missing"]),
        (&seed(user).replace("\"local\"", "\"/tmp\""), &["`/tmp` cannot be a storage"]),
        (
            &seed("user_data = \"\"\"a\n{{ machine.nam }}\"\"\""),
            &["`user_data` cannot be filled in", "c.toml:12:13", "line 2"],
        ),
        (
            &format!("{}network_config = \"{{{{ secret }}}}\"", seed(user)),
            &["`network_config` cannot be filled in"],
        ),
        (&format!("{POOL}{drive}{user}"), &["Proxmox VE's own drive takes no texts"]),
        (
            &seed(user).replace("prefix = 24\n", "prefix = 24\nuser = \"me\"\n"),
            &["a seed says itself which users there are", "write them into `user_data`"],
        ),
    ]);
}
