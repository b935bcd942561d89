//! Prints what a BGPsec_PATH says: `cargo run -p holdfast-bgpsec-wire --example print_path [HEX]`, the attribute's value without
//! flags, type and length. Without an argument it is the IPv4 example of RFC 8608 appendix A.

use std::{error::Error, fmt::Write};

use holdfast_bgpsec_wire::Path;

const EXAMPLE: &str = "\
000E01000001000001000000FBF0\
00BF01\
47F23BF1AB2F8A9D26864EBBD8DF2711C74406EC0048\
3046022100EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716\
02210090F2C129ABB2F39B6A07963BD555A87AB2B7333B7B91F1668FD8618C83FAC3F1\
AB4D910F55CAE71A215EF3CAFE3ACC45B5EEC1540048\
3046022100EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716\
0221008E21F60E44C6066C8B8A95A3C09D3AD4379585A2D728EEAD07A17ED7AA055ECA";

fn main() -> Result<(), Box<dyn Error>> {
    let hex = std::env::args().nth(1).unwrap_or_else(|| EXAMPLE.to_owned());
    print!("{}", report(&unhex(&hex)?)?);
    Ok(())
}

fn report(octets: &[u8]) -> Result<String, Box<dyn Error>> {
    let path = Path::parse(octets)?;
    let mut text = format!("{} hops, counting as {}\n", path.hops(), path.length());
    for segment in path.segments() {
        let confed = if segment.is_confed() { ", in a confederation" } else { "" };
        writeln!(text, "  AS {}, pCount {}{confed}", segment.asn, segment.pcount)?;
    }
    for block in path.blocks() {
        writeln!(text, "suite {}", block.suite)?;
        for signature in block.signatures() {
            writeln!(text, "  key {}, {} octets", signature.ski, signature.octets.len())?;
        }
    }
    Ok(text)
}

fn unhex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let (pairs, []) = text.as_bytes().as_chunks() else { return Err("an odd number of digits".into()) };
    pairs.iter().map(|pair: &[u8; 2]| Ok(u8::from_str_radix(str::from_utf8(pair)?, 16)?)).collect()
}

#[test]
fn the_example_is_printed() {
    let text = "\
2 hops, counting as 2
  AS 65536, pCount 1
  AS 64496, pCount 1
suite 1
  key 47F23BF1AB2F8A9D26864EBBD8DF2711C74406EC, 72 octets
  key AB4D910F55CAE71A215EF3CAFE3ACC45B5EEC154, 72 octets
";
    let octets = unhex(EXAMPLE).expect("digits");
    assert_eq!(report(&octets).expect("a path"), text);
    let error = report(&octets[1..]).expect_err("no path").to_string();
    assert_eq!(error, "the length of the Secure_Path is wrong");
}
