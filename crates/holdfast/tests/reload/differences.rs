//! What people read of another configuration.

use holdfast_config::Schema;

use super::fixtures::{changes, config};

#[test]
fn what_is_different_is_told_by_name() {
    let new = config(&[("192.0.2.0", "192.0.3.0"), ("accept-all", "reject-all"), ("\"b\"", "\"c\"")]);
    let expected = [
        "static routes added: 192.0.3.0/24",
        "static routes removed: 192.0.2.0/24",
        "peers added: c",
        "peers removed: b",
        "peers changed: a",
    ];
    assert_eq!(changes(&config(&[]), &new), expected);
    assert!(changes(&config(&[]), &config(&[])).is_empty());
}

#[test]
fn every_key_of_a_table_by_itself_is_told_of() {
    let lines = |changed: &[(&str, &str)]| changes(&config(&[]), &config(changed));
    for (text, line) in [
        ("[sandbox]\nmode = \"off\"\n[bgp]", "[sandbox] changed"),
        ("[sandbox]\nfirst-user = 0\n[bgp]", "[sandbox] changed"),
        ("[log]\nformat = \"json\"\n[bgp]", "[log] changed"),
        ("[bgp]\nas-sets = \"accept\"", "[bgp] changed"),
        ("[bgp]\nconsistency-check = true", "[bgp] changed"),
        ("[bgp]\nalways-compare-med = true", "[bgp] changed"),
        ("[bgp.confederation]\nid = 65100\n[bgp]", "[bgp] changed"),
    ] {
        assert_eq!(lines(&[("[bgp]", text)]), [line], "{text}");
    }
    assert_eq!(lines(&[("65000", "65009")]), ["[router] changed"]);
    let none = Schema::new([]);
    let none = holdfast_config::parse("router = { id = \"10.0.0.1\", asn = 65000 }", "test", none);
    let none = none.expect("no errors");
    assert!(changes(&none, &config(&[])).contains(&"[bgp] added".to_owned()));
    assert!(changes(&config(&[]), &none).contains(&"[bgp] removed".to_owned()));
}
