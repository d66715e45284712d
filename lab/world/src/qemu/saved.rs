//! A guest's memory in a file: written while the guest stands still, read by the process that lets it go on.
//!
//! Proxmox VE's own QEMU writes it in the background (`savevm-start`) and reads it with `-loadstate`; every
//! other one has migration to and from a file, which keeps the same. The new process has to get the same
//! devices as the former one.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Hardware, HardwareError, Running, tool};

/// How long memory may take to be written or read.
const LIMIT: Duration = Duration::from_mins(3);
/// Between two looks whether it is.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes a second: as fast as it goes (by default 128 MiB/s, for networks).
const RATE: u64 = 8 << 30;

impl Hardware {
    /// Writes a guest's memory to a volume; the guest stands still from then on. If that fails, it goes on.
    ///
    /// # Errors
    /// The volume cannot be written, or QEMU refuses.
    pub async fn save_memory(&self, running: &Running, volid: &str) -> Result<(), HardwareError> {
        let path = self.path_of(volid);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(tool::file(format!("make {}", parent.display())))?;
        }
        if let Err(error) = running.save(&path).await {
            // The error is what is reported; a guest that does not go on either has a process that is gone.
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
                    return Err(self.failed(format!("could not write its memory: {why}")));
                }
                _ => sleep(LOOK).await,
            }
        }
        Err(self.failed("took too long to write its memory".to_owned()))
    }

    /// Waits until memory was read, and lets the guest go on.
    pub(super) async fn go_on(&self) -> Result<(), HardwareError> {
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let answer = self.command("query-status", &Value::Null).await?;
            if answer["return"]["status"] != "inmigrate" {
                return self.command("cont", &Value::Null).await.map(drop);
            }
            sleep(LOOK).await;
        }
        Err(self.failed("took too long to read its memory".to_owned()))
    }
}
