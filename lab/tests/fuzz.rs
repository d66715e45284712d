//! Whatever the daemon reads: the known inputs of `lab/corpus`, among them all that ever broke something, and
//! some made from them.

use std::path::Path;

use lab::fuzz::{Target, known, try_some};

/// Inputs that are made for each target, from a seed that is always the same. `lab fuzz` goes on for as long
/// as wanted.
const MADE: u32 = 300;

#[test]
fn known_inputs_and_some_made_from_them_break_nothing() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in Target::ALL {
        let known = known(&corpus.join(target.name())).unwrap_or_else(|error| panic!("{error:#}"));
        try_some(target, known, 1, MADE).unwrap_or_else(|error| panic!("{}: {error:#}", target.name()));
    }
}
