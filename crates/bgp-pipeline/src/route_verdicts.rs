//! What import policies that look at the prefix have said of routes lately.
//!
//! Such a policy is asked when a route arrives, when it is announced, and when the RIB is told. Within a turn that is the
//! same answer, and asking is a third of what a route costs under a realistic policy. Answers of sets without such a
//! policy stay beside the sets.

use holdfast_types::{IpPrefix as _, Prefix};

use crate::path::SetId;

/// Answers that are kept: routes that one read brings, twice over. A power of two.
const ROOM: usize = 1 << 13;
/// So many times that at most, where many ask: each asks about the whole table, one behind the other.
const MOST_ROOMS: usize = 32;

/// 32 octets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Answer {
    /// The address, left-aligned.
    bits: [u64; 2],
    set: SetId,
    /// [`SetId::NONE`]: it was refused.
    effective: SetId,
    generation: u16,
    length: u8,
    is_ipv6: bool,
}

impl Answer {
    const NONE: Self = Self {
        bits: [0; 2],
        set: SetId::NONE,
        effective: SetId::NONE,
        generation: 0,
        length: 0,
        is_ipv6: false,
    };

    fn to(prefix: Prefix, set: SetId, generation: u16) -> Self {
        let (bits, length, is_ipv6) = match prefix {
            Prefix::V4(prefix) => (prefix.bits(), prefix.length(), false),
            Prefix::V6(prefix) => (prefix.bits(), prefix.length(), true),
        };
        let bits = [(bits >> 64) as u64, bits as u64];
        Self { bits, set, effective: SetId::NONE, generation, length, is_ipv6 }
    }

    /// Where it is kept. Whoever chooses prefixes so that they meet there has them asked about again.
    #[inline]
    fn place(&self, room: usize) -> usize {
        let mixed = (self.bits[0] ^ self.bits[1].rotate_left(29) ^ u64::from(self.length) << 8)
            .wrapping_add(u64::from(self.set.0) << 17)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (u64::BITS - room.ilog2())) as usize
    }
}

/// Answers, each in its place until another takes it. No memory is taken before the first.
#[derive(Debug, Default)]
pub(crate) struct RouteVerdicts {
    answers: Vec<Answer>,
    /// How many rooms there may be.
    rooms: usize,
    /// Answers that others have displaced since there is so much room.
    displaced: usize,
    /// By number of the set, how often it was given to another one.
    generations: Vec<u16>,
}

impl RouteVerdicts {
    /// What was said of a route; `Some(None)`: it was refused.
    #[inline]
    pub(crate) fn get(&self, prefix: Prefix, set: SetId) -> Option<Option<SetId>> {
        let asked = Answer::to(prefix, set, *self.generations.get(set.index())?);
        if self.answers.is_empty() {
            return None;
        }
        let known = self.answers.get(asked.place(self.answers.len()))?;
        let is_same = Answer { effective: asked.effective, ..*known } == asked;
        is_same.then(|| (known.effective != SetId::NONE).then_some(known.effective))
    }

    /// Keeps what is said of it; all numbers of sets are below `numbers`.
    pub(crate) fn put(&mut self, prefix: Prefix, set: SetId, effective: Option<SetId>, numbers: usize) {
        if self.answers.is_empty() {
            self.answers = vec![Answer::NONE; ROOM];
        } else if self.displaced > self.answers.len() && self.answers.len() < ROOM * self.rooms {
            self.grow();
        }
        if self.generations.len() <= set.index() {
            self.generations.resize(numbers, 0);
        }
        let answer = Answer::to(prefix, set, self.generations[set.index()]);
        let place = answer.place(self.answers.len());
        self.displaced += usize::from(self.answers[place] != Answer::NONE);
        self.answers[place] = Answer { effective: effective.unwrap_or(SetId::NONE), ..answer };
    }

    /// There are so many who ask about the whole table.
    pub(crate) fn make_room(&mut self, asking: usize) {
        self.rooms = asking.next_power_of_two().min(MOST_ROOMS);
    }

    /// Twice the room. What was said stays.
    #[cold]
    fn grow(&mut self) {
        let room = 2 * self.answers.len();
        for answer in std::mem::replace(&mut self.answers, vec![Answer::NONE; room]) {
            if answer != Answer::NONE {
                self.answers[answer.place(room)] = answer;
            }
        }
        self.displaced = 0;
    }

    /// The number is that of a new set.
    #[inline]
    pub(crate) fn born(&mut self, set: SetId) {
        if let Some(generation) = self.generations.get_mut(set.index()) {
            *generation = generation.wrapping_add(1);
            if *generation == 0 {
                self.answers.fill(Answer::NONE);
            }
        }
    }

    /// After a burst, when far fewer numbers are in use, all is forgotten.
    #[inline]
    pub(crate) fn fit(&mut self, numbers: usize) {
        if self.generations.len() > 4 * numbers.max(1024) {
            *self = Self { rooms: self.rooms, ..Self::default() };
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.answers.capacity() * size_of::<Answer>() + self.generations.capacity() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::Ipv4Prefix;

    use super::*;

    const NUMBERS: usize = 16;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn an_answer_is_kept_for_its_route_only() {
        let mut verdicts = RouteVerdicts::default();
        let (route, set) = (prefix("10.0.0.0/8"), SetId(3));
        assert_eq!(verdicts.get(route, set), None);
        verdicts.put(route, set, Some(SetId(4)), NUMBERS);
        assert_eq!(verdicts.get(route, set), Some(Some(SetId(4))));
        for other in ["10.0.0.0/9", "11.0.0.0/8", "a00::/8"] {
            assert_eq!(verdicts.get(prefix(other), set), None, "{other}");
        }
        assert_eq!(verdicts.get(route, SetId(5)), None);
        verdicts.put(route, set, None, NUMBERS);
        assert_eq!(verdicts.get(route, set), Some(None));
    }

    #[test]
    fn an_answer_goes_with_its_set_however_often_the_number_is_given_again() {
        let mut verdicts = RouteVerdicts::default();
        let (route, set) = (prefix("2001:db8::/32"), SetId(3));
        verdicts.put(route, set, Some(SetId(4)), NUMBERS);
        for _ in 0..=u16::MAX {
            verdicts.born(set);
            assert_eq!(verdicts.get(route, set), None);
        }
        for _ in 0..3 {
            verdicts.put(route, set, Some(set), NUMBERS);
            assert_eq!(verdicts.get(route, set), Some(Some(set)));
            verdicts.born(set);
            assert_eq!(verdicts.get(route, set), None);
        }
    }

    #[test]
    fn what_a_burst_has_left_is_given_back() {
        let mut verdicts = RouteVerdicts::default();
        let (route, set) = (prefix("10.0.0.0/8"), SetId(3));
        verdicts.put(route, set, Some(set), 100_000);
        verdicts.fit(50_000);
        assert_eq!(verdicts.get(route, set), Some(Some(set)));
        verdicts.fit(10);
        assert_eq!((verdicts.get(route, set), verdicts.memory()), (None, 0));
    }

    #[test]
    fn where_many_ask_the_answers_about_a_whole_table_are_kept() {
        let routes =
            || (0..4 * ROOM as u32).map(|n| Prefix::V4(Ipv4Prefix::from_bits(u128::from(n) << 104, 24)));
        let found = |verdicts: &RouteVerdicts| {
            routes().filter(|route| verdicts.get(*route, SetId(3)) == Some(None)).count()
        };
        let (mut few, mut many) = (RouteVerdicts::default(), RouteVerdicts::default());
        many.make_room(300);
        for verdicts in [&mut few, &mut many] {
            for _ in 0..8 {
                routes().for_each(|route| verdicts.put(route, SetId(3), None, NUMBERS));
            }
        }
        assert!(found(&few) <= ROOM && found(&many) > 7 * 4 * ROOM / 10, "{} {}", found(&few), found(&many));
        assert!(many.memory() <= (ROOM * MOST_ROOMS + NUMBERS) * size_of::<Answer>(), "{}", many.memory());
    }

    #[test]
    fn an_answer_takes_32_octets() {
        assert_eq!(size_of::<Answer>(), 32);
    }
}
