//! The Finder: resolving, caching, births and deaths, access.

use std::rc::Rc;

use holdfast_xrl::{Client, ErrorKind, Finder, Lifecycle, Link, Node, PeerIdentity, Resolver, XrlError};

use crate::exercise::*;

/// A component that has joined.
async fn join(finder: &Finder, node: &Node) -> Resolver {
    try_join(finder, node, PeerIdentity::new(node.class()).pid(7)).await.expect("joined")
}

async fn try_join(finder: &Finder, node: &Node, peer: PeerIdentity) -> Result<Resolver, XrlError> {
    let (near, far) = sockets();
    finder.attach(far, peer).expect("attached");
    node.join(near).await
}

async fn exerciser(finder: &Finder, instance: &str) -> (Node, Rc<Exerciser>, Resolver) {
    let (node, exerciser) = (Node::named("exercise", instance), Rc::<Exerciser>::default());
    node.serve(ExerciseDispatcher(Rc::clone(&exerciser)));
    let resolver = join(finder, &node).await;
    (node, exerciser, resolver)
}

/// Somebody who only calls.
fn operator(finder: &Finder) -> Resolver {
    let (near, far) = sockets();
    finder.attach(far, PeerIdentity::new("operator")).expect("attached");
    Resolver::connect(near).expect("connected")
}

fn name(event: Lifecycle) -> String {
    match event {
        Lifecycle::Birth(instance) => {
            format!("birth of {} ({}, {})", instance.name, instance.class, instance.pid)
        }
        Lifecycle::Death(instance) => format!("death of {}", instance.name),
    }
}

#[test]
fn a_component_is_called_by_its_class_or_its_name() {
    run(async {
        let finder = Finder::new();
        let (_node, exerciser, _) = exerciser(&finder, "exercise-1").await;
        let caller = operator(&finder);
        for target in ["exercise", "exercise-1"] {
            let client: ExerciseClient = caller.client(target).await.expect("resolved");
            client.echo(note(1)).await.expect("an echo");
        }
        assert_eq!(exerciser.calls.get(), 2);
    });
}

#[test]
fn components_of_one_process_meet_without_sockets() {
    run(async {
        let finder = Finder::new();
        let (node, _) = node();
        let (near, far) = Link::pair();
        finder.attach_link(far, PeerIdentity::new("exercise"));
        let resolver = node.join_link(near).await.expect("joined");
        let itself: ExerciseClient = resolver.client("exercise").await.expect("resolved");
        itself.echo(note(1)).await.expect("an echo");
    });
}

#[test]
fn a_resolved_channel_is_kept_and_resolved_again_after_a_death() {
    run(async {
        let finder = Finder::new();
        let (first, _, first_resolver) = exerciser(&finder, "exercise-1").await;
        let caller = operator(&finder);
        let client: ExerciseClient = caller.client("exercise").await.expect("resolved");
        let same: ExerciseClient = caller.client("exercise").await.expect("cached");
        assert_eq!(client.channel().id(), same.channel().id());

        drop(first_resolver);
        first.close();
        assert_eq!(client.echo(note(1)).await.expect_err("dead").kind(), ErrorKind::Disconnected);
        settle().await;
        let error = caller.client::<ExerciseClient>("exercise").await.expect_err("nobody there");
        assert_eq!(error.to_string(), "not found: no component \"exercise\" is running");

        let (_second, exerciser, _) = exerciser(&finder, "exercise-2").await;
        let again: ExerciseClient = caller.client("exercise").await.expect("resolved anew");
        again.echo(note(1)).await.expect("an echo");
        assert_eq!(exerciser.calls.get(), 1);
    });
}

#[test]
fn a_caller_may_wait_for_a_birth() {
    run(async {
        let finder = Finder::new();
        let caller = operator(&finder);
        let waiting =
            tokio::task::spawn_local(async move { caller.wait_for::<ExerciseClient>("exercise").await });
        settle().await;
        assert!(!waiting.is_finished());
        let (_node, ..) = exerciser(&finder, "exercise-1").await;
        let client = waiting.await.expect("no panic").expect("resolved");
        client.echo(note(1)).await.expect("an echo");
    });
}

#[test]
fn births_and_deaths_are_told_to_those_who_watch() {
    run(async {
        let finder = Finder::new();
        let (early, ..) = exerciser(&finder, "exercise-1").await;
        let mut watch = operator(&finder).watch("exercise");
        assert_eq!(name(watch.next().await.expect("news")), "birth of exercise-1 (exercise, 7)");
        let other = Node::named("other", "other-1");
        join(&finder, &other).await;
        let (_late, ..) = exerciser(&finder, "exercise-2").await;
        assert_eq!(name(watch.next().await.expect("news")), "birth of exercise-2 (exercise, 7)");
        early.close();
        assert_eq!(name(watch.next().await.expect("news")), "death of exercise-1");
    });
}

#[test]
fn a_watch_goes_on_with_the_next_finder() {
    run(async {
        let first = Finder::new();
        let watcher = Node::named("watcher", "watcher-1");
        let resolver = join(&first, &watcher).await;
        let (exercise, _, theirs) = exerciser(&first, "exercise-1").await;
        let mut watch = resolver.watch("exercise");
        assert_eq!(name(watch.next().await.expect("news")), "birth of exercise-1 (exercise, 7)");
        let client: ExerciseClient = resolver.client("exercise").await.expect("resolved");

        first.close();
        let second = Finder::new();
        for (resolver, class) in [(&theirs, "exercise"), (&resolver, "watcher")] {
            let (near, far) = sockets();
            second.attach(far, PeerIdentity::new(class)).expect("attached");
            resolver.rejoin(near).await.expect("joined");
        }
        client.echo(note(1)).await.expect("the channel outlives the Finder");
        let (_new, ..) = exerciser(&second, "exercise-2").await;
        assert_eq!(name(watch.next().await.expect("news")), "birth of exercise-2 (exercise, 7)");
        exercise.close();
        assert_eq!(name(watch.next().await.expect("news")), "death of exercise-1");
    });
}

#[test]
fn without_a_finder_a_component_waits_and_an_operator_is_told() {
    run(async {
        let finder = Finder::new();
        let caller = operator(&finder);
        let gone = caller.finder().expect("there").channel().clone();
        gone.close();
        let error = caller.client::<ExerciseClient>("exercise").await.expect_err("no Finder");
        assert_eq!(error.to_string(), "unavailable: the Finder (manager) is not running");
        assert_eq!(caller.watch("*").next().await.expect_err("no Finder").kind(), ErrorKind::Unavailable);

        let node = Node::named("other", "other-1");
        let resolver = join(&finder, &node).await;
        node.close();
        let waiting = resolver.clone();
        let waiting =
            tokio::task::spawn_local(async move { waiting.wait_for::<ExerciseClient>("exercise").await });
        settle().await;
        assert!(!waiting.is_finished());
        let (_exercise, ..) = exerciser(&finder, "exercise-1").await;
        let (near, far) = sockets();
        finder.attach(far, PeerIdentity::new("other")).expect("attached");
        resolver.rejoin(near).await.expect("joined");
        waiting.await.expect("no panic").expect("resolved");
    });
}

#[test]
fn the_finder_gives_keys_for_what_the_role_may_call() {
    run(async {
        let finder = Finder::new();
        let (_node, ..) = exerciser(&finder, "exercise-1").await;
        let caller = operator(&finder);
        let client: ExerciseClient = caller.client("exercise").await.expect("resolved");
        let error = client.secret(note(1)).await.expect_err("denied by the receiver");
        assert_eq!(error.kind(), ErrorKind::Denied);
        let wanted = [ExerciseClient::SECRET];
        let error =
            caller.open("exercise", "exercise.v1.Exercise", &wanted, false).await.expect_err("denied");
        assert_eq!(
            error.to_string(),
            "denied: role \"operator\" may not call exercise.v1.Exercise/Secret of exercise-1 (confidant may)"
        );
        let one = [ExerciseClient::ECHO];
        let narrow =
            caller.open("exercise", "exercise.v1.Exercise", &one, false).await.expect("a narrow key");
        let narrow = ExerciseClient::new(narrow);
        narrow.echo(note(1)).await.expect("covered");
        assert_eq!(narrow.count(note(1)).next().await.expect_err("not covered").kind(), ErrorKind::Denied);
    });
}

#[test]
fn nobody_registers_as_somebody_else() {
    run(async {
        let finder = Finder::new();
        let (node, _) = node();
        let error = try_join(&finder, &node, PeerIdentity::new("bgp")).await.err().expect("denied");
        assert_eq!(error.to_string(), "denied: role \"bgp\" may not register as class \"exercise\"");
        assert!(finder.instances().is_empty());
    });
}

#[test]
fn only_the_finder_may_hand_a_component_connections() {
    run(async {
        let finder = Finder::new();
        let (node, ..) = exerciser(&finder, "exercise-1").await;
        let (near, far) = sockets();
        node.attach(far, PeerIdentity::new("bgp")).expect("attached");
        let component = holdfast_xrl::component::v1::ComponentClient::new(
            holdfast_xrl::Channel::connect(near).expect("a channel"),
        );
        let error = component.introspect(Default::default()).await.expect_err("denied");
        assert_eq!(error.kind(), ErrorKind::Denied);
    });
}

#[test]
fn the_keys_of_a_dead_caller_are_revoked() {
    run(async {
        let finder = Finder::new();
        let (_node, ..) = exerciser(&finder, "exercise-1").await;
        let caller = operator(&finder);
        let client: ExerciseClient = caller.client("exercise").await.expect("resolved");
        client.echo(note(1)).await.expect("an echo");
        caller.finder().expect("there").channel().close();
        settle().await;
        let error = client.echo(note(1)).await.expect_err("revoked");
        assert_eq!(error.to_string(), "denied: exercise.v1/Echo: the key was revoked");
    });
}
