//! Prints what evaluating a policy costs: `cargo run --release -p holdfast-policy --example evaluate`.

use std::{hint::black_box, net::IpAddr, time::Instant};

use holdfast_policy::{
    Action, Condition, Edits, Library, Origin, Outcome, PathElement, Policy, PolicySource, PrefixRange,
    PrefixSet, Program, Protocol, Route, Term,
};
use holdfast_types::{Asn, Ipv4Prefix, Prefix};

struct Sample {
    prefix: Prefix,
    path: [u32; 4],
    communities: [u32; 4],
}

impl Route for Sample {
    fn prefix(&self) -> Prefix {
        self.prefix
    }
    fn as_path(&self) -> impl Iterator<Item = PathElement> {
        self.path.iter().map(|&asn| PathElement::Sequence(Asn(asn)))
    }
    fn as_path_length(&self) -> u32 {
        4
    }
    fn origin(&self) -> Origin {
        Origin::Igp
    }
    fn med(&self) -> Option<u32> {
        None
    }
    fn local_pref(&self) -> Option<u32> {
        None
    }
    fn next_hop(&self) -> Option<IpAddr> {
        None
    }
    fn communities(&self) -> impl Iterator<Item = u32> {
        self.communities.iter().copied()
    }
    fn large_communities(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        std::iter::empty()
    }
    fn ext_communities(&self) -> impl Iterator<Item = u64> {
        std::iter::empty()
    }
    fn peer_asn(&self) -> Option<Asn> {
        Some(Asn(1))
    }
    fn protocol(&self) -> Protocol {
        Protocol::Bgp
    }
    fn tag(&self) -> Option<u32> {
        None
    }
}

/// A different number for each `n`, always the same (splitmix64).
fn scatter(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

fn prefix(n: u64) -> Prefix {
    let address = (scatter(n) as u32).into();
    Ipv4Prefix::new(address, 20 + (n % 5) as u8).expect("at most 24").into()
}

fn routes() -> Vec<Sample> {
    let asn = |n: u64| 1000 + (scatter(n) % 60_000) as u32;
    let sample = |n: u64| Sample {
        prefix: prefix(n),
        path: [1, asn(n), asn(n + 1), asn(n + 2)],
        communities: [1 << 16 | 7, asn(n) << 16, 3, 4],
    };
    (0..100_000).map(sample).collect()
}

/// A list of bogons, two refusals by path and community, a change, an acceptance.
fn five_terms(entries: u64) -> PolicySource {
    let prefixes = (0..entries).map(|n| PrefixRange::or_longer(prefix(n * 1_000_003))).collect();
    let parse = |text: &str| vec![text.parse().expect("a pattern")];
    let term = |name: &str, from: Vec<Condition>, then: Vec<Action>, outcome| Term {
        name: name.into(),
        from,
        then,
        outcome,
    };
    let terms = vec![
        term("bogons", vec![Condition::PrefixSet(vec!["bogons".into()])], vec![], Outcome::Reject),
        term(
            "private",
            vec![Condition::AsPath(vec!["* 64512-65534 *".parse().expect("a pattern")])],
            vec![],
            Outcome::Reject,
        ),
        term("unwanted", vec![Condition::Community(parse("65001:666"))], vec![], Outcome::Reject),
        term(
            "ours",
            vec![Condition::OriginAs(vec![Asn(65001).into()])],
            vec![Action::LocalPreference(200)],
            Outcome::Accept,
        ),
        term("rest", vec![], vec![Action::LocalPreference(80)], Outcome::Accept),
    ];
    PolicySource {
        prefix_sets: vec![PrefixSet { name: "bogons".into(), prefixes }],
        policies: vec![Policy { name: "import".into(), first: vec![], terms, last: None }],
        ..PolicySource::default()
    }
}

/// The best of several rounds: what the work takes when nothing else runs.
fn measure(name: &str, program: &Program, routes: &[Sample]) {
    let mut edits = Edits::default();
    let round = |_| {
        let start = Instant::now();
        for route in routes {
            black_box(program.evaluate(black_box(route), &mut edits));
        }
        start.elapsed().as_nanos() as f64 / routes.len() as f64
    };
    let best = (0..30).map(round).fold(f64::INFINITY, f64::min);
    println!("{name:<40}{best:6.1} ns a route");
}

fn main() {
    let routes = routes();
    measure("accept-all", &Program::accept_all(), &routes);
    for entries in [10, 10_000] {
        let start = Instant::now();
        let library = Library::compile(&five_terms(entries), 1).expect("compiles");
        let compiled = start.elapsed();
        let program = library.get("import").expect("is there");
        measure(&format!("five terms, set of {entries} prefixes"), program, &routes);
        println!("{:<40}{compiled:6.1?} to compile", "");
    }
}
