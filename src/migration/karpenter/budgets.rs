//! A `NodePool`'s `disruption`: when Karpenter removes the pool's nodes, and how many at a time.

use serde_json::Value as Json;
use toml::{Table as Inline, Value};

use super::super::draft::Table;
use super::super::parts;
use super::super::source::{Tree, text_at};

/// Karpenter's reasons for disruption, each with the matching reasons in `[[disruption]]`.
const REASONS: [(&str, &[&str]); 4] = [
    ("Empty", &["empty"]),
    ("Underutilized", &["underutilized", "consolidation"]),
    ("Drifted", &["drifted"]),
    // Karpenter 1.15 or newer has this reason for nodes that it repairs.
    ("Unhealthy", &["unready"]),
];

/// The short forms in a crontab, each with the fields that it stands for.
const SHORT: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Fills `[scale_down]`, and returns one `[[disruption]]` table for each budget that can be converted.
pub(super) fn read(tree: &mut Tree, pool: &str, down: &mut Table, several: bool) -> Vec<Table> {
    let path = ["disruption", "consolidationPolicy"];
    let place = tree.place(&path);
    match tree.text(&path).as_deref() {
        Some("WhenEmpty") => down.set("consolidation", false, place),
        Some("WhenEmptyOrUnderutilized" | "WhenUnderutilized") => down.set("consolidation", true, place),
        None => down.set(
            "consolidation",
            true,
            format!("{place}: WhenEmptyOrUnderutilized, which is Karpenter's default"),
        ),
        Some("Balanced") => down.set(
            "consolidation",
            true,
            format!("{place}: Balanced in Karpenter weighs savings against disruption; here nodes are replaced whenever fewer or smaller ones suffice, one step at a time"),
        ),
        Some(_) => down.note(format!("{place}: not a known policy; without `consolidation` only nodes below `utilization_threshold` are removed")),
    }
    let path = ["disruption", "consolidateAfter"];
    let place = tree.place(&path);
    match tree.text(&path).as_deref() {
        Some("Never") => down.set("enabled", false, place),
        Some(text) if text != "0s" => down.set("unneeded_time", text, place),
        _ => {
            down.note(format!("{place}: Karpenter acts immediately; here `unneeded_time` is 10m by default"));
        }
    }
    let path = ["disruption", "budgets"];
    let mut place = tree.place(&path);
    let (mut tables, mut strictest) = (Vec::new(), None);
    // If no budgets are set, the NodePool schema's default applies, as if the API server had filled it in.
    if tree.peek(&path).is_none() {
        place = format!("{place}: 10 %, which is Karpenter's default");
        strictest = Some(10);
    }
    for budget in tree.list(&path) {
        tables.extend(one(&budget, pool, &place, down, several, &mut strictest));
    }
    if let Some(share) = strictest {
        down.set("max_removal_percentage", share, format!("{place}; one node may always be removed"));
    }
    tables
}

/// Reads one budget. If it limits all removals to a share of the nodes, `strictest` is lowered to that share.
/// In Karpenter, all budgets apply together, so the smallest share decides.
fn one(
    budget: &Json,
    pool: &str,
    place: &str,
    down: &mut Table,
    several: bool,
    strictest: &mut Option<i64>,
) -> Option<Table> {
    let nodes = match budget.get("nodes") {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Number(number)) => number.to_string(),
        // Karpenter's default.
        _ => "10%".to_owned(),
    };
    let listed = budget.get("reasons").and_then(Json::as_array);
    let listed: Vec<_> = listed.into_iter().flatten().filter_map(Json::as_str).collect();
    let window = text_at(budget, &["schedule"]).zip(text_at(budget, &["duration"]));
    let mut table = Table::of_pool("[[disruption]]", pool);
    if several {
        table.set("pools", parts::list([pool]), place);
    }
    let ours = REASONS
        .iter()
        .filter(|(theirs, _)| listed.contains(theirs))
        .flat_map(|(_, ours)| ours.iter().copied());
    let ours: Vec<_> = ours.collect();
    let unknown: Vec<_> =
        listed.iter().filter(|reason| REASONS.iter().all(|(theirs, _)| theirs != *reason)).collect();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|reason| name_of(reason)).collect();
        down.note(format!(
            "{place}: unknown reasons in a budget, which are not converted: {}",
            names.join(", ")
        ));
        if ours.is_empty() {
            return None;
        }
    }
    if !ours.is_empty() {
        table.set("reasons", parts::list(ours), format!("{place}.reasons"));
    }
    let share = nodes.strip_suffix('%').and_then(|share| share.parse::<i64>().ok());
    match (nodes.as_str(), share, window) {
        ("0" | "0%", _, Some((start, length))) => {
            let mut window = Inline::new();
            let full = SHORT.iter().find(|(short, _)| *short == start).map_or(start, |(_, full)| full);
            window.insert("start".to_owned(), Value::String(as_in_a_crontab(full)));
            window.insert("duration".to_owned(), Value::String(length.to_owned()));
            table.set(
                "closed",
                Value::Array(vec![Value::Table(window)]),
                format!("{place}: no removals in these windows, in UTC"),
            );
        }
        (_, _, Some(_)) => {
            down.note(format!(
                "{place}: a limit of {nodes} in a window has no counterpart; a window of \
                `[[disruption]]` either allows removals or does not"
            ));
            return None;
        }
        (_, Some(share), None) => {
            down.note(format!("{place}: {share} per cent in Karpenter"));
            if listed.is_empty() && share > 0 {
                *strictest = Some(strictest.map_or(share, |least| least.min(share)));
                return None;
            }
            table.set(
                "max_nodes",
                i64::from(share > 0),
                format!("{place}: a percentage of nodes in Karpenter, a number of nodes here"),
            );
        }
        (nodes, None, None) => {
            let Ok(most) = nodes.parse::<i64>() else {
                down.note(format!("{place}: the number of nodes in a budget could not be parsed"));
                return None;
            };
            table.set("max_nodes", parts::count(most), format!("{place}.nodes"));
        }
    }
    Some(table)
}

/// Converts a schedule to crontab syntax. If one of the two day fields is a step over all days (`*/2`) and
/// the other is restricted as well, Karpenter (robfig/cron 3) accepts a day that matches either field. A
/// crontab accepts only a day that matches both, because one of the fields begins with `*`. The step is
/// therefore written as a range, unless it is 1. In Karpenter, `?` means `*`.
fn as_in_a_crontab(start: &str) -> String {
    let fields = start.split_whitespace().map(|field| field.replace('?', "*")).enumerate();
    let fields = fields.map(|(at, field)| match (at, field.strip_prefix("*/")) {
        (_, Some("1")) => "*".to_owned(),
        (2, Some(step)) => format!("1-31/{step}"),
        (4, Some(step)) => format!("0-6/{step}"),
        _ => field,
    });
    fields.collect::<Vec<_>>().join(" ")
}

/// A reason's name, or a placeholder if the text does not look like a name.
fn name_of(reason: &str) -> &str {
    if reason.len() < 64 && reason.chars().all(|c| c.is_ascii_alphanumeric()) {
        reason
    } else {
        "(not a name)"
    }
}

#[cfg(test)]
mod tests {
    use cronexpr::MakeTimestamp;
    use jiff::Timestamp;

    use serde_json::json;

    use super::super::super::Origin;
    use super::super::super::draft::Draft;
    use super::*;

    /// The days of June 2026 on which the schedule occurs. The first of June is a Monday.
    fn days(start: &str) -> Vec<i8> {
        let crontab = cronexpr::parse_crontab(&format!("{} UTC", as_in_a_crontab(start))).unwrap();
        let from: Timestamp = "2026-05-31T23:59:00Z".parse().unwrap();
        let next = |time: &Timestamp| Some(crontab.find_next(MakeTimestamp(*time)).unwrap().timestamp());
        let all = std::iter::successors(next(&from), next).map(|time| time.to_zoned(jiff::tz::TimeZone::UTC));
        all.take_while(|time| time.month() == 6).map(|time| time.day()).collect()
    }

    #[test]
    fn a_step_over_the_days_and_a_day_of_the_week_mean_either() {
        assert_eq!(days("0 2 */10 * MON"), [1, 8, 11, 15, 21, 22, 29]);
        assert_eq!(days("0 2 */10 * *"), [1, 11, 21]);
        assert_eq!(days("0 2 20 * */6"), [6, 7, 13, 14, 20, 21, 27, 28]);
        assert_eq!(days("0 2 * * MON"), [1, 8, 15, 22, 29]);
        assert_eq!(days("0 2 */1 * MON"), [1, 8, 15, 22, 29]);
        assert_eq!(days("0 2 ? * mon"), [1, 8, 15, 22, 29]);
        assert_eq!(days("0 2 20 * ?"), [20]);
    }

    /// The text of `[scale_down]` and of each `[[disruption]]` for these budgets.
    fn converted(budgets: &Json) -> String {
        of_disruption(json!({ "budgets": budgets }))
    }

    fn of_disruption(disruption: Json) -> String {
        let spec = json!({ "disruption": disruption });
        let mut down = Table::new("[scale_down]");
        let tables = read(&mut Tree::new("NodePool a", spec), "a", &mut down, false);
        let mut draft = Draft::default();
        for table in std::iter::once(down).chain(tables) {
            draft.push(table);
        }
        draft.finish(Origin::Karpenter).text
    }

    #[test]
    fn every_budget_applies() {
        for (budgets, lines) in [
            (
                json!([{ "nodes": "50%" }, { "nodes": "20%" }, { "nodes": "30%" }]),
                vec!["max_removal_percentage = 20"],
            ),
            (json!([{ "nodes": "20%" }, { "nodes": "20%" }]), vec!["max_removal_percentage = 20"]),
            (json!([{ "reasons": ["Empty"] }, {}]), vec!["max_removal_percentage = 10", "max_nodes = 1"]),
        ] {
            let text = converted(&budgets);
            let of_budgets = |line: &&str| {
                line.starts_with("max_") || line.contains("not converted") || line.contains("left out")
            };
            assert_eq!(text.lines().filter(of_budgets).collect::<Vec<_>>(), lines, "{text}");
        }
    }

    #[test]
    fn without_budgets_karpenters_default_applies() {
        assert!(of_disruption(json!({})).contains("\nmax_removal_percentage = 10\n"));
        assert!(
            !converted(&json!([])).contains("max_removal_percentage"),
            "an empty list allows all removals"
        );
    }

    #[test]
    fn each_short_form_of_a_schedule_is_converted() {
        let forms = ["@annually", "@yearly", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
        for schedule in forms {
            let text = converted(&json!([{ "nodes": "0", "schedule": schedule, "duration": "8h" }]));
            assert!(text.contains("closed = [{ duration = \"8h\", start = \"0 "), "{schedule}: {text}");
        }
    }
}
