//! The privileges that cloning a VM or changing its configuration needs beyond those on the VM: for its
//! networks, mapped devices, CPU model, storages and tags. The checks follow `API2/Qemu.pm` of qemu-server
//! and `GuestHelpers.pm` of pve-guest-common.

use std::collections::BTreeSet;

use super::{access::Identity, answer::Refusal, state::State, vm::property};

/// The datacenter's options for tags.
#[derive(Clone, Debug, Default)]
pub struct TagAccess {
    /// Which tags users may use: `free`, `existing`, `list` or `none`. An empty text means `free`.
    pub user_allow: String,
    /// Tags that every user may use.
    pub user_allow_list: Vec<String>,
    /// Tags that need `Sys.Modify` on `/`.
    pub registered: Vec<String>,
}

impl TagAccess {
    fn is(&self, word: &str) -> bool {
        let word_here = if self.user_allow.is_empty() { "free" } else { &self.user_allow };
        word_here == word
    }

    /// The tags that a user is explicitly allowed to use. If `user_allow` is `free`, the user may also use
    /// any other tag that is not registered.
    pub(super) fn allowed(&self, state: &State, who: &Identity) -> BTreeSet<String> {
        let privileged = who.has(state, "/", "Sys.Modify");
        let mut allowed = BTreeSet::new();
        if !self.is("none") || privileged {
            allowed.extend(self.user_allow_list.iter().cloned());
        }
        if self.is("free") || self.is("existing") || privileged {
            let seen =
                state.vms.values().filter(|vm| who.has(state, &format!("/vms/{}", vm.vmid), "VM.Audit"));
            allowed.extend(seen.flat_map(|vm| words(vm.get("tags").unwrap_or_default())));
        }
        for tag in &self.registered {
            if privileged {
                allowed.insert(tag.clone());
            } else {
                allowed.remove(tag);
            }
        }
        allowed
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split([';', ',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Checks the privileges for adding and removing tags.
pub(super) fn tags(state: &State, who: &Identity, vmid: u32, old: &str, new: &str) -> Result<(), Refusal> {
    who.need(state, &format!("/vms/{vmid}"), &["VM.Config.Options"])?;
    if who.has(state, "/", "Sys.Modify") {
        return Ok(());
    }
    let rules = &state.tags;
    let allowed = rules.allowed(state, who);
    for tag in words(old).symmetric_difference(&words(new)) {
        if (!allowed.contains(tag) && !rules.is("free")) || rules.registered.contains(tag) {
            let what = format!("Permission check failed (/, Sys.Modify for modifying tag '{tag}')");
            return Err(Refusal::Forbidden(what));
        }
    }
    Ok(())
}

/// Checks access to the bridge of a network device: to each of its VLANs, or to the whole bridge if the
/// device has no VLAN.
pub(super) fn network(state: &State, who: &Identity, key: &str, value: &str) -> Result<(), Refusal> {
    if !numbered(key, "net") {
        return Ok(());
    }
    let Some(bridge) = property(value, "bridge") else { return Ok(()) };
    let path = format!("/sdn/zones/localnetwork/{bridge}");
    let (tag, trunks) = (property(value, "tag"), property(value, "trunks"));
    if let Some(tag) = tag {
        who.need(state, &format!("{path}/{tag}"), &["SDN.Use"])?;
    }
    for tag in trunks.into_iter().flat_map(vlans) {
        who.need(state, &format!("{path}/{tag}"), &["SDN.Use"])?;
    }
    if tag.is_none() && trunks.is_none() {
        who.need(state, &path, &["SDN.Use"])?;
    }
    Ok(())
}

fn vlans(text: &str) -> Vec<u16> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(';').filter_map(range).flatten().collect()
}

/// Checks access to a device. Only root may use a host's device directly; a mapping of a device needs
/// `Mapping.Use`.
pub(super) fn mapping(state: &State, who: &Identity, key: &str, value: &str) -> Result<(), Refusal> {
    let bare = value.split(',').find(|part| !part.contains('='));
    let part = |name: &str, alone: bool| property(value, name).or(bare.filter(|_| alone));
    let use_of =
        |kind: &str, name: &str| who.need(state, &format!("/mapping/{kind}/{name}"), &["Mapping.Use"]);
    if numbered(key, "usb") {
        return match (part("host", true), part("mapping", false)) {
            (Some(host), _) if host.eq_ignore_ascii_case("spice") => Ok(()),
            (Some(_), _) => root_only(who, &format!("only root can set '{key}' config for real devices")),
            (None, Some(name)) => use_of("usb", name),
            (None, None) => Err(Refusal::failed("either 'host' or 'mapping' must be set.")),
        };
    }
    if numbered(key, "hostpci") {
        return match (part("host", true), part("mapping", false)) {
            (Some(_), _) => {
                root_only(who, &format!("only root can set '{key}' config for non-mapped devices"))
            }
            (None, Some(name)) => use_of("pci", name),
            (None, None) => Err(Refusal::failed("either 'host' or 'mapping' must be set.")),
        };
    }
    if numbered(key, "rng") && part("source", true) == Some("/dev/hwrng") {
        return who.need(state, "/mapping/hwrng", &["Mapping.Use"]);
    }
    match part("dirid", true) {
        Some(name) if numbered(key, "virtiofs") => use_of("dir", name),
        _ => Ok(()),
    }
}

fn root_only(who: &Identity, text: &str) -> Result<(), Refusal> {
    if who.user == "root@pam" && who.token == "root@pam" { Ok(()) } else { Err(Refusal::failed(text)) }
}

/// Checks access to a custom CPU model. Release 8 requires `Sys.Audit` on `/nodes`, later releases require
/// `Mapping.Use` on the model.
pub(super) fn cpu_model(state: &State, who: &Identity, new: &str, old: Option<&str>) -> Result<(), Refusal> {
    let model = |text: &str| {
        let bare = text.split(',').find(|part| !part.contains('='));
        property(text, "cputype").or(bare).map(str::to_owned)
    };
    let Some(wanted) = model(new) else { return Ok(()) };
    if old.is_some_and(|old| model(old).as_ref() == Some(&wanted)) {
        return Ok(());
    }
    match wanted.strip_prefix("custom-") {
        Some(_) if state.is_release_8() => who.need(state, "/nodes", &["Sys.Audit"]),
        Some(name) => who.need(state, &format!("/mapping/cpu/{name}"), &["Mapping.Use"]),
        None => Ok(()),
    }
}

/// Checks the privileges that are needed to set, remove or replace a drive that has this value.
pub(super) fn drive(state: &State, who: &Identity, vmid: u32, value: &str) -> Result<(), Refusal> {
    let path = format!("/vms/{vmid}");
    let privileges: &[&str] = if is_cloud_init(value) {
        &["VM.Config.Cloudinit", "VM.Config.CDROM"]
    } else if property(value, "media") == Some("cdrom") {
        &["VM.Config.CDROM"]
    } else {
        &["VM.Config.Disk"]
    };
    privileges.iter().try_for_each(|privilege| who.need(state, &path, &[privilege]))
}

/// Checks the privileges on the storage of a new drive.
pub(super) fn storage(state: &State, who: &Identity, value: &str) -> Result<(), Refusal> {
    let volume = value.split(',').next().unwrap_or_default();
    if property(value, "media") == Some("cdrom") && volume == "cdrom" {
        return who.need(state, "/", &["Sys.Console"]);
    }
    let Some((name, what)) = volume.split_once(':').filter(|(name, _)| !name.starts_with('/')) else {
        return Ok(());
    };
    let path = format!("/storage/{name}");
    if what.parse::<u64>().is_ok() {
        return who.need(state, &path, &["Datastore.AllocateSpace"]);
    }
    if what.starts_with("iso/") {
        return who.need(state, &path, &["Datastore.AllocateSpace", "Datastore.Audit"]);
    }
    Ok(())
}

pub(super) fn is_cloud_init(value: &str) -> bool {
    let volume = value.split(',').next().unwrap_or_default();
    let file = volume.rsplit([':', '/']).next().unwrap_or_default();
    file.split('.').next().is_some_and(|name| name == "cloudinit" || name.ends_with("-cloudinit"))
}

/// Whether `key` is `kind` followed by a number, such as `net0` for `net`.
pub(super) fn numbered(key: &str, kind: &str) -> bool {
    key.strip_prefix(kind)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Checks the privileges that cloning a VM needs: for the `target` storage (without it, for the storages of
/// the source VM's drives), then for the source VM's mappings, bridges and CPU model.
pub(super) fn clone(state: &State, who: &Identity, vmid: u32, target: Option<&str>) -> Result<(), Refusal> {
    let Some(vm) = state.vms.get(&vmid) else { return Ok(()) };
    for (key, value) in &vm.config {
        let volume = value.split(',').next().unwrap_or_default();
        let is_drive =
            ["ide", "sata", "scsi", "virtio", "efidisk", "tpmstate"].iter().any(|bus| numbered(key, bus));
        if !is_drive || volume == "none" {
            continue;
        }
        if property(value, "media") == Some("cdrom") {
            if volume == "cdrom" {
                who.need(state, "/", &["Sys.Console"])?;
            }
            continue;
        }
        let Some((own, _)) = volume.split_once(':').filter(|(own, _)| !own.starts_with('/')) else {
            return Err(Refusal::failed(format!("unable to parse volume ID '{volume}'")));
        };
        who.need(state, &format!("/storage/{}", target.unwrap_or(own)), &["Datastore.AllocateSpace"])?;
    }
    if let Some(storage) = vm.get("vmstatestorage") {
        who.need(state, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    }
    for (key, value) in &vm.config {
        mapping(state, who, key, value)?;
    }
    for (key, value) in &vm.config {
        network(state, who, key, value)?;
    }
    vm.get("cpu").map_or(Ok(()), |cpu| cpu_model(state, who, cpu, None))
}
