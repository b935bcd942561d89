//! The fuzz target `session` over its corpus and some mutations of it.

use std::{fs, path::Path};

use crate::{
    sequence::session,
    table::{From, rows},
};

/// Mutations of the corpus: fewer than of others, because each is a router.
const MUTATIONS: usize = 3000;

/// Knuth's MMIX generator: the same mutations everywhere, always.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        match self.below(8) {
            0 => bytes.insert(at, self.below(256) as u8),
            1 => bytes.truncate(at),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            _ if at < bytes.len() => bytes[at] = [0, 1, 2, 3, 4, 14, 64, 255][self.below(8)],
            _ => bytes.push(0),
        }
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/session");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.iter().map(|path| fs::read(path).expect("a readable file")).collect()
}

/// A step of a sequence.
fn step(kind: u8, octets: &[u8]) -> Vec<u8> {
    [&[kind][..], &(octets.len() as u16).to_be_bytes(), octets].concat()
}

#[test]
fn sequences_break_no_promise() {
    let mut random = Lcg(1);
    let seeds = corpus();
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| session(seed));
    for _ in 0..MUTATIONS {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            random.mutate(&mut bytes);
        }
        session(&bytes);
    }
}

#[test]
fn rows_of_the_table_in_any_order_break_no_promise() {
    let mut random = Lcg(2);
    let rows = rows();
    for _ in 0..300 {
        // Any peer: what is good for one is strange from another.
        let mut sequence = vec![[0, 1, 2, 8, 16][random.below(5)]];
        for _ in 0..random.below(12) {
            let row = &rows[random.below(rows.len())];
            let octets = match random.below(6) {
                0 => step(random.below(8) as u8, &[0]),
                _ if row.from == From::Confed => step(5, &[]),
                _ => step(0, &row.body),
            };
            sequence.extend(octets);
        }
        session(&sequence);
    }
}
