//! The text form against a living component.

use holdfast_xrl::text::{self, Argument, Format, Xrl};
use holdfast_xrl::{Client, ErrorKind, Finder, Node, PeerIdentity, Resolver, XrlError};
use proptest::prelude::*;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};

use crate::tests::xrl::exercise::*;

/// A Finder with an exerciser, and an operator.
async fn router() -> (Finder, Node, Resolver) {
    let finder = Finder::new();
    let (node, _) = node();
    let (near, far) = sockets();
    finder.attach(far, PeerIdentity::new("exercise").pid(7)).expect("attached");
    node.join(near).await.expect("joined");
    let (near, far) = sockets();
    finder.attach(far, PeerIdentity::new("operator")).expect("attached");
    (finder, node, Resolver::connect(near).expect("connected"))
}

async fn call(operator: &Resolver, xrl: &str, format: Format) -> Result<String, XrlError> {
    let mut out = Vec::new();
    text::call(operator, xrl, format, &mut out).await?;
    Ok(String::from_utf8(out).expect("text"))
}

#[test]
fn a_line_of_text_calls_a_method() {
    run(async {
        let (_finder, _node, operator) = router().await;
        let arguments = "number:u64=7&text:txt=a%26b c&data:bytes=00ff&list:u32=1&list:u32=2&colour:enum=RED";
        let xrl = format!("finder://exercise/exercise.v1/Echo?{arguments}");
        assert_eq!(call(&operator, &xrl, Format::Text).await.expect("a reply"), format!("{arguments}\n"));
    });
}

#[test]
fn types_may_be_left_out_and_messages_are_json() {
    run(async {
        let (_finder, _node, operator) = router().await;
        let xrl =
            "exercise/exercise.v1.Exercise/Echo?number=7&inner={\"text\":\"deep\",\"number\":1}&flag=true";
        let reply = call(&operator, xrl, Format::Text).await.expect("a reply");
        assert_eq!(reply, "number:u64=7&inner:json={\"number\":1,\"text\":\"deep\"}&flag:bool=true\n");
    });
}

#[test]
fn a_reply_in_json_has_every_field() {
    run(async {
        let (_finder, _node, operator) = router().await;
        let reply =
            call(&operator, "exercise/exercise.v1/Echo?number=18446744073709551615", Format::Json).await;
        assert_eq!(
            reply.expect("a reply"),
            "{\"number\":18446744073709551615,\"text\":\"\",\"data\":\"\",\"list\":[],\"signed\":0,\
             \"flag\":false,\"colour\":\"GREEN\"}\n"
        );
    });
}

#[test]
fn a_stream_is_written_a_line_for_each_message() {
    run(async {
        let (_finder, _node, operator) = router().await;
        let reply = call(&operator, "exercise/exercise.v1/Count?number=3", Format::Text).await;
        assert_eq!(reply.expect("a reply"), "\nnumber:u64=1\nnumber:u64=2\n");
    });
}

#[test]
fn addresses_are_octets() {
    run(async {
        let (_finder, _node, operator) = router().await;
        let reply =
            call(&operator, "exercise/exercise.v1/Echo?data:ip=10.0.0.1&text:prefix=::/0", Format::Text)
                .await;
        assert_eq!(reply.expect("a reply"), "text:txt=::/0&data:bytes=0a000001\n");
    });
}

#[test]
fn what_is_wrong_with_a_call_is_said() {
    run(async {
        let (_finder, _node, operator) = router().await;
        for (xrl, expected) in [
            ("signal://exercise-1/TERM", "no component \"manager\" is running"),
            (
                "signal://exercise-1",
                "\"signal://exercise-1\" is not signal://TARGET/SIGNAL, as in signal://bgp/TERM",
            ),
            ("nobody/x.v1/Echo", "no component \"nobody\" is running"),
            ("exercise/x.v1/Echo", "exercise-1 has no interface x.v1 (it has: exercise.v1)"),
            ("exercise/exercise.v1/Eco", "exercise.v1 has no method Eco (it has: Echo, Count,"),
            ("exercise/exercise.v1/Echo?as=1", "Note has no such field (it has: number, text,"),
            ("exercise/exercise.v1/Echo?number=x", "argument \"number=x\": \"x\" is no u64"),
            ("exercise/exercise.v1/Echo?number:u32=1", "the field is of another type than u32"),
            ("exercise/exercise.v1/Echo?inner:txt=1", "type json is expected, not txt"),
            ("exercise/exercise.v1/Echo?inner={\"x\":1}", "unrecognized field name 'x'"),
            ("exercise/exercise.v1/Echo?data:ip=10.0.0.256", "\"10.0.0.256\" is no address"),
            ("exercise/exercise.v1/Echo?text:prefix=10.0.0.0/33", "\"10.0.0.0/33\" is no prefix"),
            ("exercise/exercise.v1/Echo?data=abc", "\"abc\" is not hexadecimal"),
            ("exercise/exercise.v1/Secret", "role \"operator\" may not call"),
        ] {
            let error = call(&operator, xrl, Format::Text).await.expect_err(xrl).to_string();
            assert!(error.contains(expected), "{xrl}: {error}");
        }
    });
}

#[test]
fn the_finder_is_called_like_everybody_else() {
    run(async {
        let (_finder, _node, operator) = router().await;
        let reply = call(&operator, "finder/finder.v1/List", Format::Json).await.expect("a reply");
        assert!(reply.contains("\"name\":\"exercise-1\",\"class\":\"exercise\",\"pid\":7"), "{reply}");
    });
}

#[test]
fn every_method_of_the_finder_is_called_by_text() {
    run(async {
        let (finder, node, operator) = router().await;
        for (xrl, expected) in [
            ("finder/finder.v1/Families", "families:json=[{\"name\":\"unix\"}]"),
            ("finder/finder.v1/Describe?target=exercise", "instance:json={\"name\":\"exercise-1\""),
            (
                "finder/finder.v1/Resolve?target=exercise&service=exercise.v1.Exercise",
                "&instance:txt=exercise-1",
            ),
            ("finder/finder.v1.Finder/List", "instances:json=[{\"name\":\"exercise-1\""),
        ] {
            let reply = call(&operator, xrl, Format::Text).await.expect(xrl);
            assert!(reply.contains(expected), "{xrl}: {reply}");
        }
        let register = "finder/finder.v1/Register?class=exercise&instance=exercise-2";
        let error = call(&operator, register, Format::Text).await.expect_err("an operator is no component");
        assert_eq!(error.to_string(), "denied: role \"operator\" may not register as class \"exercise\"");

        let mut watched = Vec::new();
        let watch = text::call(&operator, "finder/finder.v1/Watch?class=*", Format::Text, &mut watched);
        let death = async {
            settle().await;
            node.close();
            settle().await;
            // A stream that never ends by itself.
            finder.close();
        };
        let (ended, ()) = tokio::join!(watch, death);
        assert_eq!(ended.expect_err("closed").kind(), ErrorKind::Disconnected);
        let lines = String::from_utf8(watched).expect("text");
        let lines: Vec<&str> = lines.lines().collect();
        assert!(
            lines[0].starts_with("kind:enum=BIRTH&") && lines[0].ends_with("&classes:txt=exercise"),
            "{lines:?}"
        );
        assert!(
            lines[1].starts_with("kind:enum=DEATH&") && lines[1].ends_with("&classes:txt=exercise"),
            "{lines:?}"
        );
    });
}

#[test]
fn all_methods_are_listed_as_they_are_called() {
    run(async {
        let (_finder, _node, operator) = router().await;
        let mut out = Vec::new();
        text::list(&operator, &mut out).await.expect("a list");
        let list = String::from_utf8(out).expect("text");
        for line in [
            "# exercise-1 (class exercise, pid 7)",
            "finder://exercise/exercise.v1/Echo",
            "finder://finder/finder.v1/List",
        ] {
            assert!(list.lines().any(|known| known == line), "{line} in {list}");
        }
    });
}

#[test]
fn an_interface_is_described_with_what_its_file_says() {
    run(async {
        let (_finder, _node, operator) = router().await;
        let mut out = Vec::new();
        text::describe(&operator, "exercise/exercise.v1", &mut out).await.expect("a description");
        let description = String::from_utf8(out).expect("text");
        for part in [
            "// Does what its methods are asked to.\ninterface exercise.v1 (service exercise.v1.Exercise)",
            "  // Counts up from 0 to the number sent.\n  Count(Note) -> stream of Note   [may call: *; over local, unix, tcp; since 1]",
            "  // A list.\n  list: list of uint32",
            "enum exercise.v1.Colour\n  // Like grass.\n  GREEN = 0",
        ] {
            assert!(description.contains(part), "{part}\nin\n{description}");
        }
        let error = text::describe(&operator, "exercise/x.v1", &mut Vec::new()).await.expect_err("none");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn the_resolved_form_names_what_this_caller_may_call() {
    run(async {
        let (_finder, _node, operator) = router().await;
        let mut out = Vec::new();
        text::resolve(&operator, "exercise/exercise.v1", &mut out).await.expect("resolved");
        let resolved = String::from_utf8(out).expect("text");
        assert!(resolved.contains("unix://exercise-1/exercise.v1/Echo (0xea610001)"), "{resolved}");
        assert!(!resolved.contains("Secret"), "{resolved}");
        let error = text::resolve(&operator, "exercise", &mut Vec::new()).await.expect_err("no interface");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}

fn any_note(depth: u32) -> BoxedStrategy<Note> {
    let inner = if depth == 0 {
        Just(None).boxed()
    } else {
        proptest::option::of(any_note(depth - 1).prop_map(Box::new)).boxed()
    };
    let numbers = (any::<u64>(), any::<i32>(), any::<bool>(), 0..2i32);
    let rest = (any::<String>(), any::<Vec<u8>>(), any::<Vec<u32>>(), inner);
    (numbers, rest)
        .prop_map(|((number, signed, flag, colour), (text, data, list, inner))| Note {
            number,
            text,
            data,
            list,
            inner,
            signed,
            flag,
            colour,
        })
        .boxed()
}

proptest! {
    #![proptest_config(holdfast_testing::cases(64))]
    #[test]
    fn a_message_survives_its_text_form(note in any_note(2)) {
        let pool = DescriptorPool::decode(ExerciseClient::SERVICE.descriptor_set).expect("a descriptor set");
        let descriptor = pool.get_message_by_name("exercise.v1.Note").expect("a note");
        let bytes = note.encode_to_vec();
        let message = DynamicMessage::decode(descriptor.clone(), bytes.as_slice()).expect("a note");
        let line = format!("exercise/exercise.v1/Echo?{}", text::to_arguments(&message));
        let xrl: Xrl = line.parse().expect("an XRL");
        let arguments: Vec<Argument> = xrl.arguments;
        let back = text::from_arguments(descriptor, &arguments).expect("a message");
        prop_assert_eq!(Note::decode(back.encode_to_vec().as_slice()).expect("a note"), note);
    }
}
