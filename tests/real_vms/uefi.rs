//! Checks what a machine keeps in its EFI variables and its TPM throughout the test in `join`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::scene::{Scene, VMID};
use crate::stage::{EFI_DISK, TEMPLATE, TPM_STATE};

/// A variable that the guest writes.
const VARIABLE: &str = "/sys/firmware/efi/efivars/Kept-6a2b9f0c-51f4-4b7e-9f53-0c6f6d1a2e77";

/// The contents of the template's files.
pub fn files(scene: &Scene) -> Vec<Vec<u8>> {
    let files = [EFI_DISK, TPM_STATE].map(|name| scene.stage.folder.path().join(name));
    files.map(|file| std::fs::read(file).unwrap()).into()
}

/// Asserts that the EFI disk is a linked clone, and the TPM state a copy.
pub fn is_a_clone_of_its_template(scene: &Scene, config: &BTreeMap<String, String>) {
    for (key, own) in [("bios", "ovmf"), ("machine", "q35")] {
        assert_eq!(config[key], own);
    }
    let linked = format!("shared:{TEMPLATE}/base-{TEMPLATE}-{EFI_DISK}/{VMID}/vm-{VMID}-disk-");
    assert!(
        config["efidisk0"].starts_with(&linked) && config["efidisk0"].contains("efitype=4m"),
        "{config:?}"
    );
    let copied = format!("shared:{VMID}/vm-{VMID}-disk-");
    assert!(
        config["tpmstate0"].starts_with(&copied) && config["tpmstate0"].contains("version=v2.0"),
        "{config:?}"
    );
    for key in ["efidisk0", "tpmstate0"] {
        assert!(scene.stage.hardware.has_disk(config[key].split(',').next().unwrap()), "{config:?}");
    }
    // The machine is suspended to disk, so its TPM process has ended.
    assert_eq!(processes(), Vec::<PathBuf>::new());
}

/// Returns the boot measurement from the TPM.
///
/// The machine was suspended after that boot. If its TPM had started without the saved state, the measurement
/// would be lost.
pub async fn was_measured_and_woke_with_it(scene: &Scene) -> String {
    assert_eq!(processes().len(), 1, "{:?}", processes());
    let script = "cat /sys/firmware/efi/fw_platform_size /sys/class/tpm/tpm0/tpm_version_major && test -c /dev/tpm0 && \
                  cat /sys/class/tpm/tpm0/pcr-sha256/4";
    let said = scene.stage.run(VMID, script).await;
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines[..2], ["64", "2"], "{said:?}");
    assert!(
        lines[2].len() == 64 && !lines[2].trim_matches('0').is_empty(),
        "the boot loader was measured: {said:?}"
    );
    let written = scene.stage.run(VMID, &format!("printf '\\007\\000\\000\\000kept' >{VARIABLE}")).await;
    assert_eq!(written.exit_code, Some(0), "{written:?}");
    lines[2].to_owned()
}

/// Asserts that the variable and the measurement are unchanged after another boot of the same machine.
pub async fn kept_its_variables(scene: &Scene, measured: &str) {
    let script = format!("tail -c 4 {VARIABLE}; echo; cat /sys/class/tpm/tpm0/pcr-sha256/4");
    let said = scene.stage.run(VMID, &script).await.stdout;
    assert_eq!(said.lines().collect::<Vec<_>>(), ["kept", measured]);
}

/// Asserts that neither a process nor a file is left, and that the template's files are unchanged.
pub fn left_nothing(scene: &Scene, template: &[Vec<u8>]) {
    assert_eq!(processes(), Vec::<PathBuf>::new());
    let images = std::fs::read_dir(scene.stage.folder.path().join("vms/images")).unwrap();
    let names: Vec<String> =
        images.map(|one| one.unwrap().file_name().to_string_lossy().into_owned()).collect();
    let own = format!("vm-{VMID}-");
    assert!(!names.iter().any(|name| name.starts_with(&own)), "{names:?}");
    assert!(files(scene) == template, "a template is only read");
}

/// The TPM processes in this namespace.
fn processes() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|one| one.path());
    all.filter(|path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "swtpm"))
        .collect()
}
