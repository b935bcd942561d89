//! From one configuration to the next: each step says what is different, and whose sessions that ends.

use anyhow::Result;
use toml::{Table, Value};

use super::rows::Flag;

/// A value that takes a key away.
const GONE: &str = "(gone)";

/// What differs from the base.
pub(super) struct Step {
    pub(super) name: &'static str,
    /// In TOML: of tables of a list those of one name are one, and others are added.
    pub(super) patch: &'static str,
    /// Peers and ranges whose sessions end.
    pub(super) ended: &'static [&'static str],
    /// Whether all sessions come up with it.
    pub(super) comes_up: bool,
}

pub(super) const BASE: &str = r#"
[router]
id = "10.0.0.1"
asn = 65000
[tls]
certificate = "certificate.pem"
key = "key.pem"
[[vrf]]
name = "blue"
table = 100
device = "blue0"
[bgp]
connect-retry = 1
[[bgp.peer]]
name = "one"
address = "10.0.1.2"
asn = 65001
families = ["ipv4-unicast", "ipv6-unicast"]
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "two"
address = "10.0.2.2"
asn = 65002
role = "provider"
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "three"
address = "10.0.3.2"
asn = 65003
local-asn = 65100
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "inside"
address = "10.0.4.2"
asn = 65000
orf = "send"
orf-prefix-set = "wanted"
[[bgp.peer]]
name = "guests"
listen-range = "10.0.5.0/24"
asn = 65005
import = "accept-all"
export = "accept-all"
[[bgp.peer]]
name = "secure"
address = "2001:db8:6::2"
asn = 65006
families = ["ipv4-unicast", "ipv6-unicast"]
transport = ["tls"]
tls-name = "r2.example"
tls-authorities = ["authority.pem"]
import = "accept-all"
export = "accept-all"
[[prefix-set]]
name = "wanted"
prefixes = ["0.0.0.0/0 le 32"]
[[prefix-set]]
name = "few"
prefixes = ["10.0.0.0/8 le 24"]
"#;

/// Steps from the base and back, each. Keys of `[bgp]` and of a peer that are `true` or `false` and need nothing else
/// are not here: they are turned as their rows say ([`Flag`](super::rows::Flag)).
pub(super) const STEPS: [Step; 17] = [
    Step {
        name: "what is beside BGP",
        ended: &[],
        comes_up: true,
        patch: r#"
[router]
hang-limit = 3
[log]
format = "json"
level = "warn"
process = { keeper = "info", manager = "info", gate = "debug", fea = "warn", rib = "info", transport = "info", bgp = "debug", metrics = "error", glass = "error", monitor = "error", pathsec = "debug", bfd = "warn", rip = "debug", rpki = "error", replicator = "debug" }
[metrics]
listen = "127.0.0.1:9179"
[glass]
listen = "127.0.0.1:29184"
[fea]
backend = "none"
keep-routes = true
metric = 21
table = 99
[rib]
stale-time = 100
distance = { connected = 1, static = 2, ebgp = 21, ibgp = 201, rip = 111 }
[tls]
certificate = "other-certificate.pem"
key = "other-key.pem"
key-log = "secrets.log"
[admission]
retry = "always"
load-handshakes = 32
load-attempts = 300
most-handshakes = 512
priority-alpn = ["qbgp"]
log-per-second = 2
unvalidated = { per-second = 1000, burst = 2000 }
by-address = { per-second = 10, burst = 20 }
set = [{ name = "exchange", prefixes = ["192.0.2.0/24"] }]
[[vrf]]
name = "blue"
table = 101
device = "blue1"
networks = ["203.0.113.0/24"]
[[vrf]]
name = "here"
netns = "NAMESPACE"
[[static]]
vrf = "blue"
prefix = "192.0.2.0/24"
next-hop = "10.1.0.9"
interface = "n1"
bfd = { profile = "quick", hops = "single" }
[[static]]
prefix = "203.0.113.0/24"
blackhole = true
tag = 7
[[protocol]]
name = "toy"
distance = 121
user = "root"
group = "0"
[[protocol]]
name = "described"
descriptor = "described.toml"
[bfd]
max-sessions = 100
[[bfd.profile]]
name = "quick"
transmit-interval = 50
receive-interval = 60
detect-multiplier = 5
passive = true
minimum-ttl = 250
[[bfd.profile.key]]
id = 7
algorithm = "keyed-sha1"
secret = "of both ends"
[[bfd.profile.key]]
id = 8
secret = "of before"
send = false
[[bfd.profile.key]]
id = 9
secret = "of after"
accept = false
[bgpsec]
kept-signatures = 10
signing-rate = 10
keys-per-ski = 4
[[bgpsec.keys]]
asn = 65000
file = "key.pem"
sign-from = 2026-01-01T00:00:00Z
[nonstop]
standby = "preheated"
[[nonstop.address]]
address = "10.9.9.9/32"
interface = "lo"
[[nonstop.address]]
address = "10.9.9.8/32"
interface = "lo"
vrf = "blue"
[nonstop.store]
kind = "redis"
addresses = ["10.0.1.9:6379"]
user = "holdfast"
password-file = "store.password"
key-file = "store.key"
store-timeout = 20
wait-replicas = 1
transport = "tls"
tls-name = "store.example"
tls-authorities = ["authority.pem"]
tls-pins = ["PIN"]
tls-revocations = ["revoked.pem"]
[rpki]
exceptions = ["exceptions.json"]
[[rpki.cache]]
name = "validator"
address = "10.0.1.9"
port = 8282
local-address = "10.0.1.1"
preference = 10
version = 1
refresh = 1800
retry = 300
expire = 3600
transport = "tls"
tls-name = "validator.example"
tls-authorities = ["authority.pem"]
tls-pins = ["PIN"]
tls-revocations = ["revoked.pem"]
[[rpki.cache]]
name = "bare"
address = "10.0.1.8"
transport = "tls"
tls-pins = ["PIN"]
tls-raw-public-key = true
[bgp]
rib-policy = "p"
[[bgp.mrt]]
what = "table"
file = "/tmp/holdfast-live.%s.mrt"
interval = 800
[[bgp.mrt]]
file = "/tmp/holdfast-live.updates.mrt"
max-size = "64 MiB"
[[bgp.bmp]]
name = "collector"
address = "10.0.1.9"
port = 11020
send = ["adj-rib-out", "loc-rib"]
statistics = 50
[[bgp.network]]
prefix = "203.0.113.0/24"
[[bgp.aggregate]]
prefix = "203.0.112.0/20"
summary-only = true
contributors = "p"
policy = "p"
[[bgp.redistribute]]
from = "toy"
policy = "p"
[[bgp.redistribute]]
vrf = "blue"
from = "static"
policy = "p"
[[prefix-set]]
name = "more"
prefixes = ["10.0.0.0/8"]
[[community-set]]
name = "s"
communities = ["65001:*"]
regexes = ["^65001:1..$"]
[[as-path-set]]
name = "s"
paths = ["65001 *"]
regexes = "^65001_"
[[policy]]
name = "q"
[[policy]]
name = "p"
first = { weight = 5 }
last = "accept"
[[policy.term]]
name = "t"
from = { prefix-set = "few", prefix = "10.0.0.0/8 le 24", prefix-length = { min = 8, max = 24 }, community-set = "s", community = "65001:100", community-regex = "^65001:1..$", as-path-set = "s", as-path = "65001 *", as-path-regex = "^65001_", as-path-length = { min = 1, max = 9 }, neighbor-as = 65001, origin-as = "64512-65534", peer-as = 65001, origin = "igp", local-preference = { min = 1, max = 100 }, med = { min = 1, max = 2 }, metric = { min = 0, max = 20 }, next-hop = "10.0.0.0/8", interface = "n1", protocol = ["bgp", "toy"], tag = 7, validity = "not-found", aspa = ["valid", "unknown"], bgpsec = ["valid", "unsigned"], policy = "q" }
unless = { prefix-length = 32 }
then = { local-preference = 200, weight = 10, med = { add = 5 }, origin = "igp", prepend = { asn = 65010, count = 2 }, set-communities = ["65001:1"], remove-communities = ["65001:*"], replace-communities = { these = ["rt:65001:*"], by = ["rt:65001:7"] }, add-communities = ["65001:2"], tag = 8, apply = "q", action = "accept" }
[[policy.term]]
name = "u"
then = { med = { subtract = 5 }, prepend = { last-as = 2 } }
[[policy]]
name = "out"
last = { next-hop = "self", action = "accept" }
[[policy.term]]
name = "all"
then = { next-hop = "10.0.0.1" }
[xrl]
listen = ["127.0.0.1:4400"]
[[xrl.client]]
name = "toy"
role = "protocol"
key = "0123456789abcdef"
[[xrl.client]]
name = "bob"
key-file = "bob.key"
[rip]
families = "ipv4"
update = 10
timeout = 60
garbage = 40
max-routes = 1000
metric = 2
[[rip.interface]]
name = "n9"
vrf = "blue"
cost = 2
passive = true
split-horizon = "simple"
import = "accept-all"
export = "reject-all"
password = "secret"
[[rip.interface]]
name = "n8"
[[rip.interface.key]]
id = 1
algorithm = "keyed-md5"
secret = "secret"
send = true
accept = false
[[rip.redistribute]]
from = "bgp"
policy = "accept-all"
[[rip.redistribute]]
from = "static"
vrf = "blue"
policy = "accept-all"
"#,
    },
    Step {
        name: "what holds for all of BGP",
        ended: &[],
        comes_up: true,
        patch: r#"
[bgp]
as-sets = "accept"
port = 1179
listen = ["10.0.1.1", "10.0.5.1"]
quic-port = 1180
quic-s2n-port = 1181
connect-retry = 2
local-preference = 101
max-paths = 4
bgpsec-pace = 7
nonstop-memory = "64 MiB"
cluster-id = "10.0.0.9"
damping = { half-life = 800, suppress = 5000, reuse = 700, max-suppress = 3500 }
"#,
    },
    Step {
        name: "what no OPEN to a peer says",
        ended: &[],
        comes_up: true,
        patch: r#"
[bgp]
damping = {}
[[bgp.group]]
name = "some"
description = "in a group"
[[bgp.peer]]
name = "one"
description = "a router"
port = 1179
quic-port = 1180
import = "reject-all"
export = "reject-all"
multihop = 5
stale-time = 100
shutdown-text = "back at 5"
connect-retry = 2
max-octets = "256 MiB"
max-cost = 95
damping = false
next-hop-ipv6 = "2001:db8:1::9"
route-server-client = true
own-view = true
[[bgp.peer.limit]]
family = "ipv4-unicast"
received = 20000
accepted = 19000
announced = 18000
warn-percent = 80
action = "restart"
restart-after = 60
[[bgp.peer]]
name = "two"
next-hop = "self"
role-strict = true
allow-own-asn = 1
remove-private-asns = "all"
bgpsec-validation = "prefer"
bfd = { profile = "default", hops = "single", strict = true, strict-hold-time = 9 }
[[bgp.peer]]
name = "three"
md5 = "secret"
group = "some"
local-asn-mode = "replace"
[[bgp.peer]]
name = "inside"
route-reflector-client = true
accept-validity = true
announce-validity = true
orf-prefix-set = "few"
[[bgp.peer]]
name = "secure"
next-hop-ipv4 = "10.0.6.9"
tls-revocations = ["revoked.pem"]
"#,
    },
    Step {
        name: "how processes are confined",
        ended: &[],
        comes_up: true,
        patch: r#"
[sandbox]
mode = "off"
first-user = 60800
[sandbox.limits]
manager = { memory = "2 GiB", cpu = 100000 }
gate = { memory = "2 GiB", cpu = 100000 }
fea = { memory = "2 GiB", cpu = 100000 }
rib = { memory = "2 GiB", cpu = 100000 }
bfd = { memory = "1 GiB", cpu = 100000 }
rip = { memory = "2 GiB", cpu = 100000 }
transport = { memory = "2 GiB", cpu = 100000 }
rpki = { memory = "2 GiB", cpu = 100000 }
replicator = { memory = "2 GiB", cpu = 100000 }
pathsec = { memory = "2 GiB", cpu = 100000 }
bgp = { memory = "4 GiB", cpu = 100000 }
metrics = { memory = "2 GiB", cpu = 100000 }
glass = { memory = "2 GiB", cpu = 100000 }
monitor = { memory = "2 GiB", cpu = 100000 }
"#,
    },
    Step {
        name: "a store in files",
        ended: &[],
        comes_up: true,
        patch: "[nonstop]\nstandby = \"cold\"\n[nonstop.store]\nkind = \"file\"\ndirectory = \"/tmp\"\nlease-directory = \"/tmp\"\non-store-loss = \"step-down\"\n",
    },
    Step {
        name: "a store with a bare key",
        ended: &[],
        comes_up: true,
        patch: "[nonstop.store]\nkind = \"redis\"\naddresses = [\"10.0.1.9:6379\"]\ntransport = \"tls\"\ntls-pins = [\"PIN\"]\ntls-raw-public-key = true\n",
    },
    Step { name: "no RIB", ended: &[], comes_up: true, patch: "rib = { enabled = false }\n" },
    Step {
        name: "what the OPEN says, or carries the connection (1)",
        ended: &["one", "two", "three", "inside", "guests", "secure"],
        comes_up: true,
        patch: r#"
[[bgp.peer]]
name = "one"
hold-time = 30
[[bgp.peer]]
name = "two"
role = "peer"
[[bgp.peer]]
name = "three"
graceful-restart = "off"
[[bgp.peer]]
name = "inside"
families = ["ipv4-unicast", "ipv6-unicast"]
[[bgp.peer]]
name = "guests"
long-lived-stale-time = 600
[[bgp.peer]]
name = "secure"
tls-pins = ["PIN"]
"#,
    },
    Step {
        name: "what the OPEN says, or carries the connection (2)",
        ended: &["one", "two", "three", "inside", "guests", "secure"],
        comes_up: true,
        patch: r#"
[[bgp.peer]]
name = "one"
local-address = "10.0.1.1"
[[bgp.peer]]
name = "two"
add-path = { receive = true }
bgpsec = { receive = true }
[[bgp.peer]]
name = "three"
add-path = { send = 2 }
[[bgp.peer]]
name = "inside"
orf = "both"
[[bgp.peer]]
name = "guests"
listen-range = "10.0.5.0/25"
[[bgp.peer]]
name = "secure"
transport = ["tls", "quic"]
"#,
    },
    Step {
        name: "another neighbour",
        ended: &["one", "two", "three", "inside", "guests", "secure"],
        comes_up: false,
        patch: r#"
[[bgp.peer]]
name = "one"
asn = 65009
bgpsec = { send = true, receive = true, families = ["ipv4"], require-session = true, pcount-zero = true, repeated-prefix = true, most-hops = 9, most-pcount = 99 }
[[bgp.peer]]
name = "two"
address = "10.0.2.77"
[[bgp.peer]]
name = "three"
local-asn = 65111
[[bgp.peer]]
name = "inside"
vrf = "blue"
[[bgp.peer]]
name = "guests"
graceful-restart = "full"
restart-time = 60
[[bgp.peer]]
name = "secure"
tls-name = "(gone)"
tls-authorities = "(gone)"
tls-pins = ["PIN"]
tls-raw-public-key = true
"#,
    },
    Step {
        name: "a neighbour without address",
        ended: &["two"],
        comes_up: false,
        patch: r#"
[[bgp.peer]]
name = "two"
address = "(gone)"
interface = "n2"
"#,
    },
    Step {
        name: "our number",
        ended: &["one", "two", "inside", "guests", "secure"],
        comes_up: false,
        patch: "router = { asn = 65009 }\n",
    },
    Step {
        name: "our identifier",
        ended: &["one", "two", "three", "inside", "guests", "secure"],
        comes_up: true,
        patch: "router = { id = \"10.0.0.2\" }\n",
    },
    Step {
        name: "a confederation",
        ended: &["one", "two", "guests", "secure"],
        comes_up: false,
        patch: "[bgp.confederation]\nid = 65500\nmembers = [65009]\n",
    },
    Step {
        name: "the hold time of all",
        ended: &["one", "two", "three", "inside", "guests", "secure"],
        comes_up: true,
        patch: "bgp = { hold-time = 60 }\n",
    },
    Step {
        name: "another end of a connection, and bgp is replaced",
        ended: &["one"],
        comes_up: true,
        patch: "[bgp]\nmax-paths = 4\n[[bgp.peer]]\nname = \"one\"\nlocal-address = \"10.0.1.1\"\n",
    },
    Step {
        name: "no BGP",
        ended: &["one", "two", "three", "inside", "guests", "secure"],
        comes_up: false,
        patch: "bgp = \"(gone)\"\n",
    },
];

/// Steps to limits that are below what peers have: "one" brings [`LOAD`] prefixes, which all others are told of. From the base
/// and back, each.
pub(super) const LIMITS: [Step; 6] = [
    Step {
        name: "more is received than may be",
        ended: &["one"],
        comes_up: false,
        patch: "[[bgp.peer]]\nname = \"one\"\nlimit = [{ family = \"ipv4-unicast\", received = 1000 }]\n",
    },
    Step {
        name: "more is accepted than may be",
        ended: &["one"],
        comes_up: false,
        patch: "[[bgp.peer]]\nname = \"one\"\nlimit = [{ family = \"ipv4-unicast\", accepted = 1000, action = \"restart\" }]\n",
    },
    Step {
        name: "a peer of a group and a member of a range are told of more than may be",
        ended: &["guests", "two"],
        comes_up: false,
        patch: r#"
[[bgp.group]]
name = "few"
limit = [{ family = "ipv4-unicast", announced = 1000 }]
[[bgp.peer]]
name = "two"
group = "few"
[[bgp.peer]]
name = "guests"
limit = [{ family = "ipv4-unicast", announced = 1000 }]
"#,
    },
    Step {
        name: "more octets are kept than may be",
        ended: &["one"],
        comes_up: false,
        patch: "[[bgp.peer]]\nname = \"one\"\nmax-octets = \"1 MiB\"\n",
    },
    Step {
        name: "more is received than may be, and bgp is replaced",
        ended: &["one"],
        comes_up: false,
        patch: "[bgp]\nmax-paths = 4\n[[bgp.peer]]\nname = \"one\"\nlimit = [{ family = \"ipv4-unicast\", received = 1000 }]\n",
    },
    Step {
        name: "as much as may be, and a limit that only warns",
        ended: &[],
        comes_up: true,
        patch: r#"
[[bgp.peer]]
name = "one"
limit = [{ family = "ipv4-unicast", received = 15001, accepted = 15001 }]
max-octets = "64 MiB"
[[bgp.peer]]
name = "guests"
limit = [{ family = "ipv4-unicast", announced = 1000, action = "warn" }]
"#,
    },
];

/// Prefixes that "one" brings beside its own.
pub(super) const LOAD: u32 = 15_000;

/// Steps that leave sessions behind that do not outlive `bgp`, at the end: each from the one before.
pub(super) const LAST: [Step; 7] = [
    Step {
        name: "a session that is not to outlive bgp",
        ended: &[],
        comes_up: true,
        patch: "[[bgp.peer]]\nname = \"one\"\nnonstop = false\n",
    },
    Step { name: "bgp is replaced", ended: &["one"], comes_up: true, patch: "bgp = { max-paths = 4 }\n" },
    Step {
        name: "none is to, and bgp is replaced: those that were to go on",
        ended: &["one"],
        comes_up: true,
        patch: "bgp = { nonstop = false, max-paths = 5 }\n",
    },
    Step {
        name: "all are to, from their next session on",
        ended: &[],
        comes_up: true,
        patch: "bgp = { nonstop = true }\n",
    },
    Step {
        name: "one has such a session",
        ended: &["one"],
        comes_up: true,
        patch: "[[bgp.peer]]\nname = \"one\"\nnonstop = \"(gone)\"\nhold-time = 33\n",
    },
    Step {
        name: "bgp is replaced again",
        ended: &["two", "three", "inside", "guests", "secure"],
        comes_up: true,
        patch: "bgp = { max-paths = 8 }\n",
    },
    Step {
        name: "kept down, and under another name",
        ended: &["one"],
        comes_up: false,
        patch: "[[bgp.peer]]\nname = \"one\"\ndisabled = true\n[[bgp.peer]]\nname = \"three\"\nrenamed = \"four\"\n",
    },
];

impl Flag {
    /// A configuration in which it is not what it is by default.
    pub(super) fn turned(&self, table: &Table) -> Result<Table> {
        let line = format!("{} = {}", self.key, !self.default);
        let patch = match self.of_peer {
            true => format!("[[bgp.peer]]\nname = \"one\"\n{line}"),
            false => format!("[bgp]\n{line}"),
        };
        Ok(patched(table, &patch.parse()?))
    }
}

/// A table with what a patch says.
pub(super) fn patched(table: &Table, patch: &Table) -> Table {
    let mut table = table.clone();
    for (key, value) in patch {
        match (table.get_mut(key), value) {
            (_, Value::String(text)) if text == GONE => drop(table.remove(key)),
            (Some(Value::Table(before)), Value::Table(patch)) => *before = patched(before, patch),
            (Some(Value::Array(before)), Value::Array(patches)) if patches.iter().any(Value::is_table) => {
                patches.iter().for_each(|patch| patch_list(before, patch));
            }
            _ => drop(table.insert(key.clone(), value.clone())),
        }
    }
    if let Some(name) = table.remove("renamed") {
        table.insert("name".into(), name);
    }
    table
}

fn patch_list(list: &mut Vec<Value>, patch: &Value) {
    let named =
        list.iter_mut().find(|value| value.get("name").is_some() && value.get("name") == patch.get("name"));
    match (named, patch) {
        (Some(Value::Table(before)), Value::Table(patch)) => *before = patched(before, patch),
        _ => list.push(patch.clone()),
    }
}
