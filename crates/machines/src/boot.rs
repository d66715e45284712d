//! Waits for a guest to boot, without keeping its host busy.

use std::time::Duration;

use runtime::boxed;
use tokio::time::Instant;

use super::context::Context;
use model::Record;

/// The time between two probes.
const PROBE: Duration = Duration::from_millis(200);
/// The time from a guest's start to the first query to its agent, while the pool's boot times are unknown.
/// Most guests take a little longer to boot.
const BOOT: Duration = Duration::from_secs(6);
/// The expected boot time is at most the agent's time limit divided by this number.
const PART: u32 = 3;
/// The assumed time from a guest's first open port to its agent's first answer, until that time has been
/// measured.
const AFTER_PROBE: Duration = Duration::from_millis(700);

/// While the pool's boot times are unknown, the daemon waits for an open port for up to this many times the
/// expected boot time.
const UNKNOWN: u32 = 3;
/// Until this number of tries is reached, the pause between two queries to the agent is a quarter of
/// `agent_poll`.
const NEAR: u32 = 4;

/// Decides when the guest agent is asked, and measures the boot time.
pub(super) struct Boot {
    started: Instant,
    asked: Option<Instant>,
    opened: Option<Instant>,
    tries: u32,
    what: String,
    /// Whether the guest is already up. If so, there is nothing to wait for and no boot time to measure.
    up: bool,
    /// Whether the guest's clock still shows the time at which its memory was written to disk.
    pub old_clock: bool,
}

impl Boot {
    /// Creates the state for a guest that was started at `started`.
    pub fn new(record: &Record, started: Instant) -> Self {
        let what = format!("boot of {}", record.pool);
        Self { started, asked: None, opened: None, tries: 0, what, up: false, old_clock: false }
    }

    /// Creates the state for a guest that is already up.
    pub fn up(record: &Record) -> Self {
        Self { up: true, ..Self::new(record, Instant::now()) }
    }

    /// Notes that the guest's clock has to be set.
    pub fn with_old_clock(self) -> Self {
        Self { old_clock: true, ..self }
    }

    /// Waits until the next query to the agent is due.
    #[boxed]
    pub async fn wait(&mut self, ctx: &Context, record: &Record) {
        self.tries += 1;
        if let Some(asked) = self.asked {
            // The agent did not answer within the usual time, but will probably answer soon.
            let poll = ctx.config.limits.agent_poll;
            let pause = if self.tries <= NEAR { poll / 4 } else { poll };
            tokio::time::sleep_until(asked + pause).await;
        } else if let (false, Some(address)) = (self.up, record.slot.address) {
            self.probe(ctx, address).await;
        } else if !self.up {
            self.usual(ctx).await;
        }
        self.asked = Some(Instant::now());
    }

    async fn probe(&mut self, ctx: &Context, address: std::net::IpAddr) {
        let patience = match ctx.pace.known(&self.what) {
            Some(_) => self.expected(ctx),
            None => self.expected(ctx) * UNKNOWN,
        };
        loop {
            match ctx.probe.booted(address).await {
                None => return self.usual(ctx).await,
                Some(true) => {
                    self.opened = Some(Instant::now());
                    return tokio::time::sleep(ctx.pace.usual(&self.after_probe(), AFTER_PROBE)).await;
                }
                // A firewall or a missing route may keep the port closed. The agent is then asked anyway.
                Some(false) if self.started.elapsed() >= patience => return,
                Some(false) => tokio::time::sleep(PROBE).await,
            }
        }
    }

    async fn usual(&self, ctx: &Context) {
        tokio::time::sleep_until(self.started + self.expected(ctx)).await;
    }

    fn expected(&self, ctx: &Context) -> Duration {
        ctx.pace.usual(&self.what, BOOT).min(ctx.config.limits.agent / PART)
    }

    fn after_probe(&self) -> String {
        format!("{} after its first port", self.what)
    }

    /// Records how long the guest took to boot, once its agent has answered. If the agent answered the first
    /// query, the guest may have been up earlier, so slightly less than the measured time is recorded.
    pub fn answered(&self, ctx: &Context) {
        if self.up {
            return;
        }
        let asked = self.asked.unwrap_or(self.started);
        let took = |since: Instant| {
            let time = asked.saturating_duration_since(since);
            if self.tries == 1 { time * 19 / 20 } else { time }
        };
        if let Some(opened) = self.opened {
            ctx.pace.learn(&self.after_probe(), took(opened));
        }
        ctx.pace.learn(&self.what, took(self.started));
    }
}
