//! Columns of text for people.

use std::fmt::Write;

use anstyle::Style;

const HEADING: Style = Style::new().bold();
/// The space between two columns.
const GAP: &str = "   ";

/// Rows below a heading, in aligned columns. The last column is not padded.
#[derive(Debug)]
pub(super) struct Table {
    heading: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

/// The side on which a column's cells are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

impl Table {
    pub(super) fn new(heading: &[(&'static str, Align)]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. An empty cell is shown as `–`, a control character as `?`.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cell = |cell: String| if cell.is_empty() { "–".to_owned() } else { plain(&cell) };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    /// Appends the table, or nothing if there is no row.
    pub(super) fn render(&self, out: &mut String) {
        if self.rows.is_empty() {
            return;
        }
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            longest.max(self.heading[column].0.chars().count())
        };
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        let heading: Vec<String> = self.heading.iter().map(|(text, _)| (*text).to_owned()).collect();
        let _ = writeln!(out, "{HEADING}{}{HEADING:#}", self.line(&heading, &widths));
        for row in &self.rows {
            let _ = writeln!(out, "{}", self.line(row, &widths));
        }
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.heading) {
            if !line.is_empty() {
                line.push_str(GAP);
            }
            let _ = match align {
                Align::Left => write!(line, "{cell:width$}"),
                Align::Right => write!(line, "{cell:>width$}"),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Replaces control characters in a text, because names and messages come from other systems.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_moves_the_cursor() {
        let mut table = Table::new(&[("pool", Align::Left), ("nodes", Align::Right), ("next", Align::Left)]);
        let mut out = String::new();
        table.render(&mut out);
        assert_eq!(out, "");
        table.row(["workers", "14", "a\u{1b}[2J"].map(ToOwned::to_owned));
        table.row(["gpu", "3", ""].map(ToOwned::to_owned));
        table.render(&mut out);
        let plain = anstream::adapter::strip_str(&out).to_string();
        assert_eq!(plain, "pool      nodes   next\nworkers      14   a?[2J\ngpu           3   –\n");
    }
}
