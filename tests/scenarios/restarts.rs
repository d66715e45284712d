//! The daemon is killed at each of its calls, after the call was carried out and before its answer came;
//! another daemon continues.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::stage::{ONE_POOL, Stage};

/// The calls are shared out among this many tests, which run side by side.
const SHARDS: usize = 4;

async fn a_creation_goes_on(shard: usize) {
    let calls = {
        let stage = Stage::running(ONE_POOL);
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.until("all is done", Duration::from_mins(3), all_there).await;
        stage.calls.load(Ordering::SeqCst)
    };
    assert!(calls > 40, "{calls}");
    for last in (1..=calls).skip(shard).step_by(SHARDS) {
        let mut stage = Stage::new(ONE_POOL);
        stage.deploy("web", 1, "1500m", "1Gi");
        stage.start_until(last);
        stage.until("the daemon's connections are cut", Duration::from_mins(3), Stage::is_cut).await;
        stage.kill();
        stage.start();
        let what = format!(
            "the pod runs, and one VM and its record are left, after a kill at call {last} of {calls}"
        );
        stage.until(&what, Duration::from_mins(10), all_there).await;
    }
}

async fn a_removal_goes_on(shard: usize) {
    let (before, after) = {
        let stage = Stage::running(&quick());
        up_and_idle(&stage).await;
        let before = stage.calls.load(Ordering::SeqCst);
        stage.until("nothing is left", Duration::from_mins(10), all_gone).await;
        (before, stage.calls.load(Ordering::SeqCst))
    };
    for last in (before + 1..=after).skip(shard).step_by(SHARDS) {
        let mut stage = Stage::new(&quick());
        stage.start_until(last);
        up_and_idle(&stage).await;
        stage.until("the daemon's connections are cut", Duration::from_mins(10), Stage::is_cut).await;
        stage.kill();
        stage.start();
        let what = format!("nothing is left after a kill at call {last} of {before}..{after}");
        stage.until(&what, Duration::from_mins(10), all_gone).await;
    }
}

/// The machine's VM was configured and started before the settings changed, so the daemon finishes the
/// machine with the old settings.
#[tokio::test(start_paused = true)]
async fn a_machine_that_joins_is_finished_whatever_other_settings_say_since() {
    for phase in ["Starting", "Booting", "Joining"] {
        let mut stage = Stage::running(ONE_POOL);
        stage.deploy("web", 1, "1500m", "1Gi");
        let comes = |stage: &Stage| {
            let runs = stage.pve.vm(9100).is_some_and(|vm| vm.running);
            runs && stage.status().machines.iter().any(|one| one.phase == phase)
        };
        stage.until("the VM runs and the machine has reached the phase", Duration::from_mins(3), comes).await;
        let name = stage.status().machines[0].name.clone();
        stage.kill();
        stage.reload(&format!("{ONE_POOL}vm_options = {{ cpu = \"host\" }}\ndisk = \"20GiB\"\n"));
        stage.start();
        stage.until("the pod runs", Duration::from_mins(10), |stage| stage.running_pods() == 1).await;
        assert_eq!(stage.ready_nodes("workers"), [name], "{phase}: {}", stage.scene());
        let told = stage.status().decisions;
        assert!(told.iter().all(|one| !one.what.contains("another client started")), "{phase}: {told:?}");
    }
}

/// Unneeded nodes are removed after a minute.
fn quick() -> String {
    ONE_POOL.replace("[[pool]]", "[scale_down]\nunneeded_time = \"1m\"\ndelay_after_add = \"0s\"\n[[pool]]")
}

/// Waits until there is one node, which is no longer needed.
async fn up_and_idle(stage: &Stage) {
    stage.deploy("web", 1, "1500m", "1Gi");
    stage.until("all is done", Duration::from_mins(3), all_there).await;
    stage.kube.scale("default", "web", 0);
}

fn all_there(stage: &Stage) -> bool {
    stage.running_pods() == 1 && stage.vms(9100..=9109).len() == 1 && stage.leftovers().len() == 1
}

fn all_gone(stage: &Stage) -> bool {
    stage.vms(9100..=9109).is_empty() && stage.leftovers().is_empty()
}

macro_rules! shards {
    ($of:ident: $($name:ident $number:literal),*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                $of($number).await;
            }
        )*
    };
}

shards!(a_creation_goes_on: a_creation_goes_on_after_a_kill_at_every_call 0, a_creation_goes_on_after_a_kill_at_every_call_1 1,
    a_creation_goes_on_after_a_kill_at_every_call_2 2, a_creation_goes_on_after_a_kill_at_every_call_3 3);
shards!(a_removal_goes_on: a_removal_goes_on_after_a_kill_at_every_call 0, a_removal_goes_on_after_a_kill_at_every_call_1 1,
    a_removal_goes_on_after_a_kill_at_every_call_2 2, a_removal_goes_on_after_a_kill_at_every_call_3 3);
