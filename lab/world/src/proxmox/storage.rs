//! Calls about storages and pools.

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    spec::StorageSpec,
    state::State,
};

const READERS: &[&str] = &["Datastore.Audit", "Datastore.AllocateSpace"];

impl Pve {
    pub(super) fn storages(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let (only, content) = (call.params.text("storage"), call.params.text("content"));
        let rows = state
            .storages
            .values()
            .filter(|storage| storage.is_on(call.node()))
            .filter(|storage| only.as_ref().is_none_or(|only| *only == storage.id))
            .filter(|storage| {
                content.as_ref().is_none_or(|kind| storage.content.split(',').any(|own| own == kind))
            })
            .filter(|storage| {
                READERS.iter().any(|p| call.who.has(&state, &format!("/storage/{}", storage.id), p))
            })
            .map(|storage| {
                let mut row = status(&state, storage, call.node());
                row["storage"] = storage.id.as_str().into();
                row["used_fraction"] = json!(f64_of(&row["used"]) / f64_of(&row["total"]));
                row
            });
        Value::Array(rows.collect()).into()
    }

    pub(super) fn storage_status(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        let storage = readable(&state, call)?;
        Ok(status(&state, storage, call.node()).into())
    }

    pub(super) fn storage_content(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        let storage = readable(&state, call)?;
        let place = state.place(&storage.id, call.node());
        let (only, kind) = (call.params.vmid("vmid"), call.params.text("content"));
        let may_see = |vmid: u32| {
            call.who.has(&state, &format!("/storage/{}", storage.id), "Datastore.Allocate")
                || call.who.has(&state, &format!("/vms/{vmid}"), "VM.Config.Disk")
        };
        let volumes = state
            .volumes
            .iter()
            .filter(|((_, at), volume)| *at == place && volume.storage == storage.id)
            .filter(|(_, volume)| only.is_none_or(|only| only == volume.vmid) && may_see(volume.vmid))
            .filter(|_| kind.as_deref().is_none_or(|kind| kind == "images"));
        let rows = volumes.map(|((volid, _), volume)| {
            let mut row = json!({
                "volid": volid, "format": volume.format, "size": volume.size, "vmid": volume.vmid, "content": "images",
            });
            if let Some(parent) = &volume.parent {
                row["parent"] = parent.as_str().into();
            }
            row
        });
        Ok(Value::Array(rows.collect()).into())
    }

    pub(super) fn pools(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        let Some(wanted) = call.params.text("poolid") else {
            let visible = state
                .pools
                .iter()
                .filter(|(id, _)| call.who.has(&state, &format!("/pool/{id}"), "Pool.Audit"));
            let rows = visible.map(|(id, pool)| json!({ "poolid": id, "comment": pool.comment })).collect();
            return Ok(Value::Array(rows).into());
        };
        let pool = state
            .pools
            .get(&wanted)
            .ok_or_else(|| Refusal::failed(format!("pool '{wanted}' does not exist")))?;
        let members = pool.members.iter().filter_map(|vmid| state.vms.get(vmid)).filter(|&vm| call.who.has(&state, &format!("/vms/{}", vm.vmid), "VM.Audit")).map(|vm| {
                let known = state.statistics[0].get(&vm.vmid).map_or("unknown".into(), |row| row["status"].clone());
                json!({ "id": format!("qemu/{}", vm.vmid), "type": "qemu", "vmid": vm.vmid, "node": vm.node, "status": known })
            });
        let members: Vec<Value> = members.collect();
        Ok(json!([{ "poolid": wanted, "comment": pool.comment, "members": members }]).into())
    }

    pub(super) async fn change_pool(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let poolid = call.params.text("poolid").unwrap_or_default();
        let quorate = {
            let state = self.state();
            call.who.need(&state, &format!("/pool/{poolid}"), &["Pool.Allocate"])?;
            state.quorate()
        };
        if !quorate {
            tokio::time::sleep(std::time::Duration::from_secs(10)).await;
            return Err(Refusal::failed("update pools failed: cfs-lock 'file-user_cfg' error: no quorum!"));
        }
        let mut state = self.state();
        let vmids: Vec<u32> = call.params.words("vms").iter().filter_map(|word| word.parse().ok()).collect();
        for vmid in &vmids {
            call.who.need(&state, &format!("/vms/{vmid}"), &["VM.Allocate"])?;
        }
        let remove = call.params.flag("delete");
        let taken = vmids.iter().find(|vmid| state.pool_of(**vmid).is_some_and(|pool| pool != poolid));
        if let (Some(vmid), false, false) = (taken, remove, call.params.flag("allow-move")) {
            let pool = state.pool_of(*vmid).unwrap_or_default();
            return Err(Refusal::failed(format!(
                "update pools failed: VM {vmid} belongs already to pool '{pool}' and 'allow-move' is not set"
            )));
        }
        if !state.pools.contains_key(&poolid) {
            return Err(Refusal::failed(format!("update pools failed: pool '{poolid}' does not exist")));
        }
        for (id, pool) in &mut state.pools {
            let add = *id == poolid && !remove;
            for vmid in &vmids {
                if add {
                    pool.members.insert(*vmid)
                } else {
                    pool.members.remove(vmid)
                };
            }
        }
        Ok(Value::Null.into())
    }
}

fn readable<'s>(state: &'s State, call: &ApiCall) -> Result<&'s StorageSpec, Refusal> {
    let id = call.path.get("storage").map_or("", String::as_str);
    call.who.need(state, &format!("/storage/{id}"), READERS)?;
    state.storages.get(id).ok_or_else(|| Refusal::failed(format!("storage '{id}' does not exist")))
}

fn status(state: &State, storage: &StorageSpec, node: &str) -> Value {
    let used = state.storage_used(storage, node);
    json!({
        "type": storage.kind.plugin(), "content": storage.content, "enabled": 1, "active": 1, "shared": i32::from(storage.shared),
        "total": storage.size, "used": used, "avail": storage.size.saturating_sub(used),
    })
}

fn f64_of(value: &Value) -> f64 {
    value.as_f64().unwrap_or(1.0)
}
