//! `show processes`.

use std::io::Write;

use holdfast_api::manager::v1::{Empty, ManagerClient, Process};
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{Table, or_dash, size, uptime},
};

pub(super) async fn show(router: &Router, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let manager: ManagerClient = router.client("manager").await?;
    let processes = answer(manager.show_processes(Empty {})).await?.processes;
    if as_json {
        let all = processes.iter().map(|process| (process.name.clone(), to_json(process)));
        line(out, &Value::Object(all.collect()))?;
        return Ok(());
    }
    let mut table =
        Table::new(&["Process", ">PID", "State", ">Uptime", ">Restarts", ">Memory", "Last exit", "Detail"]);
    for process in &processes {
        table.row([
            process.name.clone(),
            if process.pid == 0 { "-".to_owned() } else { process.pid.to_string() },
            state(process),
            if process.pid == 0 { "-".to_owned() } else { uptime(process.uptime_seconds.max(1) * 1000) },
            process.restarts.to_string(),
            size(process.memory_bytes),
            or_dash(&process.last_exit).to_owned(),
            process.detail.clone(),
        ]);
    }
    Ok(table.write(out)?)
}

fn state(process: &Process) -> String {
    match process.retry_seconds {
        0 => process.state.clone(),
        seconds => format!("{}, {seconds} s left", process.state),
    }
}

fn to_json(process: &Process) -> Value {
    json!({
        "pid": process.pid,
        "state": process.state,
        "uptimeSeconds": process.uptime_seconds,
        "restarts": process.restarts,
        "lastExit": process.last_exit,
        "retrySeconds": process.retry_seconds,
        "memoryBytes": process.memory_bytes,
        "detail": process.detail,
    })
}
