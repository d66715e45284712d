//! The resources of the process, under the usual names of Prometheus clients.

use std::fmt;

use procfs::process::{LimitValue, Process};
use procfs::{ProcResult, WithCurrentSystemInfo as _};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::gauges::number;

/// Reads `/proc` on each scrape. If this fails, these metrics are left out.
#[derive(Debug)]
pub(super) struct OfProcess;

struct Used {
    cpu_seconds: f64,
    started: f64,
    resident: f64,
    virtual_memory: f64,
    open_files: f64,
    most_files: f64,
    threads: f64,
}

impl Collector for OfProcess {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Ok(used) = look() else { return Ok(()) };
        let cpu = "Total user and system CPU time spent in seconds.";
        let family = encoder.encode_descriptor("process_cpu_seconds", cpu, None, MetricType::Counter)?;
        ConstCounter::new(used.cpu_seconds).encode(family)?;
        for (name, help, value) in [
            (
                "process_start_time_seconds",
                "Start time of the process since the epoch in seconds.",
                used.started,
            ),
            ("process_resident_memory_bytes", "Resident memory size in bytes.", used.resident),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", used.virtual_memory),
            ("process_open_fds", "Number of open file descriptors.", used.open_files),
            ("process_max_fds", "Maximum number of open file descriptors.", used.most_files),
            ("process_threads", "Number of threads.", used.threads),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(family)?;
        }
        Ok(())
    }
}

fn look() -> ProcResult<Used> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = number(i64::try_from(stat.utime + stat.stime).unwrap_or(i64::MAX));
    let of = |value: u64| number(i64::try_from(value).unwrap_or(i64::MAX));
    let limit = match process.limits()?.max_open_files.soft_limit {
        LimitValue::Unlimited => f64::INFINITY,
        LimitValue::Value(value) => of(value),
    };
    let since_boot = of(stat.starttime) / of(procfs::ticks_per_second());
    Ok(Used {
        cpu_seconds: ticks / of(procfs::ticks_per_second()),
        started: of(procfs::boot_time_secs()?) + since_boot,
        resident: of(stat.rss_bytes().get()),
        virtual_memory: of(stat.vsize),
        open_files: number(i64::try_from(process.fd_count()?).unwrap_or(i64::MAX)),
        most_files: limit,
        threads: number(stat.num_threads),
    })
}
