//! The supported API calls and their parameters: a built-in table, refined by the official schema if that is
//! available.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use super::{
    formats,
    params::{Kind, Rule, Rules},
};

/// Whether a VM's configuration can contain this key.
pub fn is_config_key(key: &str) -> bool {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = format!("{stem}[n]");
    CONFIG
        .split_whitespace()
        .filter_map(|word| word.split(':').next())
        .any(|name| name == key || name == numbered)
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// Path template below `/api2/json`.
    pub path: &'static str,
    /// Whether the call runs in a blocking worker. Each host has only a few of these workers.
    pub protected: bool,
    /// The rules for the call's parameters, including those in its path.
    pub rules: Rules,
}

/// Config keys that a VM's `config` call accepts: `name:type[:format]`.
const CONFIG: &str = "name:s:dns-name description:s8192 tags:s:pve-tag-list cores:i1 sockets:i1 vcpus:i1 cpulimit:n128 cpuunits:i1 cpu:s \
numa:b numa[n]:s affinity:s memory:s balloon:i0 shares:i0 allow-ksm:b hugepages:s keephugepages:b args:s \
hookscript:s arch:s agent:s boot:s bootdisk:s scsihw:s vga:s serial[n]:s machine:s smbios1:s watchdog:s rng0:s hotplug:s \
tablet:b bios:s onboot:b protection:b ostype:s reboot:b startup:s net[n]:s scsi[n]:s virtio[n]:s sata[n]:s ide[n]:s \
efidisk0:s tpmstate0:s unused[n]:s hostpci[n]:s usb[n]:s ipconfig[n]:s:pve-qm-ipconfig nameserver:s searchdomain:s \
ciuser:s cipassword:s citype:s ciupgrade:b sshkeys:s:urlencoded cicustom:s template:b acpi:b kvm:b localtime:b \
freeze:b autostart:b startdate:s lock:s vmgenid:s vmstatestorage:s delete:s revert:s force:b skiplock:b digest:s40 \
import-working-storage:s tdf:b migrate_speed:i0 migrate_downtime:n keyboard:s audio0:s spice_enhancements:s ivshmem:s \
amd-sev:s parallel[n]:s virtiofs[n]:s";

/// Each call: its method, its path, whether it is protected, and its parameters as `name:type[:format]`. A
/// `!` after the name marks a required parameter.
const CALLS: &[(&str, &str, bool, &str)] = &[
    ("GET", "/version", false, ""),
    ("GET", "/access/permissions", false, "path:s userid:s"),
    ("GET", "/access/roles", false, ""),
    ("POST", "/access/roles", true, "privs:s roleid!:s"),
    ("PUT", "/access/roles/{roleid}", true, "append:b privs:s"),
    ("GET", "/access/users", true, "enabled:b full:b"),
    (
        "POST",
        "/access/users",
        true,
        "comment:s email:s enable:b expire:i0 firstname:s groups:s keys:s lastname:s password:s userid!:s",
    ),
    ("GET", "/access/users/{userid}/token", false, ""),
    ("POST", "/access/users/{userid}/token/{tokenid}", true, "comment:s expire:i0 privsep:b"),
    ("GET", "/access/acl", false, ""),
    ("PUT", "/access/acl", true, "delete:b groups:s path!:s propagate:b roles!:s tokens:s users:s"),
    ("POST", "/pools", true, "comment:s poolid!:s"),
    ("GET", "/cluster/resources", false, "type:e=vm|storage|node|sdn"),
    ("GET", "/cluster/nextid", false, "vmid:i100:pve-vmid"),
    ("GET", "/cluster/status", true, ""),
    ("GET", "/cluster/tasks", false, ""),
    ("GET", "/cluster/options", false, ""),
    ("GET", "/cluster/mapping/pci", false, "check-node:s:pve-node"),
    ("GET", "/cluster/firewall/options", false, ""),
    ("GET", "/cluster/firewall/groups", false, ""),
    ("GET", "/cluster/ha/status/current", false, ""),
    ("GET", "/nodes", false, ""),
    ("GET", "/nodes/{node}/status", false, ""),
    ("POST", "/nodes/{node}/status", true, "command!:e=reboot|shutdown"),
    (
        "GET",
        "/nodes/{node}/config",
        false,
        "property:e=all|acme|acmedomain0|ballooning-target|description|location|startall-onboot-delay|wakeonlan",
    ),
    ("POST", "/nodes/{node}/wakeonlan", true, ""),
    ("GET", "/cluster/config/nodes", false, ""),
    ("GET", "/cluster/config/qdevice", true, ""),
    ("GET", "/cluster/ceph/metadata", true, ""),
    ("GET", "/nodes/{node}/lxc", true, ""),
    ("GET", "/nodes/{node}/version", false, ""),
    ("GET", "/nodes/{node}/time", true, ""),
    ("GET", "/nodes/{node}/qemu", true, "full:b"),
    (
        "GET",
        "/nodes/{node}/tasks",
        false,
        "errors:b limit:i0 since:i source:e=archive|active|all start:i0 statusfilter:s typefilter:s until:i userfilter:s vmid:i100",
    ),
    ("GET", "/nodes/{node}/tasks/{upid}/status", true, ""),
    ("GET", "/nodes/{node}/tasks/{upid}/log", true, "download:b limit:i0 start:i0"),
    ("DELETE", "/nodes/{node}/tasks/{upid}", true, ""),
    (
        "GET",
        "/nodes/{node}/network",
        false,
        "type:e=bridge|bond|eth|alias|vlan|fabric|OVSBridge|OVSBond|OVSPort|OVSIntPort|vnet|any_bridge|any_local_bridge|include_sdn",
    ),
    ("GET", "/nodes/{node}/storage", true, "content:s enabled:b format:b storage:s target:s"),
    ("GET", "/nodes/{node}/storage/{storage}/status", true, ""),
    ("GET", "/nodes/{node}/storage/{storage}/content", true, "content:s vmid:i100"),
    ("DELETE", "/nodes/{node}/storage/{storage}/content/{volume}", true, "delay:i1-30"),
    (
        "POST",
        "/nodes/{node}/storage/{storage}/upload",
        true,
        "checksum:s checksum-algorithm:e=md5|sha1|sha224|sha256|sha384|sha512 content!:e=iso|vztmpl|import filename!:s255 tmpfilename:s",
    ),
    (
        "POST",
        "/nodes/{node}/storage/{storage}/download-url",
        true,
        "checksum:s checksum-algorithm:e=md5|sha1|sha224|sha256|sha384|sha512 compression:s content!:e=iso|vztmpl|import filename!:s255 url!:s verify-certificates:b",
    ),
    (
        "POST",
        "/nodes/{node}/qemu",
        true,
        "@config archive:s bwlimit:i0 ha-managed:b live-restore:b pool:s start:b storage:s unique:b vmid!:i100:pve-vmid",
    ),
    ("DELETE", "/nodes/{node}/qemu/{vmid}", true, "destroy-unreferenced-disks:b purge:b skiplock:b"),
    (
        "POST",
        "/nodes/{node}/qemu/{vmid}/clone",
        true,
        "bwlimit:i0 description:s format:e=raw|qcow2|vmdk full:b name:s:dns-name newid!:i100:pve-vmid pool:s snapname:s40 storage:s target:s:pve-node",
    ),
    ("GET", "/nodes/{node}/qemu/{vmid}/config", false, "current:b snapshot:s40"),
    ("POST", "/nodes/{node}/qemu/{vmid}/config", true, "@config background_delay:i1-30"),
    ("PUT", "/nodes/{node}/qemu/{vmid}/config", true, "@config"),
    ("GET", "/nodes/{node}/qemu/{vmid}/pending", false, ""),
    ("PUT", "/nodes/{node}/qemu/{vmid}/resize", true, "digest:s40 disk!:s size!:s skiplock:b"),
    ("GET", "/nodes/{node}/qemu/{vmid}/feature", true, "feature!:e=snapshot|clone|copy snapname:s40"),
    ("POST", "/nodes/{node}/qemu/{vmid}/template", true, "disk:s"),
    ("GET", "/nodes/{node}/qemu/{vmid}/status/current", true, ""),
    (
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/start",
        true,
        "force-cpu:s machine:s migratedfrom:s migration_network:s migration_type:s nets-host-mtu:s skiplock:b stateuri:s targetstorage:s timeout:i0 with-conntrack-state:b",
    ),
    (
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/shutdown",
        true,
        "forceStop:b keepActive:b skiplock:b timeout:i0",
    ),
    (
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/stop",
        true,
        "keepActive:b migratedfrom:s overrule-shutdown:b skiplock:b timeout:i0",
    ),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/reboot", true, "timeout:i0"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/reset", true, "skiplock:b"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/suspend", true, "skiplock:b statestorage:s todisk:b"),
    ("GET", "/nodes/{node}/qemu/{vmid}/cloudinit", false, ""),
    ("PUT", "/nodes/{node}/qemu/{vmid}/cloudinit", true, ""),
    ("GET", "/nodes/{node}/qemu/{vmid}/cloudinit/dump", false, "type!:e=user|network|meta"),
    ("GET", "/nodes/{node}/qemu/{vmid}/firewall/options", false, ""),
    (
        "PUT",
        "/nodes/{node}/qemu/{vmid}/firewall/options",
        true,
        "delete:s dhcp:b digest:s64 enable:b ipfilter:b log_level_in:s log_level_out:s macfilter:b ndp:b policy_in:e=ACCEPT|REJECT|DROP policy_out:e=ACCEPT|REJECT|DROP radv:b",
    ),
    ("GET", "/nodes/{node}/qemu/{vmid}/firewall/rules", false, ""),
    (
        "POST",
        "/nodes/{node}/qemu/{vmid}/firewall/rules",
        true,
        "action!:s20 comment:s dest:s512 digest:s64 dport:s enable:i0 icmp-type:s iface:s20 log:s macro:s128 pos:i0 proto:s source:s512 sport:s type!:e=in|out|forward|group",
    ),
    ("GET", "/nodes/{node}/qemu/{vmid}/firewall/ipset", false, ""),
    ("POST", "/nodes/{node}/qemu/{vmid}/firewall/ipset", true, "comment:s digest:s64 name!:s64 rename:s64"),
    ("GET", "/nodes/{node}/qemu/{vmid}/firewall/ipset/{name}", false, ""),
    ("POST", "/nodes/{node}/qemu/{vmid}/firewall/ipset/{name}", true, "cidr!:s comment:s nomatch:b"),
    ("DELETE", "/nodes/{node}/qemu/{vmid}/firewall/ipset/{name}/{cidr}", true, "digest:s64"),
    ("GET", "/nodes/{node}/qemu/{vmid}/migrate", true, "target:s"),
    (
        "POST",
        "/nodes/{node}/qemu/{vmid}/migrate",
        true,
        "bwlimit:i0 force:b migration_network:s migration_type:s online:b target!:s targetstorage:s with-conntrack-state:b with-local-disks:b",
    ),
    ("POST", "/nodes/{node}/qemu/{vmid}/agent/ping", true, ""),
    ("POST", "/nodes/{node}/qemu/{vmid}/agent/exec", true, "command!:a input-data:s65536"),
    ("GET", "/nodes/{node}/qemu/{vmid}/agent/exec-status", true, "pid!:i"),
    ("GET", "/nodes/{node}/qemu/{vmid}/agent/file-read", true, "file!:s count:i1 decode:b offset:i0"),
    ("POST", "/nodes/{node}/qemu/{vmid}/agent/file-write", true, "content!:s61440 encode:b file!:s"),
    ("GET", "/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces", true, ""),
    ("GET", "/nodes/{node}/qemu/{vmid}/agent/get-osinfo", true, ""),
    ("GET", "/nodes/{node}/qemu/{vmid}/agent/get-host-name", true, ""),
    ("GET", "/nodes/{node}/qemu/{vmid}/agent/info", true, ""),
    ("GET", "/storage", false, "type:s"),
    ("GET", "/pools/{poolid}", false, "type:e=qemu|lxc|storage"),
    ("GET", "/pools", false, "poolid:s type:e=qemu|lxc|storage"),
    ("PUT", "/pools", true, "allow-move:b comment:s delete:b poolid!:s storage:s vms:s"),
];

/// All calls that the embedded cluster implements.
#[derive(Clone, Debug)]
pub struct Schema(Vec<Call>);

impl Schema {
    /// The built-in table, with the parameters of the official schema at `path` if that file can be read.
    pub fn load(path: Option<&Path>) -> Self {
        let official =
            path.and_then(|path| fs::read(path).ok()).and_then(|text| serde_json::from_slice(&text).ok());
        let calls = CALLS.iter().map(|(method, path, protected, parameters)| {
            let rules = official
                .as_ref()
                .and_then(|schema| official_rules(schema, method, path))
                .unwrap_or_else(|| built_in(parameters, path));
            Call { method, path, protected: *protected, rules }
        });
        Self(calls.collect())
    }

    /// The call for a method and a path, with the values of the path's parameters.
    pub fn find(&self, method: &str, path: &str) -> Option<(&Call, BTreeMap<String, String>)> {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        self.0.iter().filter(|call| call.method == method).find_map(|call| {
            let template: Vec<&str> = call.path.trim_matches('/').split('/').collect();
            if template.len() != segments.len() {
                return None;
            }
            let mut values = BTreeMap::new();
            for (expected, found) in template.iter().zip(&segments) {
                match expected.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                    Some(name) => {
                        let found = percent_encoding::percent_decode_str(found).decode_utf8_lossy();
                        values.insert(name.to_owned(), found.into_owned());
                    }
                    None if expected != found => return None,
                    None => {}
                }
            }
            Some((call, values))
        })
    }
}

fn built_in(parameters: &str, path: &str) -> Rules {
    let mut rules = Rules::new();
    let expanded = parameters.replace("@config", CONFIG);
    for word in expanded.split_whitespace() {
        let mut parts = word.splitn(3, ':');
        let (name, kind, format) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or("s"), parts.next());
        let required = name.ends_with('!');
        let name = name.trim_end_matches('!');
        let format = format.or_else(|| formats::unwritten(name)).map(String::from);
        rules.insert(name.to_owned(), Rule { kind: short_kind(kind), required, format });
    }
    for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        rules.entry(name.to_owned()).or_insert(Rule {
            kind: Kind::Text(None),
            required: false,
            format: None,
        });
    }
    rules
}

fn short_kind(text: &str) -> Kind {
    let (letter, rest) = text.split_at(1);
    match letter {
        "b" => Kind::Boolean,
        "n" => Kind::Number(rest.parse().ok()),
        "a" => Kind::Array,
        "e" => Kind::OneOf(rest.trim_start_matches('=').split('|').map(String::from).collect()),
        "i" => {
            let (low, high) = rest.split_once('-').unwrap_or((rest, ""));
            Kind::Integer(low.parse().ok(), high.parse().ok())
        }
        _ => Kind::Text(rest.parse().ok()),
    }
}

fn official_rules(schema: &Value, method: &str, path: &str) -> Option<Rules> {
    let node = find_node(schema, path)?;
    let mut rules = Rules::new();
    let properties = node.pointer(&format!("/info/{method}/parameters/properties"))?.as_object()?;
    for (name, property) in properties {
        // The router has already checked the parameters in the path. They may be repeated in the body.
        let in_path = path.contains(&format!("{{{name}}}"));
        let number = |key: &str| property.get(key).and_then(as_i64);
        let kind = match property.get("type").and_then(Value::as_str) {
            _ if in_path => Kind::Text(None),
            Some("boolean") => Kind::Boolean,
            Some("integer") => Kind::Integer(number("minimum"), number("maximum")),
            Some("number") => Kind::Number(property.get("maximum").and_then(Value::as_f64)),
            Some("array") => Kind::Array,
            _ => match property.get("enum").and_then(Value::as_array) {
                Some(words) => {
                    Kind::OneOf(words.iter().filter_map(Value::as_str).map(String::from).collect())
                }
                None => Kind::Text(number("maxLength").and_then(|most| usize::try_from(most).ok())),
            },
        };
        let required = !in_path && property.get("optional").and_then(as_i64) != Some(1);
        let mut format = property.get("format").and_then(Value::as_str).map(String::from);
        if let Some(unwritten) = formats::unwritten(name) {
            format = Some(unwritten.to_owned());
        }
        rules.insert(name.clone(), Rule { kind, required, format });
    }
    Some(rules)
}

fn as_i64(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn find_node<'s>(schema: &'s Value, path: &str) -> Option<&'s Value> {
    schema.as_array()?.iter().find_map(|node| {
        let own = node.get("path")?.as_str()?;
        if own == path {
            return Some(node);
        }
        path.starts_with(&format!("{own}/")).then(|| find_node(node.get("children")?, path))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxmox::params::{Params, check};

    #[test]
    fn unknown_parameters_and_wrong_types_are_all_named() {
        let schema = Schema::load(None);
        let (call, values) = schema.find("PUT", "/nodes/pve1/qemu/100/config").expect("call");
        assert_eq!(values["vmid"], "100");
        let mut params = Params::form("cores=two&bogus=1&onboot=true&memory=512");
        let Err(super::super::answer::Refusal::Parameters(errors)) = check(&mut params, &call.rules) else {
            panic!("must be refused")
        };
        assert_eq!(errors.keys().collect::<Vec<_>>(), ["bogus", "cores", "onboot"]);
    }

    #[test]
    fn the_official_schema_knows_every_built_in_call() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pve/apidoc-9.2.json");
        let Ok(text) = fs::read(&path) else {
            println!("skipped: no {}", path.display());
            return;
        };
        let schema: Value = serde_json::from_slice(&text).expect("JSON");
        for (method, path, _, _) in CALLS {
            assert!(official_rules(&schema, method, path).is_some() || *method == "GET", "{method} {path}");
        }
    }
}
