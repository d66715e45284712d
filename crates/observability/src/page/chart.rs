//! Two charts of the last hours with a common time axis: one of nodes and the decisions about them, one of
//! pending pods.

use std::fmt::Write;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::html::escaped;
use super::view::{Asked, Span, View};
use crate::Status;
use crate::status_board::DECISIONS;
use crate::timeline::Sample;

/// The width of a chart in its own units. The browser scales it to the screen.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;
/// The shortest period that the axis covers.
const LEAST: SignedDuration = SignedDuration::from_mins(1);
/// If the axis is shorter than this many seconds, its labels show seconds.
const SHORT: f64 = 300.0;
/// If two samples are further apart than this, the daemon was not watching in between.
const GAP: SignedDuration = SignedDuration::from_secs(120);
/// The approximate number of steps that are drawn for each quantity.
const STEPS: f64 = 700.0;
/// The number of equal sections of the axis. There is a label at each end of a section.
const LABELS: u32 = 4;

/// The captions of the charts, as plain text and as HTML with a legend for the lines.
const NODES: (&str, &str) = (
    "nodes over time",
    "nodes: <i class=\"line ready\"></i> ready, <i class=\"line coming\"></i> including those starting; \
     <i class=\"mark add\"></i> created, <i class=\"mark remove\"></i> removed",
);
const PODS: (&str, &str) = ("pending pods over time", "<i class=\"line waiting\"></i> pending pods");

/// The period that is shown.
struct Axis {
    from: Timestamp,
    seconds: f64,
}

impl Axis {
    /// Returns the requested period, shortened to the time for which there are samples, but never shorter
    /// than `LEAST`.
    fn new(wanted: Span, first: Timestamp, now: Timestamp) -> Self {
        let before = |length| now.saturating_sub(length).unwrap_or(first);
        let from = first.max(before(wanted.length())).min(before(LEAST));
        Self { from, seconds: now.duration_since(from).as_secs_f64().max(1.0) }
    }

    fn x(&self, time: Timestamp) -> f64 {
        (time.duration_since(self.from).as_secs_f64() / self.seconds * WIDTH).clamp(0.0, WIDTH)
    }
}

pub(super) fn section(status: &Status, timeline: &[Sample], view: &View<'_>, out: &mut String) {
    out.push_str("<section id=\"timeline\"><h2>Recent history</h2>");
    let Some(first) = timeline.first() else {
        out.push_str("<p class=\"none\">No data yet.</p></section>");
        return;
    };
    let axis = Axis::new(view.asked.span, first.time, view.now);
    choice(view.asked, out);
    let timeline = &drawn(timeline, &axis);
    let most = |of: fn(&Sample) -> usize| timeline.iter().map(of).max().unwrap_or(0);

    let nodes = most(|one| (one.ready + one.coming) as usize);
    figure(NODES, nodes, &axis, view.zone, out, |out| {
        marks(status, &axis, out);
        steps(timeline, &axis, view.now, nodes, |one| (one.ready + one.coming) as usize, "coming", out);
        steps(timeline, &axis, view.now, nodes, |one| one.ready as usize, "ready", out);
    });
    let oldest = status.decisions.last().filter(|oldest| oldest.time > axis.from);
    if oldest.is_some() && status.decisions.len() >= DECISIONS {
        let _ = write!(
            out,
            "<p class=\"none\">The marks for created and removed nodes only cover the \
            last {DECISIONS} decisions.</p>"
        );
    }
    let pods = most(|one| one.waiting);
    figure(PODS, pods, &axis, view.zone, out, |out| {
        steps(timeline, &axis, view.now, pods, |one| one.waiting, "waiting", out);
    });
    out.push_str("</section>");
}

/// Writes links to the page with a longer or shorter period.
fn choice(asked: Asked, out: &mut String) {
    out.push_str("<nav aria-label=\"time range\">");
    for span in Span::ALL {
        let current = if span == asked.span { " aria-current=\"true\"" } else { "" };
        let (address, words) = (Asked { span, ..asked }.address(), span.words());
        let _ = write!(out, "<a href=\"{address}#timeline\"{current}>{words}</a>");
    }
    out.push_str("</nav>");
}

/// The samples on the axis, and the last sample before it. Samples that are closer together than one drawn
/// step are merged.
fn drawn(timeline: &[Sample], axis: &Axis) -> Vec<Sample> {
    let begin = timeline.partition_point(|one| one.time < axis.from).saturating_sub(1);
    let step = step(axis);
    let mut out: Vec<Sample> = Vec::new();
    let mut before: Option<Timestamp> = None;
    for sample in &timeline[begin..] {
        let close = before.is_some_and(|before| sample.time.duration_since(before) <= GAP);
        before = Some(sample.time);
        match out.last_mut() {
            Some(last) if close && sample.time.duration_since(last.time) < step => {
                *last = Sample { time: last.time, waiting: last.waiting.max(sample.waiting), ..*sample };
            }
            _ => out.push(*sample),
        }
    }
    out
}

fn step(axis: &Axis) -> SignedDuration {
    SignedDuration::try_from_secs_f64(axis.seconds / STEPS).unwrap_or_default()
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
    let pattern = if axis.seconds < SHORT { "%H:%M:%S" } else { "%H:%M" };
    for label in 0..=LABELS {
        let seconds = axis.seconds * f64::from(label) / f64::from(LABELS);
        let time = SignedDuration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|passed| axis.from.checked_add(passed).ok());
        let time = time.unwrap_or(axis.from).to_zoned(zone.clone());
        let _ = write!(out, "<span>{}</span>", time.strftime(pattern));
    }
    out.push_str("</div></figure>");
}

/// Draws one quantity as a stepped line, and fills the area below it.
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
    let (mut line, mut area) = (String::new(), String::new());
    for run in runs(timeline, now, step(axis) + GAP, of) {
        let from = axis.x(run.from);
        for (at, (value, until)) in run.steps.iter().enumerate() {
            let (height, end) = (y(*value), axis.x(*until));
            if at == 0 {
                let _ = write!(line, "M{from:.1} {height:.1}H{end:.1}");
                let _ = write!(area, "M{from:.1} {HEIGHT}V{height:.1}H{end:.1}");
            } else {
                let _ = write!(line, "V{height:.1}H{end:.1}");
                let _ = write!(area, "V{height:.1}H{end:.1}");
            }
        }
        let _ = write!(area, "V{HEIGHT}Z");
    }
    let _ =
        write!(out, "<path class=\"area {kind}\" d=\"{area}\"/><path class=\"line {kind}\" d=\"{line}\"/>");
}

/// A period without gaps in the samples, with its values and the time until which each value was valid.
struct Run {
    from: Timestamp,
    steps: Vec<(usize, Timestamp)>,
}

fn runs(timeline: &[Sample], now: Timestamp, gap: SignedDuration, of: fn(&Sample) -> usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, one) in timeline.iter().enumerate() {
        let next = timeline.get(at + 1).map_or(now, |next| next.time);
        let until = one.time.checked_add(gap).map_or(next, |most| next.min(most));
        let broken = at == 0 || one.time.duration_since(timeline[at - 1].time) > gap;
        match runs.last_mut().filter(|_| !broken) {
            None => runs.push(Run { from: one.time, steps: vec![(of(one), until)] }),
            Some(run) => match run.steps.last_mut() {
                Some((value, end)) if *value == of(one) => *end = until,
                _ => run.steps.push((of(one), until)),
            },
        }
    }
    runs
}

/// Draws decisions: marks for created machines rise from the bottom, and marks for removed nodes hang from
/// the top.
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
    use super::super::view::Links;
    use super::*;
    use crate::Decision;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_795_262_400 + seconds).unwrap()
    }

    fn drawn(samples: &[Sample], decisions: Vec<Decision>) -> String {
        shown(samples, decisions, at(1000), "")
    }

    fn shown(samples: &[Sample], decisions: Vec<Decision>, now: Timestamp, query: &str) -> String {
        let (mut out, zone) = (String::new(), TimeZone::UTC);
        let status = Status { decisions, ..Status::default() };
        let (asked, links) = (Asked::read(query), Links::default());
        section(&status, samples, &View { now, zone: &zone, asked, links }, &mut out);
        out
    }

    fn sample(seconds: i64, ready: u32) -> Sample {
        Sample { time: at(seconds), ready, coming: 0, waiting: 0 }
    }

    #[test]
    fn the_line_steps_up_where_a_node_became_ready() {
        let page = drawn(&[sample(0, 0), sample(30, 2), sample(60, 2)], Vec::new());
        assert!(page.contains("class=\"line ready\" d=\"M0.0 100.0H30.0V4.0H181.4\""), "{page}");
    }

    #[test]
    fn time_in_which_no_instance_watched_is_left_open() {
        let page = drawn(&[sample(0, 1), sample(600, 1)], Vec::new());
        assert!(page.contains("M0.0 4.0H121.4M600.0 4.0H721.4"), "{page}");
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

    #[test]
    fn as_much_is_shown_as_was_asked_for_and_no_more_than_was_seen() {
        let day: Vec<Sample> = (0..2880).map(|n| sample(n * 30, u32::try_from(n % 7).unwrap())).collect();
        let now = at(86_400);
        for (query, from) in [("span=1h", "<span>11:00"), ("", "<span>06:00"), ("span=24h", "<span>12:00")] {
            let page = shown(&day, Vec::new(), now, query);
            assert!(page.contains(&format!("<div class=\"axis\">{from}</span>")), "{query}: {page}");
            assert!(page.len() < 100_000, "{query}: {} bytes", page.len());
            assert_eq!(page.matches("aria-current").count(), 1, "{query}");
            assert_eq!(page.matches('M').count(), 3 * 2, "each quantity is one unbroken line: {query}");
        }
        // Two minutes after the start, the axis is two minutes long and its labels show seconds.
        let page = shown(&day[..5], Vec::new(), at(120), "span=24h");
        assert!(page.contains("<div class=\"axis\"><span>12:00:00</span><span>12:00:30</span>"), "{page}");
    }

    #[test]
    fn a_chart_that_lacks_decisions_says_so() {
        let one = |seconds| Decision { time: at(seconds), what: "+ a".to_owned() };
        let few = drawn(&[sample(0, 1)], vec![one(10); 5]);
        let all = drawn(&[sample(0, 1)], vec![one(10); DECISIONS]);
        let older = drawn(&[sample(0, 1)], (0..100).map(|n| one(500 - n * 10)).collect());
        let says = [few, all, older].map(|page| page.contains("the last 100 decisions"));
        assert_eq!(says, [false, true, false]);
    }
}
