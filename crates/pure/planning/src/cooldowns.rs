//! Cool-downs: the pauses during which a pool is left alone after a change. The times of the changes are
//! remembered, so that a restart of the daemon does not end a pause.

use std::time::Duration;

use jiff::Timestamp;

use super::facts::time::after;
use super::view::View;

/// The time of an event, the length of the pause after it, and a description of the event.
type Pause = (Option<Timestamp>, Duration, &'static str);

/// The end of the pause during which no machine is added to the pool, and the reason for the pause. `None` if
/// there is no such pause now.
pub(super) fn growth(view: &View, pool: &str) -> Option<String> {
    let settings = &view.config.scale_up;
    let memory = view.snapshot.memory.pools.get(pool)?;
    let last = memory.last_add.max(memory.last_removal);
    longest(
        view,
        [
            (memory.last_add, settings.delay_after_add, "the last addition"),
            (last, settings.stabilization_window, "the last change to the pool"),
        ],
    )
}

/// Why no node of the pool may be removed now, and until when if this is known. `None` if removals are
/// allowed. `grows` is true if the pool grows in this round.
pub(super) fn removal(view: &View, pool: &str, grows: bool) -> Option<String> {
    let settings = &view.config.scale_down;
    if grows && !settings.delay_after_add.max(settings.stabilization_window).is_zero() {
        return Some("the pool is growing in this round".to_owned());
    }
    let mut moved = view.snapshot.memory.predictions.moved.iter().filter(|one| one.pool == pool);
    if let Some(missed) = moved.find_map(|one| one.missed.as_ref()) {
        return Some(format!("as long as {missed}"));
    }
    let memory = view.snapshot.memory.pools.get(pool)?;
    let last = memory.last_add.max(memory.last_removal);
    longest(
        view,
        [
            (memory.last_add, settings.delay_after_add, "the last addition"),
            (memory.last_removal, settings.delay_after_delete, "the last removal"),
            (memory.last_removal_failure, settings.delay_after_failure, "a failed removal"),
            (last, settings.stabilization_window, "the last change to the pool"),
        ],
    )
}

/// The current pause that ends last, if any. If several pauses end at the same time, the first of them is
/// returned.
fn longest<const N: usize>(view: &View, pauses: [Pause; N]) -> Option<String> {
    let ends = pauses.into_iter().filter_map(|(since, wait, what)| Some((after(since?, wait), what)));
    let running = ends.filter(|(end, _)| *end > view.snapshot.time);
    let last = running.reduce(|best, one| if one.0 > best.0 { one } else { best })?;
    Some(format!("until {}, after {}", last.0, last.1))
}
