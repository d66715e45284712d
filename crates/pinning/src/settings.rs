//! The VM configuration for the CPUs and memory that were chosen, and the `qm set` arguments that write it.
//! The code has no side effects.

use std::collections::BTreeMap;

use super::choice::{Choice, MOST_GUEST_NODES, Wish};
use super::cpus::{Cpus, NO_AFFINITY};
use super::vm_file::VmFile;
use settings::Pinning;

/// What a machine needs in a pool with these settings; `None` if its VM's configuration contains no valid
/// cores or memory.
pub fn wish(pinning: &Pinning, file: &VmFile) -> Option<Wish> {
    Some(Wish {
        vcpus: file.vcpus()?,
        memory: file.memory()?,
        numa: pinning.numa,
        page: pinning.hugepages.map_or(1, settings::HugePages::mib),
        reserve: pinning.reserve,
    })
}

/// The keys and values that express this choice in the VM's configuration, as in `qm.conf(5)`.
pub fn keys(pinning: &Pinning, choice: &Choice) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::from([("affinity".to_owned(), affinity(&choice.cpus))]);
    if pinning.numa {
        keys.insert("numa".to_owned(), "1".to_owned());
    }
    let mut first = 0;
    for (number, node) in choice.nodes.iter().enumerate() {
        let last = first + node.vcpus - 1;
        let cpus = if first == last { first.to_string() } else { format!("{first}-{last}") };
        let value = format!("cpus={cpus},hostnodes={},memory={},policy=bind", node.host, node.memory);
        keys.insert(format!("numa{number}"), value);
        first = last + 1;
    }
    if let Some(page) = pinning.hugepages {
        keys.insert("hugepages".to_owned(), page.mib().to_string());
    }
    keys
}

/// CPU 0 alone is written as a range, because Proxmox VE treats `0` as no affinity.
fn affinity(cpus: &Cpus) -> String {
    match cpus.to_string() {
        zero if zero == NO_AFFINITY => "0-0".to_owned(),
        other => other,
    }
}

/// The `qm set` arguments that set these keys; empty if they are already set. If the keys define NUMA nodes,
/// the arguments also delete any other NUMA nodes from the VM's configuration.
pub fn arguments(keys: &BTreeMap<String, String>, file: &VmFile) -> Vec<String> {
    let mut arguments = Vec::new();
    for (key, value) in keys {
        if file.get(key).map(sorted) != Some(sorted(value)) {
            arguments.extend([format!("--{key}"), value.clone()]);
        }
    }
    let numa = keys.contains_key("numa0");
    let is_stale = |number: &u32| numa && (*number as usize) < MOST_GUEST_NODES;
    let stale = file.numa_nodes().filter(is_stale).map(|number| format!("numa{number}"));
    let stale: Vec<String> = stale.filter(|key| !keys.contains_key(key)).collect();
    if !stale.is_empty() {
        arguments.extend(["--delete".to_owned(), stale.join(",")]);
    }
    arguments
}

/// The parts of a property string, sorted for comparison, because their order has no meaning.
fn sorted(text: &str) -> Vec<&str> {
    let mut parts: Vec<_> = text.split(',').collect();
    parts.sort_unstable();
    parts
}

#[cfg(test)]
mod tests {
    use super::super::choice::GuestNode;
    use super::*;
    use settings::HugePages;

    #[test]
    fn what_differs_is_set_and_nothing_else() {
        let pinning = Pinning { numa: true, hugepages: Some(HugePages::OneGib), reserve: 1 };
        let nodes = [(0, 3, 2048), (1, 1, 1024)];
        let nodes = nodes.map(|(host, vcpus, memory)| GuestNode { host, vcpus, memory }).to_vec();
        let choice = Choice { cpus: "2-4,9".parse().unwrap(), nodes };
        let keys = keys(&pinning, &choice);
        let as_arguments = |file: &str| arguments(&keys, &VmFile::read(file)).join(" ");
        let both = "--numa0 cpus=0-2,hostnodes=0,memory=2048,policy=bind --numa1 cpus=3,hostnodes=1,memory=1024,policy=bind";
        assert_eq!(as_arguments(""), format!("--affinity 2-4,9 --hugepages 1024 --numa 1 {both}"));
        assert_eq!(
            as_arguments(
                "affinity: 2-4,9\nhugepages: 1024\nnuma: 1\nnuma0: cpus=0-2,memory=2048,hostnodes=0,policy=bind\n\
                 numa1: cpus=3,hostnodes=1,memory=1024,policy=bind\n"
            ),
            ""
        );
        assert!(
            as_arguments("numa2: cpus=4,memory=5\nnuma7: cpus=8,memory=5\n")
                .ends_with("--delete numa2,numa7")
        );
    }

    #[test]
    fn without_numa_only_cpus_are_set() {
        let pinning = Pinning { numa: false, hugepages: None, reserve: 0 };
        let keys = keys(&pinning, &Choice { cpus: "1".parse().unwrap(), nodes: Vec::new() });
        assert_eq!(arguments(&keys, &VmFile::read("numa3: cpus=1\n")), ["--affinity", "1"]);
        // Proxmox VE treats `affinity: 0` as no affinity, and lets the VM run on all CPUs.
        let keys = super::keys(&pinning, &Choice { cpus: "0".parse().unwrap(), nodes: Vec::new() });
        assert_eq!(arguments(&keys, &VmFile::read("affinity: 0\n")), ["--affinity", "0-0"]);
        assert_eq!(arguments(&keys, &VmFile::read("affinity: 0-0\n")), [""; 0]);
        assert!(VmFile::read("affinity: 0\n").affinity().is_empty());
        assert_eq!(VmFile::read("affinity: 0-0\n").affinity().to_string(), "0");
        let file = VmFile::read("cores: 2\nmemory: 512\n");
        let wanted = wish(&pinning, &file).unwrap();
        assert_eq!((wanted.vcpus, wanted.memory, wanted.page, wanted.numa), (2, 512, 1, false));
    }
}
