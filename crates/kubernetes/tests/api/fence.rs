//! After a term ends, no write is sent, whichever task attempts it.

use std::time::Duration;

use http::Method;
use kubernetes::{ErrorKind, Eviction};
use runtime::fence::Fence;
use serde_json::json;
use tokio::time::Instant;

use crate::fake::{Reply, cluster};

#[tokio::test(start_paused = true)]
async fn after_the_term_no_write_leaves_and_reads_do() {
    let (open, log) =
        cluster(|_| Reply::Json(201, json!({ "kind": "Status", "apiVersion": "v1", "metadata": {} })));
    let fenced = open.fenced(&Fence::until(Instant::now() + Duration::from_secs(6)));
    let evicted = fenced.evict("default", "web", "1", None).await.unwrap();
    assert_eq!((evicted, log.all().len()), (Eviction::Evicted, 1));
    tokio::time::sleep(Duration::from_secs(6)).await;
    let kinds = [
        fenced.evict("default", "web", "1", None).await.unwrap_err().kind(),
        fenced.cordon("node").await.unwrap_err().kind(),
        fenced.delete_node("node", "1").await.unwrap_err().kind(),
        fenced.delete_token("abcdef").await.unwrap_err().kind(),
        fenced.may_write().await.unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Fenced; 5]);
    assert_eq!(log.all().len(), 1);
    let _ = fenced.get_node("node").await;
    assert_eq!(log.last().method, Method::GET);
}
