//! Runs the daemon's parsers on the known inputs of `lab/corpus`, which include every input that ever broke
//! something, and on some inputs that are derived from them.

use std::path::Path;

use lab::fuzz::{Target, known, try_some};

/// The number of inputs that are derived for each target, always from the same seed. To try more inputs, use
/// `lab fuzz`.
const MADE: u32 = 300;

#[test]
fn known_inputs_and_some_made_from_them_break_nothing() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in Target::ALL {
        let known = known(&corpus.join(target.name())).unwrap_or_else(|error| panic!("{error:#}"));
        try_some(target, known, 1, MADE).unwrap_or_else(|error| panic!("{}: {error:#}", target.name()));
    }
}
