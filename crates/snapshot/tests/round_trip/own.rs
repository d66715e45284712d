//! Random contents of the project's own objects in a snapshot, `ProxmoxInventory` and `AutoscalerState`.

use model::machine::{Growing, Host, Machine, Phase, Slot, Storage};
use model::pci::{Held, HostPci};
use model::power::{HostFacts, PowerFacts, PowerMemory, PowerStep};
use model::prediction::{Awaited, MadeFor, Missed, Moved, Predictions};
use model::snapshot::{DeclaredFeatures, HostMemory, Learnt, Memory, NodeMemory, PoolMemory};
use model::unfinished::{NodeTurns, PodTurns, Unfinished};
use model::workload::Backoff;
use model::{HostKey, PoolName, Vmid};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use crate::devices::resource_slice;
use crate::parts::{bytes, features, name, resources, text, time};

fn pci() -> impl Strategy<Value = HostPci> {
    let held = (any::<u32>(), option::of(name()), option::of(name()))
        .prop_map(|(vmid, mapping, address)| Held { vmid: Vmid(vmid), mapping, address });
    let mappings = btree_map(name(), btree_set(text(), 0..3), 0..3);
    (mappings, btree_map(name(), text(), 0..2), vec(held, 0..3))
        .prop_map(|(mappings, broken, held)| HostPci { mappings, broken, held })
}

pub fn host() -> impl Strategy<Value = Host> {
    let store =
        (bytes(), bytes(), any::<bool>()).prop_map(|(total, used, shared)| Storage { total, used, shared });
    let amounts = (any::<u32>(), bytes(), bytes(), any::<u32>(), bytes());
    (name(), any::<[bool; 2]>(), amounts, btree_map(text(), store, 0..3), pci()).prop_map(
        |(
            name,
            [online, maintenance],
            (cores, memory, memory_used, cores_assigned, memory_assigned),
            storage,
            pci,
        )| Host {
            name: name.into(),
            online,
            maintenance,
            cores,
            memory,
            memory_used,
            cores_assigned,
            memory_assigned,
            storage,
            pci,
        },
    )
}

fn host_key() -> impl Strategy<Value = HostKey> {
    name().prop_map(HostKey::from)
}

pub fn power_facts() -> impl Strategy<Value = PowerFacts> {
    let vmids = || btree_set(any::<u32>().prop_map(Vmid), 0..3);
    let facts = (any::<bool>(), vmids(), vmids(), vmids(), option::of(text())).prop_map(
        |(answers, others, going, migrating, stays_on)| HostFacts {
            answers,
            others,
            going,
            migrating,
            stays_on,
        },
    );
    (btree_map(host_key(), any::<u32>(), 0..3), btree_map(host_key(), facts, 0..3))
        .prop_map(|(votes, hosts)| PowerFacts { votes, hosts })
}

fn power_memory() -> impl Strategy<Value = PowerMemory> {
    use PowerStep::{Emptying, Off, ShuttingDown, Waking};
    let step = prop::sample::select(vec![Emptying, ShuttingDown, Off, Waking]);
    let pools = || btree_set(name().prop_map(PoolName::from), 0..3);
    (step, time(), option::of(time()), option::of(host()), pools(), pools()).prop_map(
        |(step, since, asked, room, reached_by, across)| PowerMemory {
            step,
            since,
            asked,
            room,
            reached_by,
            across,
        },
    )
}

pub fn machine() -> impl Strategy<Value = Machine> {
    use Phase::{
        Booting, Cloning, Configuring, Deleting, Draining, Failed, Gone, Joining, Ready, Registered,
        Requested, Starting, Stopping,
    };
    let phase = prop::sample::select(vec![
        Booting,
        Cloning,
        Configuring,
        Deleting,
        Draining,
        Failed,
        Gone,
        Joining,
        Ready,
        Registered,
        Requested,
        Starting,
        Stopping,
    ]);
    let texts = (name(), name(), option::of(host_key()), option::of(name()), vec(text(), 0..3));
    let growing = (any::<u32>(), bytes(), 0..100_000_i64, bytes(), time()).prop_map(
        |(cores, memory, node_cpu_milli, node_memory, since)| Growing {
            cores,
            memory,
            node_cpu_milli,
            node_memory,
            since,
            failed: None,
        },
    );
    let made_of = (btree_map(name(), text(), 0..3), option::of(growing), option::of(backoff()));
    (texts, (any::<u32>(), any::<u32>(), bytes()), phase, option::of(time()), made_of).prop_map(
        |(
            (name, pool, host, node, pods),
            (vmid, cores, memory),
            phase,
            since,
            (made_of, growing, grow_backoff),
        )| Machine {
            name,
            pool: pool.into(),
            vmid: Vmid(vmid),
            seen_on: host.clone().filter(|_| vmid % 2 == 0),
            host: host.unwrap_or_default(),
            cores,
            memory,
            phase,
            just_stored: vmid % 3 == 0,
            since,
            requested: since.filter(|_| vmid % 5 == 0),
            node,
            pods,
            warm: None,
            growing,
            grow_backoff,
            takes_no_cpus: vmid % 7 == 0,
            takes_no_memory: vmid % 11 == 0,
            made_of,
        },
    )
}

fn backoff() -> impl Strategy<Value = Backoff> {
    (time(), text(), 0..10_000_i64).prop_map(|(until, reason, seconds)| Backoff { until, reason, seconds })
}

pub fn memory() -> impl Strategy<Value = Memory> {
    let times = (option::of(time()), option::of(time()), option::of(time()));
    let out_of = (btree_map(text(), text(), 0..3), option::of(text()), any::<bool>(), bytes());
    let reach = (option::of(vec(name(), 0..3)), vec(name(), 0..3), vec(text(), 0..3), out_of);
    let learnt =
        (any::<u32>(), bytes(), resources(0..200_i64, 0)).prop_map(|(cores, memory, allocatable)| {
            let kubelet = if cores % 2 == 0 { String::new() } else { r#"{"podPidsLimit":9}"#.to_owned() };
            Learnt { cores, memory, allocatable, kubelet }
        });
    let drivers = btree_map(name(), option::of(0..100_i64), 0..3);
    let declared =
        (features(), text()).prop_map(|(features, kubelet)| DeclaredFeatures { features, kubelet });
    let learnt = (option::of(resources(0..200_i64, 0)), vec(learnt, 0..3), drivers, option::of(declared));
    let learnt = (learnt, vec(resource_slice(), 0..2), text());
    let backoffs = (
        option::of(backoff()),
        option::of(backoff()),
        btree_map(text().prop_map(HostKey::from), time(), 0..3),
    );
    let pool = (times, backoffs, learnt, reach).prop_map(
        |(
            (last_add, last_removal, last_removal_failure),
            (backoff, grow_backoff, failed_on),
            (learnt, device_slices, declared_devices),
            reach,
        )| {
            PoolMemory {
                last_add,
                last_removal,
                last_removal_failure,
                backoff,
                failed_on,
                grow_backoff,
                learnt_allocatable: learnt.0,
                learnt_sizes: learnt.1,
                csi_limits: learnt.2,
                device_slices,
                declared_devices,
                declared: learnt.3,
                reach: reach.0.map(|all| all.into_iter().map(HostKey::from).collect()),
                across: reach.1.into_iter().map(HostKey::from).collect(),
                templates: reach.2,
                out_of_service: reach.3.0,
                out_of_sight: reach.3.1,
                without_template: reach.3.2,
                clone_bytes: reach.3.3,
            }
        },
    );
    let host = (option::of(backoff()), option::of(backoff()), option::of(time()), option::of(power_memory()));
    let host = host.prop_map(|(backoff, emptying_backoff, idle_since, power)| HostMemory {
        backoff,
        emptying_backoff,
        idle_since,
        power,
    });
    let further = btree_map(text(), any::<std::net::IpAddr>(), 0..3);
    let slot = (any::<u32>(), option::of(name()), option::of(any::<std::net::IpAddr>()), further)
        .prop_map(|(vmid, machine, address, further)| Slot { vmid: Vmid(vmid), machine, address, further });
    let slots = option::of(btree_map(text().prop_map(PoolName::from), vec(slot, 0..3), 0..3));
    let node = (text(), option::of(backoff()), option::of(time()));
    let node = node.prop_map(|(pool, removal_backoff, unready_since)| NodeMemory {
        pool: pool.into(),
        removal_backoff,
        unready_since,
    });
    let nodes = btree_map(text(), node, 0..3);
    let maps = (
        btree_map(text().prop_map(PoolName::from), pool, 0..3),
        btree_map(host_key(), host, 0..3),
        nodes,
        slots,
    );
    let followed = (predictions(), unfinished());
    (option::of(time()), maps, any::<u64>(), vec(time(), 0..3), followed).prop_map(
        |(last_round, (pools, hosts, nodes, free_slots), name_seed, removals, (predictions, unfinished))| {
            Memory {
                // Past decisions and the time of the latest orphan collection are not written to a snapshot
                // file.
                orphan_collected: None,
                backoff_initial: None,
                decisions: Vec::new(),
                last_round,
                pools,
                hosts,
                nodes,
                free_slots,
                name_seed,
                removals,
                predictions,
                unfinished,
            }
        },
    )
}

fn unfinished() -> impl Strategy<Value = Unfinished> {
    let places =
        (btree_map(text(), text(), 0..3), btree_map(any::<i32>(), text(), 0..3), btree_set(text(), 0..3));
    let pods = (0_usize..9, 0_usize..9, places).prop_map(|(left, most, (after, last, heavy))| PodTurns {
        left,
        most,
        after,
        last,
        heavy,
    });
    let nodes = (0_usize..9, 0_usize..9, option::of(text()));
    let nodes = nodes.prop_map(|(left, most, after)| NodeTurns { left, most, after });
    (option::of(pods), option::of(nodes)).prop_map(|(pods, nodes)| Unfinished { pods, nodes })
}

fn predictions() -> impl Strategy<Value = Predictions> {
    let awaited =
        (text(), name(), time(), option::of(time())).prop_map(|(kind, pod, since, refused_again)| Awaited {
            kind,
            pod,
            since,
            refused_again,
            ..Awaited::default()
        });
    let made =
        (name(), vec(text(), 0..3), time(), any::<bool>()).prop_map(|(machine, kinds, at, in_vain)| {
            MadeFor { machine, kinds, at, in_vain, ..MadeFor::default() }
        });
    let missed = (text(), option::of(name()), time(), backoff(), vec(text(), 0..3)).prop_map(
        |(kind, pool, at, backoff, waiting)| Missed {
            kind,
            pool: pool.map(Into::into),
            at,
            backoff,
            waiting,
            ..Missed::default()
        },
    );
    let moved = (name(), any::<u8>(), time(), option::of(text())).prop_map(|(node, pods, at, missed)| {
        Moved { node, pods: usize::from(pods), at, missed, ..Moved::default() }
    });
    (vec(awaited, 0..2), vec(made, 0..2), vec(missed, 0..2), vec(moved, 0..2))
        .prop_map(|(awaited, made, missed, moved)| Predictions { awaited, made, missed, moved })
}
