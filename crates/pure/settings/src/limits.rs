//! `[limits]`: how long each step of a machine's life may take, and how many machines are created or retired
//! at a time.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// Checked `[limits]`. Every time is longer than zero, every number at least one.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The clone of the template.
    pub clone: Duration,
    /// Setting the clone's configuration and disk size.
    pub configure: Duration,
    /// Until the helper on the host has given the VM its CPUs.
    pub pinning: Duration,
    /// The task that starts the VM.
    pub start: Duration,
    /// From the start until the guest agent answers.
    pub agent: Duration,
    /// From the agent's first answer until systemd in the guest has finished booting.
    pub system_running: Duration,
    /// The join in the guest.
    pub join: Duration,
    /// From the join until the Node object exists.
    pub registered: Duration,
    /// From the registration until the node is ready.
    pub ready: Duration,
    /// Evicting a node's pods.
    pub drain: Duration,
    /// Detaching a node's volumes.
    pub detach: Duration,
    /// The guest's graceful shutdown, before it is stopped.
    pub shutdown: Duration,
    /// Destroying the VM.
    pub destroy: Duration,
    /// How often a running task's status is read.
    pub task_poll: Duration,
    /// How often a booting guest's agent is called.
    pub agent_poll: Duration,
    /// Maximum number of machines that are being created at a time in each Proxmox VE cluster.
    pub max_parallel_creates: u32,
    /// Maximum number of machines that are being retired at a time in each Proxmox VE cluster. Bare-metal
    /// machines are counted separately.
    pub max_parallel_retires: u32,
}

/// `[limits]` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    clone: Option<Spanned<String>>,
    configure: Option<Spanned<String>>,
    pinning: Option<Spanned<String>>,
    start: Option<Spanned<String>>,
    agent: Option<Spanned<String>>,
    system_running: Option<Spanned<String>>,
    join: Option<Spanned<String>>,
    registered: Option<Spanned<String>>,
    ready: Option<Spanned<String>>,
    drain: Option<Spanned<String>>,
    detach: Option<Spanned<String>>,
    shutdown: Option<Spanned<String>>,
    destroy: Option<Spanned<String>>,
    task_poll: Option<Spanned<String>>,
    agent_poll: Option<Spanned<String>>,
    max_parallel_creates: Option<Spanned<u32>>,
    max_parallel_retires: Option<Spanned<u32>>,
}

impl Written {
    pub(super) fn check(&self, checker: &mut Checker) -> Limits {
        let mut limit = |key: &str, written: &Option<Spanned<String>>, seconds: u64| {
            checker.positive(key, written.as_ref(), Duration::from_secs(seconds))
        };
        Limits {
            clone: limit("clone", &self.clone, 600),
            configure: limit("configure", &self.configure, 120),
            pinning: limit("pinning", &self.pinning, 60),
            start: limit("start", &self.start, 120),
            agent: limit("agent", &self.agent, 300),
            system_running: limit("system_running", &self.system_running, 300),
            join: limit("join", &self.join, 300),
            registered: limit("registered", &self.registered, 120),
            ready: limit("ready", &self.ready, 300),
            drain: limit("drain", &self.drain, 900),
            detach: limit("detach", &self.detach, 300),
            shutdown: limit("shutdown", &self.shutdown, 180),
            destroy: limit("destroy", &self.destroy, 300),
            task_poll: limit("task_poll", &self.task_poll, 1),
            agent_poll: limit("agent_poll", &self.agent_poll, 2),
            max_parallel_creates: checker.count(
                "max_parallel_creates",
                self.max_parallel_creates.as_ref(),
                20,
                "to stop creating and removing machines, set `mode = \"observe\"`",
            ),
            max_parallel_retires: checker.count(
                "max_parallel_retires",
                self.max_parallel_retires.as_ref(),
                20,
                "to switch removals off, set `enabled = false` in `[scale_down]`",
            ),
        }
    }
}
