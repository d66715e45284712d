//! What a destruction waits for.

use std::time::Duration;

use pve_autoscaler::machines::Ending;
use world::proxmox::spec::ClusterSpec;
use world::proxmox::{Effect, Fault};

use crate::lab;
use crate::support::VMID;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn nothing_is_destroyed_once_the_quorum_is_lost_between_two_questions() {
    let mut world = World::new(lab::pve(ClusterSpec::demo()), |_| {}).await;
    world.ours().await;
    world.failed(VMID).await;
    // It is asked whether the VM runs, then once more before the destruction; the quorum goes while that is answered.
    let effect = Effect::Delay(Duration::from_secs(5));
    let path = "/nodes/*/qemu/*/status/current".to_owned();
    world.pve.inject(Fault { method: "GET".into(), path, times: 2, effect });
    let pve = world.pve.clone();
    let cut = async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        pve.set_quorum(false);
    };
    let (ending, ()) = tokio::join!(world.go_on(), cut);
    assert!(matches!(&ending, Ending::Stuck(why) if why.contains("not quorate")), "{ending:?}");
    let asked: Vec<_> = pve.calls().into_iter().filter(|call| call.method == "DELETE").collect();
    assert!(asked.is_empty(), "{asked:?}");
    pve.set_quorum(true);
    assert_eq!(world.go_on().await, Ending::Discarded);
    assert!(pve.vm(VMID).is_none());
}
