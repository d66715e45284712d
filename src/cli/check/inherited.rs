//! Warnings about settings that machines would inherit from a template, perhaps unintentionally. The caller
//! fills in each line's `what`.

use super::findings::Line;
use super::proxmox_view::Pve;
use machines::Usable;
use proxmox::VmConfig;
use proxmox::property::{stem, truth};
use settings::{CloudInit, Pool};

pub(super) fn unfit(pve: &Pve, pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let mut wrong = cpus(pool, usable, vm);
    wrong.extend(memory(pool, usable, vm));
    wrong.extend(devices(usable, vm));
    if pool.cloud_init == CloudInit::Drive {
        wrong.extend(addresses(pool, usable, vm));
        wrong.extend(snippets(pve, pool, usable, vm));
    }
    if let Some(script) = vm.get("hookscript") {
        wrong.extend(elsewhere(pve, pool, usable, "hookscript", script));
    }
    wrong
}

/// Returns a warning for each template option that keeps machines from using all the CPU that their Nodes
/// offer.
fn cpus(pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let vmid = usable.vmid_text();
    let mut wrong = Vec::new();
    if let Some(cpus) = vm.get("affinity").filter(|_| pool.pinning.is_none()) {
        let message = format!(
            "because of the template's `affinity`, every machine cloned from it runs on CPUs {cpus} of \
                its host"
        );
        let help = format!(
            "run `qm set {vmid} --delete affinity`; to give machines dedicated CPUs, use \
                `[pool.pinning]`"
        );
        wrong.push(Line::doubtful("", message).help(help));
    }
    let limit = vm.get("cpulimit").and_then(|text| text.parse::<f64>().ok()).filter(|limit| *limit > 0.0);
    let most = pool.sizes.iter().map(|size| size.cores).max().unwrap_or(pool.cores);
    if let Some(limit) =
        limit.filter(|limit| *limit < f64::from(most) && !pool.vm_options.contains_key("cpulimit"))
    {
        let message = format!(
            "the template's `cpulimit` is {limit}, but machines have up to {most} cores: their Nodes \
                offer more CPU than the machines can use"
        );
        let help = format!("run `qm set {vmid} --delete cpulimit`, or set `cpulimit` in `vm_options`");
        wrong.push(Line::doubtful("", message).key("cores").help(help));
    }
    if vm.get("kvm").and_then(truth) == Some(false) {
        let message = "the template's `kvm` is off: machines are emulated and slow";
        wrong.push(Line::doubtful("", message).help(format!("`qm set {vmid} --delete kvm`")));
    }
    wrong
}

/// Reports a huge page size in the template if a machine's memory is not a multiple of it. Such a machine
/// does not start.
fn memory(pool: &Pool, usable: &Usable, vm: &VmConfig) -> Option<Line> {
    let pages = vm.get("hugepages").filter(|_| pool.pinning.is_none())?;
    let mib: i64 = pages.parse().unwrap_or(2);
    let odd = pool.sizes.iter().find(|size| (size.memory >> 20) % mib.max(1) != 0)?;
    let message = format!(
        "the template uses huge pages of {mib} MiB, and {} MiB of memory is not a multiple of that \
            size: a machine with this much memory cannot start",
        odd.memory >> 20
    );
    let help = format!(
        "make `memory` a multiple of {mib} MiB, or run `qm set {} --delete hugepages`",
        usable.vmid_text()
    );
    Some(Line::wrong("", message).key("memory").help(help))
}

/// Returns a warning for each host device that the template uses. Only one machine on each host can use such
/// a device.
fn devices(usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let real = |(key, value): &(&str, &str)| match stem(key) {
        "serial" => *value != "socket",
        "parallel" => true,
        _ => false,
    };
    let line = |(key, value): (&str, &str)| {
        let message = format!(
            "the template's `{key}` uses the host's device `{value}`: only one machine on each host can \
                use this device, and only if the host has it"
        );
        Line::doubtful("", message).help(format!("`qm set {} --delete {key}`", usable.vmid_text()))
    };
    vm.all().filter(real).map(line).collect()
}

/// Returns a warning for each static address of the template that the pool does not replace.
fn addresses(pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let fixed = |key: &str| {
        let parts = vm.parts(key);
        let is_fixed = |name: &str| parts.get(name).is_some_and(|ip| !["dhcp", "auto"].contains(&ip));
        is_fixed("ip") || is_fixed("ip6")
    };
    let beyond = |key: &&str| {
        let number = key.strip_prefix("ipconfig").and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| number >= pool.devices.len()) && fixed(key)
    };
    let line = |key: &str| {
        let message = format!(
            "the template's `{key}` has a static address, which every machine would share, so the \
                daemon removes the address from machines"
        );
        let help = format!(
            "set the device's addresses in `[[pool.network]]`, or run `qm set {} --delete {key}`",
            usable.vmid_text()
        );
        Line::doubtful("", message).key("network").help(help)
    };
    vm.all().map(|(key, _)| key).filter(beyond).map(line).collect()
}

/// Returns problems with the administrator's own cloud-init files: a file replaces other data, or does not
/// exist on every host.
fn snippets(pve: &Pve, pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let parts = vm.parts("cicustom");
    let mut wrong = Vec::new();
    if parts.get("network").is_some() && pool.gives_addresses() {
        let message = "the template's `cicustom` contains network data with which all machines would \
            have the same address, so the daemon removes the network data from machines";
        let help = format!(
            "set the template's `cicustom` again without `network`: `qm set {} \
            --cicustom …`",
            usable.vmid_text()
        );
        wrong.push(Line::doubtful("", message).key("addresses").help(help));
    }
    if parts.get("user").is_some() {
        let set = [(pool.user.is_some(), "`user`"), (!pool.ssh_keys.is_empty(), "`ssh_keys`")];
        let set = set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name);
        let void = set.chain(["the machine's name"]).collect::<Vec<_>>().join(", ");
        let message =
            format!("the template's `cicustom` replaces the user data, so the guest does not receive {void}");
        let help = "in `cicustom`, use `vendor` instead of `user`; or set `method = \"seed\"` in \
            `[pool.cloud_init]`";
        wrong.push(Line::doubtful("", message).key("cloud_init").help(help));
    }
    let kept = parts.all().filter(|(key, _)| *key != "network" || !pool.gives_addresses());
    wrong.extend(kept.filter_map(|(_, volume)| elsewhere(pve, pool, usable, "cicustom", volume)));
    wrong
}

/// Reports a file that a host needs to start a machine, if some hosts lack the file's storage or may lack the
/// file.
fn elsewhere(pve: &Pve, pool: &Pool, usable: &Usable, option: &str, volume: &str) -> Option<Line> {
    let (name, file) = volume.split_once(':')?;
    let storage = pve.storages.get(name);
    let hosts: Vec<&str> = pve
        .allowed(pool)
        .filter(|host| usable.reach.contains(*host))
        .filter(|host| storage.is_some_and(|storage| !storage.is_on(host)))
        .map(String::as_str)
        .collect();
    if !hosts.is_empty() {
        let message = format!(
            "the template's `{option}` names {volume}, but storage `{name}` is not available on {}: no \
                machine starts there",
            hosts.join(", ")
        );
        return Some(
            Line::wrong("", message)
                .key("hosts")
                .help("leave the host out of `hosts`, or make the storage available there"),
        );
    }
    let several = usable.reach.len() > 1 && storage.is_none_or(|storage| !storage.shared);
    several.then(|| {
        let message = format!(
            "the template's `{option}` names {volume}: no machine starts on a host whose storage `{name}` lacks {file}"
        );
        Line::doubtful("", message).help("put the file on every host, or on a shared storage")
    })
}
