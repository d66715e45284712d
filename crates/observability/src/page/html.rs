//! Text as a browser takes it.

use std::fmt::Write;

use jiff::SignedDuration;

/// Text that others have written, as text.
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

/// A time span for people, in its largest unit or two.
pub(super) fn span(time: SignedDuration) -> String {
    let seconds = time.as_secs().max(0);
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Bytes in GiB.
#[expect(clippy::cast_precision_loss, reason = "a size for people to read")]
pub(super) fn gib(bytes: i64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib >= 10.0 || gib.fract() < 0.05 { format!("{gib:.0} GiB") } else { format!("{gib:.1} GiB") }
}

/// A table whose rows become cards on a narrow screen; cells are escaped here.
pub(super) struct Table {
    heading: &'static [&'static str],
    rows: Vec<Vec<String>>,
    left_out: usize,
}

impl Table {
    pub fn new(heading: &'static [&'static str]) -> Self {
        Self { heading, rows: Vec::new(), left_out: 0 }
    }

    /// Adds rows, this many at most.
    pub fn rows(mut self, rows: impl ExactSizeIterator<Item = Vec<String>>, most: usize) -> Self {
        self.left_out = rows.len().saturating_sub(most);
        self.rows.extend(rows.take(most));
        self
    }

    /// Appends it under a title; if there is no row `none` says so.
    pub fn section(&self, id: &str, title: &str, none: &str, out: &mut String) {
        let _ = write!(out, "<section id=\"{id}\"><h2>{title}</h2>");
        if self.rows.is_empty() {
            let _ = write!(out, "<p class=\"none\">{none}</p></section>");
            return;
        }
        out.push_str("<table><thead><tr>");
        for name in self.heading {
            let _ = write!(out, "<th scope=\"col\">{name}</th>");
        }
        out.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            out.push_str("<tr>");
            for (cell, name) in row.iter().zip(self.heading) {
                let cell = if cell.is_empty() { "–".to_owned() } else { escaped(cell) };
                let _ = write!(out, "<td data-name=\"{name}\">{cell}</td>");
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table>");
        if self.left_out > 0 {
            let _ = write!(out, "<p class=\"none\">… and {} more</p>", self.left_out);
        }
        out.push_str("</section>");
    }
}
