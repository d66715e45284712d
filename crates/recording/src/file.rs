//! The files of a recording and their names.

use std::io;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

/// The longest time that a file covers.
pub(super) const LONGEST: SignedDuration = SignedDuration::from_hours(1);
const BEGINNING: &str = "recording-";
const ENDING: &str = ".jsonl.gz";

/// The name of a file that begins at this time. Sorting files by name also sorts them by time.
pub(super) fn name(time: Timestamp) -> String {
    format!("{BEGINNING}{}{ENDING}", format!("{time:.9}").replace(':', "-"))
}

/// The time at which the file with this name begins; `None` if it does not belong to a recording.
pub(super) fn begins(name: &str) -> Option<Timestamp> {
    let time = name.strip_prefix(BEGINNING)?.strip_suffix(ENDING)?;
    let (date, of_day) = time.split_once('T')?;
    format!("{date}T{}", of_day.replace('-', ":")).parse().ok()
}

/// The recording files in a folder, oldest first.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub(super) fn all(folder: &Path) -> io::Result<Vec<(Timestamp, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        found.extend(name.to_str().and_then(begins).map(|time| (time, entry.path())));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_when_its_file_begins() {
        let time: Timestamp = "2026-11-21T10:00:00.5Z".parse().unwrap();
        assert_eq!(name(time), "recording-2026-11-21T10-00-00.500000000Z.jsonl.gz");
        assert_eq!(begins(&name(time)), Some(time));
        for other in ["recording-.jsonl.gz", "round-2026-11-21T10-00-00.5Z.yaml", "recording-x.jsonl.gz"] {
            assert_eq!(begins(other), None);
        }
    }
}
