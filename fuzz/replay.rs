//! What tests share that replay a corpus: each seed, then mutations of them, the same everywhere and always.

use std::{fs, path::Path};

/// Knuth's MMIX generator.
pub(crate) struct Lcg(pub(crate) u64);

impl Lcg {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
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

/// The seeds of `fuzz/corpus/TARGET`, and what fuzzers have found beside them.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let seeds = files.iter().map(|path| fs::read(path).expect("a readable file"));
    // Not there for every target.
    let found = fs::read_to_string(folder.with_extension("found")).unwrap_or_default();
    seeds.chain(found.lines().map(octets)).collect()
}

fn octets(line: &str) -> Vec<u8> {
    let octet = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).expect("digits"), 16).expect("hex");
    line.as_bytes().as_chunks().0.iter().map(octet).collect()
}

/// Runs the body of a target over its seeds and so many mutations of them.
pub(crate) fn replay(target: &str, mutations: usize, run: impl Fn(&[u8])) {
    let seeds = corpus(target);
    assert!(!seeds.is_empty(), "no corpus for {target}");
    seeds.iter().for_each(|seed| run(seed));
    let mut random = Lcg(1);
    for _ in 0..mutations {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            random.mutate(&mut bytes);
        }
        run(&bytes);
    }
}
