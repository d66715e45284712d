//! Asserts that the files that are packaged with the program match the program, and meet the requirements of
//! Debian, systemd and Prometheus.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may panic on unexpected results, and prints what it skips"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output};

use pve_autoscaler::cli::exit;
use pve_autoscaler::model::drain::{Blocking, NodeReason};
use pve_autoscaler::model::plan::{NodeOutcome, PodOutcome, RemovalReason};
use pve_autoscaler::model::power::HostOutcome;
use pve_autoscaler::model::snapshot;
use pve_autoscaler::observability::DEFAULT_SOCKET;
use pve_autoscaler::settings::{self, Needs};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap()
}

/// The output of a program; `None` if the program is not installed.
fn ask(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(program).args(arguments).current_dir(file("")).output();
    if output.is_err() {
        eprintln!("skipped: {program} is not installed");
    }
    output.ok()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_configuration_in_the_readme_is_all_that_the_daemon_needs() {
    let readme = text("README.md");
    let written = readme.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    settings::parse("README.md", written, Needs::Run).unwrap();
    assert!(written.lines().count() < 25, "the configuration has 25 lines or more");
}

#[test]
fn the_configuration_that_is_installed_needs_only_what_it_marks() {
    let installed = text("packaging/config.minimal.toml");
    let unfinished = settings::parse("config.toml", &installed, Needs::Run).unwrap_err().to_string();
    assert_eq!(unfinished.matches("is missing").count(), 3, "{unfinished}");
    for name in ["template", "vmids", "addresses"] {
        assert!(unfinished.contains(&format!("`{name}` is missing")), "{name}: {unfinished}");
    }
    settings::parse("config.toml", &installed.replace("#: ", ""), Needs::Run).unwrap();
    let lines = installed.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    assert!(lines.count() < 25, "the configuration has 25 lines or more");
    // If a configuration file of the package changes, an upgrade may ask the administrator about it. The
    // package therefore does not install the configuration reference as `config.toml`, because the reference
    // changes with each release.
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
    let asset = assets.iter().find(|asset| asset[1].as_str() == Some("etc/pve-autoscaler/config.toml"));
    assert_eq!(asset.unwrap()[0].as_str(), Some("packaging/config.minimal.toml"));
}

/// The values of one setting in the daemon's systemd unit.
fn settings(name: &str) -> Vec<String> {
    let unit = text("systemd/pve-autoscaler.service");
    let values = unit.lines().filter_map(|line| line.strip_prefix(&format!("{name}=")));
    values.map(ToOwned::to_owned).collect()
}

#[test]
fn the_unit_is_as_closed_as_promised() {
    let arguments = ["security", "--offline=yes", "--threshold=15", "systemd/pve-autoscaler.service"];
    let Some(output) = ask("systemd-analyze", &arguments) else { return };
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_unit_of_further_clusters_differs_in_names_alone() {
    let (plain, further) = (text("systemd/pve-autoscaler.service"), text("systemd/pve-autoscaler@.service"));
    let mut lines = further.lines();
    assert!(lines.next().unwrap().starts_with("# "));
    let as_plain: Vec<String> = lines
        .map(|line| {
            line.replace(" (cluster %i)", "")
                .replace("/clusters/%i/", "/")
                .replace("pve-autoscaler --cluster %i ", "pve-autoscaler ")
                .replace("Directory=pve-autoscaler@%i", "Directory=pve-autoscaler")
        })
        .collect();
    assert_eq!(as_plain, plain.lines().collect::<Vec<_>>());
    let named = further.lines().filter(|line| line.contains("%i")).count();
    // `%i` is in the description, the conditions, the command, the credentials, and the unit's own folders.
    assert_eq!(named, 1 + 2 + 1 + settings("LoadCredential").len() + 2);
    let arguments = ["security", "--offline=yes", "--threshold=15", "systemd/pve-autoscaler@.service"];
    let Some(output) = ask("systemd-analyze", &arguments) else { return };
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn what_runs_as_root_is_as_closed_and_its_socket_is_off() {
    let unit = "systemd/pve-autoscaler-pinning@.service";
    let Some(output) = ask("systemd-analyze", &["security", "--offline=yes", "--threshold=15", unit]) else {
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
    // The packaging tool enables each unit that has a line beginning with `[Install]`. In the socket unit,
    // this line is indented, so the socket stays disabled.
    let socket = text("systemd/pve-autoscaler-pinning.socket");
    assert!(socket.lines().all(|line| !line.starts_with("[Install]")) && socket.contains("\n [Install]\n"));
    assert!(socket.contains(&format!("ListenStream={}\n", pve_autoscaler::pinning::SOCKET)));
    let group = text("packaging/sysusers/pve-autoscaler.conf");
    for text in [&socket, &text("systemd/pve-autoscaler.service"), &group] {
        assert!(text.contains("pve-autoscaler-pinning"));
    }
    assert_eq!(settings("SupplementaryGroups"), ["pve-autoscaler-pinning"]);
}

#[test]
fn every_line_of_the_helpers_units_is_understood() {
    let folder = tempfile::TempDir::new().unwrap();
    for name in ["pve-autoscaler-pinning.socket", "pve-autoscaler-pinning@.service"] {
        let unit = text(&format!("systemd/{name}"));
        let unit = unit.replace("/usr/bin/pve-autoscaler", "/bin/true").replace("Documentation=", "# ");
        fs::write(folder.path().join(name), unit).unwrap();
    }
    let socket = folder.path().join("pve-autoscaler-pinning.socket");
    let service = folder.path().join("pve-autoscaler-pinning@.service");
    for unit in [socket, service] {
        let Some(output) = ask("systemd-analyze", &["verify", unit.to_str().unwrap()]) else { return };
        assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    }
}

#[test]
fn every_line_of_the_units_is_understood() {
    // `systemd-analyze verify` requires that the program and the manual page exist. Therefore, it gets copies
    // of the units that run `/bin/true` and do not name a manual page.
    let folder = tempfile::TempDir::new().unwrap();
    for (name, verified) in [
        ("pve-autoscaler.service", "pve-autoscaler.service"),
        ("pve-autoscaler@.service", "pve-autoscaler@shop-2.service"),
    ] {
        let unit = text(&format!("systemd/{name}"));
        let unit = unit.replace("/usr/bin/pve-autoscaler", "/bin/true").replace("Documentation=", "# ");
        fs::write(folder.path().join(name), unit).unwrap();
        let place = folder.path().join(verified);
        let Some(output) = ask("systemd-analyze", &["verify", place.to_str().unwrap()]) else { return };
        assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    }
}

#[test]
fn an_upgrade_restarts_the_daemons_of_further_clusters_and_a_removal_stops_them() {
    let bin = tempfile::TempDir::new().unwrap();
    let program = |name: &str, text: &str| {
        let place = bin.path().join(name);
        fs::write(&place, text).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // The fake `systemctl` lists a unit that is running and, with `--all`, also one that has failed.
    program(
        "systemctl",
        "#!/bin/sh\ncase \"$*\" in *list-units*) ;; *) exit 0 ;; esac\n\
         echo 'pve-autoscaler@shop.service loaded active running it'\n\
         case \"$*\" in *--all*) echo 'pve-autoscaler@web.service loaded failed failed it' ;; esac\n",
    );
    let calls = bin.path().join("calls");
    program("deb-systemd-invoke", &format!("#!/bin/sh\necho \"$@\" >>'{}'\n", calls.display()));
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let root = tempfile::TempDir::new().unwrap();
    let ran = |script: &str, arguments: &[&str]| {
        let under =
            |text: String, folder: &str| text.replace(folder, &format!("{}{folder}", root.path().display()));
        let text = under(under(text(&format!("packaging/deb/{script}")), "/etc/"), "/run/systemd");
        let text = under(text, "/var/lib/");
        let place = root.path().join(script);
        fs::write(&place, text).unwrap();
        let output = Command::new("sh").arg(&place).args(arguments).env("PATH", &path).output().unwrap();
        assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
        let called = fs::read_to_string(&calls).unwrap_or_default();
        let _ = fs::remove_file(&calls);
        called
    };
    for folder in ["run/systemd/system", "etc/pve-autoscaler/clusters/shop/credentials"] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    assert_eq!(ran("postinst", &["configure", ""]), "", "there is nothing to restart yet");
    assert_eq!(ran("postinst", &["configure", "0.1.0-1"]), "restart pve-autoscaler@shop.service\n");
    assert_eq!(
        ran("prerm", &["remove"]),
        "stop pve-autoscaler-pinning.socket\nstop pve-autoscaler@shop.service\nstop pve-autoscaler@web.service\n"
    );
    assert_eq!(ran("prerm", &["upgrade", "0.2.0-1"]), "");
    fs::create_dir_all(root.path().join("var/lib/private/pve-autoscaler@shop")).unwrap();
    fs::create_dir_all(root.path().join("etc/systemd/system/multi-user.target.wants")).unwrap();
    let wanted = root.path().join("etc/systemd/system/multi-user.target.wants/pve-autoscaler@shop.service");
    fs::write(&wanted, "").unwrap();
    ran("postrm", &["remove"]);
    assert!(wanted.exists() && root.path().join("etc/pve-autoscaler/clusters/shop").exists());
    ran("postrm", &["purge"]);
    for left in ["etc/pve-autoscaler", "var/lib/private/pve-autoscaler@shop"] {
        assert!(!root.path().join(left).exists(), "{left}");
    }
    assert!(!wanted.exists());
}

#[test]
fn the_unit_knows_the_programs_exit_statuses_socket_and_credentials() {
    assert_eq!(settings("RestartPreventExitStatus"), [format!("{} {}", exit::USAGE, exit::RUNNING)]);
    let folder = Path::new(DEFAULT_SOCKET).parent().unwrap();
    assert_eq!(settings("RuntimeDirectory"), [folder.strip_prefix("/run").unwrap().to_str().unwrap()]);
    let loaded = settings("LoadCredential");
    let example = text("config.example.toml");
    // An operator adds the credentials of additional Proxmox VE clusters to the unit, each under its own
    // name.
    let named: Vec<&str> = example
        .lines()
        .filter(|line| !line.starts_with("#also| "))
        .filter_map(|line| line.split_once("_credential = \""))
        .map(|(_, value)| value.trim_end_matches('"'))
        .collect();
    assert_eq!(named.len(), 8, "{named:?}");
    for name in named {
        let expected = format!("{name}:/etc/pve-autoscaler/credentials/{name}");
        assert!(loaded.contains(&expected), "{name} is not among {loaded:?}");
    }
}

#[test]
fn scripts_are_understood_by_their_shells() {
    let own = ["postinst", "prerm", "postrm", "build", "repository", "attempts", "trial"];
    let places = ["places/common", "places/container", "places/machine"];
    let all = own.iter().chain(&places).map(|name| format!("packaging/deb/{name}"));
    for name in all.chain(["packaging/proxmox-setup.sh".to_owned(), "tests/playbooks/daemon".to_owned()]) {
        let shell = if text(&name).starts_with("#!/bin/sh") { "sh" } else { "bash" };
        let Some(output) = ask(shell, &["-n", &name]) else { return };
        assert!(output.status.success() && said(&output).is_empty(), "{name}: {}", said(&output));
    }
}

#[test]
fn what_a_build_lacks_is_named_before_it_begins() {
    let bin = tempfile::TempDir::new().unwrap();
    let begun = bin.path().join("begun");
    for (name, does) in [
        ("rustc", "echo /nonexistent".to_owned()),
        ("dpkg", "echo amd64".to_owned()),
        ("cargo-deb", String::new()),
        ("cargo", format!(": >'{}'", begun.display())),
    ] {
        let place = bin.path().join(name);
        fs::write(&place, format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin", bin.path().display());
    let build = |arguments: &[&str]| {
        let script = file("packaging/deb/build");
        let mut command = Command::new("sh");
        command
            .arg(script)
            .args(arguments)
            .env("PATH", &path)
            .env("SOURCE_DATE_EPOCH", "0")
            .env_remove("BUILT");
        let output = command.output().unwrap();
        (output.status.code(), said(&output))
    };
    for arguments in [&["--arch", "arm64"][..], &["--release"]] {
        let (code, said) = build(arguments);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("rustup target add aarch64-unknown-linux-gnu"), "{said}");
    }
    for (arguments, words) in [
        (&["--what"][..], "`--what`"),
        (&["--arch", "mips"], "`mips`"),
        (&["--arch"], "amd64 or arm64"),
        (&["one", "two"], "at most one folder"),
        (&["--arch", "amd64", "--arch", "arm64", "one.deb"], "need a folder"),
    ] {
        let (code, said) = build(arguments);
        assert!(code == Some(2) && said.contains(words), "{arguments:?}: {said}");
    }
    assert!(!begun.exists());
    assert_eq!(build(&["--arch", "amd64"]), (Some(0), String::new()));
    assert!(begun.exists());
}

#[test]
fn the_package_opens_the_folder_that_was_there_before_it_and_later_leaves_it_as_it_is() {
    let root = tempfile::TempDir::new().unwrap();
    let folder = root.path().join("etc/pve-autoscaler");
    fs::create_dir_all(&folder).unwrap();
    let script = text("packaging/deb/postinst").replace("/etc/", &format!("{}/etc/", root.path().display()));
    let place = root.path().join("postinst");
    fs::write(&place, script).unwrap();
    for (before, arguments, after) in [
        (0o700, &["configure", ""][..], 0o755),
        (0o700, &["configure"], 0o755),
        (0o750, &["configure", "0.1.0-1"], 0o750),
    ] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(before)).unwrap();
        let script = place.to_str().unwrap();
        let Some(output) = ask("sh", &[&[script], arguments].concat()) else { return };
        assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
        let found = fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, after, "{arguments:?}: {found:o}");
        let inner = fs::metadata(folder.join("credentials")).unwrap().permissions().mode() & 0o777;
        assert_eq!(inner, 0o700, "{inner:o}");
    }
}

#[test]
fn the_set_up_of_proxmox_grants_what_check_asks_for() {
    let arguments =
        ["packaging/proxmox-setup.sh", "--dry-run", "--template", "9000", "--storage", "local-lvm"];
    let Some(output) = ask("sh", &[&arguments[..], &["--bridge", "vmbr0"]].concat()) else { return };
    assert!(output.status.success(), "{}", said(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    // `check` requires each of these privileges by name.
    for privilege in [
        "Datastore.AllocateSpace",
        "Datastore.Audit",
        "Pool.Audit",
        "SDN.Use",
        "Sys.Audit",
        "VM.Allocate",
        "VM.Audit",
        "VM.Clone",
        "VM.Config.CPU",
        "VM.Config.Disk",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.GuestAgent.Unrestricted",
        "VM.PowerMgmt",
    ] {
        assert!(printed.contains(privilege), "{privilege} is not granted:\n{printed}");
    }
    for path in ["/pool/kubernetes", "/vms/9000", "/storage/local-lvm", "/sdn/zones/localnetwork/vmbr0"] {
        assert!(printed.contains(&format!("pveum acl modify {path} ")), "{path}:\n{printed}");
    }
    let more = [
        "--bridge",
        "vmbr0",
        "--mapping",
        "gpu",
        "--mapping",
        "usb/stick",
        "--seed",
        "local",
        "--power",
        "pve3",
    ];
    let output = ask("sh", &[&arguments[..], &more].concat()).unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let parts = [
        "VM.Config.HWType",
        "Mapping.Use",
        "pveum acl modify /mapping/pci/gpu ",
        "pveum acl modify /mapping/usb/stick ",
        "VM.Config.CDROM VM.Config.Cloudinit",
        "Datastore.AllocateTemplate",
        "pveum acl modify /storage/local ",
        "Sys.PowerMgmt",
        "pveum acl modify /nodes/pve3 ",
        "pveum acl modify /vms ",
    ];
    for part in parts {
        assert!(printed.contains(part), "{part} is not granted:\n{printed}");
    }
    // The daemon itself adds only PCI devices to machines; other mapped devices are inherited from the
    // template. So only mappings of PCI devices require `VM.Config.HWType`.
    for (mapping, path, hardware) in [
        ("gpu", "/mapping/pci/gpu", true),
        ("pci/gpu", "/mapping/pci/gpu", true),
        ("usb/stick", "/mapping/usb/stick", false),
        ("dir/share", "/mapping/dir/share", false),
        ("cpu/model", "/mapping/cpu/model", false),
        ("hwrng", "/mapping/hwrng", false),
    ] {
        let more = ["--bridge", "vmbr0", "--mapping", mapping];
        let printed = said(&ask("sh", &[&arguments[..], &more].concat()).unwrap());
        assert!(printed.contains(&format!("pveum acl modify {path} ")), "{mapping}:\n{printed}");
        assert_eq!(printed.contains("VM.Config.HWType"), hardware, "{mapping}:\n{printed}");
    }
    for wrong in [&["--bridge", "a;b"][..], &["--bridge"], &["--what", "x"], &[]] {
        let output = ask("sh", &[&["packaging/proxmox-setup.sh"], wrong].concat()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

/// Names of metrics in a text.
fn metrics_in(text: &str) -> Vec<String> {
    let part = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut found: Vec<String> = text
        .match_indices("pve_autoscaler_")
        .map(|(at, _)| text[at..].chars().take_while(|c| part(*c)).collect())
        .collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let page = text("docs/reference/metrics.md");
    for name in ["packaging/prometheus/alerts.yaml", "packaging/grafana/dashboard.json"] {
        let found = metrics_in(&text(name));
        assert!(found.len() > 5, "{found:?}");
        for metric in found {
            let family = metric.trim_end_matches("_bucket");
            assert!(page.contains(&format!("| `{family}` |")), "{name}: there is no {metric}");
        }
    }
    serde_json::from_str::<serde_json::Value>(&text("packaging/grafana/dashboard.json")).unwrap();
    let rules = ["check", "rules", "packaging/prometheus/alerts.yaml"];
    let Some(output) = ask("promtool", &rules) else { return };
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn each_alert_comes_when_it_should_and_not_before() {
    let alerts = text("packaging/prometheus/alerts.yaml");
    let tests = text("packaging/prometheus/alerts.test.yaml");
    let runbook = text("docs/reference/alerts.md");
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let section = format!("docs/reference/alerts.md#{}\"", alert.to_lowercase());
        assert!(
            runbook.contains(&format!("\n## {alert}\n")) && alerts.contains(&section),
            "{alert} has no section"
        );
        let quiet = format!("alertname: {alert}, exp_alerts: []");
        let loud = format!("alertname: {alert}\n        exp_alerts: [{{");
        assert!(tests.contains(&quiet) && tests.contains(&loud), "{alert} is not tested");
    }
    let Some(output) = ask("promtool", &["test", "rules", "packaging/prometheus/alerts.test.yaml"]) else {
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
}

/// The files in the package's documentation folder, each with its source.
fn documents() -> BTreeMap<PathBuf, PathBuf> {
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let mut all = BTreeMap::new();
    for asset in manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap() {
        let (source, target) = (asset[0].as_str().unwrap(), asset[1].as_str().unwrap());
        let Some(target) = target.strip_prefix("usr/share/doc/pve-autoscaler/") else { continue };
        let Some((folder, ending)) = source.split_once('*') else {
            assert!(all.insert(target.into(), source.into()).is_none(), "{target} comes twice");
            continue;
        };
        for entry in fs::read_dir(file(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(ending) {
                all.insert(Path::new(target).join(&name), Path::new(folder).join(&name));
            }
        }
    }
    all
}

/// The target of a link on a page in this folder, relative to the root of all documents.
fn target(folder: &Path, link: &str) -> PathBuf {
    let mut to = folder.to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => assert!(to.pop(), "{link} leaves the folder of documents"),
            Component::CurDir => {}
            other => to.push(other),
        }
    }
    to
}

#[test]
fn the_pages_that_messages_and_other_pages_name_are_in_the_package() {
    let there = documents();
    for name in [
        "docs/guides/bootstrap.md",
        "docs/guides/template.md",
        "docs/reference/metrics.md",
        "examples/config.example.toml",
    ] {
        assert!(there.contains_key(Path::new(name)), "{name} is not in the package");
    }
    for (page, source) in there.iter().filter(|(page, _)| page.extension().is_some_and(|it| it == "md")) {
        let folder = page.parent().unwrap();
        let text = text(source.to_str().unwrap());
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
        let images = text.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for link in links.chain(images).filter(|link| !link.is_empty() && !link.contains(':')) {
            let to = target(folder, link);
            // Links to tests that prove claims, and to playbooks that create templates, lead to the sources,
            // which are not in the package.
            let sources = ["CONTRIBUTING.md", "ansible", "crates", "lab", "src", "tests"];
            if page.starts_with("docs") && sources.iter().any(|part| to.starts_with(part)) {
                continue;
            }
            assert!(there.contains_key(&to), "{}: {link} is not in the package", page.display());
        }
    }
}

#[test]
fn the_reference_names_each_exit_code_and_each_annotation_that_is_read() {
    let page = text("docs/reference/exit-codes.md");
    for code in [
        exit::SUCCESS,
        exit::FINDINGS,
        exit::USAGE,
        exit::SNAPSHOT,
        exit::UNREACHABLE,
        exit::OUTPUT,
        exit::NOT_RUNNING,
        exit::RUNNING,
    ] {
        assert!(page.contains(&format!("\n| {code} | ")), "no row for {code}");
    }
    let page = text("docs/reference/annotations.md");
    let taints = [snapshot::STARTING_TAINT, snapshot::GROWING_TAINT, snapshot::BEING_DELETED_TAINT];
    for key in snapshot::KNOWN_ANNOTATIONS.iter().chain(&taints).chain(&[snapshot::POOL_LABEL]) {
        assert!(page.contains(&format!("`{key}")), "no row for {key}");
    }
}

#[test]
fn the_page_about_decisions_names_each_verdict_and_each_reason() {
    let page = text("docs/concepts/decisions.md");
    let nodes =
        NodeOutcome::ALL.iter().map(|one| one.code()).chain(NodeReason::OWN.iter().map(|one| one.code()));
    let pods = PodOutcome::ALL.iter().map(|one| one.code());
    let removals = RemovalReason::ALL.iter().map(|one| one.code());
    let hosts = HostOutcome::ALL.iter().map(|one| one.code());
    let missing: Vec<&str> = nodes
        .chain(pods)
        .chain(removals)
        .chain(hosts)
        .filter(|code| !page.contains(&format!("`{code}`")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
    for reason in Blocking::ALL {
        assert!(page.contains(&format!("\n| `{reason}` | ")), "{reason} has no row");
    }
}

#[test]
fn everything_in_the_package_is_there_and_the_versions_agree() {
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    for asset in deb["assets"].as_array().unwrap() {
        let source = asset[0].as_str().unwrap();
        let found = match source.split_once('*') {
            _ if source.starts_with("target/") => true,
            Some((folder, ending)) => fs::read_dir(file(folder))
                .unwrap()
                .any(|entry| entry.unwrap().file_name().to_str().unwrap().ends_with(ending)),
            None => file(source).is_file(),
        };
        assert!(found, "{source}");
    }
    let latest = text("packaging/deb/changelog");
    let version = format!("pve-autoscaler ({}-1) ", env!("CARGO_PKG_VERSION"));
    assert!(latest.starts_with(&version), "packaging/deb/changelog does not begin with {version}");
}
