//! The guests of the embedded Proxmox VE, as the real control plane sees them. Each guest is a `machine`
//! process, which uses Kubernetes' own code to join the cluster and run a kubelet.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use tokio::process::Command;
use tokio::time::{Instant, sleep};
use uuid::Uuid;
use world::guest::control_plane::{ControlPlane, JoinFailure, JoinRequest};

use crate::process::Process;
use crate::programs::Programs;

/// How long kubeadm waits for the kubelet's TLS bootstrap (`timeouts.tlsBootstrap`).
const BOOTSTRAP: Duration = Duration::from_mins(5);
/// How often the rig checks whether the kubelet has its certificate.
const LOOK: Duration = Duration::from_millis(50);

/// The guests of a control plane.
#[derive(Debug)]
pub struct Guests {
    programs: Programs,
    directory: PathBuf,
    joined: Mutex<BTreeMap<String, Machine>>,
}

#[derive(Debug)]
struct Machine {
    directory: PathBuf,
    hardware: Vec<String>,
    /// `None` while the machine is off.
    kubelet: Option<Process>,
}

impl Guests {
    /// Begins without guests. Guests that join keep their disks in this directory. Its path must be short,
    /// since kubelets create sockets in it.
    pub fn new(programs: Programs, directory: PathBuf) -> Arc<Self> {
        Arc::new(Self { programs, directory, joined: Mutex::default() })
    }

    /// The uuids of the machines whose kubelet runs.
    pub fn running(&self) -> Vec<String> {
        let joined = self.joined();
        joined.iter().filter(|(_, machine)| machine.kubelet.is_some()).map(|(uuid, _)| uuid.clone()).collect()
    }

    /// The root directory of a machine's kubelet.
    pub fn kubelet_root(&self, system_uuid: &str) -> Option<PathBuf> {
        let joined = self.joined();
        Some(joined.get(&system_uuid.to_lowercase())?.directory.join("kubelet"))
    }

    fn joined(&self) -> MutexGuard<'_, BTreeMap<String, Machine>> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn try_join(&self, request: &JoinRequest) -> anyhow::Result<Result<(), JoinFailure>> {
        let uuid = request.system_uuid.to_lowercase();
        let directory = self.directory.join(&uuid[..8.min(uuid.len())]);
        fs::create_dir_all(&directory).context("cannot create a machine's disk")?;
        let hardware = hardware(request, &directory);
        let file = directory.join("join.yaml");
        fs::write(&file, &request.configuration).context("cannot write join.yaml")?;
        let mut join = Command::new(self.programs.path("machine"));
        join.arg("join").args(&hardware).stdin(Stdio::null()).kill_on_drop(true);
        let output = join.output().await.context("cannot run machine")?;
        // The file contains the token, so it is removed after the join.
        fs::remove_file(&file).context("cannot remove join.yaml")?;
        if !output.status.success() {
            return Ok(Err(JoinFailure {
                stderr: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
                exit_code: output.status.code().unwrap_or(1),
                after: Duration::ZERO,
            }));
        }
        let machine = Machine { directory: directory.clone(), hardware, kubelet: None };
        self.joined().insert(uuid.clone(), machine);
        self.power_on(&uuid)?;
        let end = Instant::now() + BOOTSTRAP;
        while !directory.join("kubelet.conf").exists() {
            if Instant::now() > end {
                return Ok(Err(JoinFailure {
                    stderr: "error: error execution phase kubelet-wait-bootstrap: failed while waiting for TLS bootstrap: \
                             context deadline exceeded"
                        .to_owned(),
                    exit_code: 1,
                    after: Duration::ZERO,
                }));
            }
            sleep(LOOK).await;
        }
        Ok(Ok(()))
    }

    fn power_on(&self, uuid: &str) -> anyhow::Result<()> {
        let mut joined = self.joined();
        let machine = joined.get_mut(uuid).context("the machine has not joined")?;
        let mut words = vec!["kubelet".to_owned(), format!("--boot-id={}", Uuid::new_v4())];
        words.extend(machine.hardware.iter().cloned());
        let log = machine.directory.join("kubelet.log");
        machine.kubelet = Some(Process::start(&self.programs.path("machine"), &words, &log)?);
        Ok(())
    }
}

fn hardware(request: &JoinRequest, directory: &std::path::Path) -> Vec<String> {
    vec![
        format!("--dir={}", directory.display()),
        format!("--uuid={}", request.system_uuid),
        format!("--cpus={}", request.cpus),
        format!("--memory={}", request.memory),
        format!("--disk={}", request.disk),
    ]
}

impl ControlPlane for Guests {
    fn join(&self, request: JoinRequest) -> BoxFuture<'_, Result<(), JoinFailure>> {
        Box::pin(async move {
            self.try_join(&request).await.unwrap_or_else(|error| {
                Err(JoinFailure { stderr: format!("error: {error:#}"), exit_code: 1, after: Duration::ZERO })
            })
        })
    }

    fn power_lost(&self, system_uuid: &str) {
        if let Some(machine) = self.joined().get_mut(&system_uuid.to_lowercase()) {
            machine.kubelet = None;
        }
    }

    fn booted_again(&self, system_uuid: &str) {
        let uuid = system_uuid.to_lowercase();
        if self.joined().contains_key(&uuid) {
            // If the kubelet does not start, its Node is not ready, and the test sees that.
            let _ = self.power_on(&uuid);
        }
    }
}
