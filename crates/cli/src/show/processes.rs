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
    let mut table = Table::new(&[
        "Process",
        ">PID",
        "State",
        ">Uptime",
        ">Restarts",
        ">Memory",
        "Build",
        "Last exit",
        "Detail",
    ]);
    for process in &processes {
        table.row([
            process.name.clone(),
            if process.pid == 0 { "-".to_owned() } else { process.pid.to_string() },
            state(process),
            if process.pid == 0 { "-".to_owned() } else { uptime(process.uptime_seconds.max(1) * 1000) },
            process.restarts.to_string(),
            size(process.memory_bytes),
            or_dash(&process.build).to_owned(),
            or_dash(&process.last_exit).to_owned(),
            detail(process),
        ]);
    }
    table.write(out)?;
    writeln!(out)?;
    Ok(sandbox(&processes).write(out)?)
}

/// What is in force for those that run.
fn sandbox(processes: &[Process]) -> Table {
    let mut table = Table::new(&[
        "Process",
        ">User",
        "Landlock",
        "Seccomp",
        ">Memory limit",
        ">CPU limit",
        "Capabilities",
    ]);
    for process in processes.iter().filter(|process| process.pid != 0) {
        let limits = process.limits.unwrap_or_default();
        table.row([
            process.name.clone(),
            process.user.to_string(),
            if process.landlock == 0 { "no".to_owned() } else { format!("version {}", process.landlock) },
            if process.seccomp { "yes" } else { "no" }.to_owned(),
            if limits.memory_octets == 0 { "-".to_owned() } else { size(limits.memory_octets) },
            if limits.cpu_percent == 0 { "-".to_owned() } else { format!("{} %", limits.cpu_percent) },
            capabilities(process),
        ]);
    }
    table
}

fn capabilities(process: &Process) -> String {
    let names = process.capabilities.iter();
    let names: Vec<_> = names.map(|name| name.trim_start_matches("CAP_").to_lowercase()).collect();
    or_dash(&names.join(" ")).to_owned()
}

fn state(process: &Process) -> String {
    match (process.retry_seconds, process.busy_milliseconds) {
        (0, 0) => process.state.clone(),
        (0, milliseconds) => format!("{}, busy for {} s", process.state, milliseconds / 1000),
        (seconds, _) => format!("{}, {seconds} s left", process.state),
    }
}

/// What is wrong with it.
fn detail(process: &Process) -> String {
    match &process.quarantined[..] {
        [] => process.detail.clone(),
        stages => format!("stages left out: {} {}", stages.join(", "), process.detail).trim_end().to_owned(),
    }
}

fn to_json(process: &Process) -> Value {
    json!({
        "pid": process.pid,
        "state": process.state,
        "uptimeSeconds": process.uptime_seconds,
        "restarts": process.restarts,
        "lastExit": process.last_exit,
        "last_end": process.last_end,
        "hung": process.hung,
        "quarantined": process.quarantined,
        "longest_turn_us": process.longest_turn_microseconds,
        "busy_ms": process.busy_milliseconds,
        "retrySeconds": process.retry_seconds,
        "memoryBytes": process.memory_bytes,
        "build": process.build,
        "detail": process.detail,
        "user": process.user,
        "capabilities": process.capabilities,
        "landlock": process.landlock,
        "seccomp": process.seccomp,
        "memoryLimitBytes": process.limits.unwrap_or_default().memory_octets,
        "cpuLimitPercent": process.limits.unwrap_or_default().cpu_percent,
    })
}
