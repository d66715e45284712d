//! The simulated inside of a virtual machine, as far as an autoscaler can see it through the guest agent: the
//! systemd state, `/bin/sh -c` with the few programs of a kubeadm template, and the kubelet once it has
//! joined.
//!
//! Files below `/run` and `/tmp` last until the next boot. All other files last as long as the VM's disk. All
//! processes in the guest end when its power is cut.

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
    /// The additional delay after a boot until the guest agent answers.
    pub agent_late: Duration,
    /// The system comes up `degraded`.
    pub degraded: bool,
    /// The system comes up in `maintenance`.
    pub maintenance: bool,
    /// The additional time that the system spends in the state `starting`.
    pub starting_for: Duration,
    /// `kubeadm join` fails with this text.
    pub join_fails: Option<String>,
    /// `kubeadm join` never ends.
    pub join_hangs: bool,
    /// The guest ignores requests to shut down.
    pub ignores_shutdown: bool,
    /// The guest's kernel ignores hotplugged CPUs and memory, and does not release CPUs and memory that are
    /// to be unplugged.
    pub deaf_to_plugs: bool,
    /// The guest's kernel does not bring up hotplugged CPUs (as with `nr_cpus=`), but releases them.
    pub deaf_to_cpus: bool,
    /// The VM's QEMU emulates the processor, and therefore cannot hotplug CPUs.
    pub plugs_no_cpus: bool,
    /// The kubelet keeps reporting the CPUs and memory that it first found, no matter how often it is
    /// restarted.
    pub kubelet_reports_no_more: bool,
    /// Programs that the template lacks.
    pub missing_programs: Vec<String>,
}

/// What a guest knows about itself.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// SMBIOS uuid, lower case.
    pub uuid: String,
    /// Host name, from cloud-init.
    pub hostname: String,
    /// Addresses with their prefix lengths, from `ipconfig0`.
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

/// How long the steps of one boot take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time from power-on to the agent's first answer.
    pub agent: Duration,
    /// The time from the agent's first answer to the end of the state `starting`.
    pub running: Duration,
    /// A join.
    pub join: Duration,
}

/// The files on a VM's disk. They survive a reboot.
#[derive(Debug, Default)]
pub struct Disk(Mutex<BTreeMap<String, Vec<u8>>>);

impl Disk {
    /// Returns a copy of the disk, for a clone of the VM.
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

/// The result of a command that the agent started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Exit status.
    pub code: i32,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: Vec<u8>,
}

/// A running guest. Clones of this handle refer to the same guest.
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
    /// The time at which the guest was frozen. `None` if the guest is not frozen.
    frozen: Option<Instant>,
    /// How far the guest's clock lags behind the correct time.
    behind: Duration,
    flocks: BTreeMap<String, Arc<tokio::sync::Mutex<()>>>,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("identity", &self.0.identity).finish_non_exhaustive()
    }
}

/// The path of the script that cloud-init runs when a clone boots for the first time. A template may lack
/// this script.
pub const FIRST_BOOT: &str = "/var/lib/cloud/scripts/per-instance/first-boot";
/// The path of a file that exists once the script `FIRST_BOOT` has been started.
const FIRST_BOOT_DONE: &str = "/var/lib/cloud/instance/sem/config_scripts_per_instance";

/// The path of the kubelet's kubeconfig. The file exists only in a guest that has joined a cluster.
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

    /// Runs the template's first-boot script, if it has one, once the guest is up.
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

    /// Cuts the guest's power. All processes in the guest end, and its kubelet sends nothing more.
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

    /// Whether the guest reacts to a request to shut down.
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

    /// Whether the guest accepts TCP connections. Its sshd starts shortly before its agent.
    pub fn accepts_tcp(&self) -> bool {
        self.0.booted.elapsed() + Duration::from_millis(500) >= self.0.pace.agent
    }

    /// Freezes the guest and its clock, as suspending the VM to disk does.
    pub fn freeze(&self) {
        self.live().frozen = Some(Instant::now());
    }

    /// Resumes the guest. Its clock continues from where it stopped, and therefore lags behind.
    pub fn thaw(&self) {
        let mut live = self.live();
        if let Some(since) = live.frozen.take() {
            live.behind += since.elapsed();
        }
    }

    /// How far the guest's clock lags behind the correct time.
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

    /// Returns the current output of `systemctl is-system-running`.
    pub fn system_state(&self) -> &'static str {
        match () {
            () if Instant::now() < self.settles_at() => "starting",
            () if self.0.faults.maintenance => "maintenance",
            () if self.0.faults.degraded => "degraded",
            () => "running",
        }
    }

    /// What the guest knows about itself.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Starts a command. Returns its process id, or `None` if the template lacks the program.
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

    /// Returns the state of a command: `None` for an unknown pid, `Some(None)` while the command runs. A
    /// finished command is forgotten when its state is read.
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

    /// Returns the sorted paths of all files for which `fits` returns true.
    pub(super) fn files_like(&self, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let of_boot: Vec<String> = self.live().files.keys().filter(|path| fits(path)).cloned().collect();
        let on_disk: Vec<String> = self.disk().keys().filter(|path| fits(path)).cloned().collect();
        let mut all: Vec<String> = of_boot.into_iter().chain(on_disk).collect();
        all.sort();
        all
    }

    /// Returns the paths of all files below a folder of the disk, sorted.
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

    /// Removes a file. Returns whether the file existed.
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
