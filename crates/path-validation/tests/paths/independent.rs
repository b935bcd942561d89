//! A second opinion on paths, which shares no code with what is tested: it reads octets by their places, follows RFC 8205
//! section 4.2 to the letter with a buffer for each hop, and computes ECDSA (SEC 1 section 4.1.4) with big numbers.

use std::collections::HashMap;

use num_bigint::BigUint;

/// Public points by AS and SKI.
pub(crate) type PublicKeys = HashMap<(u32, [u8; 20]), Vec<(BigUint, BigUint)>>;

struct Curve {
    p: BigUint,
    n: BigUint,
    b: BigUint,
    g: (BigUint, BigUint),
}

type Point = Option<(BigUint, BigUint)>;

fn number(hex: &str) -> BigUint {
    BigUint::parse_bytes(hex.as_bytes(), 16).expect("digits")
}

impl Curve {
    /// FIPS 186-4 appendix D.1.2.3.
    fn p256() -> Self {
        Self {
            p: number("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff"),
            n: number("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"),
            b: number("5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b"),
            g: (
                number("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"),
                number("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"),
            ),
        }
    }

    fn less(&self, a: &BigUint, b: &BigUint) -> BigUint {
        ((a % &self.p) + &self.p - (b % &self.p)) % &self.p
    }

    fn invert(value: &BigUint, modulus: &BigUint) -> BigUint {
        value.modpow(&(modulus - 2_u8), modulus)
    }

    fn add(&self, one: &Point, other: &Point) -> Point {
        let (Some((x1, y1)), Some((x2, y2))) = (one, other) else {
            return one.clone().or_else(|| other.clone());
        };
        let slope = if x1 == x2 {
            if y1 != y2 || *y1 == BigUint::ZERO {
                return None;
            }
            (x1 * x1 * 3_u8 + &self.p - 3_u8) * Self::invert(&(y1 * 2_u8), &self.p)
        } else {
            self.less(y2, y1) * Self::invert(&self.less(x2, x1), &self.p)
        };
        let x = self.less(&self.less(&(&slope * &slope), x1), x2);
        let y = self.less(&(&slope * self.less(x1, &x)), y1);
        Some((x, y))
    }

    fn times(&self, scalar: &BigUint, point: &Point) -> Point {
        let mut sum = None;
        for bit in (0..scalar.bits()).rev() {
            sum = self.add(&sum, &sum);
            if scalar.bit(bit) {
                sum = self.add(&sum, point);
            }
        }
        sum
    }

    fn has(&self, (x, y): &(BigUint, BigUint)) -> bool {
        (y * y) % &self.p == (x * x * x + (&self.p - 3_u8) * x + &self.b) % &self.p
    }

    fn verifies(&self, key: &(BigUint, BigUint), digest: &[u8], r: &BigUint, s: &BigUint) -> bool {
        let proper = |value: &BigUint| *value != BigUint::ZERO && *value < self.n;
        if !self.has(key) || !proper(r) || !proper(s) {
            return false;
        }
        let inverse = Self::invert(s, &self.n);
        let u1 = BigUint::from_bytes_be(digest) * &inverse % &self.n;
        let u2 = r * &inverse % &self.n;
        let sum = self.add(&self.times(&u1, &Some(self.g.clone())), &self.times(&u2, &Some(key.clone())));
        sum.is_some_and(|(x, _)| x % &self.n == *r)
    }
}

/// The order of the group.
pub(crate) fn order() -> BigUint {
    Curve::p256().n
}

/// A key that nobody has, and for which r and s are a good signature of a digest (SEC 1 section 4.1.6). `None`: no point has this
/// r for its x.
pub(crate) fn key_with(digest: &[u8], r: &BigUint, s: &BigUint) -> Option<(BigUint, BigUint)> {
    let curve = Curve::p256();
    let square = (r * r * r + (&curve.p - 3_u8) * r + &curve.b) % &curve.p;
    let point = (r.clone(), square.modpow(&((&curve.p + 1_u8) / 4_u8), &curve.p));
    if !curve.has(&point) {
        return None;
    }
    let inverse = Curve::invert(r, &curve.n);
    let minus = &curve.n - BigUint::from_bytes_be(digest) * &inverse % &curve.n;
    let key = curve.add(
        &curve.times(&(s * &inverse % &curve.n), &Some(point)),
        &curve.times(&minus, &Some(curve.g.clone())),
    )?;
    assert!(curve.verifies(&key, digest, r, s));
    Some(key)
}

/// r and s of DER, short lengths only; `None` where there is anything else.
pub(crate) fn signature(der: &[u8]) -> Option<(BigUint, BigUint)> {
    let integer = |octets: &[u8]| -> Option<(BigUint, usize)> {
        let length = usize::from(*octets.get(1)?);
        let value = octets.get(2..2 + length)?;
        (octets[0] == 2 && length > 0).then(|| (BigUint::from_bytes_be(value), 2 + length))
    };
    if der.first() != Some(&0x30) || usize::from(*der.get(1)?) != der.len() - 2 {
        return None;
    }
    let (r, length) = integer(&der[2..])?;
    let (s, rest) = integer(&der[2 + length..])?;
    (2 + length + rest == der.len()).then_some((r, s))
}

/// Whether all signatures of suite 1 are good, in the block of that suite.
pub(crate) fn is_valid(
    attribute: &[u8],
    target: u32,
    family: (u16, u8),
    nlri: &[u8],
    keys: &PublicKeys,
) -> bool {
    let u16_at = |at: usize| usize::from(u16::from_be_bytes([attribute[at], attribute[at + 1]]));
    let path_end = u16_at(0);
    let hops = (path_end - 2) / 6;
    let segment = |hop: usize| &attribute[2 + 6 * hop..8 + 6 * hop];
    let asn = |hop: usize| u32::from_be_bytes(segment(hop)[2..].try_into().expect("four octets"));
    let mut block = path_end;
    while attribute[block + 2] != 1 {
        block += u16_at(block);
        if block >= attribute.len() {
            return false;
        }
    }
    let mut signatures = Vec::new();
    let mut at = block + 3;
    while at < block + u16_at(block) {
        let end = at + 22 + u16_at(at + 20);
        signatures.push(&attribute[at..end]);
        at = end;
    }
    let curve = Curve::p256();
    (0..hops).all(|hop| {
        let mut hashed = if hop == 0 { target } else { asn(hop - 1) }.to_be_bytes().to_vec();
        for older in hop..hops {
            if older + 1 < hops {
                hashed.extend(signatures[older + 1]);
            }
            hashed.extend(segment(older));
        }
        hashed.push(1);
        hashed.extend(family.0.to_be_bytes());
        hashed.push(family.1);
        hashed.extend(nlri);
        let digest = hmac_sha256::Hash::hash(&hashed);
        let ski: [u8; 20] = signatures[hop][..20].try_into().expect("20 octets");
        let Some((r, s)) = signature(&signatures[hop][22..]) else { return false };
        keys.get(&(asn(hop), ski))
            .is_some_and(|keys| keys.iter().any(|key| curve.verifies(key, &digest, &r, &s)))
    })
}
