//! Runs the planner on snapshot files, so that two builds of the planner can be compared. The `run` script in
//! this folder also copies this file into an older commit, so this file only uses code that exists in both
//! commits.
//!
//! `decide time DIRECTORY NAME` runs the planner several times, and prints the lowest CPU time of the
//! planner's thread in milliseconds, and the decision. `decide answers < LINES` prints one line of output for
//! each input line of the form `{"settings": …, "snapshot": …}`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may panic on unexpected results"
)]

use std::io::BufRead;

use pve_autoscaler::model::{Plan, Snapshot};
use pve_autoscaler::settings::{self, Config, Needs};
use pve_autoscaler::{planning, snapshot};
use serde_json::{Value, json};

fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e6
}

fn world(settings: &str, objects: &str) -> (Snapshot, Config) {
    let (mut snapshot, own) = snapshot::read(objects).unwrap();
    let _ = own;
    snapshot.time = "2026-01-15T12:00:00Z".parse().unwrap();
    (snapshot, settings::parse("world", settings, Needs::Plan).unwrap())
}

/// The part of a plan that both builds write in the same form: machines with their pods, removed nodes,
/// verdicts.
fn answer(plan: &Plan) -> Value {
    let plan = serde_json::to_value(plan).unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let of =
        |key: &str, what: &dyn Fn(&Value) -> Value| list(&plan[key]).iter().map(what).collect::<Vec<_>>();
    json!({
        "up": of("scaleUp", &|pool| json!([pool["pool"], list(&pool["machines"]).iter().map(|one| one["pods"].clone()).collect::<Vec<_>>()])),
        "down": of("scaleDown", &|one| one["node"].clone()),
        "pods": of("pods", &|one| json!([one["pod"], one["verdict"]])),
        "nodes": of("nodes", &|one| json!([one["node"], one["verdict"]])),
    })
}

fn time(directory: &str, name: &str) {
    let text = |ending: &str| std::fs::read_to_string(format!("{directory}/{name}.{ending}")).unwrap();
    let (snapshot, config) = world(&text("toml"), &text("yaml"));
    let (mut least, mut spent, mut runs) = (f64::MAX, 0.0, 0);
    let mut decided = Value::Null;
    while runs < 2 || (spent < 3000.0 && runs < 9) {
        let before = cpu();
        let plan = planning::plan(&snapshot, &config);
        let cost = cpu() - before;
        decided = answer(&plan);
        (least, spent, runs) = (least.min(cost), spent + cost, runs + 1);
    }
    let count = |key: &str| decided[key].as_array().map_or(0, Vec::len);
    let machines: usize = decided["up"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|pool| pool[1].as_array().map_or(0, Vec::len))
        .sum();
    println!("{least:.2}\t{machines} machines, {} nodes removed", count("down"));
}

fn answers() {
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (snapshot, config) =
            world(line["settings"].as_str().unwrap(), line["snapshot"].as_str().unwrap());
        println!("{}", answer(&planning::plan(&snapshot, &config)));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["time", directory, name] => time(directory, name),
        ["answers"] => answers(),
        _ => panic!("decide time DIRECTORY NAME | decide answers"),
    }
}
