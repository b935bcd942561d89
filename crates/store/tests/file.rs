//! Files that were cut or damaged anywhere.

use holdfast_store::{
    Answer, Contents, Operation, Request,
    file::{self, End, HEADER, Recovered, Recovery, Rewrite, Unreadable},
    fuzzing::{Requests, names, rewritten},
};
use proptest::prelude::*;

use super::contents::Writer;

fn recover(file: &[u8]) -> Result<Recovered, Unreadable> {
    let mut recovery = Recovery::new();
    let _ = file.chunks(1000).all(|piece| recovery.push(piece));
    recovery.finish(u64::MAX)
}

/// A file of random requests. Behind each record, how long it was by then and what it held.
fn written(seed: u64, count: usize) -> (Vec<u8>, Vec<(usize, Contents)>) {
    let mut contents = Contents::new(u64::MAX);
    let mut requests = Requests::new(seed);
    let mut file = file::header().to_vec();
    let mut steps = vec![(0, contents.clone()), (file.len(), contents.clone())];
    while steps.len() < count + 2 {
        let request = requests.next(&contents);
        if matches!(contents.answer(&request), Answer::Claimed(_) | Answer::Applied(_)) {
            file::append(&request, &mut file);
            steps.push((file.len(), contents.clone()));
        }
    }
    (file, steps)
}

/// The last step that is whole in so many octets.
fn last(steps: &[(usize, Contents)], octets: usize) -> &(usize, Contents) {
    steps.iter().rfind(|(length, _)| *length <= octets).expect("the first is empty")
}

#[test]
fn a_file_that_is_cut_at_any_octet_is_what_it_was_before() {
    let (file, steps) = written(4, 5);
    assert!(file.len() < 60_000, "{}", file.len());
    for cut in 0..=file.len() {
        let recovered = recover(&file[..cut]).expect("one of ours");
        let (length, contents) = last(&steps, cut);
        assert_eq!(recovered.whole, *length as u64, "{cut}");
        assert!(recovered.contents == *contents, "{cut}");
        assert_eq!(recovered.end, if *length == cut { End::Whole } else { End::Torn }, "{cut}");
    }
}

#[test]
fn a_file_with_a_flip_at_any_octet_is_what_it_was_before() {
    let (mut file, steps) = written(4, 5);
    for at in 0..file.len() {
        let bit = 1 << (at % 8);
        file[at] ^= bit;
        let recovered = recover(&file);
        file[at] ^= bit;
        match recovered {
            Err(Unreadable::NoStore | Unreadable::Format(_)) => assert!(at < HEADER, "{at}"),
            Err(Unreadable::Beginning) => panic!("{at}"),
            Ok(recovered) => {
                let (length, contents) = last(&steps, at);
                assert_eq!(recovered.whole, *length as u64, "{at}");
                assert!(recovered.contents == *contents, "{at}");
                assert_ne!(recovered.end, End::Whole, "{at}");
            }
        }
    }
}

#[test]
fn records_that_are_left_out_or_doubled_are_noticed() {
    let (file, steps) = written(9, 6);
    let record = |i: usize| &file[steps[i].0..steps[i + 1].0];
    let doubled = [&file[..steps[4].0], record(3), &file[steps[4].0..]].concat();
    assert!(recover(&doubled).is_ok_and(|recovered| recovered.end == End::Damaged));
    let lacking = [&file[..steps[3].0], &file[steps[4].0..]].concat();
    let recovered = recover(&lacking).expect("one of ours");
    assert_eq!((recovered.end, recovered.whole), (End::Damaged, steps[3].0 as u64));
}

#[test]
fn a_file_that_is_not_ours_is_refused() {
    assert!(matches!(recover(b"hello, world"), Err(Unreadable::NoStore)));
    let mut other = file::header();
    other[8] = 9;
    assert!(matches!(recover(&other), Err(Unreadable::Format(9))));
    assert!(recover(b"").is_ok_and(|recovered| recovered.whole == 0 && recovered.end == End::Whole));
    assert!(recover(b"hf-").is_ok_and(|recovered| recovered.whole == 0 && recovered.end == End::Torn));
}

#[test]
fn a_file_is_written_anew_when_half_of_it_is_dead() {
    let mut writer = Writer::new(u64::MAX);
    let [name, ..] = names();
    let mut file = file::header().to_vec();
    let mut until = None;
    for round in 0..20 {
        let operation = Operation::Put { name, value: vec![round; 900_000] };
        file::append(&Request::Batch(writer.batch([operation.clone()])), &mut file);
        writer.write([operation]).expect("it fits");
        if file::is_worth_rewriting(file.len() as u64, &writer.contents) {
            until = Some(round);
            break;
        }
    }
    assert_eq!(until, Some(4), "not for less than four mebioctets");
    let anew = rewritten(&writer.contents);
    assert!(anew.len() < 910_000 && !file::is_worth_rewriting(anew.len() as u64, &writer.contents));
    assert!(recover(&anew).is_ok_and(|recovered| recovered.contents == writer.contents));
}

/// A file that is begun, and follows so many requests at random: before each of them it is given as many pieces as `pace` says.
fn follow(seed: u64, before: usize, pace: &[usize]) -> (Vec<u8>, Contents) {
    let mut contents = Contents::new(u64::MAX);
    let mut requests = Requests::new(seed);
    let mut grant = |contents: &mut Contents| loop {
        let request = requests.next(contents);
        if matches!(contents.answer(&request), Answer::Claimed(_) | Answer::Applied(_)) {
            return request;
        }
    };
    for _ in 0..before {
        grant(&mut contents);
    }
    let (mut rewrite, mut file, mut more) = (Rewrite::new(), Vec::new(), true);
    for pieces in pace {
        for _ in 0..*pieces {
            more = more && rewrite.next(&contents, &mut file);
        }
        let request = grant(&mut contents);
        if more {
            rewrite.follow(&contents, &request, &mut file);
        } else {
            file::append(&request, &mut file);
        }
    }
    while more {
        more = rewrite.next(&contents, &mut file);
    }
    (file, contents)
}

#[test]
fn a_file_that_is_begun_says_so_itself() {
    let writer = Writer::new(u64::MAX);
    let (mut rewrite, mut file) = (Rewrite::new(), Vec::new());
    assert!(rewrite.next(&writer.contents, &mut file));
    assert!(recover(&file).is_ok_and(|recovered| recovered.contents.state().is_none()), "a header is empty");
    let mut writer = writer;
    let [name, ..] = names();
    writer.write([Operation::Put { name, value: vec![7; 1000] }]).expect("it fits");
    let whole = rewritten(&writer.contents);
    let state = whole.len() - 8 - 2 - 7 * 8;
    assert!(matches!(recover(&whole[..state]), Err(Unreadable::Beginning)));
    assert!(recover(&whole).is_ok_and(|recovered| recovered.contents == writer.contents));
}

/// A range that is longer than a piece, and changes while it is written.
#[test]
fn a_range_that_grows_and_is_trimmed_while_it_is_written_stays_what_it_is() {
    let [_, name, other, ..] = names();
    let octets = |at: u64| (at..at + 100_000).map(|offset| (offset / 7) as u8).collect::<Vec<_>>();
    for (change, said) in [
        (Operation::Trim { name, to: 900_000 }, "trimmed before what is written"),
        (Operation::Trim { name, to: 2_500_000 }, "trimmed behind it"),
        (Operation::Append { name, at: 3_000_000, octets: vec![1; 50] }, "grown"),
        (Operation::Begin { name, at: 77 }, "begun anew"),
        (Operation::Put { name, value: vec![5; 50] }, "a value"),
        (Operation::Remove { name }, "gone"),
        (Operation::Put { name: other, value: vec![5; 50] }, "another that comes before it"),
    ] {
        let mut writer = Writer::new(u64::MAX);
        for at in (0..3_000_000).step_by(100_000) {
            writer.write([Operation::Append { name, at, octets: octets(at) }]).expect("it fits");
        }
        let (mut rewrite, mut file) = (Rewrite::new(), Vec::new());
        assert!(rewrite.next(&writer.contents, &mut file) && rewrite.next(&writer.contents, &mut file));
        let before = file.len();
        assert!((1_000_000..1_100_000).contains(&before), "{before}: in the middle of the range");
        let batch = writer.batch([change.clone()]);
        writer.write([change]).expect("it fits");
        rewrite.follow(&writer.contents, &Request::Batch(batch), &mut file);
        while rewrite.next(&writer.contents, &mut file) {}
        let recovered = recover(&file).expect("one of ours");
        assert!(recovered.contents == writer.contents, "{said}");
        assert_eq!(recovered.end, End::Whole, "{said}");
    }
}

#[test]
fn the_longest_chunks_are_written_anew() {
    let mut writer = Writer::new(u64::MAX);
    let [one, other, ..] = names();
    let longest = vec![7; (1 << 20) - 128];
    for at in 0..3 {
        let at = at * longest.len() as u64;
        writer.write([Operation::Append { name: one, at, octets: longest.clone() }]).expect("it fits");
    }
    writer.write([Operation::Put { name: other, value: longest }]).expect("it fits");
    let anew = rewritten(&writer.contents);
    assert!(recover(&anew).is_ok_and(|recovered| recovered.contents == writer.contents));
}

proptest! {
    #![proptest_config(holdfast_testing::cases(60))]

    #[test]
    fn what_was_written_is_recovered_and_written_anew(seed: u64) {
        let (file, steps) = written(seed, 40);
        let (_, contents) = steps.last().expect("some");
        let recovered = recover(&file).expect("one of ours");
        prop_assert!(recovered.contents == *contents && recovered.end == End::Whole);
        let anew = recover(&rewritten(contents)).expect("one of ours");
        prop_assert!(anew.contents == *contents && anew.end == End::Whole);
        prop_assert_eq!(anew.contents.octets(), contents.octets());
    }

    #[test]
    fn what_changes_while_a_file_is_written_anew_is_in_it(
        seed: u64,
        before in 1..60_usize,
        pace in prop::collection::vec(0..3_usize, 0..30),
    ) {
        let (file, contents) = follow(seed, before, &pace);
        let recovered = recover(&file).expect("one of ours");
        prop_assert_eq!(recovered.end, End::Whole);
        prop_assert!(recovered.contents == contents);
        prop_assert_eq!(recovered.contents.octets(), contents.octets());
    }
}
