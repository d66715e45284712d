//! Databases whose volumes are attached to nodes: whether there are any.

use std::time::Duration;

use fastrand::Rng;

/// What was drawn.
#[derive(Clone, Copy, Debug)]
pub struct Volumes {
    /// How many pods there are at most.
    pub most: u32,
    /// `health.out_of_service_after`.
    after: Option<Duration>,
}

impl Volumes {
    /// Every other seed has some.
    pub fn draw(random: &mut Rng) -> Option<Self> {
        let after = random.bool().then(|| Duration::from_mins(random.u64(2..12)));
        random.bool().then(|| Self { most: random.u32(1..=3), after })
    }

    /// The settings' part.
    pub fn written(self) -> String {
        let line = |after: Duration| format!("[health]\nout_of_service_after = \"{}s\"\n", after.as_secs());
        self.after.map(line).unwrap_or_default()
    }
}
