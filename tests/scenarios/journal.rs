//! Compares the journal of a machine's whole life line by line, so that any change of words, levels or order
//! shows as a difference. `INSTA_UPDATE=always cargo test --test scenarios journal` updates the expected
//! journal.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::stage::{ONE_POOL, Stage};

const SOON: Duration = Duration::from_mins(2);

/// Seconds since the daemon was started.
struct Passed(Instant);

impl FormatTime for Passed {
    fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
        write!(to, "{:>4} s", self.0.elapsed().as_secs())
    }
}

#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<u8>>>);

impl io::Write for Journal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_life_is_logged_like_this() {
    let journal = Journal::default();
    let writer = journal.clone();
    let layer = fmt::layer()
        .with_writer(move || writer.clone())
        .with_timer(Passed(Instant::now()))
        .with_ansi(false)
        .with_target(false);
    let subscriber = tracing_subscriber::registry().with(EnvFilter::new("info")).with(layer);
    // With only one subscriber, a log line would stay disabled if another test's thread reached it first.
    let _other = tracing::Dispatch::new(tracing_subscriber::registry());
    let listening = tracing::subscriber::set_default(subscriber);
    let mut stage = Stage::running(ONE_POOL);
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("the pod runs", SOON, |stage| stage.running_pods() == 1).await;
    stage.kube.scale("default", "web", 0);
    let after = Duration::from_mins(12);
    stage
        .until("nothing is left", after, |stage| {
            stage.ready_nodes("workers").is_empty() && stage.leftovers().is_empty()
        })
        .await;
    stage.stop().await;
    drop(listening);
    let text = String::from_utf8(journal.0.lock().unwrap().clone()).unwrap();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/texts"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("journal-a-whole-life", text));
}
