//! The table against an ordered map: the same operations on both, and the same answers.

use std::{collections::BTreeMap, ops::Bound};

use holdfast_prefix_table::{PrefixTable, Value};
use holdfast_types::{HashKey, IpPrefix, Ipv4Prefix, Ipv6Prefix};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step<P> {
    Insert(P, u32),
    Remove(P),
    /// Adds one to the value if there is one.
    Bump(P),
    /// Asks all that can be asked about a prefix.
    Ask(P),
    /// Takes so many entries of a walk that goes on where the last one stopped.
    Walk(usize),
    /// A slice of a sweep: drops what is divisible by the second number, bumps other odd values.
    Retain(usize, u32),
    Prefetch(Vec<P>),
    /// Puts this into all of them, takes out those that have a value which the number divides.
    Each(Vec<P>, u32, u32),
}

/// The table, the map, and where the paused walk and the paused sweep stand.
struct Pair<P, V> {
    table: PrefixTable<P, V>,
    map: BTreeMap<P, V>,
    walk: Option<P>,
    sweep: Option<P>,
}

impl<P: IpPrefix, V: Value + From<u32> + Into<u64> + std::fmt::Debug> Pair<P, V> {
    fn new() -> Self {
        Self { table: PrefixTable::new(HashKey::new([7, 0])), map: BTreeMap::new(), walk: None, sweep: None }
    }

    fn apply(&mut self, step: Step<P>) {
        match step {
            Step::Insert(p, v) => assert_eq!(self.table.insert(p, v.into()), self.map.insert(p, v.into())),
            Step::Remove(p) => assert_eq!(self.table.remove(p), self.map.remove(&p)),
            Step::Bump(p) => self.bump(p),
            Step::Ask(p) => self.ask(p),
            Step::Walk(count) => self.walk(count),
            Step::Retain(budget, divisor) => self.retain(budget, divisor),
            Step::Prefetch(prefixes) => self.table.prefetch(&prefixes),
            Step::Each(prefixes, value, divisor) => self.each(&prefixes, value, divisor),
        }
        assert_eq!(self.table.len(), self.map.len());
    }

    fn bump(&mut self, p: P) {
        let old = self.table.update(p, |value| value.map(bumped));
        assert_eq!(old, self.map.get(&p).copied());
        self.map.entry(p).and_modify(|value| *value = bumped(*value));
    }

    fn each(&mut self, prefixes: &[P], value: u32, divisor: u32) {
        let new = |old: Option<V>| match old.map(Into::into) {
            Some(old) if old % u64::from(divisor) == 0 => None,
            _ => Some(V::from(value)),
        };
        let mut seen = Vec::new();
        self.table.update_each(prefixes, |p, old| {
            seen.push((p, old));
            new(old)
        });
        let mut want = Vec::new();
        for p in prefixes {
            let old = self.map.remove(p);
            want.push((*p, old));
            self.map.extend(new(old).map(|value| (*p, value)));
        }
        assert_eq!(seen, want);
    }

    fn ask(&self, p: P) {
        let map = || self.map.iter().map(|(p, v)| (*p, *v));
        let covering: Vec<_> = map().filter(|(other, _)| other.contains(p)).collect();
        let within: Vec<_> = map().filter(|(other, _)| p.contains(*other)).collect();
        assert_eq!(self.table.get(p), self.map.get(&p).copied());
        assert_eq!(self.table.longest_match(p), covering.last().copied());
        assert_eq!(self.table.has_more_specific(p), within.iter().any(|(other, _)| *other != p));
        assert_eq!(self.table.covering(p).collect::<Vec<_>>(), covering);
        let mut values = Vec::new();
        assert!(!self.table.any_covering(p, |value| {
            values.push(value);
            false
        }));
        let expected: Vec<_> = covering.iter().rev().map(|(_, value)| *value).collect();
        assert_eq!(values, expected);
        assert_eq!(self.table.within(p).collect::<Vec<_>>(), within);
        assert_eq!(self.table.next(Some(p)), self.after(Some(p)).next());
        assert_eq!(self.table.iter_from(p, true).next(), map().find(|(other, _)| *other >= p));
    }

    fn after(&self, last: Option<P>) -> impl Iterator<Item = (P, V)> + '_ {
        let start = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.map.range((start, Bound::Unbounded)).map(|(p, v)| (*p, *v))
    }

    fn walk(&mut self, count: usize) {
        let want: Vec<_> = self.after(self.walk).take(count).collect();
        let got: Vec<_> = match self.walk {
            Some(last) => self.table.iter_from(last, false).take(count).collect(),
            None => self.table.iter().take(count).collect(),
        };
        assert_eq!(got, want);
        let mut shown = Vec::new();
        let next = self.table.scan(self.walk, |p, v| {
            shown.push((p, v));
            shown.len() < count
        });
        let enough = want.len() == count;
        assert_eq!((&shown, next), (&want, want.last().map(|(p, _)| *p).filter(|_| enough)));
        self.walk = want.last().map(|(p, _)| *p);
    }

    fn retain(&mut self, budget: usize, divisor: u32) {
        let keep = |value: V| match value.into() {
            number if number % u64::from(divisor) == 0 => None,
            number if number % 2 == 1 => Some(bumped(value)),
            _ => Some(value),
        };
        let want: Vec<_> = self.after(self.sweep).take(budget).collect();
        let mut got = Vec::new();
        let next = self.table.retain(self.sweep, budget, |p, v| {
            got.push((p, v));
            keep(v)
        });
        assert_eq!(got, want);
        for (p, v) in want {
            match keep(v) {
                Some(v) => self.map.insert(p, v),
                None => self.map.remove(&p),
            };
        }
        match next {
            Some(last) => assert_eq!(Some(last), got.last().map(|(p, _)| *p).or(self.sweep)),
            None => assert_eq!(self.after(got.last().map(|(p, _)| *p).or(self.sweep)).next(), None),
        }
        self.sweep = next;
    }

    /// Walks all, then takes all out one by one: nothing may be left behind.
    fn finish(mut self, empty: usize) {
        assert_eq!(self.table.iter().collect::<Vec<_>>(), self.after(None).collect::<Vec<_>>());
        for (p, v) in self.map {
            assert_eq!(self.table.remove(p), Some(v));
        }
        assert_eq!((self.table.len(), self.table.next(None)), (0, None));
        // A page to spare, and the 256 hash tables at their smallest.
        assert!(self.table.memory() < empty + 60_000, "{} left of {empty}", self.table.memory());
    }
}

/// What a table takes that had entries of all levels.
fn with_index<P: IpPrefix, V: Value + From<u32> + std::fmt::Debug>(table: &mut PrefixTable<P, V>) -> usize {
    assert!(table.memory() < 1000, "{} before the first entry", table.memory());
    let all: Vec<P> = (0..=P::WIDTH).map(|length| P::from_bits(0, length)).collect();
    all.iter().for_each(|p| assert_eq!(table.insert(*p, 1.into()), None));
    all.iter().for_each(|p| assert_eq!(table.remove(*p), Some(1.into())));
    table.memory()
}

fn bumped<V: From<u32> + Into<u64>>(value: V) -> V {
    V::from((value.into() as u32).wrapping_add(1))
}

/// Prefixes that meet each other often: few addresses, all lengths; and some anywhere.
fn prefix<P: IpPrefix>() -> impl Strategy<Value = P> {
    let clustered =
        (0..4_u128, 0..40_u128, 0..3_u128, any::<prop::sample::Index>()).prop_map(|(a, b, c, pick)| {
            let width = u32::from(P::WIDTH);
            let low = b << (width / 4) | c << (width / 8) | b;
            P::from_bits(
                (a << (width - 7) | low) << (128 - width),
                pick.index(usize::from(P::WIDTH) + 1) as u8,
            )
        });
    let block = (0..3_u128, 0..=255_u128, 17..=24_u8)
        .prop_map(|(a, b, length)| P::from_bits((0x0a00 + a) << 112 | b << 104, length));
    let sparse = (any::<u128>(), 0..=P::WIDTH).prop_map(|(bits, length)| P::from_bits(bits, length));
    prop_oneof![3 => clustered, 3 => block, 2 => sparse]
}

fn step<P: IpPrefix>() -> impl Strategy<Value = Step<P>> {
    prop_oneof![
        12 => (prefix(), any::<u32>()).prop_map(|(p, v)| Step::Insert(p, v)),
        4 => prefix().prop_map(Step::Remove),
        2 => prefix().prop_map(Step::Bump),
        2 => prefix().prop_map(Step::Ask),
        2 => (1..20_usize).prop_map(Step::Walk),
        1 => (1..30_usize, 2..9_u32).prop_map(|(budget, divisor)| Step::Retain(budget, divisor)),
        1 => prop::collection::vec(prefix(), 0..80).prop_map(Step::Prefetch),
        2 => (prop::collection::vec(prefix(), 0..80), any::<u32>(), 1..9_u32)
            .prop_map(|(prefixes, value, divisor)| Step::Each(prefixes, value, divisor)),
    ]
}

fn run<P: IpPrefix, V: Value + From<u32> + Into<u64> + std::fmt::Debug>(steps: Vec<Step<P>>) {
    let mut pair = Pair::<P, V>::new();
    let empty = with_index(&mut pair.table);
    steps.into_iter().for_each(|step| pair.apply(step));
    pair.finish(empty);
}

proptest! {
    #![proptest_config(holdfast_testing::cases(300))]

    #[test]
    fn ipv4_with_short_values_answers_like_a_map(steps in prop::collection::vec(step(), 0..300)) {
        run::<Ipv4Prefix, u32>(steps);
    }

    #[test]
    fn ipv6_with_long_values_answers_like_a_map(steps in prop::collection::vec(step(), 0..300)) {
        run::<Ipv6Prefix, u64>(steps);
    }

    #[test]
    fn ipv6_with_short_values_answers_like_a_map(steps in prop::collection::vec(step(), 0..300)) {
        run::<Ipv6Prefix, u32>(steps);
    }

    #[test]
    fn a_full_table_refuses_and_stays_whole(all in prop::collection::vec(prefix::<Ipv6Prefix>(), 200..400)) {
        let mut table = PrefixTable::<Ipv6Prefix, u64>::with_limit(HashKey::new([7, 0]), 2048);
        let mut map = BTreeMap::new();
        for (i, p) in all.into_iter().enumerate() {
            let refused = table.refused();
            table.insert(p, i as u64);
            if table.refused() == refused {
                map.insert(p, i as u64);
            }
        }
        prop_assert!(table.refused() > 0);
        prop_assert!(table.iter().eq(map.iter().map(|(p, v)| (*p, *v))));
        prop_assert_eq!(table.retain(None, usize::MAX, |_, _| None), None);
        prop_assert!(table.is_empty());
        table.insert(Ipv6Prefix::from_bits(0, 0), 1);
        prop_assert_eq!(table.len(), 1);
    }
}

#[test]
fn memory_follows_the_number_of_entries_down() {
    let mut table = PrefixTable::<Ipv4Prefix, u64>::new(HashKey::new([7, 0]));
    let empty = with_index(&mut table);
    let all = || (0..300_000_u128).map(|i| Ipv4Prefix::from_bits((0x0100_0000 + i * 256) << 96, 24));
    all().for_each(|p| assert_eq!(table.insert(p, 1), None));
    let full = table.memory() - empty;
    // Three in four go, one after the other; then the rest in slices.
    all().enumerate().filter(|(i, _)| i % 4 != 0).for_each(|(_, p)| assert_eq!(table.remove(p), Some(1)));
    assert!(table.memory() - empty < full / 2, "{} of {full}", table.memory() - empty);
    let mut from = None;
    let mut slices = 0;
    while let Some(last) = table.retain(from, 1000, |_, _| None) {
        from = Some(last);
        slices += 1;
    }
    assert_eq!((slices, table.len()), (75, 0));
    assert!(table.memory() < empty + 40_000, "{}", table.memory() - empty);
}
