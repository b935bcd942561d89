//! `show listeners`.

use std::io::{self, Write};

use holdfast_api::transport::v1::{Empty, Listener, Protocol, Stage, TransportClient};
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{Table, socket},
};

/// The word of the configuration.
pub(crate) fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Unspecified => "unknown",
        Protocol::Tcp => "tcp",
        Protocol::Tls => "tls",
        Protocol::Quic => "quic",
        Protocol::QuicS2n => "quic-s2n",
    }
}

pub(super) async fn show(router: &Router, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let transport: TransportClient = router.client("transport").await?;
    let mut shown = transport.show_listeners(Empty {});
    let mut listeners = Vec::new();
    while let Some(listener) = answer(shown.next()).await? {
        listeners.push(listener);
    }
    if as_json {
        let all = listeners.iter().map(to_json).collect::<Vec<_>>();
        return Ok(line(out, &json!({ "listeners": all }))?);
    }
    Ok(listeners.iter().try_for_each(|listener| write(listener, out))?)
}

fn to_json(listener: &Listener) -> Value {
    let stage = |stage: &Stage| {
        json!({
            "name": stage.name,
            "seen": stage.seen,
            "passed": stage.passed,
            "ignored": stage.ignored,
            "refused": stage.refused,
            "retried": stage.retried,
            "accepted": stage.accepted,
        })
    };
    let mut value = json!({
        "protocol": protocol(listener.protocol()),
        "address": crate::text::address(&listener.address).map(|address| address.to_string()),
        "port": listener.port,
        "handshakes": listener.handshakes,
        "passed": listener.passed,
        "let_in": listener.established,
        "failed": listener.failed,
        "under_way": listener.under_way,
        "refused_after_proof": listener.refused_after_proof,
        "kernelDrops": listener.kernel_drops,
        "underLoad": listener.under_load,
        "stages": listener.stages.iter().map(stage).collect::<Vec<_>>(),
    });
    if is_quic(listener) {
        value["no_attempt"] = json!({
            "garbage": listener.garbage,
            "unknown_version": listener.unknown_version,
            "resets_sent": listener.resets_sent,
        });
    }
    if !listener.fault.is_empty() {
        value["fault"] = listener.fault.as_str().into();
    }
    value
}

fn is_quic(listener: &Listener) -> bool {
    matches!(listener.protocol(), Protocol::Quic | Protocol::QuicS2n)
}

fn write(listener: &Listener, out: &mut dyn Write) -> io::Result<()> {
    let place = socket(&listener.address, listener.port);
    let load = if listener.under_load { ", under load" } else { "" };
    writeln!(out, "{} {place}{load}", protocol(listener.protocol()))?;
    if !listener.fault.is_empty() {
        writeln!(out, "  Fault: {}", listener.fault)?;
    }
    let Listener { passed, established, failed, under_way, refused_after_proof, .. } = listener;
    writeln!(
        out,
        "  Passed: {passed}, of those {established} let in, {failed} failed, {under_way} under way, \
         {refused_after_proof} refused after proof"
    )?;
    if is_quic(listener) {
        let Listener { garbage, unknown_version, resets_sent, .. } = listener;
        writeln!(
            out,
            "  No attempt: {garbage} garbage, {unknown_version} of an unknown version; {resets_sent} resets sent"
        )?;
    }
    if !listener.stages.is_empty() {
        let titles = ["  Stage", ">Seen", ">Passed", ">Ignored", ">Refused", ">Retried", ">Accepted"];
        let mut table = Table::new(&titles);
        let mut kernel = ["  kernel", "", "", "", "", "", ""].map(str::to_owned);
        kernel[3] = listener.kernel_drops.to_string();
        table.row(kernel);
        for stage in &listener.stages {
            let counts =
                [stage.seen, stage.passed, stage.ignored, stage.refused, stage.retried, stage.accepted];
            let [seen, passed, ignored, refused, retried, accepted] = counts.map(|count| count.to_string());
            table.row([format!("  {}", stage.name), seen, passed, ignored, refused, retried, accepted]);
        }
        table.write(out)?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_has_a_row_and_a_fault_is_said() {
        let stage = Stage { name: "sources".into(), seen: 12, passed: 10, ignored: 2, ..Stage::default() };
        let listener = Listener {
            protocol: Protocol::Quic.into(),
            address: vec![0; 16],
            port: 179,
            stages: vec![stage],
            passed: 7,
            established: 3,
            failed: 2,
            under_way: 1,
            refused_after_proof: 1,
            garbage: 5,
            unknown_version: 6,
            resets_sent: 8,
            kernel_drops: 4,
            under_load: true,
            fault: "address in use".into(),
            ..Listener::default()
        };
        let mut out = Vec::new();
        write(&listener, &mut out).expect("writes");
        let expected = "quic [::]:179, under load\n  Fault: address in use\n  \
                        Passed: 7, of those 3 let in, 2 failed, 1 under way, 1 refused after proof\n  \
                        No attempt: 5 garbage, 6 of an unknown version; 8 resets sent\n  \
                        Stage    Seen  Passed  Ignored  Refused  Retried  Accepted\n  \
                        kernel                       4\n  \
                        sources    12      10        2        0        0         0\n\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        let value = to_json(&listener);
        assert_eq!((&value["protocol"], &value["stages"][0]["ignored"]), (&json!("quic"), &json!(2)));
        assert_eq!(value["kernelDrops"], 4);
        let counts =
            ["passed", "let_in", "failed", "under_way", "refused_after_proof"].map(|key| &value[key]);
        assert_eq!(counts, [7, 3, 2, 1, 1]);
        assert_eq!(value["no_attempt"], json!({ "garbage": 5, "unknown_version": 6, "resets_sent": 8 }));
        let tcp = to_json(&Listener { protocol: Protocol::Tcp.into(), ..listener });
        assert_eq!(tcp["no_attempt"], Value::Null);
        assert_eq!((&value["address"], &value["fault"]), (&json!("::"), &json!("address in use")));
    }
}
