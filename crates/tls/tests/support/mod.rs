//! Entry points for fuzzers: any bytes may come, and nothing may panic.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use diskside_nvme::auth::{Hash, TlsPsk};
use diskside_tls::{Content, Look, Lookout, Next, RECORD_LEN_MAX, Records, Secrets};

/// The first words of a host, in pieces of any size, lead to the same end.
pub fn hello(bytes: &[u8]) {
    let Some((&split, stream)) = bytes.split_first() else { return };
    let key = TlsPsk { identity: "NVMe1R01 a b c".into(), hash: Hash::Sha256, key: vec![1; 32].into() };
    let (mut end, mut lookout) = (None, Lookout::default());
    for piece in 1..=stream.len().div_ceil(usize::from(split).max(1)) {
        let len = (piece * usize::from(split).max(1)).min(stream.len());
        let look = lookout.look(&stream[..len]);
        if matches!(look, Ok(Look::Incomplete)) {
            continue;
        }
        end = Some(format!("{look:?}"));
        if let Ok(Look::Hello(hello)) = look {
            let _ = hello.choose(|_| std::slice::from_ref(&key));
        }
        break;
    }
    let whole = Lookout::default().look(stream);
    if stream.is_empty() || matches!(whole, Ok(Look::Incomplete)) {
        assert_eq!(end, None);
    } else if whole.is_ok() {
        // One that is whole with its first bytes is not looked at with those behind it.
        assert_eq!(end, Some(format!("{whole:?}")));
    } else {
        assert!(end.is_some());
    }
}

/// Records of any content, of a side that has the key, and bytes of one that has not.
pub fn records(bytes: &[u8]) {
    let Some((&[choice, split], mut script)) = bytes.split_first_chunk::<2>() else { return };
    let (ours, theirs) = (vec![1; 32], vec![2; 32]);
    let mut channel = Records::new(Secrets { hash: Hash::Sha256, ours: ours.into(), theirs: theirs.clone().into() });
    let mut peer = Peer::new(Hash::Sha256, &theirs);
    let mut stream = Vec::new();
    // Each record: its type, how much it has, how many zeroes are behind it.
    while choice & 1 == 0
        && let Some((&[kind, len, zeroes], rest)) = script.split_first_chunk::<3>()
    {
        let (content, rest) = rest.split_at(rest.len().min(len.into()));
        peer.seal(kind, content, zeroes.into(), &mut stream);
        script = rest;
    }
    stream.extend_from_slice(script);
    let mut output = vec![0; RECORD_LEN_MAX + Records::OUTPUT_SPARE];
    let (mut held, mut answers) = (Vec::new(), Vec::new());
    for piece in stream.chunks(usize::from(split).max(1)) {
        held.extend_from_slice(piece);
        loop {
            match channel.open(&held, &mut output) {
                Ok(Next::Incomplete(missing)) => {
                    assert!(missing > 0 && held.len() + missing <= RECORD_LEN_MAX + 5 + 256);
                    break;
                }
                Ok(Next::Record { taken, content }) => {
                    held.drain(..taken);
                    match content {
                        Content::Data(len) => assert!(len <= RECORD_LEN_MAX),
                        Content::Control => {}
                        Content::Closed => {}
                    }
                }
                Err(error) => {
                    if let Some(alert) = error.alert() {
                        channel.close(alert, &mut answers);
                    }
                    return;
                }
            }
        }
    }
}

/// A side that has the key, and says what it likes under it.
pub struct Peer {
    hash: Hash,
    secret: Vec<u8>,
    sequence: u8,
}

impl Peer {
    /// With the secret of what it sends.
    pub fn new(hash: Hash, secret: &[u8]) -> Self {
        Self { hash, secret: secret.to_vec(), sequence: 0 }
    }

    /// Appends a record of this type and content, with so many zeroes behind it.
    pub fn seal(&mut self, kind: u8, content: &[u8], zeroes: usize, out: &mut Vec<u8>) {
        let derive = |label, len| self.hash.expand_label(&self.secret, label, &[], len);
        let algorithm = if self.hash == Hash::Sha256 { &AES_128_GCM } else { &AES_256_GCM };
        let key = UnboundKey::new(algorithm, &derive("key", algorithm.key_len())).expect("a key is as long");
        let mut nonce: [u8; 12] = derive("iv", 12)[..].try_into().expect("as long as was asked for");
        nonce[11] ^= self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        let mut text = [content, &[kind], &vec![0; zeroes]].concat();
        let [high, low] = ((text.len() + 16) as u16).to_be_bytes();
        let header = [23, 3, 3, high, low];
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = LessSafeKey::new(key).seal_in_place_append_tag(nonce, Aad::from(&header), &mut text);
        sealed.expect("it is short");
        out.extend_from_slice(&header);
        out.extend_from_slice(&text);
        // Both go over to new keys together.
        if kind == 22 && matches!(content, [24, 0, 0, 1, _]) {
            let next = self.hash.expand_label(&self.secret, "traffic upd", &[], self.hash.len_bytes());
            *self = Self::new(self.hash, &next);
        }
    }
}
