//! SHA-1 (FIPS 180-4), which Redis names scripts by. Not for secrets.

/// The digest in hexadecimal digits.
pub(super) const fn sha1(message: &[u8]) -> [u8; 40] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0_u32];
    let blocks = (message.len() + 8) / 64 + 1;
    let bits = (message.len() as u64 * 8).to_be_bytes();
    let mut block = 0;
    while block < blocks {
        let mut schedule = [0_u32; 80];
        let mut i = 0;
        while i < 64 {
            let at = block * 64 + i;
            let octet = if at < message.len() {
                message[at]
            } else if at == message.len() {
                0x80
            } else if at >= blocks * 64 - 8 {
                bits[at + 8 - blocks * 64]
            } else {
                0
            };
            schedule[i / 4] |= (octet as u32) << (24 - i % 4 * 8);
            i += 1;
        }
        state = compress(state, schedule);
        block += 1;
    }
    let mut digits = [0; 40];
    let mut i = 0;
    while i < 40 {
        digits[i] = b"0123456789abcdef"[(state[i / 8] >> (28 - i % 8 * 4)) as usize & 15];
        i += 1;
    }
    digits
}

const fn compress(state: [u32; 5], mut w: [u32; 80]) -> [u32; 5] {
    let [mut a, mut b, mut c, mut d, mut e] = state;
    let mut t = 0;
    while t < 80 {
        if t >= 16 {
            w[t] = (w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]).rotate_left(1);
        }
        let (f, k) = match t / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(w[t]);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        t += 1;
    }
    [
        state[0].wrapping_add(a),
        state[1].wrapping_add(b),
        state[2].wrapping_add(c),
        state[3].wrapping_add(d),
        state[4].wrapping_add(e),
    ]
}

#[cfg(test)]
mod tests {
    use super::sha1;

    #[test]
    fn the_examples_of_the_standard_come_out() {
        assert_eq!(&sha1(b"abc"), b"a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(&sha1(b""), b"da39a3ee5e6b4b0d3255bfef95601890afd80709");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(&sha1(long), b"84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(&sha1(&[b'a'; 1000]), b"291e9a6c66994949b57ba5e650361e98fc36b1ba");
    }
}
