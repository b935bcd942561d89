//! Every key of a configuration, one line each. A key that needs nothing else of the file is said once, in `schema`
//! ([`keys!`](crate::keyed)). Any other has its line here and is read in `read`: one that is only in one of the two places is
//! refused. [`Schema`](crate::Schema) adds what follows from which processes there are.

mod peer;
pub(crate) mod types;

pub(crate) use self::peer::{ADD_PATH, BGPSEC, PEER};
use self::types::*;
use crate::keyed::Word as _;
use crate::schema::{Admission, Bgp, BmpTable, Damping, DecisionRules, Distances, Fea, Log, LogLevel, Mrt, ProcessLimits, Rib, Sandbox, Signing, Standby, StaticBfd, Store, StoreKind, XrlRole};
use crate::describe::{
    joined, key, table, tables,
    Default::{Else, Is, Required},
    Effect::{Reload, Session},
    Key, Table,
    Type::{self, Asn, Bool, Either, Like, List, Moded, Name, Number, Templates, Text, Word},
};

pub(crate) const LEVEL: Type = Word(LogLevel::NAMES);
const RANGE_OF_LENGTHS: Type = Either(&[Number(0, 128), Type::Table(&LENGTHS)]);
const RANGE_OF_NUMBERS: Type = Either(&[U32, Type::Table(&RANGE)]);

/// What of a file does not depend on which processes there are.
pub(crate) static FILE: Table = Table {
    doc: "The configuration of a router.",
    keys: &[
        table("router", &ROUTER),
        table("log", &LOG),
        table("metrics", &METRICS),
        table("glass", &GLASS),
        table("fea", &FEA),
        table("rib", &RIB),
        table("sandbox", &SANDBOX),
        table("tls", &TLS),
        table("admission", &ADMISSION),
        tables("vrf", &VRF, "name"),
        tables("static", &STATIC, "prefix"),
        tables("protocol", &PROTOCOL, "name"),
        table("rpki", &RPKI),
        table("bgpsec", &SIGNING),
        table("nonstop", &NONSTOP),
        table("bgp", &BGP),
        tables("prefix-set", &PREFIX_SET, "name"),
        tables("community-set", &COMMUNITY_SET, "name"),
        tables("as-path-set", &AS_PATH_SET, "name"),
        tables("policy", &POLICIES, "name"),
        table("xrl", &XRL),
    ],
};

static XRL: Table = Table {
    doc: "Calls over TCP (see [xrl](xrl.md)); without this table nothing listens.",
    keys: &[
        key("listen", List(&Text("address and port", "127.0.0.1:4400")), Else("none"), Reload, "where to listen; a port from 1024"),
        tables("client", &XRL_CLIENT, "name"),
    ],
};

static XRL_CLIENT: Table = Table {
    doc: "Somebody who may connect over TCP.",
    keys: &[
        key("name", NAME, Required, Reload, "a letter, then up to 63 letters, digits, `-`, `_`, `.`; unique; with the role `protocol` that of a `[[protocol]]`"),
        key("role", Word(XrlRole::NAMES), Is(XrlRole::DEFAULT), Reload, "what it may call"),
        key("key", Type::Secret("16 octets or more", "a secret of your own"), Else("this or `key-file`"), Reload, "what it has to know"),
        key("key-file", Text("path", "alice.key"), Else("this or `key`"), Reload, "a file with the key, in the directory of this file or below; white space at its ends does not count"),
    ],
};

static ROUTER: Table = Table {
    doc: "Who the router is, and when one of its processes is [hung](operations.md#hangs).",
    keys: &[
        key("id", Text("IPv4 address", "10.0.0.1"), Required, Session, "BGP identifier; not 0.0.0.0 (RFC 6286)"),
        key("asn", Asn, Required, Session, "our AS number; reserved ones (0, 23456, 65535, 4294967295) are refused"),
        key("hang-limit", Number(0, 3600), Is("2"), Reload, "seconds after which a process that does not answer is killed and replaced; 0: never, for debuggers"),
    ],
};

pub(crate) static LOG: Table = Table {
    doc: "How events are written, on standard error.",
    keys: Log::KEYS,
};

static METRICS: Table = Table {
    doc: "A process that answers Prometheus over HTTP (see [metrics](metrics.md)); without this table it does not run.",
    keys: &[key("listen", Text("address with port", "127.0.0.1:9179"), Is("\"127.0.0.1:9179\""), Reload, "where; whoever reaches it may ask")],
};

static GLASS: Table = Table {
    doc: "A looking glass: a process that answers alice-lg over HTTP as birdwatcher does (see [glass](glass.md)); without this table it does not run.",
    keys: &[key("listen", Text("address with port", "127.0.0.1:29184"), Is("\"127.0.0.1:29184\""), Reload, "where; whoever reaches it may ask")],
};

static FEA: Table = Table {
    doc: "The forwarding engine abstraction.",
    keys: Fea::KEYS,
};

pub(crate) static RIB: Table = Table {
    doc: "The routing information base.",
    keys: &RIB_ROWS,
};
static RIB_ROWS: [Key; Rib::KEYS.len() + OF_RIB.len()] = joined(&[Rib::KEYS, OF_RIB]);
const OF_RIB: &[Key] = &[
    table("distance", &DISTANCES),
];

static DISTANCES: Table = Table {
    doc: "Of several protocols with a route for one prefix the lowest wins; 255 means never used.",
    keys: Distances::KEYS,
};

pub(crate) static SANDBOX: Table = Table {
    doc: "How far the router's processes are confined: see [sandbox](sandbox.md).",
    keys: Sandbox::KEYS,
};

pub(crate) static LIMITS: Table = Table {
    doc: "What a process may use; `[sandbox.limits.bgp]`, for one.",
    keys: ProcessLimits::KEYS,
};

static TLS: Table = Table {
    doc: "What we show over TLS and QUIC (see [quic](quic.md)). Files are in the directory of this file or below, and read at each reload.",
    keys: &[
        key("certificate", FILE_NAME, Else("none, where all peers have `tls-raw-public-key`"), Reload, "our certificate (PEM, or DER), and behind it those that lead to an authority"),
        key("key", FILE_NAME, Required, Reload, "our private key (PKCS#8 or SEC1, PEM or DER), that of the certificate"),
        key("key-log", FILE_NAME, Else("none"), Reload, "where the secrets of sessions are written for who analyses them (SSLKEYLOGFILE): whoever reads it can read them"),
    ],
};

static ADMISSION: Table = Table {
    doc: "What becomes of attempts to connect, before anything is kept of them (see [admission](admission.md)).",
    keys: &ADMISSION_ROWS,
};
static ADMISSION_ROWS: [Key; Admission::KEYS.len() + OF_ADMISSION.len()] = joined(&[Admission::KEYS, OF_ADMISSION]);
const OF_ADMISSION: &[Key] = &[
    table("unvalidated", &UNVALIDATED),
    table("by-address", &BY_ADDRESS),
    key("priority-alpn", List(&Text("name of a protocol", "qbgp")), Else("none"), Reload, "protocols (ALPN) that go first under load; 16 at most"),
    tables("set", &ADMISSION_SET, "name"),
];

static UNVALIDATED: Table = Table {
    doc: "Attempts that are looked at while nothing is proven of their address.",
    keys: &[
        key("per-second", ATTEMPTS, Is("2000"), Reload, "for long"),
        key("burst", ATTEMPTS, Is("4000"), Reload, "at once"),
    ],
};

static BY_ADDRESS: Table = Table {
    doc: "Attempts from one address (IPv4) or one /64 (IPv6) that is proven.",
    keys: &[
        key("per-second", ATTEMPTS, Is("20"), Reload, "for long"),
        key("burst", ATTEMPTS, Is("40"), Reload, "at once"),
    ],
};

static ADMISSION_SET: Table = Table {
    doc: "Who may try besides the configured peers: all others are ignored.",
    keys: &[
        key("name", NAME, Required, Reload, "unique"),
        key("prefixes", List(&PREFIX), Required, Reload, "sources"),
    ],
};

static VRF: Table = Table {
    doc: "A table beside the default one (see [vrf](vrf.md)); 512 of them at most.",
    keys: &[
        key("name", VRF_NAME, Required, Reload, "1 to 15 letters, digits, `-` or `_`; unique"),
        key("table", COUNT, Else("254 (main) in a namespace"), Reload, "number of the kernel's routing table; needed for a device, which has one of its own: not 253 to 255, nor that of `[fea]`, and no two with the same rest by 32768"),
        key("device", IFNAME, Else("the VRF's name"), Reload, "the VRF device that the table is bound to; it has to be there already"),
        key("netns", Text("name of a network namespace", "red"), Else("none"), Reload, "the namespace of `/run/netns` that it is, in place of a device"),
        key("networks", List(&PREFIX), Else("none"), Reload, "prefixes that we originate in it by BGP, as `[[bgp.network]]` in the default table"),
    ],
};

static STATIC: Table = Table {
    doc: "A static route; with exactly one of `next-hop` (with or without `interface`), `interface` alone, or `blackhole`.",
    keys: &[
        key("prefix", PREFIX, Required, Reload, "where it leads; bits after the length must be 0"),
        key("vrf", IN_VRF, Else("the default table"), Reload, "the VRF that it is in"),
        key("next-hop", ADDRESS, Else("none"), Reload, "gateway of the prefix's family; resolved recursively unless `interface` is given, which a link-local one needs"),
        key("interface", IFNAME, Else("none"), Reload, "alone: everything of the prefix is a neighbour there"),
        key("blackhole", Bool, Is("false"), Reload, "dropped"),
        key("tag", U32, Is("0"), Reload, "for policies of other protocols; 0 is none"),
        key("bfd", Either(&[Bool, Type::Table(&STATIC_BFD)]), Is("false"), Reload, "the route is used unless a BFD session to its `next-hop` is down; a table says which session"),
    ],
};

static STATIC_BFD: Table = Table {
    doc: "The BFD session to the next hop of a static route.",
    keys: StaticBfd::KEYS,
};

static PROTOCOL: Table = Table {
    doc: "A protocol of others (see [protocols](protocols.md)). With a descriptor the router starts its program, and the protocol has a section `[NAME]`; without one somebody else starts it, and it connects to the socket `protocol-NAME.sock`. An error where `[rib]` is not enabled.",
    keys: &[
        key("name", Text("name of a protocol", "igp"), Required, Reload, "a letter, then up to 14 letters, digits or `-`, all lower case; not the name of a part of this router"),
        key("descriptor", Text("path", "igp.toml"), Else("none"), Reload, "the file that describes it, in the directory of this file or below; nobody but root and who runs the router may be able to write to it"),
        key("distance", DISTANCE, Is("120"), Reload, "administrative distance of its routes; 255 means never used. With a descriptor it is in `[rib.distance]`"),
        key("user", Text("user", "igp"), Else("who runs the router"), Reload, "who owns the socket, as a name or a number; only without a descriptor"),
        key("group", Text("group", "igp"), Else("the group that runs the router"), Reload, "who may connect besides the owner, as a name or a number; only without a descriptor"),
    ],
};

static RPKI: Table = Table {
    doc: "What RPKI caches say of origins, providers and routers' keys (see [rpki](rpki.md)); without a cache no `rpki` process runs.",
    keys: &[
        key("exceptions", List(&FILE_NAME), Else("none"), Reload, "files with local exceptions (RFC 8416), in the directory of this file or below, read at each reload"),
        tables("cache", &RPKI_CACHE, "name"),
    ],
};

static RPKI_CACHE: Table = Table {
    doc: "A cache that is asked over RTR (RFC 6810, RFC 8210); 32 of them at most.",
    keys: &[
        key("name", NAME, Required, Reload, "unique"),
        key("address", ADDRESS, Required, Reload, "where it listens"),
        key("port", PORT, Else("323, with `\"tls\"` 324"), Reload, "where it listens"),
        key("local-address", ADDRESS, Else("the kernel's choice"), Reload, "our end of the connection, of the cache's family"),
        key("preference", Number(0, 65_535), Is("100"), Reload, "the caches with the lowest number of those that have data are used, together; the others stand by"),
        key("version", Number(0, 2), Is("2"), Reload, "of RTR, to begin with: a cache that speaks a lower one only is asked in that"),
        key("refresh", Number(1, 86_400), Else("what the cache says, or 3600"), Reload, "seconds after which it is asked for what is new, unless it has told"),
        key("retry", Number(1, 7200), Else("what the cache says, or 600"), Reload, "seconds until the next attempt after one that failed"),
        key("expire", Number(1, 172_800), Else("what the cache says, or 7200"), Reload, "seconds for which its data are used without news of it; more than `refresh` and `retry`"),
        key("transport", Word(&["tcp", "tls"]), Is("\"tcp\""), Reload, "what carries the connection"),
        key("tls-name", Text("DNS name or address", "rtr.example"), Else("any that its authorities sign"), Reload, "whom its certificate has to be for"),
        key("tls-authorities", List(&FILE_NAME), Else("this or `tls-pins`, for `\"tls\"`"), Reload, "files with certificates of those who may have signed the cache's"),
        key("tls-pins", List(&PIN), Else("none"), Reload, "SHA-256 of public keys, one of which the cache has to have; beside `tls-authorities` both have to hold"),
        key("tls-raw-public-key", Bool, Is("false"), Reload, "both ends show bare public keys, not certificates (RFC 7250); with `tls-pins` alone"),
        key("tls-revocations", List(&FILE_NAME), Else("none"), Reload, "files with revocation lists of its authorities"),
    ],
};

static NONSTOP: Table = Table {
    doc: "What outlives more than a process (see [nonstop](nonstop.md)).",
    keys: &[
        key("standby", Word(Standby::NAMES), Is("\"cold\""), Reload, "what a router that was started with `--standby` has ready: `\"cold\"`: nothing, it reads the store when it takes over; `\"preheated\"`: the routes, for which it follows the store (of the kind `\"redis\"`)"),
        tables("address", &SERVICE_ADDRESS, "address"),
        table("store", &STORE),
    ],
};

static SERVICE_ADDRESS: Table = Table {
    doc: "A service address: the router that has the sessions has it, and no other (see [standby](standby.md#service-addresses)). 64 of them at most.",
    keys: &[
        key("address", Text("address and length", "10.1.0.10/24"), Required, Reload, "the address, and the length of the network that is reached directly; each once in its table"),
        key("interface", IFNAME, Required, Reload, "where it is"),
        key("vrf", IN_VRF, Else("the default table"), Reload, "the VRF that the interface is in"),
    ],
};

static STORE: Table = Table {
    doc: "Where sessions are kept, so that they outlive this host; without this table no `replicator` process runs. An error where no peer has `nonstop`.",
    keys: &STORE_ROWS,
};
static STORE_ROWS: [Key; OF_STORE.len() + Store::KEYS.len() + STORE_TRUST.len()] = joined(&[OF_STORE, Store::KEYS, STORE_TRUST]);
const OF_STORE: &[Key] = &[
    key("kind", Word(StoreKind::NAMES), Required, Reload, "what keeps them: a server that speaks the protocol of Redis, files of this host, or memory of the process `replicator`, to try it out"),
    key("addresses", List(&Text("address and port", "10.0.0.9:6379")), Else("required for `\"redis\"`"), Reload, "where servers listen, 8 at most; the first that can be reached is asked"),
    key("user", Text("name", "holdfast"), Else("the server's default user"), Reload, "as whom we log in, with `password-file`"),
    key("password-file", FILE_NAME, Else("none: we do not log in"), Reload, "the password, in one line, in the directory of this file or below, read at each reload"),
    key("key-file", FILE_NAME, Else("none: a commit does not reach a standby"), Reload, "a secret of 16 octets or more, in one line, the same at each router that may have the sessions: commits go to a standby through the store, sealed with it (see [standby](standby.md))"),
];
const STORE_TRUST: &[Key] = &[
    key("transport", Word(&["tcp", "tls"]), Is("\"tcp\""), Reload, "what carries the connection"),
    key("tls-name", Text("DNS name or address", "store.example"), Else("any that its authorities sign"), Reload, "whom a server's certificate has to be for"),
    key("tls-authorities", List(&FILE_NAME), Else("this or `tls-pins`, for `\"tls\"`"), Reload, "files with certificates of those who may have signed a server's"),
    key("tls-pins", List(&PIN), Else("none"), Reload, "SHA-256 of public keys, one of which a server has to have; beside `tls-authorities` both have to hold"),
    key("tls-raw-public-key", Bool, Is("false"), Reload, "both ends show bare public keys, not certificates (RFC 7250); with `tls-pins` alone"),
    key("tls-revocations", List(&FILE_NAME), Else("none"), Reload, "files with revocation lists of its authorities"),
];

static SIGNING: Table = Table {
    doc: "What paths are signed with for peers with `bgpsec.send` (BGPsec, RFC 8205; see [bgpsec](bgpsec.md)).",
    keys: &SIGNING_ROWS,
};
static SIGNING_ROWS: [Key; Signing::KEYS.len() + OF_SIGNING.len()] = joined(&[Signing::KEYS, OF_SIGNING]);
const OF_SIGNING: &[Key] = &[
    tables("keys", &SIGNING_KEY, "file"),
];

static SIGNING_KEY: Table = Table {
    doc: "A private key of the router; 64 of them at most. Of one AS, the last that caches publish signs.",
    keys: &[
        key("asn", Asn, Required, Reload, "the AS that it signs for: one of ours"),
        key("file", FILE_NAME, Required, Reload, "the key, of P-256 (SEC1 or PKCS#8, PEM or DER), in the directory of this file or below, read at each reload; no AS has a key twice"),
        key("sign-from", Text("date and time with an offset", "2026-12-01T00:00:00Z"), Else("none"), Reload, "it signs nothing before"),
    ],
};

static BGP: Table = Table { doc: "BGP; without this table no `bgp` process runs.", keys: &BGP_ROWS };
static BGP_ROWS: [Key; Bgp::KEYS.len() + OF_BGP.len() + DecisionRules::KEYS.len()] =
    joined(&[Bgp::KEYS, OF_BGP, DecisionRules::KEYS]);

const OF_BGP: &[Key] = &[
    key("listen", List(&ADDRESS), Else("all of both families"), Reload, "our addresses to listen on"),
    key("hold-time", SECONDS, Is("90"), Session, "seconds, 0 (no keepalives) or 3 and more; for peers without one of their own"),
    key("connect-retry", PORT, Is("5"), Reload, "seconds between attempts to connect; for peers without one of their own"),
    table("damping", &DAMPING),
    tables("peer", &PEER, "name"),
    key("group", Templates(&PEER, "bgp.peer"), Else("none"), Reload, "what several peers have in common: those that name it as their `group` take from it what they do not say themselves; anything but `address`, `listen-range` and `group`"),
    tables("network", &NETWORK, "prefix"),
    tables("aggregate", &AGGREGATE, "prefix"),
    tables("redistribute", &REDISTRIBUTE, "from"),
    key("cluster-id", Text("IPv4 address", "10.0.0.1"), Else("the router's id"), Reload, "our cluster as a route reflector (RFC 4456)"),
    key("graceful-shutdown", Bool, Is("false"), Reload, "for peers that do not say so themselves"),
    table("confederation", &CONFEDERATION),
    tables("mrt", &MRT, "file"),
    tables("bmp", &BMP, "name"),
    key("rib-policy", POLICY, Else("all of them"), Reload, "policy for what the RIB, and so the kernel, is given of the best routes; it sets the tag, and with `med` the metric"),
];

static CONFEDERATION: Table = Table {
    doc: "The confederation (RFC 5065) that our AS, that of `[router]`, is a member of.",
    keys: &[
        key("id", Asn, Required, Session, "the AS number by which others know it"),
        key("members", List(&Asn), Else("none"), Session, "AS numbers of the other members that we speak with"),
    ],
};

static MRT: Table = Table {
    doc: "Dumps on disk (see [monitoring](monitoring.md)).",
    keys: &MRT_ROWS,
};
static MRT_ROWS: [Key; Mrt::KEYS.len() + OF_MRT.len()] = joined(&[Mrt::KEYS, OF_MRT]);
const OF_MRT: &[Key] = &[
    key("file", Text("absolute path", "/var/lib/holdfast/updates.%Y%m%d.%H%M%S.mrt"), Required, Reload, "in its last part, fields of the time (UTC): `%Y` `%m` `%d` `%H` `%M` `%S` `%s` `%%`; unique"),
];

static BMP: Table = Table {
    doc: "A collector that is told by BMP (see [monitoring](monitoring.md)).",
    keys: &[
        key("name", NAME, Required, Reload, "unique"),
        key("address", ADDRESS, Required, Reload, "where it listens; unique"),
        key("port", PORT, Is("11019"), Reload, "where it listens"),
        key("send", List(&Word(BmpTable::NAMES)), Is("[\"pre-policy\"]"), Reload, "what peers send, before import policy; what they are told; the best routes"),
        key("statistics", Number(0, 86_400), Is("60"), Reload, "seconds between statistics reports; 0: none"),
    ],
};

static DAMPING: Table = Table {
    doc: "Route-flap damping (RFC 2439, RFC 7196); an empty table has the defaults, without it no route is damped.",
    keys: Damping::KEYS,
};

static NETWORK: Table = Table {
    doc: "A prefix that we originate, always, whether there is a route to it or not.",
    keys: &[key("prefix", PREFIX, Required, Reload, "what is originated")],
};

static AGGREGATE: Table = Table {
    doc: "A prefix that we originate while a best route lies inside it (RFC 4271 section 9.2.2.2); packets for it that no such route takes are dropped.",
    keys: &[
        key("prefix", PREFIX, Required, Reload, "what is originated; unique"),
        key("summary-only", Bool, Is("false"), Reload, "peers are not told of the routes inside that contribute"),
        key("contributors", POLICY, Else("all"), Reload, "which routes inside contribute"),
        key("policy", POLICY, Else("as it is made"), Reload, "what the aggregate carries, and whether it is there at all"),
    ],
};

static REDISTRIBUTE: Table = Table {
    doc: "Routes of another protocol that we originate (see [protocols](protocols.md)). An error where `[rib]` is not enabled.",
    keys: &[
        key("from", Name("protocol", &["static", "connected"]), Required, Reload, "whose; never BGP's, and in a VRF only `static` and `connected`"),
        key("vrf", IN_VRF, Else("the default table"), Reload, "the VRF in which they are originated"),
        key("policy", POLICY, Required, Reload, "says which, and with what attributes"),
    ],
};

static PREFIX_SET: Table = Table {
    doc: "Prefixes under a name, for policies.",
    keys: &[
        key("name", NAME, Required, Reload, "unique among prefix sets"),
        key("prefixes", List(&PREFIX_RANGE), Required, Reload, "in any order"),
    ],
};

static COMMUNITY_SET: Table = Table {
    doc: "Communities of all kinds under a name, for policies.",
    keys: &[
        key("name", NAME, Required, Reload, "unique among community sets"),
        key("communities", List(&COMMUNITY_PATTERN), Else("none, where there are regexes"), Reload, "a route with one of these is in the set"),
        key("regexes", List(&REGEX), Else("none"), Reload, "so is one with a community in which one of these is found"),
    ],
};

static AS_PATH_SET: Table = Table {
    doc: "AS path patterns under a name, for policies.",
    keys: &[
        key("name", NAME, Required, Reload, "unique among AS path sets"),
        key("paths", List(&PATH_PATTERN), Else("none, where there are regexes"), Reload, "a route whose path matches one of these is in the set"),
        key("regexes", List(&REGEX), Else("none"), Reload, "so is one in whose path one of these is found"),
    ],
};

static POLICIES: Table = Table {
    doc: "Terms under a name, tried in order; what nothing decides is rejected.",
    keys: &[
        key("name", NAME, Required, Reload, "unique among policies"),
        key("first", Like(&THEN, "policy.term.then"), Else("none"), Reload, "changes to make before the first term is asked; no `action`"),
        tables("term", &TERM, "name"),
        key("last", Either(&[Word(&["accept", "reject"]), Like(&THEN, "policy.term.then")]), Else("it is rejected"), Reload, "what becomes of a route that no term decides, or changes to it with an `action`"),
    ],
};

static TERM: Table = Table {
    doc: "One step of a policy.",
    keys: &[
        key("name", NAME, Else("its number"), Reload, "unique in its policy"),
        table("from", &FROM),
        key("unless", Like(&FROM, "policy.term.from"), Else("none"), Reload, "the term does not match where all of these hold"),
        key("then", Either(&[OUTCOME, Type::Table(&THEN)]), Required, Reload, "what follows, or changes to the route with an `action`"),
    ],
};

static FROM: Table = Table {
    doc: "Conditions: all must hold; of a list, one entry, or as many as `{ any = […] }`, `{ all = […] }`, `{ none = […] }` say.",
    keys: &[
        key("prefix-set", Moded(&Name("prefix-set", &[])), Else("none"), Reload, "the prefix is in one of these sets"),
        key("prefix", Moded(&PREFIX_RANGE), Else("none"), Reload, "the prefix is one of these"),
        key("prefix-length", RANGE_OF_LENGTHS, Else("none"), Reload, "length of the prefix"),
        key("community-set", Moded(&Name("community-set", &[])), Else("none"), Reload, "the route has a community of one of these sets"),
        key("community", Moded(&COMMUNITY_PATTERN), Else("none"), Reload, "the route has one of these communities"),
        key("community-regex", Moded(&REGEX), Else("none"), Reload, "one of these is found in a community"),
        key("as-path-set", Moded(&Name("as-path-set", &[])), Else("none"), Reload, "the AS path is in one of these sets"),
        key("as-path", Moded(&PATH_PATTERN), Else("none"), Reload, "the AS path follows one of these patterns"),
        key("as-path-regex", Moded(&REGEX), Else("none"), Reload, "one of these is found in the AS path"),
        key("as-path-length", RANGE_OF_NUMBERS, Else("none"), Reload, "length of the AS path; an AS_SET counts as one"),
        key("neighbor-as", Moded(&ASN_OR_RANGE), Else("none"), Reload, "the first AS of the path"),
        key("origin-as", Moded(&ASN_OR_RANGE), Else("none"), Reload, "the last AS of the path"),
        key("peer-as", Moded(&ASN_OR_RANGE), Else("none"), Reload, "the AS of the peer: who sends on import, who receives on export"),
        key("origin", Moded(&ORIGIN), Else("none"), Reload, "ORIGIN"),
        key("local-preference", RANGE_OF_NUMBERS, Else("none"), Reload, "LOCAL_PREF; a route without one does not match"),
        key("med", RANGE_OF_NUMBERS, Else("none"), Reload, "MULTI_EXIT_DISC; a route without one does not match"),
        key("metric", RANGE_OF_NUMBERS, Else("none"), Reload, "the metric in the routing table; a route of BGP has none"),
        key("next-hop", Moded(&PREFIX), Else("none"), Reload, "one of these contains the next hop"),
        key("interface", Moded(&IFNAME), Else("none"), Reload, "the interface that the route names is one of these"),
        key("protocol", Moded(&PROTOCOL_NAME), Else("none"), Reload, "who brought the route"),
        key("tag", Moded(&U32), Else("none"), Reload, "the tag is one of these"),
        key("validity", Moded(&VALIDITY), Else("none"), Reload, "what origin validation says; `not-found` of all routes as long as nothing validates"),
        key("aspa", Moded(&PATH_VALIDITY), Else("none"), Reload, "what ASPA says of the path; `unknown` of all routes as long as nothing verifies"),
        key("bgpsec", Moded(&PATH_SECURITY), Else("none"), Reload, "what the signatures of the path say; `unsigned` of all routes of sessions without BGPsec"),
        key("policy", Moded(&POLICY), Else("none"), Reload, "one of these policies would accept the route"),
    ],
};

static LENGTHS: Table = Table {
    doc: "A range of prefix lengths, both ends included.",
    keys: &[
        key("min", Number(0, 128), Is("0"), Reload, "the shortest"),
        key("max", Number(0, 128), Is("128"), Reload, "the longest"),
    ],
};

static RANGE: Table = Table {
    doc: "A range of numbers, both ends included.",
    keys: &[
        key("min", U32, Is("0"), Reload, "the least"),
        key("max", U32, Is("4294967295"), Reload, "the greatest"),
    ],
};

static THEN: Table = Table {
    doc: "Changes to a route, and what follows.",
    keys: &[
        key("local-preference", U32, Else("none"), Reload, "sets LOCAL_PREF; not sent to another AS"),
        key("weight", U32, Else("none"), Reload, "sets the weight: the highest wins before anything else is compared, and nobody is told; on import only"),
        key("med", Either(&[U32, Word(&["remove", "metric"]), Type::Table(&MED)]), Else("none"), Reload, "sets or removes MULTI_EXIT_DISC, makes it the metric to the next hop (on export), or changes it"),
        key("origin", ORIGIN, Else("none"), Reload, "sets ORIGIN"),
        key("prepend", Either(&[Number(1, 32), Type::Table(&PREPEND)]), Else("none"), Reload, "so many times our own AS, or another one, before the path"),
        key("set-communities", List(&COMMUNITY), Else("none"), Reload, "these in the place of all communities of all kinds"),
        key("remove-communities", List(&COMMUNITY_PATTERN), Else("none"), Reload, "those that match a pattern"),
        key("replace-communities", Either(&[Type::Table(&REPLACEMENT)]), Else("none"), Reload, "some by others"),
        key("add-communities", List(&COMMUNITY), Else("none"), Reload, "these besides"),
        key("next-hop", Either(&[ADDRESS, Word(&["self"])]), Else("none"), Reload, "sets the next hop; `\"self\"` on export only"),
        key("tag", U32, Else("none"), Reload, "a number that the route carries to other processes"),
        key("apply", List(&POLICY), Else("none"), Reload, "after the changes, runs the terms of these policies as if they stood here"),
        key("action", OUTCOME, Is("\"next\""), Reload, "what follows"),
    ],
};

static MED: Table = Table {
    doc: "A change of the MED; a route without one counts as 0.",
    keys: &[
        key("add", U32, Else("none"), Reload, "so much more"),
        key("subtract", U32, Else("none"), Reload, "so much less"),
    ],
};

static REPLACEMENT: Table = Table {
    doc: "Communities in the place of others: where one of `these` goes, all of `by` come.",
    keys: &[
        key("these", List(&COMMUNITY_PATTERN), Required, Reload, "what goes"),
        key("by", List(&COMMUNITY), Required, Reload, "what comes"),
    ],
};

static PREPEND: Table = Table {
    doc: "An AS number several times before the path.",
    keys: &[
        key("asn", Asn, Else("the nearest of the path, with `last-as`"), Reload, "which"),
        key("count", Number(1, 32), Is("1"), Reload, "how often"),
        key("last-as", Number(1, 32), Else("none"), Reload, "how often the nearest AS of the path is repeated"),
    ],
};
