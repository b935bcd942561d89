//! What the hot paths cost on this machine, in nanoseconds: `cargo run --release -p holdfast-bgp-wire --example costs`.

use std::{hint::black_box, time::Instant};

use holdfast_bgp_wire::{
    Attributes, MAX_LEN, Origin, UpdateEncoder,
    edit::{AttributesBuilder, Change, Edit, Values, rewrite},
    nlri,
    update::{AsSets, Checked, PeerKind, Rules, check, cut},
};
use holdfast_types::{Asn, IpPrefix, Ipv4Prefix};

const RULES: Rules = Rules::new(PeerKind::Ebgp, AsSets::Reject);

/// The best of some batches of calls, each of which does `items` things: what others do on the machine is not ours.
fn measure(what: &str, items: usize, mut work: impl FnMut()) {
    const CALLS: usize = 20_000;
    let mut batch = || {
        let start = Instant::now();
        (0..CALLS).for_each(|_| work());
        start.elapsed()
    };
    let best = (0..50).map(|_| batch()).min().unwrap_or_default();
    println!("{what:40} {:7.1} ns", best.as_nanos() as f64 / (CALLS * items) as f64);
}

/// Four hops, MED, four communities: what perf measurements on real tables call usual.
fn usual_attributes() -> Vec<u8> {
    AttributesBuilder {
        as_path: [64500, 3356, 1299, 64999].map(Asn).into(),
        next_hop: Some([192, 0, 2, 1].into()),
        med: Some(10),
        communities: vec![1, 2, 3, 4],
        ..AttributesBuilder::new(Origin::Igp)
    }
    .build()
}

fn main() {
    let attributes = usual_attributes();
    let (mut out, mut checked) = (Vec::with_capacity(8192), Checked::default());
    measure("cut", 1, || _ = black_box(cut(black_box(&attributes), &mut out)));
    measure("check", 1, || _ = black_box(check(black_box(&attributes), true, &RULES, &mut checked)));
    measure("as path: hops, first, contains", 1, || {
        let path = Attributes(black_box(&attributes)).as_path();
        black_box((path.hops(), path.first_as(), path.contains(Asn(65000))));
    });

    let export = Edit {
        prepend: &[(Asn(65000), 1)],
        next_hop: Change::Set([192, 0, 2, 9].into()),
        med: Change::Remove,
        external: true,
        ..Edit::default()
    };
    let tagging = Edit { communities: Values { add: &[77], ..Values::default() }, ..export };
    for (what, edit) in [("rewrite for eBGP", export), ("rewrite for eBGP, a community added", tagging)] {
        measure(what, 1, || {
            out.clear();
            rewrite(black_box(&attributes), &edit, &mut out);
        });
    }

    let prefixes: Vec<_> =
        (0..7u128).map(|i| Ipv4Prefix::from_bits((0x0a00_0000 + (i << 8)) << 96, 24)).collect();
    let mut list = Vec::new();
    prefixes.iter().for_each(|prefix| nlri::push_prefix(&mut list, *prefix));
    measure("count, per prefix", 7, || _ = black_box(nlri::count::<Ipv4Prefix>(black_box(&list))));
    measure("read, per prefix", 7, || {
        nlri::prefixes::<Ipv4Prefix>(black_box(&list)).for_each(|prefix| _ = black_box(prefix));
    });
    let encoder = UpdateEncoder::new(MAX_LEN);
    measure("encode an UPDATE of seven prefixes", 1, || {
        out.clear();
        _ = black_box(encoder.announce(&attributes, prefixes.iter().copied(), &mut out));
    });
}
