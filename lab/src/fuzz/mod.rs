//! Tries hostile input on everything that the daemon parses: known inputs are changed at random until
//! something breaks.
//!
//! `targets` defines what must be true for any input: no parser panics or takes long, and valid input keeps
//! its meaning when it is written and read again. Known inputs are in `lab/corpus`, in one folder for each
//! target; failing inputs are saved in the same folder.

mod change;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use fastrand::Rng;

pub use targets::Target;

use change::Change;

/// The time limit for one input. An input that takes longer could stall the daemon.
const SLOW: Duration = Duration::from_secs(10);

/// Which target to try, and how.
#[derive(Clone, Debug, Args)]
pub struct Wanted {
    /// The parser to try
    #[arg(value_enum)]
    target: Target,
    /// Duration in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of all random changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of the known inputs, with a subfolder for each target
    #[arg(long, default_value = "lab/corpus")]
    corpus: PathBuf,
}

/// Tries inputs for the requested time.
///
/// # Errors
/// Returns an error if the target fails on an input. The input is saved next to the known ones.
pub fn fuzz(wanted: &Wanted) -> anyhow::Result<()> {
    let folder = wanted.corpus.join(wanted.target.name());
    let known = known(&folder)?;
    let (mut tried, begun) = (0_u64, now());
    let mut change = Change::new(known.clone(), Rng::with_seed(wanted.seed));
    let mut runner = Runner::new(wanted.target)?;
    known.iter().try_for_each(|input| runner.run(input))?;
    while begun.elapsed() < Duration::from_secs(wanted.seconds) {
        let input = change.next();
        if let Err(error) = runner.run(&input) {
            let path = folder.join(format!("broke-{}-{tried}", wanted.seed));
            std::fs::write(&path, &input)?;
            bail!("{error:#}; the input is saved in `{}`", path.display());
        }
        tried += 1;
    }
    let (understood, longest) = (runner.understood, runner.longest);
    anstream::println!(
        "{}: no failure. Tried {tried} inputs in {} s, derived from {} known inputs. Known ones \
            included, {understood} inputs were valid. The slowest input took {longest:?}",
        wanted.target.name(),
        wanted.seconds,
        known.len(),
    );
    Ok(())
}

/// The known inputs of a folder, sorted by file name.
///
/// # Errors
/// Returns an error if the folder has no inputs, or an input cannot be read.
pub fn known(folder: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let files =
        std::fs::read_dir(folder).with_context(|| format!("no known inputs in `{}`", folder.display()))?;
    let mut paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    paths.sort();
    let read =
        |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()));
    let inputs: Vec<Vec<u8>> = paths.iter().map(read).collect::<anyhow::Result<_>>()?;
    if inputs.is_empty() {
        bail!("no known inputs in `{}`", folder.display());
    }
    Ok(inputs)
}

/// Passes inputs to a target.
pub struct Runner {
    target: Target,
    runtime: tokio::runtime::Runtime,
    /// The number of valid inputs.
    pub understood: u64,
    /// The longest time that an input took.
    pub longest: Duration,
}

impl Runner {
    /// Creates a runner for one target.
    ///
    /// # Errors
    /// Returns an error if the runtime cannot be created.
    pub fn new(target: Target) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        Ok(Self { target, runtime, understood: 0, longest: Duration::ZERO })
    }

    /// Passes one input.
    ///
    /// # Errors
    /// Returns an error if the target panics or takes too long, or if its output has a different meaning when
    /// it is read again.
    pub fn run(&mut self, input: &[u8]) -> anyhow::Result<()> {
        let begun = now();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.target.reads(input, &self.runtime)));
        let took = begun.elapsed();
        self.longest = self.longest.max(took);
        match outcome {
            Ok(Ok(understood)) => self.understood += u64::from(understood),
            Ok(Err(broken)) => bail!("{broken}: {}", input.escape_ascii()),
            Err(_) => bail!("the target panics: {}", input.escape_ascii()),
        }
        if took > SLOW {
            bail!("processing the input took {took:?}: {}", input.escape_ascii());
        }
        Ok(())
    }
}

/// Tries a few inputs that are derived from known ones with this seed. For tests.
///
/// # Errors
/// Returns the errors of [`Runner::run`].
pub fn try_some(target: Target, known: Vec<Vec<u8>>, seed: u64, number: u32) -> anyhow::Result<()> {
    let mut runner = Runner::new(target)?;
    known.iter().try_for_each(|input| runner.run(input))?;
    let mut change = Change::new(known, Rng::with_seed(seed));
    (0..number).try_for_each(|_| runner.run(&change.next()))
}

#[expect(clippy::disallowed_methods, reason = "the real duration of each input is measured")]
fn now() -> Instant {
    Instant::now()
}
