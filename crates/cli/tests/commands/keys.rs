//! `holdfast keys`, which needs no router.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use holdfast_cli::Failure;
use serde_json::{Value, json};

use crate::tests::commands::fake::{Directory, Line};

/// Runs a command in which `@` is a directory.
fn run(directory: &Directory, line: &str) -> Result<String, Failure> {
    let line = line.replace('@', directory.path().to_str().expect("text"));
    let mut out = Vec::new();
    Line::parse(&line).expect("a command").run_on(holdfast_config::Schema::new([]), &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

fn text(directory: &Directory, line: &str) -> String {
    run(directory, line).expect(line)
}

fn json(directory: &Directory, line: &str) -> Value {
    serde_json::from_str(&text(directory, &format!("{line} --json"))).expect(line)
}

/// Exit code and message, with `@` for the directory.
fn fails(directory: &Directory, line: &str) -> (u8, String) {
    let failure = run(directory, line).expect_err(line);
    (failure.exit_code(), failure.to_string().replace(directory.path().to_str().expect("text"), "@"))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("is there").permissions().mode() & 0o777
}

#[test]
fn a_router_gets_a_key_that_nobody_else_reads_and_a_certificate_by_itself() {
    let at = Directory::new();
    let said = text(&at, "keys new @/r1 --name r1.example --name 192.0.2.1");
    let begins = "certificate\n  subject      CN=r1.example\n  names        r1.example, 192.0.2.1\n  issuer       itself\n";
    assert!(said.starts_with(begins), "{said}");
    for (file, expected) in [("key.pem", 0o600), ("certificate.pem", 0o644), ("request.pem", 0o644)] {
        assert!(said.contains(&format!("/r1/{file}\n")), "{said}");
        assert_eq!(mode(&at.path().join("r1").join(file)) & expected, mode(&at.path().join("r1").join(file)));
    }
    assert_eq!(mode(&at.path().join("r1/key.pem")), 0o600);
    let prints =
        ["key", "certificate", "request"].map(|file| text(&at, &format!("keys fingerprint @/r1/{file}.pem")));
    assert!(prints.iter().all(|print| *print == prints[0] && print.len() == 96), "{prints:?}");
    assert!(said.contains(prints[0].trim_end()), "{said}");
    assert_eq!(json(&at, "keys fingerprint @/r1/key.pem"), json!({ "fingerprint": prints[0].trim_end() }));
}

#[test]
fn a_key_is_replaced_on_demand_only() {
    let at = Directory::new();
    text(&at, "keys new @/r1 --name r1.example");
    let before = fs::read(at.path().join("r1/key.pem")).expect("a key");
    let refused = "@/r1/key.pem is there already, and is replaced with --force only";
    assert_eq!(fails(&at, "keys new @/r1 --name r1.example"), (1, refused.to_owned()));
    fs::remove_file(at.path().join("r1/key.pem")).expect("is there");
    let refused = "@/r1/certificate.pem is there already, and is replaced with --force only";
    assert_eq!(fails(&at, "keys new @/r1 --name r1.example"), (1, refused.to_owned()));
    assert!(!at.path().join("r1/key.pem").exists(), "all or nothing");
    text(&at, "keys new @/r1 --name r1.example --ed25519 --force");
    assert_ne!(fs::read(at.path().join("r1/key.pem")).expect("a key"), before);
    assert_eq!(json(&at, "keys show @/r1/key.pem")[0]["algorithm"], "Ed25519");
}

#[test]
fn an_authority_signs_here_and_for_others_and_revokes() {
    let at = Directory::new();
    let lab = json(&at, "keys authority @/ca --name Lab");
    assert_eq!((&lab["kind"], &lab["subject"]), (&json!("certificate of an authority"), &json!("CN=Lab")));
    assert_eq!(mode(&at.path().join("ca/key.pem")), 0o600);

    let one = json(&at, "keys new @/r1 --name r1.example --authority @/ca --days 30");
    assert_eq!((&one["issuer"], &one["names"]), (&json!("CN=Lab"), &json!(["r1.example"])));
    text(&at, "keys new @/r2 --name r2.example");
    let signed = text(&at, "keys sign @/ca @/r2/request.pem");
    assert!(signed.starts_with("-----BEGIN CERTIFICATE-----\n"), "{signed}");
    assert_eq!(fails(&at, "keys sign @/ca @/r2/request.pem --out @/r2/certificate.pem").0, 1);
    text(&at, "keys sign @/ca @/r2/request.pem --out @/r2/certificate.pem --force");
    let two = &json(&at, "keys show @/r2/certificate.pem")[0];
    assert_eq!((&two["issuer"], &two["isPast"]), (&json!("CN=Lab"), &json!(false)));

    let list = json(&at, "keys revoke @/ca @/r2/certificate.pem");
    assert_eq!((&list["issuer"], &list["revoked"]), (&json!("CN=Lab"), &json!([two["serial"]])));
    json(&at, "keys revoke @/ca @/r1/certificate.pem");
    let both = &json(&at, "keys show @/ca/crl.pem")[0];
    assert_eq!(both["revoked"], json!([two["serial"], one["serial"]]));
    let again = "@/r1/certificate.pem: CN=r1.example is revoked already";
    assert_eq!(fails(&at, "keys revoke @/ca @/r1/certificate.pem"), (1, again.to_owned()));
}

#[test]
fn what_is_something_else_is_refused_with_its_file() {
    let at = Directory::new();
    text(&at, "keys new @/r1 --name r1.example");
    fs::write(at.path().join("router.toml"), "[bgp]\n").expect("a file");
    for (line, said) in [
        (
            "keys show @/router.toml",
            "@/router.toml: this is neither a certificate nor a key, a request or a revocation list (PEM or DER)",
        ),
        ("keys show @/none.pem", "@/none.pem: No such file or directory (os error 2)"),
        (
            "keys new @/r2 --name r2.example --authority @/none",
            "@/none/key.pem: No such file or directory (os error 2)",
        ),
        (
            "keys new @/r2 --name r2.example --authority @/r1",
            "@/r1/certificate.pem: CN=r1.example is no authority: its certificate does not allow it to sign others",
        ),
        ("keys new @/r2 --name r2_/x", "`r2_/x` is neither a DNS name nor an IP address"),
        (
            "keys sign @/r1 @/r1/key.pem",
            "@/r1/certificate.pem: CN=r1.example is no authority: its certificate does not allow it to sign others",
        ),
    ] {
        assert_eq!(fails(&at, line), (1, said.to_owned()), "{line}");
    }
    assert!(!at.path().join("r2").exists(), "nothing is made where something is wrong");
    text(&at, "keys authority @/ca --name Lab");
    assert_eq!(
        fails(&at, "keys sign @/ca @/r1/key.pem"),
        (1, "@/r1/key.pem: there is no request in it".to_owned())
    );
    let crl = text(&at, "keys revoke @/ca @/ca/certificate.pem");
    assert!(crl.starts_with("revocation list\n  issuer       CN=Lab\n  made "), "{crl}");
    assert_eq!(
        fails(&at, "keys fingerprint @/ca/crl.pem"),
        (1, "@/ca/crl.pem: there is no key in it".to_owned())
    );
    assert!(Line::parse("keys new somewhere").is_err(), "for which name?");
    assert!(Line::parse("keys new somewhere --name r1.example --days 0").is_err(), "valid when?");
    assert_eq!(fails(&at, "keys authority @/nobody --name= "), (1, "an authority needs a name".to_owned()));
}

#[test]
fn check_looks_for_files_where_the_router_may_read() {
    let at = Directory::new();
    text(&at, "keys new @/r1/tls --name r1.example");
    text(&at, "keys new @/elsewhere --name r1.example");
    std::os::unix::fs::symlink("../elsewhere", at.path().join("r1/link")).expect("a link");
    let check = |directory: &str| {
        let files = format!("key = \"{directory}/key.pem\"\ncertificate = \"{directory}/certificate.pem\"");
        let router = format!("[router]\nid = \"10.0.0.1\"\nasn = 65000\n[tls]\n{files}\n");
        fs::write(at.path().join("r1/router.toml"), router).expect("a file");
        run(&at, "check -c @/r1/router.toml")
    };
    check("tls").expect("beside it");
    for outside in ["../elsewhere", "link"] {
        let wrong = check(outside).expect_err(outside).to_string();
        assert!(wrong.contains("it has to be in the directory of the configuration or below"), "{wrong}");
    }
    let missing = check("nowhere").expect_err("nothing is there").to_string();
    assert!(missing.contains("No such file"), "{missing}");
}

#[test]
fn the_commands_of_the_manual_do_what_it_says() {
    let at = Directory::new();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/keys.md");
    let page = fs::read_to_string(page).expect("the page").replace("\"Lab CA\"", "Lab");
    let commands: Vec<(&str, &str)> =
        page.lines().filter_map(|line| line.split_once("$ holdfast ")).collect();
    assert!(commands.len() > 6, "{commands:?}");
    for (host, command) in commands {
        let mut words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        for number in 2..words.len() {
            let is_path = !words[number].starts_with('-') && words[number - 1] != "--name";
            if is_path {
                // Paths from the root are of a host; what is beside us is carried around.
                let of_host = words[number].strip_prefix('/').map(|path| format!("@/root-of-{host}/{path}"));
                words[number] = of_host.unwrap_or_else(|| format!("@/{}", words[number]));
            }
        }
        text(&at, &words.join(" "));
        if words[1] == "new" {
            let made = words[2].replace('@', at.path().to_str().expect("text"));
            fs::copy(Path::new(&made).join("request.pem"), at.path().join("request.pem")).expect("is there");
        }
    }
    let signed = &json(&at, "keys show @/r3.pem")[0];
    assert_eq!((&signed["subject"], &signed["issuer"]), (&json!("CN=r3.example"), &json!("CN=Lab")));
}
