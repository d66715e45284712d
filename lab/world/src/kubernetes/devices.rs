//! Allocates devices to the pods' ResourceClaims. As in kube-scheduler, the requested number of devices of a
//! class is taken from the node's ResourceSlices.
//!
//! The only selector that a class may have is `device.driver == "…"`. A pod must name its claims directly. A
//! pod with any other kind of request fits no node.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    fit::Misfit,
    kinds::{DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE},
    object::{self, Key, list, text},
    state::State,
};

/// A device: its driver, its pool and its name.
type Device = (String, String, String);

/// The devices that are allocated to one claim.
#[derive(Debug)]
struct Allocated {
    claim: Key,
    /// The devices, each with the name of its request.
    devices: Vec<(String, Device)>,
}

impl State {
    /// Checks that the node has the devices for all claims of the pod.
    pub(super) fn has_devices(&self, pod: &Value, node: &str) -> Result<(), Misfit> {
        self.allocate(pod, node).map(drop).map_err(|reason| Misfit::hopeless(&reason))
    }

    /// Allocates devices of the node to the claims of a pod, and reserves the claims for the pod.
    pub(super) fn take_devices(&mut self, pod: &Value, node: &str) {
        let user = json!({ "resource": "pods", "name": object::name(pod), "uid": object::uid(pod) });
        for one in self.allocate(pod, node).unwrap_or_default() {
            let result = |(request, (driver, pool, device)): &(String, Device)| json!({ "request": request, "driver": driver, "pool": pool, "device": device });
            let results: Vec<Value> = one.devices.iter().map(result).collect();
            let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
            let terms = json!([{ "matchFields": [field] }]);
            self.edit(&RESOURCE_CLAIM, &one.claim, |claim| {
                if claim["status"]["allocation"].is_null() {
                    claim["status"]["allocation"] = json!({
                        "devices": { "results": results },
                        "nodeSelector": { "nodeSelectorTerms": terms },
                    });
                }
                let mut users = list(claim, "/status/reservedFor").to_vec();
                users.push(user.clone());
                claim["status"]["reservedFor"] = json!(users);
            });
        }
    }

    /// Removes a deleted pod from its claims, and releases the devices of claims that no other pod uses.
    pub(super) fn give_devices_back(&mut self, pod: &Value) {
        for one in list(pod, "/spec/resourceClaims") {
            let claim = (object::namespace(pod).to_owned(), text(one, "/resourceClaimName").to_owned());
            self.edit(&RESOURCE_CLAIM, &claim, |claim| {
                let mut users = list(claim, "/status/reservedFor").to_vec();
                users.retain(|user| text(user, "/uid") != object::uid(pod));
                if users.is_empty() {
                    claim["status"] = json!({});
                } else {
                    claim["status"]["reservedFor"] = json!(users);
                }
            });
        }
    }

    /// The devices that each claim of the pod would receive on a node. The list is empty for a claim that is
    /// already allocated.
    fn allocate(&self, pod: &Value, node: &str) -> Result<Vec<Allocated>, String> {
        let names: Vec<&str> =
            list(pod, "/spec/resourceClaims").iter().map(|one| text(one, "/resourceClaimName")).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut used: BTreeSet<Device> =
            self.store.all(&RESOURCE_CLAIM).flat_map(|one| devices_of(one)).collect();
        let mut all = Vec::new();
        for name in names {
            let namespace = object::namespace(pod);
            let claim = self.store.get(&RESOURCE_CLAIM, namespace, name);
            let claim = claim.ok_or_else(|| format!("resourceclaim \"{name}\" not found"))?;
            let mut devices = Vec::new();
            if claim["status"]["allocation"].is_null() {
                for request in list(&claim, "/spec/devices/requests") {
                    self.choose(request, node, &mut used, &mut devices)?;
                }
            } else if !devices_of(&claim).iter().all(|device| self.reaches(device, node)) {
                return Err("resourceclaim not available on the node".into());
            }
            all.push(Allocated { claim: (namespace.to_owned(), name.to_owned()), devices });
        }
        Ok(all)
    }

    fn choose(
        &self,
        request: &Value,
        node: &str,
        used: &mut BTreeSet<Device>,
        devices: &mut Vec<(String, Device)>,
    ) -> Result<(), String> {
        let class = self.store.get(&DEVICE_CLASS, "", text(request, "/exactly/deviceClassName"));
        let driver = class.as_deref().and_then(driver_of).ok_or("cannot allocate all claims")?;
        let wanted = request["exactly"]["count"].as_u64().unwrap_or(1);
        for _ in 0..wanted {
            let free = self.on(node, &driver).into_iter().find(|device| !used.contains(device));
            let device = free.ok_or("cannot allocate all claims")?;
            used.insert(device.clone());
            devices.push((text(request, "/name").to_owned(), device));
        }
        Ok(())
    }

    /// The devices of a driver on a node.
    fn on(&self, node: &str, driver: &str) -> Vec<Device> {
        let here = |slice: &&std::sync::Arc<Value>| {
            text(slice, "/spec/nodeName") == node && text(slice, "/spec/driver") == driver
        };
        let devices = |slice: &std::sync::Arc<Value>| {
            let pool = text(slice, "/spec/pool/name").to_owned();
            let device = |one: &Value| (driver.to_owned(), pool.clone(), text(one, "/name").to_owned());
            list(slice, "/spec/devices").iter().map(device).collect::<Vec<_>>()
        };
        self.store.all(&RESOURCE_SLICE).filter(here).flat_map(devices).collect()
    }

    fn reaches(&self, device: &Device, node: &str) -> bool {
        self.on(node, &device.0).contains(device)
    }
}

/// The devices that are allocated for a claim.
fn devices_of(claim: &Value) -> Vec<Device> {
    let part = |one: &Value, of: &str| text(one, of).to_owned();
    let all = list(claim, "/status/allocation/devices/results").iter();
    all.map(|one| (part(one, "/driver"), part(one, "/pool"), part(one, "/device"))).collect()
}

/// The driver that a class selects.
fn driver_of(class: &Value) -> Option<String> {
    let [selector] = list(class, "/spec/selectors") else { return None };
    let expression = text(selector, "/cel/expression").strip_prefix("device.driver == \"")?;
    Some(expression.strip_suffix('"')?.to_owned())
}
