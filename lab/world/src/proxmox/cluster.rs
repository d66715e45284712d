//! Calls about the cluster and its hosts, with the delays and filters of the real server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    state::State,
};

impl Pve {
    pub(super) fn version(&self) -> Answer {
        let version = self.state().version.clone();
        let release: Vec<&str> = version.split('.').take(2).collect();
        json!({ "version": version, "release": release.join("."), "repoid": "14a22df35955d97d" }).into()
    }

    /// Returns the privileges by path, and whether paths below inherit them. If the caller asks for a
    /// specific path, that path is listed even without privileges.
    pub(super) fn permissions(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let asked = call.params.text("path");
        let all = || {
            let granted = state.access.grants.iter().map(|grant| grant.path.clone());
            let members = state.pools.values().flat_map(|pool| &pool.members);
            granted.chain(members.map(|vmid| format!("/vms/{vmid}"))).collect()
        };
        let paths: BTreeSet<String> = asked.clone().map_or_else(all, |path| [path].into());
        let mut answer = serde_json::Map::new();
        for path in paths {
            let held: serde_json::Map<String, Value> = call
                .who
                .all(&state, &path)
                .into_iter()
                .map(|(privilege, goes_on)| (privilege, i32::from(goes_on).into()))
                .collect();
            if !held.is_empty() || asked.is_some() {
                answer.insert(path, held.into());
            }
        }
        Value::Object(answer).into()
    }

    /// Simulates a report of pvestatd, after which lists show the current state of the VMs.
    pub(super) fn beat(&self) {
        let mut state = self.state();
        let mut now = state.statistics[0].clone();
        // VMs keep their last reported values while their host is down, and for a while after its pvestatd
        // falls silent.
        let speaks = |node: &str| {
            state.hosts.get(node).is_some_and(|host| host.online) && !state.silent.contains_key(node)
        };
        now.retain(|vmid, _| state.vms.get(vmid).is_some_and(|vm| !speaks(&vm.node)));
        for vm in state.vms.values().filter(|vm| speaks(&vm.node)) {
            let row = vm.summary(false);
            let mut kept = json!({
                "template": i32::from(vm.is_template()), "maxcpu": row["cpus"], "diskread": 0, "diskwrite": 0,
            });
            for key in [
                "name", "status", "cpu", "maxmem", "mem", "memhost", "disk", "maxdisk", "netin", "netout",
                "uptime",
            ] {
                kept[key] = row[key].clone();
            }
            now.insert(vm.vmid, kept);
        }
        state.statistics.swap(0, 1);
        state.statistics[0] = now;
        state.beat_at = Some(tokio::time::Instant::now());
    }

    pub(super) fn resources(&self, call: &ApiCall) -> Answer {
        let mut state = self.state();
        // Another pveproxy worker may return the values of the previous report for a few seconds.
        let fresh = state.beat_at.is_none_or(|at| at.elapsed().as_secs() >= 3);
        let generation = usize::from(!fresh && state.random.bool());
        let wanted = call.params.text("type");
        let wants = |kind: &str| wanted.as_deref().is_none_or(|wanted| wanted == kind);
        let mut rows = Vec::new();
        if wanted.is_none() {
            for pool in
                state.pools.keys().filter(|pool| call.who.has(&state, &format!("/pool/{pool}"), "Pool.Audit"))
            {
                let mut row = json!({ "type": "pool", "pool": pool, "id": format!("/pool/{pool}") });
                sum(&state, pool, &mut row);
                rows.push(row);
            }
        }
        if wants("vm") {
            rows.extend(vm_rows(&state, call, generation));
        }
        if wants("node") {
            rows.extend(state.hosts.keys().filter(|name| state.knows(name)).map(|name| {
                let mut row = node_row(&state, call, name);
                if row["status"] == "online" {
                    row["cgroup-mode"] = 2.into();
                }
                row
            }));
        }
        if wants("storage") {
            for storage in state.storages.values() {
                if !call.who.has(&state, &format!("/storage/{}", storage.id), "Datastore.Audit") {
                    continue;
                }
                for node in state.hosts.keys().filter(|node| storage.is_on(node) && state.knows(node)) {
                    if state.is_silent(node) {
                        rows.push(json!({
                            "id": format!("storage/{node}/{}", storage.id), "type": "storage", "storage": storage.id, "node": node,
                            "status": "unknown", "plugintype": storage.kind.plugin(), "content": storage.content,
                            "shared": i32::from(storage.shared),
                        }));
                        continue;
                    }
                    rows.push(json!({
                        "id": format!("storage/{node}/{}", storage.id), "type": "storage", "storage": storage.id, "node": node,
                        "status": "available", "plugintype": storage.kind.plugin(), "content": storage.content,
                        "shared": i32::from(storage.shared), "disk": state.storage_shown(storage, node), "maxdisk": storage.size,
                    }));
                }
            }
        }
        Value::Array(rows).into()
    }

    pub(super) fn next_id(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        match call.params.vmid("vmid") {
            Some(vmid) if state.vms.get(&vmid).is_some_and(|vm| state.knows(&vm.node)) => {
                Err(Refusal::parameter("vmid", format!("VM {vmid} already exists")))
            }
            Some(vmid) => Ok(Value::from(vmid.to_string()).into()),
            None => {
                let free = (100u32..1_000_000).find(|id| !state.vms.contains_key(id));
                free.map(|id| Value::from(id.to_string()).into())
                    .ok_or_else(|| Refusal::failed("unable to get any free VMID"))
            }
        }
    }

    pub(super) fn cluster_status(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        call.who.need(&state, "/", &["Sys.Audit"])?;
        let mut rows = Vec::new();
        if let Some(name) = state.name.as_ref().filter(|_| state.without_corosync.is_none()) {
            rows.push(json!({
                "type": "cluster", "id": "cluster", "name": name, "nodes": state.hosts.len(), "version": state.hosts.len(),
                "quorate": i32::from(state.quorate()),
            }));
        }
        let known = state.hosts.iter().filter(|(name, _)| state.knows(name));
        for (number, (name, host)) in known.enumerate() {
            let mut row = json!({
                "type": "node", "id": format!("node/{name}"), "name": name, "nodeid": number + 1,
                "local": i32::from(number == 0), "online": i32::from(host.seems_online()), "level": "",
            });
            if !host.never_up {
                row["ip"] = host.spec.address.clone().into();
            }
            rows.push(row);
        }
        Ok(Value::Array(rows).into())
    }

    pub(super) fn cluster_options(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let rules = &state.tags;
        let mut answer = json!({ "allowed-tags": rules.allowed(&state, &call.who) });
        if call.who.has(&state, "/", "Sys.Audit") {
            answer["mac_prefix"] = "BC:24:11".into();
            if !rules.user_allow.is_empty() {
                answer["user-tag-access"] =
                    json!({ "user-allow": rules.user_allow, "user-allow-list": rules.user_allow_list });
            }
            if !rules.registered.is_empty() {
                answer["registered-tags"] = json!(rules.registered);
            }
        }
        answer.into()
    }

    pub(super) fn nodes(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let rows = state.hosts.keys().map(|name| {
            let mut row = node_row(&state, call, name);
            row["ssl_fingerprint"] = vec!["6E"; 32].join(":").into();
            row
        });
        Value::Array(rows.collect()).into()
    }

    pub(super) fn node_time(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        call.who.need(&self.state(), &format!("/nodes/{}", call.node()), &["Sys.Audit"])?;
        let now = self.now().as_second();
        Ok(json!({ "time": now, "localtime": now, "timezone": "UTC" }).into())
    }

    pub(super) fn node_status(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        let node = call.node();
        call.who.need(&state, &format!("/nodes/{node}"), &["Sys.Audit"])?;
        let host = state.hosts.get(node).ok_or_else(|| Refusal::failed("no such cluster node"))?;
        let used = memory_used(&state, node);
        let total = host.spec.memory;
        Ok(json!({
            "uptime": 4672 + host.booted.elapsed().as_secs(), "idle": 0, "wait": 0, "cpu": 0.05, "loadavg": ["0.10", "0.20", "0.30"],
            "cpuinfo": { "model": "AMD EPYC", "vendor": "AuthenticAMD", "family": "25", "mhz": "2596.142", "cpus": host.spec.cores,
                "cores": host.spec.cores / 2, "sockets": 1, "flags": "fpu", "hvm": "1", "user_hz": 100 },
            "memory": { "total": total, "used": used, "free": total.saturating_sub(used), "available": total.saturating_sub(used) },
            "swap": { "total": 0, "used": 0, "free": 0 }, "ksm": { "shared": 0 },
            "rootfs": { "total": 270_553_174_016_u64, "used": 34_335_944_704_u64, "avail": 63_236_804_608_u64, "free": 236_217_229_312_u64 },
            "pveversion": format!("pve-manager/{}/14a22df35955d97d", state.version),
            "kversion": "Linux 6.17.13-1-pve #1 SMP PREEMPT_DYNAMIC PMX 6.17.13-1 (2026-07-01T00:00Z)",
            "current-kernel": { "sysname": "Linux", "release": "6.17.13-1-pve", "machine": "x86_64", "version": "#1 SMP" },
            "boot-info": { "mode": "efi", "secureboot": 0 },
        })
        .into())
    }

    pub(super) fn network(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let filter = call.params.text("type");
        let mut rows = Vec::new();
        let Some(host) = state.hosts.get(call.node()) else { return json!([]).into() };
        for (number, bridge) in host.spec.bridges.iter().enumerate() {
            let path = format!("/sdn/zones/localnetwork/{bridge}");
            // A privilege on one of the bridge's VLANs is enough (`check_sdn_bridge`).
            let below = format!("{path}/");
            let vlans = state.access.grants.iter().map(|grant| &grant.path);
            let paths: Vec<&String> = vlans.filter(|vlan| vlan.starts_with(&below)).chain([&path]).collect();
            let may = |privilege| paths.iter().any(|path| call.who.has(&state, path, privilege));
            let seen = may("SDN.Audit") || may("SDN.Use");
            if seen && wanted(filter.as_deref(), "bridge") {
                rows.push(json!({
                    "iface": bridge, "type": "bridge", "active": 1, "autostart": 1, "priority": number * 2 + 4,
                    "method": "static", "method6": "manual", "families": ["inet"], "bridge_ports": format!("eth{number}"),
                    "bridge_stp": "off", "bridge_fd": "0", "address": host.spec.address, "netmask": "24",
                    "cidr": format!("{}/24", host.spec.address), "gateway": "10.10.0.1",
                }));
            }
            if wanted(filter.as_deref(), "eth") {
                rows.push(json!({
                    "iface": format!("eth{number}"), "type": "eth", "active": 1, "priority": number * 2 + 3,
                    "method": "manual", "method6": "manual", "families": ["inet"],
                }));
            }
        }
        Value::Array(rows).into()
    }

    pub(super) fn node_vms(&self, call: &ApiCall) -> Answer {
        let full = call.params.flag("full");
        let state = self.state();
        let visible = state.vms.values().filter(|vm| {
            vm.node == call.node() && call.who.has(&state, &format!("/vms/{}", vm.vmid), "VM.Audit")
        });
        Value::Array(visible.map(|vm| vm.summary(full)).collect()).into()
    }
}

/// Whether a filter of the `network` call includes interfaces of this type.
fn wanted(filter: Option<&str>, kind: &str) -> bool {
    match filter {
        None | Some("include_sdn") => true,
        Some("any_bridge" | "any_local_bridge") => kind == "bridge" || kind == "OVSBridge",
        Some(filter) => filter == kind,
    }
}

fn vm_rows(state: &State, call: &ApiCall, generation: usize) -> Vec<Value> {
    let known = state.vms.values().filter(|vm| state.knows(&vm.node));
    let visible = known.filter(|vm| call.who.has(state, &format!("/vms/{}", vm.vmid), "VM.Audit"));
    let rows = visible.map(|vm| {
        let vmid = vm.vmid;
        let mut row = json!({ "id": format!("qemu/{vmid}"), "type": "qemu", "vmid": vmid, "node": vm.node, "status": "unknown" });
        let known = state.statistics[generation].get(&vmid).filter(|_| !state.is_silent(&vm.node));
        if let Some(Value::Object(known)) = known {
            for (key, value) in known {
                row[key] = value.clone();
            }
        }
        for key in ["tags", "lock"] {
            if let Some(value) = vm.get(key) {
                row[key] = value.into();
            }
        }
        if let Some(pool) = state.pool_of(vmid).filter(|pool| call.who.has(state, &format!("/pool/{pool}"), "Pool.Audit")) {
            row["pool"] = pool.into();
        }
        row
    });
    rows.collect()
}

/// Adds the totals of a pool's running guests to its row. Adds nothing if none runs.
fn sum(state: &State, pool: &str, row: &mut Value) {
    let of_pool =
        state.vms.values().filter(|vm| vm.machine.is_some() && state.pool_of(vm.vmid) == Some(pool));
    let guests: Vec<Value> = of_pool.map(|vm| vm.summary(false)).collect();
    if guests.is_empty() {
        return;
    }
    let number = |guest: &Value, key: &str| guest[key].as_u64().unwrap_or(0);
    for (key, of) in [("maxcpu", "cpus"), ("maxmem", "maxmem"), ("mem", "mem")] {
        row[key] = guests.iter().map(|guest| number(guest, of)).sum::<u64>().into();
    }
    row["uptime"] = guests.iter().map(|guest| number(guest, "uptime")).max().unwrap_or(0).into();
    row["cpu"] = guests.iter().filter_map(|guest| guest["cpu"].as_f64()).sum::<f64>().into();
}

fn memory_used(state: &State, node: &str) -> u64 {
    let host = state.hosts.get(node).map_or(0, |host| host.spec.memory_used);
    let running = state.vms.values().filter(|vm| vm.node == node && vm.machine.is_some());
    host + running.map(super::vm::Vm::memory).sum::<u64>()
}

fn node_row(state: &State, call: &ApiCall, name: &str) -> Value {
    let online = state.hosts.get(name).is_some_and(super::state::Host::seems_online);
    let mut row = json!({
        "id": format!("node/{name}"), "type": "node", "node": name, "status": if online { "online" } else { "offline" }, "level": "",
    });
    // A host that was never up has never reported anything.
    if state.hosts.get(name).is_some_and(|host| host.never_up) {
        row.as_object_mut().into_iter().for_each(|members| drop(members.remove("level")));
        return row;
    }
    // The HA manager reports a host's HA state even if the host's pvestatd is silent.
    if let Some(host) = state.hosts.get(name).filter(|_| online && state.ha_runs) {
        row["hastate"] = if host.maintenance { "maintenance" } else { "online" }.into();
    }
    if online && state.is_silent(name) {
        row["status"] = "unknown".into();
        row["cgroup-mode"] = 2.into();
        if let Some(members) = row.as_object_mut() {
            members.remove("level");
        }
        return row;
    }
    if let (Some(host), true) =
        (state.hosts.get(name), call.who.has(state, &format!("/nodes/{name}"), "Sys.Audit"))
    {
        row["maxcpu"] = host.spec.cores.into();
        row["maxmem"] = host.spec.memory.into();
        row["maxdisk"] = 270_553_174_016_u64.into();
        if !online {
            return row;
        }
        row["cpu"] = 0.05.into();
        row["mem"] = memory_used(state, name).into();
        row["disk"] = 34_331_557_888_u64.into();
        row["uptime"] = (4672 + host.booted.elapsed().as_secs()).into();
    }
    row
}
