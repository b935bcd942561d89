//! `[rip]`: what it may say, and how it arrives.

use std::collections::BTreeMap;

use holdfast_config::describe::{Default, Effect::Reload, Form, Table, Type, key, tables};
use holdfast_policy::{Library, Program};
use holdfast_rip::{Metric, SplitHorizon};
use holdfast_rip_wire::{Algorithm, BadKey, Credentials, Key, Password};
use serde::Deserialize;
use serde_json::{Map, Value};

const POLICY: Type = Type::Name("policy", &["accept-all", "reject-all"]);
const VRF: Type = Type::Name("vrf", &[]);
const SECONDS: Type = Type::Number(1, 65535);
const HOPS: Type = Type::Number(1, 15);
const TRUE: Default = Default::Is("true");
const FALSE: Default = Default::Is("false");

/// The name of the process, and of its routes.
pub(crate) const NAME: &str = "rip";

pub(crate) static SECTION: Table = Table {
    doc: "RIPv2 and RIPng: see [rip](rip.md).",
    keys: &[
        key(
            "families",
            Type::List(&Type::Word(&["ipv4", "ipv6"])),
            Default::Is("[\"ipv4\", \"ipv6\"]"),
            Reload,
            "`\"ipv4\"`: RIPv2; `\"ipv6\"`: RIPng",
        ),
        key("update", SECONDS, Default::Is("30"), Reload, "seconds between two regular updates"),
        key(
            "timeout",
            SECONDS,
            Default::Is("180"),
            Reload,
            "seconds after which a route is lost that is not repeated",
        ),
        key(
            "garbage",
            SECONDS,
            Default::Is("120"),
            Reload,
            "seconds for which a lost route is advertised as unreachable",
        ),
        key(
            "max-routes",
            Type::Number(1, 1_000_000),
            Default::Is("100000"),
            Reload,
            "most destinations of a family in a table; further ones are ignored",
        ),
        key(
            "metric",
            HOPS,
            Default::Is("1"),
            Reload,
            "metric of redistributed routes whose policy sets none",
        ),
        tables("interface", &INTERFACE, "name"),
        tables("redistribute", &REDISTRIBUTE, "from"),
    ],
};

static INTERFACE: Table = Table {
    doc: "An interface where RIP is spoken; its networks are advertised.",
    keys: &[
        key("name", Type::Form(Form::Interface), Default::Required, Reload, "its name"),
        key("vrf", VRF, Default::Else("none"), Reload, "the VRF that it is in"),
        key(
            "cost",
            HOPS,
            Default::Is("1"),
            Reload,
            "what it adds to the metric of routes that are received there",
        ),
        key("passive", Type::Bool, FALSE, Reload, "RIP listens there, and sends nothing"),
        key(
            "split-horizon",
            Type::Word(&["poisoned-reverse", "simple", "off"]),
            Default::Is("\"poisoned-reverse\""),
            Reload,
            "how a route is advertised where it was learned: as unreachable, not at all, or as elsewhere",
        ),
        key(
            "import",
            POLICY,
            Default::Else("none"),
            Reload,
            "policy for routes that are received there; without one all are used",
        ),
        key(
            "export",
            POLICY,
            Default::Else("none"),
            Reload,
            "policy for routes that are advertised there; without one all are",
        ),
        key(
            "password",
            Type::Secret("1 to 16 octets", "secret"),
            Default::Else("none"),
            Reload,
            "password in clear text (RFC 2453 section 4.1), for RIPv2",
        ),
        tables("key", &KEY, "id"),
    ],
};

static KEY: Table = Table {
    doc: "A key of RIPv2 on an interface (RFC 4822).",
    keys: &[
        key("id", Type::Number(0, 255), Default::Required, Reload, "its number, which messages name"),
        key(
            "algorithm",
            Type::Word(&["keyed-md5", "hmac-sha-1", "hmac-sha-256", "hmac-sha-384", "hmac-sha-512"]),
            Default::Is("\"hmac-sha-256\""),
            Reload,
            "how digests are made",
        ),
        key(
            "secret",
            Type::Secret("1 octet or more; at most 16 for `keyed-md5`", "secret"),
            Default::Required,
            Reload,
            "the secret",
        ),
        key("send", Type::Bool, TRUE, Reload, "messages are signed with it, if it is the first such key"),
        key("accept", Type::Bool, TRUE, Reload, "messages that are signed with it are accepted"),
    ],
};

static REDISTRIBUTE: Table = Table {
    doc: "Another protocol whose selected routes are advertised.",
    keys: &[
        key(
            "from",
            Type::Name("protocol", &["bgp", "static", "connected"]),
            Default::Required,
            Reload,
            "the protocol",
        ),
        key("vrf", VRF, Default::Else("none"), Reload, "the VRF"),
        key(
            "policy",
            POLICY,
            Default::Required,
            Reload,
            "what is advertised; it may set metric (`med`) and tag",
        ),
    ],
};

/// The section.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Settings {
    pub(crate) families: Vec<Family>,
    update: u16,
    timeout: u16,
    garbage: u16,
    max_routes: usize,
    metric: u32,
    #[serde(default)]
    interface: Vec<Interface>,
    #[serde(default)]
    redistribute: Vec<Redistribute>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

/// An interface, as it is configured.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Interface {
    pub(crate) name: String,
    vrf: Option<String>,
    cost: u32,
    pub(crate) passive: bool,
    split_horizon: SplitHorizonWord,
    import: Option<String>,
    export: Option<String>,
    password: Option<String>,
    #[serde(default)]
    key: Vec<KeyTable>,
}

#[derive(Copy, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SplitHorizonWord {
    PoisonedReverse,
    Simple,
    Off,
}

#[derive(Clone, PartialEq, Eq, Deserialize)]
struct KeyTable {
    id: u8,
    algorithm: AlgorithmWord,
    secret: String,
    send: bool,
    accept: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AlgorithmWord {
    KeyedMd5,
    #[serde(rename = "hmac-sha-1")]
    HmacSha1,
    #[serde(rename = "hmac-sha-256")]
    HmacSha256,
    #[serde(rename = "hmac-sha-384")]
    HmacSha384,
    #[serde(rename = "hmac-sha-512")]
    HmacSha512,
}

#[derive(Clone, Deserialize)]
struct Redistribute {
    from: String,
    vrf: Option<String>,
    policy: String,
}

/// What routes are judged by on an interface.
#[derive(Clone, Debug, std::default::Default)]
pub(crate) struct Filters {
    pub(crate) import: Option<Program>,
    pub(crate) export: Option<Program>,
}

/// What the section says of one table.
#[derive(Clone)]
pub(crate) struct OfTable {
    pub(crate) families: Vec<Family>,
    pub(crate) timers: holdfast_rip::Settings,
    pub(crate) metric: Metric,
    pub(crate) interfaces: Vec<(Interface, Filters)>,
    pub(crate) redistribute: BTreeMap<String, Program>,
}

/// What the rows cannot check.
pub(crate) fn check(values: &Map<String, Value>) -> Result<(), String> {
    let settings: Settings =
        serde_json::from_value(Value::Object(values.clone())).map_err(|e| e.to_string())?;
    if settings.timeout <= settings.update {
        return Err("`timeout` is not longer than `update`: every route would be lost between two".to_owned());
    }
    for interface in &settings.interface {
        interface.credentials().map_err(|error| format!("interface {}: {error}", interface.name))?;
    }
    match settings.redistribute.iter().any(|from| from.from == NAME) {
        true => Err("routes of RIP do not go into RIP".to_owned()),
        false => Ok(()),
    }
}

/// Why a section cannot be used that has the right form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong(String);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Settings {
    /// The VRFs that it names; `None` is the default table, which is always there.
    pub(crate) fn vrfs(&self) -> impl Iterator<Item = Option<String>> {
        let named = self.interface.iter().filter(|interface| interface.vrf.is_some());
        std::iter::once(None).chain(named.map(|interface| interface.vrf.clone()))
    }

    /// What it says of one table, with these policies.
    pub(crate) fn of_table(&self, vrf: Option<&str>, library: &Library) -> Result<OfTable, Wrong> {
        let program = |name: &String| {
            library.get(name).cloned().ok_or_else(|| Wrong(format!("there is no policy `{name}`")))
        };
        let optional = |name: &Option<String>| name.as_ref().map(program).transpose();
        let here = self.interface.iter().filter(|interface| interface.vrf.as_deref() == vrf);
        let interfaces = here.map(|interface| {
            let filters =
                Filters { import: optional(&interface.import)?, export: optional(&interface.export)? };
            Ok((interface.clone(), filters))
        });
        let redistribute = self.redistribute.iter().filter(|from| from.vrf.as_deref() == vrf);
        let redistribute = redistribute.map(|from| Ok((from.from.clone(), program(&from.policy)?)));
        let seconds = |value: u16| std::time::Duration::from_secs(value.into());
        Ok(OfTable {
            families: self.families.clone(),
            timers: holdfast_rip::Settings {
                update: seconds(self.update),
                timeout: seconds(self.timeout),
                garbage: seconds(self.garbage),
                max_routes: self.max_routes,
                ..holdfast_rip::Settings::default()
            },
            metric: Metric::new(self.metric).unwrap_or(Metric::ONE),
            interfaces: interfaces.collect::<Result<_, _>>()?,
            redistribute: redistribute.collect::<Result<_, _>>()?,
        })
    }
}

impl Interface {
    pub(crate) fn cost(&self) -> Metric {
        Metric::new(self.cost).unwrap_or(Metric::ONE)
    }

    pub(crate) fn split_horizon(&self) -> SplitHorizon {
        match self.split_horizon {
            SplitHorizonWord::PoisonedReverse => SplitHorizon::PoisonedReverse,
            SplitHorizonWord::Simple => SplitHorizon::Simple,
            SplitHorizonWord::Off => SplitHorizon::Off,
        }
    }

    /// What authenticates its messages of RIPv2.
    pub(crate) fn credentials(&self) -> Result<Option<Credentials>, String> {
        let wrong = |error: BadKey| error.to_string();
        if self.password.is_some() && !self.key.is_empty() {
            return Err("it has a password and keys".to_owned());
        }
        if let Some(password) = &self.password {
            return Password::new(password.as_bytes()).map(Credentials::Password).map(Some).map_err(wrong);
        }
        let keys = self.key.iter().map(KeyTable::key).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        if keys.is_empty() { Ok(None) } else { Credentials::keys(keys).map(Some).map_err(wrong) }
    }
}

impl KeyTable {
    fn key(&self) -> Result<Key, BadKey> {
        let algorithm = match self.algorithm {
            AlgorithmWord::KeyedMd5 => Algorithm::KeyedMd5,
            AlgorithmWord::HmacSha1 => Algorithm::HmacSha1,
            AlgorithmWord::HmacSha256 => Algorithm::HmacSha256,
            AlgorithmWord::HmacSha384 => Algorithm::HmacSha384,
            AlgorithmWord::HmacSha512 => Algorithm::HmacSha512,
        };
        Ok(Key::new(self.id, algorithm, self.secret.as_bytes())?.using(self.send, self.accept))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(interface: Value, redistribute: Value) -> Value {
        json!({
            "families": ["ipv4"], "update": 30, "timeout": 180, "garbage": 120, "max-routes": 10, "metric": 2,
            "interface": [interface], "redistribute": redistribute,
        })
    }

    fn interface(more: Value) -> Value {
        let mut interface = json!({
            "name": "eth1", "cost": 1, "passive": false, "split-horizon": "poisoned-reverse",
        });
        let (Value::Object(whole), Value::Object(more)) = (&mut interface, more) else { panic!("objects") };
        whole.extend(more);
        interface
    }

    fn key(algorithm: &str, secret: &str) -> Value {
        json!([{ "id": 1, "algorithm": algorithm, "secret": secret, "send": true, "accept": true }])
    }

    fn wrong(values: &Value) -> Option<String> {
        check(values.as_object().expect("an object")).err()
    }

    #[test]
    fn what_the_rows_cannot_check_is_refused_with_the_interface_and_the_reason() {
        let none = || json!([]);
        assert_eq!(wrong(&values(interface(json!({ "key": key("hmac-sha-256", "s") })), none())), None);
        let both = json!({ "password": "secret", "key": key("hmac-sha-256", "s") });
        let both = wrong(&values(interface(both), none()));
        assert_eq!(both.as_deref(), Some("interface eth1: it has a password and keys"));
        let long = json!({ "key": key("keyed-md5", "more than sixteen octets") });
        assert!(wrong(&values(interface(long), none())).is_some_and(|wrong| wrong.contains("16")));
        let itself = json!([{ "from": "rip", "policy": "accept-all" }]);
        let itself = wrong(&values(interface(json!({})), itself));
        assert_eq!(itself.as_deref(), Some("routes of RIP do not go into RIP"));
        let mut short = values(interface(json!({})), none());
        short["timeout"] = json!(30);
        assert!(wrong(&short).is_some_and(|wrong| wrong.contains("timeout")));
    }

    #[test]
    fn each_table_has_its_own_interfaces() {
        let settings = values(interface(json!({ "vrf": "blue" })), json!([]));
        let settings: Settings = serde_json::from_value(settings).expect("settings");
        assert_eq!(settings.vrfs().collect::<Vec<_>>(), [None, Some("blue".to_owned())]);
        let library = Library::compile(&holdfast_policy::PolicySource::default(), 0).expect("compiles");
        let of = |vrf| settings.of_table(vrf, &library).expect("a table").interfaces.len();
        assert_eq!((of(None), of(Some("blue"))), (0, 1));
    }
}
