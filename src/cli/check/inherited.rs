//! Warnings about what machines would inherit from a template, perhaps unintentionally. The caller fills in
//! `what` of the lines.

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

/// Options that keep machines from using the CPUs that their Nodes offer.
fn cpus(pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let vmid = usable.vmid_text();
    let mut wrong = Vec::new();
    if let Some(cpus) = vm.get("affinity").filter(|_| pool.pinning.is_none()) {
        let message = format!(
            "every machine cloned from the template runs on CPUs {cpus} of its host, like the template"
        );
        let help =
            format!("`qm set {vmid} --delete affinity`; `[pool.pinning]` gives machines CPUs of their own");
        wrong.push(Line::doubtful("", message).help(help));
    }
    let limit = vm.get("cpulimit").and_then(|text| text.parse::<f64>().ok()).filter(|limit| *limit > 0.0);
    let most = pool.sizes.iter().map(|size| size.cores).max().unwrap_or(pool.cores);
    if let Some(limit) =
        limit.filter(|limit| *limit < f64::from(most) && !pool.vm_options.contains_key("cpulimit"))
    {
        let message = format!(
            "the template's `cpulimit` is {limit}, but machines have {most} cores: their Nodes offer more CPU than the machines \
            can use"
        );
        let help = format!("`qm set {vmid} --delete cpulimit`, or set `cpulimit` in `vm_options`");
        wrong.push(Line::doubtful("", message).key("cores").help(help));
    }
    if vm.get("kvm").and_then(truth) == Some(false) {
        let message = "the template's `kvm` is off: machines are emulated and slow";
        wrong.push(Line::doubtful("", message).help(format!("`qm set {vmid} --delete kvm`")));
    }
    wrong
}

/// Huge pages of the template that do not divide a machine's memory evenly: such a machine does not start.
fn memory(pool: &Pool, usable: &Usable, vm: &VmConfig) -> Option<Line> {
    let pages = vm.get("hugepages").filter(|_| pool.pinning.is_none())?;
    let mib: i64 = pages.parse().unwrap_or(2);
    let odd = pool.sizes.iter().find(|size| (size.memory >> 20) % mib.max(1) != 0)?;
    let message = format!(
        "the template has `hugepages` of {mib} MiB, and {} MiB of memory is not a multiple of that: a machine of that size cannot start",
        odd.memory >> 20
    );
    let help = format!(
        "make `memory` a multiple of {mib} MiB, or `qm set {} --delete hugepages`",
        usable.vmid_text()
    );
    Some(Line::wrong("", message).key("memory").help(help))
}

/// Host devices that the template uses. Each exists only once on a host.
fn devices(usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let real = |(key, value): &(&str, &str)| match stem(key) {
        "serial" => *value != "socket",
        "parallel" => true,
        _ => false,
    };
    let line = |(key, value): (&str, &str)| {
        let message = format!(
            "the template's `{key}` is the host's `{value}`: only one machine on each host can use this device, and only if the \
            host has it"
        );
        Line::doubtful("", message).help(format!("`qm set {} --delete {key}`", usable.vmid_text()))
    };
    vm.all().filter(real).map(line).collect()
}

/// Static addresses of the template that the pool does not replace.
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
            "the template's `{key}` has a static address, which every machine would share: the daemon removes the address from machines"
        );
        let help = format!(
            "give the device addresses with `[[pool.network]]`, or `qm set {} --delete {key}`",
            usable.vmid_text()
        );
        Line::doubtful("", message).key("network").help(help)
    };
    vm.all().map(|(key, _)| key).filter(beyond).map(line).collect()
}

/// Problems with the administrator's own cloud-init files: they replace other data, or are not on every host.
fn snippets(pve: &Pve, pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let parts = vm.parts("cicustom");
    let mut wrong = Vec::new();
    if parts.get("network").is_some() && pool.gives_addresses() {
        let message = "the template's `cicustom` has network data, with which all machines would have the same address: the daemon removes that part from machines";
        let help = format!("leave `network` out of `qm set {} --cicustom`", usable.vmid_text());
        wrong.push(Line::doubtful("", message).key("addresses").help(help));
    }
    if parts.get("user").is_some() {
        let set = [(pool.user.is_some(), "`user`"), (!pool.ssh_keys.is_empty(), "`ssh_keys`")];
        let set = set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name);
        let void = set.chain(["the machine's name"]).collect::<Vec<_>>().join(", ");
        let message =
            format!("the template's `cicustom` replaces the user data, so the guest does not receive {void}");
        let help = "use `vendor` instead of `user`, or `[pool.cloud_init]` with `method = \"seed\"`";
        wrong.push(Line::doubtful("", message).key("cloud_init").help(help));
    }
    let kept = parts.all().filter(|(key, _)| *key != "network" || !pool.gives_addresses());
    wrong.extend(kept.filter_map(|(_, volume)| elsewhere(pve, pool, usable, "cicustom", volume)));
    wrong
}

/// A problem with a file that a host needs to start a machine: some hosts lack its storage, or may lack the
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
            "the template's `{option}` names {volume}, and there is no storage `{name}` on {}: no machine starts there",
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
        Line::doubtful("", message).help("put the file on every host, or on a storage that they share")
    })
}
