//! Real hardware for the embedded Proxmox VE: each VM that runs is a QEMU process with disks, a network and a
//! guest agent.
//!
//! ```text
//!  proxmox:: tasks ──> Hardware ── disks   qemu-img: linked clone = overlay, full clone = copy
//!                         │        network bridge and taps, only in a network namespace that has nothing else
//!                         │        seed    the cloud-init drive
//!                         └──start──> Running ── process, QMP, guest agent, and the process of its TPM
//!                                        └ saved  memory in a volume, from which a new process resumes
//! ```
//!
//! Processes run in real time, so tokio's clock must not be paused. A process ends when the last clone of its
//! [`Running`] is dropped, when the tokio runtime ends, or when the process namespace that the caller created
//! for it ends.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;

pub use self::{
    agent::AgentError,
    command::Accelerator,
    firmware::new_efi_disk,
    hotplug::{FIRST, Features, Plug, dimms},
    network::Bridge,
    process::Running,
    seed::{Seed, SeedKind},
    tpm::new_tpm_state,
};

mod agent;
mod command;
mod disks;
mod firmware;
mod hang;
mod hotplug;
mod network;
mod process;
mod saved;
mod seed;
mod tool;
mod tpm;

use self::tpm::Tpm;

/// How long the start of a VM waits for the VM's previous process to end.
const FORMER_END: Duration = Duration::from_secs(15);

/// The spec of the hardware.
#[derive(Clone, Debug)]
pub struct HardwareSpec {
    /// A folder for disks, sockets and consoles. Everything in it may be replaced.
    pub directory: PathBuf,
    /// Images behind the volumes of templates, by volume id. They are only read.
    pub images: BTreeMap<String, PathBuf>,
    /// The host's bridges.
    pub bridges: Vec<Bridge>,
    /// How guests are executed. `None` means hardware virtualization if a test machine runs with it,
    /// otherwise emulation.
    pub accelerator: Option<Accelerator>,
}

/// An error of a process, a disk or a network.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// A required program is not installed or cannot be run.
    #[error("cannot run `{program}`")]
    Missing {
        /// Its name.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A program ended with an error.
    #[error("`{program}` failed: {said}")]
    Failed {
        /// Its name.
        program: String,
        /// The program's standard error output, or a note that the program took too long.
        said: String,
    },
    /// The network namespace contains an interface other than the lab's own.
    #[error(
        "this network namespace already contains the interface `{0}`: the lab's guests need a \
        separate namespace"
    )]
    NotAlone(String),
    /// A file could not be read or written.
    #[error("cannot {what}")]
    File {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// There is no image behind a volume.
    #[error("volume '{0}' does not exist")]
    NoVolume(String),
    /// The VM's configuration contains something that the lab's hardware does not support.
    #[error("{0}")]
    Unsupported(String),
    /// A QEMU process did not start, or does not respond.
    #[error("VM {vmid}: QEMU {said}")]
    Process {
        /// VMID.
        vmid: u32,
        /// What happened.
        said: String,
    },
}

/// Everything that is needed to start a VM's process.
#[derive(Clone, Debug)]
pub struct Blueprint {
    /// VMID.
    pub vmid: u32,
    /// Its configuration.
    pub config: BTreeMap<String, String>,
    /// The content of its cloud-init drive.
    pub seed: Seed,
    /// The uploaded images in its drives, by volume id.
    pub images: BTreeMap<String, Bytes>,
    /// The volume that contains the guest's saved memory, if the guest is to be resumed.
    pub memory: Option<String>,
}

/// A handle to the hardware of all hosts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hardware(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    images: BTreeMap<String, PathBuf>,
    accelerator: Accelerator,
    running: Mutex<BTreeMap<u32, Running>>,
}

impl Hardware {
    /// Creates the bridges, and finds out how guests can be executed.
    ///
    /// # Errors
    /// Returns an error if a program or a privilege is missing, or the network namespace is not empty.
    pub async fn open(spec: HardwareSpec) -> Result<Self, HardwareError> {
        for program in ["qemu-system-x86_64", "qemu-img", "genisoimage"] {
            tool::run(program, &["--version"]).await?;
        }
        let HardwareSpec { directory, images, bridges, accelerator } = spec;
        std::fs::create_dir_all(&directory).map_err(tool::file(format!("make {}", directory.display())))?;
        network::open(&bridges).await?;
        let accelerator = match accelerator {
            Some(accelerator) => accelerator,
            None => process::find_accelerator(&directory).await,
        };
        Ok(Self(Arc::new(Inner { directory, images, accelerator, running: Mutex::default() })))
    }

    /// How guests are executed.
    pub fn accelerator(&self) -> Accelerator {
        self.0.accelerator
    }

    /// Returns the VM's console output so far, for the report of a failed test.
    pub fn console(&self, vmid: u32) -> String {
        let text = std::fs::read(self.directory_of(vmid).join("console")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Starts a VM's process.
    ///
    /// # Errors
    /// Returns an error if a disk is missing, a tap cannot be created, or QEMU ends at once.
    pub async fn start(&self, blueprint: Blueprint) -> Result<Running, HardwareError> {
        let vmid = blueprint.vmid;
        let former = self.running().remove(&vmid);
        if let Some(former) = former
            && tokio::time::timeout(FORMER_END, former.ended()).await.is_err()
        {
            return Err(HardwareError::Process { vmid, said: "still runs".to_owned() });
        }
        let directory = self.directory_of(vmid);
        std::fs::create_dir_all(&directory).map_err(tool::file(format!("make {}", directory.display())))?;
        let seed = directory.join("cloud-init.iso");
        // A resumed guest needs the same cloud-init drive as before.
        if blueprint.memory.is_none() {
            seed::write(&blueprint.seed, &seed).await?;
        }
        for (volid, bytes) in &blueprint.images {
            self.provide(volid, bytes)?;
        }
        let disk = |volid: &str| self.disk(volid);
        let mut arguments =
            command::arguments(vmid, &blueprint.config, &directory, &seed, self.0.accelerator, disk)?;
        if let Some(volid) = &blueprint.memory {
            arguments.extend(["-incoming".to_owned(), format!("exec:cat '{}'", self.disk(volid)?.display())]);
        }
        let taps = network::plug(vmid, &blueprint.config).await?;
        let tpm = Tpm::start(&blueprint.config, &directory, disk).await?;
        let running = process::start(vmid, &directory, arguments, taps, tpm).await?;
        if blueprint.memory.is_some() {
            running.go_on().await?;
        } else if self.0.accelerator == Accelerator::Tcg {
            running.reset_if_it_hangs();
        }
        self.running().insert(vmid, running.clone());
        Ok(running)
    }

    fn directory_of(&self, vmid: u32) -> PathBuf {
        self.0.directory.join(vmid.to_string())
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u32, Running>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
