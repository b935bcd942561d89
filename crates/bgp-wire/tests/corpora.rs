//! The fuzz targets over their corpora and some ten thousand mutations of them: what a fuzzer has once found stays
//! found, on any machine.

use std::{fs, path::Path};

use holdfast_bgp_wire::fuzzing::TARGETS;

/// Knuth's MMIX generator: the same mutations everywhere, always.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// A changed, an inserted or a removed octet, or a cut.
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

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files.iter().map(|path| fs::read(path).expect("a readable file")).collect()
}

#[test]
fn corpora_and_their_mutations_break_no_promise() {
    const MUTATIONS: usize = 40_000;
    let mut random = Lcg(1);
    for (name, run) in TARGETS {
        let seeds = corpus(name);
        assert!(!seeds.is_empty(), "no corpus for {name}");
        seeds.iter().for_each(|seed| run(seed));
        for _ in 0..MUTATIONS {
            let mut bytes = seeds[random.below(seeds.len())].clone();
            for _ in 0..=random.below(4) {
                random.mutate(&mut bytes);
            }
            run(&bytes);
        }
    }
}
