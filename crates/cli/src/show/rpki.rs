//! `show rpki`: what RPKI caches say, and how they fare.

use std::{
    io::{self, Write},
    net::IpAddr,
};

use clap::Subcommand;
use holdfast_api::rpki::v1::{
    AsRequest, Aspa, Cache, CacheState, Empty, PrefixRequest, Records, RouterKey, RpkiClient, Vrps,
};
use holdfast_types::{Asn, Prefix};
use holdfast_xrl::ReplyStream;
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{self, Table},
};

/// What of RPKI to show.
#[derive(Clone, Debug, Subcommand)]
pub enum Rpki {
    /// The caches: whether they are connected and used, and what they hold.
    Caches,
    /// Validated ROA payloads: who may originate what.
    Vrps {
        /// Those that cover this prefix, and those in it; an address is a prefix as well.
        #[arg(value_parser = prefix)]
        prefix: Option<Prefix>,
    },
    /// Routers' keys for BGPsec.
    Keys {
        /// Only of this AS.
        asn: Option<Asn>,
    },
    /// Provider authorizations.
    Aspa {
        /// Only of this AS.
        asn: Option<Asn>,
    },
}

pub(super) async fn show(
    what: Rpki,
    router: &Router,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let rpki: RpkiClient = router.client("rpki").await?;
    match what {
        Rpki::Caches => {
            let mut stream = rpki.show_caches(Empty {});
            let mut caches = Vec::new();
            while let Some(cache) = answer(stream.next()).await? {
                caches.push(cache);
            }
            match as_json {
                true => line(out, &json!({ "caches": caches.iter().map(cache_json).collect::<Vec<_>>() }))?,
                false => write_caches(&caches, out)?,
            }
            Ok(())
        }
        Rpki::Vrps { prefix } => {
            list(rpki.show_vrps(prefix.map(request).unwrap_or_default()), &VRPS, as_json, out).await
        }
        Rpki::Keys { asn } => {
            let request = AsRequest { asn: asn.map(|asn| asn.0) };
            list(rpki.show_keys(request), &KEYS, as_json, out).await
        }
        Rpki::Aspa { asn } => {
            let request = AsRequest { asn: asn.map(|asn| asn.0) };
            list(rpki.show_aspas(request), &ASPAS, as_json, out).await
        }
    }
}

fn prefix(text: &str) -> Result<Prefix, String> {
    let host = text.parse::<IpAddr>().map(Prefix::host);
    host.or_else(|_| text.parse()).map_err(|_| format!("`{text}` is neither a prefix nor an address"))
}

fn request(prefix: Prefix) -> PrefixRequest {
    let address = match prefix.address() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    PrefixRequest { address, length: prefix.length().into() }
}

/// A kind of records: how each is shown.
struct Kind {
    /// Member of the JSON, and what there are none of.
    name: &'static str,
    title: &'static str,
    rows: fn(&Records) -> Vec<(Value, String)>,
}

const VRPS: Kind = Kind {
    name: "prefixes",
    title: "Prefix                                       Max  AS",
    rows: |records| {
        let families = [(&records.ipv4, 4), (&records.ipv6, 16)];
        families
            .into_iter()
            .filter_map(|(vrps, octets)| Some(vrps_of(vrps.as_ref()?, octets)))
            .flatten()
            .collect()
    },
};

const KEYS: Kind = Kind {
    name: "keys",
    title: "AS          Subject key identifier",
    rows: |records| records.router_keys.iter().map(key_row).collect(),
};

const ASPAS: Kind = Kind {
    name: "aspas",
    title: "AS          Providers",
    rows: |records| records.aspas.iter().map(aspa_row).collect(),
};

/// Writes records as they come: there may be a million.
async fn list(
    mut stream: ReplyStream<Records>,
    kind: &Kind,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut count = 0_usize;
    match as_json {
        true => write!(out, "{{\"{}\":[", kind.name)?,
        false => writeln!(out, "{}", kind.title)?,
    }
    while let Some(records) = answer(stream.next()).await? {
        for (value, text) in (kind.rows)(&records) {
            match as_json {
                true => write!(out, "{}\n{value}", if count == 0 { "" } else { "," })?,
                false => writeln!(out, "{text}")?,
            }
            count += 1;
        }
    }
    match as_json {
        true => writeln!(out, "\n]}}")?,
        false => writeln!(out, "\n{count} {}", kind.name)?,
    }
    Ok(())
}

fn vrps_of(vrps: &Vrps, octets: usize) -> Vec<(Value, String)> {
    let rows = vrps.addresses.chunks_exact(octets).zip(&vrps.lengths).zip(&vrps.max_lengths).zip(&vrps.asns);
    let row = |(((address, length), max_length), asn): (((&[u8], &u8), &u8), &u32)| {
        let prefix = format!("{}/{length}", text::address(address)?);
        let value = json!({
            "prefix": prefix, "prefixLenMin": length, "prefixLenMax": max_length, "asn": asn,
        });
        Some((value, format!("{prefix:<43} {max_length:>4}  {asn}")))
    };
    rows.filter_map(row).collect()
}

fn key_row(key: &RouterKey) -> (Value, String) {
    let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02X}")).collect::<String>();
    let value = json!({ "asn": key.asn, "ski": hex(&key.ski), "publicKey": hex(&key.spki) });
    (value, format!("{:<11} {}", key.asn, hex(&key.ski)))
}

fn aspa_row(aspa: &Aspa) -> (Value, String) {
    let providers = aspa.providers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    (
        json!({ "customerAsn": aspa.customer, "providers": aspa.providers }),
        format!("{:<11} {providers}", aspa.customer),
    )
}

fn state(cache: &Cache) -> &'static str {
    match cache.state() {
        CacheState::Unspecified => "unknown",
        CacheState::Down => "down",
        CacheState::Connecting => "connecting",
        CacheState::Syncing => "syncing",
        CacheState::Established => "established",
        CacheState::Waiting => "has no data",
    }
}

fn cache_json(cache: &Cache) -> Value {
    let mut value = json!({
        "name": cache.name,
        "preference": cache.preference,
        "state": state(cache),
        "used": cache.used,
        "ipv4PrefixCount": cache.vrps_ipv4,
        "ipv6PrefixCount": cache.vrps_ipv6,
        "aspaCount": cache.aspas,
        "routerKeyCount": cache.router_keys,
        "refreshSeconds": cache.refresh_seconds,
        "retrySeconds": cache.retry_seconds,
        "expireSeconds": cache.expire_seconds,
        "resets": cache.resets,
        "reconnects": cache.reconnects,
    });
    let numbers = [
        ("version", cache.version),
        ("sessionId", cache.version.map(|_| cache.session_id)),
        ("serial", cache.serial),
        ("updatedSecondsAgo", cache.updated_seconds_ago),
        ("expiresInSeconds", cache.expires_in_seconds),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            value[key] = number.into();
        }
    }
    for (key, text) in [("lastError", &cache.last_error), ("proof", &cache.proof)] {
        if !text.is_empty() {
            value[key] = text.as_str().into();
        }
    }
    value
}

fn write_caches(caches: &[Cache], out: &mut dyn Write) -> io::Result<()> {
    let titles = [
        "",
        "Cache",
        ">Preference",
        "State",
        ">Version",
        ">Session",
        ">Serial",
        ">IPv4",
        ">IPv6",
        ">ASPAs",
        ">Keys",
        ">Updated",
        ">Expires",
    ];
    writeln!(out, "* used\n")?;
    let mut table = Table::new(&titles);
    for cache in caches {
        let or = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
        let time = |seconds: Option<u32>| {
            seconds.map_or("-".to_owned(), |seconds| text::uptime(u64::from(seconds) * 1000 + 1))
        };
        table.row([
            if cache.used { "*" } else { "" }.to_owned(),
            cache.name.clone(),
            cache.preference.to_string(),
            state(cache).to_owned(),
            or(cache.version),
            or(cache.version.map(|_| cache.session_id)),
            or(cache.serial),
            cache.vrps_ipv4.to_string(),
            cache.vrps_ipv6.to_string(),
            cache.aspas.to_string(),
            cache.router_keys.to_string(),
            time(cache.updated_seconds_ago),
            time(cache.expires_in_seconds),
        ]);
    }
    table.write(out)?;
    for cache in caches {
        if !cache.proof.is_empty() {
            writeln!(out, "\n{}: {}", cache.name, cache.proof)?;
        }
        if !cache.last_error.is_empty() {
            writeln!(out, "\n{}: {}", cache.name, cache.last_error)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Records {
        let ipv4 = Vrps {
            addresses: vec![192, 0, 2, 0, 198, 51, 100, 0],
            lengths: vec![24, 22],
            max_lengths: vec![24, 24],
            asns: vec![64496, 0],
        };
        let aspa = Aspa { customer: 64496, providers: vec![64497, 64498] };
        let key = RouterKey { asn: 64496, ski: vec![0xab; 20], spki: vec![0x30] };
        Records { ipv4: Some(ipv4), ipv6: None, aspas: vec![aspa], router_keys: vec![key] }
    }

    #[test]
    fn each_kind_has_its_rows() {
        let texts = |kind: &Kind| {
            let rows = (kind.rows)(&records()).into_iter();
            rows.map(|(_, text)| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(texts(&VRPS), ["192.0.2.0/24 24 64496", "198.51.100.0/22 24 0"]);
        assert_eq!(texts(&ASPAS), ["64496 64497 64498"]);
        assert_eq!(texts(&KEYS), [format!("64496 {}", "AB".repeat(20))]);
        let (value, _) = &(VRPS.rows)(&records())[1];
        let expected =
            json!({ "prefix": "198.51.100.0/22", "prefixLenMin": 22, "prefixLenMax": 24, "asn": 0 });
        assert_eq!(*value, expected);
    }

    #[test]
    fn a_cache_without_data_says_why() {
        let cache = Cache {
            name: "a".into(),
            preference: 10,
            state: CacheState::Down.into(),
            last_error: "connection refused".into(),
            ..Cache::default()
        };
        let mut out = Vec::new();
        write_caches(std::slice::from_ref(&cache), &mut out).expect("writes");
        let text = String::from_utf8_lossy(&out).into_owned();
        assert!(text.contains("down") && text.ends_with("\na: connection refused\n"), "{text}");
        let value = cache_json(&cache);
        assert_eq!((&value["state"], &value["lastError"]), (&json!("down"), &json!("connection refused")));
        assert_eq!(value.get("version"), None, "nothing is negotiated");
    }

    #[test]
    fn an_address_is_a_prefix_as_well() {
        let asked = |text| prefix(text).map(request).map(|asked| (asked.address.len(), asked.length));
        assert_eq!(asked("192.0.2.1"), Ok((4, 32)));
        assert_eq!(asked("2001:db8::/32"), Ok((16, 32)));
        assert!(asked("192.0.2.0/33").is_err());
    }
}
