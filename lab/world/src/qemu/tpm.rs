//! A VM's TPM: an `swtpm` process that runs beside QEMU. Its state is on the VM's `tpmstate0` volume.
//!
//! This follows Proxmox VE (`start_swtpm`), but does not run `swtpm_setup`, so the TPM has no manufacturer
//! certificates. The process ends when QEMU's connection to it ends.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use super::{HardwareError, tool};

const PROGRAM: &str = "swtpm";
/// How long `swtpm` may take until it listens.
const START: Duration = Duration::from_secs(5);
/// How long `swtpm` may take to end after its QEMU has ended.
const END: Duration = Duration::from_secs(3);
/// The size of the TPM state volume, in bytes.
const SIZE: u64 = 4 << 20;

/// A running TPM. Its process is killed when this value is dropped.
#[derive(Debug)]
pub struct Tpm(Child);

impl Tpm {
    /// Starts a VM's TPM, if it has one, and waits until it listens.
    ///
    /// # Errors
    /// Returns an error if the state volume or `swtpm` is missing, or `swtpm` does not start.
    pub async fn start(
        config: &BTreeMap<String, String>,
        directory: &Path,
        disk: impl Fn(&str) -> Result<PathBuf, HardwareError>,
    ) -> Result<Option<Self>, HardwareError> {
        let Some(text) = config.get("tpmstate0") else { return Ok(None) };
        let (state, socket) = (disk(text.split(',').next().unwrap_or_default())?, directory.join("swtpm"));
        let _ = std::fs::remove_file(&socket);
        let errors = directory.join("swtpm.stderr");
        let stderr = File::create(&errors).map_err(tool::file(format!("write {}", errors.display())))?;
        let mut command = Command::new(PROGRAM);
        command.args(["socket", "--terminate"]);
        command.args(["--tpmstate", &format!("backend-uri=file://{},mode=0600", state.display())]);
        command.args(["--ctrl", &format!("type=unixio,path={},mode=0600", socket.display())]);
        if text.split(',').any(|part| part == "version=v2.0") {
            command.arg("--tpm2");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).kill_on_drop(true);
        let missing = |source| HardwareError::Missing { program: PROGRAM.to_owned(), source };
        let mut child = command.spawn().map_err(missing)?;
        let end = Instant::now() + START;
        while !socket.exists() {
            if Instant::now() >= end || child.try_wait().is_ok_and(|ended| ended.is_some()) {
                let said = std::fs::read_to_string(&errors).unwrap_or_default();
                return Err(HardwareError::Failed {
                    program: PROGRAM.to_owned(),
                    said: said.trim().to_owned(),
                });
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Some(Self(child)))
    }

    /// Waits for the process to end once its QEMU is gone, and kills it if that takes too long.
    pub(super) async fn end(mut self) {
        if timeout(END, self.0.wait()).await.is_err() {
            // The process may end by itself at this moment.
            let _ = self.0.kill().await;
        }
    }
}

/// Returns the QEMU arguments that connect a VM to its TPM.
pub fn arguments(config: &BTreeMap<String, String>, directory: &Path) -> Vec<String> {
    if !config.contains_key("tpmstate0") {
        return Vec::new();
    }
    let socket = format!("socket,id=tpmchar,path={}", directory.join("swtpm").display());
    let words = [
        "-chardev",
        &socket,
        "-tpmdev",
        "emulator,id=tpmdev,chardev=tpmchar",
        "-device",
        "tpm-tis,tpmdev=tpmdev",
    ];
    words.map(ToOwned::to_owned).into()
}

/// Makes the TPM state of a VM that has never run: an empty volume.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn new_tpm_state(file: &Path) -> Result<(), HardwareError> {
    let made = File::create(file).and_then(|made| made.set_len(SIZE));
    made.map_err(tool::file(format!("write {}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tpm_is_a_device_where_there_is_state_for_it() {
        let config = [("tpmstate0".to_owned(), "s:9/vm-9-disk-0.raw,size=4M,version=v2.0".to_owned())].into();
        let text = arguments(&config, Path::new("/d/9")).join(" ");
        for part in [
            "socket,id=tpmchar,path=/d/9/swtpm",
            "emulator,id=tpmdev,chardev=tpmchar",
            "-device tpm-tis,tpmdev=tpmdev",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(arguments(&BTreeMap::new(), Path::new("/d/9")), Vec::<String>::new());
    }
}
