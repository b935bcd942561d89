//! `show interfaces`.

use std::io::Write;

use holdfast_api::fea::v1::{Address, Empty, FeaClient, Interface};
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{Table, address},
};

pub(super) async fn show(router: &Router, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let fea: FeaClient = router.client("fea").await?;
    let interfaces = answer(fea.show_interfaces(Empty {})).await?.interfaces;
    if as_json {
        let all = interfaces.iter().map(|interface| (interface.name.clone(), to_json(interface)));
        line(out, &Value::Object(all.collect()))?;
        return Ok(());
    }
    let mut table = Table::new(&["Interface", ">Index", "Admin", "Link", ">MTU", "MAC", "Addresses"]);
    for interface in &interfaces {
        table.row([
            interface.name.clone(),
            interface.index.to_string(),
            up_or_down(interface.up).to_owned(),
            up_or_down(interface.running).to_owned(),
            interface.mtu.to_string(),
            mac(&interface.mac),
            interface.addresses.iter().filter_map(with_length).collect::<Vec<_>>().join(" "),
        ]);
    }
    Ok(table.write(out)?)
}

fn to_json(interface: &Interface) -> Value {
    let addresses = interface.addresses.iter().filter_map(address_to_json);
    json!({
        "administrativeStatus": up_or_down(interface.up),
        "operationalStatus": up_or_down(interface.running),
        "index": interface.index,
        "mtu": interface.mtu,
        "hardwareAddress": mac(&interface.mac),
        "ipAddresses": addresses.collect::<Vec<_>>(),
    })
}

fn up_or_down(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

fn mac(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

/// As `ip address` shows it.
fn with_length(shown: &Address) -> Option<String> {
    let (own, length) = (address(&shown.address)?, shown.length);
    Some(match address(&shown.peer) {
        Some(peer) => format!("{own} peer {peer}/{length}"),
        None => format!("{own}/{length}"),
    })
}

fn address_to_json(shown: &Address) -> Option<Value> {
    let (own, length) = (address(&shown.address)?, shown.length);
    Some(match address(&shown.peer) {
        Some(peer) => json!({ "address": own, "peer": format!("{peer}/{length}") }),
        None => json!({ "address": format!("{own}/{length}") }),
    })
}
