//! Verdicts in words for people; codes are for programs.

use model::plan::{BufferOutcome, NodeOutcome, PodOutcome, RequestOutcome};
use model::power::HostOutcome;

pub(super) fn of_node(verdict: NodeOutcome) -> &'static str {
    match verdict {
        NodeOutcome::NotManaged => "not managed",
        NodeOutcome::Utilized => "in use",
        NodeOutcome::Blocked => "has to stay",
        NodeOutcome::NoPlaceToMovePods => "pods fit nowhere else",
        NodeOutcome::AtMinimum => "pool at its minimum",
        NodeOutcome::Unneeded => "unneeded",
        NodeOutcome::CoolingDown => "cooling down",
        NodeOutcome::PoolUnhealthy => "pool unhealthy",
        NodeOutcome::Disabled => "removal disabled",
        NodeOutcome::Unready => "not ready",
        NodeOutcome::BeingDeleted => "being removed",
        NodeOutcome::Remove => "is removed",
    }
}

pub(super) fn of_pod(verdict: PodOutcome) -> &'static str {
    match verdict {
        PodOutcome::NewNode => "gets a new machine",
        PodOutcome::ExistingNode => "fits a node",
        PodOutcome::GrownNode => "fits a node that grows",
        PodOutcome::UpcomingNode => "fits a machine being created",
        PodOutcome::NoPoolFits => "no pool fits",
        PodOutcome::PoolAtMax => "pool at its maximum",
        PodOutcome::NoHostCapacity => "no host has room",
        PodOutcome::Expendable => "expendable",
        PodOutcome::DaemonSet => "of a DaemonSet",
        PodOutcome::Gated => "has a scheduling gate",
        PodOutcome::TooYoung => "too young",
        PodOutcome::BackingOff => "pool backs off",
        PodOutcome::PredictionMissed => "kube-scheduler refused similar pods",
        PodOutcome::Unfinished => "left for a later round",
        PodOutcome::AwaitsRequest => "waits for its ProvisioningRequest",
        PodOutcome::AwaitsGang => "waits with its gang",
    }
}

pub(super) fn of_request(verdict: RequestOutcome) -> &'static str {
    match verdict {
        RequestOutcome::Found => "room found",
        RequestOutcome::Provisioned => "provisioned",
        RequestOutcome::NotFound => "no room",
        RequestOutcome::Unfinished => "left for a later round",
        RequestOutcome::Booked => "booked",
        RequestOutcome::BookingExpired => "booking expired",
        RequestOutcome::Consumed => "consumed",
        RequestOutcome::Over => "over",
        RequestOutcome::Expired => "expired",
        RequestOutcome::Broken => "invalid",
        RequestOutcome::NotOurs => "another autoscaler's",
    }
}

pub(super) fn of_buffer(verdict: BufferOutcome) -> &'static str {
    match verdict {
        BufferOutcome::Filled => "filled",
        BufferOutcome::Filling => "filling",
        BufferOutcome::Short => "short",
        BufferOutcome::Empty => "empty",
        BufferOutcome::NotReady => "not ready",
        BufferOutcome::NotOurs => "another autoscaler's",
    }
}

pub(super) fn of_host(verdict: HostOutcome) -> &'static str {
    match verdict {
        HostOutcome::Needed => "needed",
        HostOutcome::Idle => "idle",
        HostOutcome::Emptied => "being emptied",
        HostOutcome::SwitchOff => "asked to shut down",
        HostOutcome::GoingOff => "shutting down",
        HostOutcome::Off => "off",
        HostOutcome::Wake => "being woken",
        HostOutcome::Waking => "starting up",
        HostOutcome::GivenUp => "did not respond to the request",
        HostOutcome::NotOurs => "off, but not switched off by the daemon",
    }
}

/// Returns the words for a code in a status. An unknown code, which comes from another version, is returned
/// unchanged.
pub(super) fn of_code<T: Copy>(
    code: &str,
    all: &[T],
    code_of: impl Fn(T) -> &'static str,
    words: impl Fn(T) -> &'static str,
) -> String {
    let known = all.iter().find(|one| code_of(**one) == code);
    known.map_or_else(|| code.to_owned(), |one| words(*one).to_owned())
}
