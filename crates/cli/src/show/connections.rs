//! `show connections`.

use std::io::{self, Write};

use holdfast_api::transport::v1::{CarriedConnection, Connection, Empty, TransportClient};
use serde_json::{Value, json};

use super::listeners::protocol;
use crate::{
    Failure,
    json::line,
    router::{OLD_TRANSPORT, Router, answer},
    text::{address, or_dash, size, socket, time},
};

pub(super) async fn show(
    router: &Router,
    peer: Option<String>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut connections = Vec::new();
    for process in ["transport", OLD_TRANSPORT] {
        let transport: TransportClient = match router.client(process).await {
            Ok(transport) => transport,
            // Mostly there is none.
            Err(Failure::NotRunning { .. }) if process == OLD_TRANSPORT => continue,
            Err(failure) => return Err(failure),
        };
        let mut shown = transport.show_connections(Empty {});
        while let Some(carried) = answer(shown.next()).await? {
            let connection = carried.connection.clone().unwrap_or_default();
            if peer.as_ref().is_none_or(|peer| *peer == connection.peer) {
                connections.push(Shown { process, carried, connection });
            }
        }
    }
    if as_json {
        let all = connections.iter().map(to_json);
        return Ok(line(out, &json!({ "connections": all.collect::<Vec<_>>() }))?);
    }
    if let (true, Some(peer)) = (connections.is_empty(), peer) {
        return Err(Failure::NothingFound(format!("no connection of `{peer}` is carried over TLS or QUIC")));
    }
    Ok(connections.iter().try_for_each(|shown| write(shown, out))?)
}

/// A connection, and who carries it.
struct Shown {
    process: &'static str,
    carried: CarriedConnection,
    connection: Connection,
}

fn to_json(Shown { process, carried, connection }: &Shown) -> Value {
    let text = |octets: &[u8]| address(octets).map(|address| address.to_string());
    json!({
        "peer": connection.peer,
        "protocol": protocol(connection.protocol()),
        "process": process,
        "number": carried.number,
        "hostLocal": text(&connection.local_address),
        "portLocal": connection.local_port,
        "hostForeign": text(&connection.remote_address),
        "portForeign": connection.remote_port,
        "hostForeignNow": text(&carried.address_now),
        "portForeignNow": carried.port_now,
        "establishedEpoch": carried.since_unix_seconds,
        "proof": connection.proof,
        "roundTripMicroseconds": carried.smoothed_rtt_us,
        "packetsLost": carried.lost_packets,
        "migrations": carried.migrations,
        "keyUpdates": carried.key_updates,
        "octetsReceived": carried.received,
        "octetsSent": carried.sent,
    })
}

fn write(Shown { process, carried, connection }: &Shown, out: &mut dyn Write) -> io::Result<()> {
    let since = time(carried.since_unix_seconds);
    let by = if *process == OLD_TRANSPORT { ", with the build before" } else { "" };
    writeln!(out, "{}, {}, since {since}{by}", connection.peer, protocol(connection.protocol()))?;
    let local = socket(&connection.local_address, connection.local_port);
    let remote = socket(&connection.remote_address, connection.remote_port);
    write!(out, "  Local {local}, remote {remote}")?;
    let now = socket(&carried.address_now, carried.port_now);
    if carried.port_now != 0 && now != remote {
        write!(out, ", which is at {now} now")?;
    }
    writeln!(out, "\n  Proof: {}", or_dash(&connection.proof))?;
    let (received, sent) = (size(carried.received), size(carried.sent));
    writeln!(out, "  Octets: {received} received, {sent} sent")?;
    let rtt = match carried.smoothed_rtt_us {
        0 => "not known".to_owned(),
        microseconds => format!("{:.1} ms", f64::from(microseconds) / 1000.0),
    };
    let CarriedConnection { lost_packets, migrations, key_updates, .. } = carried;
    writeln!(
        out,
        "  Round trip {rtt}, packets lost {lost_packets}, migrations {migrations}, key updates {key_updates}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_shown_with_its_proof_and_where_the_peer_is_now() {
        let connection = Connection {
            peer: "r2".into(),
            protocol: 3,
            remote_address: vec![10, 0, 1, 2],
            remote_port: 4000,
            local_address: vec![10, 0, 1, 1],
            local_port: 179,
            proof: "certificate CN=r2".into(),
            ..Connection::default()
        };
        let carried = CarriedConnection {
            number: 7,
            received: 2048,
            sent: 19,
            smoothed_rtt_us: 1300,
            migrations: 1,
            since_unix_seconds: 1_795_287_070,
            address_now: vec![10, 0, 1, 3],
            port_now: 4000,
            ..CarriedConnection::default()
        };
        let mut shown = Shown { process: "transport", carried, connection };
        let mut out = Vec::new();
        write(&shown, &mut out).expect("writes");
        let expected = "r2, quic, since 2026-11-21 18:51:10Z\n  \
                        Local 10.0.1.1:179, remote 10.0.1.2:4000, which is at 10.0.1.3:4000 now\n  \
                        Proof: certificate CN=r2\n  Octets: 2.0 KiB received, 19 B sent\n  \
                        Round trip 1.3 ms, packets lost 0, migrations 1, key updates 0\n\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        let value = to_json(&shown);
        assert_eq!((&value["hostForeignNow"], &value["protocol"]), (&json!("10.0.1.3"), &json!("quic")));
        shown.process = OLD_TRANSPORT;
        out.clear();
        write(&shown, &mut out).expect("writes");
        assert!(out.starts_with(b"r2, quic, since 2026-11-21 18:51:10Z, with the build before\n"));
    }
}
