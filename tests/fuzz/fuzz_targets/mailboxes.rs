//! Fuzzes lists of mailboxes, as an application passes them: what is accepted is read back from its own text as the same,
//! and a list of it has the same elements.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mailroom_core::address::{
    self,
    mailbox::{Mailbox, bare, elements},
};

fuzz_target!(|data: &[u8]| {
    let mut accepted = Vec::new();
    for element in elements(data) {
        let Ok(text) = std::str::from_utf8(element) else {
            continue;
        };
        let _ = address::check(text);
        let Ok(mailbox) = Mailbox::parse(text) else {
            continue;
        };
        let written = mailbox.text();
        assert_eq!(Mailbox::parse(&written).as_ref(), Ok(&mailbox), "{written}");
        assert_eq!(
            address::to_ascii(bare(text)).as_deref(),
            Ok(mailbox.address())
        );
        let key = address::key(mailbox.address()).expect("an address has a key");
        assert_eq!(address::key(&key).as_deref(), Ok(&*key));
        assert!(address::is_same_mailbox(
            mailbox.address(),
            mailbox.address()
        ));
        accepted.push(written);
    }
    let list = accepted.join(", ");
    let read: Vec<&[u8]> = elements(list.as_bytes());
    assert!(read.into_iter().eq(accepted.iter().map(String::as_bytes)));
});
