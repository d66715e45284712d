//! A DRA driver on a node. It is based on Kubernetes' own helper for drivers. Its devices are simulated.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::process::Process;
use crate::programs::Programs;

/// A driver's process on one node. The process ends when this value is dropped.
#[derive(Debug)]
pub struct Driver {
    prepared: PathBuf,
    _process: Process,
}

impl Driver {
    /// Starts the driver of this name for a node whose kubelet has this root directory.
    ///
    /// # Errors
    /// Returns an error if the program cannot be built or started.
    pub async fn start(
        programs: &Programs,
        (name, kubeconfig): (&str, &Path),
        (node, root): (&str, &Path),
        devices: usize,
    ) -> anyhow::Result<Self> {
        programs.build("driver").await?;
        let words = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--name={name}"),
            format!("--node={node}"),
            format!("--root={}", root.display()),
            format!("--devices={devices}"),
        ];
        let log = root.with_file_name("driver.log");
        let process = Process::start(&programs.path("driver"), &words, &log).context("no driver")?;
        Ok(Self { prepared: root.join("plugins").join(name).join("prepared"), _process: process })
    }

    /// The number of claims that the driver has prepared for the kubelet and has not released yet.
    pub fn prepared(&self) -> usize {
        fs::read_dir(&self.prepared).map_or(0, Iterator::count)
    }
}
