//! The inside of a virtual machine, as far as an autoscaler can see it through the guest agent: systemd's
//! state, `/bin/sh -c` with the few programs of a kubeadm template, and the kubelet once it has joined.
//!
//! Files below `/run` and `/tmp` live as long as one boot, all others as long as the VM's disk. Whatever runs
//! in the guest ends with its power.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::control_plane::ControlPlane;

pub mod control_plane;
mod k3s;
mod kubeadm;
mod plugged;
mod programs;
mod shell;
mod syntax;

/// What goes wrong inside a guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuestFaults {
    /// The guest agent never answers.
    pub agent_never: bool,
    /// The guest agent answers so much later than usual.
    pub agent_late: Duration,
    /// The system comes up `degraded`.
    pub degraded: bool,
    /// The system comes up in `maintenance`.
    pub maintenance: bool,
    /// The system stays in `starting` for so much longer.
    pub starting_for: Duration,
    /// `kubeadm join` fails with this text.
    pub join_fails: Option<String>,
    /// `kubeadm join` never ends.
    pub join_hangs: bool,
    /// The guest ignores requests to shut down.
    pub ignores_shutdown: bool,
    /// Its kernel takes no notice of what is plugged into its machine.
    pub deaf_to_plugs: bool,
    /// Its kernel brings up no further CPUs (`nr_cpus=`), and lets go of those that are plugged.
    pub deaf_to_cpus: bool,
    /// Its QEMU emulates, and plugs in no CPUs.
    pub plugs_no_cpus: bool,
    /// Its kubelet goes on saying what it said at first, however often it is restarted.
    pub kubelet_reports_no_more: bool,
    /// Programs that the template lacks.
    pub missing_programs: Vec<String>,
}

/// What a guest learns about itself.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// SMBIOS uuid, lower case.
    pub uuid: String,
    /// Host name, from cloud-init.
    pub hostname: String,
    /// Addresses with prefix, from `ipconfig0`.
    pub addresses: Vec<String>,
    /// Hardware address of the first interface.
    pub mac: String,
    /// vCPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Root disk in bytes.
    pub disk: u64,
}

/// How long this boot and what runs in it takes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From power on to the agent.
    pub agent: Duration,
    /// From the agent to the end of `starting`.
    pub running: Duration,
    /// A join.
    pub join: Duration,
}

/// Files that survive a boot.
#[derive(Debug, Default)]
pub struct Disk(Mutex<BTreeMap<String, Vec<u8>>>);

impl Disk {
    /// A copy, as a clone of the VM has it.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self(Mutex::new(self.files().clone()))
    }

    /// Writes a file, as the builder of an image does.
    pub fn write(&self, path: &str, content: Vec<u8>) {
        self.files().insert(path.to_owned(), content);
    }

    /// A file's content.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.files().get(path).cloned()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command that the agent started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Exit status.
    pub code: i32,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: Vec<u8>,
}

/// A running guest. Clones share it.
#[derive(Clone)]
pub struct Guest(Arc<Inner>);

struct Inner {
    identity: Identity,
    disk: Arc<Disk>,
    faults: GuestFaults,
    pace: Pace,
    booted: Instant,
    control_plane: Arc<dyn ControlPlane>,
    on_join: Box<dyn Fn() + Send + Sync>,
    live: Mutex<Live>,
    off: CancellationToken,
}

#[derive(Default)]
struct Live {
    files: BTreeMap<String, Vec<u8>>,
    processes: BTreeMap<u64, Option<Finished>>,
    next_pid: u64,
    silent_until: Option<Instant>,
    /// Since when its memory has been on disk, and how far its clock is behind.
    frozen: Option<Instant>,
    behind: Duration,
    flocks: BTreeMap<String, Arc<tokio::sync::Mutex<()>>>,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("identity", &self.0.identity).finish_non_exhaustive()
    }
}

/// A script that cloud-init runs at the first boot of each clone, if the template has it …
pub const FIRST_BOOT: &str = "/var/lib/cloud/scripts/per-instance/first-boot";
/// … and what says that it was run.
const FIRST_BOOT_DONE: &str = "/var/lib/cloud/instance/sem/config_scripts_per_instance";

/// The file that tells a joined guest from others.
pub const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";

impl Guest {
    /// Powers a guest on. `on_join` is called after each successful join.
    pub fn boot(
        identity: Identity,
        disk: Arc<Disk>,
        faults: GuestFaults,
        pace: Pace,
        control_plane: Arc<dyn ControlPlane>,
        on_join: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let live = Mutex::new(Live { next_pid: 500, ..Live::default() });
        let (booted, off) = (Instant::now(), CancellationToken::new());
        let inner = Inner { identity, disk, faults, pace, booted, control_plane, on_join, live, off };
        let guest = Self(Arc::new(inner));
        guest.run_first_boot();
        if guest.joined() {
            let again = guest.clone();
            let delay = guest.agent_after();
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = again.0.off.cancelled() => {}
                    () = tokio::time::sleep(delay) => again.0.control_plane.booted_again(&again.0.identity.uuid),
                }
            });
        }
        guest
    }

    /// Runs the template's script of the first boot once the guest is up, if there is one.
    fn run_first_boot(&self) {
        let Some(script) = self.read_file(FIRST_BOOT) else { return };
        if self.read_file(FIRST_BOOT_DONE).is_some() {
            return;
        }
        let guest = self.clone();
        tokio::spawn(async move {
            let script = String::from_utf8_lossy(&script).into_owned();
            let command = ["sh", "-c", &script].map(String::from).to_vec();
            let run = async {
                tokio::time::sleep(guest.0.pace.agent).await;
                guest.write_file(FIRST_BOOT_DONE, Vec::new());
                programs::run(&guest, command, Vec::new()).await
            };
            tokio::select! {
                biased;
                () = guest.0.off.cancelled() => {}
                finished = run => guest.write_file("/var/log/cloud-init-output.log", finished.err),
            }
        });
    }

    /// Cuts the power: everything in the guest ends, the control plane hears no more of it.
    pub fn power_off(&self) {
        if !self.0.off.is_cancelled() {
            self.0.off.cancel();
            self.0.control_plane.power_lost(&self.0.identity.uuid);
        }
    }

    /// Whether the guest has joined a cluster.
    pub fn joined(&self) -> bool {
        self.read_file(KUBELET_CONF).is_some() || self.read_file(k3s::CERTIFICATE).is_some()
    }

    /// Whether the guest lets itself be shut down.
    pub fn shuts_down(&self) -> bool {
        !self.0.faults.ignores_shutdown
    }

    fn agent_after(&self) -> Duration {
        self.0.pace.agent + self.0.faults.agent_late
    }

    /// Whether the agent answers now.
    pub fn agent_answers(&self) -> bool {
        let silent = self.live().silent_until.is_some_and(|until| Instant::now() < until);
        !self.0.faults.agent_never && !silent && self.0.booted.elapsed() >= self.agent_after()
    }

    /// Whether the guest accepts TCP connections: its sshd comes up a little before its agent.
    pub fn accepts_tcp(&self) -> bool {
        self.0.booted.elapsed() + Duration::from_millis(500) >= self.0.pace.agent
    }

    /// Its memory goes to disk: its clock stands still until it goes on.
    pub fn freeze(&self) {
        self.live().frozen = Some(Instant::now());
    }

    /// It goes on, with the clock of the moment in which it was frozen.
    pub fn thaw(&self) {
        let mut live = self.live();
        if let Some(since) = live.frozen.take() {
            live.behind += since.elapsed();
        }
    }

    /// How far its clock is behind.
    pub fn clock_behind(&self) -> Duration {
        self.live().behind
    }

    fn set_clock(&self) {
        self.live().behind = Duration::ZERO;
    }

    /// Makes the agent silent for a while.
    pub fn silence_agent(&self, time: Duration) {
        self.live().silent_until = Some(Instant::now() + time);
    }

    fn settles_at(&self) -> Instant {
        self.0.booted + self.0.pace.agent + self.0.pace.running + self.0.faults.starting_for
    }

    /// What `systemctl is-system-running` says now.
    pub fn system_state(&self) -> &'static str {
        match () {
            () if Instant::now() < self.settles_at() => "starting",
            () if self.0.faults.maintenance => "maintenance",
            () if self.0.faults.degraded => "degraded",
            () => "running",
        }
    }

    /// What it learnt about itself.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Starts a command; `None` if the program is missing.
    pub fn exec(&self, command: Vec<String>, stdin: Vec<u8>) -> Option<u64> {
        let program = command.first()?;
        if !self.has_program(program) {
            return None;
        }
        let pid = {
            let mut live = self.live();
            live.next_pid += 2;
            let pid = live.next_pid;
            live.processes.insert(pid, None);
            pid
        };
        let guest = self.clone();
        tokio::spawn(async move {
            let finished = tokio::select! {
                biased;
                () = guest.0.off.cancelled() => return,
                finished = programs::run(&guest, command, stdin) => finished,
            };
            guest.live().processes.insert(pid, Some(finished));
        });
        Some(pid)
    }

    /// The state of a command: `None` for an unknown pid, `Some(None)` while it runs. A finished one is
    /// forgotten by the first read.
    pub fn exec_status(&self, pid: u64) -> Option<Option<Finished>> {
        let mut live = self.live();
        let finished = live.processes.get(&pid)?.clone();
        if finished.is_some() {
            live.processes.remove(&pid);
        }
        Some(finished)
    }

    /// A file's content.
    pub fn read_file(&self, path: &str) -> Option<Vec<u8>> {
        if is_volatile(path) { self.live().files.get(path).cloned() } else { self.disk().get(path).cloned() }
    }

    /// The paths of all files that a pattern with `*` means, in their order.
    pub(super) fn files_like(&self, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let of_boot: Vec<String> = self.live().files.keys().filter(|path| fits(path)).cloned().collect();
        let on_disk: Vec<String> = self.disk().keys().filter(|path| fits(path)).cloned().collect();
        let mut all: Vec<String> = of_boot.into_iter().chain(on_disk).collect();
        all.sort();
        all
    }

    /// The paths of all files on the disk below a folder, in their order.
    pub(crate) fn files_below(&self, folder: &str) -> Vec<String> {
        self.disk().keys().filter(|path| path.starts_with(folder)).cloned().collect()
    }

    /// Writes a file.
    pub fn write_file(&self, path: &str, content: Vec<u8>) {
        if is_volatile(path) {
            self.live().files.insert(path.to_owned(), content);
        } else {
            self.disk().insert(path.to_owned(), content);
        }
    }

    /// Removes a file; says whether there was one.
    pub fn remove_file(&self, path: &str) -> bool {
        let removed =
            if is_volatile(path) { self.live().files.remove(path) } else { self.disk().remove(path) };
        removed.is_some()
    }

    fn has_program(&self, program: &str) -> bool {
        let name = program.rsplit('/').next().unwrap_or(program);
        programs::exists(name) && !self.0.faults.missing_programs.iter().any(|missing| missing == name)
    }

    fn file_lock(&self, path: &str) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.live().flocks.entry(path.to_owned()).or_default())
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.disk.files()
    }
}

fn is_volatile(path: &str) -> bool {
    path.starts_with("/run/")
        || path.starts_with("/sys/")
        || path.starts_with("/tmp/")
        || path.starts_with("/var/run/")
}
