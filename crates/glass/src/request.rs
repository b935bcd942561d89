//! What is asked for: the paths of birdwatcher.

use std::net::IpAddr;

use holdfast_api::bgp::v1::NeighborView;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Status,
    Protocols,
    ProtocolsShort,
    Symbols,
    SymbolTables,
    SymbolProtocols,
    /// Routes of a peer, by name or address.
    Neighbor(String, NeighborView),
    NeighborCount(String, Counted),
    /// The table, or that of one family: what import policy took, or what it did not; of one peer or all.
    Table {
        afi: u32,
        filtered: bool,
        peer: String,
    },
    TableCount {
        afi: u32,
    },
    /// The whole table, both parts.
    Dump,
    /// A prefix, or the longest match of an address.
    Route(String),
    /// Between tables; there is but one.
    Pipe,
    PipeCount,
}

/// Which of a peer's routes are counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Accepted,
    Best,
    Filtered,
    Exported,
}

/// What a question costs `bgp`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// As good as nothing: the answer serves for all who ask.
    Nothing,
    /// All paths of a prefix, and all peers.
    LookUp,
    /// Walks over a table.
    Walks(u32),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// No such path.
    Unknown,
    /// A part of it makes no sense.
    Value(String),
}

impl Request {
    /// Reads the path and the query of a URL.
    pub(crate) fn parse(path: &str, query: &str) -> Result<Self, Wrong> {
        let parts: Vec<String> = path
            .split('/')
            .skip(1)
            .map(decode)
            .collect::<Option<_>>()
            .ok_or_else(|| Wrong::Value("the path is no text".to_owned()))?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        let neighbor = |name: &str, view| Ok(Self::Neighbor(named(name), view));
        let count = |name: &str, counted| Ok(Self::NeighborCount(named(name), counted));
        match parts.as_slice() {
            ["status"] => Ok(Self::Status),
            ["protocols"] | ["protocols", "bgp"] => Ok(Self::Protocols),
            ["protocols", "short"] => Ok(Self::ProtocolsShort),
            ["symbols"] => Ok(Self::Symbols),
            ["symbols", "tables"] => Ok(Self::SymbolTables),
            ["symbols", "protocols"] => Ok(Self::SymbolProtocols),
            ["routes", "protocol", name] => neighbor(name, NeighborView::Accepted),
            ["routes", "peer", place] => neighbor(place, NeighborView::Accepted),
            ["routes", "filtered", name] => neighbor(name, NeighborView::Filtered),
            ["routes", "export", name] => neighbor(name, NeighborView::Advertised),
            ["routes", "noexport", name] => neighbor(name, NeighborView::Withheld),
            ["routes", "count", "protocol", name] => count(name, Counted::Accepted),
            ["routes", "count", "primary", name] => count(name, Counted::Best),
            ["routes", "count", "filtered", name] => count(name, Counted::Filtered),
            ["routes", "count", "export", name] => count(name, Counted::Exported),
            ["routes", "count", "table", table] => Ok(Self::TableCount { afi: afi(table)? }),
            ["routes", "table", table] => table_of(table, false, ""),
            ["routes", "table", table, "filtered"] => table_of(table, true, ""),
            ["routes", "table", table, "peer", place] => table_of(table, false, &named(place)),
            ["routes", "dump"] => Ok(Self::Dump),
            ["routes", "prefix"] => Ok(Self::Route(destination(&parameter(query, "prefix")?)?)),
            ["routes", "pipe", "filtered"] => Ok(Self::Pipe),
            ["routes", "pipe", "filtered", "count"] => Ok(Self::PipeCount),
            ["route", "net", net] | ["route", "net", net, "table", _] => Ok(Self::Route(destination(net)?)),
            ["route", "net", net, "mask", mask] | ["route", "net", net, "mask", mask, "table", _] => {
                Ok(Self::Route(destination(&format!("{net}/{mask}"))?))
            }
            _ => Err(Wrong::Unknown),
        }
    }

    /// What it costs `bgp`.
    pub(crate) fn cost(&self) -> Cost {
        match self {
            Self::Neighbor(..) | Self::Table { .. } => Cost::Walks(1),
            Self::Dump => Cost::Walks(2),
            Self::Route(_) => Cost::LookUp,
            Self::Status
            | Self::Protocols
            | Self::ProtocolsShort
            | Self::Symbols
            | Self::SymbolTables
            | Self::SymbolProtocols
            | Self::NeighborCount(..)
            | Self::TableCount { .. }
            | Self::Pipe
            | Self::PipeCount => Cost::Nothing,
        }
    }
}

fn table_of(table: &str, filtered: bool, peer: &str) -> Result<Request, Wrong> {
    Ok(Request::Table { afi: afi(table)?, filtered, peer: peer.to_owned() })
}

/// BIRD's names of its first tables.
fn afi(table: &str) -> Result<u32, Wrong> {
    match table {
        "master" => Ok(0),
        "master4" => Ok(1),
        "master6" => Ok(2),
        _ => Err(Wrong::Value(format!("there is no table {table:?}"))),
    }
}

/// A peer's name or interface, or its address as it is written everywhere: one on a link has the interface behind it.
fn named(text: &str) -> String {
    let (address, interface) =
        text.split_once('%').map_or((text, None), |(address, interface)| (address, Some(interface)));
    match (address.parse::<IpAddr>(), interface) {
        (Ok(address), None) => address.to_string(),
        (Ok(address), Some(interface)) => format!("{address}%{interface}"),
        (Err(_), _) => text.to_owned(),
    }
}

/// An address, or one with the length of a prefix behind it.
fn destination(text: &str) -> Result<String, Wrong> {
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let is_length = |length: &str| length.parse::<u8>().is_ok_and(|length| length <= 128);
    match address.parse::<IpAddr>().is_ok() && length.is_none_or(is_length) {
        true => Ok(text.to_owned()),
        false => Err(Wrong::Value(format!("{text:?} is neither a prefix nor an address"))),
    }
}

fn parameter(query: &str, name: &str) -> Result<String, Wrong> {
    let missing = || Wrong::Value(format!("`{name}` is needed, once"));
    let mut values = query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == name);
    match (values.next(), values.next()) {
        (Some((_, value)), None) => decode(value).ok_or_else(missing),
        _ => Err(missing()),
    }
}

/// Percent-encoded octets as text (RFC 3986 section 2.1).
fn decode(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'%' => {
                let digit = |octet: u8| char::from(octet).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                (high << 4 | low) as u8
            }
            octet => octet,
        });
    }
    String::from_utf8(octets).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_the_manual_is_read() {
        let page = include_str!("../../../docs/manual/glass.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `/"));
        let paths =
            rows.filter_map(|row| row.split(" | ").next()).flat_map(|cell| cell.split('`').step_by(2));
        let mut read = 0;
        for path in paths.filter(|path| !path.trim_matches([',', ' ']).is_empty()) {
            let words = [
                ("NAME", "x"),
                ("TABLE", "master4"),
                ("ADDRESS", "10.0.0.2"),
                ("LENGTH", "24"),
                ("=P", "=10.0.0.0/8"),
            ];
            let path = words.iter().fold(path.to_owned(), |path, (word, value)| path.replace(word, value));
            let path = format!("/{}", path.trim_start_matches('/'));
            let (path, query) = path.split_once('?').unwrap_or((&path, ""));
            Request::parse(path, query).unwrap_or_else(|wrong| panic!("{path}: {wrong:?}"));
            read += 1;
        }
        assert_eq!(read, 26);
    }

    #[test]
    fn paths_of_birdwatcher_are_read() {
        let table = [
            ("/status", "", Request::Status),
            ("/protocols/bgp", "", Request::Protocols),
            ("/protocols/short", "uncached=true", Request::ProtocolsShort),
            ("/routes/protocol/transit-1", "", Request::Neighbor("transit-1".into(), NeighborView::Accepted)),
            ("/routes/filtered/a%2Db", "", Request::Neighbor("a-b".into(), NeighborView::Filtered)),
            (
                "/routes/noexport/2001:DB8::1",
                "",
                Request::Neighbor("2001:db8::1".into(), NeighborView::Withheld),
            ),
            ("/routes/noexport/a", "", Request::Neighbor("a".into(), NeighborView::Withheld)),
            ("/routes/peer/2001:DB8::1", "", Request::Neighbor("2001:db8::1".into(), NeighborView::Accepted)),
            (
                "/routes/peer/FE80::2%25eth1",
                "",
                Request::Neighbor("fe80::2%eth1".into(), NeighborView::Accepted),
            ),
            ("/routes/peer/eth1", "", Request::Neighbor("eth1".into(), NeighborView::Accepted)),
            (
                "/routes/table/master/peer/fe80::2%25eth1",
                "",
                Request::Table { afi: 0, filtered: false, peer: "fe80::2%eth1".into() },
            ),
            ("/routes/count/primary/a", "", Request::NeighborCount("a".into(), Counted::Best)),
            (
                "/routes/table/master6/filtered",
                "",
                Request::Table { afi: 2, filtered: true, peer: String::new() },
            ),
            ("/routes/prefix", "prefix=192.0.2.0%2F24", Request::Route("192.0.2.0/24".into())),
            ("/route/net/192.0.2.1", "", Request::Route("192.0.2.1".into())),
            ("/route/net/192.0.2.0%2F24/table/master", "", Request::Route("192.0.2.0/24".into())),
            ("/route/net/192.0.2.0/mask/24", "", Request::Route("192.0.2.0/24".into())),
        ];
        for (path, query, expected) in table {
            assert_eq!(Request::parse(path, query), Ok(expected), "{path}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_says_why() {
        for path in ["/", "/routes", "/routes/protocol", "/config", "/routes/protocol/a/b"] {
            assert_eq!(Request::parse(path, ""), Err(Wrong::Unknown), "{path}");
        }
        for (path, query) in [
            ("/routes/table/other", ""),
            ("/routes/prefix", ""),
            ("/routes/prefix", "prefix=10.0.0.0/8&prefix=10.0.0.0/9"),
            ("/routes/prefix", "prefix=10.0.0.0/129"),
            ("/routes/filtered/%f", ""),
            ("/routes/filtered/%ff", ""),
        ] {
            assert!(matches!(Request::parse(path, query), Err(Wrong::Value(_))), "{path}?{query}");
        }
    }
}
