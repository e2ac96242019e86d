//! Why a side gives a channel up, as it tells the other (RFC 8446, 6).

use std::fmt;

/// The number of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert(pub u8);

impl Alert {
    /// Nothing more is said: the end in good order.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// A record of another kind than can be.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record that was changed on its way, or sealed with another key.
    pub const BAD_RECORD_MAC: Self = Self(20);
    /// A record that is too long.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// A field that cannot be.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// A message that cannot be read.
    pub const DECODE_ERROR: Self = Self(50);
    /// The proof of a key does not fit.
    pub const DECRYPT_ERROR: Self = Self(51);
    /// Something failed here.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// The other side is going away, without more to say.
    pub const USER_CANCELED: Self = Self(90);
    /// There is no such identity.
    pub const UNKNOWN_PSK_IDENTITY: Self = Self(115);

    /// The record that says so before there are keys.
    pub fn to_plain_record(self) -> [u8; 7] {
        [21, 3, 3, 0, 2, self.level(), self.0]
    }

    pub(crate) fn level(self) -> u8 {
        if matches!(self, Self::CLOSE_NOTIFY | Self::USER_CANCELED) { 1 } else { 2 }
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            22 => "record_overflow",
            40 => "handshake_failure",
            47 => "illegal_parameter",
            50 => "decode_error",
            51 => "decrypt_error",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            90 => "user_canceled",
            109 => "missing_extension",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            other => return write!(f, "alert {other}"),
        };
        f.write_str(name)
    }
}
