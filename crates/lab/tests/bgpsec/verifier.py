#!/usr/bin/env python3
"""Says of BGP UPDATEs with BGPsec_PATH what a receiver makes of them: valid, not-valid, refused, unsigned.

It is written from RFC 8205, RFC 8608, RFC 7606 and RFC 4760 alone, and shares no code with the router that it is
compared with: the curve is here, SHA-256 is that of Python.

    verifier.py OWN_AS PEER_AS KEYS UPDATES

KEYS has a line for each key: AS, SKI, subjectPublicKeyInfo (both hexadecimal). UPDATES has the octets of each message on
its line. For each prefix that is announced there is a line with its state, in the order of the messages.
"""
import hashlib
import sys

# P-256 (FIPS 186-4, D.1.2.3).
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
INFINITY = (1, 1, 0)
# subjectPublicKeyInfo of an uncompressed point of P-256, before that (RFC 5480).
SPKI = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
MOST_HOPS, MOST_PCOUNT = 64, 1000


class Refused(Exception):
    """The UPDATE is treated as a withdrawal."""


def double(p):
    x, y, z = p
    if z == 0 or y == 0:
        return INFINITY
    delta, gamma = z * z % P, y * y % P
    beta = x * gamma % P
    alpha = 3 * (x - delta) * (x + delta) % P
    x3 = (alpha * alpha - 8 * beta) % P
    return x3, (alpha * (4 * beta - x3) - 8 * gamma * gamma) % P, 2 * y * z % P


def add(p, q):
    (x1, y1, z1), (x2, y2, z2) = p, q
    if z1 == 0:
        return q
    if z2 == 0:
        return p
    z1z1, z2z2 = z1 * z1 % P, z2 * z2 % P
    u1, u2 = x1 * z2z2 % P, x2 * z1z1 % P
    s1, s2 = y1 * z2 * z2z2 % P, y2 * z1 * z1z1 % P
    if u1 == u2:
        return double(p) if s1 == s2 else INFINITY
    h, r = u2 - u1, s2 - s1
    hh = h * h % P
    hhh, v = h * hh % P, u1 * hh % P
    x3 = (r * r - hhh - 2 * v) % P
    return x3, (r * (v - x3) - s1 * hhh) % P, h * z1 * z2 % P


def table(point):
    """Multiples of a point: 0 to 15 times 16 to the power of 0 to 63."""
    rows, base = [], (*point, 1)
    for _ in range(64):
        row = [INFINITY]
        for _ in range(15):
            row.append(add(row[-1], base))
        rows.append(row)
        base = add(row[-1], base)
    return rows


def multiple(rows, scalar, result):
    for row in rows:
        result = add(result, row[scalar & 15])
        scalar >>= 4
    return result


BASE = table(G)


class Key:
    def __init__(self, spki):
        self.rows = None
        if len(spki) == len(SPKI) + 64 and spki.startswith(SPKI):
            x, y = int.from_bytes(spki[-64:-32], "big"), int.from_bytes(spki[-32:], "big")
            if x < P and y < P and (y * y - x**3 + 3 * x - B) % P == 0:
                self.rows = table((x, y))

    def verifies(self, octets, signature):
        numbers = read_der(signature)
        if self.rows is None or numbers is None:
            return False
        r, s = numbers
        if not (0 < r < N and 0 < s < N):
            return False
        digest = int.from_bytes(hashlib.sha256(octets).digest(), "big")
        w = pow(s, -1, N)
        point = multiple(BASE, digest * w % N, INFINITY)
        x, _, z = multiple(self.rows, r * w % N, point)
        return z != 0 and x * pow(z, -2, P) % P % N == r


def read_der(octets):
    """ECDSA-Sig-Value in DER (RFC 3279 section 2.2.3, X.690 section 10): both numbers."""
    if len(octets) < 2 or octets[0] != 0x30 or octets[1] > 127 or octets[1] != len(octets) - 2:
        return None
    rest, numbers = octets[2:], []
    for _ in range(2):
        if len(rest) < 3 or rest[0] != 2 or rest[1] > 127 or rest[1] < 1 or rest[1] > len(rest) - 2:
            return None
        value, rest = rest[2 : 2 + rest[1]], rest[2 + rest[1] :]
        if len(value) > 1 and value[0] == 0 and value[1] < 128:
            return None
        numbers.append(int.from_bytes(value, "big", signed=True))
    return None if rest else numbers


def number(octets):
    return int.from_bytes(octets, "big")


def take(octets, count):
    if len(octets) < count:
        raise Refused("too short")
    return octets[:count], octets[count:]


def counted(octets):
    """What a length of two octets, which counts itself, is in front of."""
    if len(octets) < 2 or number(octets[:2]) < 2:
        raise Refused("a length")
    inside, rest = take(octets, number(octets[:2]))
    return inside[2:], rest


def read_path(value):
    """RFC 8205 section 3: segments, and blocks with their suites."""
    secure, rest = counted(value)
    if not secure or len(secure) % 6:
        raise Refused("Secure_Path")
    segments = [(secure[at], secure[at + 1], number(secure[at + 2 : at + 6])) for at in range(0, len(secure), 6)]
    blocks = []
    while rest:
        inside, rest = counted(rest)
        suite, inside = take(inside, 1)
        # RFC 8608 section 2.1: reserved.
        if suite[0] in (0, 255):
            raise Refused("suite")
        signatures = []
        while inside:
            ski, inside = take(inside, 20)
            length, inside = take(inside, 2)
            signature, inside = take(inside, number(length))
            signatures.append((ski, signature))
        blocks.append((suite[0], signatures))
    if len(blocks) not in (1, 2) or any(len(signatures) != len(segments) for _, signatures in blocks):
        raise Refused("blocks")
    # RFC 8205 does not say what two blocks of a suite are; the manual's page does.
    if len(blocks) == 2 and blocks[0][0] == blocks[1][0]:
        raise Refused("two blocks of one suite")
    return segments, blocks


def check(segments, own, peer):
    """RFC 8205 section 5.2, of a peer outside our AS and any confederation."""
    if segments[0][2] != peer:
        raise Refused("not the peer's AS")
    if any(flags & 0x80 for _, flags, _ in segments):
        raise Refused("a segment of a confederation")
    if segments[0][0] == 0:
        raise Refused("pCount 0 of the peer")
    if any(asn == own and pcount for pcount, _, asn in segments):
        raise Refused("a loop")
    # RFC 7607.
    if any(asn == 0 for _, _, asn in segments):
        raise Refused("AS 0")
    if len(segments) > MOST_HOPS or sum(pcount for pcount, _, _ in segments) > MOST_PCOUNT:
        raise Refused("too long")


def covered(segments, suite, signatures, hop, target, nlri):
    """RFC 8205 section 4.2: what the signature of a hop is over; 0 is the newest."""
    target = segments[hop - 1][2] if hop else target
    octets = target.to_bytes(4, "big")
    for at in range(hop, len(segments)):
        pcount, flags, asn = segments[at]
        octets += bytes([pcount, flags]) + asn.to_bytes(4, "big")
        if at + 1 < len(segments):
            ski, signature = signatures[at + 1]
            # Signature Segment N-1 is before Secure_Path Segment N in the figure.
            octets = octets[:-6] + ski + len(signature).to_bytes(2, "big") + signature + octets[-6:]
    return octets + bytes([suite]) + nlri


def state(segments, blocks, own, nlri, keys):
    known = [(suite, signatures) for suite, signatures in blocks if suite == 1]
    if not known:
        return "unsigned"
    for suite, signatures in known:
        for hop, (ski, signature) in enumerate(signatures):
            octets = covered(segments, suite, signatures, hop, own, nlri)
            named = keys.get((segments[hop][2], ski), [])
            if not any(key.verifies(octets, signature) for key in named):
                break
        else:
            return "valid"
    return "not-valid"


def prefixes(octets, width):
    while octets:
        length, octets = octets[0], octets[1:]
        if length > width:
            raise ValueError("a prefix that is too long")
        count = (length + 7) // 8
        bits, octets = octets[:count], octets[count:]
        # RFC 4271 section 4.3: the bits behind the prefix are of no meaning; RFC 8205 section 4.2: they are signed as 0.
        rest = 8 * count - length
        bits = (number(bits) >> rest << rest).to_bytes(count, "big")
        yield bytes([length]) + bits


def attributes(octets):
    found = {}
    while octets:
        flags, code = octets[0], octets[1]
        length, at = (number(octets[2:4]), 4) if flags & 0x10 else (octets[2], 3)
        found[code] = octets[at : at + length]
        octets = octets[at + length :]
    return found


def judge(message, own, peer, keys):
    """The family and the octets of each prefix of an UPDATE, and what becomes of it."""
    body = message[19:]
    withdrawn = number(body[:2])
    length = number(body[2 + withdrawn : 4 + withdrawn])
    begin = 4 + withdrawn
    found, outside = attributes(body[begin : begin + length]), body[begin + length :]
    reach = found[14]
    afi, safi, hop = number(reach[:2]), reach[2], reach[3]
    routes = list(prefixes(reach[5 + hop :], {1: 32, 2: 128}[afi]))
    try:
        segments, blocks = read_path(found[33])
        if 2 in found:
            raise Refused("AS_PATH beside BGPsec_PATH")
        if len(routes) != 1 or outside:
            raise Refused("not one route in MP_REACH_NLRI")
        check(segments, own, peer)
        nlri = afi.to_bytes(2, "big") + bytes([safi]) + routes[0]
        states = [state(segments, blocks, own, nlri, keys)]
    except Refused:
        states = ["refused"] * len(routes)
    return [(afi, route, what) for route, what in zip(routes, states)]


def main():
    own, peer = int(sys.argv[1]), int(sys.argv[2])
    keys = {}
    for line in open(sys.argv[3]):
        asn, ski, spki = line.split()
        keys.setdefault((int(asn), bytes.fromhex(ski)), []).append(Key(bytes.fromhex(spki)))
    for line in open(sys.argv[4]):
        for afi, route, what in judge(bytes.fromhex(line), own, peer, keys):
            print(afi, route.hex(), what)


main()
