//! Days and weeks of rounds as files: the input of each decision, as changes since the previous one.
//!
//! `recording-TIME.jsonl.gz` covers an hour at most. Its lines are JSON, one for each round: the first is a
//! complete snapshot, each further one has the changes since the previous round ([`snapshot::Changes`]). Each
//! round is flushed as a unit, so if the end of a file is missing, all complete rounds in it can be read.

mod file;
mod read;
mod rounds;
mod write;

pub use read::{Damage, Recording, RecordingError, Rounds};
pub use rounds::{RecordError, RoundFiles};
pub use write::Writer;
