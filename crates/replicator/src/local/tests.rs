//! What a store of files has confirmed is in them, however long they are.

use std::{fs::File, os::unix::fs::FileExt};

use holdfast_store::{Batch, Claim, Name, Operation, Page, file::Recovery};

use super::*;

fn files(name: &str) -> [OwnedFd; 2] {
    ["a", "b"].map(|which| {
        let path = std::env::temp_dir().join(format!("holdfast-{}-{name}.{which}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.expect("made").into();
        std::fs::remove_file(path).expect("it has a descriptor");
        file
    })
}

fn copies(files: &[OwnedFd; 2]) -> [OwnedFd; 2] {
    [0, 1].map(|which| files[which].try_clone().expect("a copy"))
}

/// The store in these files, read; how many slices that took.
fn opened(files: &[OwnedFd; 2]) -> (LocalStore, usize) {
    let (mut store, mut slices) = (LocalStore::in_files(copies(files)), 0);
    store.ask(&Request::State);
    while store.answers.is_empty() {
        assert!(store.work(), "it reads");
        slices += 1;
    }
    assert!(matches!(store.take(), Some(Ok(Answer::State(_)))));
    (store, slices)
}

/// The number of the last batch.
fn claim(store: &mut LocalStore) -> u64 {
    store.ask(&Request::Claim(Claim { incarnation: 7, is_empty: true, epoch: 1, generation: 1 }));
    let Some(Ok(Answer::Claimed(claimed))) = store.take() else { panic!("it was empty") };
    claimed.sequence
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("short")
}

fn write(store: &mut LocalStore, sequence: u64, operation: Operation) -> Result<Answer, Failure> {
    let mut batch = Batch::new(7, 1, 1, sequence);
    batch.push(operation).expect("room");
    store.ask(&Request::Batch(batch));
    store.take().expect("at once")
}

fn put(store: &mut LocalStore, sequence: u64, value: &[u8]) -> Result<Answer, Failure> {
    write(store, sequence, Operation::Put { name: name("value"), value: value.to_vec() })
}

fn in_use(store: &mut LocalStore) -> &mut Files {
    let Kept::Files(files) = &mut store.kept else { panic!("they are read") };
    files
}

#[test]
fn a_file_has_what_was_confirmed_however_often_it_is_written_anew() {
    let files = files("store");
    let (mut store, _) = opened(&files);
    let (mut sequence, mut longest) = (claim(&mut store), 0);
    for round in 0..20_u8 {
        sequence += 1;
        let answer = put(&mut store, sequence, &vec![round; 500_000]);
        assert!(matches!(answer, Ok(Answer::Applied(_))), "{answer:?}");
        while store.work() {}
        longest = longest.max(in_use(&mut store).length());
        if round % 7 == 0 {
            (store, _) = opened(&files);
        }
    }
    assert!(longest < 8 << 20, "{longest} octets for half a megabyte");
    let page = store.contents.page(1, &name("value"), 0);
    assert_eq!(page, Ok(Page::Value(vec![19; 500_000])));
}

#[test]
fn a_long_file_is_read_and_written_anew_in_slices_while_the_store_goes_on() {
    const OBJECTS: u64 = 20;
    let files = files("long");
    let (mut store, _) = opened(&files);
    let mut sequence = claim(&mut store);
    let mut put = |store: &mut LocalStore, at: u64, value: u8| {
        sequence += 1;
        let operation = Operation::Put { name: name(&format!("value-{at}")), value: vec![value; 1 << 19] };
        let answer = write(store, sequence, operation);
        assert!(matches!(answer, Ok(Answer::Applied(_))), "{answer:?}");
    };
    for round in 0..2 {
        (0..OBJECTS).for_each(|at| put(&mut store, at, round));
    }
    assert!(!in_use(&mut store).is_being_written_anew());
    put(&mut store, 0, 2);
    let mut slices = 0;
    // What is asked meanwhile is answered at once.
    while store.work() {
        slices += 1;
        if in_use(&mut store).is_being_written_anew() && slices % 5 == 0 {
            put(&mut store, slices % OBJECTS, 3);
        }
    }
    assert!(slices >= OBJECTS / 2, "{slices} slices for ten mebioctets");
    assert!(in_use(&mut store).length() < 15 << 20, "it was written anew");
    let (again, slices) = opened(&files);
    assert!(slices >= 10, "{slices} slices for ten mebioctets");
    assert!(again.contents == store.contents);
}

#[test]
fn whoever_dies_while_a_file_is_written_anew_has_what_was_confirmed() {
    let files = files("anew");
    let (mut store, _) = opened(&files);
    let mut sequence = claim(&mut store);
    let mut next = |store: &mut LocalStore| {
        sequence += 1;
        let value = vec![sequence as u8; 1 << 18];
        let name = name(&format!("value-{}", sequence % 7));
        assert!(write(store, sequence, Operation::Put { name, value }).is_ok());
    };
    (0..30).for_each(|_| next(&mut store));
    let mut was_anew = false;
    loop {
        let more = store.work();
        was_anew |= in_use(&mut store).is_being_written_anew();
        let (read, _) = opened_beside(&files);
        assert!(read == store.contents);
        if !more {
            break;
        }
        if was_anew && sequence_of(&store).is_multiple_of(3) {
            next(&mut store);
        }
    }
    assert!(was_anew);
}

/// What another process would find in the files now.
fn opened_beside(files: &[OwnedFd; 2]) -> (Contents, u64) {
    let found = files.each_ref().map(|file| {
        let (mut recovery, mut octets, mut at) = (Recovery::new(), vec![0; 1 << 20], 0);
        loop {
            let count = rustix::io::pread(file, &mut octets, at).expect("read");
            if count == 0 || !recovery.push(&octets[..count]) {
                break recovery.finish(ROOM).ok();
            }
            at += count as u64;
        }
    });
    let sequence = |contents: &Contents| contents.state().map_or(0, |state| state.sequence);
    let contents = found.into_iter().flatten().map(|found| found.contents);
    let last = contents.max_by_key(sequence).expect("one of them");
    let number = sequence(&last);
    (last, number)
}

fn sequence_of(store: &LocalStore) -> u64 {
    store.contents.state().map_or(0, |state| state.sequence)
}

#[test]
fn a_file_that_cannot_be_written_has_confirmed_nothing_and_says_why() {
    let files = files("full");
    let (mut store, _) = opened(&files);
    let sequence = claim(&mut store);
    let full: OwnedFd = File::options().read(true).write(true).open("/dev/full").expect("it is there").into();
    let writable = std::mem::replace(in_use(&mut store).active(), full);
    let why = Failure::File("No space left on device (os error 28)".into());
    assert_eq!(put(&mut store, sequence + 1, b"1"), Err(why));
    assert!(put(&mut store, sequence + 2, b"2").is_ok_and(|answer| matches!(answer, Answer::Refused(_))));
    assert!(put(&mut store, sequence + 1, b"1").is_err(), "still");
    // What was written of it is no record.
    *in_use(&mut store).active() = writable;
    let length = in_use(&mut store).length();
    File::from(files[0].try_clone().expect("a copy")).write_all_at(&[0xff; 9], length).expect("written");
    let answer = put(&mut store, sequence + 1, b"1");
    assert!(matches!(answer, Ok(Answer::Applied(_))), "what was not confirmed never was: {answer:?}");
    assert!(opened_beside(&files).0 == store.contents);
}

#[test]
fn a_file_that_cannot_be_written_anew_goes_on_as_it_is() {
    let files = files("no-room");
    let (mut store, _) = opened(&files);
    let mut sequence = claim(&mut store);
    let full: OwnedFd = File::options().read(true).write(true).open("/dev/full").expect("it is there").into();
    *in_use(&mut store).other() = full;
    let mut attempts = 0;
    for round in 0..28_u8 {
        sequence += 1;
        assert!(matches!(put(&mut store, sequence, &vec![round; 500_000]), Ok(Answer::Applied(_))));
        let mut was_anew = false;
        while store.work() {
            was_anew |= in_use(&mut store).is_being_written_anew();
        }
        attempts += u32::from(was_anew);
    }
    assert!((2..=4).contains(&attempts), "{attempts}: it is tried again when the file has grown");
    assert!(opened_beside(&files).0 == store.contents);
}
