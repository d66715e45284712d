//! Checks whether machines of a pool can grow: whether their template prevents it, and whether the hosts are
//! large enough for the maximum size.

use super::findings::Line;
use super::proxmox_view::Pve;
use machines::Usable;
use proxmox::VmConfig;
use settings::Pool;

/// Returns a line for each template option that prevents or hinders growth. The caller sets the `what` of
/// each line.
pub(super) fn unfit(pool: &Pool, usable: &Usable, vm: &VmConfig) -> Vec<Line> {
    let Some(grow) = &pool.grow else { return Vec::new() };
    let mut wrong = Vec::new();
    let is_node = |key: &str| key.strip_prefix("numa").is_some_and(|number| number.parse::<u8>().is_ok());
    if let Some((key, _)) = vm.all().find(|(key, _)| is_node(key)).filter(|_| grow.grows_memory) {
        let message = format!(
            "the template has a NUMA topology (`{key}`), which prevents machines of a different size \
                from starting; the daemon removes the topology from each machine"
        );
        let help = format!("`qm set {} --delete {key}`", usable.vmid_text());
        wrong.push(Line::doubtful("", message).key("grow").help(help));
    }
    if vm.get("hugepages").is_some() && grow.grows_memory {
        let message =
            "the template sets `hugepages`: a machine's memory can grow only if the host has enough \
                free huge pages"
                .to_owned();
        wrong.push(Line::doubtful("", message).key("grow"));
    }
    wrong
}

/// Returns a line for each host with fewer threads than `max_cores`. A machine that may grow to that number
/// of cores cannot start on such a host.
pub(super) fn hosts(pve: &Pve, pool: &Pool) -> Vec<Line> {
    let Some(grow) = pool.grow.as_ref().filter(|grow| grow.grows_cores) else { return Vec::new() };
    let small = |name: &&String| pve.seen.hosts.get(*name).is_some_and(|host| host.cores < grow.max_cores);
    let words = |name: &String| {
        let threads = pve.seen.hosts.get(name).map_or(0, |host| host.cores);
        let message = format!(
            "{name} has {threads} threads, so a machine that may grow to {} cores cannot start on this \
                host",
            grow.max_cores
        );
        let help = "lower `max_cores` of `[pool.grow]`, or leave the host out of `hosts`";
        Line::doubtful(format!("pool {}", pool.name), message).key("grow").help(help).of(&pool.name)
    };
    pve.allowed(pool).filter(small).map(words).collect()
}
