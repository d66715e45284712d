//! Many nodes at once, by one process: what a large cluster is to its API server, without its machines.

use std::path::Path;

use anyhow::Context as _;

use crate::process::Process;
use crate::programs::Programs;

/// Nodes of 4 vCPUs, 16 GiB and 110 pods that say that they are there as kubelets do, and let pods run. Gone
/// silent when dropped.
#[derive(Debug)]
pub struct Hollow {
    _process: Process,
}

impl Hollow {
    /// Makes them in the control plane whose folder this is.
    ///
    /// # Errors
    /// The program cannot be built or started.
    pub async fn start(programs: &Programs, directory: &Path, nodes: usize) -> anyhow::Result<Self> {
        programs.build("hollow").await?;
        let kubeconfig = directory.join("super-admin.conf");
        let words = [format!("--kubeconfig={}", kubeconfig.display()), format!("--nodes={nodes}")];
        let log = directory.join("hollow.log");
        let process = Process::start(&programs.path("hollow"), &words, &log).context("no hollow nodes")?;
        Ok(Self { _process: process })
    }
}
