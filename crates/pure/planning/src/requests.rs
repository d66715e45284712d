//! ProvisioningRequests: determines whether there is room for all pods of a request at the same time, or
//! whether room can be created for all of them.
//!
//! * The pods of a request are imagined pods. They are placed after pending pods and before chunks of
//!   buffers: all of them, or none.
//! * Until a request is granted, the real pods that belong to it trigger no machine. Once it is granted, room
//!   is reserved for ten minutes for the imagined pods that real ones have not replaced yet, as in Cluster
//!   Autoscaler.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::all_or_nothing::Tried;
use super::buffers::imagined;
use super::class::Class;
use super::packer::Packer;
use super::pod_place::PodPlace;
use super::predictions::keep_to_bound;
use model::Snapshot;
use model::buffer::PodTemplate;
use model::plan::{Plan, PodOutcome, RequestOutcome, RequestVerdict};
use model::pod::{Owner, Pod};
use model::request::{ATOMIC, CHECK_CAPACITY, CONSUMES, ProvisioningRequest};

/// How long room is reserved for a request after the request was granted.
const BOOKED: SignedDuration = SignedDuration::from_mins(10);
/// A request fails if no room was found for it within this time.
const EXPIRES: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A request may be seen before its PodTemplates, because each kind has a separate watch. If a template is
/// still unseen this long after the request was created, it counts as missing. This is longer than it takes
/// to notice a dead connection.
const TEMPLATES_COME: SignedDuration = SignedDuration::from_mins(2);
/// Maximum total number of request pods for which a round looks for room. Requests for which room is already
/// reserved are never left out.
const MOST: i64 = 10_000;
const KIND: &str = "ProvisioningRequest";

/// A request and its pods, with what is known before looking for room.
pub(super) struct Request<'a> {
    of: &'a ProvisioningRequest,
    /// The outcome and its reason. `None`: the planner looks for room.
    settled: Option<(RequestOutcome, String)>,
    pub pods: Vec<Arc<Pod>>,
}

/// The requests of a cluster, the oldest first.
pub(super) fn resolve(snapshot: &Snapshot) -> Vec<Request<'_>> {
    let sorted = sorted(snapshot);
    if sorted.is_empty() {
        return Vec::new();
    }
    let consumers = consumers(snapshot);
    let templates = templates(snapshot);
    let states = sorted.into_iter().map(|of| {
        let own = consumers.get(&(of.namespace.as_str(), of.name.as_str())).map_or(&[][..], Vec::as_slice);
        let bound = own.iter().filter(|pod| pod.node.is_some()).count();
        let bound = i64::try_from(bound).unwrap_or(i64::MAX);
        (of, own, state(of, bound, snapshot.time).or_else(|| too_large(of)))
    });
    let mut states: Vec<_> = states.collect();
    postpone(&mut states, snapshot.time);
    let resolved = states.into_iter().map(|(of, own, mut settled)| {
        let booked = matches!(settled, Some((RequestOutcome::Booked, _)));
        let mut pods = Vec::new();
        if settled.is_none() || booked {
            match made(&templates, of, if booked { own } else { &[] }) {
                Ok(made) => pods = made,
                // A request that was granted stays granted.
                Err(why) if booked => {
                    let why = format!("{why}, so no room is held for the pods that do not exist yet");
                    settled = Some((RequestOutcome::Booked, why));
                }
                Err(why) if is_new(of, snapshot.time) => {
                    settled =
                        Some((RequestOutcome::Unfinished, format!("{why} yet; a later round checks again")));
                }
                Err(why) => settled = Some((RequestOutcome::Broken, why)),
            }
        }
        Request { of, settled, pods }
    });
    resolved.collect()
}

/// The outcome of a pod whose request has not been granted. Such a pod triggers no machine.
pub(super) fn awaits(pod: &Pod, snapshot: &Snapshot) -> Option<PodOutcome> {
    let requests = snapshot.requests.as_ref()?;
    let name = consumed(pod)?;
    let own = |one: &&Arc<ProvisioningRequest>| one.namespace == pod.namespace && one.name == name;
    let request = requests.iter().find(own);
    let may = request.is_some_and(|request| request.is("Provisioned").is_some());
    (!may).then_some(PodOutcome::AwaitsRequest)
}

/// Removes the verdicts of the requests' imagined pods from the plan, and adds a verdict for each request.
pub(super) fn tell(requests: &[Request], plan: &mut Plan) {
    if requests.is_empty() {
        return;
    }
    let ids = requests
        .iter()
        .enumerate()
        .flat_map(|(number, request)| request.pods.iter().map(move |pod| (&*pod.digest().id, number)));
    let ids: BTreeMap<&str, usize> = ids.collect();
    let begun = |request: &Request| RequestVerdict {
        request: request.of.id(),
        verdict: RequestOutcome::Found,
        message: String::new(),
        pods: request.of.pods(),
        on_new_machines: 0,
        reasons: Vec::new(),
    };
    let mut verdicts: Vec<RequestVerdict> = requests.iter().map(begun).collect();
    plan.pods.retain(|pod| {
        let Some(number) = ids.get(&*pod.pod) else { return true };
        let verdict = &mut verdicts[*number];
        match pod.verdict {
            PodOutcome::ExistingNode | PodOutcome::UpcomingNode | PodOutcome::GrownNode => {}
            PodOutcome::NewNode => verdict.on_new_machines += 1,
            PodOutcome::Unfinished => verdict.verdict = RequestOutcome::Unfinished,
            _ if verdict.verdict == RequestOutcome::Unfinished => {}
            _ => {
                if verdict.verdict != RequestOutcome::NotFound {
                    verdict.reasons = pod.reasons().to_vec();
                }
                verdict.verdict = RequestOutcome::NotFound;
            }
        }
        false
    });
    for (verdict, request) in verdicts.iter_mut().zip(requests) {
        conclude(verdict, request);
    }
    plan.requests = verdicts;
}

fn conclude(verdict: &mut RequestVerdict, request: &Request) {
    if let Some((outcome, why)) = &request.settled {
        verdict.verdict = *outcome;
        verdict.message.clone_from(why);
        verdict.reasons.clear();
        return;
    }
    let pods =
        if verdict.pods == 1 { "its pod".to_owned() } else { format!("all of its {} pods", verdict.pods) };
    verdict.message = match verdict.verdict {
        RequestOutcome::Unfinished => "a later round will check the request".to_owned(),
        RequestOutcome::NotFound => {
            let why: Vec<String> =
                verdict.reasons.iter().map(|one| format!("{}: {}", one.pool, one.message)).collect();
            let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
            let where_ = if request.of.class == ATOMIC { "" } else { " on existing nodes" };
            format!("there is no room{where_} for {pods}{why}; every round checks again")
        }
        _ if verdict.on_new_machines > 0 => {
            verdict.verdict = RequestOutcome::Provisioned;
            format!("machines are being created for {pods}")
        }
        _ => format!("{pods} will fit on existing machines or on those being created"),
    };
}

impl<'a> Packer<'_, 'a> {
    /// Finds or creates room for the pods of requests: for all pods of a request, or for none.
    pub(super) fn provide(&mut self, mut classes: Vec<Class<'a>>) {
        if classes.is_empty() {
            return;
        }
        keep_to_bound(&mut classes);
        let mut own: BTreeMap<(&str, &str), Vec<Class<'a>>> = BTreeMap::new();
        for class in classes {
            own.entry(asked_by(class.sample)).or_default().push(class);
        }
        let mut all: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (index, waiting) in self.pods.iter().enumerate().filter(|one| is_requested(one.1.pod)) {
            all.entry(asked_by(waiting.pod)).or_default().push(index);
        }
        for request in sorted(self.view.snapshot) {
            let key = (request.namespace.as_str(), request.name.as_str());
            let Some(pods) = all.get(&key) else { continue };
            let mut own = own.remove(&key).unwrap_or_default();
            if own.iter().map(|class| class.pods.len()).sum::<usize>() < pods.len() {
                self.put_off(pods);
            } else if request.is("Provisioned").is_some() {
                self.fill_known(&mut own);
            } else if self.partial || self.view.allowance.is_spent() {
                // Real pods whose turn comes in a later round may need the room.
                self.put_off(pods);
            } else {
                self.answer(request, &mut own, pods);
            }
        }
    }

    /// Postpones the pods of a request to a later round.
    fn put_off(&mut self, pods: &[usize]) {
        for &index in pods {
            self.pods[index].settled = Some(PodOutcome::Unfinished);
        }
    }

    fn answer(&mut self, request: &ProvisioningRequest, own: &mut [Class<'a>], pods: &[usize]) {
        let tried = self.all_or_nothing(own, request.class == ATOMIC, |packer, own| {
            own.iter().all(|class| class.left() == 0 && packer.may_be_there(class, request))
        });
        let unknown = tried == Tried::Cut || self.view.allowance.is_spent();
        if tried != Tried::Kept && unknown {
            self.put_off(pods);
        }
    }

    /// Whether the pods of a class may stay where they were placed. If the request checks only existing
    /// capacity, none of them may be on a machine that this decision creates.
    fn may_be_there(&self, class: &Class, request: &ProvisioningRequest) -> bool {
        let new = |pod: &usize| match self.spots[*pod] {
            PodPlace::Node(at) => self.machine_at(at).is_some(),
            PodPlace::None => false,
        };
        request.class != CHECK_CAPACITY || !class.pods.iter().any(new)
    }
}

/// Whether this is an imagined pod of a request.
pub(super) fn is_requested(pod: &Pod) -> bool {
    pod.chunk && pod.owner.as_ref().is_some_and(|owner| owner.kind == KIND)
}

/// The namespace and the name of the request to which an imagined pod belongs.
fn asked_by(pod: &Pod) -> (&str, &str) {
    (&pod.namespace, pod.owner.as_ref().map_or("", |owner| &owner.name))
}

fn sorted(snapshot: &Snapshot) -> Vec<&ProvisioningRequest> {
    let mut all: Vec<&ProvisioningRequest> = snapshot.requests.iter().flatten().map(AsRef::as_ref).collect();
    all.sort_by(|a, b| (a.created, &a.namespace, &a.name).cmp(&(b.created, &b.namespace, &b.name)));
    all
}

/// The name of the request that a real pod is part of.
fn consumed(pod: &Pod) -> Option<&str> {
    CONSUMES.iter().find_map(|key| pod.annotations.get(*key)).map(String::as_str)
}

/// For each request, by namespace and name: its real pods that have a node, and those that are pending.
fn consumers(snapshot: &Snapshot) -> BTreeMap<(&str, &str), Vec<&Pod>> {
    let mut all: BTreeMap<(&str, &str), Vec<&Pod>> = BTreeMap::new();
    for pod in &snapshot.pods {
        let Some(name) = consumed(pod) else { continue };
        if pod.node.is_some() || pod.digest().marks.waits && !pod.digest().marks.gated {
            all.entry((pod.namespace.as_str(), name)).or_default().push(pod);
        }
    }
    for pods in all.values_mut() {
        pods.sort_by_key(|pod| &pod.digest().id);
    }
    all
}

/// The outcome that follows from the request's conditions, the time, and how many of its pods have a node.
/// `None`: the planner looks for room.
fn state(request: &ProvisioningRequest, bound: i64, now: Timestamp) -> Option<(RequestOutcome, String)> {
    let outcome = |outcome, why: &str| Some((outcome, why.to_owned()));
    if request.class != CHECK_CAPACITY && request.class != ATOMIC {
        return Some((
            RequestOutcome::NotOurs,
            format!("its class `{}` belongs to another autoscaler", request.class),
        ));
    }
    for kind in ["Failed", "BookingExpired"] {
        if let Some(condition) = request.is(kind) {
            return Some((RequestOutcome::Over, format!("{kind}: {}", condition.reason)));
        }
    }
    let age =
        |since: Option<Timestamp>| since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
    if let Some(provisioned) = request.is("Provisioned") {
        return if bound >= request.pods() {
            outcome(RequestOutcome::Consumed, "all of its pods have a node")
        } else if age(provisioned.since) > BOOKED {
            outcome(RequestOutcome::BookingExpired, "its room was held for ten minutes and is now released")
        } else {
            outcome(RequestOutcome::Booked, "its room is held")
        };
    }
    let own = request.parameters.get("ValidUntilSeconds").and_then(|text| text.parse().ok());
    let own = own.filter(|_| request.class == ATOMIC).map(SignedDuration::from_secs);
    let valid = own.map_or(EXPIRES, |own| own.min(EXPIRES));
    if age(request.created) > valid {
        return outcome(RequestOutcome::Expired, "no room was found in time");
    }
    None
}

/// Whether PodTemplates of the request may still arrive.
fn is_new(request: &ProvisioningRequest, now: Timestamp) -> bool {
    request.created.is_some_and(|created| now.duration_since(created) < TEMPLATES_COME)
}

/// PodTemplates by namespace and name.
type Templates<'a> = BTreeMap<(&'a str, &'a str), &'a PodTemplate>;

fn templates(snapshot: &Snapshot) -> Templates<'_> {
    let all = snapshot.pod_templates.iter();
    all.map(|one| ((one.namespace.as_str(), one.name.as_str()), &**one)).collect()
}

/// A request, its real pods, and its outcome. The outcome is `None` if the planner has to look for room.
type State<'a, 'o> = (&'a ProvisioningRequest, &'o [&'a Pod], Option<(RequestOutcome, String)>);

/// Postpones requests to later rounds if they have more than [`MOST`] pods in total. They take turns: each
/// minute, a different request comes first. A request for which there is no room therefore does not keep
/// others waiting.
fn postpone(states: &mut [State], now: Timestamp) {
    let is_held = |one: &&State| matches!(one.2, Some((RequestOutcome::Booked, _))) && one.0.pods() <= MOST;
    let held = states.iter().filter(is_held).map(|one| one.0.pods()).fold(0, i64::saturating_add);
    let mut left = MOST.saturating_sub(held);
    let open: Vec<usize> = (0..states.len()).filter(|at| states[*at].2.is_none()).collect();
    let all = open.iter().map(|at| states[*at].0.pods()).fold(0, i64::saturating_add);
    if all <= left {
        return;
    }
    let turn = usize::try_from(now.as_second() / 60).unwrap_or_default() % open.len();
    for &at in open[turn..].iter().chain(&open[..turn]) {
        let (request, _, settled) = &mut states[at];
        if request.pods() <= left {
            left -= request.pods();
        } else {
            let why = format!(
                "all requests together have more than {MOST} pods; a later round will check \
                    this request"
            );
            *settled = Some((RequestOutcome::Unfinished, why));
        }
    }
}

/// Returns the outcome of a request that has too many pods for a round.
fn too_large(request: &ProvisioningRequest) -> Option<(RequestOutcome, String)> {
    (request.pods() > MOST).then(|| (RequestOutcome::Broken, beyond(request.pods())))
}

fn beyond(pods: i64) -> String {
    format!("it is for {pods} pods; the limit is {MOST}")
}

/// The pods of a request, without those that real pods have replaced.
///
/// # Errors
/// Returns the reason why there are no imagined pods: a PodTemplate is missing, or the request has too many
/// pods.
fn made(
    templates: &Templates,
    request: &ProvisioningRequest,
    real: &[&Pod],
) -> Result<Vec<Arc<Pod>>, String> {
    if request.pods() > MOST {
        return Err(beyond(request.pods()));
    }
    let owner = Owner {
        api_version: "autoscaling.x-k8s.io/v1".to_owned(),
        kind: KIND.to_owned(),
        name: request.name.clone(),
        uid: request.uid.clone(),
    };
    let mut sets = Vec::new();
    for (name, count) in &request.sets {
        let Some(template) = templates.get(&(request.namespace.as_str(), name.as_str())) else {
            let why = format!("there is no PodTemplate `{name}` in namespace `{}`", request.namespace);
            return Err(why);
        };
        sets.push(Set { template: &template.pod, count: (*count).max(0), replaced: 0 });
    }
    replace(&mut sets, real);
    let (mut pods, mut before) = (Vec::new(), 0);
    for set in sets {
        for number in before + set.replaced + 1..=before + set.count {
            // No object can have such a name, so it never equals that of a real pod.
            let name = format!("{} (pod {number} of a ProvisioningRequest)", request.name);
            pods.push(Arc::new(imagined(set.template, &request.namespace, name, owner.clone())));
        }
        before += set.count;
    }
    Ok(pods)
}

/// A pod set of a request.
struct Set<'a> {
    template: &'a Pod,
    count: i64,
    /// How many of its pods exist.
    replaced: i64,
}

/// Assigns the real pods to the sets to which they belong. A pod does not name its set, so it is recognized
/// by its requests, node selector and affinity. These may have been changed when the pod was created. Such a
/// pod is assigned to an incomplete set that matches in part, or else to any incomplete set.
fn replace(sets: &mut [Set], real: &[&Pod]) {
    let same_place =
        |pod: &Pod, other: &Pod| pod.node_selector == other.node_selector && pod.affinity == other.affinity;
    let mut left = real.to_vec();
    for (needs, place) in [(true, true), (true, false), (false, true), (false, false)] {
        left.retain(|pod| {
            let fits = |set: &&mut Set| {
                set.replaced < set.count
                    && (!needs || pod.requests == set.template.requests)
                    && (!place || same_place(pod, set.template))
            };
            let Some(set) = sets.iter_mut().find(fits) else { return true };
            set.replaced += 1;
            false
        });
    }
}
