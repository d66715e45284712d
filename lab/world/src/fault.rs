//! Faults that a test injects into the next matching calls.

/// A fault for the next matching calls. `E` is the type of its effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault<E> {
    /// HTTP method, `*` for any.
    pub method: String,
    /// Path without query and without the API's root; `*` stands for any one segment.
    pub path: String,
    /// The number of calls that the fault applies to.
    pub times: usize,
    /// The effect on each of these calls.
    pub effect: E,
}

/// Returns the effect of the first fault that matches a call. A fault is removed once it has applied to all
/// its calls.
pub(crate) fn take<E: Clone>(faults: &mut Vec<Fault<E>>, method: &str, path: &str) -> Option<E> {
    let at = faults.iter().position(|fault| {
        (fault.method == "*" || fault.method == method)
            && fault.path.split('/').count() == path.split('/').count()
            && fault
                .path
                .split('/')
                .zip(path.split('/'))
                .all(|(pattern, found)| pattern == "*" || pattern == found)
    })?;
    let fault = faults.get_mut(at)?;
    fault.times = fault.times.saturating_sub(1);
    let effect = fault.effect.clone();
    if fault.times == 0 {
        faults.remove(at);
    }
    Some(effect)
}
