//! What exists in Proxmox VE and in Kubernetes: the basis of a first configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use futures::StreamExt;
use model::Vmid;

use crate::cli::exit::Failure;
use crate::cli::neighbours::Reserved;
use crate::templates::TemplateMark;
use kubernetes::Cluster;
use proxmox::Client;
use proxmox::cloning::AskedFor;
use settings::Config;

/// The maximum number of guests that are queried at the same time.
const AT_A_TIME: usize = 4;
/// The first VMID that is proposed.
const FIRST: u32 = 9100;

/// A template, with the values that a pool copies from it.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub vmid: Vmid,
    pub host: String,
    pub name: String,
    pub bridge: Option<String>,
    pub storage: Option<String>,
    pub cores: u32,
    /// In bytes.
    pub memory: i64,
    /// Bridges and storages of the template itself. Cloning requires rights on them even if the machine uses
    /// others later.
    pub bridges: BTreeSet<String>,
    pub storages: BTreeSet<String>,
    /// Paths of resource mappings and similar objects, with the privileges that cloning requires on them.
    pub asked: Vec<AskedFor>,
    /// The mark of a template that `pve-autoscaler template` has created.
    pub mark: Option<TemplateMark>,
}

impl Template {
    /// Returns the value that refers to the template in a configuration. This is the name if a `[[template]]`
    /// creates the template, because each version has its own VMID. Otherwise, it is the VMID.
    pub fn in_configuration(&self) -> String {
        self.mark.as_ref().map_or_else(|| self.vmid.to_string(), |mark| super::draft::quoted(&mark.template))
    }

    /// Whether this is a version that pools do not use: another version has the template's name, or this one
    /// is unfinished.
    fn is_aside(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.template != self.name)
    }
}

/// What exists in Proxmox VE and in Kubernetes.
#[derive(Debug)]
pub(super) struct Discovered {
    /// The release of Proxmox VE.
    pub version: String,
    pub templates: Vec<Template>,
    pub vmids: BTreeSet<Vmid>,
    /// Addresses of Nodes and guests.
    pub addresses: BTreeSet<IpAddr>,
    /// Addresses that other clusters of this host reserve for their machines.
    reserved: BTreeSet<IpAddr>,
}

pub(super) async fn look(proxmox: &Client, kubernetes: &Cluster) -> Result<Discovered, Failure> {
    let unreachable = |error: proxmox::Error| Failure::Unreachable("Proxmox VE".to_owned(), error.into());
    let version = proxmox.version().await.map_err(unreachable)?;
    let seen = proxmox.resources().await.map_err(unreachable)?;
    let (mut templates, mut addresses) = (Vec::new(), BTreeSet::new());
    let machines = seen.guests.values().filter(|guest| !guest.container);
    let asking = machines.map(|guest| async move { (guest, proxmox.config(&guest.host, guest.vmid).await) });
    let mut configs = futures::stream::iter(asking).buffered(AT_A_TIME);
    while let Some((guest, config)) = configs.next().await {
        // Guests on unreachable hosts cannot be read.
        let Ok(config) = config else { continue };
        addresses.extend(config.static_addresses());
        if !guest.template {
            continue;
        }
        templates.push(Template {
            vmid: guest.vmid,
            host: guest.host.clone(),
            name: guest.name.clone().unwrap_or_default(),
            bridge: config.parts("net0").get("bridge").map(ToOwned::to_owned),
            storage: config.disks().next().map(|disk| disk.storage().to_owned()),
            cores: guest.cores,
            memory: guest.memory,
            bridges: config.bridges().into_iter().map(|one| one.bridge.to_owned()).collect(),
            storages: config.disks().map(|disk| disk.storage().to_owned()).collect(),
            asked: config.asked_when_cloned(&version),
            mark: TemplateMark::read(config.get("description"))
                .filter(|mark| mark.may_be_of(guest.vmid, guest.name.as_deref())),
        });
    }
    let snapshot = crate::cli::live::kubernetes_objects(kubernetes).await?;
    let nodes = snapshot.nodes.iter().flat_map(|node| &node.internal_ips);
    addresses.extend(nodes.filter_map(|ip| ip.parse::<IpAddr>().ok()));
    let vmids = seen.guests.keys().copied().collect();
    Ok(Discovered { version, templates, vmids, addresses, reserved: BTreeSet::new() })
}

impl Discovered {
    /// Excludes the VMIDs and addresses that the configurations of other clusters on this host reserve.
    #[must_use]
    pub fn without(mut self, reserved: &Reserved) -> Self {
        self.vmids.extend(&reserved.vmids);
        self.reserved.extend(&reserved.addresses);
        self
    }

    /// A range of this many free VMIDs.
    pub fn free_vmids(&self, count: u32) -> (u32, u32) {
        let mut first = FIRST;
        while let Some(taken) = self.vmids.range(Vmid(first)..Vmid(first.saturating_add(count))).next_back() {
            first = taken.0 + 1;
        }
        (first, first + count.max(1) - 1)
    }

    /// The first three octets of the lowest known private IPv4 address, if there is one.
    pub fn network(&self) -> Option<[u8; 3]> {
        self.addresses.iter().find_map(|address| match address {
            IpAddr::V4(address) if address.is_private() => {
                let [a, b, c, _] = address.octets();
                Some([a, b, c])
            }
            _ => None,
        })
    }

    /// Returns the longest range of free addresses between `.128` and `.249` of the network, with at most 50
    /// addresses. An address is free if no known machine has it and no other cluster reserves it.
    pub fn free_addresses(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let [a, b, c] = self.network()?;
        let (mut best, mut run): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        for last in 128..=249 {
            let address = IpAddr::V4(Ipv4Addr::new(a, b, c, last));
            if self.addresses.contains(&address) || self.reserved.contains(&address) {
                run.clear();
                continue;
            }
            run.push(last);
            if run.len() > best.len() && run.len() <= 50 {
                best.clone_from(&run);
            }
        }
        let at = |last: &u8| Ipv4Addr::new(a, b, c, *last);
        Some((at(best.first()?), at(best.last()?)))
    }

    /// The templates to choose from, without versions that pools do not use.
    pub fn offered(&self) -> Vec<&Template> {
        self.templates.iter().filter(|one| !one.is_aside()).collect()
    }

    /// Descriptions of the templates to choose from, by VMID.
    pub fn choices(&self) -> BTreeMap<String, String> {
        let about = |one: &Template| format!("{} on {}", one.name, one.host);
        self.offered().into_iter().map(|one| (one.vmid.to_string(), about(one))).collect()
    }

    /// Returns the VMIDs of all existing versions of a template. If a `[[template]]` of the existing
    /// configuration creates the template, the VMIDs of future versions are included.
    pub fn versions(&self, template: &Template, configured: Option<&Config>) -> BTreeSet<Vmid> {
        let mut all = BTreeSet::from([template.vmid]);
        let Some(mark) = &template.mark else { return all };
        let same = |one: &&Template| {
            let other = one.mark.as_ref();
            other.is_some_and(|other| (&other.cluster, &other.template) == (&mark.cluster, &mark.template))
        };
        all.extend(self.templates.iter().filter(same).map(|one| one.vmid));
        let tables = configured.iter().flat_map(|config| &config.templates);
        all.extend(
            tables
                .filter(|table| table.name == mark.template)
                .flat_map(|table| table.vmids.clone())
                .map(Vmid),
        );
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(vmids: &[u32], addresses: &[&str]) -> Discovered {
        Discovered {
            version: String::new(),
            templates: Vec::new(),
            vmids: vmids.iter().copied().map(Vmid).collect(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            reserved: BTreeSet::new(),
        }
    }

    #[test]
    fn a_template_that_is_made_here_is_named_and_all_its_versions_are_meant() {
        let template = |vmid, name: &str, made: bool| Template {
            vmid,
            host: "pve1".to_owned(),
            name: name.to_owned(),
            bridge: None,
            storage: None,
            bridges: BTreeSet::new(),
            storages: BTreeSet::new(),
            asked: Vec::new(),
            cores: 2,
            memory: 2 << 30,
            mark: made.then(|| TemplateMark {
                cluster: "kubernetes".to_owned(),
                template: "worker".to_owned(),
                version: "1".to_owned(),
                turn: 1,
                vmid: Some(vmid),
            }),
        };
        let templates = vec![
            template(Vmid(8000), "by-hand", false),
            template(Vmid(9000), "worker-1", true),
            template(Vmid(9001), "worker", true),
        ];
        let found = Discovered { templates, ..found(&[], &[]) };
        assert_eq!(found.choices().into_keys().collect::<Vec<_>>(), ["8000", "9001"]);
        let offered = found.offered();
        assert_eq!(offered[0].in_configuration(), "8000");
        assert_eq!(offered[1].in_configuration(), "\"worker\"");
        assert_eq!(found.versions(offered[0], None), [Vmid(8000)].into());
        assert_eq!(found.versions(offered[1], None), [Vmid(9000), Vmid(9001)].into());
        let checksum = "0".repeat(64);
        let text = format!(
            "[[template]]\nname = \"worker\"\nimage = \"https://example.org/a.qcow2\"\nchecksum = \"sha256:{checksum}\"\n\
             image_storage = \"local\"\nvmids = \"9000-9002\"\nstorage = \"local-lvm\"\nbridge = \"vmbr0\"\n"
        );
        let config = settings::parse("c", &text, settings::Needs::Plan).unwrap();
        assert_eq!(found.versions(offered[1], Some(&config)), [9000, 9001, 9002].map(Vmid).into());
    }

    #[test]
    fn vmids_are_proposed_where_a_whole_row_is_free() {
        assert_eq!(found(&[], &[]).free_vmids(50), (9100, 9149));
        assert_eq!(found(&[9000, 9100, 9120, 9149], &[]).free_vmids(50), (9150, 9199));
        assert_eq!(found(&[9160], &[]).free_vmids(50), (9100, 9149));
    }

    #[test]
    fn addresses_are_proposed_that_no_machine_is_seen_to_have() {
        let seen = |addresses: &[&str]| {
            let run = found(&[], addresses).free_addresses();
            run.map(|(first, last)| format!("{first}-{last}"))
        };
        assert_eq!(seen(&["10.1.2.3"]).as_deref(), Some("10.1.2.128-10.1.2.177"));
        assert_eq!(seen(&["10.1.2.3", "10.1.2.140"]).as_deref(), Some("10.1.2.141-10.1.2.190"));
        assert_eq!(seen(&["8.8.8.8", "::1"]), None, "public addresses should not be proposed");
    }

    #[test]
    fn what_another_cluster_of_the_host_has_for_its_machines_is_not_proposed() {
        let reserved = Reserved {
            vmids: (9100..=9109).map(Vmid).collect(),
            addresses: (128..=137).map(|last| IpAddr::from([10, 1, 2, last])).collect(),
            ..Reserved::default()
        };
        let found = found(&[], &["10.1.2.3"]).without(&reserved);
        assert_eq!(found.free_vmids(50), (9110, 9159));
        let (first, _) = found.free_addresses().unwrap();
        assert_eq!(first, Ipv4Addr::new(10, 1, 2, 138));
        assert_eq!(found.network(), Some([10, 1, 2]));
    }
}
