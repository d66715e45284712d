//! Reads a recording, round by round. Only one snapshot is in memory at a time.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::file;
use snapshot::{Changes, Fold};

/// Maximum size of a round as JSON, in bytes. A longer line is not read to its end, so that a damaged file
/// cannot fill the memory.
const LARGEST: u64 = 1 << 30;
/// If the end of a file is missing but the next round follows within this time, the daemon was only
/// restarted, and the file does not count as damaged.
const SOON: SignedDuration = SignedDuration::from_mins(5);

/// If two successive rounds in a file are at most this far apart, the instance led without interruption
/// between them. Rounds in other files with times between these two must have been written after a clock was
/// set back. They are left out.
const STAYS: SignedDuration = SignedDuration::from_mins(1);

/// Why a folder cannot be read as a recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// A file or folder cannot be read.
    #[error("{} cannot be read", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The folder does not exist.
    #[error(
        "folder {} does not exist: name the folder of a recording with `--records`; the daemon creates \
            recordings if `[record]` sets `days`, e.g. `days = 14`",
        path.display()
    )]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// The folder contains no recording.
    #[error(
        "{} contains no recording (`recording-TIME.jsonl.gz`): the daemon creates recordings if \
            `[record]` sets `days`, e.g. `days = 14`",
        path.display()
    )]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// No round can be read from any file.
    #[error("no round can be read: {0}")]
    Nothing(Damage),
    /// The recording begins after the requested time.
    #[error("the recording in {} begins at {begins}: nothing was recorded at or before {wanted}", path.display())]
    TooEarly {
        /// The folder.
        path: PathBuf,
        /// The time of the first round.
        begins: Timestamp,
        /// The requested time.
        wanted: Timestamp,
    },
}

/// A file that cannot be read to its end. The rest of the file is left out.
#[derive(Clone, Debug, Error)]
#[error("{} is damaged {}: {why}", path.display(), self.place())]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The number of rounds that could be read.
    pub rounds: usize,
    /// The time of the last round that could be read.
    pub until: Option<Timestamp>,
    /// What is wrong.
    pub why: String,
}

impl Damage {
    fn place(&self) -> String {
        self.until.map_or_else(
            || "from the beginning".to_owned(),
            |until| format!("after its first {} rounds, the last of them at {until}", self.rounds),
        )
    }
}

/// The files of a recording.
#[derive(Clone, Debug)]
pub struct Recording {
    folder: PathBuf,
    files: Vec<(Timestamp, PathBuf)>,
}

impl Recording {
    /// The recording in this folder.
    ///
    /// # Errors
    /// Returns an error if there is no recording, or if it cannot be read.
    pub fn open(folder: &Path) -> Result<Self, RecordingError> {
        let path = folder.to_owned();
        match file::all(folder) {
            Ok(files) if files.is_empty() => Err(RecordingError::Empty { path }),
            Ok(files) => Ok(Self { folder: path, files }),
            Err(source)
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                Err(RecordingError::Missing { path })
            }
            Err(source) => Err(RecordingError::File { path, source }),
        }
    }

    /// The rounds of the recording, oldest first.
    pub fn rounds(&self) -> Rounds {
        Rounds {
            files: self.files.iter().cloned().collect(),
            current: None,
            ahead: Vec::new(),
            none: Fold::default(),
            damages: Vec::new(),
        }
    }

    /// Returns the last round at or before this time, and the damaged files found during the search.
    ///
    /// # Errors
    /// Returns an error if there is no such round.
    pub fn at(&self, wanted: Timestamp) -> Result<(model::Snapshot, Vec<Damage>), RecordingError> {
        let begins = self.files.first().map_or(wanted, |(time, _)| *time);
        let path = self.folder.clone();
        let before = self.files.iter().rposition(|(time, _)| *time <= wanted);
        let Some(before) = before else { return Err(RecordingError::TooEarly { path, begins, wanted }) };
        let one = |at: usize| Self { folder: path.clone(), files: vec![self.files[at].clone()] };
        let mut damages = Vec::new();
        // Earlier files are searched too. The file that should contain the round may be damaged from the
        // beginning, and an earlier file of another instance may have a round that is closer to the requested
        // time.
        let mut best: Option<(Timestamp, usize, usize)> = None;
        for at in (0..=before).rev() {
            let ends = self.files[at].0.saturating_add(file::LONGEST).unwrap_or(Timestamp::MAX);
            if best.is_some_and(|(time, ..)| ends <= time) {
                break;
            }
            let (mut rounds, mut count, mut last) = (one(at).rounds(), 0, None);
            while rounds.next_round() && rounds.fold().time() <= wanted {
                (count, last) = (count + 1, Some(rounds.fold().time()));
            }
            damages.append(&mut rounds.damages);
            best = best.max(last.map(|time| (time, at, count)));
        }
        if let Some((_, at, count)) = best {
            // The search only counted the rounds, so the file is read again up to the chosen round to build
            // its snapshot.
            let mut rounds = one(at).rounds();
            for _ in 0..count {
                rounds.next_round();
            }
            return Ok((rounds.fold().snapshot(), damages));
        }
        Err(damages.pop().map_or(RecordingError::TooEarly { path, begins, wanted }, RecordingError::Nothing))
    }
}

/// The rounds of a recording, one after the other. The files of several instances may overlap if the
/// instances led in turn, because each instance continues its own file.
#[derive(Debug)]
pub struct Rounds {
    /// The files that have not been opened yet, oldest first.
    files: VecDeque<(Timestamp, PathBuf)>,
    /// The file that contains the current round, positioned at that round.
    current: Option<Open>,
    /// Other open files, each positioned at its next round.
    ahead: Vec<Open>,
    /// The empty state before the first round.
    none: Fold,
    damages: Vec<Damage>,
}

/// The next entry in a file.
enum Next {
    Changes(Changes),
    End,
    /// The end of the file is missing.
    Broken,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    lines: BufReader<GzDecoder<fs::File>>,
    rounds: usize,
    fold: Fold,
}

impl Rounds {
    /// Moves to the next round. Returns false if there is none. Unreadable parts of files are left out, and
    /// reported by [`Rounds::damages`].
    pub fn next_round(&mut self) -> bool {
        let last = self.current.as_ref().map(|open| open.fold.time());
        if let Some(open) = self.current.take().and_then(|open| self.go_on(open)) {
            if last.is_some_and(|last| open.fold.time().duration_since(last) <= STAYS) {
                self.current = Some(open);
                return true;
            }
            self.ahead.push(open);
        }
        loop {
            let next = self.ahead.iter().enumerate().map(|(at, open)| (open.fold.time(), at)).min();
            let begun = |(begins, _): &mut (Timestamp, PathBuf)| next.is_none_or(|(time, _)| *begins <= time);
            if let Some((_, path)) = self.files.pop_front_if(begun) {
                let begun = self.begin(path);
                self.ahead.extend(begun);
                continue;
            }
            let Some((time, at)) = next else { return false };
            let open = self.ahead.remove(at);
            if last.is_none_or(|last| time > last) {
                self.current = Some(open);
                return true;
            }
            let later = self.go_on(open);
            self.ahead.extend(later);
        }
    }

    /// The current round.
    pub fn fold(&self) -> &Fold {
        self.current.as_ref().map_or(&self.none, |open| &open.fold)
    }

    /// The damaged files found so far.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    fn begin(&mut self, path: PathBuf) -> Option<Open> {
        match fs::File::open(&path) {
            Ok(file) => {
                let lines = BufReader::new(GzDecoder::new(file));
                self.go_on(Open { path, lines, rounds: 0, fold: Fold::default() })
            }
            Err(error) => {
                let why = error.to_string();
                self.damages.push(Damage { path, rounds: 0, until: None, why });
                None
            }
        }
    }

    /// Moves to the next round in a file, if the file has one.
    fn go_on(&mut self, mut open: Open) -> Option<Open> {
        match open.next() {
            Ok(Next::End) => {}
            Ok(Next::Broken) => self.broken_off(open),
            Ok(Next::Changes(changes)) => match open.fold.apply(changes) {
                Ok(()) => {
                    open.rounds += 1;
                    return Some(open);
                }
                Err(error) => self.damaged(open, error.to_string()),
            },
            Err(why) => self.damaged(open, why),
        }
        None
    }

    /// Handles a file whose end is missing. If the file has rounds, and is either the last file or soon
    /// followed by another, the daemon was killed or is still writing the file. Otherwise, the file is
    /// reported as damaged.
    fn broken_off(&mut self, open: Open) {
        let last = open.fold.time();
        let begins = self.files.front().map(|(begins, _)| *begins);
        let next = self.ahead.iter().map(|other| other.fold.time()).chain(begins).min();
        let goes_on = next.is_none_or(|next| next.duration_since(last) <= SOON);
        if open.rounds == 0 || !goes_on {
            self.damaged(open, "its end is missing".to_owned());
        }
    }

    fn damaged(&mut self, open: Open, why: String) {
        let until = (open.rounds > 0).then(|| open.fold.time());
        self.damages.push(Damage { path: open.path, rounds: open.rounds, until, why });
    }
}

impl Open {
    /// Reads the next line. An incomplete line is left out.
    fn next(&mut self) -> Result<Next, String> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(LARGEST).read_until(b'\n', &mut line);
        match read {
            Ok(0) => return Ok(Next::End),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Next::Broken),
            Err(error) => return Err(error.to_string()),
            Ok(_) => {}
        }
        serde_json::from_slice(&line).map(Next::Changes).map_err(|error| error.to_string())
    }
}
