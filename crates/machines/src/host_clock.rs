//! The clocks of Proxmox VE hosts. The times of a task come from its host's clock, which may be minutes ahead
//! of this daemon's clock or behind it. So our own times are converted before they are compared with those of
//! a task.

use jiff::Timestamp;
use runtime::boxed;

use proxmox::Client;
use runtime::clock::SharedClock;

/// Converts the time `at` of our clock to the time of a host's clock, as Unix time in seconds. If the host's
/// clock cannot be read, it is assumed to be correct.
#[boxed]
pub(super) async fn by_clock_of(proxmox: &Client, host: &str, clock: &SharedClock, at: Timestamp) -> i64 {
    at.as_second().saturating_add(seconds_ahead(proxmox, host, clock).await)
}

/// The number of seconds by which a host's clock is ahead of our own. The number is negative if the host's
/// clock is behind, and zero if it cannot be read.
#[boxed]
pub async fn seconds_ahead(proxmox: &Client, host: &str, clock: &SharedClock) -> i64 {
    match proxmox.host_time(host).await {
        Ok(time) => time.saturating_sub(clock.now().as_second()),
        Err(error) => {
            tracing::debug!(%error, host, "a host's clock cannot be read");
            0
        }
    }
}
