//! Tests of entire files: all errors are reported, each at its place, and the example is valid.

mod schema;
mod tables;

use super::*;
use model::Vmid;

/// A pool with addresses, to which tests append tables.
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
        (good.replace("a@pve!b", "a@pve!b=0a1b"), "is not a valid token ID"),
        (good.replace("token_file = \"/t\"\n", ""), "neither `token_file` nor `token_credential`"),
        (good.replace("token_file = \"/t\"\n", ""), "the unit loads `pve-token`"),
        (format!("{good}token_credential = \"t\"\n"), "`token_file` and `token_credential` are both given"),
        (good.replace("token_file", "token"), "name it with `token_credential`"),
        (
            good.replace("ca_file = \"/c\"\n", ""),
            "none of `ca_credential`, `ca_file` and `fingerprint` is given",
        ),
        (good.replace("ca_file = \"/c\"\n", ""), "`ca_credential = \"pve-root-ca\"`"),
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
    assert!(report.contains("the unit loads `kubeconfig`"), "{report}");
    let written = "[kubernetes]\ntoken = \"S3CR3T\"\n";
    let report = parse("c.toml", written, Needs::Plan).unwrap_err().plain();
    assert!(report.contains("name it with `kubeconfig_credential`"), "{report}");
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
        let hints = ["token_file", "name its source, not its value"];
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
        (format!("{pool}memory = 8\n"), "put the value in quotes, with its unit if it has one"),
        ("[[pool]]\nname = \"a\"\nmax = \"1\"\n".to_owned(), "write it without quotes"),
        ("[[host]]\nname = \"a\"\nclosed = \"true\"\n".to_owned(), "write it without quotes"),
        ("[scale_down]\nutilization_threshold = '1'\n".to_owned(), "write it without quotes"),
        (format!("{pool}memory = \"8GiB\"\ntaints = \"a=b:NoSchedule\"\n"), "`[\"a=b:NoSchedule\"]`"),
    ];
    for (text, expected) in cases {
        let report = parse("c.toml", &text, Needs::Plan).unwrap_err().plain();
        assert!(report.contains(expected), "no {expected:?} in\n{report}");
    }
    // Removing the quotes would not make any of these values valid.
    for text in [
        "[[pool]]\nname = \"a\"\nmax = 1\ncores = \"four\"\n",
        "[[pool]]\nname = \"a\"\nmax = 1\ncores = \"4.5\"\n",
        "[[pool]]\nname = \"a\"\nmax = \"-1\"\n",
        "[[host]]\nname = \"a\"\nclosed = \"yes\"\n",
    ] {
        let report = parse("c.toml", text, Needs::Plan).unwrap_err().plain();
        assert!(!report.contains("quotes"), "{report}");
    }
}

/// Returns the example with its settings enabled. If a setting has two alternatives, `other_ways` selects the
/// second.
fn example(other_ways: bool) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut in_other_way = false;
    for line in include_str!("../../../../../config.example.toml").lines() {
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

/// Returns the example's `[bootstrap]` table for the method `name`.
fn method(name: &str) -> String {
    format!("[bootstrap]\n{}\n", marked(name))
}

/// Returns the lines of the example that begin with `#NAME| `, without this mark.
fn marked(name: &str) -> String {
    let mark = format!("#{name}| ");
    let lines: Vec<&str> = include_str!("../../../../../config.example.toml")
        .lines()
        .filter_map(|line| line.strip_prefix(&mark))
        .collect();
    lines.join("\n")
}

fn good(text: &str, needs: Needs) -> Config {
    parse("example", text, needs).unwrap_or_else(|report| panic!("{}", report.plain()))
}

#[test]
fn the_example_is_a_configuration_in_all_its_ways() {
    let config = good(include_str!("../../../../../config.example.toml"), Needs::Plan);
    assert_eq!(config.pools.len(), 1);
    let (first, other) = (example(false), example(true));
    let config = good(&first, Needs::Run);
    assert_eq!(config.pools[0].slots().len(), 50);
    assert!(config.bootstrap.unwrap().ssh().is_none());
    let config = good(&other, Needs::Run);
    assert_eq!(config.pools[0].template, Some(TemplateRef::Vmid(Vmid(9000))));
    assert_eq!(config.pools[0].slots().len(), 41);
    assert!(config.bootstrap.unwrap().ssh().is_some());
    let seed = format!("{POOL}[pool.cloud_init]\n{}\n", marked("seed"));
    assert!(matches!(good(&seed, Needs::Plan).pools[0].cloud_init, CloudInit::Seed(_)));
    let redfish = format!("[[host]]\nname = \"pve1\"\n{}\n", marked("redfish"));
    assert!(good(&redfish, Needs::Plan).hosts["pve1"].power.is_some());
    assert!(good(&marked("machine"), Needs::Plan).pools[0].is_physical());
    assert!(good(&format!("{POOL}{}\n", marked("grow")), Needs::Plan).pools[0].grow.is_some());
    let (head, tail) = first.split_once("[[host]]").unwrap();
    let several = format!("{head}{}\n[[host]]{tail}", marked("also"));
    assert_eq!(good(&several, Needs::Run).also[0].region.as_deref(), Some("east"));
}

#[test]
fn the_example_shows_the_defaults() {
    let shown = good(&example(false), Needs::Run);
    let bare = good(include_str!("../../../../../config.example.toml"), Needs::Plan);
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
    for table in ["[proxmox]", "[kubernetes]", "[[pool]]"] {
        assert!(report.contains(&format!("the `{table}` table is missing")), "{report}");
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
    assert!(named.is_sorted() && places.iter().take(2).all(Option::is_none), "{places:?}");
    for place in [(2, 17), (4, 8), (5, 7), (7, 9), (8, 10), (10, 9)] {
        assert!(named.contains(&place), "no {place:?} in {named:?}");
    }
}

#[test]
fn a_slip_is_met_with_what_was_meant() {
    let pool = "[[pool]]\nname = \"a\"\nmax = 1\ncores = 1\nmemory = \"1GiB\"\n";
    let report = |text: &str| parse("c.toml", text, Needs::Plan).unwrap_err().plain();
    for (text, expected) in [
        (pool.replace("1GiB", "4GB"), "did you mean \"4GiB\"?"),
        (pool.replace("1GiB", "512 mb"), "did you mean \"512MiB\"?"),
        (pool.replace("1GiB", "4g"), "did you mean \"4GiB\"?"),
        ("[scale_down]\nutilization_threshold = 50\n".to_owned(), "50 % is written as 0.5"),
        (pool.replace("cores", "coers"), "did you mean `cores`?"),
        (format!("{pool}fuel = 3\n"), "pve-autoscaler.toml(5)"),
        (
            format!("{pool}vmids = \"1-2\"\naddresses = \"fd00::10-fd00::11\"\nprefix = 24\n"),
            "`prefix` fits an IPv4 network, but `addresses` are IPv6",
        ),
    ] {
        let report = report(&text);
        assert!(report.contains(expected), "{text}\n{report}");
        assert!(report.len() < 700, "{report}");
    }
    for size in ["1073741824B", "1073741824", "1GiB", "1Gi"] {
        assert!(parse("c.toml", &pool.replace("1GiB", size), Needs::Plan).is_ok(), "{size}");
    }
}

#[test]
fn the_defaults_of_bootstrap_need_no_table() {
    let text = "[proxmox]\nendpoints = [\"https://127.0.0.1:8006\"]\ntoken_id = \"a@pve!b\"\ntoken_credential = \"t\"\nca = \"system\"\n\
        [kubernetes]\nkubeconfig_credential = \"k\"\n\
        [[pool]]\nname = \"a\"\nmax = 1\ncores = 1\nmemory = \"1GiB\"\ntemplate = 9000\nvmids = \"9100-9109\"\naddresses = \"dhcp\"\n";
    let without = parse("c.toml", text, Needs::Run).unwrap();
    let with = parse("c.toml", &format!("{text}[bootstrap]\n"), Needs::Run).unwrap();
    assert_eq!(format!("{:?}", without.bootstrap), format!("{:?}", with.bootstrap));
    assert!(without.bootstrap.is_some());
    // Planning joins no machines, so it needs no bootstrap settings.
    assert!(parse("c.toml", text, Needs::Plan).unwrap().bootstrap.is_none());
}
