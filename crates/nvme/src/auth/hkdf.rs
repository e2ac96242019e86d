//! HKDF-Expand-Label of TLS 1.3 (RFC 8446, 7.1), with which TLS keys are derived, and records' keys from them.

use zeroize::Zeroizing;

use super::hash::Hash;

impl Hash {
    /// HKDF-Extract (RFC 5869, 2.2); without a salt it is a hash's length of zeroes.
    pub fn extract(self, salt: Option<&[u8]>, key: &[u8]) -> Zeroizing<Vec<u8>> {
        self.hmac(salt.unwrap_or(&[0; 64][..self.len_bytes()]), &[key])
    }

    /// HKDF-Expand-Label (RFC 8446, 7.1). `len` is at most that of a hash's value, which all of TLS does with.
    ///
    /// # Panics
    /// If the label, the context or the length are longer than they can be.
    pub fn expand_label(self, secret: &[u8], label: &str, context: &[u8], len: usize) -> Zeroizing<Vec<u8>> {
        let label = format!("{PREFIX}{label}");
        let length = |len: usize| u8::try_from(len).expect("labels and contexts have 255 bytes at most");
        let (label_len, context_len) = (length(label.len()), length(context.len()));
        let info = [&(len as u16).to_be_bytes(), &[label_len][..], label.as_bytes(), &[context_len], context].concat();
        self.expand(secret, &info, len)
    }

    /// The same as libnvme had it before 1.16: the length in the other order, and no lengths of label and context. Debian
    /// 13's nvme-cli derives keys so.
    pub(super) fn expand_label_as_old_tools(self, secret: &[u8], label: &str, context: &[u8]) -> Zeroizing<Vec<u8>> {
        let len = self.len_bytes();
        let info = [&(len as u16).to_le_bytes(), PREFIX.as_bytes(), label.as_bytes(), context].concat();
        self.expand(secret, &info, len)
    }

    /// The first block of HKDF-Expand (RFC 5869, 2.3).
    fn expand(self, secret: &[u8], info: &[u8], len: usize) -> Zeroizing<Vec<u8>> {
        assert!(len <= self.len_bytes(), "TLS takes one block");
        let mut block = self.hmac(secret, &[info, &[1]]);
        block.truncate(len);
        block
    }
}

const PREFIX: &str = "tls13 ";
