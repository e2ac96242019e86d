//! Texts and files with keys in them, and signed objects: what is taken comes back the same, and no error repeats it.
#![no_main]

use diskside_keys::{Introduction, Invitation, Signer, SigningKey, signer_of};
use diskside_nvme::auth::{Secret, TlsSecret};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static KEY: LazyLock<SigningKey> = LazyLock::new(SigningKey::generate);

fuzz_target!(|bytes: &[u8]| {
    let signed = KEY.sign(bytes);
    assert_eq!(signer_of(&signed), Ok(Some(KEY.signer())));
    // Nobody signs without the key.
    assert!(!matches!(signer_of(bytes), Ok(Some(_))), "signed by nobody");
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(secret) = Secret::parse(text) {
        assert!(Secret::parse(&secret.to_text()).is_ok_and(|again| again.is(&secret)));
    }
    if let Ok(secret) = TlsSecret::parse(text) {
        assert!(TlsSecret::parse(&secret.to_text()).is_ok_and(|again| again.to_text() == secret.to_text()));
    }
    if let Ok(signer) = text.parse::<Signer>() {
        assert_eq!(signer.to_string().parse(), Ok(signer));
    }
    let not_repeated = |error: String| {
        // Long enough to be a key, and not a word of the message.
        let parts = text.split_whitespace().filter(|part| part.len() >= 40 && part.is_ascii());
        parts.for_each(|part| assert!(!error.contains(&part[10..40]), "{error}"));
    };
    if let Err(error) = Introduction::parse(text) {
        not_repeated(error);
    }
    if let Ok(invitation) = Invitation::parse(text) {
        let again = Invitation::parse(&invitation.to_text()).expect("it was made of one");
        assert_eq!(again.to_text(), invitation.to_text());
    }
});
