//! Descriptors do not leak. Alone in its process: others would open some meanwhile.

#[allow(dead_code, reason = "the other test program uses the rest")]
#[path = "xrl/exercise.rs"]
mod exercise;

use exercise::*;
use holdfast_xrl::{Channel, Finder, Node, PeerIdentity, Resolver};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count()
}

/// A component lives, is called with descriptors both ways, and dies while more are under way.
async fn life(finder: &Finder, round: usize) {
    let node = Node::named("exercise", &format!("exercise-{round}"));
    node.serve(ExerciseDispatcher::new(Exerciser::default()));
    let (near, far) = sockets();
    finder.attach(far, PeerIdentity::new("exercise")).expect("attached");
    node.join(near).await.expect("joined");
    let (near, far) = sockets();
    finder.attach(far, PeerIdentity::new("operator")).expect("attached");
    let caller = Resolver::over(Channel::connect(near).expect("a channel"));
    let client: ExerciseClient = caller.client("exercise").await.expect("resolved");
    let (_, fds) = client.open(note(5)).await.expect("descriptors");
    client.read_all(note(0), fds).await.expect("read");
    let late: Vec<_> = (0..50).map(|_| client.read_all(note(0), vec![readable("x")])).collect();
    node.close();
    for call in late {
        call.await.expect_err("the receiver is dead");
    }
    drop((client, caller));
    settle().await;
}

#[test]
fn lives_and_deaths_leave_no_descriptor_open() {
    run(async {
        let finder = Finder::new();
        life(&finder, 0).await;
        let before = open_descriptors();
        for round in 1..20 {
            life(&finder, round).await;
        }
        assert!(finder.instances().is_empty());
        assert_eq!(open_descriptors(), before);
    });
}
