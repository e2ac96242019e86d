//! Who made a host's program, and whether the host may have it.

use std::borrow::Cow;

use diskside_keys::{BadSignature, Signer, signer_of};
use diskside_rights::{Program, Rights};
use sha2::{Digest as _, Sha256};

/// The facts about a host's program that decide whether it may be run.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) sha256: [u8; 32],
    /// Who signed it, if anybody did.
    signer: Result<Option<Signer>, BadSignature>,
}

impl Credentials {
    pub(crate) fn of(object: &[u8]) -> Self {
        Self { sha256: Sha256::digest(object).into(), signer: signer_of(object) }
    }

    pub(crate) fn hex(&self) -> String {
        self.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// As rights know it. A signature that is wrong is none.
    pub(crate) fn program(&self) -> Program<'_> {
        let signer = self.signer.as_ref().ok().and_then(Option::as_ref).map(|signer| &signer.0);
        Program { shipped: None, sha256: &self.sha256, signer }
    }
}

/// Why a host may not have this program; `None`: it may.
pub(crate) fn why_refused(program: &Credentials, rights: &Rights) -> Option<Cow<'static, str>> {
    if program.signer.is_err() {
        return Some("the program was changed after it was signed: sign it again (diskside sign)".into());
    }
    let credentials = program.program();
    match rights.lacks_signature(&credentials) {
        true if credentials.signer.is_none() => {
            Some("this target takes signed programs alone, and nobody signed this one (diskside sign)".into())
        }
        true => Some(
            "this target does not know who signed this program: its operator names signers (security.require_signed_by)".into(),
        ),
        false if rights.may_run(&credentials) => None,
        // The host has the program, and its operator the grants: this is all that one has to tell the other.
        false => {
            let hex = program.hex();
            Some(
                format!("this host may not run this program; a [[grant]] with functions = [\"sha256:{hex}\"] would let it").into(),
            )
        }
    }
}
