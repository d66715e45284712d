//! The QEMU command line of a VM, as Proxmox VE writes it for the machine types `pc` and `q35`. The
//! additional bridges of `q35` are left out.
//!
//! The command line differs from Proxmox VE's in five ways. There is no `-id`, which only Proxmox VE's own
//! QEMU has. There is no `-daemonize`, because the process is a child of the lab. There is no `-no-shutdown`,
//! because with it, nothing would end a QEMU whose guest has powered itself off. The processor is the best
//! available one, because the configured model may need hardware that is missing. Finally, an emulated
//! machine with CPU hotplug presents itself as VMware. Linux accepts hotplugged processors only under a
//! hypervisor that it knows (`acpi_is_processor_usable`), and it does not know QEMU's emulation.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    HardwareError, firmware,
    hotplug::{self, Features},
    network::{interfaces, tap},
    tpm,
};

/// How a guest's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// By the processor.
    Kvm,
    /// By emulation.
    Tcg,
}

impl Accelerator {
    /// `-accel` and `-cpu`.
    pub fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    /// The device name of this accelerator's processor model.
    pub(super) fn processor(self) -> &'static str {
        match self {
            Self::Kvm => "host-x86_64-cpu",
            Self::Tcg => "max-x86_64-cpu",
        }
    }
}

/// Returns QEMU's arguments, without the program's name.
///
/// # Errors
/// Returns an error if a volume is missing, or a device is of an unsupported kind.
pub fn arguments(
    vmid: u32,
    config: &BTreeMap<String, String>,
    directory: &Path,
    seed: &Path,
    accelerator: Accelerator,
    disk: impl Fn(&str) -> Result<PathBuf, HardwareError>,
) -> Result<Vec<String>, HardwareError> {
    let mut line: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| line.extend(words.iter().map(|word| (*word).to_owned()));
    let get = |key: &str| config.get(key).map(String::as_str);
    let number = |key: &str| get(key).and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    let (cores, sockets) = (number("cores"), number("sockets"));
    let memory = get("memory").unwrap_or("512").trim_start_matches("current=");
    let features = Features::of(get("hotplug"));
    let name = get("name").map_or_else(|| format!("VM {vmid}"), String::from);
    let q35 = firmware::is_q35(get("machine"));
    let (kind, bus) = if q35 { ("q35", "pcie.0") } else { ("pc", "pci.0") };
    let at = |file: &str| directory.join(file).to_string_lossy().into_owned();

    add(&["-name", &format!("{name},debug-threads=on")]);
    add(&["-nodefaults", "-no-user-config", "-vga", "none", "-display", "none", "-machine"]);
    if features.cpu && accelerator == Accelerator::Tcg {
        let [how, accel, model, name] = accelerator.arguments();
        let machine = format!("type={kind},vmport=on");
        add(&[&machine, how, accel, model, &format!("{name},-hypervisor")]);
        add(&["-smbios", &format!("type=1,serial=VMware-{vmid}")]);
    } else {
        add(&[&format!("type={kind}")]);
        add(&accelerator.arguments());
    }
    let vcpus = get("vcpus").and_then(|text| text.parse().ok()).unwrap_or(cores * sockets);
    let plugged = if features.cpu { 1 } else { vcpus };
    add(&["-smp", &format!("{plugged},sockets={sockets},cores={cores},maxcpus={}", cores * sockets)]);
    for number in plugged + 1..=vcpus {
        add(&["-device", &hotplug::cpu(accelerator, number, cores)]);
    }
    if features.memory {
        let size = memory.parse().unwrap_or(hotplug::FIRST);
        for word in hotplug::memory(size, cores * sockets) {
            add(&[&word]);
        }
    } else {
        add(&["-m", memory]);
    }
    if let Some(smbios) = get("smbios1") {
        // Fields other than the uuid are base64-encoded. The lab sets none of them.
        let uuid = smbios.split(',').find(|part| part.starts_with("uuid=")).unwrap_or_default();
        add(&["-smbios", &format!("type=1,{uuid}")]);
    }
    if let Some(generation) = get("vmgenid").filter(|text| *text != "0") {
        add(&["-device", &format!("vmgenid,guid={generation}")]);
    }
    add(&["-chardev", &format!("socket,id=qmp,path={},server=on,wait=off", at("qmp"))]);
    add(&["-mon", "chardev=qmp,mode=control"]);
    add(&["-chardev", &format!("file,id=serial0,path={}", at("console"))]);
    add(&["-device", "isa-serial,chardev=serial0"]);
    if get("agent").is_some_and(|text| text.split(',').any(|part| part == "1" || part == "enabled=1")) {
        add(&["-chardev", &format!("socket,path={},server=on,wait=off,id=qga0", at("qga"))]);
        add(&["-device", &format!("virtio-serial,id=qga0,bus={bus},addr=0x8")]);
        add(&["-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0"]);
    }
    line.extend(firmware::arguments(config, &disk)?);
    line.extend(tpm::arguments(config, directory));
    for (key, text) in config {
        drive(&mut line, key, text, q35, seed, &disk)?;
    }
    let mut add = |words: &[&str]| line.extend(words.iter().map(|word| (*word).to_owned()));
    for (key, model, mac, _) in interfaces(config) {
        if model != "virtio" {
            return Err(HardwareError::Unsupported(format!("network card model {model} is not supported")));
        }
        let tap = tap(vmid, &key);
        add(&["-netdev", &format!("type=tap,id={key},ifname={tap},script=no,downscript=no")]);
        add(&["-device", &format!("virtio-net-pci,mac={mac},netdev={key},id={key}")]);
    }
    Ok(line)
}

fn drive(
    line: &mut Vec<String>,
    key: &str,
    text: &str,
    q35: bool,
    seed: &Path,
    disk: &impl Fn(&str) -> Result<PathBuf, HardwareError>,
) -> Result<(), HardwareError> {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let volume = text.split(',').next().unwrap_or_default();
    let Ok(number) = key[stem.len()..].parse::<u32>() else { return Ok(()) };
    if !["scsi", "virtio", "ide", "sata"].contains(&stem) || !volume.contains(':') {
        return Ok(());
    }
    let cloud_init = volume.contains("cloudinit");
    let is_cd = cloud_init || text.split(',').any(|part| part == "media=cdrom");
    let mut add = |words: &[&str]| line.extend(words.iter().map(|word| (*word).to_owned()));
    let (file, how) = if is_cd {
        let file = if cloud_init { seed.to_path_buf() } else { disk(volume)? };
        (file, "format=raw,media=cdrom,readonly=on")
    } else {
        (disk(volume)?, "format=qcow2,cache=unsafe,discard=unmap,detect-zeroes=unmap")
    };
    add(&["-drive", &format!("file={},if=none,id=drive-{key},{how}", file.display())]);
    match stem {
        "scsi" => {
            let kind = if is_cd { "scsi-cd" } else { "scsi-hd" };
            add(&["-device", &format!("virtio-scsi-pci,id=virtioscsi{number}")]);
            add(&["-device", &format!("{kind},bus=virtioscsi{number}.0,drive=drive-{key},id={key}")]);
        }
        "virtio" => add(&["-device", &format!("virtio-blk-pci,drive=drive-{key},id={key}")]),
        "ide" => {
            let kind = if is_cd { "ide-cd" } else { "ide-hd" };
            // Each IDE port of `q35` takes only one drive. `QemuServer.pm` assigns the even-numbered drives
            // to the first ports and the odd-numbered drives to the ports after them.
            let (bus, unit) = if q35 { (number / 2 + 2 * (number % 2), 0) } else { (number / 2, number % 2) };
            add(&["-device", &format!("{kind},bus=ide.{bus},unit={unit},drive=drive-{key},id={key}")]);
        }
        _ => return Err(HardwareError::Unsupported(format!("{stem} drives are not supported"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(config: &[(&str, &str)]) -> Result<String, HardwareError> {
        let config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let disk = |volid: &str| match volid {
            "shared:9101/vm-9101-disk-0.qcow2" => Ok(PathBuf::from("/d/disk")),
            "local:iso/own.iso" => Ok(PathBuf::from("/d/own.iso")),
            other => Err(HardwareError::NoVolume(other.to_owned())),
        };
        let (directory, seed) = (Path::new("/d/9101"), Path::new("/d/9101/seed.iso"));
        arguments(9101, &config, directory, seed, Accelerator::Tcg, disk).map(|words| words.join(" "))
    }

    #[test]
    fn a_machine_has_what_its_configuration_says() {
        let text = line(&[
            ("name", "w-1"),
            ("cores", "2"),
            ("memory", "2048"),
            ("smbios1", "uuid=aa-bb,serial=eA=="),
            ("vmgenid", "cc-dd"),
            ("agent", "enabled=1"),
            ("scsi0", "shared:9101/vm-9101-disk-0.qcow2,size=4G"),
            ("scsihw", "virtio-scsi-single"),
            ("ide2", "shared:9101/vm-9101-cloudinit.qcow2,media=cdrom"),
            ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
        ])
        .unwrap();
        for part in [
            "-smp 2,sockets=1,cores=2,maxcpus=2",
            "-m 2048",
            "-smbios type=1,uuid=aa-bb",
            "vmgenid,guid=cc-dd",
            "path=/d/9101/qga,server=on",
            "name=org.qemu.guest_agent.0",
            "file=/d/disk,if=none,id=drive-scsi0,format=qcow2",
            "scsi-hd,bus=virtioscsi0.0,drive=drive-scsi0",
            "file=/d/9101/seed.iso,if=none,id=drive-ide2,format=raw,media=cdrom",
            "ide-cd,bus=ide.1,unit=0",
            "ifname=tap9101i0,script=no",
            "virtio-net-pci,mac=BC:24:11:00:00:01",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("serial=eA"), "{text}");
    }

    #[test]
    fn what_may_grow_begins_with_one_processor_and_one_gib_and_is_given_the_rest() {
        let own = [("cores", "4"), ("vcpus", "2"), ("memory", "2048"), ("numa", "1")];
        let text = line(&[own.as_slice(), &[("hotplug", "network,disk,usb,cpu,memory")]].concat()).unwrap();
        for part in [
            "-smp 1,sockets=1,cores=4,maxcpus=4",
            "-device max-x86_64-cpu,id=cpu2,socket-id=0,core-id=1,thread-id=0",
            "-machine type=pc,vmport=on -accel tcg,thread=multi -cpu max,-hypervisor",
            "-smbios type=1,serial=VMware-9101",
            "-m size=1024,slots=255,maxmem=",
            "-numa node,nodeid=0,cpus=0-3,memdev=ram-node0",
            "-object memory-backend-ram,id=mem-dimm1,size=512M -device pc-dimm,id=dimm1,memdev=mem-dimm1,node=0",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("cpu3") && !text.contains("dimm2"), "{text}");
        let fixed = line(&own).unwrap();
        assert!(fixed.contains("-smp 2,sockets=1,cores=4,maxcpus=4 -m 2048"), "{fixed}");
    }

    #[test]
    fn an_uploaded_image_is_a_disc() {
        let text = line(&[("ide2", "local:iso/own.iso,media=cdrom,size=1M")]).unwrap();
        assert!(text.contains("file=/d/own.iso,if=none,id=drive-ide2,format=raw,media=cdrom"), "{text}");
        assert!(text.contains("ide-cd,bus=ide.1,unit=0"), "{text}");
    }

    #[test]
    fn a_q35_has_one_drive_a_port() {
        let disc = "local:iso/own.iso,media=cdrom";
        let q35 = line(&[("machine", "pc-q35-9.2"), ("agent", "1"), ("ide2", disc), ("ide3", disc)]).unwrap();
        for part in [
            "type=q35 ",
            "id=qga0,bus=pcie.0",
            "bus=ide.1,unit=0,drive=drive-ide2",
            "bus=ide.3,unit=0,drive=drive-ide3",
        ] {
            assert!(q35.contains(part), "{part} is not in {q35}");
        }
        let pc = line(&[("ide3", disc)]).unwrap();
        assert!(pc.contains("type=pc ") && pc.contains("bus=ide.1,unit=1,drive=drive-ide3"), "{pc}");
    }

    #[test]
    fn without_an_agent_there_is_no_port_for_it() {
        assert!(!line(&[("agent", "0")]).unwrap().contains("guest_agent"));
    }

    #[test]
    fn what_is_missing_or_unknown_is_an_error() {
        let missing = line(&[("scsi0", "shared:1/gone.qcow2,size=4G")]).unwrap_err();
        assert!(matches!(missing, HardwareError::NoVolume(_)), "{missing}");
        let card = line(&[("net0", "e1000=BC:24:11:00:00:01,bridge=vmbr0")]).unwrap_err();
        assert!(matches!(card, HardwareError::Unsupported(_)), "{card}");
    }
}
