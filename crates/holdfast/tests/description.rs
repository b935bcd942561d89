//! The description of the keys says what the reader does, and the files that are made from it are up to date.
//!
//! `HOLDFAST_ACCEPT=1 cargo test -p holdfast-holdfast description` writes those files.

use std::{collections::BTreeSet, fs, path::PathBuf};

use holdfast_config::{
    describe::{Default, Key, Table, Type, descriptor_schema, json_schema, reference},
    parse,
};

const EVERY_KEY: &str = include_str!("every-key.toml");

/// Tables in which every default of the description can be put, and stays one.
const LEAST: &str = r#"
[router]
id = "10.0.0.1"
asn = 65001
[log]
[metrics]
[glass]
[fea]
[sandbox]
[admission.unvalidated]
[admission.by-address]
[rib.distance]
[[vrf]]
name = "blue"
table = 100
[[static]]
prefix = "192.0.2.0/24"
next-hop = "10.1.0.9"
[[static]]
prefix = "198.51.100.0/24"
next-hop = "10.1.0.9"
bfd = {}
[[protocol]]
name = "toy"
[[rpki.cache]]
name = "validator"
address = "192.0.2.8"
[nonstop.store]
kind = "redis"
addresses = ["192.0.2.7:6379"]
[bgpsec]
[bgp]
[bgp.damping]
[[bgp.peer]]
name = "a"
address = "10.1.0.2"
asn = 65101
add-path = {}
bgpsec = {}
[[bgp.peer.limit]]
family = "ipv4-unicast"
received = 1
[[bgp.peer]]
name = "b"
address = "10.1.0.3"
asn = 65102
bfd = {}
[[bgp.peer]]
name = "c"
address = "10.1.0.4"
asn = 65103
bfd = { strict = true }
[[bgp.network]]
prefix = "192.0.2.0/24"
[[bgp.aggregate]]
prefix = "192.0.2.0/24"
[[bgp.mrt]]
file = "/var/lib/holdfast/updates.mrt"
[[bgp.bmp]]
name = "collector"
address = "192.0.2.9"
[[policy]]
name = "p"
[[policy.term]]
from = { med = { min = 3 }, local-preference = { max = 3 }, prefix-length = { min = 3 } }
then = { prepend = { asn = 65010 } }
[[policy.term]]
from = { prefix-length = { max = 3 } }
then = "next"
[[xrl.client]]
name = "alice"
key = "0123456789abcdef"
"#;

fn read(text: &str) -> toml::Table {
    text.parse().expect("TOML")
}

/// Which key of which table, as its place in memory: several keys may share one table.
fn identity(key: &Key) -> usize {
    std::ptr::from_ref(key) as usize
}

/// Every key below a table, with a name for messages.
fn all_keys(above: &str, table: &'static Table) -> Vec<(String, &'static Key)> {
    let below = |key: &'static Key| {
        let name = format!("{above}{}", key.name);
        let inner = key.value.table().map(|table| all_keys(&format!("{name}."), table));
        std::iter::once((name, key)).chain(inner.unwrap_or_default())
    };
    table.keys.iter().flat_map(below).collect()
}

/// The tables that stand in a file under a key.
fn below(value: &toml::Value) -> Vec<&toml::Table> {
    match value {
        toml::Value::Table(table) => vec![table],
        toml::Value::Array(list) => list.iter().filter_map(toml::Value::as_table).collect(),
        _ => Vec::new(),
    }
}

fn used(table: &toml::Table, described: &'static Table, found: &mut BTreeSet<usize>) {
    for (name, value) in table {
        let key = described.key(name).unwrap_or_else(|| panic!("`{name}` is not described"));
        found.insert(identity(key));
        if let Some(inner) = key.value.table() {
            below(value).into_iter().for_each(|table| used(table, inner, found));
        }
    }
}

#[test]
fn the_reader_takes_every_key_that_is_described() {
    if let Err(wrong) = parse(EVERY_KEY, "every-key.toml", super::schema()) {
        panic!("described and not read?\n{wrong}");
    }
    let mut found = BTreeSet::new();
    used(&read(EVERY_KEY), super::schema().file(), &mut found);
    let missing: Vec<_> = all_keys("", super::schema().file())
        .into_iter()
        .filter(|(_, key)| !key.once && !found.contains(&identity(key)))
        .collect();
    let missing: Vec<_> = missing.into_iter().map(|(name, _)| name).collect();
    assert!(missing.is_empty(), "not in tests/every-key.toml: {missing:?}");
}

/// One key with its default put into one table of a file.
struct Variant {
    key: &'static Key,
    file: toml::Table,
}

fn variants(
    table: &toml::Table,
    described: &'static Table,
    whole: &dyn Fn(toml::Table) -> toml::Table,
    found: &mut Vec<Variant>,
) {
    for key in described.keys {
        if let Default::Is(default) = key.default
            && !table.contains_key(key.name)
        {
            let mut table = table.clone();
            table.insert(key.name.into(), read(&format!("x = {default}"))["x"].clone());
            found.push(Variant { key, file: whole(table) });
        }
        let (Some(inner), Some(value)) = (key.value.table(), table.get(key.name)) else { continue };
        for (place, below) in below(value).into_iter().enumerate() {
            let put = |changed: toml::Table| {
                let mut table = table.clone();
                match &mut table[key.name] {
                    toml::Value::Array(list) => list[place] = changed.into(),
                    value => *value = changed.into(),
                }
                whole(table)
            };
            variants(below, inner, &put, found);
        }
    }
}

#[test]
fn defaults_are_those_of_the_reader() {
    let least = parse(LEAST, "least", super::schema()).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut found = Vec::new();
    variants(&read(LEAST), super::schema().file(), &|file| file, &mut found);
    for Variant { key, file } in &found {
        let same = parse(&file.to_string(), "with a default", super::schema())
            .unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(same == least, "`{}` is not {:?} by default", key.name, key.default);
    }
    let tried: BTreeSet<_> = found.iter().map(|variant| identity(variant.key)).collect();
    // Sections of one process each are read by their rows, and have the defaults of those.
    let processes = super::processes();
    let own: Vec<_> = processes.as_configured().filter_map(|process| Some(process.section()?.key)).collect();
    for (name, key) in all_keys("", super::schema().file()) {
        if own.iter().any(|section| name.split('.').next() == Some(section)) {
            continue;
        }
        let tried = tried.contains(&identity(key)) || !matches!(key.default, Default::Is(_));
        assert!(tried, "no table in which the default of `{name}` can be tried");
    }
}

#[test]
fn keys_are_unique_and_explained() {
    for (name, key) in all_keys("", super::schema().file()) {
        assert!(!key.doc.is_empty() && !key.doc.contains('\n'), "{name}");
        if let Some(table) = key.value.table() {
            let names: BTreeSet<_> = table.names().collect();
            assert_eq!(names.len(), table.keys.len(), "{name}");
        }
        if let Type::Tables(table, by) = key.value {
            assert!(table.key(by).is_some(), "{name} are named by a key that they have");
        }
    }
}

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn compare(name: &str, expected: &str) {
    let path = docs(name);
    if std::env::var_os("HOLDFAST_ACCEPT").is_some() {
        fs::write(&path, expected).expect("the file can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{name} is not up to date: see the head of this test");
}

#[test]
fn the_json_schema_is_up_to_date() {
    let schema = serde_json::to_string_pretty(&json_schema(super::schema().file())).expect("serialises");
    compare("holdfast.schema.json", &format!("{schema}\n"));
}

#[test]
fn the_json_schema_of_descriptors_is_up_to_date() {
    let schema = serde_json::to_string_pretty(&descriptor_schema()).expect("serialises");
    compare("descriptor.schema.json", &format!("{schema}\n"));
}

#[test]
fn the_reference_page_is_up_to_date() {
    let mut page = fs::read_to_string(docs("manual/configuration.md")).expect("the page is there");
    for (title, table) in reference(super::schema().file()) {
        let begin = format!("<!-- keys of {title} -->\n");
        let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page lacks {begin}"));
        let (_, after) = rest.split_once("<!-- end -->").expect("an end");
        page = format!("{before}{begin}{table}<!-- end -->{after}");
    }
    compare("manual/configuration.md", &page);
}
