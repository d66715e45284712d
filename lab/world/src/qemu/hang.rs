//! Resets emulated guests that hang before their kernel has printed anything.
//!
//! A guest with two processors was observed to leave its console empty for six minutes (QEMU 10.0.2, `-accel
//! tcg,thread=multi`). The exact cause is unknown, but it is not in the tested code. A reset solves the
//! problem, and an administrator would also reset such a guest.

use std::{path::Path, time::Duration};

use tokio::time::sleep;

/// The time without any output on the console after which a guest counts as hung: three times what a busy
/// machine was observed to take.
const FIRST_WORD: Duration = Duration::from_secs(150);
/// The maximum number of resets of a silent guest.
const RESETS: u32 = 2;
/// The interval at which the console is checked.
const LOOK: Duration = Duration::from_secs(2);
/// The escape sequences with which OVMF clears the screen.
const CLEARS: [&str; 3] = ["\x1b[2J", "\x1b[01;01H", "\x1b[=3h"];

/// Resets a guest while its console stays empty, up to [`RESETS`] times. Returns when the guest has printed
/// something, or when the last reset did not help.
pub async fn until_it_speaks<F: Future<Output = ()>>(console: &Path, mut reset: impl FnMut(u32) -> F) {
    let spoke = || std::fs::read(console).is_ok_and(|text| has_words(&text));
    for round in 0..=RESETS {
        for _ in 0..FIRST_WORD.as_secs() / LOOK.as_secs() {
            if spoke() {
                return;
            }
            sleep(LOOK).await;
        }
        if round < RESETS {
            reset(round + 1).await;
        }
    }
}

/// Whether the guest has printed anything on its console. OVMF's output does not count: OVMF clears the
/// screen and prints what it loads.
fn has_words(console: &[u8]) -> bool {
    let text = String::from_utf8_lossy(console);
    let own = text.lines().filter(|line| !line.contains("BdsDxe: "));
    own.map(|line| CLEARS.iter().fold(line.to_owned(), |line, code| line.replace(code, "")))
        .any(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_firmware_are_not_the_guests() {
        let firmware = "\x1b[2J\x1b[01;01H\x1b[=3h\x1b[2J\x1b[01;01H";
        let loads = format!(
            "{firmware}BdsDxe: loading Boot0002 \"UEFI QEMU HARDDISK \"\r\nBdsDxe: starting Boot0002\r\n"
        );
        for (console, expected) in [
            (String::new(), false),
            (firmware.to_owned(), false),
            (loads.clone(), false),
            (format!("{loads}\x1b[!p"), true),
            ("[    0.1] words".to_owned(), true),
        ] {
            assert_eq!(has_words(console.as_bytes()), expected, "{console:?}");
        }
    }

    async fn resets(words_after: Option<u32>) -> u32 {
        let console =
            std::env::temp_dir().join(format!("console-{}-{}", std::process::id(), fastrand::u64(..)));
        std::fs::write(&console, if words_after == Some(0) { "words" } else { "" }).unwrap();
        let mut resets = 0;
        let reset = |number| {
            resets = number;
            if words_after == Some(number) {
                std::fs::write(&console, "words").unwrap();
            }
            std::future::ready(())
        };
        until_it_speaks(&console, reset).await;
        std::fs::remove_file(&console).unwrap();
        resets
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_is_reset_while_it_is_silent_but_not_for_ever() {
        for (words_after, expected) in [(Some(0), 0), (Some(1), 1), (Some(2), 2), (None, RESETS)] {
            assert_eq!(resets(words_after).await, expected, "{words_after:?}");
        }
    }
}
