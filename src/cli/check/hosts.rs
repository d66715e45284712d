//! Checks whether a pool's hosts exist, have room, and are connected to the pool's network.

use std::collections::BTreeSet;

use super::findings::{Answer, Line};
use super::proxmox_view::Pve;
use super::template::{Fit, binary};
use crate::cli::exit::{FINDINGS, SUCCESS, UNREACHABLE, chain};
use model::Vmid;
use model::machine::Host;
use proxmox::Error;
use settings::{HostSettings, Pool};

pub(super) async fn check(pve: &Pve, pool: &Pool, templates: &[Fit], answer: &mut Answer) {
    for host in pool.hosts.iter().filter(|host| !pve.seen.hosts.contains_key(host.as_str())) {
        let names: Vec<&str> = pve.seen.hosts.keys().map(String::as_str).collect();
        let line = Line::wrong(format!("host {host}"), "there is no such host");
        answer.say(
            line.key("hosts").help(format!("the hosts are {}", names.join(", "))).of(&pool.name),
            FINDINGS,
        );
    }
    for size in &pool.sizes {
        let sized = Pool { cores: size.cores, memory: size.memory, ..pool.clone() };
        let key = if (size.cores, size.memory) == (pool.cores, pool.memory) { "memory" } else { "sizes" };
        room(pve, &sized, key, templates, answer);
    }
    network(pve, pool, templates, answer).await;
}

/// Checks that each `[[host]]` table names an existing host.
pub(super) fn special(pve: &Pve, answer: &mut Answer) {
    for name in pve.special.keys().filter(|name| !pve.seen.hosts.contains_key(name.as_str())) {
        let names: Vec<&str> = pve.seen.hosts.keys().map(String::as_str).collect();
        let line = Line::wrong(format!("host {name}"), "there is no such host").key("host");
        answer.say(line.help(format!("the hosts are {}", names.join(", "))), FINDINGS);
    }
}

/// Finds hosts that report nothing about themselves, their VMs or their storages.
pub(super) fn silent(pve: &Pve, answer: &mut Answer) {
    for host in pve.seen.silent() {
        let name = &host.name;
        let message = "pvestatd has reported nothing for five minutes: the host's memory and the names of its VMs and templates are unknown";
        let help = format!(
            "run `systemctl restart pvestatd` on {name}; an unresponsive storage may \
            block pvestatd"
        );
        answer.say(Line::wrong(format!("host {name}"), message).help(help), FINDINGS);
    }
}

/// Returns true if a pool cannot be checked because a host that it may use reports nothing. Adds a line in
/// this case.
pub(super) fn is_unknown(pve: &Pve, pool: &Pool, answer: &mut Answer) -> bool {
    let silent = |host: &&String| pve.seen.hosts.get(*host).is_some_and(|host| host.silent);
    let Some(host) = pve.allowed(pool).find(silent) else { return false };
    let message = format!("not checked: host {host} reports nothing");
    answer.say(Line::doubtful("template, room and network", message).of(&pool.name), FINDINGS);
    true
}

/// Reports how many more machines of the pool's size fit on the hosts, calculated as for a plan. `key` is the
/// setting that contains the size.
fn room(pve: &Pve, pool: &Pool, key: &'static str, templates: &[Fit], answer: &mut Answer) {
    let reached: BTreeSet<&String> = templates.iter().flat_map(|fit| &fit.reach).collect();
    let allowed: BTreeSet<&str> = pve
        .allowed(pool)
        .filter(|host| templates.is_empty() || reached.contains(host))
        .map(String::as_str)
        .collect();
    if allowed.is_empty() {
        return;
    }
    let size = format!("{} cores and {}", pool.cores, binary(pool.memory));
    let what = if pool.sizes.len() > 1 { format!("room for {size}") } else { "room".to_owned() };
    let mut parts = Vec::new();
    let mut all = 0;
    for host in pve.hosts.iter().filter(|host| allowed.contains(host.name.as_str())) {
        let name = &host.name;
        if !host.online {
            parts.push(format!("{name} is off"));
        } else if host.maintenance {
            parts.push(format!("{name} is in maintenance"));
        } else if pve.special.get(name).is_some_and(|own| own.closed) {
            parts.push(format!("{name} is closed"));
        } else if pool.grow.as_ref().is_some_and(|grow| grow.grows_cores && grow.max_cores > host.cores) {
            parts.push(format!("{name} is too small"));
        } else {
            let here =
                pve.seen.guests.values().filter(|guest| guest.host == **name && in_range(pool, guest.vmid));
            let more = fits(pool, host, pve.special.get(name), here.count());
            all += more;
            parts.push(format!("{name} {more}"));
        }
    }
    let parts = parts.join(", ");
    if all > 0 {
        return answer.say(Line::good(what, format!("for more machines: {parts}")).of(&pool.name), SUCCESS);
    }
    let hosts = pve.hosts.iter().filter(|host| allowed.contains(host.name.as_str()));
    let most = hosts.map(|host| most_memory(pool, host, pve.special.get(&host.name))).max();
    let line = if let Some(most) = most.filter(|most| *most < pool.memory) {
        let most = binary(most.max(0));
        let message = format!(
            "no host could ever take a machine of {size}: even an empty host has at most {most} of memory for machines"
        );
        Line::wrong(what, message).key(key).help("lower `memory` or `memory_reserve`")
    } else {
        let message = format!("no host has room for a machine of {size} now: {parts}");
        let help = "a new machine waits until a host has room; `cpu_overcommit` and `memory_reserve` determine \
                how much room hosts have";
        Line::doubtful(what, message).key(key).help(help)
    };
    answer.say(line.of(&pool.name), FINDINGS);
}

/// The memory that the host would have for guests if none were running: all of it except the reserve.
fn most_memory(pool: &Pool, host: &Host, own: Option<&HostSettings>) -> i64 {
    free_memory(pool, &Host { memory_assigned: 0, memory_used: 0, ..host.clone() }, own)
}

/// The memory that the host has left for machines of the pool.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "an approximate amount is enough"
)]
fn free_memory(pool: &Pool, host: &Host, own: Option<&HostSettings>) -> i64 {
    let promised = (host.memory as f64 * pool.memory_overcommit) as i64 - host.memory_assigned;
    let reserve = own.and_then(|own| own.memory_reserve).unwrap_or(pool.memory_reserve);
    promised.min(host.memory - host.memory_used) - reserve
}

/// How many more machines of the pool the host can take; it already has `here` of them.
#[expect(clippy::cast_possible_truncation, reason = "a count for people")]
fn fits(pool: &Pool, host: &Host, own: Option<&HostSettings>, here: usize) -> i64 {
    let memory = free_memory(pool, host, own);
    let threads = host.cores.saturating_sub(own.map_or(0, |own| own.cpu_reserve));
    let vcpus = (f64::from(threads) * pool.cpu_overcommit) as i64 - i64::from(host.cores_assigned);
    let mut more = (memory / pool.memory.max(1)).min(vcpus / i64::from(pool.cores.max(1)));
    if let Some(most) = pool.max_per_host {
        more = more.min(i64::from(most) - i64::try_from(here).unwrap_or(i64::MAX));
    }
    if !pool.pci.is_empty() {
        more = more.min(i64::from(planning::devices_left(pool, host)));
    }
    more.max(0)
}

/// Whether the VMID is in one of the pool's ranges.
pub(super) fn in_range(pool: &Pool, vmid: Vmid) -> bool {
    pool.vmids.iter().any(|range| range.contains(&vmid.0))
}

/// Checks that every online host of the pool has the bridges of the machines' network devices, and that the
/// token may use them with their VLANs.
async fn network(pve: &Pve, pool: &Pool, templates: &[Fit], answer: &mut Answer) {
    let wanted: BTreeSet<(String, Option<u16>)> = networks(pool, templates);
    let up: Vec<&str> =
        pve.allowed(pool).filter(|host| pve.seen.hosts[*host].online).map(String::as_str).collect();
    for (bridge, tag) in wanted {
        let what = match tag {
            Some(tag) => format!("network {bridge}, VLAN {tag}"),
            None => format!("network {bridge}"),
        };
        let mut wrong = match on_hosts(pve, &what, &up, &bridge).await {
            Ok(wrong) => wrong,
            Err(error) => return answer.say(Line::wrong(what, chain(&error)).of(&pool.name), UNREACHABLE),
        };
        if let Some(tag) = tag.filter(|_| wrong.is_empty()) {
            wrong.extend(tagged(pve, &what, &bridge, tag).await);
        }
        let good = Line::good(what, format!("on {}", up.join(", "))).of(&pool.name);
        let wrong = wrong.into_iter().map(|line| line.key("bridge").of(&pool.name)).collect();
        answer.say_all(wrong, good, FINDINGS);
    }
}

/// The bridges and VLANs of the machines' network devices: those that the pool sets, otherwise those of its
/// templates.
pub(super) fn networks(pool: &Pool, templates: &[Fit]) -> BTreeSet<(String, Option<u16>)> {
    let mut all = BTreeSet::new();
    let of = |fit: &Fit, key: &str, name| fit.vm.parts(key).get(name).map(ToOwned::to_owned);
    for (number, device) in pool.devices.iter().enumerate() {
        let key = format!("net{number}");
        let tag = |fit: Option<&Fit>| device.vlan.or_else(|| of(fit?, &key, "tag")?.parse().ok());
        if let Some(bridge) = &device.bridge {
            all.insert((bridge.clone(), tag(templates.first())));
            continue;
        }
        all.extend(templates.iter().filter_map(|fit| Some((of(fit, &key, "bridge")?, tag(Some(fit))))));
    }
    // Machines keep the template's network devices that the pool does not configure.
    for fit in templates {
        let beyond = |key: &&str| {
            let number = key.strip_prefix("net").and_then(|number| number.parse::<usize>().ok());
            number.is_some_and(|number| number >= pool.devices.len())
        };
        for key in fit.vm.all().map(|(key, _)| key).filter(beyond) {
            let tag = of(fit, key, "tag").and_then(|tag| tag.parse().ok());
            all.extend(of(fit, key, "bridge").map(|bridge| (bridge, tag)));
        }
    }
    all
}

/// Returns a line for the hosts without the bridge, and a line for the hosts on which it is down.
async fn on_hosts(pve: &Pve, what: &str, hosts: &[&str], bridge: &str) -> Result<Vec<Line>, Error> {
    let (mut without, mut down, mut there) = (Vec::new(), Vec::new(), BTreeSet::new());
    for host in hosts {
        let bridges = pve.bridges(host).await?;
        match bridges.iter().find(|one| one.name == bridge) {
            Some(found) if found.active => {}
            Some(_) => down.push(*host),
            // If the token lacks the privilege, the list is empty. The missing privilege was already
            // reported.
            None if pve.lacking.contains("SDN.Use") => {}
            None => {
                without.push(*host);
                there.extend(bridges.into_iter().map(|one| one.name));
            }
        }
    }
    let mut wrong = Vec::new();
    if !without.is_empty() {
        let there: Vec<String> = there.into_iter().collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        let help = format!(
            "of the bridges on these hosts, the token may use {there}: set `bridge` or `hosts`, or give the token \
            SDN.Use on /sdn/zones/localnetwork/{bridge}"
        );
        let message = format!("no bridge `{bridge}` on {}, or the token cannot use it", without.join(", "));
        wrong.push(Line::wrong(what, message).help(help));
    }
    if !down.is_empty() {
        let message = format!("bridge `{bridge}` is down on {}", down.join(", "));
        wrong
            .push(Line::doubtful(what, message).help("run `ifreload -a` on the host to bring the bridge up"));
    }
    Ok(wrong)
}

/// Checks the right to use a VLAN. A host bridge has a permission path for each VLAN, to which rights on the
/// bridge apply only if they propagate. An SDN network has no such paths.
async fn tagged(pve: &Pve, what: &str, bridge: &str, tag: u16) -> Option<Line> {
    let path = format!("/sdn/zones/localnetwork/{bridge}");
    let local = pve.client.privileges_on(&path).await.is_ok_and(|has| has.contains("SDN.Use"));
    let (lacks, help) = pve.lacks(&format!("{path}/{tag}"), &["SDN.Use"]).await.ok().flatten()?;
    local.then(|| Line::wrong(what, lacks).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Needs;

    #[test]
    fn room_is_the_least_of_memory_cpu_and_the_pools_own_limit() {
        let host = Host {
            memory: 64 << 30,
            memory_used: 10 << 30,
            memory_assigned: 20 << 30,
            cores: 8,
            cores_assigned: 8,
            ..Host::default()
        };
        for (settings, here, expected) in [
            // 64 - 20 - 2 = 42 GiB for machines of 8 GiB, and 8 × 4 - 8 = 24 vCPUs for machines of 2 vCPUs.
            ("cores = 2\nmemory = \"8GiB\"", 0, 5),
            ("cores = 12\nmemory = \"8GiB\"", 0, 2),
            ("cores = 2\nmemory = \"8GiB\"\nmax_per_host = 4", 3, 1),
            ("cores = 2\nmemory = \"8GiB\"\nmax_per_host = 2", 3, 0),
            ("cores = 2\nmemory = \"80GiB\"", 0, 0),
            // With overcommit, 96 - 20 GiB are not assigned to guests, but only 64 - 10 GiB are unused.
            ("cores = 2\nmemory = \"8GiB\"\nmemory_overcommit = 1.5", 0, 6),
        ] {
            let text = format!("[[pool]]\nname = \"w\"\nmax = 9\n{settings}\n");
            let config = settings::parse("c", &text, Needs::Plan).unwrap();
            assert_eq!(fits(&config.pools[0], &host, None, here), expected, "{settings}");
        }
    }

    #[test]
    fn what_a_host_could_ever_take_depends_on_its_own_reserve() {
        let host = Host {
            name: "a".into(),
            memory: 64 << 30,
            memory_used: 60 << 30,
            memory_assigned: 64 << 30,
            ..Host::default()
        };
        for (settings, own, expected) in [
            ("", "", 62),
            ("memory_reserve = \"10GiB\"\n", "", 54),
            ("memory_reserve = \"10GiB\"\n", "memory_reserve = \"1GiB\"", 63),
            ("memory_reserve = \"1GiB\"\n", "memory_reserve = \"30GiB\"", 34),
            ("memory_overcommit = 0.5\n", "", 30),
            ("memory_overcommit = 1.5\n", "", 62),
        ] {
            let pool = "[[pool]]\nname = \"w\"\nmax = 9\ncores = 2\nmemory = \"8GiB\"\n";
            let text = format!("{pool}{settings}[[host]]\nname = \"a\"\n{own}\n");
            let config = settings::parse("c", &text, Needs::Plan).unwrap();
            let most = most_memory(&config.pools[0], &host, config.hosts.get("a"));
            assert_eq!(most >> 30, expected, "{settings}{own}");
        }
    }
}
