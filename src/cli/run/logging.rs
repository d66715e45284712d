//! The daemon's log. If systemd has connected standard error to the journal, events go to the journal with
//! their fields. Otherwise they are written to standard error as text.

use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use super::journal::Journal;
use crate::CRATES;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks the value of `--log-level`. A level on its own applies only to this program's own crates. Libraries
/// then log at most warnings and errors, because their lower levels may quote requests.
pub(super) fn directives(text: &str) -> Result<String, String> {
    let text = text.trim();
    let level = text.to_ascii_lowercase();
    if LEVELS.contains(&level.as_str()) {
        let others = if ["off", "error"].contains(&level.as_str()) { level.as_str() } else { "warn" };
        // kube_client logs each failed call, but its callers already do so.
        let own: String = CRATES.iter().flat_map(|name| [",", name, "=", &level]).collect();
        return Ok(format!("{others},kube_client=off{own}"));
    }
    match EnvFilter::try_new(text) {
        // A single word that is not a level would be read as the name of a crate.
        Ok(_) if text.contains(['=', ',']) => Ok(text.to_owned()),
        Ok(_) => {
            Err(format!("expected one of {}, or directives such as `info,kube=debug`", LEVELS.join(", ")))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Starts logging. Has no effect if logging was started before.
pub(super) fn start(directives: &str) {
    let journal = if is_journal() { Journal::connect().ok() } else { None };
    let layer = journal.map_or_else(text, Layer::boxed).with_filter(EnvFilter::new(directives));
    // Fails only if a subscriber is already set, which then stays in use.
    let _ = tracing_subscriber::registry().with(layer).try_init();
}

fn text() -> Box<dyn Layer<Registry> + Send + Sync> {
    let text = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    text.with_target(false).with_ansi(colours()).boxed()
}

fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// Whether standard error is the stream that `JOURNAL_STREAM` names (systemd.exec(5)). It is not if standard
/// error was redirected later.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let seen = std::io::stderr().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    seen.is_ok_and(|seen| names(&stream, seen.dev(), seen.ino()))
}

fn names(stream: &str, device: u64, inode: u64) -> bool {
    let Some((left, right)) = stream.trim().split_once(':') else { return false };
    left.parse() == Ok(device) && right.parse() == Ok(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_alone_is_ours() {
        let debug = directives("debug").unwrap();
        assert!(debug.starts_with("warn,kube_client=off,bootstrap=debug,daemon=debug,"), "{debug}");
        assert!(debug.contains(",pve_autoscaler=debug,"), "{debug}");
        assert!(directives("ERROR").unwrap().starts_with("error,kube_client=off,bootstrap=error,"));
        assert_eq!(directives("info,kube=debug").as_deref(), Ok("info,kube=debug"));
        for wrong in ["", "loud", "a=b=c"] {
            assert!(directives(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_the_named_stream_is_the_journal() {
        for (stream, matches) in [("8:42", true), ("8:43", false), ("9:42", false), ("8", false), ("", false)]
        {
            assert_eq!(names(stream, 8, 42), matches, "{stream}");
        }
    }
}
