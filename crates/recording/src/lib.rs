//! Rounds of days and weeks as files: what each decision read, as what has changed since the one before.
//!
//! `recording-TIME.jsonl.gz` holds an hour at most. Its lines are JSON: the first is a whole snapshot, each
//! further one what makes the next of the last ([`snapshot::Changes`]). Every round is flushed as a
//! whole, so that of a file whose end is missing all rounds before can be read.

mod file;
mod read;
mod rounds;
mod write;

pub use read::{Damage, Recording, RecordingError, Rounds};
pub use rounds::{RecordError, RoundFiles};
pub use write::Writer;
