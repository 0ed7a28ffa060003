//! Fuzzes the decoder and the keys with arbitrary links and codes: nothing may crash, and nothing may be accepted that
//! was not signed.
//!
//! The input is a code of up to five bytes, a zero byte, and a link. The link is tested as it is, and also applied to
//! genuine links as a change of each byte: otherwise the fuzzer would first have to find 86 valid characters.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mailroom_core::token::{self, Code, Purpose, SECRET_LEN, SigningKey};

const SECRET: [u8; SECRET_LEN] = [0x5a; SECRET_LEN];
const CODE: &str = "01234";

struct Genuine {
    keys: [SigningKey; 2],
    activation: String,
    recovery: String,
}

static GENUINE: LazyLock<Genuine> = LazyLock::new(|| {
    let keys = [SigningKey::new(&[1; 32]), SigningKey::new(&[2; 32])];
    let code = Code::new(CODE).expect("a code");
    Genuine {
        activation: token::sign(&keys[0], Purpose::Activation, &SECRET),
        recovery: token::sign(&keys[1], Purpose::PasswordRecovery { code }, &SECRET),
        keys,
    }
});

/// Fails if the server would accept a link and a code that were not signed.
fn judge(link: &str, code: &str) {
    let genuine = &*GENUINE;
    let Some(parsed) = token::parse(link) else {
        return;
    };
    if parsed.is_genuine(&genuine.keys, Purpose::Activation) {
        assert_eq!(link, genuine.activation, "accepted as an activation");
    }
    if let Some(given) = Code::new(code)
        && parsed.is_genuine(&genuine.keys, Purpose::PasswordRecovery { code: given })
    {
        assert_eq!(
            (link, code),
            (genuine.recovery.as_str(), CODE),
            "accepted as a recovery"
        );
    }
}

fuzz_target!(|data: &[u8]| {
    let end = data.iter().take(6).position(|byte| *byte == 0).unwrap_or(0);
    let (code, link) = data.split_at(end);
    let link = link.strip_prefix(&[0]).unwrap_or(link);
    let code = std::str::from_utf8(code).unwrap_or(CODE);
    if let Ok(link) = std::str::from_utf8(link) {
        judge(link, code);
        judge(link, CODE);
    }
    for base in [&GENUINE.activation, &GENUINE.recovery] {
        let mut changed = base.clone().into_bytes();
        for (place, change) in changed.iter_mut().zip(link) {
            *place ^= change & 0x7f;
        }
        if let Ok(changed) = std::str::from_utf8(&changed) {
            judge(changed, code);
            judge(changed, CODE);
        }
    }
});
