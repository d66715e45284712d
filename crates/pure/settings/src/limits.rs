//! `[limits]`: how long each step of a machine's life may take, and how many machines are created or retired
//! at a time.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::values::Checker;

/// Checked `[limits]`. Each time limit is longer than zero, and each number is at least one.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time limit for cloning the template.
    pub clone: Duration,
    /// Time limit for setting the clone's configuration and disk size.
    pub configure: Duration,
    /// Time limit for the helper on the host to assign CPUs to the VM.
    pub pinning: Duration,
    /// Time limit for the task that starts the VM.
    pub start: Duration,
    /// Time limit from the VM's start until the guest agent answers.
    pub agent: Duration,
    /// Time limit from the guest agent's first answer until systemd in the guest has finished booting.
    pub system_running: Duration,
    /// Time limit for the join in the guest.
    pub join: Duration,
    /// Time limit from the join until the Node object exists.
    pub registered: Duration,
    /// Time limit from the registration until the node is ready.
    pub ready: Duration,
    /// Time limit for evicting a node's pods.
    pub drain: Duration,
    /// Time limit for detaching a node's volumes.
    pub detach: Duration,
    /// Time limit for the guest's graceful shutdown, before the VM is stopped.
    pub shutdown: Duration,
    /// Time limit for destroying the VM.
    pub destroy: Duration,
    /// How often a running task's status is read.
    pub task_poll: Duration,
    /// How often a booting guest's agent is called.
    pub agent_poll: Duration,
    /// Maximum number of machines that may be created at the same time in each Proxmox VE cluster.
    pub max_parallel_creates: u32,
    /// Maximum number of machines that may be retired at the same time in each Proxmox VE cluster. Bare-metal
    /// machines are counted separately.
    pub max_parallel_retires: u32,
}

/// `[limits]` as written in the configuration file.
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
