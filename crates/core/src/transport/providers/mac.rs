//! HMAC-SHA256 with keys of any length. Pure.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Bytes of a block of SHA-256, FIPS 180-4.
const BLOCK: usize = 64;

/// A key, ready to sign. Its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// Takes over a key. RFC 2104 hashes a long key and pads a short one with zeros; doing it here selects the
    /// constructor that cannot fail.
    pub fn new(key: &[u8]) -> Self {
        let mut block = Zeroizing::new([0_u8; BLOCK]);
        if key.len() > BLOCK {
            let hash: [u8; 32] = Sha256::digest(key).into();
            block[..hash.len()].copy_from_slice(&hash);
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        Self(Hmac::<Sha256>::new((&*block).into()))
    }

    /// The MAC of the concatenated parts.
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The SHA-256 of these bytes in hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4231, test cases 2 and 6.
    #[test]
    fn known_answers() {
        let short = MacKey::new(b"Jefe").sign(&[b"what do ya want ", b"for nothing?"]);
        assert_eq!(
            hex(&short),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = MacKey::new(&[0xaa; 131])
            .sign(&[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
        assert_eq!(
            hex(&long),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
        assert_eq!(
            sha256_hex(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
