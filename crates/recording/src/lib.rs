//! Records rounds in files, for days or weeks. The input of each decision is stored as the changes since the
//! previous decision.
//!
//! Each file `recording-TIME.jsonl.gz` covers at most an hour. Each line is the JSON of one round: the first
//! is a complete snapshot, the others contain the changes since the previous round ([`snapshot::Changes`]).
//! Each round is flushed as a unit, so if the end of a file is missing, all of its complete rounds can still
//! be read.

mod file;
mod read;
mod rounds;
mod write;

pub use read::{Damage, Recording, RecordingError, Rounds};
pub use rounds::{RecordError, RoundFiles};
pub use write::Writer;
