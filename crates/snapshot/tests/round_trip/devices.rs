//! Random objects of dynamic resource allocation.

use model::amount::Amount;
use model::devices::{
    AllocatedDevice, Allocation, AllocationMode, Amounts, Attribute, Capacity, CapacityPolicy, CapacityRange,
    ClaimSource, ConstraintKind, CounterSet, Device, DeviceAsk, DeviceClass, DeviceConstraint, DeviceRequest,
    DeviceTaint, DeviceTaintRule, DeviceToleration, Made, PodClaim, Reach, RequestKind, ResourceClaim,
    ResourceSlice, TaintedDevices,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::parts::{name, node_selector, text, time};
use crate::pods::owner;

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        (0..1_i64 << 50).prop_map(Amount::units),
        (0..1_i64 << 40).prop_map(Amount::milli),
        (1..99_u32).prop_map(|nano| Amount::read(&format!("{nano}n")).unwrap()),
    ]
}

fn amounts() -> impl Strategy<Value = Amounts> {
    btree_map(name(), amount(), 0..3)
}

fn selectors() -> impl Strategy<Value = Vec<Option<String>>> {
    vec(option::of(text()), 0..3)
}

fn taint() -> impl Strategy<Value = DeviceTaint> {
    (name(), text(), text()).prop_map(|(key, value, effect)| DeviceTaint { key, value, effect })
}

fn toleration() -> impl Strategy<Value = DeviceToleration> {
    (text(), text(), text(), text()).prop_map(|(key, operator, value, effect)| DeviceToleration {
        key,
        operator,
        value,
        effect,
    })
}

fn ask() -> impl Strategy<Value = DeviceAsk> {
    let mode = prop_oneof![
        (1..99_i64).prop_map(AllocationMode::ExactCount),
        Just(AllocationMode::All),
        Just(AllocationMode::Other("Some".to_owned())),
    ];
    (name(), text(), selectors(), mode, vec(toleration(), 0..2), amounts(), any::<bool>()).prop_map(
        |(name, class, selectors, mode, tolerations, capacity, derived)| DeviceAsk {
            name,
            class,
            selectors,
            mode,
            admin: false,
            tolerations,
            capacity,
            derived,
        },
    )
}

fn request() -> impl Strategy<Value = DeviceRequest> {
    let kind = prop_oneof![
        (ask(), any::<bool>()).prop_map(|(one, admin)| RequestKind::Exactly(DeviceAsk { admin, ..one })),
        vec(ask(), 1..3).prop_map(RequestKind::FirstAvailable),
        Just(RequestKind::Unknown),
    ];
    (name(), kind).prop_map(|(name, mut kind)| {
        if let RequestKind::Exactly(one) = &mut kind {
            one.name.clone_from(&name);
        }
        DeviceRequest { name, kind }
    })
}

fn constraint() -> impl Strategy<Value = DeviceConstraint> {
    let kind = prop_oneof![
        name().prop_map(ConstraintKind::Match),
        name().prop_map(ConstraintKind::Distinct),
        Just(ConstraintKind::Unknown),
    ];
    (vec(name(), 0..3), kind).prop_map(|(requests, kind)| DeviceConstraint { requests, kind })
}

fn allocation() -> impl Strategy<Value = Allocation> {
    let device = (name(), name(), name(), any::<bool>(), option::of(name()), option::of(amounts())).prop_map(
        |(driver, pool, device, admin, share, consumed)| AllocatedDevice {
            driver,
            pool,
            device,
            admin,
            share,
            consumed,
        },
    );
    (vec(device, 0..3), option::of(node_selector()))
        .prop_map(|(devices, nodes)| Allocation { devices, nodes })
}

pub fn resource_claim() -> impl Strategy<Value = ResourceClaim> {
    let meta = (name(), name(), text(), option::of(owner()), any::<[bool; 2]>());
    let spec = (vec(request(), 0..3), vec(constraint(), 0..2));
    (meta, spec, option::of(allocation()), vec(name(), 0..3)).prop_map(
        |(
            (namespace, name, uid, owner, [extended, deleted]),
            (requests, constraints),
            allocation,
            reserved_for,
        )| {
            ResourceClaim {
                namespace,
                name,
                uid,
                owner,
                extended,
                deleted,
                requests,
                constraints,
                allocation,
                reserved_for,
            }
        },
    )
}

pub fn device_class() -> impl Strategy<Value = DeviceClass> {
    (name(), selectors(), option::of(name()), option::of(time())).prop_map(
        |(name, selectors, extended_resource, created)| DeviceClass {
            name,
            selectors,
            extended_resource,
            created,
        },
    )
}

fn reach() -> impl Strategy<Value = Reach> {
    (option::of(name()), any::<bool>(), option::of(node_selector())).prop_map(|(node, all, selector)| Reach {
        node,
        all,
        selector,
    })
}

fn counters() -> impl Strategy<Value = CounterSet> {
    (name(), amounts()).prop_map(|(name, counters)| CounterSet { name, counters })
}

fn attribute() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        text().prop_map(Attribute::String),
        any::<i64>().prop_map(Attribute::Int),
        any::<bool>().prop_map(Attribute::Bool),
        text().prop_map(Attribute::Version),
        vec(text(), 0..3).prop_map(Attribute::Strings),
        vec(any::<i64>(), 0..3).prop_map(Attribute::Ints),
        vec(any::<bool>(), 0..3).prop_map(Attribute::Bools),
        vec(text(), 0..3).prop_map(Attribute::Versions),
        Just(Attribute::Unknown),
    ]
}

fn capacity() -> impl Strategy<Value = Capacity> {
    let range = (amount(), option::of(amount()), option::of(amount()))
        .prop_map(|(min, max, step)| CapacityRange { min, max, step });
    let policy = (option::of(amount()), option::of(range), vec(amount(), 0..3))
        .prop_map(|(default, range, values)| CapacityPolicy { default, range, values });
    (amount(), option::of(policy)).prop_map(|(value, policy)| Capacity { value, policy })
}

fn device() -> impl Strategy<Value = Device> {
    let maps = (btree_map(name(), attribute(), 0..3), btree_map(name(), capacity(), 0..3));
    let lists = (vec(counters(), 0..2), vec(taint(), 0..2));
    (name(), maps, lists, reach(), any::<[bool; 3]>()).prop_map(
        |(name, (attributes, capacity), (consumes, taints), reach, [shared, waits, binds_to_node])| Device {
            name,
            attributes,
            capacity,
            shared,
            consumes,
            taints,
            reach,
            waits,
            binds_to_node,
        },
    )
}

pub fn resource_slice() -> impl Strategy<Value = ResourceSlice> {
    let pool = (name(), name(), name(), 0..9_i64, 0..9_i64);
    (pool, reach(), any::<bool>(), vec(counters(), 0..2), vec(device(), 0..3)).prop_map(
        |((name, driver, pool, generation, slices), reach, reach_by_device, counters, devices)| {
            ResourceSlice {
                name,
                driver,
                pool,
                generation,
                slices,
                reach,
                reach_by_device,
                counters,
                devices,
            }
        },
    )
}

pub fn device_taint_rule() -> impl Strategy<Value = DeviceTaintRule> {
    let devices = (option::of(name()), option::of(name()), option::of(name()))
        .prop_map(|(driver, pool, device)| TaintedDevices { driver, pool, device });
    (name(), option::of(devices), taint()).prop_map(|(name, selector, taint)| DeviceTaintRule {
        name,
        selector,
        taint,
    })
}

/// Random claims of a pod or, if `made` is false, of a pod template. No claims have been created for a
/// template yet.
pub fn pod_claims(made: bool) -> impl Strategy<Value = Vec<PodClaim>> {
    let state = if made {
        prop_oneof![Just(Made::NotYet), Just(Made::None), name().prop_map(Made::As)].boxed()
    } else {
        Just(Made::NotYet).boxed()
    };
    let source = prop_oneof![
        name().prop_map(ClaimSource::Named),
        (name(), state).prop_map(|(template, made)| ClaimSource::Template { template, made }),
        Just(ClaimSource::Unknown),
    ];
    vec(source, 0..3).prop_map(|all| {
        let named = |(at, source)| PodClaim { name: format!("claim-{at}"), source };
        all.into_iter().enumerate().map(named).collect()
    })
}
