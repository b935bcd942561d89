//! The example as the router that it is. Needs root.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Result, ensure};
use holdfast_lab::{
    router::{Files, Router},
    topology::{ROUTER, Star},
    wait,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(30);

/// It has a level of its log and a limit like every other process.
const OTHERS: &str = "[log.process]\necho = \"debug\"\n[sandbox.limits.echo]\nmemory = \"64 MiB\"\n";
const ECHO: &str = "[echo]\nword = \"hello\"\ntimes = 2\n";

fn until_said(router: &Router, expected: &Value) -> Result<()> {
    wait::until("what echo says", LIMIT, || match router.show(&["echo"]) {
        Ok(said) if said == *expected => Ok(()),
        other => Err(format!("{other:?}")),
    })
}

/// What a command of the program says about a file, right or wrong.
fn check(program: &Path, directory: &Path, text: &str) -> Result<String> {
    let file = directory.join("checked.toml");
    std::fs::write(&file, text)?;
    let output = Command::new(program).args(["check", "-c"]).arg(&file).output()?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_process_is_configured_asked_confined_and_started_again() -> Result<()> {
    let star = Star::new(0)?;
    let program = Path::new(env!("CARGO_BIN_EXE_echo"));
    let with = |section: &str| [ROUTER, OTHERS, section].concat();
    let router = Router::start_program(program, &star.router, &with(ECHO), &[])?;
    let said = |words: &[&str]| -> Value {
        let rows = (1..).zip(words).map(|(number, said)| json!({ "number": number, "said": said }));
        rows.collect()
    };
    until_said(&router, &said(&["hello", "hello"]))?;
    ensure!(router.show(&["echo", "count"])? == json!([{ "number": 2, "said": "hello" }]));
    let refused = router.show(&["echo", "letters"]).expect_err("no such command").to_string();
    ensure!(refused.contains("there is: words, count"), "{refused}");
    let refused = router.show(&["ecco"]).expect_err("no such process").to_string();
    ensure!(refused.contains("unrecognized subcommand"), "{refused}");

    // What it has counted is cleared by its own command.
    let cleared = router.cli(&["clear", "echo", "answers"])?;
    ensure!(
        cleared.starts_with("cleared ") && cleared.contains("answers") && !cleared.contains(" 0 "),
        "{cleared}"
    );
    ensure!(router.cli(&["clear", "echo"])? == "cleared 0 answers\n");
    let refused = router.cli(&["clear", "echo", "letters"]).expect_err("no such command").to_string();
    ensure!(refused.contains("there is: answers"), "{refused}");

    // A key that changes is told to the process that has it, and to no other.
    let pids = ["rib", "echo"].map(|name| router.pid(name).expect("it runs"));
    let louder = with(&ECHO.replace("times = 2", "loud = true"));
    let changes = router.reload_with_files(&louder, &Files::new())?;
    ensure!(changes.contains("sections changed: echo"), "{changes}");
    until_said(&router, &said(&["HELLO"]))?;
    ensure!(["rib", "echo"].map(|name| router.pid(name).expect("it runs")) == pids);

    // What is wrong is found by the rows alone.
    for (key, expected) in [
        ("wrod = \"hello\"", "did you mean `word`?"),
        ("word = \"hello\"\ntimes = 11", "expected 1 to 10"),
        ("word = \"hello\"\nloud = 1", "expected `true` or `false`"),
        ("times = 1", "echo needs `word`"),
    ] {
        let found = check(program, router.directory(), &with(&format!("[echo]\n{key}\n")))?;
        ensure!(found.contains(expected), "{found}");
    }

    // Who dies is started again, and is told its section again.
    router.kill("echo")?;
    until_said(&router, &said(&["HELLO"]))?;
    router.reload_with_files(&with(""), &Files::new())?;
    wait::until("echo ends without its section", LIMIT, || match router.pid("echo") {
        Ok(pid) => Err(format!("it runs as {pid}")),
        Err(_) => Ok(()),
    })?;
    router.stop()
}
