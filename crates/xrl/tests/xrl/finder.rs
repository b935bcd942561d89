//! The Finder: resolving, caching, births and deaths, access.

use std::rc::Rc;
use std::time::Duration;

use holdfast_xrl::{Client, ErrorKind, Finder, Lifecycle, Link, Node, PeerIdentity, Resolver, XrlError};

use holdfast_xrl::finder_api::v1 as proto;

use crate::tests::xrl::exercise::*;

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
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        assert!(client.channel().is_closed());
    });
}

#[test]
fn a_protocol_of_somebody_else_has_few_keys_and_the_target_hears_of_no_more() {
    run(async {
        let finder = Finder::new();
        let (node, ..) = exerciser(&finder, "exercise-1").await;
        let caller = |role: &str| {
            let (near, far) = sockets();
            finder.attach(far, PeerIdentity::new(role)).expect("attached");
            Resolver::connect(near).expect("connected")
        };
        let (protocol, operator, before) = (caller("protocol"), caller("operator"), node.channels());
        let open = |resolver: &Resolver| {
            let resolver = resolver.clone();
            async move { resolver.open("exercise", "exercise.v1.Exercise", &[], false).await }
        };
        // All at once: each asks before the first one has its key.
        let asking: Vec<_> = (0..20).map(|_| tokio::task::spawn_local(open(&protocol))).collect();
        let mut channels = Vec::new();
        for opened in asking {
            channels.extend(opened.await.expect("no panic"));
        }
        assert_eq!((channels.len(), node.channels() - before), (16, 16));
        let error = open(&protocol).await.expect_err("too many");
        assert_eq!(error.to_string(), "unavailable: the caller has 16 connections already");
        for _ in 0..20 {
            channels.push(open(&operator).await.expect("another caller has keys of its own"));
        }
        node.close();
        settle().await;
        let (_node, ..) = exerciser(&finder, "exercise-2").await;
        open(&protocol).await.expect("keys end with the target");
    });
}

#[test]
fn who_has_no_room_and_waits_asks_seldom_and_gets_in_when_there_is_room() {
    run(async {
        let finder = Finder::new();
        let (node, ..) = exerciser(&finder, "exercise-1").await;
        let (near, far) = sockets();
        finder.attach(far, PeerIdentity::new("protocol")).expect("attached");
        let protocol = Resolver::connect(near).expect("connected");
        for _ in 0..16 {
            protocol.open("exercise", "exercise.v1.Exercise", &[], false).await.expect("room");
        }
        let made = || holdfast_xrl::traffic::of_this_thread().calls_made;
        let before = made();
        let waiting = protocol.wait_for::<ExerciseClient>("exercise");
        let waited = tokio::time::timeout(Duration::from_millis(200), waiting).await;
        assert!(waited.is_err(), "there is no room");
        // Each time the Finder is called, and it calls nobody.
        assert!(made() - before < 20, "{} calls", made() - before);
        node.close();
        settle().await;
        let (_node, ..) = exerciser(&finder, "exercise-2").await;
        protocol.wait_for::<ExerciseClient>("exercise").await.expect("keys end with the target");
    });
}

#[test]
fn hundreds_wait_for_hundreds_and_each_birth_wakes_whom_it_concerns() {
    run(async {
        const TABLES: usize = 200;
        let finder = Finder::new();
        let manager = operator(&finder);
        let all: Vec<_> = (0..TABLES)
            .map(|table| {
                let manager = manager.clone();
                tokio::task::spawn_local(async move {
                    let client: ExerciseClient = manager.wait_for(&format!("exercise@{table}")).await?;
                    client.echo(note(table as u64)).await
                })
            })
            .collect();
        settle().await;
        let mut nodes = Vec::new();
        for table in (0..TABLES).rev() {
            let class = format!("exercise@{table}");
            let (node, serving) = (Node::named(&class, &class), Rc::<Exerciser>::default());
            node.serve(ExerciseDispatcher(Rc::clone(&serving)));
            try_join(&finder, &node, PeerIdentity::new("exercise")).await.expect("joined");
            nodes.push((node, serving));
        }
        for called in all {
            called.await.expect("no panic").expect("an echo");
        }
        assert!(nodes.iter().all(|(_, serving)| serving.calls.get() == 1), "each by its own");
    });
}

#[test]
fn a_sole_instance_keeps_others_of_its_class_out_while_it_lives() {
    run(async {
        let finder = Finder::new();
        let sole = Node::named("exercise", "exercise-1");
        sole.be_sole();
        join(&finder, &sole).await;
        let second = Node::named("exercise", "exercise-2");
        let error = try_join(&finder, &second, PeerIdentity::new("exercise")).await.err().expect("refused");
        assert_eq!(
            error.to_string(),
            "failed precondition: exercise-2 cannot register: exercise-1 lives, and class \"exercise\" has one \
             instance only"
        );
        assert_eq!(second.channels(), 0, "the channel of who was refused is closed");
        sole.close();
        settle().await;
        join(&finder, &second).await;
        assert_eq!(finder.instances().len(), 1);
    });
}

#[test]
fn who_watches_a_class_of_services_hears_of_every_birth_and_death() {
    run(async {
        let finder = Finder::new();
        let operator = operator(&finder);
        let request = proto::WatchRequest { class: "exercise".to_owned() };
        let mut watch = operator.finder().expect("a Finder").watch(request);
        for round in 1..3 {
            let (node, exerciser) = (Node::named("gym", &format!("gym-{round}")), Rc::<Exerciser>::default());
            node.serve(ExerciseDispatcher(exerciser));
            try_join(&finder, &node, PeerIdentity::new("gym").class("exercise")).await.expect("joined");
            assert_eq!(told(&mut watch).await, format!("Birth gym-{round} [exercise, gym]"));
            node.close();
            assert_eq!(told(&mut watch).await, format!("Death gym-{round} [exercise, gym]"));
        }
    });
}

/// Births and deaths as the Finder tells them, with the classes that begin or end.
async fn told(stream: &mut holdfast_xrl::ReplyStream<proto::WatchEvent>) -> String {
    let event = stream.next().await.expect("no error").expect("an event");
    let name = event.instance.clone().unwrap_or_default().name;
    format!("{:?} {name} [{}]", event.kind(), event.classes.join(", "))
}

#[test]
fn a_class_is_born_with_its_first_instance_and_dies_with_its_last() {
    run(async {
        let finder = Finder::new();
        let (first, ..) = exerciser(&finder, "exercise-1").await;
        let watcher = operator(&finder);
        let watch = |class: &str| {
            watcher.finder().expect("a Finder").watch(proto::WatchRequest { class: class.to_owned() })
        };
        let (mut of_class, mut of_one) = (watch("exercise"), watch("exercise-2"));
        assert_eq!(told(&mut of_class).await, "Birth exercise-1 [exercise]");
        let (second, ..) = exerciser(&finder, "exercise-2").await;
        assert_eq!(told(&mut of_class).await, "Birth exercise-2 []");
        first.close();
        assert_eq!(told(&mut of_class).await, "Death exercise-1 []");
        second.close();
        assert_eq!(told(&mut of_class).await, "Death exercise-2 [exercise]");
        assert_eq!(told(&mut of_one).await, "Birth exercise-2 []");
        assert_eq!(told(&mut of_one).await, "Death exercise-2 [exercise]");
    });
}
