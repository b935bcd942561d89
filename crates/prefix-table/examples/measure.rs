//! Prints time and memory per prefix for seeded synthetic tables.
//!
//! `cargo run --release -p holdfast-prefix-table --example measure [prefixes]`

use std::{collections::BTreeSet, env, time::Instant};

use holdfast_prefix_table::{PrefixTable, Value};
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix};

/// Splitmix64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
    }
}

/// Allocations of `spread` bits with prefixes of up to `longest` bits inside, most of them of full length.
fn synthetic<P: IpPrefix>(count: usize, spread: u32, longest: u8, random: &mut Random) -> Vec<P> {
    let mut set = BTreeSet::new();
    let top = u128::from(P::WIDTH == 128) << 125;
    while set.len() < count {
        let block = u128::from(random.next()) << 64 >> (128 - spread) << (128 - spread);
        let block = if P::WIDTH == 128 { top | block >> 3 } else { block };
        for _ in 0..1 + random.next() % 60 {
            let bits = block | u128::from(random.next()) << 64 >> spread;
            let shorter = if random.next() % 10 < 6 { 0 } else { random.next() % 6 };
            set.insert(P::from_bits(bits, longest - shorter as u8));
        }
    }
    let mut all: Vec<P> = set.into_iter().collect();
    random.shuffle(&mut all);
    all.truncate(count);
    all
}

fn timed(name: &str, count: usize, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    print!("  {name} {:.0}", start.elapsed().as_nanos() as f64 / count as f64);
}

fn measure<P: IpPrefix, V: Value + From<u32>>(name: &str, arrivals: &[P], queries: &[P]) {
    let count = arrivals.len();
    let mut table = PrefixTable::<P, V>::new(HashKey::new([42, 0]));
    let empty = table.memory();
    print!("{name}, {count} prefixes; ns:");
    timed("insert", count, || {
        assert!(arrivals.iter().enumerate().all(|(i, p)| table.insert(*p, V::from(i as u32)).is_none()));
    });
    let bytes = (table.memory() - empty) as f64 / count as f64;
    timed("get", count, || assert!(queries.iter().all(|p| table.get(*p).is_some())));
    timed("get after prefetch", count, || {
        for batch in queries.chunks(64) {
            table.prefetch(batch);
            assert!(batch.iter().all(|p| table.get(*p).is_some()));
        }
    });
    let mut each = PrefixTable::<P, V>::new(HashKey::new([42, 0]));
    timed("insert of 64 at once", count, || {
        arrivals.chunks(64).for_each(|batch| each.update_each(batch, |_, _| Some(V::from(1))));
    });
    timed("update of 64 at once", count, || {
        queries.chunks(64).for_each(|batch| each.update_each(batch, |_, _| Some(V::from(2))));
    });
    timed("longest match", count, || assert!(queries.iter().all(|p| table.longest_match(*p).is_some())));
    timed("walk", count, || assert_eq!(table.iter().count(), count));
    timed("walk in slices of 64", count, || {
        let mut last = table.iter().take(64).last();
        while let Some((prefix, _)) = last {
            last = table.iter_from(prefix, false).take(64).last();
        }
    });
    let mut other = PrefixTable::<P, V>::new(HashKey::new([42, 0]));
    assert!(arrivals.iter().all(|p| other.insert(*p, V::from(1)).is_none()));
    timed("retain", count, || assert_eq!(other.retain(None, usize::MAX, |_, _| None), None));
    timed("remove", count, || assert!(queries.iter().all(|p| table.remove(*p).is_some())));
    println!("; bytes {bytes:.1}, {} of them the value; empty {empty} B", V::WORDS * 4);
}

fn both<P: IpPrefix>(name: &str, mut prefixes: Vec<P>, random: &mut Random) {
    let mut queries = prefixes.clone();
    random.shuffle(&mut queries);
    measure::<P, u32>(&format!("{name} random, u32"), &prefixes, &queries);
    measure::<P, u64>(&format!("{name} random, u64"), &prefixes, &queries);
    prefixes.sort();
    measure::<P, u32>(&format!("{name} in order, u32"), &prefixes, &queries);
}

fn main() {
    let count = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let random = &mut Random(20_260_619);
    both::<Ipv4Prefix>("IPv4 clustered", synthetic(count, 16, 24, random), random);
    both::<Ipv6Prefix>("IPv6 clustered", synthetic(count / 4, 38, 48, random), random);
    both::<Ipv6Prefix>("IPv6 sparse", synthetic(count / 4, 1, 48, random), random);
}
