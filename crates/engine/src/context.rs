//! The context of a program over bytes: `struct ds_call`, or lambda-IO's `struct context`.

use diskside_abi::context::{DsCall, LambdaContext};
use diskside_sbpf::image::Kind;
use diskside_sbpf::region::RegionId;
use zerocopy::IntoBytes as _;

/// The context structure of a program's kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Context {
    Call(DsCall),
    Lambda(LambdaContext),
}

impl Context {
    /// For a run over `in_len` bytes; `about` has what is known of their place, the lengths are filled in.
    pub(crate) fn new(kind: Kind, in_len: u64, args_len: u64, out_cap: u64, about: DsCall) -> Self {
        match kind {
            Kind::LambdaIo => Self::Lambda(LambdaContext {
                buf_o: RegionId::OUTPUT.base().into(),
                buf_i: RegionId::INPUT.base().into(),
                size_i: in_len.into(),
            }),
            _ => Self::Call(DsCall {
                size: (DsCall::LEN_BYTES as u32).into(),
                args_len: args_len.into(),
                out_cap: out_cap.into(),
                ..about
            }),
        }
    }

    /// As the program sees it.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Call(call) => call.as_bytes(),
            Self::Lambda(context) => context.as_bytes(),
        }
    }
}
