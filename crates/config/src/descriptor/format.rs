//! What a descriptor may say, as rows: the one source of its reading, its hints and its JSON schema.

use crate::{
    describe::{
        Default::{Else, Is, Required},
        Effect::Reload,
        Form, Table,
        Type::{self, Bool, Like, List, Number, Text, Word},
        key, tables,
    },
    keys::types::{DISTANCE, SIZE},
};

const WORDS: Type = Text("a few words", "speaks a protocol of my own");
const NAME: Type = Text("a letter, then letters, digits or `-`, all lower case", "neighbors");
const PATH: Type = Text("absolute path", "/opt/igp");
const NUMBER: Type = Number(0, u32::MAX as u64);

/// The types that a key of a section may have.
const TYPES: [&str; 14] = [
    "bool",
    "number",
    "word",
    "text",
    "secret",
    "address",
    "prefix",
    "interface",
    "asn",
    "policy",
    "vrf",
    "protocol",
    "table",
    "tables",
];

/// The types that an argument of a command may have: what can be read without the configuration.
const ARGUMENTS: [&str; 8] = ["bool", "number", "word", "text", "address", "prefix", "interface", "asn"];

/// A descriptor.
pub static FORMAT: Table = Table {
    doc: "What the router has to know of a protocol of others.",
    keys: &[
        key("does", WORDS, Required, Reload, "what it does, after \"the process that\""),
        key("doc", WORDS, Required, Reload, "what its section of the configuration is about"),
        key(
            "program",
            Text("absolute path", "/usr/bin/python3"),
            Required,
            Reload,
            "the program that is executed",
        ),
        key("arguments", List(&Text("text", "/opt/igp/igp.py")), Is("[]"), Reload, "its arguments"),
        key(
            "reads",
            List(&PATH),
            Is("[]"),
            Reload,
            "files and directories that it may read besides the program and the libraries of the system",
        ),
        key(
            "user",
            Number(0, 255),
            Else("a number that follows from its name"),
            Reload,
            "as which of the users for protocols it runs",
        ),
        key(
            "distance",
            DISTANCE,
            Is("120"),
            Reload,
            "administrative distance of its routes, where `[rib.distance]` has no other",
        ),
        key(
            "memory",
            SIZE,
            Else("none"),
            Reload,
            "memory that it may use, where `[sandbox.limits]` has no other",
        ),
        key(
            "cpu",
            Number(1, 100_000),
            Else("none"),
            Reload,
            "processor time in percent of one processor, where `[sandbox.limits]` has no other",
        ),
        key(
            "hang-limit",
            Number(0, 3600),
            Else("that of the router"),
            Reload,
            "seconds after which it is killed if it does not answer; 0: never",
        ),
        tables("datagrams", &DATAGRAMS, ""),
        tables("raw", &RAW, ""),
        tables("key", &KEY, "name"),
        tables("show", &COMMAND, "name"),
        tables("clear", &COMMAND, "name"),
    ],
};

static DATAGRAMS: Table = Table {
    doc: "UDP that it sends and receives on the interfaces that its section names.",
    keys: &[
        key("port", Number(1, 65_535), Required, Reload, "the port, of both ends"),
        key(
            "group",
            Type::Form(Form::Address),
            Required,
            Reload,
            "the multicast group that is joined; its family is that of the datagrams",
        ),
        key("hops", Number(1, 255), Is("1"), Reload, "TTL or hop limit of what is sent"),
    ],
};

static RAW: Table = Table {
    doc: "Raw IP packets that it sends and receives on those interfaces, by way of the router; one of a family and protocol number.",
    keys: &[
        key("family", Word(&["ipv4", "ipv6"]), Required, Reload, "the family"),
        key(
            "protocol",
            Number(0, 255),
            Required,
            Reload,
            "the protocol number, in IPv6 the next header; none of a protocol that the kernel speaks, or that carries other packets",
        ),
        key(
            "groups",
            List(&Type::Form(Form::Address)),
            Is("[]"),
            Reload,
            "multicast groups that are joined, 16 at most",
        ),
        key("hops", Number(1, 255), Is("1"), Reload, "TTL or hop limit of what is sent"),
    ],
};

static COMMAND: Table = Table {
    doc: "A command of `holdfast show NAME` or `holdfast clear NAME`; the first is that of the name alone.",
    keys: &[
        key("name", NAME, Required, Reload, "its word"),
        key("doc", WORDS, Required, Reload, "what it shows or clears"),
        tables("argument", &ARGUMENT, "name"),
    ],
};

static ARGUMENT: Table = Table {
    doc: "An argument of the command: one that is required follows it, in this order; any other is an option, `--NAME`.",
    keys: &[
        key(
            "name",
            NAME,
            Required,
            Reload,
            "what the program knows it by; not `help`, `json`, `router` or `runtime-dir`",
        ),
        key(
            "type",
            Word(&ARGUMENTS),
            Required,
            Reload,
            "what its value is; an option of type `bool` has none, and is true",
        ),
        key("doc", WORDS, Required, Reload, "what it means"),
        key("required", Bool, Is("false"), Reload, "it has to be given"),
        key("range", List(&NUMBER), Is("[0, 4294967295]"), Reload, "the least and the greatest `number`"),
        key(
            "words",
            List(&Text("text", "fast")),
            Else("required for a `word`"),
            Reload,
            "what a `word` may be",
        ),
        key("what", WORDS, Is("\"text\""), Reload, "what a `text` is"),
        key("example", Text("text", "hello"), Is("\"\""), Reload, "an example of a `text`"),
    ],
};

static KEY: Table = Table {
    doc: "A key of its section.",
    keys: &[
        key("name", NAME, Required, Reload, "as in the file"),
        key(
            "type",
            Word(&TYPES),
            Required,
            Reload,
            "what its value is; `interface` names an interface where datagrams are wanted, `vrf` beside it the VRF of that",
        ),
        key("doc", WORDS, Required, Reload, "what it means"),
        key("list", Bool, Is("false"), Reload, "the value is a list of these"),
        key("required", Bool, Is("false"), Reload, "it has to be given"),
        key(
            "default",
            Type::Either(&[Bool, NUMBER, Text("text", ""), List(&Text("text", "")), List(&NUMBER)]),
            Else("none"),
            Reload,
            "the value where it is not given; for a list, a list",
        ),
        key("range", List(&NUMBER), Is("[0, 4294967295]"), Reload, "the least and the greatest `number`"),
        key(
            "words",
            List(&Text("text", "fast")),
            Else("required for a `word`"),
            Reload,
            "what a `word` may be",
        ),
        key("what", WORDS, Is("\"text\""), Reload, "what a `text` or a `secret` is"),
        key("example", Text("text", "hello"), Is("\"\""), Reload, "an example of a `text` or a `secret`"),
        key("by", NAME, Is("\"name\""), Reload, "the key that names each of the `tables`"),
        key(
            "key",
            List(&Like(&KEY, "key")),
            Else("required for a `table` and for `tables`"),
            Reload,
            "the keys of a `table`, or of each of the `tables`",
        ),
    ],
};
