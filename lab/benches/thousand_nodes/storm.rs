//! Thousands of pods that come within a minute and wait, while the daemon has other things to do.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;

/// The time in which they come, and in how many parts.
const WITHIN: Duration = Duration::from_mins(1);
const PARTS: u32 = 10;

/// How many of them are there.
pub async fn came(cluster: &Cluster) -> usize {
    let sets = cluster.admin.list("/apis/apps/v1/namespaces/default/deployments").await.unwrap();
    let storm = sets.iter().filter(|set| set["metadata"]["name"].to_string().contains("storm-"));
    let replicas = storm.filter_map(|set| set["status"]["replicas"].as_u64());
    usize::try_from(replicas.sum::<u64>()).unwrap()
}

/// This many pods come from now on. They fit no node and no pool: the scheduler refuses them, and the daemon
/// has to find out, too.
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
