//! Disks as files: a linked clone is an overlay on its template's image, a full clone a copy.

use std::path::{Path, PathBuf};

use super::{Hardware, HardwareError, Running, firmware::format_of, tool};

impl Hardware {
    /// Returns the path of the file behind a volume.
    ///
    /// # Errors
    /// Returns an error if there is no file.
    pub(super) fn disk(&self, volid: &str) -> Result<PathBuf, HardwareError> {
        if let Some(image) = self.0.images.get(volid) {
            return Ok(image.clone());
        }
        let path = self.path_of(volid);
        if path.exists() { Ok(path) } else { Err(HardwareError::NoVolume(volid.to_owned())) }
    }

    /// Returns the path of a volume that the lab created. The file is named after the volume, without its
    /// storage and its base volume.
    pub(super) fn path_of(&self, volid: &str) -> PathBuf {
        let name = volid.rsplit(['/', ':']).next().unwrap_or(volid);
        self.0.directory.join("images").join(name)
    }

    /// Creates a volume as a clone of another one.
    ///
    /// # Errors
    /// Returns an error if the source is missing, or the disk is full.
    pub async fn clone_disk(&self, from: &str, to: &str, linked: bool) -> Result<(), HardwareError> {
        let (source, target) = (self.disk(from)?, self.path_of(to));
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(tool::file(format!("make {}", parent.display())))?;
        }
        let (source, target, format) = (text(&source), text(&target), format_of(to));
        if linked {
            tool::run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", &source, &target])
                .await?;
        } else {
            let formats = ["-f", format_of(from), "-O", format];
            tool::run("qemu-img", &[&["convert", "-q"], &formats[..], &[&source, &target]].concat()).await?;
        }
        Ok(())
    }

    /// Writes the file behind an uploaded image.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn provide(&self, volid: &str, bytes: &[u8]) -> Result<(), HardwareError> {
        let path = self.path_of(volid);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, bytes))
            .map_err(tool::file(format!("write {}", path.display())))
    }

    /// Grows a volume, through its QEMU if its VM runs.
    ///
    /// # Errors
    /// Returns an error if the volume does not exist, or would shrink.
    pub async fn grow_disk(
        &self,
        volid: &str,
        drive: &str,
        bytes: u64,
        running: Option<&Running>,
    ) -> Result<(), HardwareError> {
        if let Some(running) = running {
            return running.grow(drive, bytes).await;
        }
        let file = text(&self.disk(volid)?);
        tool::run("qemu-img", &["resize", "-q", &file, &bytes.to_string()]).await.map(drop)
    }

    /// Removes a volume. The images behind templates are kept.
    pub fn free_disk(&self, volid: &str) {
        // The volume may be gone already.
        let _ = std::fs::remove_file(self.path_of(volid));
    }

    /// Whether there is a file behind a volume, for tests that look for leaks.
    pub fn has_disk(&self, volid: &str) -> bool {
        self.disk(volid).is_ok()
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
