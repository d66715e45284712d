//! Nodes and pending pods over time, as a drawing (SVG).

use std::fmt::Write;

use jiff::SignedDuration;

use super::{Column, Found};
use replay::Series;

const WIDTH: f64 = 960.0;
/// The height of one chart, without the margins.
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 58.0;
const GAP: f64 = 46.0;
/// The number of equal parts into which the time axis is divided. Both ends of each part have a label.
const LABELS: u32 = 6;
/// Colours that colour-blind people can distinguish (Okabe and Ito).
const COLOURS: [&str; 6] = ["#6b7686", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900"];

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#5c6675}.title{font-weight:600}\
     path{fill:none;stroke-width:1.6}.axis{stroke:#9aa4b2;stroke-width:1}\
     .grid{stroke:#9aa4b2;stroke-width:.5;stroke-dasharray:2 4}";

/// Returns the drawing. Each configuration has its own colour; the record is grey.
pub(super) fn render(found: &Found) -> String {
    let height = TOP + 2.0 * HEIGHT + GAP + 40.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Nodes and pending pods over time\">\n<style>{STYLE}</style>\n"
    );
    key(&found.columns, &mut out);
    let bottom = TOP + HEIGHT + GAP;
    chart("ready nodes", TOP, &found.columns, |point| point.0, &mut out);
    chart("pending pods", bottom, &found.columns, |point| point.1, &mut out);
    axis(found, bottom + HEIGHT, &mut out);
    out.push_str("</svg>\n");
    out
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

fn key(columns: &[Column], out: &mut String) {
    let mut x = LEFT;
    for (number, column) in columns.iter().enumerate() {
        let (colour, name) = (colour(number), escaped(&column.name));
        let end = x + 22.0;
        let _ = writeln!(out, "<path d=\"M{x:.0} 18H{end:.0}\" stroke=\"{colour}\"/>");
        let _ = writeln!(out, "<text x=\"{:.0}\" y=\"22\">{name}</text>", end + 6.0);
        x = end + 30.0 + 7.5 * text_width(&column.name);
    }
}

#[expect(clippy::cast_precision_loss, reason = "names are short enough for an exact conversion")]
fn text_width(name: &str) -> f64 {
    name.chars().count() as f64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn chart(title: &str, top: f64, columns: &[Column], of: fn(&(u32, u32)) -> u32, out: &mut String) {
    let points = columns.iter().flat_map(|column| &column.figures.series.points);
    let most = points.map(of).max().unwrap_or(0).max(1);
    let (right, bottom, middle) = (WIDTH - 12.0, top + HEIGHT, top + HEIGHT / 2.0);
    let _ = writeln!(out, "<text class=\"title\" x=\"{LEFT}\" y=\"{:.0}\">{title}</text>", top - 8.0);
    let _ = writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {top}H{right}M{LEFT} {middle}H{right}\"/>");
    let _ = writeln!(out, "<path class=\"axis\" d=\"M{LEFT} {top}V{bottom}H{right}\"/>");
    for (y, value) in [(top, f64::from(most)), (middle, f64::from(most) / 2.0), (bottom, 0.0)] {
        let x = LEFT - 8.0;
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{:.0}\" text-anchor=\"end\">{value}</text>", y + 4.0);
    }
    let y = |value: u32| bottom - f64::from(value) / f64::from(most) * HEIGHT;
    let width = right - LEFT;
    let longest = columns.iter().map(|column| seconds(&column.figures.series)).fold(1.0, f64::max);
    // The record is drawn last, as a dashed line, so that an identical line below it shows through.
    for (number, column) in columns.iter().enumerate().rev() {
        let line = steps(&column.figures.series, of, |passed| LEFT + passed / longest * width, y);
        let dashes = if number == 0 { " stroke-dasharray=\"4 3\"" } else { "" };
        let _ = writeln!(out, "<path stroke=\"{}\"{dashes} d=\"{line}\"/>", colour(number));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
fn seconds(series: &Series) -> f64 {
    series.points.len() as f64 * series.step_seconds as f64
}

#[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
fn steps(
    series: &Series,
    of: fn(&(u32, u32)) -> u32,
    x: impl Fn(f64) -> f64,
    y: impl Fn(u32) -> f64,
) -> String {
    let mut line = String::new();
    let mut last = None;
    for (number, point) in series.points.iter().enumerate() {
        let value = of(point);
        if last == Some(value) {
            continue;
        }
        let at = x(number as f64 * series.step_seconds as f64);
        let _ = match last {
            None => write!(line, "M{at:.1} {:.1}", y(value)),
            Some(_) => write!(line, "H{at:.1}V{:.1}", y(value)),
        };
        last = Some(value);
    }
    let _ = write!(line, "H{:.1}", x(seconds(series)));
    line
}

fn axis(found: &Found, bottom: f64, out: &mut String) {
    let (from, to) = (found.facts.from, found.facts.to);
    let whole = to.duration_since(from).as_secs_f64();
    let format = if whole > 2.0 * 86_400.0 { "%m-%d %H:%M" } else { "%H:%M" };
    for label in 0..=LABELS {
        let part = f64::from(label) / f64::from(LABELS);
        let passed = SignedDuration::try_from_secs_f64(whole * part).unwrap_or_default();
        let time = from.saturating_add(passed).unwrap_or(from).to_zoned(jiff::tz::TimeZone::UTC);
        let x = LEFT + part * (WIDTH - 12.0 - LEFT);
        let anchor = if label == LABELS { "end" } else { "middle" };
        let y = bottom + 20.0;
        let text = time.strftime(format);
        let _ = writeln!(out, "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"{anchor}\">{text}</text>");
    }
    let _ = writeln!(out, "<text x=\"4\" y=\"{:.0}\">UTC</text>", bottom + 20.0);
}
