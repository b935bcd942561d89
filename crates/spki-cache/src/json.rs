//! Records as relying parties write them: JSON of rpki-client, StayRTR, Routinator.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_rtr::Dataset;
use holdfast_rtr_wire::{LONGEST, MOST_PROVIDERS, Record};
use holdfast_types::{Asn, Aspa, Prefix, RouterKey, Vrp};
use serde::{Deserialize, Deserializer, de::Error};

/// Octets of a router's key beside its subjectPublicKeyInfo in its PDU.
const KEY_HEADER: usize = 32;

/// What of such a file is looked at. Other members are passed over, as are times: what has expired is for who writes the
/// file to leave out.
#[derive(Deserialize)]
struct File {
    #[serde(default, deserialize_with = "there")]
    roas: Option<Vec<Roa>>,
    #[serde(default, deserialize_with = "there")]
    bgpsec_keys: Option<Vec<Key>>,
    #[serde(default, deserialize_with = "there")]
    aspas: Option<Vec<Provided>>,
}

/// A member that is there is no `null`.
fn there<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct Roa {
    prefix: Text<Prefix>,
    asn: Number,
    #[serde(rename = "maxLength")]
    max_length: Option<u8>,
}

#[derive(Deserialize)]
struct Key {
    asn: Number,
    ski: Text<holdfast_types::Ski>,
    pubkey: String,
}

#[derive(Deserialize)]
struct Provided {
    #[serde(alias = "customer")]
    customer_asid: Number,
    providers: Vec<Number>,
}

/// `64496` or `"AS64496"`.
struct Number(Asn);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u32),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(number) => Ok(Self(Asn(number))),
            Form::Text(text) => {
                let digits = text.strip_prefix("AS").unwrap_or(&text);
                digits.parse().map(|number| Self(Asn(number))).map_err(D::Error::custom)
            }
        }
    }
}

/// Something that is a string here.
struct Text<T>(T);

impl<'de, T: std::str::FromStr<Err: std::fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

/// Reads a file; ASPAs of one customer are taken together.
///
/// # Errors
/// What is wrong with it, and where.
pub(crate) fn read(text: &[u8]) -> Result<Dataset, String> {
    let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    // An array would do for serde, member by member.
    let is_object = text.trim_ascii_start().starts_with(b"{");
    if !is_object || (file.roas.is_none() && file.bgpsec_keys.is_none() && file.aspas.is_none()) {
        return Err("it has none of `roas`, `bgpsec_keys` and `aspas`".to_owned());
    }
    let mut data = Dataset::default();
    for Roa { prefix, asn, max_length } in file.roas.into_iter().flatten() {
        let max_length = max_length.unwrap_or(prefix.0.length());
        let vrp = Vrp::new(prefix.0, max_length, asn.0).map_err(|error| error.to_string())?;
        data.insert(Record::Vrp(vrp));
    }
    for Key { asn, ski, pubkey } in file.bgpsec_keys.into_iter().flatten() {
        let spki =
            STANDARD.decode(&pubkey).map_err(|error| format!("the key {} is no base64: {error}", ski.0))?;
        if spki.len() > LONGEST - KEY_HEADER {
            return Err(format!("the key {} is too long", ski.0));
        }
        data.insert(Record::RouterKey(RouterKey { asn: asn.0, ski: ski.0, spki }));
    }
    for Provided { customer_asid: Number(customer), providers } in file.aspas.into_iter().flatten() {
        let before = data.aspa(customer).map_or(&[][..], Aspa::providers);
        let aspa = Aspa::new(
            customer,
            providers.iter().map(|number| number.0).chain(before.iter().copied()).collect(),
        );
        let mixed = aspa.providers().len() > 1 && aspa.providers()[0] == Asn(0);
        if aspa.providers().is_empty() || mixed || aspa.providers().len() > MOST_PROVIDERS {
            return Err(format!("the ASPA of AS{customer} has no provider, too many, or AS 0 beside others"));
        }
        data.insert(Record::Aspa(aspa));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_write_it_are_read() {
        let rpki_client = r#"{"metadata": {"vrps": 2}, "roas": [
            {"asn": 13335, "prefix": "1.0.0.0/24", "maxLength": 24, "ta": "apnic", "expires": 1753453058}],
            "bgpsec_keys": [{"asn": 15562, "ski": "5D4250E2D81D4448D8A29EFCE91D29FF075EC9E2", "pubkey": "MFk="}],
            "aspas": [{"customer_asid": 945, "providers": [13213]}, {"customer_asid": 945, "providers": [150369]}]}"#;
        let routinator = r#"{"roas": [{"asn": "AS13335", "prefix": "1.0.0.0/24", "maxLength": 24}],
            "bgpsec_keys": [{"asn": "AS15562", "ski": "5D4250E2D81D4448D8A29EFCE91D29FF075EC9E2", "pubkey": "MFk="}],
            "aspas": [{"customer": "AS945", "providers": ["AS150369", "AS13213"]}]}"#;
        let data = read(rpki_client.as_bytes()).unwrap();
        assert_eq!(read(routinator.as_bytes()).unwrap(), data);
        assert_eq!((data.len(), data.aspa(Asn(945)).unwrap().providers().len()), (3, 2));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, told) in [
            ("3", "invalid type"),
            ("[]", "none of `roas`"),
            ("[[], [], []]", "none of `roas`"),
            (r#"{"rpki": []}"#, "none of `roas`"),
            (r#"{"roas": null}"#, "invalid type"),
            (r#"{"roas": [{"asn": 1, "prefix": "1.0.0.0"}]}"#, "`1.0.0.0` is no prefix"),
            (r#"{"roas": [{"asn": "ASX", "prefix": "1.0.0.0/8"}]}"#, "invalid digit"),
            (
                r#"{"roas": [{"asn": 1, "prefix": "1.0.0.0/8", "maxLength": 7}]}"#,
                "cannot go with a maximal length",
            ),
            (r#"{"bgpsec_keys": [{"asn": 1, "ski": "00", "pubkey": ""}]}"#, "no subject key identifier"),
            (r#"{"aspas": [{"customer_asid": 1, "providers": []}]}"#, "no provider"),
            (r#"{"aspas": [{"customer_asid": 1, "providers": [0, 2]}]}"#, "AS 0 beside others"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
