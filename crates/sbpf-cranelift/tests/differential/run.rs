//! Runs one program on one input in every way there is.

use crate::generate::Source;
use crate::rng::Rng;
use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program, Returned, Stopped};
use diskside_sbpf::asm::assemble;
use diskside_sbpf::helpers::HelperSet;
use diskside_sbpf::image::Kind;
use diskside_sbpf::interp::Interpreter;
use diskside_sbpf::machine::CancelToken;
use diskside_sbpf::region::RegionId;
use std::sync::Arc;

/// A program in its forms. The first is the reference.
pub(crate) struct Subject {
    program: Arc<Program>,
    codes: Vec<(&'static str, Arc<dyn Code>)>,
}

/// What a program is given.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    first: Vec<u8>,
    second: Vec<u8>,
    args: Vec<u8>,
    /// The lengths that the program gets: true ones, or a little off.
    told: [u64; 3],
    budget: u64,
    cancelled: bool,
    /// How far read-only memory lies from an aligned address.
    skew: usize,
}

/// What is visible afterwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub(crate) result: Result<Returned, Stopped>,
    pub(crate) memory: Vec<Vec<u8>>,
    /// Whether anything outside of the regions was written.
    pub(crate) spilled: bool,
}

/// Why a text is not a subject.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It does not assemble: a label that was cut off.
    Text(String),
    /// It does not verify.
    Verifier(String),
}

impl Subject {
    pub(crate) fn new(source: &Source, helpers: &Arc<HelperSet>) -> Result<Self, Refused> {
        let text = source.lines.join("\n");
        let assembly = assemble(&text).map_err(|e| Refused::Text(e.to_string()))?;
        let mut image = assembly.into_image(source.kind, helpers).map_err(|e| Refused::Text(e.to_string()))?;
        image.data = (0..source.data_len).map(|i| (i * 37) as u8).collect();
        image.rodata = (0..source.rodata_len).map(|i| (i * 101) as u8).collect();
        let program = Program::new(&Arc::new(image), 0, helpers)
            .map_err(|d| Refused::Verifier(d.iter().map(|d| d.to_string() + "\n").collect()))?;
        let program = Arc::new(program);
        let mut codes: Vec<(&'static str, Arc<dyn Code>)> = vec![
            ("interpreter, plain", Arc::new(program.interpreter())),
            ("interpreter, optimised", Arc::new(Interpreter::new(Arc::clone(program.optimised())))),
        ];
        codes.extend(crate::forms::compiled(&program));
        Ok(Self { program, codes })
    }

    /// Loops whose checks were hoisted.
    pub(crate) fn hoisted_loops(&self) -> usize {
        let functions = &self.program.optimised().functions;
        functions.iter().flat_map(|f| &f.loops).filter(|l| l.hoisted).count()
    }

    /// Runs the input in every form. The error says which differ and how.
    pub(crate) fn run(&self, input: &Input) -> Result<Outcome, String> {
        let mut reference: Option<Outcome> = None;
        for (i, (name, code)) in self.codes.iter().enumerate() {
            let run = || self.run_one(Arc::clone(code), input, i as u64);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
                .map_err(|_| format!("{name}: {}", crate::harness::last_panic()))?;
            if outcome.spilled {
                return Err(format!("{name}: wrote outside of its regions"));
            }
            match &reference {
                None => reference = Some(outcome),
                Some(r) if *r == outcome => {}
                Some(r) => return Err(difference(name, r, &outcome)),
            }
        }
        reference.ok_or_else(|| "nothing ran".to_owned())
    }

    fn run_one(&self, code: Arc<dyn Code>, input: &Input, noise: u64) -> Outcome {
        // Around each region lies noise that differs from run to run: a stray read changes the result.
        let mut first = Padded::new(&input.first, 0, noise);
        let mut second = Padded::new(&input.second, if self.kind() == Kind::Raw { 0 } else { input.skew }, noise);
        let args = Padded::new(&input.args, input.skew / 2, noise);
        let mut context = Padded::new(&context(input), 0, noise);
        let [a, b, _] = input.told;
        let (mappings, scalars) = match self.kind() {
            Kind::Read => {
                let m = Mappings::new()
                    .writable(RegionId::OUTPUT, first.bytes_mut())
                    .read_only(RegionId::INPUT, second.bytes())
                    .read_only(RegionId::ARGS, args.bytes())
                    .writable(RegionId::CONTEXT, context.bytes_mut());
                (m, [b, 0, 0])
            }
            Kind::Lambda => {
                let m = Mappings::new()
                    .writable(RegionId::OUTPUT, first.bytes_mut())
                    .read_only(RegionId::INPUT, second.bytes());
                (m, [b, 0, 0])
            }
            Kind::Combine => {
                let m = Mappings::new()
                    .writable(RegionId::ACCUMULATOR, first.bytes_mut())
                    .read_only(RegionId::INPUT, second.bytes());
                (m, [a / 2, a, b])
            }
            Kind::Raw => (Mappings::new().writable(RegionId::INPUT, second.bytes_mut()), [b, 0, 0]),
            kind => unreachable!("{kind:?} is not generated"),
        };
        let registers = self.program.entry_registers(&scalars[..]);
        let options = ActivationOptions { heap_quota_bytes: 8 << 10, ..ActivationOptions::default() };
        let mut activation = Activation::new(&self.program, code, options);
        let cancel = input.cancelled.then(|| {
            let token = CancelToken::new();
            token.cancel();
            token
        });
        let limits = Limits { budget: input.budget, deadline: None, cancel };
        let result = activation.call(&mappings, registers, &limits);
        let spilled = [&first, &second, &args, &context].into_iter().any(Padded::spilled);
        let memory = [&first, &second].map(|p| p.bytes().to_vec()).into();
        Outcome { result, memory, spilled }
    }

    fn kind(&self) -> Kind {
        self.program.entry().kind
    }
}

impl Input {
    pub(crate) fn random(rng: &mut Rng, large: bool) -> Self {
        let len = |rng: &mut Rng| match rng.below(16) {
            0 => 0,
            1 => 1 + rng.below(8),
            2..=3 => 8 * rng.below(20),
            4..=5 => 64 * rng.below(8) + 1,
            6..=7 => 64 * (1 + rng.below(8)) - 1,
            8..=10 => rng.below(300),
            _ => 300 + rng.below(900),
        };
        let first_len = len(rng);
        let second_len = if large { 20_000 + rng.below(30_000) } else { len(rng) };
        let first = contents(rng, first_len);
        let second = contents(rng, second_len);
        let args_len = rng.pick(&[0, 8, 16, 64]);
        let args = contents(rng, args_len);
        let off = |rng: &mut Rng, n: usize| {
            let by = if rng.percent(80) { 0 } else { rng.range(-9, 9) };
            (n as i64 + by) as u64
        };
        let told = [off(rng, first.len()), off(rng, second.len()), off(rng, args.len())];
        let budget = match rng.below(6) {
            0 => rng.below(12) as u64,
            1 => rng.below(300) as u64,
            2 => rng.below(5000) as u64,
            _ if large => 120_000,
            _ => 6_000,
        };
        Self { first, second, args, told, budget, cancelled: rng.percent(5), skew: rng.below(16) }
    }

    /// The same with a budget of exactly this many edges.
    pub(crate) fn with_budget(&self, budget: u64) -> Self {
        Self { budget, ..self.clone() }
    }

    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }
}

fn contents(rng: &mut Rng, len: usize) -> Vec<u8> {
    match rng.below(4) {
        0 => vec![0; len],
        1 => (0..len).map(|_| rng.below(4) as u8).collect(),
        2 => (0..len).map(|i| if i % 7 == 6 { 10 } else { b'A' + (i % 26) as u8 }).collect(),
        _ => (0..len).map(|_| rng.next_u64() as u8).collect(),
    }
}

/// A `struct ds_call`.
fn context(input: &Input) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(56);
    bytes.extend(56u32.to_le_bytes());
    bytes.extend(3u32.to_le_bytes());
    for v in [input.told[2], input.told[0], 0, u64::MAX, input.told[1]] {
        bytes.extend(v.to_le_bytes());
    }
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(7u32.to_le_bytes());
    bytes
}

/// Bytes at a chosen distance from an aligned address, with noise on both sides.
struct Padded {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    noise: Vec<u8>,
}

impl Padded {
    const PAD: usize = 192;

    fn new(bytes: &[u8], skew: usize, noise: u64) -> Self {
        let mut rng = Rng::new(noise);
        let noise: Vec<u8> = (0..bytes.len() + 2 * Self::PAD).map(|_| rng.next_u64() as u8).collect();
        let mut memory = noise.clone();
        let address = memory.as_ptr().addr() + Self::PAD / 2;
        let start = Self::PAD / 2 + (address.next_multiple_of(64) - address) + skew;
        memory[start..start + bytes.len()].copy_from_slice(bytes);
        Self { memory, start, len: bytes.len(), noise }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    fn spilled(&self) -> bool {
        let end = self.start + self.len;
        self.memory[..self.start] != self.noise[..self.start] || self.memory[end..] != self.noise[end..]
    }
}

fn difference(name: &str, reference: &Outcome, other: &Outcome) -> String {
    if reference.result != other.result {
        return format!("{name}: expected {:?}, got {:?}", reference.result, other.result);
    }
    for (m, (a, b)) in reference.memory.iter().zip(&other.memory).enumerate() {
        if let Some(i) = (0..a.len()).find(|&i| a[i] != b[i]) {
            return format!("{name}: memory {m} differs at {i}: expected {:#04x}, got {:#04x}", a[i], b[i]);
        }
    }
    format!("{name}: differs")
}
