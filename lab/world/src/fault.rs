//! Faults that a test asks for: what happens to the next calls that match.

/// A fault for the next matching calls; `E` is what can happen to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault<E> {
    /// HTTP method, `*` for any.
    pub method: String,
    /// Path without query and without the API's root; `*` stands for any one segment.
    pub path: String,
    /// For how many calls.
    pub times: usize,
    /// What happens.
    pub effect: E,
}

/// The effect of the first fault that matches a call; a fault that has had all its calls is gone.
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
