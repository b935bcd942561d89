//! What values of several keys may be.

use crate::describe::{
    Form,
    Type::{self, Asn, Either, Name, Number, Text, Word},
};

pub(crate) const ADDRESS: Type = Type::Form(Form::Address);
pub(crate) const PREFIX: Type = Type::Form(Form::Prefix);
pub(crate) const SIZE: Type = Text("`\"1 MiB\"` to `\"64 GiB\"`: a whole number of `KiB`, `MiB` or `GiB`", "512 MiB");
pub(crate) const FREE: Type = Text("text", "AS 65101, port 7");
pub(crate) const IFNAME: Type = Type::Form(Form::Interface);
pub(crate) const VRF_NAME: Type = Text("name of a VRF", "blue");
pub(crate) const IN_VRF: Type = Name("vrf", &[]);
pub(crate) const NAME: Type = Text("name", "transit-1");
pub(crate) const POLICY: Type = Name("policy", &["accept-all", "reject-all"]);
pub(crate) const FAMILY: Type = Word(&["ipv4-unicast", "ipv6-unicast"]);
pub(crate) const ORIGIN: Type = Word(&["igp", "egp", "incomplete"]);
pub(crate) const OUTCOME: Type = Word(&["accept", "reject", "next"]);
pub(crate) const ASN_OR_RANGE: Type = Either(&[Asn, Text("range", "64512-65534")]);
pub(crate) const PIN: Type = Text("fingerprint", "2b:05:…");
pub(crate) const FILE_NAME: Type = Text("path", "tls/router.pem");
pub(crate) const ATTEMPTS: Type = Number(1, 10_000_000);
pub(crate) const SECONDS: Type = Number(0, 65_535);
pub(crate) const PORT: Type = Number(1, 65_535);
pub(crate) const U32: Type = Number(0, u32::MAX as u64);
pub(crate) const COUNT: Type = Number(1, u32::MAX as u64);
pub(crate) const DISTANCE: Type = Number(0, 255);
pub(crate) const PREFIX_RANGE: Type = Text("prefix, with `ge` and `le`", "10.0.0.0/8 le 24");
pub(crate) const COMMUNITY: Type = Text("community", "65001:100");
pub(crate) const COMMUNITY_PATTERN: Type = Text("community pattern", "65001:*");
pub(crate) const PATH_PATTERN: Type = Text("AS path pattern", "65001 *");
pub(crate) const REGEX: Type = Text("regular expression", "_65001$");
pub(crate) const PROTOCOL_NAME: Type = Text("`bgp`, `static`, `connected` or the name of another protocol", "static");
pub(crate) const VALIDITY: Type = Word(&["valid", "invalid", "not-found"]);
pub(crate) const PATH_SECURITY: Type = Word(&["valid", "not-valid", "unverified", "unsigned"]);
pub(crate) const PATH_VALIDITY: Type = Word(&["valid", "invalid", "unknown"]);
