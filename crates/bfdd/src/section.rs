//! `[bfd]`: what it may say, and how it arrives.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use holdfast_bfd::{Algorithm, BadKey, Key, Profile, UsedKey};
use holdfast_config::describe::{Default, Effect::Reload, Table, Type, key, tables};
use serde::Deserialize;
use serde_json::{Map, Value};

const TRUE: Default = Default::Is("true");
const FALSE: Default = Default::Is("false");
const INTERVAL: Type = Type::Number(10, 60_000);

/// The name of the process.
pub(crate) const NAME: &str = "bfd";
/// The profile of sessions for which none is named.
const DEFAULT: &str = "default";
/// Octets of the longest name: the state of a session that outlives the process has that much room.
pub(crate) const LONGEST_NAME: usize = 64;
/// The most sessions of a table that can be configured.
pub(crate) const MOST_SESSIONS: usize = 16_384;

pub(crate) static SECTION: Table = Table {
    doc: "Bidirectional Forwarding Detection: see [bfd](bfd.md).",
    keys: &[
        key(
            "max-sessions",
            Type::Number(1, MOST_SESSIONS as u64),
            Default::Is("4096"),
            Reload,
            "most sessions of a table; further ones stay down",
        ),
        tables("profile", &PROFILE, "name"),
    ],
};

static PROFILE: Table = Table {
    doc: "How sessions behave that name it. That of the name `default` is for sessions that name none.",
    keys: &[
        key("name", Type::Text("1 to 64 octets", "fast"), Default::Required, Reload, "its name"),
        key(
            "transmit-interval",
            INTERVAL,
            Default::Is("300"),
            Reload,
            "milliseconds between two packets that are sent, if the neighbour can receive as many",
        ),
        key(
            "receive-interval",
            INTERVAL,
            Default::Is("300"),
            Reload,
            "milliseconds between two packets of the neighbour: it is asked to send no more often",
        ),
        key(
            "detect-multiplier",
            Type::Number(1, 255),
            Default::Is("3"),
            Reload,
            "so many packets in a row that are lost are a failure, for the neighbour",
        ),
        key("passive", Type::Bool, FALSE, Reload, "nothing is sent before the neighbour has sent something"),
        key(
            "minimum-ttl",
            Type::Number(1, 255),
            Default::Is("254"),
            Reload,
            "the least TTL of packets over several hops; over one it is 255 always",
        ),
        tables("key", &KEY, "id"),
    ],
};

static KEY: Table = Table {
    doc: "A key that authenticates packets (RFC 5880 section 6.7).",
    keys: &[
        key("id", Type::Number(0, 255), Default::Required, Reload, "its number, which packets name"),
        key(
            "algorithm",
            Type::Word(&["meticulous-keyed-sha1", "keyed-sha1", "meticulous-keyed-md5", "keyed-md5"]),
            Default::Is("\"meticulous-keyed-sha1\""),
            Reload,
            "how digests are made; of MD5 for neighbours that know nothing better",
        ),
        key(
            "secret",
            Type::Secret("1 octet or more; at most 20 for SHA1, 16 for MD5", "secret"),
            Default::Required,
            Reload,
            "the secret",
        ),
        key("send", Type::Bool, TRUE, Reload, "packets are signed with it, if it is the first such key"),
        key("accept", Type::Bool, TRUE, Reload, "packets that are signed with it are accepted"),
    ],
};

/// The section.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Settings {
    pub(crate) max_sessions: usize,
    #[serde(default)]
    profile: Vec<ProfileTable>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ProfileTable {
    name: String,
    transmit_interval: u64,
    receive_interval: u64,
    detect_multiplier: u8,
    passive: bool,
    minimum_ttl: u8,
    #[serde(default)]
    key: Vec<KeyTable>,
}

#[derive(Clone, Deserialize)]
struct KeyTable {
    id: u8,
    algorithm: AlgorithmWord,
    secret: String,
    send: bool,
    accept: bool,
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AlgorithmWord {
    MeticulousKeyedSha1,
    KeyedSha1,
    MeticulousKeyedMd5,
    KeyedMd5,
}

impl From<AlgorithmWord> for Algorithm {
    fn from(word: AlgorithmWord) -> Self {
        match word {
            AlgorithmWord::MeticulousKeyedSha1 => Self::MeticulousKeyedSha1,
            AlgorithmWord::KeyedSha1 => Self::KeyedSha1,
            AlgorithmWord::MeticulousKeyedMd5 => Self::MeticulousKeyedMd5,
            AlgorithmWord::KeyedMd5 => Self::KeyedMd5,
        }
    }
}

/// Profiles by name.
#[derive(Clone, Debug)]
pub(crate) struct Profiles(BTreeMap<String, Rc<Profile>>);

impl Profiles {
    /// The one of this name, or of none.
    pub(crate) fn named(&self, name: &str) -> Option<Rc<Profile>> {
        self.0.get(if name.is_empty() { DEFAULT } else { name }).cloned()
    }
}

/// What the rows cannot check.
pub(crate) fn check(values: &Map<String, Value>) -> Result<(), String> {
    let settings: Settings =
        serde_json::from_value(Value::Object(values.clone())).map_err(|error| error.to_string())?;
    settings.profiles().map(|_| ())
}

impl Settings {
    /// Its profiles. `default` is among them always.
    ///
    /// # Errors
    /// Which cannot be used, and why.
    pub(crate) fn profiles(&self) -> Result<Profiles, String> {
        let read = |table: &ProfileTable| {
            let profile = table.read().map_err(|error| format!("profile `{}`: {error}", table.name))?;
            Ok((table.name.clone(), Rc::new(profile)))
        };
        let mut profiles: BTreeMap<_, _> = self.profile.iter().map(read).collect::<Result<_, String>>()?;
        profiles.entry(DEFAULT.to_owned()).or_default();
        Ok(Profiles(profiles))
    }
}

impl ProfileTable {
    fn read(&self) -> Result<Profile, String> {
        if self.name.is_empty() || self.name.len() > LONGEST_NAME {
            return Err(format!("its name has {} octets, and may have 1 to {LONGEST_NAME}", self.name.len()));
        }
        let keys = self.key.iter().map(KeyTable::read).collect::<Result<Vec<_>, _>>();
        let keys = keys.map_err(|(id, error)| format!("key {id}: {error}"))?;
        if !keys.is_empty() && !keys.iter().any(|key| key.send) {
            return Err("no key is for sending".to_owned());
        }
        if !keys.is_empty() && !keys.iter().any(|key| key.accept) {
            return Err("no key is accepted".to_owned());
        }
        Ok(Profile {
            transmit_interval: Duration::from_millis(self.transmit_interval),
            receive_interval: Duration::from_millis(self.receive_interval),
            detect_multiplier: self.detect_multiplier,
            passive: self.passive,
            minimum_ttl: self.minimum_ttl,
            keys,
        })
    }
}

impl KeyTable {
    fn read(&self) -> Result<UsedKey, (u8, BadKey)> {
        let key = Key::new(self.id, self.algorithm.into(), self.secret.as_bytes());
        let key = key.map_err(|error| (self.id, error))?;
        Ok(UsedKey { key, send: self.send, accept: self.accept })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(key: Value) -> Option<String> {
        let profile = json!([{
            "name": "fast", "transmit-interval": 50, "receive-interval": 60, "detect-multiplier": 5,
            "passive": true, "minimum-ttl": 250, "key": key,
        }]);
        let values = json!({ "max-sessions": 3, "profile": profile });
        check(values.as_object().expect("an object")).err()
    }

    fn key(algorithm: &str, secret: &str, send: bool, accept: bool) -> Value {
        json!([{ "id": 7, "algorithm": algorithm, "secret": secret, "send": send, "accept": accept }])
    }

    #[test]
    fn keys_that_cannot_be_used_are_refused_with_their_profile() {
        assert_eq!(wrong(json!([])), None);
        assert_eq!(
            wrong(key("keyed-sha1", "twenty octets are all", true, true)).as_deref(),
            Some("profile `fast`: key 7: the secret has 21 octets, and may have 20")
        );
        assert_eq!(wrong(key("keyed-sha1", "twenty octets are ok", true, true)), None);
        assert!(wrong(key("keyed-md5", "seventeen octets!", true, true)).is_some());
        assert!(wrong(key("keyed-md5", "s", false, true)).is_some_and(|wrong| wrong.contains("sending")));
        assert!(wrong(key("keyed-md5", "s", true, false)).is_some_and(|wrong| wrong.contains("accepted")));
    }

    #[test]
    fn a_session_that_names_no_profile_has_the_default_one() {
        let settings = |profiles: Value| -> Settings {
            serde_json::from_value(json!({ "max-sessions": 1, "profile": profiles })).expect("settings")
        };
        let profiles = settings(json!([])).profiles().expect("profiles");
        assert_eq!(profiles.named("").as_deref(), Some(&Profile::default()));
        assert_eq!(profiles.named("fast"), None);
        let own = json!([{
            "name": "default", "transmit-interval": 50, "receive-interval": 60, "detect-multiplier": 5,
            "passive": false, "minimum-ttl": 254,
        }]);
        let profiles = settings(own).profiles().expect("profiles");
        assert_eq!(profiles.named("").map(|profile| profile.detect_multiplier), Some(5));
        assert_eq!(profiles.named("default"), profiles.named(""));
    }
}
