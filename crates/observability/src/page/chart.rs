//! The last hours as two charts over one time axis: nodes with the decisions about them, and pods that
//! waited.

use std::fmt::Write;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::html::escaped;
use crate::Status;
use crate::timeline::Sample;

/// The width of a drawing in its own units; what it is on the screen is the browser's matter.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;
/// The least time that the axis shows.
const LEAST: SignedDuration = SignedDuration::from_mins(10);
/// Between two samples that are further apart the daemon did not watch.
const GAP: SignedDuration = SignedDuration::from_secs(120);
/// Labels on the axis.
const LABELS: u32 = 4;

/// What the charts show: in words alone, and with their keys.
const NODES: (&str, &str) = (
    "nodes over time",
    "nodes: <i class=\"line ready\"></i> ready, <i class=\"line coming\"></i> with those coming; \
     <i class=\"mark add\"></i> made, <i class=\"mark remove\"></i> removed",
);
const PODS: (&str, &str) = ("waiting pods over time", "<i class=\"line waiting\"></i> pods that wait");

/// The time that is shown.
struct Axis {
    from: Timestamp,
    seconds: f64,
}

impl Axis {
    fn x(&self, time: Timestamp) -> f64 {
        (time.duration_since(self.from).as_secs_f64() / self.seconds * WIDTH).clamp(0.0, WIDTH)
    }
}

pub(super) fn section(
    status: &Status,
    timeline: &[Sample],
    now: Timestamp,
    zone: &TimeZone,
    out: &mut String,
) {
    out.push_str("<section id=\"timeline\"><h2>The last hours</h2>");
    let Some(first) = timeline.first() else {
        out.push_str("<p class=\"none\">Nothing was seen yet.</p></section>");
        return;
    };
    let least = now.saturating_sub(LEAST).unwrap_or(first.time);
    let from = first.time.min(least);
    let axis = Axis { from, seconds: now.duration_since(from).as_secs_f64().max(1.0) };
    let most = |of: fn(&Sample) -> usize| timeline.iter().map(of).max().unwrap_or(0);

    let nodes = most(|one| (one.ready + one.coming) as usize);
    figure(NODES, nodes, &axis, zone, out, |out| {
        marks(status, &axis, out);
        steps(timeline, &axis, now, nodes, |one| (one.ready + one.coming) as usize, "coming", out);
        steps(timeline, &axis, now, nodes, |one| one.ready as usize, "ready", out);
    });
    let pods = most(|one| one.waiting);
    figure(PODS, pods, &axis, zone, out, |out| {
        steps(timeline, &axis, now, pods, |one| one.waiting, "waiting", out);
    });
    out.push_str("</section>");
}

fn figure(
    (label, words): (&str, &str),
    most: usize,
    axis: &Axis,
    zone: &TimeZone,
    out: &mut String,
    draw: impl FnOnce(&mut String),
) {
    let _ = write!(
        out,
        "<figure><figcaption>{words}</figcaption><div class=\"chart\"><span class=\"most\">{most}</span>\
         <span class=\"zero\">0</span><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{label}, at most {most}\">"
    );
    draw(out);
    out.push_str("</svg></div><div class=\"axis\">");
    for label in 0..=LABELS {
        let seconds = axis.seconds * f64::from(label) / f64::from(LABELS);
        let time = SignedDuration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|passed| axis.from.checked_add(passed).ok());
        let time = time.unwrap_or(axis.from).to_zoned(zone.clone());
        let _ = write!(out, "<span>{}</span>", time.strftime("%H:%M"));
    }
    out.push_str("</div></figure>");
}

/// One quantity, as steps with what is below them.
fn steps(
    timeline: &[Sample],
    axis: &Axis,
    now: Timestamp,
    most: usize,
    of: fn(&Sample) -> usize,
    kind: &str,
    out: &mut String,
) {
    #[expect(clippy::cast_precision_loss, reason = "a height on a screen")]
    let y = |value: usize| HEIGHT - value as f64 / most.max(1) as f64 * (HEIGHT - 4.0);
    let mut line = String::new();
    let mut area = String::new();
    for (at, one) in timeline.iter().enumerate() {
        let next = timeline.get(at + 1).map_or(now, |next| next.time);
        let known = one.time.checked_add(GAP).map_or(next, |most| next.min(most));
        let broken = at == 0 || one.time.duration_since(timeline[at - 1].time) > GAP;
        let (x, end, height) = (axis.x(one.time), axis.x(known), y(of(one)));
        let command = if broken { 'M' } else { 'L' };
        let _ = write!(line, "{command}{x:.1} {height:.1}H{end:.1}");
        let _ = write!(area, "M{x:.1} {HEIGHT}V{height:.1}H{end:.1}V{HEIGHT}Z");
    }
    let _ =
        write!(out, "<path class=\"area {kind}\" d=\"{area}\"/><path class=\"line {kind}\" d=\"{line}\"/>");
}

/// Decisions: machines that were made rise from below, nodes that were removed hang from above.
fn marks(status: &Status, axis: &Axis, out: &mut String) {
    for decision in status.decisions.iter().filter(|one| one.time >= axis.from) {
        let (kind, from, to) = match decision.what.as_bytes().first() {
            Some(b'+') => ("add", HEIGHT, HEIGHT * 0.6),
            Some(b'-') => ("remove", 0.0, HEIGHT * 0.4),
            _ => continue,
        };
        let x = axis.x(decision.time);
        let _ = write!(
            out,
            "<line class=\"mark {kind}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from}\" y2=\"{to}\"><title>{}</title></line>",
            escaped(&decision.what)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Decision;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_795_262_400 + seconds).unwrap()
    }

    fn drawn(samples: &[Sample], decisions: Vec<Decision>) -> String {
        let mut out = String::new();
        let status = Status { decisions, ..Status::default() };
        section(&status, samples, at(1000), &TimeZone::UTC, &mut out);
        out
    }

    fn sample(seconds: i64, ready: u32) -> Sample {
        Sample { time: at(seconds), ready, coming: 0, waiting: 0 }
    }

    #[test]
    fn the_line_steps_up_where_a_node_became_ready() {
        let page = drawn(&[sample(0, 0), sample(30, 2), sample(60, 2)], Vec::new());
        assert!(
            page.contains("class=\"line ready\" d=\"M0.0 100.0H30.0L30.0 4.0H60.0L60.0 4.0H180.0\""),
            "{page}"
        );
    }

    #[test]
    fn time_in_which_no_instance_watched_is_left_open() {
        let page = drawn(&[sample(0, 1), sample(600, 1)], Vec::new());
        assert!(page.contains("M0.0 4.0H120.0M600.0 4.0H720.0"), "{page}");
    }

    #[test]
    fn decisions_stand_where_they_were_made_and_those_before_the_axis_do_not() {
        let one = |seconds, what: &str| Decision { time: at(seconds), what: what.to_owned() };
        let page = drawn(
            &[sample(0, 1)],
            vec![one(500, "+ a"), one(400, "- \"b\""), one(-5000, "+ c"), one(1, "a is ready")],
        );
        assert_eq!(page.matches("<line").count(), 2, "{page}");
        assert!(page.contains("x1=\"500.0\"") && page.contains("- &quot;b&quot;"), "{page}");
    }
}
