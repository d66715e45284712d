//! `zone_labels`: whether labels that contain a machine's host or zone change when its VM is moved.

use serde::Deserialize;

/// The host and zone that replace `{{ host }}` and `{{ zone }}` in a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneLabels {
    /// The host and zone where the machine was created, because volumes may be bound to them.
    #[default]
    Birth,
    /// The host and zone where the machine is now.
    Follow,
}

#[cfg(test)]
mod tests {
    use model::Vmid;

    use super::*;
    use crate::{Needs, parse};

    #[test]
    fn labels_stay_as_they_were_unless_the_pool_says_otherwise() {
        let pool = |more: &str| {
            let text = format!(
                "[[pool]]\nname = \"w\"\nmax = 1\ncores = 1\nmemory = \"1GiB\"\n\
                 labels = {{ zone = \"{{{{ zone }}}}\", fixed = \"x\" }}\n{more}"
            );
            parse("c.toml", &text, Needs::Plan).map(|config| config.pools[0].clone())
        };
        assert_eq!(pool("").unwrap().zone_labels, ZoneLabels::Birth);
        let follows = pool("zone_labels = \"follow\"").unwrap();
        assert_eq!(follows.zone_labels, ZoneLabels::Follow);
        let of_place = follows.labels_of_place("pve2", "w-1", Vmid(100));
        assert_eq!(of_place, [("zone".to_owned(), "pve2".to_owned())].into());
        assert!(pool("zone_labels = \"host\"").is_err());
    }
}
