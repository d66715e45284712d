//! Keeps the most recent rounds as files. A round consists of a decision and its input.
//!
//! `round-TIME.yaml` is the snapshot in the format of `snapshot`. `round-TIME.json` is the output of `plan
//! --output json` for that snapshot with the same configuration. Longer periods are kept as a recording
//! ([`crate`]). Only the owner can read the files. Rounds are written in the background. While one is being
//! written, new rounds are skipped, so that a slow disk neither delays rounds nor fills the memory.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use thiserror::Error;

use crate::Writer;
use model::{Plan, Snapshot};
use settings::Record;

/// Writes rounds, one at a time.
#[derive(Clone, Debug, Default)]
pub struct RoundFiles {
    writing: Arc<AtomicBool>,
    recording: Arc<Mutex<Writer>>,
}

/// Why a round was not kept.
#[derive(Debug, Error)]
pub enum RecordError {
    /// A file or directory cannot be written.
    #[error("{} cannot be written", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The snapshot cannot be written as text.
    #[error(transparent)]
    Snapshot(#[from] snapshot::WriteError),
    /// The plan, or the changes since the last round, cannot be written as JSON.
    #[error("the round cannot be written as JSON")]
    Plan(#[source] serde_json::Error),
    /// A single round is larger than the limit for all rounds.
    #[error("a round of {size} bytes exceeds the limit for all rounds ({most} bytes)")]
    TooLarge {
        /// Its size.
        size: u64,
        /// The limit for all rounds.
        most: u64,
    },
}

impl RoundFiles {
    /// Records a round if the settings say so, without waiting for the disk.
    pub fn keep(&self, settings: &Record, snapshot: &Snapshot, plan: &Plan) {
        if settings.rounds == 0 && settings.days == 0 {
            return;
        }
        let Some(turn) = Turn::take(&self.writing) else { return };
        let (settings, snapshot, plan) = (settings.clone(), snapshot.clone(), plan.clone());
        let recording = self.recording.clone();
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let failed = |error: RecordError| {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the round was not recorded");
            };
            if settings.rounds > 0 {
                write(&settings, &snapshot, &plan).unwrap_or_else(failed);
            }
            if settings.days > 0 {
                let mut recording = recording.lock().unwrap_or_else(PoisonError::into_inner);
                let bounds = (settings.days, settings.share());
                recording.keep(&settings.directory, bounds, &snapshot).unwrap_or_else(failed);
            }
        });
    }
}

/// The right to write, which only one round has at a time. The right is returned when this value is dropped,
/// so recording continues even if writing a round panics.
struct Turn(Arc<AtomicBool>);

impl Turn {
    /// `None` while another round is being written.
    fn take(writing: &Arc<AtomicBool>) -> Option<Self> {
        (!writing.swap(true, Ordering::AcqRel)).then(|| Self(writing.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Writes a round and drops the oldest ones beyond the limits.
///
/// # Errors
/// Returns an error if the round cannot be written. Its decision or an unfinished file may remain until room
/// is made for a later round.
fn write(settings: &Record, snapshot: &Snapshot, plan: &Plan) -> Result<(), RecordError> {
    let text = snapshot::write(snapshot)?;
    let mut decision = serde_json::to_string_pretty(plan).map_err(RecordError::Plan)?;
    decision.push('\n');
    let size = (text.len() + decision.len()) as u64;
    if size > settings.share() {
        return Err(RecordError::TooLarge { size, most: settings.share() });
    }
    let folder = settings.directory.as_path();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| RecordError::File { path: folder.to_owned(), source })?;
    make_room(settings, size)?;
    let name = name(snapshot.time);
    // The snapshot is written last, so every snapshot in the folder has its decision.
    put(&folder.join(format!("{name}.json")), &decision)?;
    put(&folder.join(format!("{name}.yaml")), &text)
}

/// The name of a round. Sorting rounds by name also sorts them by time.
fn name(time: Timestamp) -> String {
    format!("round-{time:.9}").replace(':', "-")
}

/// Writes a file atomically: a reader sees either the complete file or none.
fn put(path: &Path, text: &str) -> Result<(), RecordError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".part");
    let unfinished = PathBuf::from(unfinished);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&unfinished, path));
    // If an unfinished file is left, it is removed when room is made for the next round.
    written.map_err(|source| RecordError::File { path: path.to_owned(), source })
}

/// Drops unfinished files, and the oldest rounds until there is room for another round of this size.
fn make_room(settings: &Record, coming: u64) -> Result<(), RecordError> {
    let folder = settings.directory.as_path();
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RecordError::File { path, source }
    };
    let mut rounds: std::collections::BTreeMap<String, (u64, Vec<PathBuf>)> =
        std::collections::BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if !file.starts_with("round-") {
            continue;
        }
        if file.strip_suffix(".part").is_some() {
            fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
        } else if let Some(name) = file.strip_suffix(".yaml").or_else(|| file.strip_suffix(".json")) {
            let size = entry.metadata().map_err(failed(&entry.path()))?.len();
            let (sum, files) = rounds.entry(name.to_owned()).or_default();
            *sum += size;
            files.push(entry.path());
        }
    }
    let mut bytes: u64 = rounds.values().map(|round| round.0).sum();
    let mut left = rounds.len();
    for (size, files) in rounds.into_values() {
        if left < settings.rounds as usize && bytes.saturating_add(coming) <= settings.share() {
            break;
        }
        for file in files {
            fs::remove_file(&file).map_err(failed(&file))?;
        }
        left -= 1;
        bytes -= size;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn round(folder: &Path, rounds: u32, max_size: u64, second: i64) -> Result<(), RecordError> {
        let settings = Record { rounds, days: 0, directory: folder.join("kept"), max_size };
        let time = Timestamp::from_second(second).unwrap();
        write(&settings, &Snapshot { time, ..Snapshot::default() }, &Plan { time, ..Plan::default() })
    }

    fn files(folder: &Path) -> Vec<String> {
        let kept = fs::read_dir(folder.join("kept")).unwrap();
        let mut names: Vec<_> = kept.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_last_rounds_are_kept_and_no_other_user_reads_them() {
        let folder = tempfile::TempDir::new().unwrap();
        for second in 0..5 {
            round(folder.path(), 2, 1 << 20, second).unwrap();
        }
        let times = ["03", "04"].map(|second| format!("round-1970-01-01T00-00-{second}.000000000Z"));
        let expected = times.map(|name| [format!("{name}.json"), format!("{name}.yaml")]).concat();
        assert_eq!(files(folder.path()), expected);
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(folder.path().join("kept")), 0o700);
        for file in expected {
            assert_eq!(mode(folder.path().join("kept").join(file)), 0o600);
        }
    }

    #[test]
    fn all_rounds_together_take_no_more_than_they_may() {
        let folder = tempfile::TempDir::new().unwrap();
        round(folder.path(), 9, 1 << 20, 0).unwrap();
        let size = |name: &String| fs::metadata(folder.path().join("kept").join(name)).unwrap().len();
        let one: u64 = files(folder.path()).iter().map(size).sum();
        for second in 1..9 {
            round(folder.path(), 9, one * 3 + 1, second).unwrap();
        }
        assert_eq!(files(folder.path()).len(), 3 * 2);
        assert!(matches!(round(folder.path(), 9, one - 1, 9), Err(RecordError::TooLarge { .. })));
    }

    #[tokio::test]
    async fn a_panic_while_a_round_is_written_does_not_end_the_recording() {
        let files = RoundFiles::default();
        let turn = Turn::take(&files.writing).unwrap();
        assert!(Turn::take(&files.writing).is_none(), "one at a time");
        let written = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            panic!("while writing");
        });
        assert!(written.await.is_err());
        assert!(Turn::take(&files.writing).is_some());
    }

    #[test]
    fn what_was_left_unfinished_goes_and_what_is_foreign_stays() {
        let folder = tempfile::TempDir::new().unwrap();
        fs::create_dir(folder.path().join("kept")).unwrap();
        fs::write(folder.path().join("kept/round-1.yaml.part"), "half").unwrap();
        fs::write(folder.path().join("kept/notes.txt"), "mine").unwrap();
        for second in 0..3 {
            round(folder.path(), 1, 1 << 20, second).unwrap();
        }
        let names = files(folder.path());
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names.contains(&"notes.txt".to_owned()));
    }
}
