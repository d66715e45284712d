//! A pool's `warm` setting: machines that are created ahead of demand and wait to join.

use serde::Deserialize;
use toml::Spanned;

use super::pci;
use crate::values::Checker;
use model::machine::WarmState;

/// How many machines are kept ahead of demand, and in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warm {
    /// The number of machines that are kept ahead of demand. They count towards `max`, but not towards `min`.
    pub count: u32,
    /// The state in which the machines are kept.
    pub state: WarmState,
}

/// `warm` as written in the configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    count: Spanned<u32>,
    state: Option<Spanned<WarmState>>,
}

impl Written {
    pub(super) fn check(&self, pool: &super::Written, checker: &mut Checker) -> Warm {
        let (name, max) = (pool.name.get_ref(), *pool.max.get_ref());
        let count = *self.count.get_ref();
        if count > max {
            checker.clash(
                format!("pool `{name}`: `warm.count` is greater than `max`"),
                self.count.span(),
                &format!("must be at most {max}"),
                pool.max.span(),
                "raise `max`, or lower `warm.count`: warm machines count towards `max`",
            );
        }
        let device = pci::free_device(pool).or_else(|| pool.pci.first().map(|one| &one.mapping));
        if let (Some(state), Some(device)) = (&self.state, device)
            && *state.get_ref() == WarmState::Suspended
        {
            checker.clash(
                format!("pool `{name}`: a machine with a host device cannot be suspended"),
                state.span(),
                "its memory would be saved without the device's state",
                device.span(),
                "set `state` to \"booted\" or \"stopped\"",
            );
        }
        Warm { count, state: self.state.as_ref().map(|state| *state.get_ref()).unwrap_or_default() }
    }

    /// Reports a `state` other than `stopped` if the machines join by themselves, because they would already
    /// join at their first boot.
    pub(super) fn waits_before_the_join(&self, pool: &str, checker: &mut Checker) {
        if let Some(state) = self.state.as_ref().filter(|state| *state.get_ref() != WarmState::Stopped) {
            let title = format!(
                "pool `{pool}`: a machine that joins by itself cannot be kept {}",
                state.get_ref().name()
            );
            let help = "with `bootstrap.method = \"none\"`, warm machines can only be \"stopped\"";
            checker.wrong(title, state.span(), "the machine would join the cluster at its first boot", help);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Needs, parse};

    fn pool(more: &str) -> Result<Warm, String> {
        let text = format!("[[pool]]\nname = \"w\"\nmax = 3\ncores = 2\nmemory = \"2GiB\"\n{more}\n");
        parse("c.toml", &text, Needs::Plan)
            .map(|config| config.pools[0].warm)
            .map_err(|report| report.plain())
    }

    #[test]
    fn machines_are_kept_stopped_unless_the_pool_says_otherwise() {
        for (text, count, state) in [
            ("", 0, WarmState::Stopped),
            ("warm = { count = 2 }", 2, WarmState::Stopped),
            ("warm = { count = 3, state = \"booted\" }", 3, WarmState::Booted),
            ("[pool.warm]\ncount = 1\nstate = \"suspended\"", 1, WarmState::Suspended),
        ] {
            assert_eq!(pool(text), Ok(Warm { count, state }), "{text}");
        }
    }

    #[test]
    fn more_than_the_pool_may_have_and_unknown_states_are_refused() {
        for (text, said) in [
            ("warm = { count = 4 }", "`warm.count` is greater than `max`"),
            ("warm = { count = 1, state = \"hot\" }", "unknown variant `hot`"),
            ("warm = { state = \"booted\" }", "count"),
            (
                "warm = { count = 1, state = \"suspended\" }\nvm_options = { hostpci0 = \"mapping=gpu\" }",
                "a machine with a host device cannot be suspended",
            ),
        ] {
            let report = pool(text).unwrap_err();
            assert!(report.contains(said), "{text}: {report}");
        }
    }
}
