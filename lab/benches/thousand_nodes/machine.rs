//! The delays that this computer and the API server add to the measured times.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Cluster;

/// The intended length of each nap.
const NAP: Duration = Duration::from_millis(5);

/// Short sleeps during the measurement. How late they end shows how long a runnable process waits for a CPU
/// of this computer.
pub struct Naps(tokio::task::JoinHandle<()>, std::sync::mpsc::Receiver<Duration>);

impl Naps {
    /// Starts the naps.
    pub fn start() -> Self {
        let (late, lateness) = std::sync::mpsc::channel();
        let task = tokio::spawn(async move {
            loop {
                let from = Instant::now();
                tokio::time::sleep(NAP).await;
                if late.send(from.elapsed().saturating_sub(NAP)).is_err() {
                    return;
                }
            }
        });
        Self(task, lateness)
    }

    /// Stops the naps. Returns how late each one ended, shortest first.
    pub fn end(self) -> Vec<Duration> {
        self.0.abort();
        let mut all: Vec<Duration> = self.1.try_iter().collect();
        all.sort_unstable();
        all
    }
}

/// The number of ConfigMaps that the API server was asked to create (each machine's record is one), and how
/// many of these calls took at most a given number of seconds, according to the server's metrics.
pub async fn record_writes(cluster: &Cluster) -> (u64, BTreeMap<String, u64>) {
    let text = cluster.admin.text("/metrics").await.unwrap();
    let mut within: BTreeMap<String, u64> = BTreeMap::new();
    let mut all = 0;
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_duration_seconds_bucket{")) {
        if !line.contains("resource=\"configmaps\"") || !line.contains("verb=\"POST\"") {
            continue;
        }
        let Some((labels, count)) = line.rsplit_once(' ') else { continue };
        let count = count.parse::<f64>().unwrap_or_default().round();
        let limit = labels.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count, which is written as a float"
        )]
        let count = count as u64;
        match limit {
            "+Inf" => all += count,
            "0.005" | "0.025" | "0.05" | "0.1" | "0.2" => {
                *within.entry(limit.to_owned()).or_default() += count;
            }
            _ => {}
        }
    }
    (all, within)
}
