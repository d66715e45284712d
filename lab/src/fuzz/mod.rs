//! Hostile input for everything that the daemon reads: known inputs, changed at random, until something
//! breaks.
//!
//! `targets` defines what must hold: nothing panics, nothing takes long, and valid input has the same meaning
//! after it is written and read again. Known inputs are in `lab/corpus`, one folder for each target; failing
//! inputs are saved there too.

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

/// An input that takes longer could be used to stop the daemon.
const SLOW: Duration = Duration::from_secs(10);

/// What is tried.
#[derive(Clone, Debug, Args)]
pub struct Wanted {
    /// What reads the input
    #[arg(value_enum)]
    target: Target,
    /// Duration in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of all changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder with known inputs, with a folder for each target
    #[arg(long, default_value = "lab/corpus")]
    corpus: PathBuf,
}

/// Tries inputs for some time.
///
/// # Errors
/// Something failed: the input is shown, and saved beside the known ones.
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
            bail!("{error:#}; the input is kept in `{}`", path.display());
        }
        tried += 1;
    }
    let (understood, longest) = (runner.understood, runner.longest);
    anstream::println!(
        "{}: {tried} inputs in {} s from {} known ones, {understood} of them valid, at most {longest:?} for one: no failure",
        wanted.target.name(),
        wanted.seconds,
        known.len(),
    );
    Ok(())
}

/// The known inputs of a folder, by name.
///
/// # Errors
/// There are none.
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
    /// For one target.
    ///
    /// # Errors
    /// The runtime cannot be created.
    pub fn new(target: Target) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        Ok(Self { target, runtime, understood: 0, longest: Duration::ZERO })
    }

    /// Passes one input.
    ///
    /// # Errors
    /// It panics, takes too long, or has a different meaning the second time.
    pub fn run(&mut self, input: &[u8]) -> anyhow::Result<()> {
        let begun = now();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.target.reads(input, &self.runtime)));
        let took = begun.elapsed();
        self.longest = self.longest.max(took);
        match outcome {
            Ok(Ok(understood)) => self.understood += u64::from(understood),
            Ok(Err(broken)) => bail!("{broken}: {}", input.escape_ascii()),
            Err(_) => bail!("it panics: {}", input.escape_ascii()),
        }
        if took > SLOW {
            bail!("it takes {took:?}: {}", input.escape_ascii());
        }
        Ok(())
    }
}

/// Changes known inputs from a seed, for tests that try a few.
///
/// # Errors
/// Those of [`Runner::run`].
pub fn try_some(target: Target, known: Vec<Vec<u8>>, seed: u64, number: u32) -> anyhow::Result<()> {
    let mut runner = Runner::new(target)?;
    known.iter().try_for_each(|input| runner.run(input))?;
    let mut change = Change::new(known, Rng::with_seed(seed));
    (0..number).try_for_each(|_| runner.run(&change.next()))
}

#[expect(clippy::disallowed_methods, reason = "how long something really takes is part of the question")]
fn now() -> Instant {
    Instant::now()
}
