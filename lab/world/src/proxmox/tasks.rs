//! Calls about tasks: lists, status, logs, stopping.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    state::State,
    upid::Upid,
};

impl Pve {
    pub(super) fn cluster_tasks(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        // A caller without `Sys.Audit` sees no rows in this list, not even its own tasks.
        if !call.who.has(&state, "/", "Sys.Audit") {
            return json!([]).into();
        }
        let rows =
            state.task_order.iter().rev().take(25).filter_map(|upid| state.tasks.get(upid)).map(|task| {
                let mut row = task.row();
                for key in ["pid", "pstart"] {
                    row.as_object_mut().and_then(|members| members.remove(key));
                }
                row["saved"] = if task.running() { "0" } else { "1" }.into();
                row
            });
        Value::Array(rows.collect()).into()
    }

    pub(super) fn task_list(&self, call: &ApiCall) -> Answer {
        let state = self.state();
        let (node, params) = (call.node(), &call.params);
        let all = call.who.has(&state, &format!("/nodes/{node}"), "Sys.Audit");
        let source = params.text("source").unwrap_or_else(|| "archive".into());
        let vmid = params.text("vmid");
        let kind = params.text("typefilter");
        let since = params.text("since").and_then(|text| text.parse::<i64>().ok());
        let newest = state.task_order.iter().rev().filter_map(|upid| state.tasks.get(upid));
        let rows: Vec<Value> = newest
            .filter(|task| task.upid.node == node && (all || task.upid.user == call.who.token))
            .filter(|task| source == "all" || (source == "active") == task.running())
            .filter(|task| vmid.as_ref().is_none_or(|vmid| task.upid.id == *vmid))
            .filter(|task| kind.as_ref().is_none_or(|kind| task.upid.kind == *kind))
            .filter(|task| since.is_none_or(|since| task.upid.starttime >= since))
            .filter(|task| !params.flag("errors") || task.exit.as_deref().is_some_and(|exit| exit != "OK"))
            .map(super::task::Task::row)
            .collect();
        // If there are no tasks, the answer contains no `total`.
        let total = u64::try_from(rows.len()).ok().filter(|total| *total > 0);
        let (start, limit) = (params.number("start").unwrap_or(0), params.number("limit").unwrap_or(50));
        let take = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let page = rows.into_iter().skip(take(start)).take(take(limit)).collect();
        Answer { data: Value::Array(page), total }
    }

    pub(super) fn task_status(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        let upid = allowed(&state, call, "Sys.Audit")?;
        let task = state.tasks.get(&upid).filter(|task| task.upid.node == call.node());
        let task = task.ok_or_else(|| Refusal::parameter("upid", "no such task"))?;
        Ok(task.status().into())
    }

    pub(super) fn task_log(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let state = self.state();
        let upid = allowed(&state, call, "Sys.Audit")?;
        let unknown = vec!["unable to open file - No such file or directory".to_owned()];
        let lines = state.tasks.get(&upid).map_or(&unknown, |task| &task.log);
        let number = |name, default| {
            usize::try_from(call.params.number(name).unwrap_or(default)).unwrap_or(usize::MAX)
        };
        // A limit of 0 means all lines.
        let most = match number("limit", 50) {
            0 => usize::MAX,
            most => most,
        };
        let rows = lines.iter().enumerate().skip(number("start", 0)).take(most);
        let rows = rows.map(|(at, line)| json!({ "n": at + 1, "t": line })).collect();
        Ok(Answer { data: Value::Array(rows), total: u64::try_from(lines.len()).ok() })
    }

    pub(super) fn task_stop(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let (upid, interrupt) = {
            let state = self.state();
            let upid = allowed(&state, call, "Sys.Modify")?;
            let task = state.tasks.get(&upid).ok_or_else(|| Refusal::parameter("upid", "no such task"))?;
            (upid, task.interrupt.clone())
        };
        interrupt.cancel();
        let pve = self.clone();
        tokio::spawn(async move {
            // A worker that ignores the request is killed five seconds later.
            tokio::time::sleep(Duration::from_secs(5)).await;
            pve.kill_task(&upid);
        });
        Ok(Value::Null.into())
    }
}

fn allowed(state: &State, call: &ApiCall, privilege: &str) -> Result<String, Refusal> {
    let text = call.path.get("upid").cloned().unwrap_or_default();
    let upid = Upid::parse(&text).ok_or_else(|| Refusal::parameter("upid", "unable to parse worker upid"))?;
    if upid.user != call.who.token {
        call.who.need(state, &format!("/nodes/{}", upid.node), &[privilege])?;
    }
    Ok(text)
}
