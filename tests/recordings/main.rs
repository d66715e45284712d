//! Tests of recordings: what is read back is what was written, a recording of several days is small, and
//! damage is reported.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

mod cluster;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::SignedDuration;
use pve_autoscaler::model::Snapshot;
use pve_autoscaler::recording::RecordError;
use pve_autoscaler::recording::{Recording, RecordingError, Writer};
use pve_autoscaler::snapshot;
use tempfile::TempDir;

use cluster::Cluster;

/// A limit for a folder's recordings, in bytes, that no test reaches.
const MUCH: u64 = 1 << 30;
/// The number of rounds in an hour in which nothing is urgent.
const HOUR: usize = 360;

/// Records this many rounds of a cluster, and returns them.
fn record(folder: &Path, cluster: &mut Cluster, rounds: usize) -> Vec<Snapshot> {
    let mut writer = Writer::default();
    let seen = (0..rounds).map(|_| {
        let round = cluster.next_round();
        writer.keep(folder, (7, MUCH), &round).unwrap();
        round
    });
    seen.collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The snapshot's text, with its contents in the order in which they are read from a file.
fn text(snapshot: &Snapshot) -> String {
    let mut read = snapshot::read(&snapshot::write(snapshot).unwrap()).unwrap().0;
    read.time = snapshot.time;
    snapshot::write(&read).unwrap()
}

#[test]
fn each_round_is_read_back_as_it_was() {
    let folder = TempDir::new().unwrap();
    // The recording has two files: the second begins after an hour.
    let written = record(folder.path(), &mut Cluster::new(3, 20), HOUR + 20);
    let mut rounds = Recording::open(folder.path()).unwrap().rounds();
    for round in &written {
        assert!(rounds.next_round());
        if round.time.as_second() % 200 == 0 {
            assert_eq!(text(&rounds.fold().snapshot()), text(round));
        }
    }
    assert!(!rounds.next_round());
    assert!(rounds.damages().is_empty());
    assert_eq!(files(folder.path()).len(), 2);
    for file in files(folder.path()) {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

/// Measures an hour's recording of 50 nodes and 1500 pods. Every ten seconds, one pod is replaced by a new
/// one.
#[test]
fn a_day_takes_less_than_twenty_megabytes() {
    let folder = TempDir::new().unwrap();
    let written = record(folder.path(), &mut Cluster::new(50, 1500), HOUR);
    println!("a round as a whole: {} bytes", snapshot::write(&written[0]).unwrap().len());
    let size: u64 = files(folder.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    println!("{size} bytes an hour, {:.1} MB a day", 24e-6 * f64::from(u32::try_from(size).unwrap()));
    assert!(size * 24 < 20_000_000, "{size} bytes an hour");
}

#[test]
fn all_files_take_no_more_than_they_may() {
    let folder = TempDir::new().unwrap();
    let most = 200_000;
    let mut cluster = Cluster::new(3, 60);
    let mut writer = Writer::default();
    for _ in 0..600 {
        writer.keep(folder.path(), (7, most), &cluster.next_round()).unwrap();
        let size: u64 = files(folder.path()).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        assert!(size <= most, "{size}");
    }
    assert!(files(folder.path()).len() > 1);
    let refused = Writer::default().keep(folder.path(), (7, 100), &cluster.next_round());
    assert!(matches!(refused, Err(RecordError::TooLarge { most: 100, .. })), "{refused:?}");
}

#[test]
fn what_is_older_than_asked_for_goes() {
    let folder = TempDir::new().unwrap();
    let mut cluster = Cluster::new(1, 1);
    let mut writer = Writer::default();
    for _ in 0..60 {
        cluster.time += SignedDuration::from_hours(1);
        writer.keep(folder.path(), (1, MUCH), &cluster.next_round()).unwrap();
    }
    let kept = files(folder.path()).len();
    assert!((24..=26).contains(&kept), "{kept}");
}

#[test]
fn a_clock_that_jumps_ahead_drops_nothing() {
    let folder = TempDir::new().unwrap();
    let mut cluster = Cluster::new(1, 1);
    let mut writer = Writer::default();
    let mut keep = |cluster: &mut Cluster, days: i64| {
        cluster.time += SignedDuration::from_hours(24 * days);
        writer.keep(folder.path(), (2, MUCH), &cluster.next_round()).unwrap();
    };
    keep(&mut cluster, 0);
    keep(&mut cluster, 20);
    keep(&mut cluster, -20);
    assert_eq!(files(folder.path()).len(), 3);
}

#[test]
fn a_clock_that_stays_ahead_for_a_while_drops_nothing() {
    let folder = TempDir::new().unwrap();
    let mut cluster = Cluster::new(1, 1);
    let mut writer = Writer::default();
    let mut keep = |cluster: &mut Cluster| {
        writer.keep(folder.path(), (2, MUCH), &cluster.next_round()).unwrap();
        files(folder.path()).len()
    };
    keep(&mut cluster);
    cluster.time += SignedDuration::from_hours(24 * 20);
    // The clock stays ahead for ten minutes, in which 60 rounds are recorded.
    let kept: Vec<usize> = (0..60).map(|_| keep(&mut cluster)).collect();
    assert_eq!(kept, [2; 60]);
    // A clock that is ahead for longer is considered correct.
    cluster.time += SignedDuration::from_hours(1);
    assert_eq!(keep(&mut cluster), 2);
}

/// Two hosts lead in turn, and the first one continues its own file when it leads again.
#[test]
fn files_of_two_hosts_in_one_folder_are_read_in_the_order_of_time() {
    let folder = TempDir::new().unwrap();
    let mut cluster = Cluster::new(2, 10);
    let (mut one, mut other) = (Writer::default(), Writer::default());
    let mut written = Vec::new();
    for round in 0..HOUR {
        let seen = cluster.next_round();
        let writer = if (90..120).contains(&round) { &mut other } else { &mut one };
        writer.keep(folder.path(), (7, MUCH), &seen).unwrap();
        written.push(seen);
    }
    assert_eq!(files(folder.path()).len(), 2);
    let recording = Recording::open(folder.path()).unwrap();
    let mut rounds = recording.rounds();
    for (number, round) in written.iter().enumerate() {
        assert!(rounds.next_round());
        assert_eq!(rounds.fold().time(), round.time, "round {number}");
    }
    assert!(!rounds.next_round() && rounds.damages().is_empty());
    let (found, _) = recording.at(written[200].time).unwrap();
    assert_eq!(text(&found), text(&written[200]));
    let (found, _) = recording.at(written[100].time).unwrap();
    assert_eq!(text(&found), text(&written[100]));
}

#[test]
fn rounds_after_a_clock_was_set_back_do_not_come_between_those_before() {
    let folder = TempDir::new().unwrap();
    let mut cluster = Cluster::new(2, 10);
    let mut writer = Writer::default();
    let mut written = Vec::new();
    for round in 0..60 {
        if round == 30 {
            cluster.time -= SignedDuration::from_secs(150);
        }
        let seen = cluster.next_round();
        writer.keep(folder.path(), (7, MUCH), &seen).unwrap();
        written.push(seen);
    }
    // Rounds in the second file that are earlier than the last round of the first file are skipped.
    let expected = written[..30].iter().chain(&written[45..]);
    let mut rounds = Recording::open(folder.path()).unwrap().rounds();
    for round in expected {
        assert!(rounds.next_round());
        assert_eq!(text(&rounds.fold().snapshot()), text(round));
    }
    assert!(!rounds.next_round() && rounds.damages().is_empty());
}

#[test]
fn a_file_that_cannot_be_begun_is_not_left_behind_and_room_is_made_first() {
    let folder = TempDir::new().unwrap();
    let mut cluster = Cluster::new(1, 1);
    Writer::default().keep(folder.path(), (1, MUCH), &cluster.next_round()).unwrap();
    let old = files(folder.path());
    cluster.time += SignedDuration::from_hours(72);
    let round = cluster.next_round();
    // A folder with the new file's name prevents the file's creation.
    let name = format!("recording-{}.jsonl.gz", format!("{:.9}", round.time).replace(':', "-"));
    std::fs::create_dir(folder.path().join(name)).unwrap();
    Writer::default().keep(folder.path(), (1, MUCH), &round).unwrap_err();
    assert!(!old[0].exists(), "old files are deleted first");
}

#[test]
fn a_file_without_its_end_is_read_as_far_as_it_goes() {
    let folder = TempDir::new().unwrap();
    let written = record(folder.path(), &mut Cluster::new(2, 10), 30);
    let file = &files(folder.path())[0];
    let whole = fs::read(file).unwrap();
    // If a daemon is killed, the last bytes of its file may be missing, but all rounds can be read.
    fs::write(file, &whole[..whole.len() - 10]).unwrap();
    assert_eq!(count(folder.path()), (30, Vec::new()));
    // If a file is cut off and there is a later file, the missing part is reported.
    let mut later = Cluster::new(2, 10);
    later.time = written[29].time + SignedDuration::from_mins(7);
    record(folder.path(), &mut later, 1);
    fs::write(file, &whole[..whole.len() * 3 / 4]).unwrap();
    let (rounds, damages) = count(folder.path());
    let read = rounds - 1;
    assert!((1..30).contains(&read), "{read}");
    let said = format!(
        "{} is damaged after its first {read} rounds, the last of them at {}: its end is missing",
        file.display(),
        written[read - 1].time
    );
    assert_eq!(damages, [said]);
}

/// Returns the number of rounds that can be read, and a description of each damaged file.
fn count(folder: &Path) -> (usize, Vec<String>) {
    let mut rounds = Recording::open(folder).unwrap().rounds();
    let mut count = 0;
    while rounds.next_round() {
        count += 1;
    }
    (count, rounds.damages().iter().map(ToString::to_string).collect())
}

#[test]
fn a_damaged_file_hides_no_other() {
    let folder = TempDir::new().unwrap();
    record(folder.path(), &mut Cluster::new(2, 10), HOUR + 30);
    let first = &files(folder.path())[0];
    let mut bytes = fs::read(first).unwrap();
    let at = bytes.len() / 2;
    for byte in &mut bytes[at..at + 40] {
        *byte = !*byte;
    }
    fs::write(first, bytes).unwrap();
    let (rounds, damages) = count(folder.path());
    assert!((31..HOUR).contains(&rounds), "{rounds}");
    assert!(damages.len() == 1 && damages[0].contains("is damaged after its first"), "{damages:?}");
    fs::write(first, "no recording").unwrap();
    let (rounds, damages) = count(folder.path());
    assert_eq!(rounds, 30);
    assert!(damages[0].contains("is damaged from the beginning"), "{damages:?}");
}

#[test]
fn a_round_is_taken_out_for_a_plan() {
    let folder = TempDir::new().unwrap();
    let written = record(folder.path(), &mut Cluster::new(2, 10), 30);
    let snapshot = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"));
        command.arg("snapshot").arg("--records").arg(folder.path()).args(more).output().unwrap()
    };
    let said = snapshot(&["--at", &(written[7].time + SignedDuration::from_secs(3)).to_string()]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(String::from_utf8(said.stdout).unwrap(), text(&written[7]));
    assert_eq!(String::from_utf8(snapshot(&[]).stdout).unwrap(), text(&written[29]));
    let early = snapshot(&["--at", "2020-01-01T00:00:00Z"]);
    assert_eq!(early.status.code(), Some(3));
    let words = String::from_utf8(early.stderr).unwrap();
    assert!(words.contains("nothing was recorded at or before 2020-01-01T00:00:00Z"), "{words}");
}

#[test]
fn an_empty_folder_says_how_it_is_filled() {
    let folder = TempDir::new().unwrap();
    let error = Recording::open(folder.path()).unwrap_err();
    assert!(matches!(error, RecordingError::Empty { .. }));
    assert!(error.to_string().contains("days = 14"), "{error}");
}
