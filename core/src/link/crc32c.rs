//! CRC32C (Castagnoli, as in iSCSI, RFC 3720 appendix B.4): the optional check of a payload.
//!
//! Eight bytes a step over tables that are worked out at compile time. It detects corruption of bytes, not intent.

/// The polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// `TABLES[k][b]`: the remainder of byte `b` followed by `k` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<8>();
    let mut crc = u32::MAX;
    for step in steps {
        let [a, b, c, d, e, f, g, h] = *step;
        let [a, b, c, d] = (u32::from_le_bytes([a, b, c, d]) ^ crc).to_le_bytes();
        crc = entry(7, a)
            ^ entry(6, b)
            ^ entry(5, c)
            ^ entry(4, d)
            ^ entry(3, e)
            ^ entry(2, f)
            ^ entry(1, g)
            ^ entry(0, h);
    }
    for byte in rest {
        crc = (crc >> 8) ^ entry(0, *byte ^ crc as u8);
    }
    !crc
}

#[inline]
fn entry(zeros_after: usize, byte: u8) -> u32 {
    TABLES[zeros_after & 7][byte as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: one bit at a time.
    fn twin(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
            }
        }
        !crc
    }

    #[test]
    fn the_published_test_vectors_come_out() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA, "RFC 3720 B.4, 32 bytes of zeros");
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43, "RFC 3720 B.4, 32 bytes of ones");
        assert_eq!(crc32c(&[]), 0);
    }

    proptest! {
        #[test]
        fn it_agrees_with_its_twin(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(crc32c(&bytes), twin(&bytes));
        }
    }
}
