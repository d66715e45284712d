//! The helper, which runs as root and handles one request. The request contains only the machine's identity.
//! The helper reads and checks everything else itself.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use runtime::boxed;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;

use super::choice::{self, NoRoom, Taken};
use super::peer;
use super::request::{Answer, LONGEST, Request};
use super::running;
use super::settings;
use super::topology::{self, Topology, TopologyError};
use super::vm_file::VmFile;
use ::settings::{Config, Needs, Pinning};
use proxmox::marker::Description;
use runtime::error_chain::chain;

/// The time limit for receiving a request, and for sending the answer.
const TALK_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait for the lock.
const LOCK_LIMIT: Duration = Duration::from_secs(20);
/// The pause between two attempts to acquire the lock.
const LOCK_LOOK: Duration = Duration::from_millis(100);
/// The time limit for `qm set`, which itself waits up to 10 s for the VM's lock.
const QM_LIMIT: Duration = Duration::from_secs(25);

/// The files that the helper reads, and the program that it runs.
#[derive(Clone, Debug)]
pub struct Places {
    /// The path of the daemon's configuration.
    pub config: PathBuf,
    /// The folder with the configurations of this host's VMs.
    pub vms: PathBuf,
    /// The folder with the pid files of running VMs.
    pub running: PathBuf,
    /// The folder with the kernel's hardware information, usually `/sys/devices/system`.
    pub system: PathBuf,
    /// The folder with the kernel's process information, usually `/proc`.
    pub proc: PathBuf,
    /// The file that is locked while a machine is pinned.
    pub lock: PathBuf,
    /// The program that changes a VM's configuration.
    pub qm: PathBuf,
}

impl Places {
    /// The usual paths on a Proxmox VE host.
    pub fn of_host(config: &Path) -> Self {
        Self {
            config: config.to_owned(),
            vms: "/etc/pve/qemu-server".into(),
            running: "/run/qemu-server".into(),
            system: "/sys/devices/system".into(),
            proc: "/proc".into(),
            lock: "/run/pve-autoscaler-pinning/lock".into(),
            qm: "/usr/sbin/qm".into(),
        }
    }
}

/// Why a machine cannot be pinned.
#[derive(Debug, Error)]
enum Refusal {
    #[error("only root and the daemon may ask")]
    Peer,
    #[error("this is not a known request")]
    Request,
    #[error("the configuration cannot be used: {0}")]
    Configuration(String),
    #[error("VM {0} is not on this host")]
    Absent(u32),
    #[error("VM {0} is not machine {1} of this cluster")]
    Foreign(u32, String),
    #[error("pool `{0}` has no `[pool.pinning]` in this host's configuration")]
    NotPinned(String),
    #[error("VM {0} runs")]
    Running(u32),
    #[error("VM {0} is locked ({1})")]
    Locked(u32, String),
    #[error("the configuration of VM {0} does not specify cores or memory")]
    Shape(u32),
    #[error("{}", chain(.0))]
    Topology(#[from] TopologyError),
    #[error("{0}")]
    NoRoom(#[from] NoRoom),
    #[error("`{}`: {}", .0.display(), .1)]
    File(PathBuf, std::io::Error),
    #[error("another request held the lock for too long")]
    Busy,
    #[error("`qm set` failed: {0}")]
    Qm(String),
}

/// Serves the client whose connection systemd passes as standard input.
///
/// # Errors
/// Returns an error if standard input is not a socket, or the answer cannot be written.
#[boxed]
pub async fn serve_stdin(places: &Places) -> std::io::Result<()> {
    use std::os::fd::AsFd;
    let stream = StdStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    // Only a connected socket has a peer.
    stream.peer_addr()?;
    stream.set_nonblocking(true)?;
    serve(UnixStream::from_std(stream)?, places).await
}

/// Reads one request, carries it out, and writes the answer.
///
/// # Errors
/// Returns an error if the answer cannot be written.
#[boxed]
pub async fn serve(mut stream: UnixStream, places: &Places) -> std::io::Result<()> {
    let outcome = match requested(&mut stream, places).await {
        Ok(request) => carry_out(&request, places).await,
        Err(refusal) => Err(refusal),
    };
    let answer = outcome.unwrap_or_else(|refusal| Answer::Refused { reason: refusal.to_string() });
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    tokio::time::timeout(TALK_LIMIT, async {
        stream.write_all(&line).await?;
        stream.shutdown().await
    })
    .await?
}

async fn requested(stream: &mut UnixStream, places: &Places) -> Result<Request, Refusal> {
    let peer = stream.peer_cred().map_err(|_| Refusal::Peer)?;
    if !peer::may_ask(&places.proc, peer.uid(), peer.pid()) {
        return Err(Refusal::Peer);
    }
    let mut line = String::new();
    let mut reader = BufReader::new(stream).take(LONGEST);
    match tokio::time::timeout(TALK_LIMIT, reader.read_line(&mut line)).await {
        Ok(Ok(length)) if length > 0 && line.ends_with('\n') => {
            serde_json::from_str(&line).map_err(|_| Refusal::Request)
        }
        _ => Err(Refusal::Request),
    }
}

async fn carry_out(request: &Request, places: &Places) -> Result<Answer, Refusal> {
    // The configuration is read as for `plan`: credentials are not needed, so they are not read.
    let config =
        files::load(&places.config, Needs::Plan).map_err(|report| Refusal::Configuration(report.plain()))?;
    match request {
        Request::Look {} => look(&config, places),
        Request::Runs {} => astray(&config, places),
        Request::Pin { vmid, machine } => pin(&config, *vmid, machine, places).await,
    }
}

/// The number of free CPUs on each NUMA node, not counting those reserved for the host. If pools reserve
/// different numbers of cores, the smallest number applies.
fn look(config: &Config, places: &Places) -> Result<Answer, Refusal> {
    let topology = topology::read(&places.system)?;
    let taken = taken(&places.vms, None)?;
    let reserve = config.pools.iter().filter_map(|pool| Some(pool.pinning.as_ref()?.reserve)).min();
    Ok(Answer::Free { cpus: choice::free_cpus(&topology, &taken, reserve.unwrap_or(0)) })
}

/// The machines of this cluster that run on CPUs other than those they are pinned to.
fn astray(config: &Config, places: &Places) -> Result<Answer, Refusal> {
    let is_ours =
        |file: &VmFile| matches!(file.owner(), Description::Ours(owner) if owner.cluster == config.cluster);
    let mut astray = Vec::new();
    for (vmid, file) in files(&places.vms)?.into_iter().filter(|(_, file)| is_ours(file)) {
        astray.extend(running::astray(vmid, &file, &places.running, &places.proc));
    }
    Ok(Answer::Runs { astray })
}

async fn pin(config: &Config, vmid: u32, machine: &str, places: &Places) -> Result<Answer, Refusal> {
    // The lock is held until the end, so that the next request sees the new settings.
    let _lock = locked(&places.lock).await?;
    let file = checked(config, vmid, machine, places)?;
    let (file, pinning) = (file.0, file.1);
    let wish = settings::wish(pinning, &file).ok_or(Refusal::Shape(vmid))?;
    let topology = topology::read(&places.system)?;
    let taken = taken(&places.vms, Some(vmid))?;
    let chosen = chosen(&topology, &taken, &wish, &file)?;
    let keys = settings::keys(pinning, &chosen);
    let arguments = settings::arguments(&keys, &file);
    let changed = !arguments.is_empty();
    if changed {
        set(&places.qm, vmid, &file, &arguments).await?;
        let now = read(&places.vms, vmid)?;
        if !settings::arguments(&keys, &now).is_empty() {
            return Err(Refusal::Qm(
                "the command succeeded, but the configuration does not contain the change".to_owned(),
            ));
        }
    }
    Ok(Answer::Pinned { affinity: chosen.cpus.to_string(), changed })
}

/// The CPUs that the machine is already pinned to, if they follow the rules; otherwise new ones.
fn chosen(
    topology: &Topology,
    taken: &Taken,
    wish: &choice::Wish,
    file: &VmFile,
) -> Result<choice::Choice, NoRoom> {
    match choice::keeps(topology, taken, wish, &file.affinity()) {
        Some(kept) => Ok(kept),
        None => choice::choose(topology, taken, wish),
    }
}

/// The configuration of a managed machine that can be pinned and is not running, with its pool's pinning
/// settings.
fn checked<'c>(
    config: &'c Config,
    vmid: u32,
    machine: &str,
    places: &Places,
) -> Result<(VmFile, &'c Pinning), Refusal> {
    let file = read(&places.vms, vmid)?;
    let owner = match file.owner() {
        Description::Ours(owner) if owner.machine == machine && owner.cluster == config.cluster => owner,
        _ => return Err(Refusal::Foreign(vmid, machine.to_owned())),
    };
    let pool = config.pools.iter().find(|pool| pool.name == owner.pool);
    let pinning = pool.and_then(|pool| pool.pinning.as_ref()).ok_or(Refusal::NotPinned(owner.pool.into()))?;
    if file.is_template() {
        return Err(Refusal::Foreign(vmid, machine.to_owned()));
    }
    if let Some(lock) = file.get("lock") {
        return Err(Refusal::Locked(vmid, lock.to_owned()));
    }
    if running::process(vmid, &places.running, &places.proc).is_some() {
        return Err(Refusal::Running(vmid));
    }
    Ok((file, pinning))
}

fn read(vms: &Path, vmid: u32) -> Result<VmFile, Refusal> {
    let path = vms.join(format!("{vmid}.conf"));
    match std::fs::read(&path) {
        Ok(bytes) => Ok(VmFile::read(&bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Refusal::Absent(vmid)),
        Err(error) => Err(Refusal::File(path, error)),
    }
}

/// The CPUs and memory that are assigned to this host's VMs. Templates and the VM with the VMID `but` are
/// left out. Stopped VMs are included, because they may be started.
fn taken(vms: &Path, but: Option<u32>) -> Result<Taken, Refusal> {
    let mut taken = Taken::default();
    for (_, file) in files(vms)?.into_iter().filter(|(vmid, _)| Some(*vmid) != but) {
        taken.cpus.add(&file.affinity());
        for (node, mib) in file.bound_memory() {
            *taken.memory.entry(node).or_default() += mib;
        }
    }
    Ok(taken)
}

/// The configurations of this host's VMs, except templates.
fn files(vms: &Path) -> Result<BTreeMap<u32, VmFile>, Refusal> {
    let unreadable = |error| Refusal::File(vms.to_owned(), error);
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(vms).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let vmid = name.to_str().and_then(|name| name.strip_suffix(".conf")).and_then(|id| id.parse().ok());
        let Some(vmid) = vmid else { continue };
        match read(vms, vmid) {
            Ok(file) if file.is_template() => {}
            Ok(file) => drop(files.insert(vmid, file)),
            // The VM has just been destroyed or moved away.
            Err(Refusal::Absent(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(files)
}

async fn locked(path: &Path) -> Result<File, Refusal> {
    let failed = |error| Refusal::File(path.to_owned(), error);
    let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(failed)?;
    let end = tokio::time::Instant::now() + LOCK_LIMIT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if tokio::time::Instant::now() >= end => return Err(Refusal::Busy),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_LOOK).await,
        }
    }
}

/// Runs `qm set VMID …`, without a shell and without the helper's environment. The digest makes `qm` refuse
/// the change if the configuration has changed since the helper read it. Otherwise, the change could affect
/// an unmanaged VM that takes the VMID before `qm` acquires the VM's lock.
async fn set(qm: &Path, vmid: u32, file: &VmFile, arguments: &[String]) -> Result<(), Refusal> {
    let mut command = Command::new(qm);
    command.arg("set").arg(vmid.to_string()).args(["--digest", file.digest()]).args(arguments);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let ran = tokio::time::timeout(QM_LIMIT, command.output()).await;
    let ran: Output = ran
        .map_err(|_| Refusal::Qm(format!("it took longer than {} s", QM_LIMIT.as_secs())))?
        .map_err(|error| Refusal::File(qm.to_owned(), error))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed no message");
    Err(Refusal::Qm(last.trim().chars().take(300).collect()))
}

#[cfg(test)]
#[path = "helper_tests.rs"]
mod tests;
