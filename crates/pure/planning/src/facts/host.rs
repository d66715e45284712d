//! Facts about a host: whether it is on, and whether the daemon is switching it off or on.

use model::Snapshot;
use model::machine::Host;
use model::power::PowerStep;

/// Why nothing new is placed on a host that the daemon is switching off or on. `None` if the daemon is doing
/// neither, or if the host is on again.
pub(crate) fn shut(snapshot: &Snapshot, host: &str) -> Option<&'static str> {
    let power = snapshot.memory.hosts.get(host)?.power.as_ref()?;
    Some(match power.step {
        PowerStep::Emptying => "is being emptied to be switched off",
        PowerStep::ShuttingDown => "is being switched off",
        PowerStep::Off if is_on(snapshot, host) => return None,
        PowerStep::Off => "is switched off until it is needed",
        PowerStep::Waking if is_up(snapshot, host) => return None,
        PowerStep::Waking => "is coming up",
    })
}

/// Whether the host is being emptied so that it can be switched off.
pub(crate) fn is_emptied(snapshot: &Snapshot, host: &str) -> bool {
    let power = snapshot.memory.hosts.get(host).and_then(|memory| memory.power.as_ref());
    power.is_some_and(|power| power.step == PowerStep::Emptying)
}

pub(crate) fn host<'s>(snapshot: &'s Snapshot, name: &str) -> Option<&'s Host> {
    snapshot.proxmox.hosts.iter().flatten().find(|host| host.name == name)
}

pub(crate) fn is_on(snapshot: &Snapshot, name: &str) -> bool {
    host(snapshot, name).is_some_and(|host| host.online)
}

/// Whether the host is on and its API answers.
pub(crate) fn is_up(snapshot: &Snapshot, name: &str) -> bool {
    let facts = snapshot.proxmox.power.as_ref().and_then(|facts| facts.hosts.get(name));
    is_on(snapshot, name) && facts.is_some_and(|facts| facts.answers)
}
