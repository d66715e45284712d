//! HTML for a browser.

use std::fmt::Write;

use jiff::SignedDuration;

/// Untrusted text, escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// A time span in the largest suitable unit, for people to read.
pub(super) fn span(time: SignedDuration) -> String {
    let seconds = time.as_secs().max(0);
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// An amount of bytes in GiB, or in TiB if it is at least 1 TiB.
#[expect(clippy::cast_precision_loss, reason = "the size is only for display")]
pub(super) fn gib(bytes: i64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    let (size, unit) = if gib >= 1024.0 { (gib / 1024.0, "TiB") } else { (gib, "GiB") };
    if size >= 10.0 || size.fract() < 0.05 {
        format!("{size:.0} {unit}")
    } else {
        format!("{size:.1} {unit}")
    }
}

/// The content of a cell. It is escaped when the cell is written.
pub(super) enum Cell {
    Text(String),
    /// The target and the text of a link.
    Link(String, String),
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Cell {
    fn html(&self) -> String {
        match self {
            Self::Text(text) if text.is_empty() => "–".to_owned(),
            Self::Text(text) => escaped(text),
            Self::Link(to, text) => {
                format!("<a href=\"{}\" rel=\"noreferrer\">{}</a>", escaped(to), escaped(text))
            }
        }
    }
}

/// Rows that belong together, with an optional heading.
struct Group {
    heading: String,
    rows: Vec<Vec<Cell>>,
    left_out: usize,
}

/// A table whose rows become cards on a narrow screen. The table escapes the content of its cells.
pub(super) struct Table {
    heading: &'static [&'static str],
    groups: Vec<Group>,
}

impl Table {
    pub fn new(heading: &'static [&'static str]) -> Self {
        Self { heading, groups: Vec::new() }
    }

    /// Adds at most `most` of the rows.
    pub fn rows(self, rows: impl ExactSizeIterator<Item = Vec<String>>, most: usize) -> Self {
        let rows = rows.map(|row| row.into_iter().map(Cell::from).collect());
        self.group(String::new(), rows, most)
    }

    /// Adds at most `most` of the rows, under a heading.
    pub fn group(
        mut self,
        heading: String,
        rows: impl ExactSizeIterator<Item = Vec<Cell>>,
        most: usize,
    ) -> Self {
        let left_out = rows.len().saturating_sub(most);
        self.groups.push(Group { heading, rows: rows.take(most).collect(), left_out });
        self
    }

    /// Appends the table under a title. If there are no rows, the text in `none` replaces the table.
    pub fn section(&self, id: &str, title: &str, none: &str, out: &mut String) {
        let _ = write!(out, "<section id=\"{id}\"><h2>{title}</h2>");
        if self.groups.iter().all(|group| group.rows.is_empty()) {
            let _ = write!(out, "<p class=\"none\">{none}</p></section>");
            return;
        }
        out.push_str("<table><thead><tr>");
        for name in self.heading {
            let _ = write!(out, "<th scope=\"col\">{name}</th>");
        }
        out.push_str("</tr></thead>");
        for group in &self.groups {
            self.body(group, out);
        }
        out.push_str("</table></section>");
    }

    fn body(&self, group: &Group, out: &mut String) {
        let columns = self.heading.len();
        out.push_str("<tbody>");
        if !group.heading.is_empty() {
            let heading = escaped(&group.heading);
            let _ = write!(
                out,
                "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{columns}\">{heading}</th></tr>"
            );
        }
        for row in &group.rows {
            out.push_str("<tr>");
            for (cell, name) in row.iter().zip(self.heading) {
                let _ = write!(out, "<td data-name=\"{name}\">{}</td>", cell.html());
            }
            out.push_str("</tr>");
        }
        if group.left_out > 0 {
            let more = group.left_out;
            let _ = write!(
                out,
                "<tr class=\"more\"><td colspan=\"{columns}\">… and {more} more: run `pve-autoscaler status` to see \
                all</td></tr>"
            );
        }
        out.push_str("</tbody>");
    }
}
