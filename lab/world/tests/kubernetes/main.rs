//! What the daemon depends on of the embedded Kubernetes, as tables.

mod access;
mod api;
mod client;
mod custom;
mod evictions;
mod gangs;
mod nodes;
mod scheduling;
mod workloads;
