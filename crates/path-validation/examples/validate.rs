//! What a receiver does with a path: the checks that cost nothing, then the signatures. The path is the IPv4 example of RFC 8608
//! appendix A: AS 64496 originates 192.0.2.0/24, AS 65536 passes it on, we are AS 65537.

use std::error::Error;

use holdfast_bgpsec_wire::{Ingress, Nlri, Path, Update};
use holdfast_path_validation::{
    Change, KeyTable, RouterKey, Validator, Verdict, VerifiedSignatures, random_seed,
};
use holdfast_types::Asn;

const PATH: &str = "\
000E01000001000001000000FBF0\
00BF01\
47F23BF1AB2F8A9D26864EBBD8DF2711C74406EC0048\
3046022100EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716\
02210090F2C129ABB2F39B6A07963BD555A87AB2B7333B7B91F1668FD8618C83FAC3F1\
AB4D910F55CAE71A215EF3CAFE3ACC45B5EEC1540048\
3046022100EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716\
0221008E21F60E44C6066C8B8A95A3C09D3AD4379585A2D728EEAD07A17ED7AA055ECA";

/// AS, subject key identifier and subjectPublicKeyInfo, as a cache says them.
const KEYS: [(u32, &str, &str); 2] = [
    (
        64496,
        "AB4D910F55CAE71A215EF3CAFE3ACC45B5EEC154",
        "3059301306072A8648CE3D020106082A8648CE3D03010703420004\
7391BABB92A0CB3BE10E59B19EBFFB214E04A91E0CBA1B139A7D38D90F77E55A\
A05B8E695678E0FA16904B55D9D4F5C0DFC58895EE50BC4F75D205A25BD36FF5",
    ),
    (
        65536,
        "47F23BF1AB2F8A9D26864EBBD8DF2711C74406EC",
        "3059301306072A8648CE3D020106082A8648CE3D03010703420004\
28FC5FE9AFCF5F4CAB3F5F85CB212FC1E9D0E0DBEAEE425BD2F0D3175AA0E989\
EA9B603E38F35FB329DF495641F2BA040F1C3AC6138307F257CBA6B8B588F41F",
    ),
];

fn main() -> Result<(), Box<dyn Error>> {
    let table = KeyTable::new(random_seed()?);
    println!("without keys: {:?}", judge(&table)?);
    for (asn, ski, spki) in KEYS {
        let key = RouterKey { asn: Asn(asn), ski: ski.parse()?, spki: unhex(spki)? };
        table.apply([Change::Announce(key)]);
        println!("with the key of AS {asn}: {:?}", judge(&table)?);
    }
    Ok(())
}

fn judge(table: &KeyTable) -> Result<Verdict, Box<dyn Error>> {
    let octets = unhex(PATH)?;
    let path = Path::parse(&octets)?;
    // What the session and the rest of the UPDATE say.
    Ingress::external(Asn(65536), Asn(65537)).check(&path, Update::PROPER)?;
    // One validator is for all paths: its memory of good signatures is of use then.
    let validator = Validator::default().with_memory(VerifiedSignatures::new(100_000, random_seed()?));
    let nlri = Nlri::unicast("192.0.2.0/24".parse()?);
    Ok(validator.validate(&path, Asn(65537), &nlri, &table.keys()))
}

fn unhex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let (pairs, []) = text.as_bytes().as_chunks() else { return Err("an odd number of digits".into()) };
    pairs.iter().map(|pair: &[u8; 2]| Ok(u8::from_str_radix(str::from_utf8(pair)?, 16)?)).collect()
}

#[test]
fn it_is_valid_with_both_keys() -> Result<(), Box<dyn Error>> {
    let table = KeyTable::new([1, 2]);
    assert!(matches!(judge(&table)?, Verdict::NotValid(_)));
    for (asn, ski, spki) in KEYS {
        let key = RouterKey { asn: Asn(asn), ski: ski.parse()?, spki: unhex(spki)? };
        table.apply([Change::Announce(key)]);
    }
    assert_eq!(judge(&table)?, Verdict::Valid);
    Ok(())
}
