//! The CPUs, cores and memory of each NUMA node of a host, as reported by its kernel.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::cpus::Cpus;

/// A host's processors and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The host's NUMA nodes in ascending order. A host without NUMA has one node.
    pub nodes: Vec<HostNode>,
}

/// A NUMA node of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNode {
    /// Its number.
    pub id: u32,
    /// The node's memory, in MiB.
    pub memory: u64,
    /// The node's online cores, each with all its threads, ordered by their lowest thread.
    pub cores: Vec<Cpus>,
}

/// The kernel's files are missing or have unexpected content.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// A file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file has unexpected content.
    #[error("`{}` contains `{text}`, which could not be parsed", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The content.
        text: String,
    },
    /// The host has no NUMA node, or no NUMA node with a CPU.
    #[error("`{}` has no NUMA node with a CPU", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
}

/// Reads the topology from a folder that has the layout of `/sys/devices/system`:
/// `node/node*/{cpulist,meminfo}` and `cpu/cpu*/topology/thread_siblings_list`. Linux documents these files
/// in `Documentation/ABI/stable/sysfs-devices-node` and `sysfs-devices-system-cpu`.
///
/// # Errors
/// Returns an error if the kernel's files are missing or have unexpected content. Nothing is guessed.
pub fn read(system: &Path) -> Result<Topology, TopologyError> {
    let folder = system.join("node");
    let unreadable = |source| TopologyError::Unreadable { path: folder.clone(), source };
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix("node")).and_then(|id| id.parse().ok());
        if let Some(id) = id {
            nodes.push(node(system, id)?);
        }
    }
    nodes.sort_by_key(|node| node.id);
    if nodes.iter().all(|node| node.cores.is_empty()) {
        return Err(TopologyError::Empty { path: folder });
    }
    Ok(Topology { nodes })
}

fn node(system: &Path, id: u32) -> Result<HostNode, TopologyError> {
    let folder = system.join(format!("node/node{id}"));
    let online = cpus(&folder.join("cpulist"))?;
    let mut cores = BTreeSet::new();
    for cpu in online.iter() {
        let siblings = cpus(&system.join(format!("cpu/cpu{cpu}/topology/thread_siblings_list")))?;
        cores.insert(siblings);
    }
    let mut cores: Vec<Cpus> = cores.into_iter().collect();
    cores.sort_by_key(Cpus::first);
    Ok(HostNode { id, memory: memory(&folder.join("meminfo"))?, cores })
}

fn cpus(path: &Path) -> Result<Cpus, TopologyError> {
    let text = text(path)?;
    let malformed = |_| TopologyError::Malformed { path: path.to_owned(), text: text.trim().to_owned() };
    text.parse().map_err(malformed)
}

/// Reads the memory in MiB from a line such as `Node 0 MemTotal: 65843104 kB`.
fn memory(path: &Path) -> Result<u64, TopologyError> {
    let text = text(path)?;
    let line = text.lines().find(|line| line.contains(" MemTotal:")).unwrap_or_default();
    let number = line.split_whitespace().rev().nth(1).and_then(|number| number.parse::<u64>().ok());
    let malformed = || TopologyError::Malformed { path: path.to_owned(), text: line.to_owned() };
    Ok(number.ok_or_else(malformed)? >> 10)
}

fn text(path: &Path) -> Result<String, TopologyError> {
    std::fs::read_to_string(path)
        .map_err(|source| TopologyError::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Writes a folder that [`read`] can read: for each node, the threads of its cores and its memory in MiB.
    pub fn write(system: &Path, nodes: &[(&[&str], u64)]) {
        for (id, (cores, memory)) in nodes.iter().enumerate() {
            let folder = system.join(format!("node/node{id}"));
            std::fs::create_dir_all(&folder).unwrap();
            let mut all = Cpus::default();
            for core in *cores {
                let threads: Cpus = core.parse().unwrap();
                all.add(&threads);
                for cpu in threads.iter() {
                    let topology = system.join(format!("cpu/cpu{cpu}/topology"));
                    std::fs::create_dir_all(&topology).unwrap();
                    std::fs::write(topology.join("thread_siblings_list"), format!("{threads}\n")).unwrap();
                }
            }
            std::fs::write(folder.join("cpulist"), format!("{all}\n")).unwrap();
            let kib = memory << 10;
            let lines = format!("Node {id} MemTotal:       {kib} kB\nNode {id} MemFree:        12 kB\n");
            std::fs::write(folder.join("meminfo"), lines).unwrap();
        }
    }

    #[test]
    fn nodes_cores_and_threads_are_read_and_nothing_is_guessed() {
        let folder = tempfile::TempDir::new().unwrap();
        // The threads of a core seldom have adjacent numbers. A node may have memory but no cores.
        write(folder.path(), &[(&["0,4", "1,5"], 2048), (&["2,6", "3,7"], 1024), (&[], 512)]);
        let topology = read(folder.path()).unwrap();
        let seen: Vec<_> = topology
            .nodes
            .iter()
            .map(|node| (node.id, node.memory, node.cores.iter().map(Cpus::to_string).collect::<Vec<_>>()))
            .collect();
        let cores = |of: &[&str]| of.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let expected =
            [(0, 2048, cores(&["0,4", "1,5"])), (1, 1024, cores(&["2,6", "3,7"])), (2, 512, cores(&[]))];
        assert_eq!(seen, expected);
        std::fs::remove_file(folder.path().join("cpu/cpu6/topology/thread_siblings_list")).unwrap();
        assert!(matches!(read(folder.path()), Err(TopologyError::Unreadable { .. })));
        std::fs::write(folder.path().join("node/node0/cpulist"), "some").unwrap();
        assert!(matches!(read(folder.path()), Err(TopologyError::Malformed { .. })));
    }

    #[test]
    fn a_host_without_nodes_is_an_error() {
        let folder = tempfile::TempDir::new().unwrap();
        assert!(matches!(read(folder.path()), Err(TopologyError::Unreadable { .. })));
        std::fs::create_dir_all(folder.path().join("node")).unwrap();
        assert!(matches!(read(folder.path()), Err(TopologyError::Empty { .. })));
    }
}
