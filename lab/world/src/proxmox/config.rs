//! Reading and writing a VM's configuration: privileges for each key, locks, digests, pending changes.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    access::Identity,
    answer::{Answer, Refusal},
    hotplug::{self, Taken},
    params::scalar,
    rights,
    state::{State, Volume},
    vm::{Pending, Vm, property, typed},
};

/// How long a config change waits for the VM's lock.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Keys that only `root@pam` itself may set, not one of its tokens.
pub(super) const ROOT_ONLY: &[&str] = &[
    "affinity",
    "args",
    "hookscript",
    "hugepages",
    "keephugepages",
    "arch",
    "ivshmem",
    "spice_enhancements",
    "vmgenid",
    "amd-sev",
    "lock",
];

/// Keys whose changes apply to a running VM immediately.
const LIVE: &[&str] = &[
    "name",
    "description",
    "tags",
    "onboot",
    "protection",
    "startup",
    "hookscript",
    "nameserver",
    "searchdomain",
    "ciuser",
    "cipassword",
    "citype",
    "ciupgrade",
    "sshkeys",
    "cicustom",
    "template",
    "lock",
];

/// Parameters of the call that are not config keys.
const ORDERS: &[&str] =
    &["digest", "delete", "revert", "force", "skiplock", "background_delay", "node", "vmid"];

impl Pve {
    pub(super) fn config(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Audit"])?;
        let vm = state.vm_on(call.node(), call.vmid())?;
        let mut config = vm.config.clone();
        if !call.params.flag("current") {
            for (key, pending) in &vm.pending {
                match pending {
                    Pending::Set(value) => config.insert(key.clone(), value.clone()),
                    Pending::Delete => config.remove(key),
                };
            }
        }
        let mut answer: serde_json::Map<String, Value> = config
            .into_iter()
            .map(|(key, value)| {
                let shown = shown(&key, &value);
                (key, shown)
            })
            .collect();
        answer.insert("digest".into(), vm.digest().into());
        Ok(Value::Object(answer).into())
    }

    pub(super) fn pending(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Audit"])?;
        let vm = state.vm_on(call.node(), call.vmid())?;
        let keys: std::collections::BTreeSet<&String> = vm.config.keys().chain(vm.pending.keys()).collect();
        let mut rows: Vec<Value> = Vec::new();
        for key in keys {
            let mut row = json!({ "key": key });
            if let Some(value) = vm.config.get(key) {
                row["value"] = shown(key, value);
            }
            match vm.pending.get(key) {
                Some(Pending::Set(value)) => row["pending"] = shown(key, value),
                Some(Pending::Delete) => row["delete"] = 1.into(),
                None => {}
            }
            rows.push(row);
        }
        rows.push(json!({ "key": "digest", "value": vm.digest() }));
        Ok(Value::Array(rows).into())
    }

    pub(super) async fn change_config(&self, call: &ApiCall, as_task: bool) -> Result<Answer, Refusal> {
        let (node, vmid) = (call.node().to_owned(), call.vmid());
        let change = {
            let state = self.state();
            let change = Change::read(call);
            change.check(&state, &call.who, &node, vmid)?;
            change
        };
        let digest = call.params.text("digest");
        let hangs = self.state().loss_noticed_in();
        if let Some(time) = hangs {
            tokio::time::sleep(time).await;
        }
        if !as_task {
            let _lock = self.lock_vm(&node, vmid, LOCK_WAIT).await?;
            self.plug(&node, vmid, &change.set).await?;
            let mut state = self.state();
            change.check_values_there(&state, &call.who, &node, vmid)?;
            let pid = state.new_pid();
            apply(&mut state, &node, vmid, &change, digest.as_deref(), pid)?;
            return Ok(Value::Null.into());
        }
        let (pve, who) = (self.clone(), call.who.clone());
        let upid =
            self.spawn_worker(&node.clone(), "qmconfig", &vmid.to_string(), &call.who, |worker| async move {
                let _lock = pve.lock_vm(&node, vmid, LOCK_WAIT).await?;
                let time = {
                    let mut state = pve.state();
                    let time = state.timings.config;
                    state.vary(time)
                };
                worker.work(time).await?;
                worker.log(format!("update VM {vmid}:{}", change.words));
                pve.plug(&node, vmid, &change.set).await?;
                let mut state = pve.state();
                change.check_values_there(&state, &who, &node, vmid)?;
                apply(&mut state, &node, vmid, &change, digest.as_deref(), worker.upid.pid)
            });
        let Some(delay) = call.params.number("background_delay") else { return Ok(Value::from(upid).into()) };
        for _ in 0..delay * 10 {
            let exit = self.state().tasks.get(&upid).and_then(|task| task.exit.clone());
            match exit.as_deref() {
                Some("OK") => return Ok(Value::Null.into()),
                Some(text) => {
                    return Err(Refusal::failed(format!("failed to update VM {}: {text}", call.vmid())));
                }
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Ok(Value::from(upid).into())
    }
}

/// A configuration value in the format of the API's answers.
fn shown(key: &str, value: &str) -> Value {
    if key == "cipassword" { "**********".into() } else { typed(key, value) }
}

/// A description as the config file stores it: without trailing white space.
pub(super) fn stored_description(text: &str) -> String {
    text.trim_end().to_owned()
}

/// Tags as they are stored: lower case, sorted, without duplicates.
pub(super) fn stored_tags(text: &str) -> String {
    let tags: std::collections::BTreeSet<String> =
        text.split([',', ';', ' ']).filter(|tag| !tag.is_empty()).map(str::to_lowercase).collect();
    let joined = tags.into_iter().collect::<Vec<_>>().join(";");
    if joined.is_empty() { " ".to_owned() } else { joined }
}

#[derive(Clone, Debug)]
struct Change {
    set: BTreeMap<String, String>,
    delete: Vec<String>,
    revert: Vec<String>,
    digest: Option<String>,
    /// The change as it is written to the task's log.
    words: String,
    skips_lock: bool,
}

impl Change {
    fn read(call: &ApiCall) -> Self {
        let keys = call.params.0.iter().filter(|(key, _)| !ORDERS.contains(&key.as_str()));
        let set = keys
            .map(|(key, value)| {
                let text = match value {
                    Value::Array(items) => items.iter().filter_map(scalar).collect::<Vec<_>>().join(";"),
                    value => scalar(value).unwrap_or_default(),
                };
                let text = match key.as_str() {
                    "description" => stored_description(&text),
                    "tags" => stored_tags(&text),
                    _ if text.is_empty() => " ".to_owned(),
                    _ => text,
                };
                (key.clone(), text)
            })
            .collect();
        let (delete, revert) = (call.params.words("delete"), call.params.words("revert"));
        let logged = call
            .params
            .0
            .iter()
            .filter(|(key, _)| !["digest", "background_delay", "node", "vmid"].contains(&key.as_str()));
        let words = logged.map(|(key, value)| match key.as_str() {
            "cipassword" => " -cipassword <hidden>".to_owned(),
            _ => format!(" -{key} {}", scalar(value).unwrap_or_default()),
        });
        let words = words.collect();
        let skips_lock = call.params.flag("skiplock");
        Self { set, delete, revert, digest: call.params.text("digest"), words, skips_lock }
    }

    /// Performs the checks that refuse a call immediately, before a task begins.
    fn check(&self, state: &State, who: &Identity, node: &str, vmid: u32) -> Result<(), Refusal> {
        let path = format!("/vms/{vmid}");
        if self.skips_lock {
            return Err(Refusal::parameter("skiplock", "Only root may use this option."));
        }
        self.check_orders("delete", &self.delete)?;
        self.check_orders("revert", &self.revert)?;
        if let Some(script) = self.set.get("hookscript") {
            return Err(Refusal::parameter("hookscript", format!("script '{script}' does not exist\n")));
        }
        if self.set.is_empty() && self.delete.is_empty() && self.revert.is_empty() {
            return Err(Refusal::failed("no options specified"));
        }
        for key in self.set.keys().chain(&self.delete).chain(&self.revert) {
            if ROOT_ONLY.contains(&key.as_str()) {
                return Err(Refusal::failed(format!("only root can set '{key}' config")));
            }
            match needed(key) {
                Needed::All(privileges) => {
                    for privilege in privileges {
                        who.need(state, &path, &[privilege])?;
                    }
                }
                Needed::Any(privileges) => {
                    who.need(state, &path, privileges)?;
                }
            }
            if key == "startup" {
                who.need(state, "/", &["Sys.Modify"])?;
            }
        }
        for (key, value) in &self.set {
            if is_drive(key) {
                rights::storage(state, who, value)?;
            }
            if key == "vmstatestorage" {
                who.need(state, &format!("/storage/{value}"), &["Datastore.AllocateSpace"])?;
            }
        }
        for (key, value) in &self.set {
            rights::network(state, who, key, value)?;
        }
        let vm = state.vm_on(node, vmid)?;
        vm.check_lock()?;
        self.check_digest(vm)?;
        if let Some(cpu) = self.set.get("cpu") {
            rights::cpu_model(state, who, cpu, vm.get("cpu"))?;
        }
        self.check_values(vm)
    }

    /// Performs the checks that are part of the task, because they depend on the current config. The caller
    /// needs the privileges for both the old and the new value.
    fn check_values_there(
        &self,
        state: &State,
        who: &Identity,
        node: &str,
        vmid: u32,
    ) -> Result<(), Refusal> {
        let vm = state.vm_on(node, vmid)?;
        let path = format!("/vms/{vmid}");
        for key in self.delete.iter().filter(|key| is_drive(key) && vm.get(key).is_some()) {
            if vm.get("protection") == Some("1") {
                let text = format!("can't remove drive '{key}' - protection mode enabled");
                return Err(Refusal::failed(text));
            }
        }
        let set = self.set.iter().map(|(key, value)| (key, Some(value.as_str())));
        for (key, new) in self.delete.iter().map(|key| (key, None)).chain(set) {
            let old = vm.get(key);
            let device = ["usb", "hostpci", "rng"].iter().any(|kind| rights::numbered(key, kind));
            for value in old.into_iter().chain(new) {
                if is_drive(key) {
                    rights::drive(state, who, vmid, value)?;
                } else if device {
                    rights::mapping(state, who, key, value)?;
                    who.need(state, &path, &["VM.Config.HWType"])?;
                } else if rights::numbered(key, "virtiofs") {
                    who.need(state, &path, &["VM.Config.Disk"])?;
                    rights::mapping(state, who, key, value)?;
                } else if rights::numbered(key, "serial") && value == "socket" {
                    who.need(state, &path, &["VM.Config.HWType"])?;
                } else if rights::numbered(key, "serial") {
                    return Err(Refusal::failed(format!(
                        "only root can modify '{key}' config for real devices"
                    )));
                } else if rights::numbered(key, "net") {
                    rights::network(state, who, key, value)?;
                }
            }
            if key == "tags" {
                rights::tags(state, who, vmid, old.unwrap_or_default(), new.unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// Refuses values that have a valid format but are invalid, for example because they conflict with the
    /// rest of the configuration.
    fn check_values(&self, vm: &Vm) -> Result<(), Refusal> {
        let number = |key: &str| self.set.get(key).and_then(|text| text.parse::<u64>().ok());
        let memory = number("memory").unwrap_or(vm.memory() >> 20);
        if number("balloon").is_some_and(|balloon| balloon > memory) {
            return Err(Refusal::failed("balloon value too large (must be smaller than assigned memory)"));
        }
        if let Some(keys) = self.set.get("sshkeys") {
            let keys = percent_encoding::percent_decode_str(keys).decode_utf8_lossy().into_owned();
            let key = |line: &str| ["ssh-", "ecdsa-", "sk-"].iter().any(|kind| line.starts_with(kind));
            if !keys.lines().map(str::trim).filter(|line| !line.is_empty()).all(key) {
                return Err(Refusal::failed("SSH public key validation error"));
            }
        }
        let order = self.set.get("boot").and_then(|boot| boot.strip_prefix("order="));
        for device in order.into_iter().flat_map(|order| order.split(';')) {
            if !vm.config.contains_key(device) && !self.set.contains_key(device) {
                return Err(Refusal::failed(format!("invalid bootorder: device '{device}' does not exist'")));
            }
        }
        Ok(())
    }

    /// Checks that the keys to delete or revert are known, and are not set in the same call.
    fn check_orders(&self, order: &str, keys: &[String]) -> Result<(), Refusal> {
        for key in keys {
            if self.set.contains_key(key) {
                let text = format!("you can't use '-{key}' and -{order} {key}' at the same time");
                return Err(Refusal::parameter(order, text));
            }
            let known = key.starts_with("unused") || super::schema::is_config_key(key);
            if !known {
                return Err(Refusal::parameter(order, format!("unknown option '{key}'")));
            }
        }
        Ok(())
    }

    fn check_digest(&self, vm: &Vm) -> Result<(), Refusal> {
        match &self.digest {
            Some(digest) if *digest != vm.digest() => {
                Err(Refusal::failed("checksum mismatch (file change by other user?)"))
            }
            _ => Ok(()),
        }
    }
}

/// The privileges that a change to a key needs: all of these, or any one of them.
pub(super) enum Needed {
    All(&'static [&'static str]),
    Any(&'static [&'static str]),
}

/// Returns the privileges that setting or removing a key needs (`check_vm_modify_config_perm`). The
/// privileges for drives and devices are checked in the task.
pub(super) fn needed(key: &str) -> Needed {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    match stem {
        _ if is_drive(key) => Needed::All(&[]),
        "unused" | "serial" | "usb" | "hostpci" | "virtiofs" if stem != key => Needed::All(&[]),
        "tags" => Needed::All(&[]),
        "cores" | "sockets" | "vcpus" | "cpulimit" | "cpuunits" | "cpu" | "numa" | "smp" => {
            Needed::All(&["VM.Config.CPU"])
        }
        "memory" | "balloon" | "shares" | "allow-ksm" => Needed::All(&["VM.Config.Memory"]),
        "net" => Needed::All(&["VM.Config.Network"]),
        "ipconfig" | "nameserver" | "searchdomain" | "ciuser" | "cipassword" | "citype" | "ciupgrade"
        | "sshkeys" | "cicustom" => Needed::Any(&["VM.Config.Cloudinit", "VM.Config.Network"]),
        "boot" | "bootdisk" | "vmstatestorage" => Needed::All(&["VM.Config.Disk"]),
        "scsihw" | "vga" | "machine" | "smbios" | "watchdog" | "rng" | "hotplug" | "tablet" | "acpi"
        | "kvm" | "audio" => Needed::All(&["VM.Config.HWType"]),
        "freeze" => Needed::All(&["VM.PowerMgmt"]),
        _ => Needed::All(&["VM.Config.Options"]),
    }
}

fn is_drive(key: &str) -> bool {
    ["ide", "sata", "scsi", "virtio", "efidisk", "tpmstate"].iter().any(|bus| rights::numbered(key, bus))
}

fn apply(
    state: &mut State,
    node: &str,
    vmid: u32,
    change: &Change,
    digest: Option<&str>,
    pid: u32,
) -> Result<(), Refusal> {
    let vm = state.vm_on(node, vmid)?;
    vm.check_lock()?;
    if digest.is_some() {
        change.check_digest(vm)?;
    }
    state.need_writable(vmid, node, pid)?;
    let running = state.vm_on(node, vmid)?.machine.is_some();
    for (key, value) in &change.set {
        let value = prepared(state, node, vmid, key, value)?;
        if !running {
            detach(state, node, vmid, key, Some(&value))?;
        }
        let vm = state.vm_on_mut(node, vmid)?;
        vm.pending.remove(key);
        let taken = if running { hotplug::take(vm, key, &value) } else { Ok(Taken::Later) };
        // A value that could not be hotplugged is reported as an error, but stays pending.
        let taken = taken.inspect_err(|_| {
            vm.pending.insert(key.clone(), Pending::Set(value.clone()));
        })?;
        if let Taken::Now(value) = taken {
            vm.config.insert(key.clone(), value);
            hotplug::tell_guest(vm);
            continue;
        }
        let live = !running || LIVE.contains(&key.as_str()) || key.starts_with("ipconfig");
        if key == "description" && value.is_empty() {
            vm.config.remove(key);
        } else if live {
            let is_cdrom =
                is_drive(key) && property(&value, "media") == Some("cdrom") && !rights::is_cloud_init(&value);
            vm.config.insert(key.clone(), value);
            // A new CD drive is added to the boot order.
            if let Some(boot) = vm.config.get_mut("boot").filter(|_| is_cdrom)
                && let Some(order) = boot.strip_prefix("order=")
                && order.split(';').all(|device| device != key)
            {
                *boot = format!("{boot};{key}");
            }
        } else if vm.config.get(key) != Some(&value) {
            vm.pending.insert(key.clone(), Pending::Set(value));
        }
    }
    for key in &change.delete {
        if !running {
            detach(state, node, vmid, key, None)?;
        }
        let vm = state.vm_on_mut(node, vmid)?;
        let live = !running || LIVE.contains(&key.as_str()) || key.starts_with("ipconfig");
        if live {
            vm.config.remove(key);
            vm.pending.remove(key);
        } else if vm.config.contains_key(key) {
            vm.pending.insert(key.clone(), Pending::Delete);
        }
    }
    let vm = state.vm_on_mut(node, vmid)?;
    for key in &change.revert {
        vm.pending.remove(key);
    }
    Ok(())
}

/// Detaches a drive's volume. A disk stays with the VM as an unused disk. A cloud-init drive or an unused
/// disk is removed instead.
fn detach(state: &mut State, node: &str, vmid: u32, key: &str, next: Option<&str>) -> Result<(), Refusal> {
    let vm = state.vm_on(node, vmid)?;
    let Some((_, volid, text)) = vm.drives().into_iter().find(|(drive, _, _)| drive == key) else {
        return Ok(());
    };
    if next.is_some_and(|next| next.split(',').next() == Some(volid.as_str())) {
        return Ok(());
    }
    if key.starts_with("unused") || text.contains("cloudinit") {
        let storage = volid.split(':').next().unwrap_or_default();
        let place = state.place(storage, node);
        state.volumes.remove(&(volid, place));
    } else if !text.contains("media=cdrom") {
        let vm = state.vm_on_mut(node, vmid)?;
        let free =
            (0..256).map(|number| format!("unused{number}")).find(|name| !vm.config.contains_key(name));
        vm.config.extend(free.map(|name| (name, volid)));
    }
    Ok(())
}

/// Returns the value with the parts that Proxmox VE adds, such as a MAC address or an allocated volume.
pub(super) fn prepared(
    state: &mut State,
    node: &str,
    vmid: u32,
    key: &str,
    value: &str,
) -> Result<String, Refusal> {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem == "net" {
        let (model, rest) = value.split_once(',').unwrap_or((value, ""));
        if model.contains('=') {
            return Ok(value.to_owned());
        }
        let rest = if rest.is_empty() { String::new() } else { format!(",{rest}") };
        return Ok(format!("{model}={}{rest}", state.new_mac()));
    }
    if !["scsi", "virtio", "sata", "ide"].contains(&stem) {
        return Ok(value.to_owned());
    }
    let (volume, options) =
        value.split_once(',').map_or((value, String::new()), |(v, rest)| (v, format!(",{rest}")));
    let Some((storage, what)) = volume.split_once(':') else { return Ok(printed(value)) };
    if what.starts_with("iso/")
        && property(&options, "size").is_none()
        && let Some(file) = state.file(volume, node)
    {
        return Ok(printed(&format!("{value},size={}", super::vm::show_size(file.size))));
    }
    let cloud_init = what == "cloudinit";
    let size = match what.parse::<u64>() {
        Ok(gib) => gib << 30,
        Err(_) if cloud_init => 4 << 20,
        Err(_) => return Ok(printed(value)),
    };
    let spec = state.storages.get(storage).cloned();
    let spec = spec.ok_or_else(|| Refusal::failed(format!("storage '{storage}' does not exist")))?;
    if size > spec.size.saturating_sub(state.storage_used(&spec, node)) {
        return Err(Refusal::failed(format!("unable to create image: no space left on storage '{storage}'")));
    }
    let (mut name, mut format) = state.volume_name(storage, vmid, node, None, cloud_init);
    if !cloud_init && let Some(stem) = name.strip_suffix(".qcow2") {
        // A new volume is raw unless another format was requested.
        (name, format) = (format!("{stem}.raw"), "raw".to_owned());
    }
    let place = state.place(storage, node);
    let volume = Volume {
        storage: storage.to_owned(),
        size,
        vmid,
        parent: None,
        format,
        ctime: state.clock.now().as_second(),
    };
    state.volumes.insert((name.clone(), place), volume);
    if cloud_init {
        return Ok(printed(&format!("{name},media=cdrom{options}")));
    }
    Ok(printed(&format!("{name}{options},size={}", super::vm::show_size(size))))
}

/// Returns a drive as Proxmox VE writes it (`print_drive`): the volume, then its options sorted by name.
fn printed(drive: &str) -> String {
    let (volume, options) = drive.split_once(',').unwrap_or((drive, ""));
    let mut parts: Vec<&str> = options.split(',').filter(|part| !part.is_empty()).collect();
    parts.sort_unstable();
    std::iter::once(volume).chain(parts).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::{stored_description, stored_tags};

    #[test]
    fn descriptions_lose_white_space_at_the_end() {
        for (sent, kept) in
            [("one line\n", "one line"), ("a\n\nb \n", "a\n\nb"), (" # x", " # x"), ("\n", "")]
        {
            assert_eq!(stored_description(sent), kept, "{sent:?}");
        }
    }

    #[test]
    fn tags_are_lower_case_and_sorted_once() {
        assert_eq!(stored_tags("b;A,a b"), "a;b");
        assert_eq!(stored_tags(";;"), " ");
    }
}
