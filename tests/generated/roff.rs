//! The few roff escapes that the pages need.

/// Literal text: nothing in it is a request or an escape, hyphens stay hyphens, and `code` is bold.
pub fn text(text: &str) -> String {
    let mut out = String::new();
    for (number, part) in text.split('`').enumerate() {
        let escaped = escape(part);
        match number % 2 {
            1 => out.extend(["\\fB", escaped.as_str(), "\\fR"]),
            _ => out.push_str(&escaped),
        }
    }
    protected(out)
}

/// Text in which backticks have no special meaning.
pub fn plain(text: &str) -> String {
    protected(escape(text))
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('…', "\\&...")
}

/// Protects a line that begins with a dot, which roff would read as a request.
fn protected(text: String) -> String {
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}
