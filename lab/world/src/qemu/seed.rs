//! The cloud-init drive. It is created again at each start, with the program that Proxmox VE uses.

use std::path::Path;

use super::{HardwareError, tool};

/// The layout of the drive (`citype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedKind {
    /// `nocloud`, the default for Linux: label `cidata`, files in the root.
    NoCloud,
    /// `configdrive2`: label `config-2`, files below `openstack`.
    ConfigDrive,
}

/// The content of a cloud-init drive, which a guest reads at its first boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The layout.
    pub kind: SeedKind,
    /// User data.
    pub user: String,
    /// Network configuration: cloud-init's version 1 format, or the format of Debian's `interfaces` file for
    /// a configuration drive.
    pub network: String,
    /// Meta data: YAML, or JSON for a configuration drive.
    pub meta: String,
}

impl Seed {
    /// Volume label.
    pub fn label(&self) -> &'static str {
        match self.kind {
            SeedKind::NoCloud => "cidata",
            SeedKind::ConfigDrive => "config-2",
        }
    }

    /// Path and content of each file.
    pub fn files(&self) -> [(&'static str, &str); 4] {
        match self.kind {
            SeedKind::NoCloud => [
                ("user-data", &self.user),
                ("network-config", &self.network),
                ("meta-data", &self.meta),
                ("vendor-data", ""),
            ],
            SeedKind::ConfigDrive => [
                ("openstack/latest/user_data", &self.user),
                ("openstack/content/0000", &self.network),
                ("openstack/latest/meta_data.json", &self.meta),
                ("openstack/latest/vendor_data.json", "{}"),
            ],
        }
    }
}

/// Writes the drive.
pub async fn write(seed: &Seed, image: &Path) -> Result<(), HardwareError> {
    let directory = image.with_extension("d");
    // Remove the files of the previous start.
    let _ = std::fs::remove_dir_all(&directory);
    for (name, content) in seed.files() {
        let path = directory.join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, content))
            .map_err(tool::file(format!("write {}", path.display())))?;
    }
    let (image, directory) = (image.to_string_lossy(), directory.to_string_lossy());
    let arguments =
        ["-quiet", "-iso-level", "3", "-R", "-V", seed.label(), "-o", image.as_ref(), directory.as_ref()];
    tool::run("genisoimage", &arguments).await.map(drop)
}
