//! Some metrics under the names of kproximate 0.3, so that its dashboards and alerts keep working.
//!
//! The names are exactly those of kproximate, even though some gauges' names end in `_total`. The values are
//! sums over all pools.

use std::fmt::Write;

use super::gauges::GaugeValues;
use super::names;

/// kproximate's eight gauges as OpenMetrics text, without the end marker.
pub(super) fn text(board: &GaugeValues, round: &GaugeValues) -> String {
    let gauges = [
        ("kpnodes_total", "Machines in all pools", board.sum(names::MACHINES)),
        ("kpnodes_running", "Ready nodes in all pools", round.sum_with(names::NODES, "Ready")),
        ("cpu_provisioned_total", "vCPUs of all machines", round.sum(names::CPU_PROVISIONED)),
        (
            "memory_provisioned_total",
            "Total memory of all machines, in bytes",
            round.sum(names::MEMORY_PROVISIONED),
        ),
        (
            "cpu_allocatable_total",
            "Cores that the pools' nodes offer to pods",
            round.sum(names::CPU_ALLOCATABLE),
        ),
        (
            "memory_allocatable_total",
            "Memory that the pools' nodes offer to pods, in bytes",
            round.sum(names::MEMORY_ALLOCATABLE),
        ),
        (
            "cpu_allocated_total",
            "Cores that pods on the pools' nodes request",
            round.sum(names::CPU_ALLOCATED),
        ),
        (
            "memory_allocated_total",
            "Memory that pods on the pools' nodes request, in bytes",
            round.sum(names::MEMORY_ALLOCATED),
        ),
    ];
    let mut text = String::new();
    for (name, help, value) in gauges {
        let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {value:?}");
    }
    text
}
