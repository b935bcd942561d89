//! The store with faults.

use holdfast_store::{
    Answer, Claim, Contents, Failure, Refused, Request,
    fuzzing::Requests,
    memory::{MOST_LOST, MOST_WAITING, Memory, TooMany},
};

/// A store after so many random requests with an effect; what it held after each.
fn filled(seed: u64, count: usize) -> (Memory, Vec<Contents>) {
    let mut memory = Memory::new(u64::MAX);
    let mut requests = Requests::new(seed);
    let mut steps = vec![memory.contents().clone()];
    while steps.len() <= count {
        let request = requests.next(memory.contents());
        memory.ask(request).expect("few");
        memory.work_all();
        if let Some(Ok(Answer::Claimed(_) | Answer::Applied(_))) = memory.take() {
            steps.push(memory.contents().clone());
        }
    }
    (memory, steps)
}

#[test]
fn the_last_batches_can_be_lost() {
    let (mut memory, steps) = filled(3, 50);
    assert_eq!(memory.lose_last(7), 7);
    assert!(*memory.contents() == steps[43]);
    assert_eq!(memory.lose_last(0), 0);
    assert!(*memory.contents() == steps[43]);
    assert_eq!(memory.lose_last(1000), 43);
    assert!(memory.contents().state().is_none());
    let (mut memory, steps) = filled(5, MOST_LOST + 20);
    assert_eq!(memory.lose_last(usize::MAX), MOST_LOST);
    assert!(*memory.contents() == steps[20]);
}

#[test]
fn everything_can_be_lost() {
    let (mut memory, _) = filled(1, 5);
    let incarnation = memory.contents().state().expect("it is there").incarnation;
    memory.lose_everything();
    let claim = Claim { incarnation, is_empty: false, epoch: 9, generation: 9 };
    memory.ask(Request::Claim(claim)).expect("few");
    memory.work_all();
    assert_eq!(memory.take(), Some(Ok(Answer::Refused(Refused::Lost { there: None }))));
    assert_eq!(memory.lose_last(5), 0);
}

#[test]
fn answers_come_when_they_are_taken_or_never() {
    let mut memory = Memory::new(u64::MAX);
    let claim = Request::Claim(Claim { incarnation: 1, is_empty: true, epoch: 1, generation: 1 });
    memory.ask(claim.clone()).expect("few");
    assert_eq!(memory.take(), None, "it is on its way");
    memory.cut();
    memory.work_all();
    assert!(memory.contents().state().is_none(), "it never came there");
    memory.ask(claim.clone()).expect("few");
    memory.work_all();
    memory.cut();
    assert_eq!(memory.take(), None);
    assert!(memory.contents().state().is_some(), "only the answer was lost");
    for _ in 0..MOST_WAITING {
        memory.ask(Request::State).expect("not too many");
    }
    assert_eq!(memory.ask(claim.clone()), Err(TooMany(claim)));
}

#[test]
fn it_fails_as_it_is_told() {
    let (mut memory, _) = filled(1, 5);
    memory.fail(Some(Failure::Loading));
    memory.ask(Request::State).expect("few");
    memory.work_all();
    assert_eq!(memory.take(), Some(Err(Failure::Loading)));
    memory.fail(None);
    memory.ask(Request::State).expect("few");
    memory.work_all();
    assert!(matches!(memory.take(), Some(Ok(Answer::State(Some(_))))));
}
