//! Work on many things at once, in several threads: with many pods most of the time of a decision goes into fetching them from
//! memory, which one core does by itself no faster. The outcome does not depend on how the work is shared out.

use std::panic;
use std::thread;

/// Into how many parts long lists are divided.
const PARTS: usize = 4;
/// A thread for fewer things costs more than it saves.
const LEAST: usize = 2048;

/// Has the work done for each part of the list, in as many threads; gives what came of it in the list's order. The work is
/// told where in the list its part begins.
pub(super) fn of<'t, T: Sync, R: Send>(list: &'t [T], work: impl Fn(usize, &'t [T]) -> R + Sync) -> Vec<R> {
    let size = list.len().div_ceil(PARTS).max(LEAST);
    if list.len() <= size {
        return vec![work(0, list)];
    }
    let work = &work;
    thread::scope(|scope| {
        let parts = list.chunks(size).enumerate();
        let threads: Vec<_> =
            parts.map(|(number, part)| scope.spawn(move || work(number * size, part))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_out_and_the_order_is_kept() {
        for length in [0, 1, LEAST, LEAST + 1, 3 * LEAST, PARTS * LEAST, PARTS * LEAST + 1, 50_000] {
            let list: Vec<usize> = (0..length).collect();
            let parts = of(&list, |from, part| {
                assert_eq!(part.first(), (length > 0).then_some(&from));
                part.to_vec()
            });
            assert!(parts.len() <= PARTS && parts.iter().all(|part| !part.is_empty() || length == 0));
            assert_eq!(parts.concat(), list);
        }
    }
}
