//! Many nodes in one process. To the API server they look like a large cluster, but there are no machines.

use std::path::Path;

use anyhow::Context as _;

use crate::process::Process;
use crate::programs::Programs;

/// Nodes with 4 vCPUs, 16 GiB of memory and room for 110 pods. They report to the API server as kubelets do,
/// and report their pods as running. When this value is dropped, the nodes stop reporting.
#[derive(Debug)]
pub struct Hollow {
    _process: Process,
}

impl Hollow {
    /// Adds the nodes to the control plane in this directory.
    ///
    /// # Errors
    /// Returns an error if the program cannot be built or started.
    pub async fn start(programs: &Programs, directory: &Path, nodes: usize) -> anyhow::Result<Self> {
        programs.build("hollow").await?;
        let kubeconfig = directory.join("super-admin.conf");
        let words = [format!("--kubeconfig={}", kubeconfig.display()), format!("--nodes={nodes}")];
        let log = directory.join("hollow.log");
        let process = Process::start(&programs.path("hollow"), &words, &log).context("no hollow nodes")?;
        Ok(Self { _process: process })
    }
}
