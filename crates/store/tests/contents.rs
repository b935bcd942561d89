//! What every store does with requests.

use holdfast_store::{
    Answer, Batch, Claim, Claimed, Contents, Cursor, JUMP, MERGED, MOST_FREED, MOST_GENERATIONS, MOST_NUMBER,
    MOST_OCTETS, MOST_OPERATIONS, Malformed, Name, Operation, PIECE, Page, Refused, Request,
    fuzzing::{Requests, had_effect},
};
use proptest::prelude::*;

const INCARNATION: u64 = 77;

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a name")
}

/// A writer of a store.
pub(super) struct Writer {
    pub(super) contents: Contents,
    epoch: u64,
    generation: u64,
    sequence: u64,
}

impl Writer {
    pub(super) fn new(room: u64) -> Self {
        let mut contents = Contents::new(room);
        let claim = Claim { incarnation: INCARNATION, is_empty: true, epoch: 1, generation: 1 };
        let sequence = contents.claim(&claim).expect("it is empty").sequence;
        Self { contents, epoch: 1, generation: 1, sequence }
    }

    pub(super) fn batch(&self, operations: impl IntoIterator<Item = Operation>) -> Batch {
        let mut batch = Batch::new(INCARNATION, self.epoch, self.generation, self.sequence + 1);
        operations.into_iter().for_each(|operation| batch.push(operation).expect("room"));
        batch
    }

    pub(super) fn write(&mut self, operations: impl IntoIterator<Item = Operation>) -> Result<u64, Refused> {
        let batch = self.batch(operations);
        let before = self.contents.clone();
        match self.contents.apply(&batch) {
            Ok(applied) => {
                self.sequence += 1;
                assert_eq!(applied.sequence, self.sequence);
                Ok(applied.octets)
            }
            Err(refused) => {
                assert_eq!(self.contents, before, "a refused batch has no effect");
                Err(refused)
            }
        }
    }

    fn claim(&mut self, epoch: u64, generation: u64) -> Result<Claimed, Refused> {
        let claimed =
            self.contents.claim(&Claim { incarnation: INCARNATION, is_empty: false, epoch, generation })?;
        (self.epoch, self.generation, self.sequence) = (epoch, generation, claimed.sequence);
        Ok(claimed)
    }

    fn page(&self, of: &str, at: u64) -> Result<Page, Refused> {
        self.contents.page(self.generation, &name(of), at)
    }
}

fn append(of: &str, at: u64, octets: &[u8]) -> Operation {
    Operation::Append { name: name(of), at, octets: octets.to_vec() }
}

fn put(of: &str, value: &[u8]) -> Operation {
    Operation::Put { name: name(of), value: value.to_vec() }
}

fn trim(of: &str, to: u64) -> Operation {
    Operation::Trim { name: name(of), to }
}

#[test]
fn what_was_written_is_read_again() {
    let mut writer = Writer::new(1 << 20);
    let written = writer.write([put("v", b"old"), append("r", 1000, b"abc"), append("r", 1003, b"de")]);
    assert_eq!(written, Ok(3 + 5 + 2 + 3 * PIECE), "names, octets, two objects and one chunk");
    writer.write([put("v", b"new")]).expect("it fits");
    assert_eq!(writer.page("v", 0), Ok(Page::Value(b"new".to_vec())));
    let range =
        |start, end, octets: &[u8], last| Ok(Page::Range { start, end, octets: octets.to_vec(), last });
    assert_eq!(writer.page("r", 1000), range(1000, 1005, b"abcde", 1000));
    assert_eq!(writer.page("r", 1005), range(1000, 1005, b"", 1005));
    assert_eq!(writer.page("r", 1003), Err(Refused::NotThere), "no chunk begins there");
    assert_eq!(writer.page("x", 0), Err(Refused::NotThere));
    writer.write([Operation::Begin { name: name("r"), at: 7 }, append("r", 7, b"x")]).expect("it fits");
    assert_eq!(writer.page("r", 7), range(7, 8, b"x", 7));
    let left = writer.write([Operation::Remove { name: name("r") }, Operation::Remove { name: name("v") }]);
    assert_eq!(left, Ok(0));
}

#[test]
fn an_append_fits_the_end_or_does_nothing() {
    let mut writer = Writer::new(1 << 20);
    writer.write([append("r", 10, b"abc"), put("v", b"")]).expect("it fits");
    let unfit = |operation, end| Err(Refused::Unfit { operation, end });
    assert_eq!(writer.write([put("w", b"new"), append("r", 12, b"x")]), unfit(1, Some(13)));
    assert_eq!(writer.write([append("r", 13, b"x"), append("r", 13, b"x")]), unfit(1, Some(14)));
    assert_eq!(writer.write([append("v", 0, b"x")]), unfit(0, None));
    assert_eq!(writer.write([trim("r", 14)]), unfit(0, Some(13)));
    assert_eq!(writer.write([trim("v", 0)]), unfit(0, None));
    assert_eq!(writer.write([trim("x", 0)]), unfit(0, None));
}

#[test]
fn whole_chunks_go_and_small_ones_are_merged() {
    let mut writer = Writer::new(1 << 20);
    for at in 0..2 * MERGED as u64 {
        writer.write([append("r", at, b"x")]).expect("it fits");
    }
    let octets = writer.write([]).expect("it fits");
    assert_eq!(octets, 2 * MERGED as u64 + 1 + 3 * PIECE, "an object and two chunks");
    writer.write([trim("r", MERGED as u64 + 5)]).expect("it fits");
    let page = |start: u64| {
        let end = 2 * MERGED as u64;
        Ok(Page::Range { start, end, octets: vec![b'x'; (end - start) as usize], last: start })
    };
    assert_eq!(writer.page("r", MERGED as u64), page(MERGED as u64));
    writer.write([trim("r", 2 * MERGED as u64), append("s", 0, b"x")]).expect("it fits");
    assert_eq!(writer.page("r", 2 * MERGED as u64), page(2 * MERGED as u64));
}

#[test]
fn a_doubled_batch_is_told_from_a_gap() {
    let mut writer = Writer::new(1 << 20);
    let first = writer.batch([append("r", 0, b"a")]);
    writer.write([append("r", 0, b"a")]).expect("it fits");
    let there = writer.sequence;
    assert_eq!(writer.contents.apply(&first), Err(Refused::Sequence { there }), "there is at least its own");
    writer.sequence += 1;
    assert_eq!(writer.write([append("r", 1, b"b")]), Err(Refused::Sequence { there }), "one is missing");
}

#[test]
fn a_stale_writer_is_fenced() {
    let old = Writer::new(1 << 20);
    let on_its_way = old.batch([append("r", 0, b"a")]);
    let mut new = Writer { contents: old.contents.clone(), ..old };
    new.claim(3, 2).expect("higher");
    assert_eq!(new.contents.apply(&on_its_way), Err(Refused::Epoch { there: 3 }));
    assert_eq!(new.claim(2, 3), Err(Refused::Epoch { there: 3 }));
    let mut too_new = new.batch([]);
    too_new.epoch = 4;
    assert_eq!(new.contents.apply(&too_new), Err(Refused::Epoch { there: 3 }), "nobody has claimed it");
    // One of the same epoch, which goes on with the same generation.
    let on_its_way = new.batch([append("r", 0, b"a")]);
    let before = new.sequence;
    assert!(!new.claim(3, 2).expect("equal").is_new);
    assert_eq!(new.sequence, before + JUMP);
    assert_eq!(new.contents.apply(&on_its_way), Err(Refused::Sequence { there: before + JUMP }));
    new.write([append("r", 0, b"a")]).expect("it is the next one");
}

#[test]
fn a_store_that_is_another_one_says_so() {
    let mut writer = Writer::new(1 << 20);
    let batch = writer.batch([]);
    let claim = Claim { incarnation: 78, is_empty: true, epoch: 9, generation: 1 };
    assert_eq!(writer.contents.claim(&claim), Err(Refused::Lost { there: Some(INCARNATION) }));
    let claim = Claim { is_empty: false, ..claim };
    assert_eq!(writer.contents.claim(&claim), Err(Refused::Lost { there: Some(INCARNATION) }));
    let mut empty = Contents::new(1 << 20);
    assert_eq!(empty.apply(&batch), Err(Refused::Lost { there: None }));
    assert_eq!(empty.claim(&claim), Err(Refused::Lost { there: None }));
    empty.claim(&Claim { is_empty: true, ..claim }).expect("it is empty");
    assert_eq!(empty.apply(&batch), Err(Refused::Lost { there: Some(78) }));
}

#[test]
fn a_new_generation_is_written_beside_the_one_that_counts() {
    let mut writer = Writer::new(1 << 20);
    writer.write([put("v", b"old"), Operation::Adopt]).expect("it fits");
    assert!(writer.claim(1, 2).expect("a new one").is_new);
    writer.write([put("v", b"half")]).expect("it fits");
    let state = writer.contents.state().expect("it is there");
    assert_eq!((state.counts, state.writing, state.generations), (Some(1), 2, vec![1, 2]));
    // The writer dies here. The next one finds the old copy whole, and takes the half one away.
    let claimed = writer.claim(1, 3).expect("a new one");
    assert_eq!((claimed.counts, claimed.is_new), (Some(1), true));
    assert_eq!(writer.contents.page(1, &name("v"), 0), Ok(Page::Value(b"old".to_vec())));
    assert_eq!(writer.write([Operation::Discard { generation: 1 }]), Err(Refused::Used { operation: 0 }));
    assert_eq!(writer.write([Operation::Discard { generation: 3 }]), Err(Refused::Used { operation: 0 }));
    let discard = |generation| Operation::Discard { generation };
    writer.write([put("v", b"new"), discard(2), Operation::Adopt, discard(1), discard(9)]).expect("it fits");
    let state = writer.contents.state().expect("it is there");
    assert_eq!((state.counts, state.generations, state.last), (Some(3), vec![3], 3));
    assert_eq!(writer.contents.octets(), 3 + 1 + PIECE);
    assert!(writer.contents.work(2), "two objects and two generations are to be freed");
    assert!(!writer.contents.work(10));
    assert_eq!(writer.claim(1, 2), Err(Refused::Generation { there: 3 }), "it was there before");
}

#[test]
fn generations_are_bounded() {
    let mut writer = Writer::new(1 << 20);
    for generation in 2..=MOST_GENERATIONS as u64 {
        writer.claim(1, generation).expect("a new one");
    }
    let next = MOST_GENERATIONS as u64 + 1;
    assert_eq!(writer.claim(1, next), Err(Refused::Generations));
    writer.claim(1, 2).expect("one that is there");
    writer.write([Operation::Discard { generation: 5 }]).expect("it is not used");
    writer.claim(1, next).expect("there is room");
}

#[test]
fn a_batch_is_bounded() {
    let mut batch = Batch::new(1, 1, 1, 1);
    (0..MOST_OPERATIONS).for_each(|_| batch.push(Operation::Adopt).expect("room"));
    assert!(batch.push(Operation::Adopt).is_err());
    let mut batch = Batch::new(1, 1, 1, 1);
    let long = put("v", &[0; MOST_OCTETS - 128]);
    batch.push(long.clone()).expect("room");
    assert_eq!(batch.push(long.clone()).map_err(|no_room| no_room.0), Err(long));
    assert!(batch.octets() <= MOST_OCTETS);
}

#[test]
fn no_store_takes_what_is_malformed() {
    let mut writer = Writer::new(1 << 20);
    let malformed = |operation| Err(Refused::Malformed(Malformed::Operation(operation)));
    assert_eq!(writer.write([put("v", b""), append("r", 0, b"")]), malformed(1));
    assert_eq!(writer.write([append("r", MOST_NUMBER, b"x")]), malformed(0));
    assert_eq!(writer.write([append("r", u64::MAX, b"x")]), malformed(0));
    writer.write([append("r", MOST_NUMBER - 1, b"x")]).expect("the last octet");
    writer.sequence = u64::MAX - 1;
    assert_eq!(writer.write([]), Err(Refused::Malformed(Malformed::Number)));
    assert_eq!(writer.claim(1, u64::MAX), Err(Refused::Malformed(Malformed::Number)));
    assert!(Name::new(b"").is_err() && Name::new(&[b'x'; 65]).is_err() && Name::new(&[0; 64]).is_ok());
}

#[test]
fn a_full_store_takes_what_frees() {
    let mut writer = Writer::new(1000);
    writer.write([put("v", &[1; 700])]).expect("there is room");
    assert_eq!(writer.write([put("w", &[1; 300])]), Err(Refused::Full));
    assert_eq!(writer.write([append("r", 0, &[1; 300])]), Err(Refused::Full));
    writer.write([Operation::Remove { name: name("v") }]).expect("it adds nothing");
    writer.write([append("r", 0, &[1; 300])]).expect("there is room");
    writer.contents.set_room(0);
    writer.write([trim("r", 300)]).expect("it adds nothing");
}

#[test]
fn what_one_batch_frees_is_bounded() {
    let mut writer = Writer::new(u64::MAX);
    let (chunk, chunks) = (vec![1; MERGED], MOST_FREED + 10);
    let mut at = 0;
    while at < chunks * MERGED as u64 {
        let mut batch = writer.batch([]);
        while batch.push(append("r", at, &chunk)).is_ok() {
            at += MERGED as u64;
        }
        writer.sequence = writer.contents.apply(&batch).expect("it fits").sequence;
    }
    let remove = || Operation::Remove { name: name("r") };
    assert_eq!(writer.write([put("v", b""), remove()]), Err(Refused::TooMuch { operation: 1 }));
    writer.write([trim("r", at)]).expect("it fits");
    let start = MOST_FREED * MERGED as u64;
    assert!(writer.page("r", start).is_ok(), "the range begins lower than it might");
    writer.write([remove()]).expect("it fits");
}

#[test]
fn lists_come_in_pages() {
    let mut writer = Writer::new(u64::MAX);
    writer.write((0..700).map(|i| put(&format!("{i:03}"), b""))).expect("it fits");
    let (mut from, mut names, mut pages) = (Cursor::default(), Vec::new(), 0);
    loop {
        let listed = writer.contents.list(1, &from);
        names.extend(listed.objects.iter().map(|object| object.name));
        pages += 1;
        let Some(next) = listed.next else { break };
        from = next;
    }
    assert_eq!((pages, names.len()), (3, 700));
    assert!(names.is_sorted());
    assert!(writer.contents.list(2, &Cursor::default()).objects.is_empty());
}

proptest! {
    #![proptest_config(holdfast_testing::cases(200))]

    /// Random requests: refused ones change nothing, doubled ones are refused, and the count of octets is what it says.
    #[test]
    fn refused_requests_change_nothing(seed: u64) {
        let mut contents = Contents::new(1 << 20);
        let mut requests = Requests::new(seed);
        for _ in 0..60 {
            let request = requests.next(&contents);
            let before = contents.clone();
            let (answer, had_effect) = had_effect(&mut contents, &request);
            prop_assert!(had_effect || contents == before, "{answer:?}");
            if let (Request::Batch(batch), Answer::Applied(_)) = (&request, &answer) {
                let there = batch.sequence;
                prop_assert_eq!(contents.apply(batch), Err(Refused::Sequence { there }));
                let mut stale = batch.clone();
                (stale.epoch, stale.sequence) = (stale.epoch - 1, there + 1);
                prop_assert_eq!(contents.apply(&stale), Err(Refused::Epoch { there: batch.epoch }));
            }
            contents.work(3);
        }
    }

    /// A range is what was appended to it, from where it was trimmed to.
    #[test]
    fn a_range_is_a_part_of_its_stream(seed: u64) {
        let mut writer = Writer::new(u64::MAX);
        let mut random = Requests::new(seed);
        let (mut stream, mut least) = (Vec::new(), 0);
        for _ in 0..40 {
            let octets: Vec<u8> = (0..=random.below(3000)).map(|i| (i ^ seed) as u8).collect();
            let at = stream.len() as u64;
            stream.extend_from_slice(&octets);
            least = least.max(at.saturating_sub(random.below(9000)));
            writer.write([append("r", at, &octets), trim("r", least)]).expect("it fits");
            let listed = writer.contents.list(1, &Cursor::default());
            let holdfast_store::Description::Range { start, end } = listed.objects[0].description else {
                return Err(TestCaseError::fail("a range"));
            };
            prop_assert!(start <= least && end == stream.len() as u64);
            prop_assert!(least - start < (3001 + MERGED) as u64, "only a part of a chunk stays");
            let octets = stream[start as usize..].to_vec();
            let Ok(Page::Range { last, .. }) = writer.page("r", start) else {
                return Err(TestCaseError::fail("a page"));
            };
            prop_assert_eq!(writer.page("r", start), Ok(Page::Range { start, end, octets, last }));
            let from_last = (last..end).map(|at| stream[at as usize]).collect();
            prop_assert_eq!(writer.page("r", last), Ok(Page::Range { start, end, octets: from_last, last }));
        }
    }
}
