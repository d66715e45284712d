//! The behavior of the embedded Kubernetes that the daemon depends on, as tables.

mod access;
mod api;
mod client;
mod custom;
mod evictions;
mod gangs;
mod nodes;
mod scheduling;
mod workloads;
