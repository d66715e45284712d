//! The randomly drawn number of databases whose volumes are attached to nodes.

use std::time::Duration;

use fastrand::Rng;

/// The drawn settings.
#[derive(Clone, Copy, Debug)]
pub struct Volumes {
    /// The maximum number of database pods.
    pub most: u32,
    /// `health.out_of_service_after`.
    after: Option<Duration>,
}

impl Volumes {
    /// Draws the databases; half of the seeds have none.
    pub fn draw(random: &mut Rng) -> Option<Self> {
        let after = random.bool().then(|| Duration::from_mins(random.u64(2..12)));
        random.bool().then(|| Self { most: random.u32(1..=3), after })
    }

    /// The `[health]` table with `out_of_service_after`, or an empty text if the option is not set.
    pub fn written(self) -> String {
        let line = |after: Duration| format!("[health]\nout_of_service_after = \"{}s\"\n", after.as_secs());
        self.after.map(line).unwrap_or_default()
    }
}
