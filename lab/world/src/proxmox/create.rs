//! Creating a VM without a template, with imported disks, and converting a VM to a template.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    config::{Needed, needed, prepared, stored_description, stored_tags},
    rights,
    state::{State, Volume},
    task::Worker,
    vm::{Vm, property, show_size},
};
use crate::guest::GuestFaults;

/// Parameters that are not config keys.
const ORDERS: &[&str] = &["vmid", "node", "pool", "start", "storage", "force", "unique", "bwlimit", "digest"];

impl Pve {
    pub(super) fn create_vm(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let (node, vmid) = (call.node().to_owned(), call.params.vmid("vmid").unwrap_or(0));
        let pool = call.params.text("pool");
        let keys: BTreeMap<String, String> = call
            .params
            .0
            .keys()
            .filter(|key| !ORDERS.contains(&key.as_str()))
            .filter_map(|key| Some((key.clone(), call.params.text(key)?)))
            .collect();
        {
            let mut state = self.state();
            may_create(&state, call, vmid, pool.as_deref(), &keys)?;
            state.need_quorum()?;
            if let Some(vm) = state.vms.get(&vmid) {
                return Err(Refusal::failed(format!(
                    "unable to create VM {vmid} - VM {vmid} already exists on node '{}'",
                    vm.node
                )));
            }
            // The VMID is claimed before the task begins.
            let lock = BTreeMap::from([("lock".to_owned(), "create".to_owned())]);
            state.vms.insert(vmid, Vm::new(vmid, &node, lock, GuestFaults::default()));
        }
        let pve = self.clone();
        let (id, who) = (vmid.to_string(), call.who.clone());
        let upid = self.spawn_worker(&node.clone(), "qmcreate", &id, &who, |worker| async move {
            let made = pve.run_create(&worker, (&node, vmid), pool, keys).await;
            if made.is_err() {
                let mut state = pve.state();
                state.volumes.retain(|_, volume| volume.vmid != vmid);
                state.vms.remove(&vmid);
            }
            made.map_err(|refusal| {
                Refusal::failed(format!("unable to create VM {vmid} - {}", refusal.task_text()))
            })
        });
        Ok(Value::from(upid).into())
    }

    async fn run_create(
        &self,
        worker: &Worker,
        (node, vmid): (&str, u32),
        pool: Option<String>,
        keys: BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        let mut config = BTreeMap::new();
        for (key, value) in keys {
            let (text, time) = {
                let mut state = self.state();
                state.need_writable(vmid, node, worker.upid.pid)?;
                drive(&mut state, (node, vmid), &key, &value)?
            };
            if !time.is_zero() {
                worker.log(format!("importing {value}"));
            }
            worker.work(time).await?;
            config.insert(key, text);
        }
        worker.work(Duration::from_millis(60)).await?;
        let mut state = self.state();
        let uuid = format!("uuid={}", state.new_uuid());
        config.entry("smbios1".to_owned()).or_insert(uuid);
        let generation = state.new_uuid();
        config.entry("vmgenid".to_owned()).or_insert(generation);
        config.insert("meta".into(), "creation-qemu=10.0.2,ctime=1795220293".into());
        state.need_writable(vmid, node, worker.upid.pid)?;
        state.vm_on_mut(node, vmid)?.config = config;
        if let Some(pool) = pool.and_then(|pool| state.pools.get_mut(&pool)) {
            pool.members.insert(vmid);
        }
        Ok(())
    }

    pub(super) fn convert(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let (node, vmid) = (call.node().to_owned(), call.vmid());
        {
            let state = self.state();
            call.who.need(&state, &format!("/vms/{vmid}"), &["VM.Allocate"])?;
            let vm = state.vm_on(&node, vmid)?;
            if vm.is_template() {
                return Err(Refusal::failed("you can't convert a template to a template"));
            }
            vm.check_lock()?;
            if vm.machine.is_some() {
                return Err(Refusal::failed("you can't convert a VM to template if VM is running"));
            }
        }
        let pve = self.clone();
        let id = vmid.to_string();
        let upid = self.spawn_worker(&node.clone(), "qmtemplate", &id, &call.who, |worker| async move {
            let _lock = pve.lock_vm(&node, vmid, super::config::LOCK_WAIT).await?;
            worker.work(Duration::from_millis(300)).await?;
            let mut state = pve.state();
            state.need_writable(vmid, &node, worker.upid.pid)?;
            become_template(&mut state, &node, vmid)
        });
        Ok(Value::from(upid).into())
    }
}

/// Returns a key's value as it is stored, and how long importing its disk takes.
fn drive(
    state: &mut State,
    (node, vmid): (&str, u32),
    key: &str,
    value: &str,
) -> Result<(String, Duration), Refusal> {
    let Some(source) = property(value, "import-from") else {
        let text = match key {
            "description" => stored_description(value),
            "tags" => stored_tags(value),
            _ => prepared(state, node, vmid, key, value)?,
        };
        return Ok((text, Duration::ZERO));
    };
    let target = value.split(':').next().unwrap_or_default().to_owned();
    let image = state.file(source, node).filter(|file| file.content == "import").cloned();
    let image = image.ok_or_else(|| Refusal::failed(format!("volume '{source}' does not exist")))?;
    let spec = state.storages.get(&target).cloned();
    let spec = spec.ok_or_else(|| Refusal::failed(format!("storage '{target}' does not exist")))?;
    if !spec.content.split(',').any(|kind| kind == "images") {
        return Err(Refusal::failed(format!("storage '{target}' does not support content-type 'images'")));
    }
    if image.disk > spec.size.saturating_sub(state.storage_used(&spec, node)) {
        return Err(Refusal::failed(format!("no space left on storage '{target}'")));
    }
    let (name, format) = state.volume_name(&target, vmid, node, None, false);
    let place = state.place(&target, node);
    let ctime = state.clock.now().as_second();
    let volume = Volume { storage: target, size: image.disk, vmid, parent: None, format, ctime };
    state.volumes.insert((name.clone(), place), volume);
    let parts = value.split(',').skip(1).filter(|part| !part.starts_with("import-from="));
    let rest = parts.fold(String::new(), |rest, part| rest + "," + part);
    let rate = state.timings.full_clone_rate.max(1);
    let time = Duration::from_millis(image.disk.saturating_mul(1000) / rate);
    Ok((format!("{name}{rest},size={}", show_size(image.disk)), time))
}

fn may_create(
    state: &State,
    call: &ApiCall,
    vmid: u32,
    pool: Option<&str>,
    keys: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    if let Some(pool) = pool.filter(|pool| !state.pools.contains_key(*pool)) {
        return Err(Refusal::Forbidden(format!("Permission check failed (pool '{pool}' does not exist)")));
    }
    let has = |privilege: &str| {
        call.who.has(state, &format!("/vms/{vmid}"), privilege)
            || pool.is_some_and(|pool| call.who.has(state, &format!("/pool/{pool}"), privilege))
    };
    let path = pool.map_or_else(|| format!("/vms/{vmid}"), |pool| format!("/pool/{pool}"));
    if !has("VM.Allocate") {
        return Err(Refusal::privilege(&path, "VM.Allocate"));
    }
    for (key, value) in keys {
        let fine = match needed_for_new(key, value) {
            Needed::All(privileges) => privileges.iter().find(|one| !has(one)).map(|one| (*one).to_owned()),
            Needed::Any(privileges) => (!privileges.iter().any(|one| has(one))).then(|| privileges.join("|")),
        };
        if let Some(lacks) = fine {
            return Err(Refusal::privilege(&path, &lacks));
        }
        if super::config::ROOT_ONLY.contains(&key.as_str()) {
            return Err(Refusal::failed(format!("only root can set '{key}' config")));
        }
        if let Some(bridge) = property(value, "bridge").filter(|_| key.starts_with("net")) {
            let tag = property(value, "tag").map(|tag| format!("/{tag}")).unwrap_or_default();
            call.who.need(state, &format!("/sdn/zones/localnetwork/{bridge}{tag}"), &["SDN.Use"])?;
        }
        let drive = ["scsi", "virtio", "sata", "ide"]
            .iter()
            .any(|bus| key.strip_prefix(bus).is_some_and(|number| number.parse::<u8>().is_ok()));
        if let Some((storage, what)) = value.split_once(':').filter(|_| drive) {
            let privileges: &[&str] = if what.starts_with("iso/") {
                &["Datastore.Audit", "Datastore.AllocateSpace"]
            } else {
                &["Datastore.AllocateSpace"]
            };
            call.who.need(state, &format!("/storage/{storage}"), privileges)?;
        }
        if let Some(source) = property(value, "import-from") {
            let storage = source.split(':').next().unwrap_or_default();
            let readers = ["Datastore.Audit", "Datastore.AllocateSpace"];
            call.who.need(state, &format!("/storage/{storage}"), &readers)?;
        }
    }
    Ok(())
}

/// Returns the privileges for a key of a new VM. All of them are checked in one step, because there is no old
/// value to compare with.
fn needed_for_new(key: &str, value: &str) -> Needed {
    let numbered = |kinds: &[&str]| kinds.iter().any(|kind| rights::numbered(key, kind));
    if numbered(&["scsi", "virtio", "sata", "ide", "efidisk", "tpmstate"]) {
        return if rights::is_cloud_init(value) {
            Needed::All(&["VM.Config.Cloudinit", "VM.Config.CDROM"])
        } else if property(value, "media") == Some("cdrom") {
            Needed::All(&["VM.Config.CDROM"])
        } else {
            Needed::All(&["VM.Config.Disk"])
        };
    }
    if numbered(&["serial", "usb", "hostpci"]) {
        return Needed::All(&["VM.Config.HWType"]);
    }
    if key == "tags" { Needed::All(&["VM.Config.Options"]) } else { needed(key) }
}

/// Converts a VM to a template: its disks become base images for linked clones.
fn become_template(state: &mut State, node: &str, vmid: u32) -> Result<(), Refusal> {
    let drives = state.vm_on(node, vmid)?.drives();
    for (key, volid, text) in drives.into_iter().filter(|(_, _, text)| !text.contains("media=cdrom")) {
        let base = volid.replacen(&format!("vm-{vmid}-"), &format!("base-{vmid}-"), 1);
        let place = state.place(volid.split(':').next().unwrap_or_default(), node);
        if let Some(volume) = state.volumes.remove(&(volid.clone(), place.clone())) {
            state.volumes.insert((base.clone(), place), volume);
        }
        state.vm_on_mut(node, vmid)?.config.insert(key, text.replacen(&volid, &base, 1));
    }
    state.vm_on_mut(node, vmid)?.config.insert("template".into(), "1".into());
    Ok(())
}
