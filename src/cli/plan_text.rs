//! A plan as text for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use jiff::{SignedDuration, Timestamp};

use super::verdict_words;
use model::Plan;
use model::drain::NodeReason;
use model::plan::{
    BufferOutcome, NewMachine, NodeOutcome, NodeVerdict, PodOutcome, PodVerdict, RemovalReason,
};
use model::pod_id::PodId;
use model::power::HostOutcome;

const GROWS: Style = AnsiColor::Green.on_default();
const GOES: Style = AnsiColor::Yellow.on_default();
const STUCK: Style = AnsiColor::Red.on_default();

/// At most this many pods of a machine are named, and at most this many kept nodes are listed.
const NAMED: usize = 3;
const LISTED: usize = 20;

pub(super) fn render(plan: &Plan) -> String {
    let mut out = String::new();
    growth(plan, &mut out);
    shrinkage(plan, &mut out);
    kept(plan, &mut out);
    warm(plan, &mut out);
    hosts(plan, &mut out);
    buffers(plan, &mut out);
    requests(plan, &mut out);
    ignored(plan, &mut out);
    out
}

/// Lists the annotations that are ignored because they cannot be read.
fn ignored(plan: &Plan, out: &mut String) {
    if plan.ignored_annotations.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nignored annotations");
    for one in &plan.ignored_annotations {
        let (object, key, value) = (&one.object, &one.annotation, &one.value);
        let _ = writeln!(out, "  {STUCK}✗{STUCK:#} {object}  {key}={value:?}: {}", one.why);
    }
}

/// `1 pod`, `2 pods`.
pub(super) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn growth(plan: &Plan, out: &mut String) {
    let waiting = plan.pods.len();
    let machines: usize = plan.scale_up.iter().map(|pool| pool.machines.len()).sum();
    if waiting == 0 && machines == 0 && plan.grow.is_empty() {
        let _ = writeln!(out, "no pending pods");
        below_minimum(plan, out);
        return;
    }
    let _ = write!(out, "{}: ", count(waiting, "pending pod"));
    let _ = match machines {
        0 => writeln!(out, "no new machine"),
        _ => writeln!(out, "{}", count(machines, "new machine")),
    };
    for pool in &plan.scale_up {
        for machine in &pool.machines {
            let name = machine.name.as_deref().unwrap_or(&pool.pool);
            let _ = writeln!(
                out,
                "  {GROWS}+{GROWS:#} {name}  {} {}B  {}  {}",
                count(usize::try_from(machine.cores).unwrap_or(0), "core"),
                machine.memory,
                place_of(machine),
                pods_of(machine),
            );
        }
    }
    for grown in &plan.grow {
        let _ = writeln!(
            out,
            "  {GROWS}~{GROWS:#} {}  grows from {}B to {}B  {}",
            grown.machine,
            grown.from.words(),
            grown.to.words(),
            pods(&grown.pods),
        );
    }
    let mut elsewhere: BTreeMap<String, usize> = BTreeMap::new();
    let mut stuck: Vec<&PodVerdict> = Vec::new();
    for pod in &plan.pods {
        match pod.verdict {
            PodOutcome::NewNode => {}
            PodOutcome::ExistingNode => *elsewhere.entry("fit existing nodes".to_owned()).or_default() += 1,
            PodOutcome::GrownNode => {
                *elsewhere.entry("fit machines that grow".to_owned()).or_default() += 1;
            }
            PodOutcome::UpcomingNode => {
                *elsewhere.entry("fit machines being created".to_owned()).or_default() += 1;
            }
            PodOutcome::AwaitsRequest
            | PodOutcome::DaemonSet
            | PodOutcome::Gated
            | PodOutcome::TooYoung
            | PodOutcome::Expendable => {
                *elsewhere
                    .entry(format!("do not trigger a new machine ({})", verdict_words::of_pod(pod.verdict)))
                    .or_default() += 1;
            }
            PodOutcome::Unfinished => {
                *elsewhere.entry("are left for a later round".to_owned()).or_default() += 1;
            }
            _ => stuck.push(pod),
        }
    }
    for (what, number) in elsewhere {
        let _ = writeln!(out, "  = {number} {what}");
    }
    for pod in stuck {
        let why = pod.why();
        let why = if why.is_empty() { "no pool is configured".to_owned() } else { why };
        let _ = writeln!(
            out,
            "  {STUCK}✗{STUCK:#} {} stays pending ({}): {why}",
            pod.pod,
            verdict_words::of_pod(pod.verdict)
        );
    }
    below_minimum(plan, out);
}

fn below_minimum(plan: &Plan, out: &mut String) {
    for one in &plan.below_minimum {
        let _ = writeln!(out, "  {STUCK}✗{STUCK:#} {} stays below its minimum: {}", one.pool, one.message);
    }
}

fn pods_of(machine: &NewMachine) -> String {
    let woken = machine.woken.map(|state| format!(" (kept {} until now)", state.name()));
    pods(&machine.pods) + &woken.unwrap_or_default()
}

/// Warm machines to create ahead of demand, and warm machines that are no longer kept.
fn warm(plan: &Plan, out: &mut String) {
    if plan.keep.is_empty() && plan.keep_refused.is_empty() && plan.unkept.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nwarm machines");
    for pool in &plan.keep {
        for machine in &pool.machines {
            let name = machine.name.as_deref().unwrap_or(&pool.pool);
            let _ = writeln!(out, "  {GROWS}+{GROWS:#} {name}  on {}  ahead of demand", machine.host);
        }
    }
    for refused in &plan.keep_refused {
        let _ = writeln!(
            out,
            "  {STUCK}✗{STUCK:#} {} cannot keep more warm machines: {}",
            refused.pool, refused.message
        );
    }
    for unkept in &plan.unkept {
        let _ = writeln!(out, "  {GOES}-{GOES:#} {}   {}", unkept.machine, unkept.reason);
    }
}

/// Where the machine is created, in words. A bare-metal machine is switched on instead.
fn place_of(machine: &NewMachine) -> String {
    if machine.vmid.is_some_and(model::Vmid::is_bare_metal) {
        return "switched on".to_owned();
    }
    format!("on {}", machine.host)
}

/// CapacityBuffers, and the state of their chunks.
fn buffers(plan: &Plan, out: &mut String) {
    if plan.buffers.is_empty() {
        return;
    }
    let _ = writeln!(out, "\ncapacity buffers");
    let width = plan.buffers.iter().map(|one| one.buffer.len()).max().unwrap_or(0);
    for one in &plan.buffers {
        let what = match one.verdict {
            BufferOutcome::Filled => "filled",
            BufferOutcome::Filling => "being filled",
            BufferOutcome::Short => "stays short",
            BufferOutcome::Empty => "empty",
            BufferOutcome::NotReady => "not ready",
            BufferOutcome::NotOurs => "left alone",
        };
        let style = if one.verdict == BufferOutcome::Short { STUCK } else { Style::new() };
        let _ = writeln!(out, "  {:width$}   {style}{what}{style:#}: {}", one.buffer, one.message);
    }
}

/// ProvisioningRequests, and the verdict on each.
fn requests(plan: &Plan, out: &mut String) {
    if plan.requests.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nprovisioning requests");
    let width = plan.requests.iter().map(|one| one.request.len()).max().unwrap_or(0);
    for one in &plan.requests {
        let _ = writeln!(
            out,
            "  {:width$}   {}: {}",
            one.request,
            verdict_words::of_request(one.verdict),
            one.message
        );
    }
}

/// The hosts that may be switched off.
fn hosts(plan: &Plan, out: &mut String) {
    if plan.hosts.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nhosts");
    let width = plan.hosts.iter().map(|one| one.host.len()).max().unwrap_or(0);
    for one in &plan.hosts {
        let what = match one.verdict {
            HostOutcome::Needed => "stays on",
            HostOutcome::Idle => "could be off",
            HostOutcome::Emptied => "being emptied",
            HostOutcome::SwitchOff => "being switched off",
            HostOutcome::GoingOff => "shutting down",
            HostOutcome::Off => "off",
            HostOutcome::Wake => "being woken",
            HostOutcome::Waking => "starting up",
            HostOutcome::GivenUp => "left alone",
            HostOutcome::NotOurs => "off, but not switched off by the daemon",
        };
        let due = one.due.map(|due| due.duration_since(plan.time)).filter(SignedDuration::is_positive);
        let due = due.map(|due| format!(" (in {})", span(due))).unwrap_or_default();
        let due = if one.verdict == HostOutcome::Idle { due } else { String::new() };
        let _ = writeln!(out, "  {:width$}   {what}{due}: {}", one.host, one.message);
    }
}

fn pods(pods: &[PodId]) -> String {
    match pods.len() {
        0 => "for the pool's minimum, or to replace a node".to_owned(),
        more if more > NAMED => format!("for {} and {} more", pods[..NAMED].join(", "), more - NAMED),
        _ => format!("for {}", pods.join(", ")),
    }
}

fn shrinkage(plan: &Plan, out: &mut String) {
    let _ = match plan.scale_down.len() {
        0 => writeln!(out, "\nno node is removed"),
        1 => writeln!(out, "\n1 node is removed"),
        more => writeln!(out, "\n{more} nodes are removed"),
    };
    for removal in &plan.scale_down {
        let why = match removal.reason {
            RemovalReason::Empty => "empty".to_owned(),
            RemovalReason::Unready => "not ready".to_owned(),
            _ => format!("{:.0} % used", removal.utilization * 100.0),
        };
        let moves: Vec<_> =
            removal.moves.iter().take(NAMED).map(|one| format!("{} → {}", one.pod, one.to)).collect();
        let more = removal.moves.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let moves =
            if moves.is_empty() { String::new() } else { format!("   moves {}{more}", moves.join(", ")) };
        let _ = writeln!(out, "  {GOES}-{GOES:#} {}   {why}{moves}", removal.node);
    }
}

fn kept(plan: &Plan, out: &mut String) {
    let kept: Vec<_> = plan.nodes.iter().filter(|node| node.verdict != NodeOutcome::Remove).collect();
    if kept.is_empty() {
        return;
    }
    let _ = writeln!(out, "{} kept", count(kept.len(), "node"));
    let width = kept.iter().take(LISTED).map(|node| node.node.len()).max().unwrap_or(0);
    for verdict in kept.iter().take(LISTED) {
        let _ = writeln!(out, "  {:width$}   {}", verdict.node, node(verdict, plan.time));
    }
    if kept.len() > LISTED {
        let _ = writeln!(out, "  … and {} more (`--output json` lists all)", kept.len() - LISTED);
    }
}

/// The verdict on a node, in one line.
pub(super) fn node(verdict: &NodeVerdict, now: Timestamp) -> String {
    let used = verdict.utilization.map(|used| format!("{:.0} % used, ", used * 100.0)).unwrap_or_default();
    let what = match verdict.verdict {
        NodeOutcome::NotManaged => "not in a managed pool".to_owned(),
        NodeOutcome::Utilized => "in use".to_owned(),
        NodeOutcome::Blocked => {
            let reason = verdict.reason.unwrap_or(NodeReason::UnexpectedError);
            match (reason, &verdict.pod) {
                (NodeReason::Pod(blocking), Some(pod)) => {
                    format!("kept by {pod} ({blocking}): {}", blocking.words())
                }
                _ => "kept".to_owned(),
            }
        }
        NodeOutcome::NoPlaceToMovePods => "kept: its pods fit nowhere else".to_owned(),
        NodeOutcome::AtMinimum => "kept: its pool is at its minimum".to_owned(),
        NodeOutcome::Unneeded | NodeOutcome::Unready => {
            let what = if verdict.verdict == NodeOutcome::Unready { "not ready" } else { "unneeded" };
            let since = verdict.since.map(|since| format!(" for {}", span(now.duration_since(since))));
            let wait =
                verdict.removable_at.map(|at| at.duration_since(now)).filter(SignedDuration::is_positive);
            let wait = wait.map(|wait| format!(", removable in {}", span(wait)));
            format!("{what}{}{}", since.unwrap_or_default(), wait.unwrap_or_default())
        }
        NodeOutcome::CoolingDown => "cooling down".to_owned(),
        NodeOutcome::PoolUnhealthy => "its pool is unhealthy".to_owned(),
        NodeOutcome::Disabled => "removal is disabled".to_owned(),
        NodeOutcome::BeingDeleted => "being removed".to_owned(),
        NodeOutcome::Remove => "is removed".to_owned(),
    };
    let message = verdict.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{used}{what}{message}")
}

/// The verdict on a pending pod, in one line.
pub(super) fn pod(verdict: &PodVerdict) -> String {
    let named = |name: Option<&str>| name.map(|name| format!(" {name}")).unwrap_or_default();
    match verdict.verdict {
        PodOutcome::NewNode => {
            format!("a new machine of pool{} is created for it", named(verdict.pool()))
        }
        PodOutcome::ExistingNode => format!("it fits node{}", named(verdict.node())),
        PodOutcome::GrownNode => {
            format!("it will fit node{} once the node has grown", named(verdict.node()))
        }
        PodOutcome::UpcomingNode => {
            format!("it fits machine{}, which is being created", named(verdict.machine()))
        }
        PodOutcome::Unfinished => "left for a later round".to_owned(),
        PodOutcome::DaemonSet => "no machine is created for DaemonSet pods".to_owned(),
        PodOutcome::Gated => "no machine is created: a scheduling gate holds the pod back".to_owned(),
        PodOutcome::TooYoung => "no machine is created yet: the pod is too young".to_owned(),
        PodOutcome::Expendable => "no machine is created: the pod's priority is below the cut-off".to_owned(),
        PodOutcome::AwaitsRequest => {
            "no machine is created: there is no room yet for the pod's ProvisioningRequest".to_owned()
        }
        PodOutcome::AwaitsGang => format!("no machine is created: {}", verdict.why()),
        outcome => format!("no machine is created ({})", verdict_words::of_pod(outcome)),
    }
}

/// The duration, rounded down, in the largest unit of which it contains at least two.
pub(super) fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}
