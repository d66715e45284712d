//! Recorded rounds: planning one again gives the decision that was made.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pve_autoscaler::model::Plan;
use pve_autoscaler::recording::Recording;
use pve_autoscaler::settings::{self, Needs};
use pve_autoscaler::{planning, snapshot};
use tempfile::TempDir;

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);

/// A configuration with one pool. The daemon records this many rounds in this folder.
pub fn recording(folder: &Path, rounds: u32) -> String {
    let record = format!(
        "[record]\nrounds = {rounds}\ndays = {}\ndirectory = \"{}\"\n",
        rounds.min(1),
        folder.display()
    );
    let scaling = "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n";
    ONE_POOL.replace("[[pool]]", &format!("{record}{scaling}[[pool]]"))
}

/// The recorded snapshots, oldest first.
fn records(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut snapshots: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    snapshots.sort();
    snapshots
}

/// Plans each recorded round again, and asserts that the decision is the recorded one.
fn replayed(folder: &Path, text: &str) -> Vec<(PathBuf, Plan)> {
    let config = settings::parse("lab.toml", text, Needs::Plan).unwrap();
    let again = |path: PathBuf| {
        let (mut read, time) = snapshot::read(&std::fs::read_to_string(&path).unwrap()).unwrap();
        read.time = time.unwrap();
        let plan = planning::plan(&read, &config);
        let taken = std::fs::read_to_string(path.with_extension("json")).unwrap();
        assert_eq!(serde_json::to_string_pretty(&plan).unwrap() + "\n", taken, "{}", path.display());
        (path, plan)
    };
    records(folder).into_iter().map(again).collect()
}

/// Like [`replayed`], but reads the rounds from the recording, and skips those whose decision was not
/// written. Returns the number of rounds.
fn replayed_from_recording(folder: &Path, text: &str) -> usize {
    let config = settings::parse("lab.toml", text, Needs::Plan).unwrap();
    let mut rounds = Recording::open(folder).unwrap().rounds();
    let mut count = 0;
    while rounds.next_round() {
        let read = rounds.fold().snapshot();
        let name = format!("round-{:.9}", read.time).replace(':', "-") + ".json";
        let Ok(taken) = std::fs::read_to_string(folder.join(name)) else { continue };
        let plan = serde_json::to_string_pretty(&planning::plan(&read, &config)).unwrap() + "\n";
        assert_eq!(plan, taken, "{}", read.time);
        count += 1;
    }
    assert!(rounds.damages().is_empty());
    count
}

/// Like [`replayed`], but returns the number of rounds.
pub fn replays(folder: &Path, text: &str) -> usize {
    replayed(folder, text).len()
}

/// Deploys pods and deletes them again, so that machines are created and removed.
async fn one_life(stage: &Stage) {
    stage.deploy("web", 3, "1500m", "1Gi");
    stage.until("the pods run", SOON, |stage| stage.running_pods() == 3).await;
    stage.kube.scale("default", "web", 0);
    stage.until("all is gone", SOON * 2, |stage| stage.vms(9100..=9109).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn each_recorded_round_gives_the_decision_that_was_taken() {
    let folder = TempDir::new().unwrap();
    let text = recording(folder.path(), 1000);
    let stage = Stage::running(&text);
    one_life(&stage).await;
    let (mut grown, mut shrunk) = (None, None);
    for (path, plan) in replayed(folder.path(), &text) {
        if !plan.scale_up.is_empty() {
            grown.get_or_insert(path);
        } else if !plan.scale_down.is_empty() {
            shrunk.get_or_insert(path);
        }
    }
    let yaml = records(folder.path()).len();
    assert!(yaml > 10 && replayed_from_recording(folder.path(), &text) == yaml, "{yaml}");
    let settings = folder.path().join("config.toml");
    std::fs::write(&settings, &text).unwrap();
    for path in [grown.expect("a round of growth"), shrunk.expect("a round of removal")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        command.arg("plan").arg("--config").arg(&settings).arg("--snapshot").arg(&path);
        let said = command.args(["--output", "json"]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert_eq!(said.stdout, std::fs::read(path.with_extension("json")).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_last_rounds_are_kept_and_none_unless_asked_for() {
    let folder = TempDir::new().unwrap();
    let stage = Stage::running(&recording(folder.path(), 3));
    one_life(&stage).await;
    assert_eq!(records(folder.path()).len(), 3);
    let unasked = TempDir::new().unwrap();
    let stage = Stage::running(&recording(unasked.path(), 0));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    assert_eq!(std::fs::read_dir(unasked.path()).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_cannot_be_written_stops_no_round() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let stage = Stage::running(&recording(&file.join("rounds"), 3));
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
}
