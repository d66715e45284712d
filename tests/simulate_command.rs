//! Tests of `simulate`, which shows what different configurations would have done during a recording. The
//! tests write the recording themselves.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use jiff::{SignedDuration, Timestamp};
use pve_autoscaler::model::Snapshot;
use pve_autoscaler::recording::Writer;
use pve_autoscaler::snapshot;
use serde_json::{Value, json};
use tempfile::TempDir;

const POOL: &str = r#"
[[pool]]
name = "workers"
max = 3
cores = 4
memory = "8GiB"
vmids = "9100-9109"
"#;

/// A folder with a recording of two hours without machines, in which two pods exist from minute 10 to minute
/// 60.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: TempDir::new().unwrap() };
        let mut writer = Writer::default();
        for round in 0..720 {
            let seen = at(round);
            writer.keep(&scene.records(), (7, 1 << 30), &seen).unwrap();
        }
        scene.write("a.toml", POOL);
        scene
    }

    fn records(&self) -> PathBuf {
        self.folder.path().join("rounds")
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        command.current_dir(self.folder.path()).args(["simulate", "--records", "rounds"]);
        command.args(more).output().unwrap()
    }

    fn json(&self, more: &[&str]) -> Value {
        let said = self.run(&[&["--output", "json"], more].concat());
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        serde_json::from_slice(&said.stdout).unwrap()
    }
}

/// The snapshot of a round. There is a round every ten seconds.
fn at(round: i64) -> Snapshot {
    let start: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
    let time = start + SignedDuration::from_secs(10 * round);
    let host = |name: &str| {
        json!({"name": name, "cores": 16, "memory": "32Gi", "memoryUsed": "2Gi",
        "coresAssigned": 2, "memoryAssigned": "2Gi"})
    };
    let free = json!({"name": "pve3", "cores": 16, "memory": "32Gi", "memoryUsed": "1Gi"});
    let mut objects = vec![
        json!({"apiVersion": "pve-autoscaler/v1", "kind": "KubernetesCluster", "version": "1.37"}),
        json!({"apiVersion": "pve-autoscaler/v1", "kind": "ProxmoxInventory", "time": time,
            "hosts": [host("pve1"), host("pve2"), free], "machines": []}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cp1", "labels": {"kubernetes.io/hostname": "cp1"}},
            "spec": {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}]}}),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"namespace": "shop", "name": "web", "uid": "rs"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}}),
    ];
    if (60..360).contains(&round) {
        objects.extend((0..2).map(|number| {
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": "shop", "name": format!("web-{number}"), "uid": format!("web-{number}"),
                    "labels": {"app": "web"}, "creationTimestamp": start + SignedDuration::from_mins(10),
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true}]},
                "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}]},
                "status": {"phase": "Pending", "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
        }));
    }
    let text: String = objects.iter().fold(String::new(), |text, one| text + &one.to_string() + "\n");
    let (mut seen, _) = snapshot::read(&text).unwrap();
    seen.time = time;
    seen
}

#[test]
fn a_pool_is_tried_on_pods_that_never_ran() {
    let scene = Scene::new();
    let said = scene.json(&["--config", "a.toml"]);
    let all = said["configurations"].as_array().unwrap();
    assert_eq!(all[0]["configuration"], "recorded");
    assert_eq!((&all[0]["made"], &all[0]["waitingAtTheEnd"]), (&json!(0), &json!(0)));
    let one = &all[1];
    assert_eq!(one["configuration"], "a.toml");
    // Both pods fit one machine, which is ready after the assumed 60 s, and is removed 10 min after the pods,
    // at minute 70.
    assert_eq!((&one["made"], &one["removed"]), (&json!(1), &json!(1)), "{one}");
    assert_eq!(one["waited"], json!({"pods": 2, "p50Seconds": 60, "p95Seconds": 60, "worstSeconds": 60}));
    let hours = one["nodeHours"].as_f64().unwrap();
    assert!((0.98..1.02).contains(&hours), "{hours}");
    assert_eq!(one["pools"]["workers"]["pods"], 2);
    assert_eq!(said["record"]["rounds"], 720);
    assert!(
        said["machines"]["creation"]["otherwiseSeconds"] == 60
            && !said["assumptions"].as_array().unwrap().is_empty()
    );
    // No other guest runs on the third host.
    let hosts = &one["hosts"]["each"];
    assert_eq!(hosts["pve1"], json!({"onHours": 2.0, "emptyHours": 0.0, "offHours": null}));
    assert!(hosts["pve3"]["emptyHours"].as_f64().unwrap() > 0.9, "{hosts}");
}

#[test]
fn configurations_are_compared_in_one_table() {
    let scene = Scene::new();
    scene.write("b.toml", &POOL.replace("[[pool]]", "[scale_down]\nunneeded_time = \"30m\"\n[[pool]]"));
    scene.write("none.toml", &POOL.replace("cores = 4", "cores = 1"));
    let said = scene.run(&["--config", "a.toml", "--config", "b.toml", "--config", "none.toml"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8(said.stdout).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| rows.iter().find(|row| row.first() == Some(&name)).unwrap()[1..5].join(" ");
    assert_eq!(row("recorded"), "0 0 0.0 0");
    assert_eq!(row("a.toml"), "1 1 1.0 1");
    assert_eq!(row("b.toml"), "1 1 1.3 1");
    assert_eq!(row("none.toml"), "0 0 0.0 0");
    assert!(text.contains("none.toml       NoPoolFits      2"), "{text}");
    assert!(text.contains("Assumptions\n* Pods are created and deleted at their recorded times"), "{text}");
}

#[test]
fn more_demand_and_fewer_hosts_are_tried() {
    let scene = Scene::new();
    let made = |more: &[&str]| {
        let said = scene.json(&[&["--config", "a.toml"], more].concat());
        let one = &said["configurations"][1];
        (one["made"].as_u64().unwrap(), one["waited"]["pods"].as_u64().unwrap(), one["refusals"].clone())
    };
    assert_eq!(made(&["--scale", "2.5"]), (3, 5, json!({})));
    assert_eq!(made(&["--scale", "0.5"]), (1, 1, json!({})));
    assert_eq!(made(&["--without-host", "pve3"]), (1, 2, json!({})));
    let none = ["--without-host", "pve1", "--without-host", "pve2", "--without-host", "pve3"];
    assert_eq!(made(&none), (0, 2, json!({"NoHostCapacity": 2})));
    // Three machines have room for six of the eight pods, and the pool may have no more machines. The other
    // two pods keep waiting.
    assert_eq!(made(&["--scale", "4"]), (3, 8, json!({"PoolAtMax": 2})));
}

#[test]
fn nodes_and_waiting_pods_are_drawn() {
    let scene = Scene::new();
    let said = scene.run(&["--config", "a.toml", "--picture", "p.svg"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let drawn = fs::read_to_string(scene.folder.path().join("p.svg")).unwrap();
    assert!(drawn.starts_with("<svg xmlns") && drawn.ends_with("</svg>\n"), "{drawn}");
    assert!(drawn.contains(">a.toml</text>") && drawn.contains(">recorded</text>"), "{drawn}");
    // The node appears in minute 11 of 120 and disappears in minute 71: the line rises from zero, and falls
    // to zero again.
    let line =
        drawn.lines().find(|line| line.contains("#0072b2") && line.contains("d=\"M52.0 228.0H")).unwrap();
    assert_eq!(line.matches('V').count(), 2, "{line}");
    let said = scene.run(&["--config", "a.toml", "--picture", "missing/p.svg"]);
    assert_eq!(said.status.code(), Some(5));
    assert!(String::from_utf8(said.stderr).unwrap().contains("missing/p.svg"));
}

#[test]
fn without_a_folder_the_record_is_that_of_the_configuration() {
    let scene = Scene::new();
    let own = format!("[record]\ndays = 1\ndirectory = \"{}\"\n{POOL}", scene.records().display());
    scene.write("own.toml", &own);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        command.current_dir(scene.folder.path()).arg("simulate").args(arguments).output().unwrap()
    };
    let said = run(&["--config", "own.toml"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(said.stdout, run(&["--records", "rounds", "--config", "own.toml"]).stdout);
}

#[test]
fn the_same_record_gives_the_same_bytes() {
    let scene = Scene::new();
    let run = || scene.run(&["--config", "a.toml", "--scale", "3", "--output", "json"]).stdout;
    assert!(run() == run());
}

#[test]
fn a_record_of_another_cluster_is_doubted() {
    let scene = Scene::new();
    let mut round = at(0);
    let read = "apiVersion: pve-autoscaler/v1\nkind: ProxmoxInventory\nmachines:\n\
         - {name: old-1, pool: old, vmid: 7, host: pve1, cores: 1, memory: 1Gi, phase: Ready, node: old-1}\n";
    round.proxmox = snapshot::read(read).unwrap().0.proxmox;
    let later = SignedDuration::from_hours(3);
    for passed in [0, 60] {
        round.time = at(passed).time + later;
        let mut label = snapshot::read(
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old-1",
            "labels": {"pve-autoscaler/pool": "old"}}})
            .to_string(),
        )
        .unwrap()
        .0
        .nodes;
        round.nodes = std::mem::take(&mut label);
        Writer::default().keep(&scene.records(), (7, 1 << 30), &round).unwrap();
    }
    let said = scene.run(&["--config", "a.toml"]);
    let words = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.success(), "{words}");
    assert!(words.contains("warning: a.toml does not define these recorded pools: old. The"), "{words}");
}

#[test]
fn what_is_wrong_is_said_with_the_way_out() {
    let scene = Scene::new();
    for (more, status, expected) in [
        (&["--without-host", "pve9"][..], 1, "the record has no host `pve9`: its hosts are pve1, pve2, pve3"),
        (&["--scale", "0"], 2, "expected 0.001 to 1000"),
        (&["--scale", "twice"], 2, "expected a number such as 2.0"),
        (&["--records", "."], 2, "cannot be used multiple times"),
    ] {
        let said = scene.run(&[&["--config", "a.toml"], more].concat());
        let words = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(status), "{words}");
        assert!(words.contains(expected), "{words}");
    }
    for missing in ["nowhere", "a.toml"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        command.current_dir(scene.folder.path());
        let said = command.args(["simulate", "--records", missing, "--config", "a.toml"]).output().unwrap();
        let words = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(3), "{words}");
        let expected =
            format!("folder {missing} does not exist: name the folder of a recording with `--records`");
        assert!(words.contains(&expected), "{words}");
    }
    let files = fs::read_dir(scene.records()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    let whole = fs::read(&files[0]).unwrap();
    fs::write(&files[0], &whole[..whole.len() / 2]).unwrap();
    let said = scene.run(&["--config", "a.toml"]);
    let words = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.success() && words.contains("is damaged after its first"), "{words}");
    // The missing part, which is the rest of the first hour, is reported.
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.contains("in 1 gap without a round"), "{text}");
    for file in files {
        fs::write(file, "").unwrap();
    }
    let said = scene.run(&["--config", "a.toml"]);
    assert_eq!(said.status.code(), Some(3));
    assert!(String::from_utf8(said.stderr).unwrap().contains("no round can be read"));
}
