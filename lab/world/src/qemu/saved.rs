//! A guest's memory in a file. It is written while the guest is paused, and read by the process that resumes
//! the guest.
//!
//! Proxmox VE's own QEMU writes the memory in the background (`savevm-start`) and reads it with `-loadstate`.
//! QEMU without Proxmox VE's changes can migrate to and from a file, which keeps the same data. The new
//! process needs the same devices as the previous one.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Hardware, HardwareError, Running, tool};

/// How long writing or reading the memory may take.
const LIMIT: Duration = Duration::from_mins(3);
/// The interval at which the lab checks whether the memory has been written or read.
const LOOK: Duration = Duration::from_millis(50);
/// The rate limit in bytes per second. It is too high to be reached. QEMU's default of 128 MiB/s is meant for
/// networks.
const RATE: u64 = 8 << 30;

impl Hardware {
    /// Pauses a guest and writes its memory to a volume. If writing fails, the guest continues.
    ///
    /// # Errors
    /// Returns an error if the volume cannot be written, or QEMU refuses.
    pub async fn save_memory(&self, running: &Running, volid: &str) -> Result<(), HardwareError> {
        let path = self.path_of(volid);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(tool::file(format!("make {}", parent.display())))?;
        }
        if let Err(error) = running.save(&path).await {
            // The first error is reported. If the guest cannot be resumed either, its process is gone.
            let _ = running.command("cont", &Value::Null).await;
            self.free_disk(volid);
            return Err(error);
        }
        Ok(())
    }
}

impl Running {
    async fn save(&self, path: &Path) -> Result<(), HardwareError> {
        self.command("stop", &Value::Null).await?;
        self.command("migrate-set-parameters", &json!({ "max-bandwidth": RATE })).await?;
        self.command("migrate", &json!({ "uri": format!("exec:cat > '{}'", path.display()) })).await?;
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let answer = self.command("query-migrate", &Value::Null).await?;
            match answer["return"]["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let why = answer["return"]["error-desc"].as_str().unwrap_or("reason unknown");
                    return Err(self.failed(format!("could not save the guest's memory: {why}")));
                }
                _ => sleep(LOOK).await,
            }
        }
        Err(self.failed("took too long to save the guest's memory".to_owned()))
    }

    /// Waits until the memory has been read, and resumes the guest.
    pub(super) async fn go_on(&self) -> Result<(), HardwareError> {
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let answer = self.command("query-status", &Value::Null).await?;
            if answer["return"]["status"] != "inmigrate" {
                return self.command("cont", &Value::Null).await.map(drop);
            }
            sleep(LOOK).await;
        }
        Err(self.failed("took too long to restore the guest's memory".to_owned()))
    }
}
