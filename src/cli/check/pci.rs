//! Checks whether the PCI devices of a pool exist, and whether machines can start with them.

use super::findings::{Answer, Line};
use super::proxmox_view::Pve;
use super::template::Fit;
use crate::cli::exit::{FINDINGS, SUCCESS};
use settings::{Pci, Pool};

pub(super) fn check(pve: &Pve, pool: &Pool, templates: &[Fit], answer: &mut Answer) {
    for one in &pool.pci {
        let what = format!("PCI mapping {}", one.mapping);
        let mut wrong = Vec::new();
        let there = hosts(pve, pool, one);
        if there.is_empty() {
            let message = "none of the pool's hosts has a device in this mapping, or the token cannot \
                see the mapping";
            let help = format!(
                "create the mapping under Datacenter, Resource Mappings, and give the token Mapping.Use \
                    on /mapping/pci/{}",
                one.mapping
            );
            wrong.push(Line::wrong(what.clone(), message).help(help));
        }
        for (host, problem) in there.iter().filter_map(|one| Some((one.name, one.problem?))) {
            let help = "if the mapping no longer matches the host's hardware, map the device again";
            wrong.push(
                Line::doubtful(what.clone(), format!("no machine can use the mapping on {host}: {problem}"))
                    .help(help),
            );
        }
        wrong.extend(bus(pool, one, templates).map(|line| Line { what: what.clone(), ..line }));
        let parts = there.iter().map(|host| format!("{} {} of {}", host.name, host.machines, host.devices));
        let parts = parts.collect::<Vec<_>>().join(", ");
        let good = Line::good(what, format!("free for machines: {parts}")).of(&pool.name);
        let wrong: Vec<Line> = wrong.into_iter().map(|line| line.key("pci").of(&pool.name)).collect();
        if wrong.is_empty() {
            answer.say(good, SUCCESS);
        }
        for line in wrong {
            answer.say(line, FINDINGS);
        }
    }
}

/// The devices of a mapping on one host.
struct Here<'p> {
    name: &'p str,
    /// The number of the pool's machines for which the free devices suffice.
    machines: u32,
    devices: usize,
    problem: Option<&'p String>,
}

fn hosts<'p>(pve: &'p Pve, pool: &'p Pool, one: &Pci) -> Vec<Here<'p>> {
    let allowed = pve.hosts.iter().filter(|host| pool.hosts.is_empty() || pool.hosts.contains(&host.name));
    let alone = Pool { pci: vec![one.clone()], ..pool.clone() };
    allowed
        .filter_map(|host| {
            Some(Here {
                name: &host.name,
                machines: planning::devices_left(&alone, host),
                devices: host.pci.mappings.get(&one.mapping)?.len(),
                problem: host.pci.broken.get(&one.mapping),
            })
        })
        .collect()
}

/// Only machines of the type `q35` have a PCI Express bus. With `pcie`, machines of other types fail to start
/// (`q35 machine model is not enabled`).
fn bus(pool: &Pool, one: &Pci, templates: &[Fit]) -> Option<Line> {
    let express = |machine: &str| machine.contains("q35");
    let own = pool.vm_options.get("machine").map(|machine| express(machine));
    let inherited = || templates.iter().all(|fit| fit.vm.get("machine").is_some_and(express));
    (one.pcie == Some(true) && !own.unwrap_or_else(inherited)).then(|| {
        let help = "set `vm_options = { machine = \"q35\" }`, or leave `pcie` out";
        Line::wrong("", "`pcie` needs the machine type q35, but the pool's machines have another type")
            .help(help)
    })
}
