//! Runs the whole daemon between an embedded Proxmox VE and an embedded Kubernetes, in virtual time. Each
//! topic has its own file.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic on unexpected results"
)]

mod adoptions;
mod bare_nodes;
mod bootstraps;
mod brakes;
mod buffers;
mod claims;
mod devices;
mod disks;
mod drains;
mod economy;
mod failures;
mod first_boots;
mod gangs;
mod grow;
mod grow_refused;
mod hosts;
mod inherited;
mod journal;
mod leaders;
mod locks;
mod metrics;
mod network_boot;
#[path = "../lab/openmetrics.rs"]
mod openmetrics;
mod orphans;
mod out_of_service;
mod out_of_sight;
mod outages;
mod pci;
mod physical;
mod pinning;
mod places;
mod predictions;
mod record;
mod regions;
mod replacements;
mod requests;
mod restarts;
mod rights;
mod scale_down;
mod scale_up;
mod security;
mod seeds;
mod serving;
mod settings;
mod several_clusters;
mod silent_hosts;
mod sizes;
mod stage;
mod storms;
mod strangers;
mod taken_over;
mod touched;
mod warm;
mod warm_faults;
mod wishes;
mod zones;
