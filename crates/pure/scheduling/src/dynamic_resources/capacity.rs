//! The share of a device's capacities that a request uses (consumable capacity).

use std::collections::BTreeMap;

use super::problem::DeviceProblem;
use model::KubernetesVersion;
use model::amount::Amount;
use model::devices::{Amounts, Capacity, CapacityRange};

/// The amount of each capacity that a request uses. `None` if the request names a capacity that the device
/// lacks.
///
/// # Errors
/// Returns an error if an amount cannot be computed. The whole search then fails, not only this device.
pub(super) fn taken(
    wanted: &Amounts,
    capacity: &BTreeMap<String, Capacity>,
    version: KubernetesVersion,
) -> Result<Option<Amounts>, DeviceProblem> {
    if wanted.keys().any(|name| !capacity.contains_key(name)) {
        return Ok(None);
    }
    let mut all = Amounts::new();
    for (name, one) in capacity {
        let amount = of_one(wanted.get(name).copied(), one, version);
        match amount.filter(|amount| amount.sign() >= 0) {
            Some(amount) => all.insert(name.clone(), amount),
            None => return Err(DeviceProblem::Capacity { name: name.clone() }),
        };
    }
    Ok(Some(all))
}

/// Whether a device's capacities are large enough for the amounts `taken` in addition to the amounts
/// `already` in use.
pub(super) fn fits(
    taken: &Amounts,
    capacity: &BTreeMap<String, Capacity>,
    already: &[Option<&Amounts>],
    version: KubernetesVersion,
) -> bool {
    capacity.iter().all(|(name, one)| {
        let amount = taken.get(name).copied().unwrap_or_default();
        let before = already.iter().flatten().filter_map(|amounts| amounts.get(name));
        is_allowed(amount, one, version) && before.fold(amount, |sum, more| sum.plus(*more)) <= one.value
    })
}

fn of_one(wanted: Option<Amount>, capacity: &Capacity, version: KubernetesVersion) -> Option<Amount> {
    let policy = capacity.policy.as_ref();
    let Some(wanted) = wanted else {
        return Some(policy.and_then(|policy| policy.default).unwrap_or(capacity.value));
    };
    match policy {
        None => Some(wanted),
        Some(policy) => match &policy.range {
            Some(range) => in_steps(wanted, range, version),
            None => Some(policy.values.iter().copied().find(|value| wanted <= *value).unwrap_or(wanted)),
        },
    }
}

/// The wanted amount, rounded up to the minimum or to the next step. `None` if it cannot be computed.
fn in_steps(wanted: Amount, range: &CapacityRange, version: KubernetesVersion) -> Option<Amount> {
    if wanted < range.min {
        return Some(range.min);
    }
    let Some(step) = range.step else { return Some(wanted) };
    let fine = is_fine(range, version);
    let number = |amount: Amount| if fine { amount.whole_milli() } else { Some(amount.rounded_up()) };
    let (wanted, step, min) = (number(wanted)?, number(step)?, number(range.min)?);
    if step <= 0 {
        return None;
    }
    let above = wanted.checked_sub(min)?;
    let steps = above / step + i64::from(above % step != 0);
    let found = step.checked_mul(steps)?.checked_add(min)?;
    Some(if fine { Amount::milli(found) } else { Amount::units(found) })
}

/// Whether steps are counted in thousandths. Kubernetes does so from 1.37 on, if all amounts are whole
/// thousandths.
fn is_fine(range: &CapacityRange, version: KubernetesVersion) -> bool {
    let all = [Some(range.min), range.max, range.step];
    version >= KubernetesVersion::V1_37
        && all.into_iter().flatten().all(|amount| amount.whole_milli().is_some())
        && range.step.and_then(Amount::whole_milli).is_none_or(|step| step >= 1)
}

fn is_allowed(amount: Amount, capacity: &Capacity, version: KubernetesVersion) -> bool {
    let Some(policy) = &capacity.policy else { return true };
    if policy.default == Some(amount) {
        return true;
    }
    match &policy.range {
        Some(range) => is_in_range(amount, range, version),
        None => policy.values.is_empty() || policy.values.contains(&amount),
    }
}

fn is_in_range(amount: Amount, range: &CapacityRange, version: KubernetesVersion) -> bool {
    if range.max.is_some_and(|max| amount > max) {
        return false;
    }
    let Some(step) = range.step else { return true };
    let fine = is_fine(range, version);
    let number = |amount: Amount| if fine { amount.whole_milli() } else { Some(amount.rounded_up()) };
    let (Some(amount), Some(step), Some(min)) = (number(amount), number(step), number(range.min)) else {
        return false;
    };
    step > 0 && amount.saturating_sub(min) % step == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::devices::CapacityPolicy;

    fn amount(text: &str) -> Amount {
        Amount::read(text).unwrap()
    }

    fn with(policy: CapacityPolicy) -> Capacity {
        Capacity { value: amount("10Gi"), policy: Some(policy) }
    }

    fn takes(wanted: Option<&str>, capacity: &Capacity) -> (Option<Amount>, bool) {
        let all = BTreeMap::from([("memory".to_owned(), capacity.clone())]);
        let wanted: Amounts = wanted.map(|text| ("memory".to_owned(), amount(text))).into_iter().collect();
        let Ok(taken) = taken(&wanted, &all, KubernetesVersion::V1_37) else { return (None, false) };
        let taken = taken.unwrap();
        (Some(taken["memory"]), fits(&taken, &all, &[], KubernetesVersion::V1_37))
    }

    #[test]
    fn a_request_takes_what_the_policy_makes_of_it() {
        let range = |step: Option<&str>| CapacityPolicy {
            default: Some(amount("1Gi")),
            range: Some(CapacityRange {
                min: amount("1Gi"),
                max: Some(amount("8Gi")),
                step: step.map(amount),
            }),
            values: Vec::new(),
        };
        let values = CapacityPolicy {
            default: Some(amount("2Gi")),
            range: None,
            values: vec![amount("2Gi"), amount("4Gi")],
        };
        let plain = Capacity { value: amount("10Gi"), policy: None };
        for (wanted, capacity, expected, fits) in [
            (None, &plain, "10Gi", true),
            (Some("3Gi"), &plain, "3Gi", true),
            (Some("11Gi"), &plain, "11Gi", false),
            (None, &with(range(None)), "1Gi", true),
            (Some("1"), &with(range(None)), "1Gi", true),
            (Some("1.5Gi"), &with(range(None)), "1.5Gi", true),
            (Some("1.5Gi"), &with(range(Some("1Gi"))), "2Gi", true),
            (Some("9Gi"), &with(range(Some("1Gi"))), "9Gi", false),
            (None, &with(values.clone()), "2Gi", true),
            (Some("3Gi"), &with(values.clone()), "4Gi", true),
            (Some("5Gi"), &with(values), "5Gi", false),
        ] {
            assert_eq!(takes(wanted, capacity), (Some(amount(expected)), fits), "{wanted:?} of {capacity:?}");
        }
    }

    #[test]
    fn steps_are_reckoned_in_thousandths_from_1_37_on() {
        let range = CapacityRange { min: amount("0"), max: None, step: Some(amount("500m")) };
        assert_eq!(in_steps(amount("1200m"), &range, KubernetesVersion::V1_37), Some(amount("1500m")));
        assert_eq!(in_steps(amount("1200m"), &range, KubernetesVersion::V1_36), Some(amount("2")));
        assert_eq!(
            in_steps(amount("1u"), &range, KubernetesVersion::V1_37),
            None,
            "it is not a whole number of thousandths"
        );
    }
}
