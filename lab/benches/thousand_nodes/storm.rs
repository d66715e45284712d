//! Thousands of pods that are created within a minute and stay pending, while the daemon has other work.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;

/// The time over which the pods are created, spread across `PARTS` Deployments.
const WITHIN: Duration = Duration::from_mins(1);
const PARTS: u32 = 10;

/// The number of storm pods that exist.
pub async fn came(cluster: &Cluster) -> usize {
    let sets = cluster.admin.list("/apis/apps/v1/namespaces/default/deployments").await.unwrap();
    let storm = sets.iter().filter(|set| set["metadata"]["name"].to_string().contains("storm-"));
    let replicas = storm.filter_map(|set| set["status"]["replicas"].as_u64());
    usize::try_from(replicas.sum::<u64>()).unwrap()
}

/// Starts creating this many pods. They fit no node and no pool, but the scheduler and the daemon must each
/// check that.
pub fn begin(cluster: &Cluster, pods: usize) -> JoinHandle<()> {
    let admin = cluster.admin.clone();
    tokio::spawn(async move {
        let each = pods.div_ceil(PARTS as usize);
        for part in 0..PARTS {
            let name = format!("storm-{part}");
            let labels = json!({ "app": name });
            let container = json!({
                "name": "app", "image": "registry.example/app:1",
                "resources": { "requests": { "cpu": format!("{}m", 100 + part), "memory": "128Mi" } },
            });
            let spec = json!({ "nodeSelector": { "example.com/for": "others" }, "containers": [container] });
            let template = json!({ "metadata": { "labels": labels }, "spec": spec });
            let deployment = json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": name, "namespace": "default" },
                "spec": { "replicas": each, "selector": { "matchLabels": labels }, "template": template },
            });
            let create = ["create", "--validate=false", "-f", "-"];
            admin.kubectl(&create, &deployment.to_string()).await.unwrap();
            tokio::time::sleep(WITHIN / PARTS).await;
        }
    })
}
