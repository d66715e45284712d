//! The size of a terminal, and text cut to that size.

/// The columns and lines assumed for a terminal that does not report its size.
const USUAL: (usize, usize) = (80, 24);

/// Columns and lines of the terminal on standard output.
pub fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => USUAL,
    }
}

/// As much of a line as fits into this many columns; colour codes take up no space.
pub fn cut(line: &str, columns: usize) -> String {
    let (mut out, mut used, mut escaped) = (String::new(), 0, false);
    for c in line.chars() {
        if escaped || c == '\x1b' {
            escaped = !(escaped && c.is_ascii_alphabetic());
        } else if used == columns {
            break;
        } else {
            used += 1;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_where_the_terminal_ends_and_its_colours_take_no_room() {
        assert_eq!(cut("\x1b[1mpool\x1b[0m nodes", 6), "\x1b[1mpool\x1b[0m n");
        assert_eq!(cut("läuft", 3), "läu");
        assert_eq!(cut("short", 80), "short");
    }
}
