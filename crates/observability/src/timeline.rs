//! The numbers of nodes and pending pods during the last day, for the status page. The samples are kept in
//! memory, so they are lost on a restart.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::status::Status;

/// The period that one sample covers.
const STEP: SignedDuration = SignedDuration::from_secs(30);
/// The number of samples that are kept: a day's worth.
const KEPT: usize = 2880;

/// The numbers of nodes, machines and pods in one step of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// When the step began.
    pub time: Timestamp,
    /// The number of ready nodes in all pools at the end of the step.
    pub ready: u32,
    /// The number of machines being created at the end of the step.
    pub coming: u32,
    /// The highest number of pods that were pending at the same time during the step.
    pub waiting: usize,
}

/// The samples of the last day, oldest first.
#[derive(Debug, Default)]
pub(super) struct Timeline(VecDeque<Sample>);

impl Timeline {
    /// Adds the result of a round.
    pub fn take(&mut self, status: &Status) {
        let sample = Sample {
            time: status.time,
            ready: status.pools.iter().map(|pool| pool.ready).sum(),
            coming: status.pools.iter().map(|pool| pool.coming).sum(),
            waiting: status.pods.len(),
        };
        match self.0.back_mut() {
            // If the clock was set back, new samples start at its new time.
            Some(last) if sample.time >= last.time && sample.time.duration_since(last.time) < STEP => {
                *last = Sample { time: last.time, waiting: last.waiting.max(sample.waiting), ..sample };
            }
            _ => {
                if self.0.len() >= KEPT {
                    self.0.pop_front();
                }
                self.0.push_back(sample);
            }
        }
    }

    /// The samples, oldest first.
    pub fn samples(&self) -> Vec<Sample> {
        self.0.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PodStatus, PoolStatus};

    fn status(seconds: i64, ready: u32, waiting: usize) -> Status {
        Status {
            time: Timestamp::from_second(seconds).unwrap(),
            pools: vec![PoolStatus { ready, ..PoolStatus::default() }],
            pods: vec![PodStatus::default(); waiting],
            ..Status::default()
        }
    }

    #[test]
    fn rounds_within_a_step_are_one_sample_with_the_latest_nodes_and_the_most_pods() {
        let mut timeline = Timeline::default();
        for (seconds, ready, waiting) in [(0, 1, 0), (10, 1, 7), (29, 2, 3), (30, 3, 0)] {
            timeline.take(&status(seconds, ready, waiting));
        }
        let seen: Vec<_> = timeline.samples().iter().map(|one| (one.ready, one.waiting)).collect();
        assert_eq!(seen, [(2, 7), (3, 0)]);
    }

    #[test]
    fn no_more_than_the_last_hours_are_kept() {
        let mut timeline = Timeline::default();
        for step in 0..5000 {
            timeline.take(&status(step * 30, 1, 0));
        }
        let samples = timeline.samples();
        assert_eq!(samples.len(), KEPT);
        assert_eq!(samples.last().unwrap().time, Timestamp::from_second(4999 * 30).unwrap());
    }
}
