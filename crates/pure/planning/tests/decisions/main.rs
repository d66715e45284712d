//! Single decisions of the planner, each about a small cluster written as YAML.

#![expect(clippy::unwrap_used, reason = "a test may panic on unexpected results")]

mod annotations;
mod buffers;
mod cluster;
mod coming;
mod consolidation;
mod daemons;
mod devices;
mod disruptions;
mod flapping;
mod fresh_nodes;
mod gang_troubles;
mod gangs;
mod grow;
mod headroom;
mod hosts;
mod limits;
mod on_its_way;
mod pauses;
mod pci;
mod physical;
mod placement;
mod predictions;
mod prospects;
mod regions;
mod removals;
mod repair;
mod replacement;
mod requests;
mod sizes;
mod storages;
mod unfinished;
mod versions;
mod volumes;
mod warm;
