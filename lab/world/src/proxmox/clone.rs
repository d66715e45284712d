//! Cloning. As on the real server, the task claims the VMID itself, sets the pool last, and reports a VMID
//! collision with one of two errors.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    rights,
    state::{State, Volume},
    task::Worker,
    vm::{Vm, parse_size, property},
};

/// How long a clone waits for the locks of the source and of the new VM.
const LOCK_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
struct Plan {
    node: String,
    source: u32,
    newid: u32,
    name: Option<String>,
    description: Option<String>,
    pool: Option<String>,
    storage: Option<String>,
    target: String,
    full: bool,
    bwlimit: Option<u64>,
}

impl Plan {
    /// Whether a disk is linked to the template's disk instead of copied. A TPM's state is always copied.
    fn links(&self, key: &str) -> bool {
        !self.full && key != "tpmstate0"
    }
}

impl Pve {
    pub(super) fn clone_vm(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let plan = {
            let state = self.state();
            plan(&state, call)?
        };
        let pve = self.clone();
        let (node, id) = (plan.node.clone(), plan.source.to_string());
        let upid = self.spawn_worker(&node, "qmclone", &id, &call.who, |worker| async move {
            pve.run_clone(&worker, plan).await
        });
        Ok(Value::from(upid).into())
    }

    async fn run_clone(&self, worker: &Worker, plan: Plan) -> Result<(), Refusal> {
        let _source = self.share_vm(&plan.node, plan.source, LOCK_WAIT).await?;
        let _new = self.lock_vm(&plan.node, plan.newid, LOCK_WAIT).await?;
        worker.log(format!("creating a clone of VM {} with ID {}", plan.source, plan.newid));
        worker.work(Duration::from_millis(100)).await?;
        {
            let mut state = self.state();
            claim(&mut state, &plan, worker.upid.pid)?;
        }
        let result = self.copy(worker, &plan).await;
        if let Err(refusal) = result {
            let mut state = self.state();
            let newid = plan.newid;
            let own = |_: &(String, String), volume: &mut Volume| volume.vmid == newid;
            for ((volid, _), _) in state.volumes.extract_if(.., own) {
                if let Some(hardware) = &self.0.hardware {
                    hardware.free_disk(&volid);
                }
            }
            // Without quorum, the config cannot be removed, so it keeps its lock.
            if state.quorate() {
                state.vms.remove(&newid);
            }
            return Err(Refusal::failed(format!("clone failed: {}", refusal.task_text())));
        }
        Ok(())
    }

    async fn copy(&self, worker: &Worker, plan: &Plan) -> Result<(), Refusal> {
        let (mut config, drives) = {
            let mut state = self.state();
            copied_config(&mut state, plan)?
        };
        for (key, volid, text) in drives {
            let time = self.copy_volume(worker, plan, &mut config, &key, &volid, &text)?;
            self.copy_real(plan, &config, &key, &volid).await?;
            worker.work(time).await.map_err(|_| Refusal::failed("copy failed: interrupted by signal"))?;
            let mut state = self.state();
            state.need_writable(plan.newid, &plan.node, worker.upid.pid)?;
            let vm = state.vm_on_mut(&plan.node, plan.newid)?;
            vm.config = config.clone();
            vm.config.insert("lock".into(), "clone".into());
        }
        worker.work(Duration::from_millis(30)).await?;
        let mut state = self.state();
        state.need_writable(plan.newid, &plan.node, worker.upid.pid)?;
        let vm = state.vm_on_mut(&plan.node, plan.newid)?;
        vm.config = config;
        plan.target.clone_into(&mut vm.node);
        if let Some(pool) = plan.pool.as_ref().and_then(|pool| state.pools.get_mut(pool)) {
            pool.members.insert(plan.newid);
        }
        Ok(())
    }

    /// Copies the real disk, if the VMs run on real hardware.
    async fn copy_real(
        &self,
        plan: &Plan,
        config: &BTreeMap<String, String>,
        key: &str,
        from: &str,
    ) -> Result<(), Refusal> {
        let Some(hardware) = self.0.hardware.as_ref().filter(|_| !from.contains("cloudinit")) else {
            return Ok(());
        };
        let to = config.get(key).and_then(|text| text.split(',').next()).unwrap_or_default();
        let copied = hardware.clone_disk(from, to, plan.links(key)).await;
        copied.map_err(|error| Refusal::failed(format!("copy failed: {error}")))
    }

    /// Allocates the copy of one volume, and returns how long copying takes.
    fn copy_volume(
        &self,
        worker: &Worker,
        plan: &Plan,
        config: &mut BTreeMap<String, String>,
        key: &str,
        volid: &str,
        text: &str,
    ) -> Result<Duration, Refusal> {
        let cloud_init = rights::is_cloud_init(text);
        let linked = plan.links(key) && !cloud_init;
        let how = if linked { "linked" } else { "full" };
        worker.log(format!("create {how} clone of drive {key} ({volid})"));
        let mut state = self.state();
        let own = volid.split(':').next().unwrap_or_default().to_owned();
        let storage = plan.storage.clone().filter(|_| !linked).unwrap_or(own);
        // A clone always gets a new cloud-init drive. The template's config may lack the drive's size.
        let text = match property(text, "size") {
            None if cloud_init => &format!("{text},size=4M"),
            _ => text,
        };
        let size = property(text, "size").and_then(parse_size).unwrap_or(0);
        let spec = state.storages.get(&storage).cloned();
        let spec = spec.ok_or_else(|| Refusal::failed(format!("storage '{storage}' does not exist")))?;
        let free = spec.size.saturating_sub(state.storage_used(&spec, &plan.node));
        if !linked && size > free {
            return Err(Refusal::failed(format!("copy failed: no space left on storage '{storage}'")));
        }
        let parent = linked.then(|| volid.to_owned());
        let (mut name, mut format) =
            state.volume_name(&storage, plan.newid, &plan.node, parent.as_deref(), cloud_init);
        if !linked
            && volid.strip_suffix(".raw").is_some()
            && let Some(stem) = name.strip_suffix(".qcow2")
        {
            // A copy keeps the format of its source (`resolve_dst_disk_format`).
            (name, format) = (format!("{stem}.raw"), "raw".to_owned());
        }
        let place = state.place(&storage, &plan.node);
        let volume =
            Volume { storage, size, vmid: plan.newid, parent, format, ctime: state.clock.now().as_second() };
        state.volumes.insert((name.clone(), place), volume);
        config.insert(key.to_owned(), text.replacen(volid, &name, 1));
        let time = match (linked, cloud_init) {
            (true, _) => state.timings.linked_clone.mul_f64(0.5),
            (_, true) => state.timings.linked_clone.mul_f64(0.2),
            _ => {
                let rate = spec.copy_rate.unwrap_or(state.timings.full_clone_rate).max(1);
                let copying = Duration::from_millis(size.saturating_mul(1000) / rate);
                // `bwlimit` does not apply to zeroed blocks. A quarter of the disk is assumed to be zeroed.
                let slow = |limit: u64| Duration::from_millis(size / 4 * 3 * 1000 / (limit.max(1) << 10));
                plan.bwlimit.map_or(copying, |limit| slow(limit).max(copying))
            }
        };
        Ok(state.vary(time))
    }

    pub(super) fn feature(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, &format!("/vms/{}", call.vmid()), &["VM.Audit"])?;
        let vm = state.vm_on(call.node(), call.vmid())?;
        let has = match call.params.text("feature").as_deref() {
            Some("clone") => vm.is_template() && unlinkable(&state, vm).is_none(),
            Some("snapshot") => !vm.is_template(),
            _ => true,
        };
        let nodes: Vec<&String> = state
            .hosts
            .keys()
            .filter(|node| **node == vm.node || local_storage(&state, vm).is_none())
            .collect();
        Ok(json!({ "hasFeature": i32::from(has), "nodes": nodes }).into())
    }
}

fn plan(state: &State, call: &ApiCall) -> Result<Plan, Refusal> {
    let (node, source, params) = (call.node().to_owned(), call.vmid(), &call.params);
    let newid = params.vmid("newid").unwrap_or(0);
    let pool = params.text("pool");
    call.who.need(state, &format!("/vms/{source}"), &["VM.Clone"])?;
    if let Some(pool) = &pool
        && !state.pools.contains_key(pool)
    {
        return Err(Refusal::Forbidden(format!("Permission check failed (pool '{pool}' does not exist)")));
    }
    let by_pool =
        pool.as_ref().is_some_and(|pool| call.who.has(state, &format!("/pool/{pool}"), "VM.Allocate"));
    if !by_pool && !call.who.has(state, &format!("/vms/{newid}"), "VM.Allocate") {
        return Err(Refusal::Forbidden("Permission check failed".into()));
    }
    state.need_quorum()?;
    let target = params.text("target").unwrap_or_else(|| node.clone());
    if !state.hosts.contains_key(&target) {
        return Err(Refusal::failed(format!("no such cluster node '{target}'")));
    }
    let storage = params.text("storage");
    if let Some(storage) = &storage {
        let spec = state.storages.get(storage);
        let spec = spec.ok_or_else(|| Refusal::failed(format!("storage '{storage}' does not exist")))?;
        call.who.need(state, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        if target != node && !spec.shared {
            return Err(Refusal::failed(format!("can't clone to non-shared storage '{storage}'")));
        }
    }
    let vm = state.vms.get(&source).filter(|vm| vm.node == node).ok_or_else(|| {
        Refusal::failed(format!("unable to find configuration file for VM {source} on node '{node}'"))
    })?;
    vm.check_lock()?;
    let full = if params.text("full").is_some() { params.flag("full") } else { !vm.is_template() };
    if storage.is_some() && !full {
        return Err(Refusal::failed("parameter 'storage' not allowed for linked clones"));
    }
    if params.text("format").is_some() && !full {
        return Err(Refusal::failed("parameter 'format' not allowed for linked clones"));
    }
    if let Some(snapshot) = params.text("snapname") {
        return Err(Refusal::failed(format!("snapshot '{snapshot}' does not exist")));
    }
    rights::clone(state, &call.who, source, storage.as_deref())?;
    // As on the real server, this check comes after the privilege check.
    if target != node && local_storage(state, vm).is_some() {
        return Err(Refusal::failed(format!("can't clone VM to node '{target}' (VM uses local storage)")));
    }
    if state.vms.get(&newid).is_some_and(|vm| vm.node == node) {
        return Err(Refusal::failed(format!("unable to create VM {newid}: config file already exists")));
    }
    if let Some((drive, volid)) = unlinkable(state, vm).filter(|_| !full) {
        return Err(Refusal::failed(format!(
            "Linked clone feature is not supported for '{volid}' ({drive})"
        )));
    }
    let (name, description) = (params.text("name"), params.text("description"));
    Ok(Plan {
        node,
        source,
        newid,
        name,
        description,
        pool,
        storage,
        target,
        full,
        bwlimit: params.number("bwlimit").filter(|limit| *limit > 0),
    })
}

fn local_storage(state: &State, vm: &Vm) -> Option<String> {
    let storages =
        vm.drives().into_iter().filter_map(|(_, volid, _)| Some(volid.split(':').next()?.to_owned()));
    storages.into_iter().find(|id| state.storages.get(id).is_some_and(|spec| !spec.shared))
}

fn unlinkable(state: &State, vm: &Vm) -> Option<(String, String)> {
    let drives = vm.drives().into_iter().filter(|(_, _, text)| !text.contains("media=cdrom"));
    let mut drives = drives.map(|(drive, volid, _)| (drive, volid));
    drives.find(|(drive, volid)| {
        if drive == "tpmstate0" {
            return false;
        }
        let storage = volid.split(':').next().unwrap_or_default();
        !volid.contains("base-") || state.storages.get(storage).is_some_and(|spec| !spec.kind.links())
    })
}

/// Claims the VMID in the cluster file system. If several tasks claim the same VMID, only one succeeds.
fn claim(state: &mut State, plan: &Plan, pid: u32) -> Result<(), Refusal> {
    let newid = plan.newid;
    match state.vms.get(&newid) {
        Some(vm) if vm.node == plan.node => {
            return Err(Refusal::failed(format!("unable to create VM {newid}: config file already exists")));
        }
        Some(_) => {
            let path = format!("/etc/pve/nodes/{}/qemu-server/{newid}.conf", plan.node);
            return Err(Refusal::failed(format!("close (rename) atomic file '{path}' failed: File exists")));
        }
        None => {}
    }
    state.need_writable(newid, &plan.node, pid)?;
    let placeholder = [("lock", "clone"), ("description", " qmclone temporary file")];
    let config = placeholder.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let source = state.vms.get(&plan.source);
    let faults = source.map(|vm| vm.faults.clone()).unwrap_or_default();
    let disk = source.map(|vm| vm.disk.copied()).unwrap_or_default();
    let firewall = source.map(|vm| vm.firewall.clone()).unwrap_or_default();
    state.vms.insert(newid, Vm { disk: disk.into(), firewall, ..Vm::new(newid, &plan.node, config, faults) });
    Ok(())
}

type Drives = Vec<(String, String, String)>;

/// Returns the template's config with new MAC addresses, new uuids and a new name, but without its drives.
/// Returns the drives separately.
fn copied_config(state: &mut State, plan: &Plan) -> Result<(BTreeMap<String, String>, Drives), Refusal> {
    let source = state.vm_on(&plan.node, plan.source)?;
    let mut config = source.config.clone();
    let (drives, own_name) = (source.drives(), source.name());
    config.retain(|key, _| {
        !["template", "lock", "parent"].contains(&key.as_str())
            && !key.starts_with("unused")
            && !drives.iter().any(|d| d.0 == *key)
    });
    for (_, text) in config.iter_mut().filter(|(key, _)| key.starts_with("net")) {
        let mac = state.new_mac();
        let (model, rest) = text.split_once(',').unwrap_or((text.as_str(), ""));
        let model = model.split('=').next().unwrap_or(model);
        *text = if rest.is_empty() { format!("{model}={mac}") } else { format!("{model}={mac},{rest}") };
    }
    config.insert("smbios1".into(), format!("uuid={}", state.new_uuid()));
    if config.contains_key("vmgenid") {
        config.insert("vmgenid".into(), state.new_uuid());
    }
    config.insert("name".into(), plan.name.clone().unwrap_or_else(|| format!("Copy-of-VM-{own_name}")));
    if let Some(description) = &plan.description {
        match super::config::stored_description(description) {
            text if text.is_empty() => config.remove("description"),
            text => config.insert("description".into(), text),
        };
    }
    Ok((config, drives))
}
