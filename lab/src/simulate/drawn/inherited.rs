//! Template options that machines must not keep: drawn from the seed, and checked on each machine.

use std::collections::BTreeMap;

use fastrand::Rng;
use world::proxmox::VmView;
use world::proxmox::spec::ClusterSpec;

use crate::simulate::drawn::pool_shape::PoolShape;

/// Options that a clone copies from its template and a machine must not keep.
const OPTIONS: [(&str, &str); 6] = [
    ("protection", "1"),
    ("vcpus", "1"),
    ("numa0", "cpus=0-1,memory=2048"),
    ("ipconfig1", "ip=10.1.0.5/24"),
    ("freeze", "1"),
    ("reboot", "0"),
];
/// The network device option for an unplugged cable.
const UNPLUGGED: &str = "link_down=1";

/// The randomly drawn options of the templates, by template name.
#[derive(Clone, Debug, Default)]
pub struct Inherited(BTreeMap<&'static str, Vec<(&'static str, &'static str)>>);

impl Inherited {
    /// Draws the options of each template; half of the templates have none.
    pub fn draw(random: &mut Rng) -> Self {
        let of_one = |random: &mut Rng| {
            let some = random.bool();
            let mut options = OPTIONS.to_vec();
            options.retain(|_| random.u8(..3) == 0);
            options.extend((random.u8(..3) == 0).then_some(("net0", UNPLUGGED)));
            if some { options } else { Vec::new() }
        };
        Self(["k8s-worker", "k8s-worker-local"].into_iter().map(|name| (name, of_one(random))).collect())
    }

    /// Adds the options to the templates.
    pub fn give(&self, cluster: &mut ClusterSpec) {
        for vm in cluster.vms.iter_mut().filter(|vm| vm.config.contains_key("template")) {
            let name = vm.config.get("name").cloned().unwrap_or_default();
            for (key, value) in self.0.get(name.as_str()).into_iter().flatten() {
                if *value == UNPLUGGED {
                    let device = vm.config.entry((*key).to_owned()).or_default();
                    *device = format!("{device},{UNPLUGGED}");
                } else {
                    vm.config.insert((*key).to_owned(), (*value).to_owned());
                }
            }
        }
    }
}

/// An option that a machine has wrongly kept from its template, if any.
pub fn kept_of_template(pool: &PoolShape, vm: &VmView) -> Option<String> {
    let kept = |(key, value): &&(&str, &str)| {
        // A machine that may grow has its own value for `vcpus`.
        let own = *key == "vcpus" && pool.grows.is_some();
        !own && vm.config.get(*key).is_some_and(|there| there == value)
    };
    if let Some((key, value)) = OPTIONS.iter().find(kept) {
        return Some(format!("has kept {key}: {value} from its template"));
    }
    let device = vm.config.get("net0")?;
    device.contains(UNPLUGGED).then(|| format!("has kept the network device {device} from its template"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_get_what_is_drawn_and_some_get_nothing() {
        let mut seen = [false; 3];
        for seed in 0..100 {
            let drawn = Inherited::draw(&mut Rng::with_seed(seed));
            let mut cluster = ClusterSpec::demo();
            drawn.give(&mut cluster);
            let protected = |vm: &world::proxmox::spec::VmSpec| vm.config.contains_key("protection");
            let unplugged = |vm: &world::proxmox::spec::VmSpec| vm.config["net0"].ends_with(UNPLUGGED);
            let now = [
                cluster.vms.iter().any(protected),
                cluster.vms.iter().any(unplugged),
                drawn.0.values().all(Vec::is_empty),
            ];
            seen.iter_mut().zip(now).for_each(|(seen, now)| *seen |= now);
        }
        assert_eq!(seen, [true; 3]);
    }
}
