//! Shows a view repeatedly until the user ends it.
//!
//! On a terminal, each view replaces the previous one on the alternate screen. The view is cut to the size of
//! the terminal, and drawn again when that size changes. The terminal is always restored at the end. Without
//! a terminal, each view is written in full.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::exit::{Failure, SUCCESS};
use super::live;
use super::signals::Signals;
use super::terminal::{cut, size};

/// The escape sequences that switch to the alternate screen and hide the cursor, and those that undo both.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Shows frames until SIGINT, SIGTERM or SIGHUP; each of these signals ends the command with success. If the
/// first frame fails, the command fails. A later failure is shown, and the frame is tried again.
pub(super) fn run(every: Duration, frame: impl AsyncFn() -> Result<String, Failure>) -> Result<u8, Failure> {
    live::block_on(async {
        let failed = |error| Failure::System("listen for signals", error);
        let mut signals = Signals::new().map_err(failed)?;
        let mut resized = signal(SignalKind::window_change()).map_err(failed)?;
        let mut shown = frame().await?;
        let live = std::io::stdout().is_terminal();
        let _screen = live.then(Screen::enter).transpose().map_err(Failure::Output)?;
        loop {
            if live { draw(&shown) } else { write(&shown) }.map_err(Failure::Output)?;
            let next = async {
                tokio::time::sleep(every).await;
                frame().await
            };
            let mut next = std::pin::pin!(next);
            loop {
                tokio::select! {
                    biased;
                    () = signals.next() => return Ok(SUCCESS),
                    Some(()) = resized.recv() => {
                        if live {
                            draw(&shown).map_err(Failure::Output)?;
                        }
                    }
                    came = &mut next => {
                        shown = came.unwrap_or_else(|failure| format!("{}\n", failure.words()));
                        break;
                    }
                }
            }
        }
    })
}

/// A value as one line of JSON.
pub(super) fn line(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::Output(error.into()))?;
    Ok(text + "\n")
}

/// Keeps the terminal on the alternate screen until this value is dropped.
struct Screen;

impl Screen {
    fn enter() -> std::io::Result<Self> {
        raw(ENTER)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, it need not be restored.
        let _ = raw(LEAVE);
    }
}

fn draw(text: &str) -> std::io::Result<()> {
    let (columns, lines) = size();
    let colours = anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
    let text = if colours { text.to_owned() } else { anstream::adapter::strip_str(text).to_string() };
    raw(&fitted(&text, columns, lines))
}

fn write(text: &str) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    writeln!(out, "{text}")?;
    out.flush()
}

fn raw(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Cuts the text to the size of a screen, and adds the escape sequences that draw it over the previous text.
fn fitted(text: &str, columns: usize, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let shown = if all.len() > lines { lines.saturating_sub(1) } else { all.len() };
    let mut out = "\x1b[H".to_owned();
    for (number, line) in all.iter().take(shown).enumerate() {
        let end = if number + 1 < lines { "\r\n" } else { "" };
        let _ = write!(out, "{}\x1b[0m\x1b[K{end}", cut(line, columns));
    }
    if shown < all.len() {
        let more = format!("… {} more lines: the terminal is too small", all.len() - shown);
        let _ = write!(out, "{}\x1b[K", cut(&more, columns));
    }
    // If the text fills the screen, nothing below it is left to erase.
    if shown < lines {
        out.push_str("\x1b[J");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_for_the_screen_says_so_in_its_last_line() {
        let screen = fitted("a\nb\nc\nd\n", 60, 3);
        assert_eq!(screen.matches("\r\n").count(), 2, "no more than three lines: {screen:?}");
        assert!(screen.contains("… 2 more lines"), "{screen:?}");
        assert!(!screen.contains('c') || !screen.contains("c\x1b"), "{screen:?}");
    }

    #[test]
    fn what_is_left_of_an_earlier_and_longer_frame_is_wiped() {
        let screen = fitted("a\n", 60, 3);
        assert!(screen.starts_with("\x1b[Ha") && screen.ends_with("\x1b[J"), "{screen:?}");
        // A line in the last row must not scroll the screen.
        assert!(!fitted("a\nb\n", 60, 2).ends_with("\r\n"));
    }
}
