//! CRC-32C (RFC 3720 appendix B.4), eight octets at a time.

const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[table - 1][i];
            tables[table][i] = (before >> 8) ^ tables[0][(before & 255) as usize];
            i += 1;
        }
        table += 1;
    }
    tables
};

/// The checksum of two parts, one behind the other.
pub(super) fn crc(first: &[u8], second: &[u8]) -> u32 {
    !add(add(!0, first), second)
}

fn add(mut crc: u32, octets: &[u8]) -> u32 {
    let (blocks, rest) = octets.as_chunks::<8>();
    for block in blocks {
        let all = u64::from_le_bytes(*block) ^ u64::from(crc);
        let table = |i: usize| TABLES[7 - i][(all >> (8 * i)) as usize & 255];
        crc = (0..8).fold(0, |crc, i| crc ^ table(i));
    }
    rest.iter().fold(crc, |crc, octet| (crc >> 8) ^ TABLES[0][(crc as u8 ^ octet) as usize])
}

#[cfg(test)]
mod tests {
    use super::crc;

    #[test]
    fn the_examples_of_the_rfc_come_out() {
        assert_eq!(crc(&[0; 32], &[]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32], &[]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc(&ascending, &[]), 0x46dd_794e);
        assert_eq!(crc(&ascending[..5], &ascending[5..]), 0x46dd_794e);
        assert_eq!(crc(b"1234", b"56789"), 0xe306_9283);
    }
}
