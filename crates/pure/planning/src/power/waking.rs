//! Chooses the host that is woken for pods that find no room.

use super::{HostPowerRules, after};
use model::plan::PodVerdict;
use model::power::{HostOutcome, HostVerdict};

impl HostPowerRules<'_> {
    /// Wakes the host that reduces the shortage most. Hosts that are already being woken count as on. If they
    /// end the shortage, no other host is woken.
    pub(super) fn wake_one(&self, verdicts: &mut [HostVerdict]) {
        let Some(short) = self.short.filter(|short| *short > 0) else { return };
        let coming: Vec<&str> = verdicts
            .iter()
            .filter(|one| matches!(one.verdict, HostOutcome::Wake | HostOutcome::Waking))
            .map(|one| one.host.as_str())
            .collect();
        let short = if coming.is_empty() { Some(short) } else { self.short_with(&coming) };
        // If the remaining shortage is unknown, a later round decides.
        let Some(short) = short else { return };
        let sleeps = |one: &HostVerdict| one.verdict == HostOutcome::Off && self.backoff(&one.host).is_none();
        let mut best: Option<(usize, usize)> = None;
        for at in (0..verdicts.len()).filter(|at| short > 0 && sleeps(&verdicts[*at])) {
            if self.allowance.is_spent() {
                break;
            }
            let on: Vec<&str> = coming.iter().copied().chain([verdicts[at].host.as_str()]).collect();
            if let Some(with) = self.short_with(&on).filter(|with| *with < best.map_or(short, |best| best.0))
            {
                best = Some((with, at));
            }
        }
        let mut place = "if this host were on";
        if best.is_none() && short > 0 && self.plan.pods.iter().any(PodVerdict::awaits_room_with_gang) {
            let sleeping: Vec<usize> = (0..verdicts.len()).filter(|at| sleeps(&verdicts[*at])).collect();
            best = self.first_of_several(short, &coming, &sleeping, verdicts);
            place = "if this and other hosts were on";
        }
        if let Some((with, at)) = best {
            let one = &mut verdicts[at];
            one.verdict = HostOutcome::Wake;
            one.message = format!("pods and missing machines that would have room {place}: {}", short - with);
            one.since = Some(self.snapshot.time);
            one.due = Some(after(self.snapshot.time, self.settings().wake_time));
        }
    }

    /// Finds a set of hosts that together reduce the shortage as much as all hosts would. Returns the
    /// remaining shortage and the first host of the set. A gang may need several hosts, none of which helps
    /// alone.
    fn first_of_several(
        &self,
        short: usize,
        coming: &[&str],
        sleeping: &[usize],
        verdicts: &[HostVerdict],
    ) -> Option<(usize, usize)> {
        let with = |set: &[usize]| {
            let names = set.iter().map(|&at| verdicts[at].host.as_str());
            self.short_with(&coming.iter().copied().chain(names).collect::<Vec<_>>())
        };
        let least = with(sleeping).filter(|least| *least < short)?;
        let mut set = sleeping.to_vec();
        for at in sleeping.iter().rev() {
            if self.allowance.is_spent() {
                return None;
            }
            let fewer: Vec<usize> = set.iter().copied().filter(|one| one != at).collect();
            if with(&fewer).is_some_and(|with| with <= least) {
                set = fewer;
            }
        }
        set.first().map(|&at| (least, at))
    }
}
