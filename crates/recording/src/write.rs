//! Writing a recording.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::{SignedDuration, Timestamp};

use super::file::{self, LONGEST};
use crate::RecordError;
use model::Snapshot;

/// How long the clock is not trusted after a suspected jump ahead. A jump is suspected if the time between
/// two rounds is longer than the time for which files are kept.
const BELIEVED: SignedDuration = SignedDuration::from_hours(1);
/// A new file begins when the size of the current one reaches the total limit divided by this number, so that
/// dropping an old file loses only a small part of the recording.
const PART: u64 = 8;

/// Writes rounds, each as changes since the previous one.
#[derive(Debug, Default)]
pub struct Writer {
    open: Option<Open>,
    /// The clock's time just after it jumped ahead. Until the clock is trusted, no file counts as too old.
    jumped: Option<Timestamp>,
}

/// The file that is being written.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    began: Timestamp,
    /// The round that was written last.
    before: Snapshot,
    /// The size of the file in bytes.
    size: u64,
    file: GzEncoder<fs::File>,
}

impl Writer {
    /// Records a round in this folder, and drops files older than this many days or beyond the total limit.
    ///
    /// # Errors
    /// Returns an error if the round cannot be written. The next round then begins a new file.
    pub fn keep(
        &mut self,
        folder: &Path,
        (days, most): (u32, u64),
        round: &Snapshot,
    ) -> Result<(), RecordError> {
        let goes_on = |open: &Open| {
            let age = round.time.duration_since(open.began);
            open.path.parent() == Some(folder)
                && !age.is_negative()
                && age < LONGEST
                && round.time > open.before.time
                && open.size < most / PART
        };
        let age = SignedDuration::from_hours(24 * i64::from(days));
        let before = self.open.as_ref().map(|open| open.before.time);
        if before.is_some_and(|before| round.time.duration_since(before) > age) {
            self.jumped = Some(round.time);
        }
        let waits = |jumped: &Timestamp| {
            (SignedDuration::ZERO..BELIEVED).contains(&round.time.duration_since(*jumped))
        };
        self.jumped = self.jumped.filter(waits);
        let oldest = round.time.saturating_sub(age).unwrap_or(Timestamp::MIN);
        let oldest = if self.jumped.is_some() { Timestamp::MIN } else { oldest };
        let open = if let Some(open) = self.open.take().filter(goes_on) {
            open.go_on(round)?
        } else {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(failed(folder))?;
            // Old files are dropped before anything is written, because the disk may be full.
            make_room(folder, None, oldest, most)?;
            Open::begin(folder, round)?
        };
        let size = open.size;
        if size > most {
            drop(open.file);
            fs::remove_file(&open.path).map_err(failed(&open.path))?;
            return Err(RecordError::TooLarge { size, most });
        }
        make_room(folder, Some(&open.path), oldest, most)?;
        self.open = Some(open);
        Ok(())
    }
}

impl Open {
    fn begin(folder: &Path, round: &Snapshot) -> Result<Self, RecordError> {
        let path = folder.join(file::name(round.time));
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path).map_err(failed(&path))?;
        let file = GzEncoder::new(file, Compression::default());
        let (began, before) = (round.time, round.clone());
        let begun = Self { path: path.clone(), began, before, size: 0, file };
        begun.line(&snapshot::changes(None, round)).inspect_err(|_| {
            // A file without its first line is useless, so it is removed. If the removal fails, its error is
            // ignored, because the returned error already contains the cause.
            let _ = fs::remove_file(&path);
        })
    }

    fn go_on(mut self, round: &Snapshot) -> Result<Self, RecordError> {
        let changes = snapshot::changes(Some(&self.before), round);
        self.before = round.clone();
        self.line(&changes)
    }

    fn line(mut self, changes: &snapshot::Changes) -> Result<Self, RecordError> {
        let mut line = serde_json::to_vec(changes).map_err(RecordError::Plan)?;
        line.push(b'\n');
        self.file.write_all(&line).and_then(|()| self.file.flush()).map_err(failed(&self.path))?;
        let written = self.file.get_ref().metadata().map_err(failed(&self.path))?;
        self.size = written.len();
        Ok(self)
    }
}

/// Drops files that are too old, and the oldest of the other files until the total size is within the limit.
/// Keeps the file that is being written.
fn make_room(folder: &Path, written: Option<&Path>, oldest: Timestamp, most: u64) -> Result<(), RecordError> {
    let mut files = Vec::new();
    for (began, path) in file::all(folder).map_err(failed(folder))? {
        let size = fs::metadata(&path).map_err(failed(&path))?.len();
        files.push((began, path, size));
    }
    let mut bytes: u64 = files.iter().map(|file| file.2).sum();
    for (began, path, size) in files {
        let over = began.saturating_add(LONGEST).is_ok_and(|end| end < oldest);
        if Some(path.as_path()) == written || !(over || bytes > most) {
            continue;
        }
        fs::remove_file(&path).map_err(failed(&path))?;
        bytes -= size;
    }
    Ok(())
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> RecordError {
    let path = path.to_owned();
    move |source| RecordError::File { path: path.clone(), source }
}
