//! A path over two hops: AS 64496 originates 2001:db8::/32 and signs it for AS 64497, which signs it for AS 64498.

use std::error::Error;

use holdfast_bgpsec_wire::{Nlri, Path, Segment};
use holdfast_path_validation::{Change, KeyTable, P256Signer, Validator, Verdict, random_seed, sign};
use holdfast_types::Asn;

fn main() -> Result<(), Box<dyn Error>> {
    // Keys are made here; `P256Signer::from_der` takes one that is there, as PKCS#8 or SEC 1.
    let [origin, transit] = [P256Signer::generate(Asn(64496))?, P256Signer::generate(Asn(64497))?];
    let nlri = Nlri::unicast("2001:db8::/32".parse()?);
    let once = |asn| Segment { pcount: 1, flags: 0, asn: Asn(asn) };

    let first = sign(None, once(64496), Asn(64497), &nlri, &[&origin])?;
    // AS 64497 would rather have traffic elsewhere, and counts twice.
    let twice = Segment { pcount: 2, ..once(64497) };
    let second = sign(Some(&Path::parse(&first)?), twice, Asn(64498), &nlri, &[&transit])?;
    println!("{} octets after one hop, {} after two", first.len(), second.len());

    let table = KeyTable::new(random_seed()?);
    table.apply([&origin, &transit].map(|signer| Change::Announce(signer.router_key())));
    let path = Path::parse(&second)?;
    let to = |asn| Validator::default().validate(&path, Asn(asn), &nlri, &table.keys());
    println!("at AS 64498: {:?}, of length {}", to(64498), path.length());
    println!("at AS 64499, which it was not for: {:?}", to(64499));
    match (to(64498), to(64499)) {
        (Verdict::Valid, Verdict::NotValid(_)) => Ok(()),
        others => Err(format!("verdicts {others:?}").into()),
    }
}

#[test]
fn it_runs() -> Result<(), Box<dyn Error>> {
    main()
}
