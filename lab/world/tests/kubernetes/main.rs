//! Table-driven tests of the embedded Kubernetes, for the behavior that the daemon depends on.

mod access;
mod api;
mod client;
mod custom;
mod evictions;
mod gangs;
mod nodes;
mod scheduling;
mod workloads;
