//! Keys of `[[bgp.peer]]` and the tables below it.

use super::types::{ADDRESS, ASN_OR_RANGE, COUNT, FAMILY, FILE_NAME, IFNAME, IN_VRF, NAME, PIN, POLICY, PORT, PREFIX, SECONDS};
use crate::{
    describe::{
        joined, key, table, tables,
        Default::{Else, Is, Required},
        Effect::{Reload, Session},
        Key, Table,
        Type::{self, Asn, Bool, Either, List, Name, Number, Text, Word},
    },
    schema::{
        PeerBfd,
        peer::{AddPath, Bgpsec, PathRules, PeerRules, SessionRules},
    },
};

const KEYS: usize = OWN.len() + SessionRules::KEYS.len() + PeerRules::KEYS.len() + PathRules::KEYS.len();
static ROWS: [Key; KEYS] = joined(&[OWN, SessionRules::KEYS, PeerRules::KEYS, PathRules::KEYS]);

pub(crate) static PEER: Table = Table { doc: "A BGP neighbour, or a range of them.", keys: &ROWS };

pub(crate) static ADD_PATH: Table = Table {
    doc: "Several paths of one prefix on a session (RFC 7911), in all its families, if the neighbour agrees.",
    keys: AddPath::KEYS,
};

pub(crate) static BGPSEC: Table = Table {
    doc: "Signed paths on a session (BGPsec, RFC 8205), if the neighbour agrees (see [bgpsec](bgpsec.md)).",
    keys: Bgpsec::KEYS,
};

const BFD: Type = Either(&[Bool, Type::Table(&PEER_BFD)]);
static PEER_BFD: Table = Table { doc: "The BFD session to a neighbour.", keys: PeerBfd::KEYS };

static LIMIT: Table = Table {
    doc: "How many prefixes of a family a neighbour may have us keep, or be told of.",
    keys: &[
        key("family", FAMILY, Required, Reload, "of which; one table for each"),
        key("received", COUNT, Else("any number"), Reload, "prefixes that it may announce, whatever import policy says of them"),
        key("accepted", COUNT, Else("any number"), Reload, "of those, prefixes that import policy takes"),
        key("announced", COUNT, Else("any number"), Reload, "prefixes that it may be told of: a mistake in our own policy stays here"),
        key("warn-percent", Number(1, 100), Is("75"), Reload, "of a limit: from there on the log says so, once in a session"),
        key("action", Word(&["idle", "restart", "warn"]), Is("\"idle\""), Reload, "above a limit: `\"idle\"` ends the session until it is cleared or the limit raised, `\"restart\"` until some time has passed, `\"warn\"` says so in the log"),
        key("restart-after", PORT, Is("300"), Reload, "seconds, with `\"restart\"`"),
    ],
};

/// Those of a peer that are read one by one, since they need more of the file than themselves.
const OWN: &[Key] = &[
    key("name", NAME, Required, Reload, "1 to 64 letters, digits, `-`, `_`, `.`, `:`; unique"),
    key("address", ADDRESS, Else("this, `interface` or `listen-range`"), Session, "of the neighbour; unique in its VRF, a link-local one on its `interface`"),
    key("interface", IFNAME, Else("none"), Session, "the link that the peer is on: the session ends when the interface goes down; needed for a link-local `address`; alone: the neighbour is the router that is heard there (see [unnumbered peers](unnumbered.md))"),
    key("listen-range", PREFIX, Else("this, `address` or `interface`"), Session, "from which any number of neighbours (at most 4096) may connect to us"),
    key("asn", Either(&[Asn, List(&ASN_OR_RANGE), Word(&["any"])]), Required, Session, "of the neighbour; lists, ranges and `\"any\"` only with a `listen-range`, or an `interface` without `address`"),
    key("local-address", ADDRESS, Else("the kernel's choice"), Session, "our end of the session, of the neighbour's family"),
    key("families", List(&FAMILY), Else("the one of the neighbour's address; both with `interface`"), Session, "offered to the neighbour"),
    key("next-hop-ipv4", Text("IPv4 address", "10.0.0.1"), Else("none (see [bgp](bgp.md))"), Reload, "our next hop for IPv4 prefixes where the session runs over IPv6"),
    key("next-hop-ipv6", Text("IPv6 address", "2001:db8::1"), Else("none"), Reload, "our next hop for IPv6 prefixes where the session runs over IPv4"),
    key("import", POLICY, Else("nothing from another AS, everything inside ours"), Reload, "policy for what we learn"),
    key("export", POLICY, Else("nothing to another AS, everything inside ours"), Reload, "policy for what we announce"),
    key("transport", List(&Word(&["tcp", "tls", "quic", "quic-s2n"])), Is("[\"tcp\"]"), Session, "what carries the session, the preferred first (see [quic](quic.md)); nothing else is ever used"),
    key("tls-name", Text("DNS name or address", "r2.example"), Else("any that its authorities sign"), Session, "whom its certificate has to be for; not with a `listen-range`"),
    key("tls-authorities", List(&FILE_NAME), Else("this or `tls-pins`, for all but `\"tcp\"`"), Session, "files with certificates of those who may have signed the neighbour's"),
    key("tls-pins", List(&PIN), Else("none"), Session, "SHA-256 of public keys, one of which the neighbour has to have; beside `tls-authorities` both have to hold"),
    key("tls-raw-public-key", Bool, Is("false"), Session, "both ends show bare public keys, not certificates (RFC 7250); with `tls-pins` alone"),
    key("tls-revocations", List(&FILE_NAME), Else("none"), Reload, "files with revocation lists of its authorities"),
    key("md5", Type::Secret("1 to 80 octets", "secret"), Else("none"), Reload, "TCP-MD5 key (RFC 2385), for `\"tcp\"` and `\"tls\"`; the neighbour has to have another one before its hold time is over"),
    key("vrf", IN_VRF, Else("the default table"), Session, "the VRF that it is in"),
    key("group", Name("group", &[]), Else("none"), Reload, "the `[[bgp.group]]` that has what is not said here"),
    tables("limit", &LIMIT, "family"),
    key("hold-time", SECONDS, Else("that of `[bgp]`"), Session, "seconds, 0 or 3 and more; the lower of both sides' counts"),
    key("nonstop", Bool, Else("that of `[bgp]`; not `true` where that is `false`"), Reload, "`false`: the session ends with the `bgp` process"),
    key("damping", Bool, Else("`true` where there is `[bgp.damping]`"), Reload, "`false`: routes of this neighbour of another AS are never damped (see [damping](damping.md))"),
    table("add-path", &ADD_PATH),
    table("bgpsec", &BGPSEC),
    key("bfd", BFD, Is("false"), Reload, "a BFD session to the neighbour (RFC 5882): when it fails, the session ends at once; a table says which session"),
    key("orf-prefix-set", Name("prefix-set", &[]), Else("none"), Reload, "the prefixes that we want of the neighbour, with `orf = \"send\"` or `\"both\"`, where it is required; of a family of which it has none, all"),
];
