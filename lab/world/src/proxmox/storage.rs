//! Calls about storages.

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    spec::{StorageKind, StorageSpec},
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
        let unknown = |_| Refusal::parameter("storage", "No such storage.");
        let known = call.path.get("storage").is_some_and(|id| state.storages.contains_key(id));
        let storage =
            if known { readable(&state, call)? } else { readable(&state, call).map_err(unknown)? };
        Ok(status(&state, storage, call.node()).into())
    }

    pub(super) fn storage_content(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        let storage = readable(&state, call)?;
        let place = state.place(&storage.id, call.node());
        let (only, kind) = (call.params.vmid("vmid"), call.params.text("content"));
        let on_storage = |privilege| call.who.has(&state, &format!("/storage/{}", storage.id), privilege);
        let may_see = |vmid: u32| {
            on_storage("Datastore.Allocate")
                || on_storage("Datastore.Audit")
                    && call.who.has(&state, &format!("/vms/{vmid}"), "VM.Config.Disk")
        };
        let volumes = state
            .volumes
            .iter()
            .filter(|((_, at), volume)| *at == place && volume.storage == storage.id)
            .filter(|(_, volume)| only.is_none_or(|only| only == volume.vmid) && may_see(volume.vmid))
            .filter(|_| kind.as_deref().is_none_or(|kind| kind == "images"));
        let images = volumes.map(|((volid, _), volume)| {
            json!({
                "volid": volid, "format": volume.format, "size": volume.size, "vmid": volume.vmid, "content": "images",
                "used": volume.used(), "ctime": volume.ctime,
                "parent": volume.shown_parent(storage.kind.is_file_based()),
            })
        });
        let mut rows: Vec<Value> = images.collect();
        rows.extend(state.file_rows(&storage.id, call.node(), kind.as_deref()));
        Ok(Value::Array(rows).into())
    }

    pub(super) fn storage_configs(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let visible = state.storages.values().filter(|storage| {
            READERS.iter().any(|p| call.who.has(&state, &format!("/storage/{}", storage.id), p))
        });
        let rows = visible.map(|storage| {
            let mut row = json!({
                "storage": storage.id, "type": storage.kind.plugin(), "content": storage.content,
                "digest": "255dc41da4fe2a64265b4c384da63a491fb27a37",
            });
            // Storage types that are always shared have no `shared` flag.
            if storage.shared && matches!(storage.kind, StorageKind::Dir | StorageKind::Lvm) {
                row["shared"] = 1.into();
            }
            if storage.kind.is_file_based() {
                let local = storage.id == "local";
                row["path"] =
                    if local { "/var/lib/vz".into() } else { format!("/mnt/{}", storage.id).into() };
                if local {
                    row["prune-backups"] = "keep-all=1".into();
                }
            }
            if !storage.hosts.is_empty() {
                row["nodes"] = storage.hosts.join(",").into();
            }
            row
        });
        Value::Array(rows.collect()).into()
    }
}

fn readable<'s>(state: &'s State, call: &ApiCall) -> Result<&'s StorageSpec, Refusal> {
    let id = call.path.get("storage").map_or("", String::as_str);
    call.who.need(state, &format!("/storage/{id}"), READERS)?;
    let known = state.storages.get(id);
    let known = known.ok_or_else(|| Refusal::failed(format!("storage '{id}' does not exist")))?;
    if known.is_on(call.node()) {
        return Ok(known);
    }
    Err(Refusal::failed(format!("storage '{id}' is not available on node '{}'", call.node())))
}

fn status(state: &State, storage: &StorageSpec, node: &str) -> Value {
    let used = state.storage_shown(storage, node);
    json!({
        "type": storage.kind.plugin(), "content": storage.content, "enabled": 1, "active": 1, "shared": i32::from(storage.shared),
        "total": storage.size, "used": used, "avail": storage.size.saturating_sub(used),
    })
}

fn f64_of(value: &Value) -> f64 {
    value.as_f64().unwrap_or(1.0)
}
