//! The firmware of a machine: SeaBIOS, which is part of QEMU, or OVMF, with its variables on the VM's EFI
//! disk.
//!
//! This follows Proxmox VE (`OVMF.pm`), with two differences: the firmware comes from Debian, and the build
//! without System Management Mode is always used.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{HardwareError, tool};

/// The 4 MiB build of OVMF, from Debian's `ovmf` package.
const CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
/// The initial firmware variables of a new machine, without Secure Boot keys.
const VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// Whether the machine type is `q35` or one of its versions. All other types are treated as `pc`.
pub fn is_q35(machine: Option<&str>) -> bool {
    machine.is_some_and(|text| text.contains("q35"))
}

/// The arguments for a VM's firmware.
///
/// # Errors
/// Returns an error if the VM's OVMF settings are not supported, or the EFI disk is missing.
pub fn arguments(
    config: &BTreeMap<String, String>,
    disk: impl Fn(&str) -> Result<PathBuf, HardwareError>,
) -> Result<Vec<String>, HardwareError> {
    if config.get("bios").is_none_or(|bios| bios != "ovmf") {
        return Ok(Vec::new());
    }
    let unsupported = |what: &str| Err(HardwareError::Unsupported(format!("in the lab, OVMF needs {what}")));
    let Some(text) = config.get("efidisk0") else { return unsupported("an `efidisk0`") };
    if !text.split(',').any(|part| part == "efitype=4m") {
        return unsupported("an `efidisk0` with `efitype=4m`");
    }
    let volume = text.split(',').next().unwrap_or_default();
    let (file, format) = (disk(volume)?, format_of(volume));
    let code = format!("if=pflash,unit=0,format=raw,readonly=on,file={CODE}");
    let variables =
        format!("if=pflash,unit=1,id=drive-efidisk0,cache=writeback,format={format},file={}", file.display());
    Ok(["-drive".to_owned(), code, "-drive".to_owned(), variables].into())
}

/// The format of a volume, by its name.
pub(super) fn format_of(volid: &str) -> &'static str {
    if volid.strip_suffix(".raw").is_some() { "raw" } else { "qcow2" }
}

/// Makes the EFI disk of a VM that has never run.
///
/// # Errors
/// Returns an error if OVMF is not installed, or the file cannot be written.
pub async fn new_efi_disk(file: &Path) -> Result<(), HardwareError> {
    let file = file.to_string_lossy();
    tool::run("qemu-img", &["convert", "-q", "-f", "raw", "-O", "qcow2", VARIABLES, &file]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(config: &[(&str, &str)]) -> Result<String, HardwareError> {
        let config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        arguments(&config, |volid| Ok(Path::new("/d").join(volid))).map(|words| words.join(" "))
    }

    #[test]
    fn ovmf_is_flash_beside_the_vms_own_variables() {
        let text =
            line(&[("bios", "ovmf"), ("efidisk0", "s:9/vm-9-disk-1.qcow2,efitype=4m,size=528K")]).unwrap();
        assert!(text.contains(&format!("if=pflash,unit=0,format=raw,readonly=on,file={CODE}")), "{text}");
        assert!(
            text.contains("if=pflash,unit=1,id=drive-efidisk0,cache=writeback,format=qcow2,file=/d/s:9"),
            "{text}"
        );
    }

    #[test]
    fn seabios_needs_nothing() {
        for config in [&[][..], &[("bios", "seabios"), ("efidisk0", "s:9/vm-9-disk-1.qcow2")]] {
            assert_eq!(line(config).unwrap(), "");
        }
    }

    #[test]
    fn another_ovmf_is_an_error() {
        for config in [&[("bios", "ovmf")][..], &[("bios", "ovmf"), ("efidisk0", "s:9/vm-9-disk-1.qcow2")]] {
            let refused = line(config).unwrap_err();
            assert!(matches!(refused, HardwareError::Unsupported(_)), "{refused}");
        }
    }
}
