//! Calls about pools.

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    state::State,
};

impl Pve {
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
        let mut pool = pool_row(&state, call, &wanted)?;
        pool["poolid"] = wanted.into();
        Ok(json!([pool]).into())
    }

    /// Unlike the list of pools, this call requires `Pool.Audit` on the pool, and cannot address a nested
    /// pool.
    pub(super) fn pool(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        let id = call.path.get("poolid").cloned().unwrap_or_default();
        call.who.need(&state, &format!("/pool/{id}"), &["Pool.Audit"])?;
        let mut pool = pool_row(&state, call, &id)?;
        pool["poolid"] = id.into();
        Ok(pool.into())
    }

    pub(super) async fn change_pool(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let poolid = call.params.text("poolid").unwrap_or_default();
        call.who.need(&self.state(), &format!("/pool/{poolid}"), &["Pool.Allocate"])?;
        self.user_cfg("update pools").await?;
        let mut state = self.state();
        let vmids: Vec<u32> = call.params.words("vms").iter().filter_map(|word| word.parse().ok()).collect();
        for vmid in &vmids {
            call.who.need(&state, &format!("/vms/{vmid}"), &["VM.Allocate"])?;
        }
        let remove = call.params.flag("delete");
        if !state.pools.contains_key(&poolid) {
            return Err(Refusal::failed(format!("update pools failed: pool '{poolid}' does not exist")));
        }
        let inside = |vmid: &&u32| state.pool_of(**vmid) == Some(poolid.as_str());
        let not =
            |text: &str, vmid: &u32| Refusal::failed(format!("update pools failed: VM {vmid} is {text}"));
        match vmids.iter().find(|vmid| inside(vmid) != remove) {
            Some(vmid) if remove => return Err(not("not a pool member", vmid)),
            Some(vmid) => return Err(not("already a pool member", vmid)),
            None => {}
        }
        let taken = vmids.iter().find(|vmid| state.pool_of(**vmid).is_some_and(|pool| pool != poolid));
        if let (Some(vmid), false, false) = (taken, remove, call.params.flag("allow-move")) {
            let pool = state.pool_of(*vmid).unwrap_or_default();
            return Err(Refusal::failed(format!(
                "update pools failed: VM {vmid} belongs already to pool '{pool}' and 'allow-move' is not set"
            )));
        }
        for (id, pool) in &mut *state.pools {
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

fn pool_row(state: &State, call: &ApiCall, id: &str) -> Result<Value, Refusal> {
    let pool = state.pools.get(id).ok_or_else(|| Refusal::failed(format!("pool '{id}' does not exist")))?;
    let visible = pool.members.iter().filter_map(|vmid| state.vms.get(vmid));
    let visible = visible.filter(|vm| call.who.has(state, &format!("/vms/{}", vm.vmid), "VM.Audit"));
    let members = visible.map(|vm| {
        let known = state.statistics[0].get(&vm.vmid);
        let mut row = json!({ "id": format!("qemu/{}", vm.vmid), "type": "qemu", "vmid": vm.vmid, "node": vm.node, "status": "unknown" });
        for (key, value) in known.and_then(Value::as_object).into_iter().flatten() {
            row[key] = value.clone();
        }
        row
    });
    Ok(json!({ "comment": pool.comment, "members": members.collect::<Vec<_>>() }))
}
