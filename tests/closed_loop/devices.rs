//! Random clusters with devices, classes and claims. They are used only to compare filters.

use serde_json::{Map, Value, json};

use crate::worlds::{Draw, HOSTNAME};

const DRIVERS: [&str; 2] = ["gpu.example.com", "nic.example.com"];
/// CEL expressions for device selectors. Some of them have no result for devices that lack the attribute.
const SELECTORS: [&str; 21] = [
    r#"device.driver == "gpu.example.com""#,
    r#"device.attributes["gpu.example.com"].model == "a""#,
    r#"has(device.attributes["gpu.example.com"].model) && device.attributes["gpu.example.com"].model in ["b", "c"]"#,
    r#"device.attributes["gpu.example.com"].?index.orValue(0) > 0"#,
    r#"device.capacity["gpu.example.com"].mem.compareTo(quantity("20Gi")) >= 0"#,
    r#""mem" in device.capacity[device.driver] && device.capacity[device.driver].mem.isGreaterThan(quantity("10Gi"))"#,
    r#"cel.bind(g, device.attributes["gpu.example.com"], has(g.ok) && g.ok)"#,
    r#"has(device.attributes["gpu.example.com"].ver) ? device.attributes["gpu.example.com"].ver.isLessThan(semver("1.5.0")) : true"#,
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    r#"device.attributes["example.org"].numa == 0"#,
    r#"device.attributes["gpu.example.com"].exists(k, k == "index")"#,
    r#"device.attributes["gpu.example.com"].model.startsWith("a") || device.driver == "nic.example.com""#,
    r#"device.driver.matches("^(gpu|nic)\\.")"#,
    r#"device.attributes["gpu.example.com"].index != "1""#,
    r#"device.attributes["gpu.example.com"].all(k, size(k) > 1)"#,
    r#"device.attributes["gpu.example.com"].ver == semver("1.0.0")"#,
    r#"device.attributes["gpu.example.com"].model.upperAscii() == "A""#,
    "device.attributes.size() > 0",
    r#"int(device.attributes["gpu.example.com"].index) % 2 == 1"#,
    r#"["a", "z"].exists_one(x, x == device.attributes["gpu.example.com"].model)"#,
];

/// Generates the cluster for this seed.
pub fn draw(seed: u64) -> Vec<Value> {
    let mut world = World {
        draw: Draw(fastrand::Rng::with_seed(seed)),
        objects: Vec::new(),
        nodes: Vec::new(),
        devices: Vec::new(),
        classes: Vec::new(),
        claims: Vec::new(),
    };
    world.add_nodes();
    world.add_pools();
    world.add_classes();
    world.add_running();
    world.add_waiting();
    if world.draw.percent(20) {
        let node = world.draw.of(&["n0", "n1"]);
        let selector = world.draw.index(3);
        let selector =
            [json!({"driver": DRIVERS[0]}), json!({"driver": DRIVERS[0], "pool": node}), json!({})][selector]
                .clone();
        let spec = json!({"deviceSelector": selector, "taint": {"key": "t", "effect": "NoSchedule"}});
        world.add("DeviceTaintRule", json!({"name": "rule"}), json!({"spec": spec}));
    }
    world.objects
}

struct World {
    draw: Draw,
    objects: Vec<Value>,
    nodes: Vec<String>,
    /// Each device's driver, pool and name, and whether it can be shared.
    devices: Vec<(String, String, String, bool)>,
    classes: Vec<&'static str>,
    claims: Vec<String>,
}

impl World {
    /// Adds a `resource.k8s.io` object with this metadata and these other fields.
    fn add(&mut self, kind: &str, metadata: Value, mut fields: Value) {
        fields["apiVersion"] = json!("resource.k8s.io/v1");
        fields["kind"] = json!(kind);
        fields["metadata"] = metadata;
        self.objects.push(fields);
    }

    fn node(&mut self) -> String {
        let at = self.draw.index(self.nodes.len());
        self.nodes[at].clone()
    }

    fn zone(&mut self) -> Value {
        let zone = self.draw.of(&["a", "b"]);
        json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]})
    }

    fn add_nodes(&mut self) {
        for number in 0..self.draw.of(&[2, 3, 4]) {
            let name = format!("n{number}");
            let mut offers = json!({"cpu": "8", "memory": "16Gi", "pods": "20"});
            if self.draw.percent(20) {
                offers["example.com/gpu"] = json!(self.draw.of(&["0", "1", "2"]));
            }
            let labels = json!({HOSTNAME: name, "zone": self.draw.of(&["a", "b"])});
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let status = json!({"allocatable": offers, "capacity": offers, "conditions": ready});
            let metadata = json!({"name": name, "labels": labels});
            self.objects
                .push(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}));
            self.nodes.push(name);
        }
    }

    fn add_pools(&mut self) {
        for node in self.nodes.clone() {
            if self.draw.percent(85) {
                self.add_pool(DRIVERS[0], &node, Some(&json!({"nodeName": node})));
            }
        }
        if self.draw.percent(30) {
            self.add_pool(DRIVERS[1], "fabric", Some(&json!({"allNodes": true})));
        }
        if self.draw.percent(30) {
            let zone = self.zone();
            self.add_pool(DRIVERS[1], "zonal", Some(&json!({"nodeSelector": zone})));
        }
        if self.draw.percent(30) {
            self.add_pool(DRIVERS[1], "mixed", None);
        }
    }

    /// Adds a pool of devices. If `reach` is `None`, each device has its own node selection.
    fn add_pool(&mut self, driver: &str, name: &str, reach: Option<&Value>) {
        let counts = self.draw.percent(30);
        let slices = self.draw.of(&[1, 1, 2]);
        let generation = self.draw.of(&[1, 1, 2]);
        let total = slices + usize::from(counts) + usize::from(self.draw.percent(8));
        let pool = json!({"name": name, "generation": generation, "resourceSliceCount": total});
        let spec = |reach: Value, pool: &Value, more: (&str, Value)| {
            let mut spec = reach;
            spec["driver"] = json!(driver);
            spec["pool"] = pool.clone();
            spec[more.0] = more.1;
            json!({"spec": spec})
        };
        let own = reach.cloned().unwrap_or_else(|| json!({"perDeviceNodeSelection": true}));
        let mut number = 0;
        for _ in 0..slices {
            let mut devices = Vec::new();
            for _ in 0..self.draw.of(&[1, 2, 3]) {
                let device = self.device(number, counts, reach.is_none());
                let shared = device["allowMultipleAllocations"] == json!(true);
                self.devices.push((driver.to_owned(), name.to_owned(), format!("d{number}"), shared));
                devices.push(device);
                number += 1;
            }
            let named = self.slice_name();
            self.add("ResourceSlice", named, spec(own.clone(), &pool, ("devices", json!(devices))));
        }
        if counts {
            let slots = self.draw.of(&["1", "2", "3", "4", "6"]);
            let sets = json!([{"name": "cs", "counters": {"slots": {"value": slots}}}]);
            let everywhere = reach.cloned().unwrap_or_else(|| json!({"allNodes": true}));
            let named = self.slice_name();
            self.add("ResourceSlice", named, spec(everywhere, &pool, ("sharedCounters", sets)));
        }
        if generation == 2 && self.draw.percent(40) {
            let old = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
            let device = self.device(99, false, reach.is_none());
            let named = self.slice_name();
            self.add("ResourceSlice", named, spec(own, &old, ("devices", json!([device]))));
        }
    }

    fn slice_name(&mut self) -> Value {
        let letter = self.draw.of(&["x", "y", "z"]);
        json!({"name": format!("{letter}-{}", self.objects.len())})
    }

    fn device(&mut self, number: usize, counts: bool, reaches: bool) -> Value {
        let mut device = json!({"name": format!("d{number}"), "attributes": self.attributes()});
        if self.draw.percent(50) {
            device["capacity"] = json!({"mem": {"value": self.draw.of(&["10Gi", "20Gi", "40Gi"])}});
            if self.draw.percent(50) {
                device["allowMultipleAllocations"] = json!(true);
                let policy = match self.draw.index(4) {
                    0 => json!({"default": "5Gi", "validRange": {"min": "1Gi", "max": "16Gi"}}),
                    1 => {
                        json!({"default": "5Gi", "validRange": {"min": "1Gi", "max": "16Gi", "step": "2Gi"}})
                    }
                    2 => json!({"default": "4Gi", "validValues": ["4Gi", "8Gi"]}),
                    _ => Value::Null,
                };
                if !policy.is_null() {
                    device["capacity"]["mem"]["requestPolicy"] = policy;
                }
            }
        } else if self.draw.percent(20) {
            device["allowMultipleAllocations"] = json!(true);
        }
        if self.draw.percent(20) {
            let effect = self.draw.of(&["NoSchedule", "NoExecute", "None"]);
            device["taints"] = json!([{"key": "t", "value": self.draw.of(&["", "v"]), "effect": effect}]);
        }
        if counts && self.draw.percent(80) {
            let slots = self.draw.of(&["1", "2", "3"]);
            device["consumesCounters"] =
                json!([{"counterSet": "cs", "counters": {"slots": {"value": slots}}}]);
        }
        if self.draw.percent(10) {
            device["bindingConditions"] = json!(["x"]);
            device["bindingFailureConditions"] = json!(["y"]);
        }
        if self.draw.percent(10) {
            device["bindsToNode"] = json!(true);
        }
        if reaches {
            match self.draw.index(4) {
                0 => device["allNodes"] = json!(true),
                1 => device["nodeSelector"] = self.zone(),
                _ => device["nodeName"] = json!(self.node()),
            }
        }
        device
    }

    fn attributes(&mut self) -> Value {
        let all = [
            (90, "model", json!({"string": self.draw.of(&["a", "b"])})),
            (80, "index", json!({"int": self.draw.index(4)})),
            (50, "ok", json!({"bool": self.draw.percent(60)})),
            (50, "ver", json!({"version": self.draw.of(&["1.0.0", "1.2.0", "2.0.0-rc.1"])})),
            (60, "example.org/numa", json!({"int": self.draw.index(2)})),
        ];
        let kept = all.into_iter().filter(|one| self.draw.percent(one.0));
        Value::Object(kept.map(|(_, name, value)| (name.to_owned(), value)).collect())
    }

    fn selectors(&mut self) -> Value {
        let mut all = Vec::new();
        while all.len() < 2 && self.draw.percent(30) {
            all.push(json!({"cel": {"expression": self.draw.of(&SELECTORS)}}));
        }
        json!(all)
    }

    fn add_classes(&mut self) {
        let extended = self.draw.index(5);
        for (number, name) in ["c0", "c1", "c2"].into_iter().enumerate().take(self.draw.of(&[1, 2, 3])) {
            let mut spec = json!({"selectors": self.selectors()});
            if self.draw.percent(70) {
                let expression =
                    format!("device.driver == \"{}\"", self.draw.of(&[DRIVERS[0], DRIVERS[0], DRIVERS[1]]));
                spec["selectors"] = json!([{"cel": {"expression": expression}}]);
            }
            // Only one class provides the extended resource. If two classes did, the scheduler's choice would
            // depend on the order in which it had seen them.
            if number == extended {
                spec["extendedResourceName"] = json!("example.com/gpu");
            }
            self.add("DeviceClass", json!({"name": name}), json!({"spec": spec}));
            self.classes.push(name);
        }
    }

    fn ask(&mut self) -> Value {
        let class =
            if self.draw.percent(4) { "gone" } else { self.classes[self.draw.index(self.classes.len())] };
        let mut ask = json!({"deviceClassName": class, "selectors": self.selectors()});
        if self.draw.percent(20) {
            ask["allocationMode"] = json!("All");
        } else if self.draw.percent(50) {
            ask["count"] = json!(self.draw.of(&[1, 2, 3]));
        }
        if self.draw.percent(25) {
            let amount = self.draw.of(&["1Gi", "3Gi", "4Gi", "9Gi", "20Gi", "0"]);
            ask["capacity"] = json!({"requests": {"mem": amount}});
        }
        if self.draw.percent(30) {
            let all = [
                json!({"operator": "Exists"}),
                json!({"key": "t", "operator": "Exists", "effect": "NoSchedule"}),
                json!({"key": "t", "operator": "Equal", "value": "v"}),
                json!({"key": "t", "value": ""}),
            ];
            ask["tolerations"] = json!([all[self.draw.index(4)]]);
        }
        ask
    }

    fn request(&mut self, number: usize) -> Value {
        let name = format!("r{number}");
        if self.draw.percent(25) {
            let mut all = Vec::new();
            for at in 0..self.draw.of(&[1, 2, 3]) {
                let mut ask = self.ask();
                ask["name"] = json!(format!("s{at}"));
                all.push(ask);
            }
            return json!({"name": name, "firstAvailable": all});
        }
        let mut ask = self.ask();
        if self.draw.percent(12) {
            ask["adminAccess"] = json!(true);
        }
        json!({"name": name, "exactly": ask})
    }

    fn add_claim(&mut self, name: &str, owner: Option<&str>, status: Value) {
        let mut requests = Vec::new();
        for number in 0..self.draw.of(&[1, 1, 1, 2, 3]) {
            requests.push(self.request(number));
        }
        let mut constraints = Vec::new();
        if self.draw.percent(30) {
            let kind = self.draw.of(&["matchAttribute", "distinctAttribute"]);
            let attribute =
                self.draw.of(&["gpu.example.com/model", "gpu.example.com/index", "example.org/numa"]);
            let mut one = json!({kind: attribute});
            if self.draw.percent(40) {
                let request = &requests[self.draw.index(requests.len())];
                let (name, sub) = (request["name"].as_str().unwrap(), request["firstAvailable"].is_array());
                let name = if sub && self.draw.percent(40) { format!("{name}/s0") } else { name.to_owned() };
                one["requests"] = json!([name]);
            }
            constraints.push(one);
        }
        let mut metadata = json!({"name": name, "namespace": "d", "uid": format!("u-{name}")});
        if let Some(owner) = owner {
            let uid = format!("u-{owner}");
            metadata["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": uid, "controller": true}]);
        }
        let spec = json!({"devices": {"requests": requests, "constraints": constraints}});
        self.add("ResourceClaim", metadata, json!({"spec": spec, "status": status}));
        self.claims.push(name.to_owned());
    }

    fn allocation(&mut self, pod: &str) -> Value {
        let mut results = Vec::new();
        for _ in 0..self.draw.of(&[1, 2]).min(self.devices.len()) {
            let (driver, pool, device, shared) = self.devices[self.draw.index(self.devices.len())].clone();
            let mut one = json!({"request": "r0", "driver": driver, "pool": pool, "device": device});
            if shared {
                one["shareID"] = json!(format!("00000000-0000-4000-8000-{:012}", self.draw.index(1_000_000)));
                one["consumedCapacity"] = json!({"mem": self.draw.of(&["2Gi", "8Gi"])});
            }
            if self.draw.percent(10) {
                one["adminAccess"] = json!(true);
            }
            results.push(one);
        }
        if results.is_empty() {
            return json!({});
        }
        let mut allocation = json!({"devices": {"results": results}});
        if self.draw.percent(70) {
            let node = self.node();
            let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
            allocation["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        } else if self.draw.percent(50) {
            allocation["nodeSelector"] = self.zone();
        }
        json!({"allocation": allocation,
            "reservedFor": [{"resource": "pods", "name": pod, "uid": format!("u-{pod}")}]})
    }

    fn add_pod(
        &mut self,
        name: &str,
        claims: &[Value],
        statuses: &[Value],
        node: Option<String>,
        extended: bool,
    ) {
        let mut requests = Map::new();
        if extended {
            let resource = self.draw.of(&["example.com/gpu", "deviceclass.resource.kubernetes.io/c0"]);
            requests.insert(resource.to_owned(), json!(self.draw.of(&["1", "2"])));
        }
        let resources = json!({"requests": requests, "limits": requests});
        let mut containers = vec![json!({"name": "a", "image": "i", "resources": resources})];
        let mut first = Vec::new();
        if extended && self.draw.percent(40) {
            containers.push(json!({"name": "b", "image": "i", "resources": resources}));
        }
        if extended && self.draw.percent(30) {
            let mut one = json!({"name": "i", "image": "i", "resources": resources});
            for list in ["requests", "limits"] {
                for (_, amount) in one["resources"][list].as_object_mut().unwrap() {
                    *amount = json!("3");
                }
            }
            if self.draw.percent(40) {
                one["restartPolicy"] = json!("Always");
            }
            first.push(one);
        }
        let mut spec = json!({"containers": containers, "initContainers": first, "resourceClaims": claims});
        let mut status = json!({"resourceClaimStatuses": statuses});
        if let Some(node) = node {
            spec["nodeName"] = json!(node);
            status["phase"] = json!("Running");
        }
        let metadata = json!({"name": name, "namespace": "d", "uid": format!("u-{name}")});
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status});
        self.objects.push(pod);
    }

    fn add_running(&mut self) {
        for number in 0..self.draw.of(&[0, 1, 2, 3]) {
            let (claim, pod) = (format!("b{number}"), format!("bp{number}"));
            let allocation = self.allocation(&pod);
            self.add_claim(&claim, None, allocation);
            let node = self.node();
            self.add_pod(&pod, &[json!({"name": "g", "resourceClaimName": claim})], &[], Some(node), false);
        }
    }

    fn add_waiting(&mut self) {
        for number in 0..self.draw.of(&[2, 3, 4, 5]) {
            let pod = format!("p{number}");
            let (mut claims, mut statuses) = (Vec::new(), Vec::new());
            let extended = self.draw.percent(35);
            let without = extended && self.draw.percent(50);
            for at in 0..if without { 0 } else { self.draw.of(&[1, 1, 1, 2]) } {
                let (local, name) = (format!("g{at}"), format!("{pod}-{at}"));
                match self.draw.index(4) {
                    0 if !self.claims.is_empty() => {
                        let shared = self.claims[self.draw.index(self.claims.len())].clone();
                        claims.push(json!({"name": local, "resourceClaimName": shared}));
                    }
                    0 => claims.push(json!({"name": local, "resourceClaimName": "gone"})),
                    1 => {
                        self.add_claim(&name, None, json!({}));
                        claims.push(json!({"name": local, "resourceClaimName": name}));
                    }
                    _ => {
                        let owner = if self.draw.percent(95) { pod.as_str() } else { "other" };
                        self.add_claim(&name, Some(owner), json!({}));
                        claims.push(json!({"name": local, "resourceClaimTemplateName": "t"}));
                        if self.draw.percent(95) {
                            statuses.push(json!({"name": local, "resourceClaimName": name}));
                        }
                    }
                }
            }
            self.add_pod(&pod, &claims, &statuses, None, extended);
        }
    }
}
